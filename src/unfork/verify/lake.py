"""Owns the verification of the lake: files, rows, links, blocks, each against what vouches for it.

| check | what is held against what |
|---|---|
| `files` | each file is there and hashes to what was recorded when it was published |
| `rows` | its rows, counted and hashed again, are what was recorded |
| `hot` | the rows of the hot tables, where they still are, have the same content |
| `links` | a partition's parent is the last block of the partition below it |
| `chain` | its first and its last block are those of the raw store |
| `blocks` | every block is proven from its own rows in the lake: hashes, roots, bloom, parents |

Spark does all of it where the files are; only what is wrong comes back. Versions are looked at a
few at a time, so that memory does not grow with their number. Nothing is changed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.datasets import evm
from unfork.errors import BlockReplaced
from unfork.jobs import lake_repair, thread
from unfork.jobs.spark import failures, joined, schema
from unfork.jobs.spark.place import Place
from unfork.lake import content, files, links, lookup, pieces, rows
from unfork.lake import file as lake_file
from unfork.lake.pieces import Piece
from unfork.lake.storage import Storage
from unfork.lake.versions import Version, Versions
from unfork.proof import rows as proof
from unfork.proof.finding import Outcome

CHECKS = ("files", "rows", "hot", "links", "chain", "blocks")

#: Versions whose files are known at once.
VERSIONS_AT_ONCE = 50
#: Blocks proven by one task at a time.
BLOCKS_AT_ONCE = 500
#: Damages that are named; beyond them they are counted.
DAMAGED_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Something that is wrong with a partition."""

    dataset: str
    key: str
    #: The blocks it is about.
    span: Span
    check: str
    why: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What a verification of the lake found."""

    chain: str
    versions: int = 0
    rows: int = 0
    bytes: int = 0
    #: Blocks proven from their own rows.
    blocks: int = 0
    #: Partitions that were compared with the hot tables.
    compared: int = 0
    damaged: list[Damage] = field(default_factory=list)
    #: How much is wrong, named or not.
    damaged_count: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged_count

    def add(self, damage: Damage) -> None:
        """Counts a damage, and names it while there is room."""
        self.damaged_count += 1
        if len(self.damaged) < DAMAGED_MAX:
            self.damaged.append(damage)

    def document(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "chain": self.chain,
            "ok": self.ok,
            "versions": self.versions,
            "rows": self.rows,
            "bytes": self.bytes,
            "blocks_proven": self.blocks,
            "compared_with_hot": self.compared,
            "damaged_count": self.damaged_count,
            "damaged": [
                {
                    "dataset": one.dataset,
                    "partition": one.key,
                    "span": [one.span.first, one.span.last],
                    "check": one.check,
                    "why": one.why,
                }
                for one in self.damaged
            ],
        }

    def lines(self) -> list[str]:
        """The report for people."""
        found = [
            f"{self.chain}, lake: {self.versions:,} partitions, {self.rows:,} rows; "
            f"{self.blocks:,} blocks proven, {self.compared:,} partitions compared with hot tables"
        ]
        found += [
            f"  {one.dataset} {one.key}, blocks {one.span}: {one.check}: {one.why}"
            for one in self.damaged[:20]
        ]
        if self.damaged_count > 20:
            found.append(f"  and {self.damaged_count - 20:,} more")
        return found


async def verify(
    spark: SparkSession,
    place: Place,
    raw: Database,
    versions: Versions,
    *,
    config: str | None = None,
    datasets: Sequence[str] | None = None,
    span: Span | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Verifies the versions that hold blocks of a span; raises what Spark or a database raises.

    `config` is the path by which tasks find the configuration, None for their own.
    """
    report = Report(chain=place.chain.name)
    keep_s = float(place.config.lake.read_keep_s)
    async with versions.pinned(holder="verify", keep_s=keep_s):
        light = await versions.current(datasets, span=span, with_files=False)
        for finding in await lake_repair.find(raw, place.chain.name, versions):
            if any(one.version == finding.version for one in light):
                check = "links" if "link" in finding.why else "chain"
                report.add(
                    Damage(
                        dataset=finding.dataset,
                        key=finding.key,
                        span=finding.span,
                        check=check,
                        why=finding.why,
                    )
                )
        run = _Run(spark, place, report, config)
        for name, group in itertools.groupby(light, key=lambda one: one.dataset):
            of_dataset = list(group)
            for start in range(0, len(of_dataset), VERSIONS_AT_ONCE):
                some = of_dataset[start : start + VERSIONS_AT_ONCE]
                within = Span(some[0].span.first, some[-1].span.last)
                known = await versions.current([name], span=within)
                await thread.run(lambda known=known: run.versions(known))  # type: ignore[misc]
                progress(report.versions, len(light))
        blocks = [one for one in light if one.dataset == "blocks"]
        for start in range(0, len(blocks), VERSIONS_AT_ONCE):
            some = blocks[start : start + VERSIONS_AT_ONCE]
            within = Span(some[0].span.first, some[-1].span.last)
            every = await versions.current(span=within)
            await thread.run(lambda every=every: run.blocks(every, span))  # type: ignore[misc]
    return report


