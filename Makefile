# Everything a person does here, each with one word. `make` alone lists them.

PYTHON ?= python3
BLOCKS ?= 200
RUNS ?= 5000
FIRST ?= 1001
MOVES ?= 12
DEATHS ?= 20
NAMES ?=
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run up test check everywhere deaths docs bench simulate campaign clean

help: ## List what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make the virtual environment and install what is pinned

$(STAMP): requirements/base.txt requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(STAMP)

run: setup ## Follow a forking devnet for BLOCKS blocks (200), verify every block, print a summary
	@$(BIN)/unfork up --blocks $(BLOCKS)

up: setup ## The same without an end; Ctrl-C stops it cleanly
	@$(BIN)/unfork up

test: check ## All checks and all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --durations=20

check: setup ## Style, types, import layers, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/docs

everywhere: setup ## Every test of Spark again over Spark Connect and on a cluster of two workers
	UNFORK_TEST_EVERYWHERE=all $(BIN)/python -m pytest tests/spark/test_everywhere.py

deaths: setup ## Workers on Spark that die at random steps while the chain forks (DEATHS=20 FIRST=1001)
	DEATHS=$(DEATHS) FIRST=$(FIRST) $(BIN)/python -m pytest tests/spark/test_deaths.py

docs: setup ## Write the pages that are made from code: configuration.md, cli.md and datasets.md
	$(BIN)/python -m unfork.cli.reference docs

bench: setup ## Every benchmark, each a ratio against a limit (NAMES="decode commit" for some)
	$(BIN)/python -m benchmarks $(NAMES)

simulate: setup ## Repeat one simulated run (SEED=...), or the usual number of them
	$(BIN)/python -m pytest -n $(JOBS) tests/simulation

campaign: setup ## A long run of longer simulations (RUNS=5000 FIRST=1001 MOVES=12)
	RUNS=$(RUNS) FIRST=$(FIRST) MOVES=$(MOVES) $(BIN)/python -m pytest -n $(JOBS) tests/simulation

clean: ## Remove the virtual environment, caches and the default data folder
	rm -rf $(VENV) .tools .unfork build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.egg-info' -type d -prune -exec rm -rf {} +
