"""Owns what `unfork jobs preview` shows, and the watch that shows it anew when a file is saved.

Spark is started once and stays; configuration and code are read anew each time, so what is shown is
what the files say now. It stands apart from the command because Spark is large.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import RenderableType

from unfork import wiring, wiring_jobs
from unfork.chain.span import Span
from unfork.cli import looking, output, tools
from unfork.cli.context import Context, finish, flags_for, one_chain
from unfork.config.load import Loaded
from unfork.datasets.dataset import Kind
from unfork.errors import UnforkError
from unfork.jobs import session
from unfork.jobs.differ import Difference
from unfork.jobs.preview import Preview

#: Blocks that are previewed where nobody says which.
BLOCKS = 20
#: Seconds between two looks at the files while nothing happens.
LOOK_S = 0.3
#: Files that a preview depends on.
SUFFIXES = frozenset({".yaml", ".yml", ".sql", ".py", ".json", ".env"})
#: Digits of bytes that a person is shown on either side.
DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person wants to see."""

    job: str
    #: These blocks; None for the last ones.
    span: Span | None
    last: int
    #: Rows that are shown.
    limit: int
    chain: str | None
    #: Whether the files may change meanwhile.
    is_watched: bool


def once(context: Context, wish: Wish) -> int | None:
    """Shows what a job would write; 1 where its checks would keep it back."""
    with Desk(context, wish) as desk:
        found = desk.preview()
        context.output.result(document(desk.chain, found), *lines(found))
    return None if found.is_published else 1


def watch(context: Context, wish: Wish) -> None:
    """Shows it, and again whenever a file of the project is saved, until Ctrl-C."""
    stopping = threading.Event()
    with Desk(context, wish) as desk:
        watching = Watch(desk.folder, desk.preview, lambda found: _tell(context, found))
        try:
            watching.run(stopping)
        except KeyboardInterrupt:
            context.output.result({"job": wish.job, "shown": watching.shown}, "")


class Desk:
    """A Spark and the databases, for previews one after the other."""

    def __init__(self, context: Context, wish: Wish) -> None:
        self._context = context
        self._wish = wish
        self._stack = ExitStack()
        loaded = self._loaded()
        self.chain = one_chain(loaded.config, wish.chain).name
        self.folder = (Path.cwd() if loaded.file is None else loaded.file.parent).resolve()
        self._begun = loaded

    def __enter__(self) -> Desk:
        with ExitStack() as stack:
            where = stack.enter_context(tools.databases(self._begun.config))
            # What is wrong with the files is told before Spark takes its time to start.
            looking.one_job(looking.read_jobs(self._begun), self._wish.job)
            self.use(stack.enter_context(session.opened(self._begun.config)), where)
            self._stack = stack.pop_all()
        return self

    def use(self, spark: SparkSession, where: wiring.Urls) -> None:
        """Uses a Spark and databases that run already, and that end elsewhere."""
        self._spark, self._where = spark, where

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def preview(self) -> Preview:
        """What the job would write, by the files as they are now."""
        loaded = self._loaded()
        wish = self._wish
        jobs = looking.read_jobs(loaded)
        looking.one_job(jobs, wish.job)
        chain = one_chain(loaded.config, wish.chain)
        return finish(
            wiring_jobs.preview(
                loaded,
                jobs,
                self._spark,
                self._where,
                chain,
                wish.job,
                span=wish.span,
                last=wish.last,
                limit=wish.limit,
                is_changing=wish.is_watched,
            )
        )

    def _loaded(self) -> Loaded:
        return self._context.loaded(flags_for(self._wish.chain, None))


class Watch:
    """Previews again whenever a file of a folder changes."""

    def __init__(
        self,
        folder: Path,
        preview: Callable[[], Preview],
        tell: Callable[[Preview | UnforkError], None],
    ) -> None:
        self._folder = folder
        self._preview = preview
        self._tell = tell
        #: How often something was shown.
        self.shown = 0

    def run(self, stopping: threading.Event) -> None:
        """Looks, shows and waits for the next change, until it is told to stop."""
        seen: Mapping[Path, tuple[int, int]] | None = None
        while not stopping.is_set():
            now = stamps(self._folder)
            if now == seen:
                stopping.wait(LOOK_S)
                continue
            seen = now
            try:
                found: Preview | UnforkError = self._preview()
            except UnforkError as error:
                found = error
            self.shown += 1
            self._tell(found)


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """What tells a file that was saved from one that was not."""
    found = {}
    for file in _files(folder):
        try:
            stat = file.stat()
        except OSError:
            continue  # An editor has put another one in its place at this moment.
        found[file] = stat.st_mtime_ns, stat.st_size
    return found