class _Run:
    """The part of a verification that blocks."""

    def __init__(
        self, spark: SparkSession, place: Place, report: Report, config: str | None
    ) -> None:
        self._config = config
        self._spark = spark
        self._place = place
        self._storage = Storage.of(place.config)
        self._report = report
        #: Files that are not what they were; nothing more is asked of them.
        self._bad: set[str] = set()

    def versions(self, known: Sequence[Version]) -> None:
        """Files, rows and the hot tables, for some versions of one dataset."""
        self._report.versions += len(known)
        self._report.bytes += sum(one.size for one in known)
        self._files(known)
        for version in known:
            if not self._bad.intersection(_paths(version)):
                self._rows(version)

    def blocks(self, known: Sequence[Version], span: Span | None) -> None:
        """Proves blocks from the rows of all datasets that the lake has of them."""
        chunks = []
        for version in known:
            if version.dataset == "blocks" and not self._bad.intersection(_paths(version)):
                wanted = version.span if span is None else spans.intersect(version.span, span)
                for chunk in spans.split(wanted, BLOCKS_AT_ONCE) if wanted is not None else ():
                    chunks.append((chunk.first, chunk.last, self._sources(known, chunk)))
        if not chunks:
            return
        shape = "first long, last long, sources string"
        prove = _prover(self._storage, is_filtered=bool(self._place.chain.scope.addresses))
        found = (
            self._spark.createDataFrame(chunks, shape)
            .mapInArrow(prove, "number long, checked long, why string")
            .collect()
        )
        self._report.blocks += sum(row["checked"] for row in found)
        for row in found:
            if row["why"]:
                number = row["number"]
                version = next(
                    one for one in known if one.dataset == "blocks" and number in one.span
                )
                self._damage(version, "blocks", row["why"], Span(number, number))

    def _files(self, known: Sequence[Version]) -> None:
        paths = [path for version in known for path in _paths(version)]
        found = files.hashed(self._spark, self._storage, paths)
        for version in known:
            for path, file in _paths(version).items():
                if path not in found:
                    self._bad.add(path)
                    why = f"{path} is gone"
                elif found[path] != file.sha256:
                    self._bad.add(path)
                    why = f"{path} is not what was published: its SHA-256 differs"
                else:
                    continue
                self._damage(version, "files", why, Span(file.first, file.last))

    def _rows(self, version: Version) -> None:
        dataset = evm.BY_NAME[version.dataset]
        shape = schema.struct(dataset.columns)
        try:
            found = files.measure(
                self._spark,
                self._storage,
                version.location,
                shape,
                number=dataset.number_column,
            )
        except Exception as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._damage(version, "rows", f"they cannot be read: {text}")
            return
        counted = sum(file.rows for file in found)
        hashed = lake_file.total(file.content for file in found)
        self._report.rows += counted
        if counted != version.rows:
            self._damage(version, "rows", f"{counted:,} rows, {version.rows:,} were published")
        elif hashed != version.content:
            self._damage(version, "rows", "their content is not what was published")
        else:
            self._parents(version)
            self._hot(version)

    def _parents(self, version: Version) -> None:
        """Blocks in the files name each other as parents."""
        if version.dataset != "blocks" or not version.files:
            return
        urls = [self._storage.url(f"{version.location}/{one.name}") for one in version.files]
        broken = links.first_broken(self._spark, urls)
        if broken is not None:
            why = f"block {broken} does not name the block below it as its parent"
            self._damage(version, "links", why, Span(broken, broken))

    def _hot(self, version: Version) -> None:
        """The same rows in the hot table, where it has them."""
        dataset = evm.BY_NAME[version.dataset]
        given = {
            "dataset": dataset.name,
            "chain": self._place.chain.name,
            "first": str(version.span.first),
            "last": str(version.span.last),
            "store": "hot",
        }
        if self._config is not None:
            given["config"] = self._config
        try:
            rows_there = joined.frame(self._spark, self._place, given)
            shape = schema.struct(dataset.columns)
            row = rows_there.agg(*content.sums(shape)).collect()[0]
        except Exception as error:
            if not isinstance(failures.typed(error), BlockReplaced):
                raise
            # No hot table has these blocks: there is nothing to compare with.
            return
        self._report.compared += 1
        if content.of([row[name] for name in content.SUMS]) != version.content:
            self._damage(version, "hot", "the hot table has other rows for these blocks")

    def _sources(self, known: Sequence[Version], chunk: Span) -> str:
        """What is read to prove some blocks, as JSON: the files of each dataset that has them."""
        found: dict[str, list[list[Any]]] = {}
        for name in evm.BY_NAME:
            own = [one for one in known if one.dataset == name and one.span.overlaps(chunk)]
            is_whole = not spans.subtract([chunk], [one.span for one in own])
            if is_whole and not any(self._bad.intersection(_paths(one)) for one in own):
                found[name] = [
                    [piece.path, piece.span.first, piece.span.last]
                    for piece in pieces.of(own, chunk)
                ]
        return json.dumps(found)

    def _damage(self, version: Version, check: str, why: str, span: Span | None = None) -> None:
        self._report.add(
            Damage(
                dataset=version.dataset,
                key=version.key,
                span=span or version.span,
                check=check,
                why=why,
            )
        )


