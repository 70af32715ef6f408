"""Owns the texts made from the configuration tree: the starter file and the reference page.

In the starter file a setting stands behind a `#` at the very start of its line, and prose behind a
`#` that is followed by a space: removing every `#` of the first kind gives a complete file in which
everything has its default.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from unfork.config import describe
from unfork.config.describe import Key
from unfork.config.environment import SHORT_NAMES
from unfork.config.jobs import default_jobs

STARTER_HEAD = """\
# The configuration of one unfork project.
#
# Everything has a default, and every setting below shows it behind a `#`: remove the `#` to change
# one (and those of the lines it stands under). Without any chain, `unfork up` follows a simulated
# one that forks all the time.
#
# ${NAME} takes a value from the environment, ${NAME:-default} names a default, $${ writes ${.
# Stronger than this file are a .env file beside it, the environment and flags, in this order.
"""

#: Lists of which the starter file shows the default alone; docs/configuration.md shows their keys.
SHORT_LISTS = {
    "jobs": ("#jobs:", *(f"#  - name: {job.name}" for job in default_jobs())),
    "decode": ("#decode: []",),
    "schedules": ("#schedules: []",),
}

REFERENCE_HEAD = """\
# Configuration

One tree, read once at start: `unfork.yaml` (of the working folder or the nearest one above it, or
`--config`, or `UNFORK_CONFIG`), then a `.env` file beside it, then the environment, then flags. The
later wins. `unfork init` writes a starter file from it.

- `${NAME}` in a value is replaced from the environment, `${NAME:-default}` names a default, `$${`
  writes a plain `${`. A variable that is missing is an error.
- Every key has a variable: `UNFORK_` and its path joined by two underscores. A chain is addressed
  by its name in capitals, shown as `<CHAIN>` below. Lists are written with commas, or as JSON. An
  empty variable counts as not set. Jobs, decoding and schedules are set as a whole, as JSON
  (`UNFORK_JOBS`).
- Short names (such as `DB_RAW_URL`) work as well; those of a chain's key apply to every chain. The
  longer name wins over the shorter one.
- Unknown keys, keys written twice and impossible values are refused, all at once, each with its
  file and line and the nearest valid key. Values that may be secrets are never shown.
- Relative folders and files in the file are relative to the file.

This page is written by `make docs` from `src/unfork/config/tree.py`.
"""


def starter(given: Mapping[str, Sequence[str]] = MappingProxyType({})) -> str:
    """The commented unfork.yaml of a new project.

    `given` are lines that stand for a branch at the root, by its key; they come first.
    """
    lines = STARTER_HEAD.splitlines()
    for own in given.values():
        lines += ["", *own]
    for key in describe.keys():
        if key.path[0] in given:
            continue
        if len(key.path) == 1:
            lines.append("")
        lines.extend(_starter_lines(key))
    return "\n".join(lines) + "\n"


def dotenv() -> str:
    """The .env.example of a new project."""
    lines = [
        "# Copy to .env, which stays out of version control. Empty means not set.",
        "# Every key of unfork.yaml has a variable here; these have short names.",
    ]
    sentences = {name: key.sentence for key in describe.keys() for name in key.variables}
    for name in SHORT_NAMES:
        said = textwrap.wrap(sentences[name], 96, initial_indent="# ", subsequent_indent="# ")
        lines += ["", *said, f"{name}="]
    return "\n".join(lines) + "\n"


def reference() -> str:
    """docs/configuration.md."""
    parts = [REFERENCE_HEAD, "## At the root\n", *_table(())]
    for key in describe.keys():
        if key.is_branch:
            parts += [f"\n## {key.dotted}\n", f"{key.sentence}\n", *_table(key.path)]
    return "\n".join(parts) + "\n"


def _starter_lines(key: Key) -> Iterator[str]:
    depth = len(key.path) - 1
    if key.path[0] in SHORT_LISTS and depth > 0:
        return
    is_in_list = key.is_listed and depth > 0
    indent = "  " * (depth + 1 if is_in_list else depth)
    for line in textwrap.wrap(key.sentence, 96 - len(indent)):
        yield f"{indent}# {line}"
    name = key.path[-1]
    if key.path == ("chains", "name"):
        yield "#  - name: ethereum"
    elif key.path[0] in SHORT_LISTS:
        yield from SHORT_LISTS[key.path[0]]
    elif key.is_branch:
        yield f"#{indent}{name}:"
    else:
        yield f"#{indent}{name}: {key.default}"


def _table(path: tuple[str, ...]) -> Iterator[str]:
    rows = [key for key in describe.keys() if key.path[:-1] == path and not key.is_branch]
    if not rows:
        return
    yield "| key | what | takes | default | variables |"
    yield "|---|---|---|---|---|"
    for key in rows:
        names = ", ".join(f"`{name}`" for name in key.variables)
        default = f"`{key.default}`" if key.default else "must be given"
        yield f"| `{key.path[-1]}` | {key.sentence} | {key.kind} | {default} | {names} |"