def document(chain: str, found: Preview) -> dict[str, Any]:
    """A preview as plain values; every key is always there."""
    kinds = {column.name: column.kind for column in found.dataset.columns}
    return {
        "chain": chain,
        "job": found.spec.name,
        "dataset": found.spec.output,
        "span": found.span,
        "at": found.at,
        "columns": [
            {"name": column.name, "type": column.kind.value, "nullable": column.nullable}
            for column in found.dataset.columns
        ],
        "count": found.count,
        "rows": [_exact(row, kinds) for row in found.rows],
        "computed": list(found.computed),
        "difference": _compared(found.difference, kinds),
        "checks": list(found.findings),
        "published": found.is_published,
        "notes": list(found.notes),
        "seconds": round(found.seconds, 3),
    }


def lines(found: Preview) -> Iterator[RenderableType]:
    """A preview as a person reads it."""
    rows = "1 row" if found.count == 1 else f"{found.count:,} rows"
    yield f"{found.spec.output}: {rows} of blocks {found.span}, in {found.seconds:.2f} s"
    types = ", ".join(f"{one.name} {one.kind.value}" for one in found.dataset.columns)
    yield f"columns: {types}"
    if found.rows:
        yield output.table(
            found.dataset.names, ([_short(v) for v in r.values()] for r in found.rows)
        )
    if found.count > len(found.rows):
        yield f"… {found.count - len(found.rows):,} more; --limit shows more of them"
    yield from _differs(found.difference)
    if found.computed:
        yield f"computed for it in memory: {', '.join(found.computed)}"
    yield from found.notes
    yield from found.findings
    if not found.is_published:
        yield "these rows would not be published"


def _tell(context: Context, found: Preview | UnforkError) -> None:
    """Shows what came of a save; an error is shown, and the watch goes on."""
    context.output.note(f"── {datetime.now():%H:%M:%S} " + "─" * 40)
    if isinstance(found, UnforkError):
        context.output.note(f"error {found.code}: {found.message}")
        return
    for line in lines(found):
        context.output.note(line)


def _differs(difference: Difference | None) -> Iterator[RenderableType]:
    """How it differs from what is stored."""
    if difference is None:
        return
    if difference.is_none:
        yield f"stored rows of blocks {difference.span} are the same ({difference.same:,})"
        return
    counts = (
        f"{count:,} {name}"
        for name, count in (
            ("same", difference.same),
            ("added", difference.added),
            ("removed", difference.removed),
            ("changed", difference.changed),
        )
    )
    yield f"compared with what is stored of blocks {difference.span}: {', '.join(counts)}"
    for names, what in (
        (difference.columns_added, "new"),
        (difference.columns_removed, "no longer there"),
    ):
        if names:
            yield f"columns that are {what}: {', '.join(names)}"
    if difference.changes:
        names = ("", *difference.changes[0].row)
        yield output.table(
            names,
            (
                ["+" if change.is_new else "-", *map(_short, change.row.values())]
                for change in difference.changes
            ),
        )


def _compared(difference: Difference | None, kinds: Mapping[str, Kind]) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "span": difference.span,
        "same": difference.same,
        "added": difference.added,
        "removed": difference.removed,
        "changed": difference.changed,
        "columns_added": list(difference.columns_added),
        "columns_removed": list(difference.columns_removed),
        "changes": [
            {"change": "+" if change.is_new else "-", "row": _exact(change.row, kinds)}
            for change in difference.changes
        ],
    }


def _exact(row: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """A row for JSON: 256-bit numbers as text, which no reader of JSON cuts."""
    big = (Kind.U256, Kind.SIGNED)
    return {
        name: str(value) if value is not None and kinds.get(name) in big else _listed(value)
        for name, value in row.items()
    }


def _listed(value: Any) -> Any:
    return [output.plain(item) for item in value] if isinstance(value, list) else value


def _short(value: Any) -> Any:
    """A value as a person is shown it: long bytes by their ends."""
    match value:
        case bytes():
            digits = value.hex()
            if len(digits) > 3 * DIGITS:
                digits = f"{digits[:DIGITS]}…{digits[-DIGITS:]}"
            return f"0x{digits}"
        case list():
            return "[" + ", ".join(str(_short(item)) for item in value) + "]"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case date():
            return value.isoformat()
        case int() if not isinstance(value, bool):
            return str(value)
        case _:
            return value


def _files(folder: Path) -> Iterator[Path]:
    """The files of a project; hidden folders and virtual environments are not part of it."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            is_foreign = entry.name.startswith((".", "__")) or (entry / "pyvenv.cfg").exists()
            if not is_foreign:
                yield from _files(entry)
        elif entry.suffix in SUFFIXES or entry.name == ".env":
            yield entry
