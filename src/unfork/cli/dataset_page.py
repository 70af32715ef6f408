"""Owns docs/datasets.md: what every built-in dataset holds, from the declarations themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from unfork.datasets.derivation import ByDay
from unfork.jobs.builtin import BUILTINS, Builtin
from unfork.jobs.meaning import MEANINGS

HEAD = """\
# Built-in datasets

What unfork computes from an EVM chain unless `jobs:` says otherwise ([jobs.md](jobs.md)). Names are
those of ethereum-etl where it has one. Every row names a block by number, hash and time, and all
rows are what the canonical chain says, through any fork. Numbers are whole: 256-bit ones are
`numeric(78,0)`, sums of them `numeric` of any size, never rounded. Hashes and addresses are
`bytea`.

In SQL a dataset is a view of its name in the chain's app schema. Tables that grow with the chain
are cut into pieces of so many blocks. A job may ask for further indexes: `indexes:`.

This page is written by `make docs` from `src/unfork/jobs/meaning.py` and `builtin.py` beside it.
"""


def page() -> str:
    """The page."""
    assert set(MEANINGS) == set(BUILTINS)
    return "\n".join([HEAD, *("\n".join(_section(job)) for job in BUILTINS)])


def _section(job: str) -> Iterator[str]:
    builtin, meaning = BUILTINS[job], MEANINGS[job]
    name = builtin.output or job
    yield f"## {name}\n"
    told = ". ".join(text[0].upper() + text[1:] for text in (meaning.row, meaning.more) if text)
    yield textwrap.fill(f"{told}.", 100, break_on_hyphens=False, break_long_words=False) + "\n"
    by = " by UTC day" if isinstance(builtin.partitioning, ByDay) else ""
    read = ", ".join(f"`{one}`" for one in builtin.inputs if one not in builtin.optional)
    optional = ", ".join(f"`{one}`" for one in builtin.optional)
    yield "| | |"
    yield "|---|---|"
    yield f"| job | `{job}`: {builtin.mode}{by}, {builtin.strategy} |"
    yield f"| reads | {read}{f', and {optional} where the chain has them' if optional else ''} |"
    yield f"| key | {_columns(builtin.unique_key)} |"
    yield f"| indexes | {', '.join(map(_columns, builtin.indexes)) or 'none beside the key'} |"
    yield f"| table | {_table(builtin)} |"
    yield ""
    yield "| column | type | what |"
    yield "|---|---|---|"
    for column, (kind, what) in meaning.columns.items():
        yield f"| `{column}` | `{kind.value}` | {what} |"
    yield ""


def _columns(names: tuple[str, ...]) -> str:
    return f"`({', '.join(names)})`"


def _table(builtin: Builtin) -> str:
    if builtin.table_blocks is None:
        return "in one piece"
    return f"in pieces of {builtin.table_blocks:,} blocks"