def _paths(version: Version) -> Mapping[str, lake_file.File]:
    """Every file of a version by its name below the root."""
    found = {f"{version.location}/{one.name}": one for one in version.files}
    found |= {f"{version.location}/{lookup.FOLDER}/{one.name}": one for one in version.lookups}
    return found


def _prover(
    storage: Storage, *, is_filtered: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Proves the blocks of chunks; a row for what is wrong, and one for how many were looked at."""

    def tables(sources: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, pa.Table]:
        found = {}
        for name, wanted in sources.items():
            dataset = evm.BY_NAME[name]
            shape = schema.arrow(dataset.columns)
            batches = [
                batch
                for path, first, last in wanted
                for batch in rows.batches(
                    storage,
                    Piece(path=path, span=Span(first, last)),
                    shape,
                    number=dataset.number_column,
                )
            ]
            order = [(column, "ascending") for column in dataset.key]
            found[name] = pa.Table.from_batches(batches, shape).sort_by(order)
        return found

    def prove(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in given:
            for chunk in batch.to_pylist():
                wrong: list[tuple[int, str]] = []
                checked = 0
                read = tables(json.loads(chunk["sources"]))
                for number, _, findings in proof.check_tables(read, logs_filtered=is_filtered):
                    checked += 1
                    failed = [one for one in findings if one.outcome is Outcome.FAILED]
                    wrong += [(number, f"{one.check.value}: {one.reason}") for one in failed]
                wanted = chunk["last"] - chunk["first"] + 1
                if checked != wanted:
                    why = f"{checked:,} blocks are there, {wanted:,} should be"
                    wrong.append((chunk["first"], why))
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": [chunk["first"], *(number for number, _ in wrong)],
                        "checked": [checked, *(0 for _ in wrong)],
                        "why": pa.array(["", *(why for _, why in wrong)], pa.string()),
                    }
                )

    return prove
