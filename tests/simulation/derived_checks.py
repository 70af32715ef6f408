"""What must hold of derived data at any moment, told by somebody who only reads.

Each dataset is compared with a full computation, in plain Python, over the chain up to its
watermark (I1); nothing of another fork, nothing ahead of the watermark and no half a block is read
(I2, I3); a watermark stands on the chain (I6). All of it is read at one moment.

Where datasets are computed from one another, what one of them must be follows from the rows of its
input at that same moment, but for what is known to be outdated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests import toy
from tests.places import Place
from unfork.app.derived import WHOLE, DerivedDataset
from unfork.chain.block import BlockRef
from unfork.chain.span import Span, aligned
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Strategy

Row = dict[str, Any]


@dataclass
class Seen:
    """What a reader has seen, so that a test can tell whether it saw anything at all."""

    #: Watermarks, by dataset.
    watermarks: dict[str, set[bytes]] = field(default_factory=dict)
    #: Datasets that were left out because all of them was outdated.
    outdated: int = 0


class Checks:
    """A reader with a connection of its own, and what it knows of the chain."""

    def __init__(
        self,
        place: Place,
        parent: Callable[[BlockRef], BlockRef | None],
        *datasets: DerivedDataset,
        added: Mapping[bytes, Sequence[toy.Transfer]] | None,
        by_build: bool = False,
    ) -> None:
        """`parent` knows every block there ever was; `added` are corrections, None for no chain
        of datasets: every dataset is computed from the blocks themselves.

        With `by_build` the table of the served build is read, as Spark does, else the view. What a
        name stands for is no part of a snapshot: whoever reads views while builds are swapped may
        find the next build under a name, in a state of its own.
        """
        self._by_build = by_build
        self._datasets = datasets or toy.EVERY
        self._place = place
        self._parent = parent
        self._added = added
        self._connection = psycopg.connect(place.app_dsn or place.dsn, row_factory=dict_row)
        self._connection.execute("SET timezone = 'UTC'")
        self._connection.commit()
        self.seen = Seen()

    def close(self) -> None:
        self._connection.close()

    def path(self, position: BlockRef | None) -> list[BlockRef]:
        """The chain up to a block, from the first on."""
        found: list[BlockRef] = []
        while position is not None:
            found.append(position)
            position = self._parent(position)
        return found[::-1]

    def position(self) -> BlockRef | None:
        """The last block that the app side knows."""
        with self._connection.transaction():
            state = self._rows("SELECT * FROM {app}.follower")[0]
        if state["position_number"] is None:
            return None
        return BlockRef(state["position_number"], state["position_hash"])

    def compare(self) -> None:
        """Every dataset against a full computation up to its watermark, at one moment."""
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            state = self._rows("SELECT * FROM {app}.follower")[0]
            position = None
            if state["position_number"] is not None:
                position = BlockRef(state["position_number"], state["position_hash"])
            chain = self.path(position)
            self._compare_refs(chain, state["floor_number"])
            builds = self._builds()
            contents = self._contents(chain, builds["moves"])
            for dataset in self._datasets:
                self._compare_dataset(dataset, chain, builds[dataset.name], contents)

    def exact(self, contents: toy.Contents) -> None:
        """The same once all is done: everything is the one computation, and nothing is left."""
        self.compare()
        with self._connection.transaction():
            state = self._rows("SELECT * FROM {app}.follower")[0]
            chain = self.path(BlockRef(state["position_number"], state["position_hash"]))
            builds = self._builds()
            for dataset in self._datasets:
                assert builds[dataset.name]["cursor_value"] == chain[-1].number, dataset.name
                assert builds[dataset.name]["outdated"] == [], dataset.name
                rows = self._rows(f'SELECT * FROM {{app}}."{dataset.name}"')
                if dataset.strategy is Strategy.APPEND:
                    rows = [row for row in rows if not row.pop("is_orphaned")]
                assert toy.plain(rows) == toy.expected(dataset, chain, contents), dataset.name
            self._check_contents()
            assert self._rows("SELECT * FROM {app}.worker_leases") == []
            staged = "SELECT relname FROM pg_class WHERE relname LIKE 'staging%'"
            assert (
                self._rows(f"{staged} AND relnamespace = '{self._place.app}'::regnamespace") == []
            )

    # What is read.

    def _rows(self, text: str) -> list[Row]:
        return self._connection.execute(text.replace("{app}", f'"{self._place.app}"')).fetchall()

    def _builds(self) -> dict[str, Row]:
        """The served build of every dataset, with its watermark and its outdated blocks."""
        builds = {
            row["dataset"]: row
            for row in self._rows(
                "SELECT g.id, g.dataset, g.table_name, c.cursor_value, c.cursor_hash"
                " FROM {app}.generations g JOIN {app}.dataset_cursors c ON c.generation_id = g.id"
                " WHERE g.state = 'served'"
            )
        }
        open_ = self._rows("SELECT * FROM {app}.invalidation_spans WHERE processed_at IS NULL")
        for build in builds.values():
            last = build["cursor_value"]
            build["outdated"] = [
                Span(row["first_number"], row["last_number"])
                for row in open_
                if row["generation_id"] == build["id"]
                and last is not None
                and row["first_number"] <= last
            ]
        return builds

    def _held(self, dataset: DerivedDataset, build: Row) -> list[Row]:
        """What is read of a dataset."""
        if not self._by_build:
            return self._rows(f'SELECT * FROM {{app}}."{dataset.name}"')
        columns, where = "held.*", ""
        if dataset.mode is Mode.CURSOR and dataset.strategy is not Strategy.MERGE:
            last = -1 if build["cursor_value"] is None else build["cursor_value"]
            where = f" WHERE held.block_number <= {last}"
        if dataset.strategy is Strategy.APPEND:
            columns += (
                ", EXISTS (SELECT FROM {app}.orphans o WHERE o.number = held.block_number"
                " AND o.hash = held.block_hash) AS is_orphaned"
            )
        return self._rows(f'SELECT {columns} FROM {{app}}."{build["table_name"]}" AS held{where}')

    def _contents(self, chain: Sequence[BlockRef], moves: Row) -> toy.Contents:
        """What the blocks hold for whoever computes from `moves`."""
        if self._added is None:
            return toy.transfers
        held: dict[bytes, list[toy.Transfer]] = {}
        for row in sorted(
            self._held(toy.MOVES, moves),
            key=lambda row: (row["block_number"], row["transfer_index"]),
        ):
            held.setdefault(row["block_hash"], []).append(toy.transfer(row))
        last = -1 if moves["cursor_value"] is None else moves["cursor_value"]
        for block in chain[: last + 1]:
            most = [*toy.transfers(block), *self._added.get(block.hash, ())]
            found = held.get(block.hash, [])
            assert most[: len(found)] == found, f"moves of {block}"
            assert len(found) >= len(toy.transfers(block)), f"moves of {block} are lost"
        return lambda block: held.get(block.hash, [])

    # What must hold.

    def _compare_refs(self, chain: Sequence[BlockRef], floor: int | None) -> None:
        refs = [(row["number"], row["hash"]) for row in self._rows("TABLE {app}.refs ORDER BY 1")]
        assert refs == [(b.number, b.hash) for b in chain if floor is None or b.number >= floor]
        days = self._rows("SELECT * FROM {app}.days ORDER BY day")
        assert [(d["day"], d["first_number"], d["last_number"]) for d in days] == [
            (day.date, day.first, day.last) for day in toy.days(chain)
        ]

    def _compare_dataset(
        self,
        dataset: DerivedDataset,
        chain: Sequence[BlockRef],
        build: Row,
        contents: toy.Contents,
    ) -> None:
        last = -1 if build["cursor_value"] is None else build["cursor_value"]
        covered = list(chain[: last + 1])
        if last >= 0:
            assert len(covered) == last + 1 and covered[-1].hash == build["cursor_hash"], (
                f"the watermark of {dataset.name} is off the chain"
            )
            self.seen.watermarks.setdefault(dataset.name, set()).add(build["cursor_hash"])
        rows = self._held(dataset, build)
        if dataset.mode is not Mode.CURSOR:
            self._compare_versions(dataset, chain, rows, build, contents)
            return
        if dataset.strategy is Strategy.APPEND:
            canonical = {block.hash for block in chain}
            for row in rows:
                assert row["is_orphaned"] == (row["block_hash"] not in canonical), row
            rows = [row for row in rows if not row.pop("is_orphaned")]
        wanted = toy.expected(dataset, covered, contents)
        if self._added is not None and build["outdated"]:
            if dataset.is_serial:
                self.seen.outdated += 1
                return
            rows = [row for row in rows if not _is_within(row, build["outdated"])]
            wanted = [row for row in wanted if not _is_within(row, build["outdated"])]
        assert toy.plain(rows) == wanted, dataset.name

    def _compare_versions(
        self,
        dataset: DerivedDataset,
        chain: Sequence[BlockRef],
        rows: Sequence[Row],
        build: Row,
        contents: toy.Contents,
    ) -> None:
        """Each valid version is what its blocks give, and the watermark passes no other."""
        watermark = -1 if build["cursor_value"] is None else build["cursor_value"]
        versions = self._rows(
            "SELECT * FROM {app}.partition_versions WHERE is_current"
            f" AND generation_id = {build['id']} ORDER BY first_number"
        )
        keys = {version["partition_key"] for version in versions}
        assert {_key(dataset, row) for row in rows} <= keys, "rows of no version"
        for version in versions:
            held = [row for row in rows if _key(dataset, row) == version["partition_key"]]
            assert version["is_valid"] or version["first_number"] > watermark, version
            if not version["is_valid"]:
                continue
            first, last = version["first_number"], version["last_number"]
            assert chain[last].hash == version["last_hash"], f"{dataset.name} {version}"
            blocks = chain[first : last + 1]
            wanted = toy.ordered(toy.computed(dataset, blocks, contents))
            assert toy.plain(held) == wanted, f"{dataset.name} {version['partition_key']}"
            assert version["row_count"] == len(held)

    def _check_contents(self) -> None:
        """What versions say of their rows is what the rows say."""
        for row in self._rows(
            "SELECT v.*, g.table_name FROM {app}.partition_versions v"
            " JOIN {app}.generations g ON g.id = v.generation_id"
            " WHERE g.dataset = 'moves' AND g.state <> 'retired'"
        ):
            names = ", ".join(f'held."{name}"' for name in toy.MOVES.names)
            found = self._rows(
                "SELECT count(*) AS row_count, coalesce(sum(hi), 0) * 18446744073709551616"
                " + coalesce(sum(lo), 0) AS content FROM (SELECT"
                " ('x' || encode(substr(d, 1, 8), 'hex'))::bit(64)::bigint AS hi,"
                " ('x' || encode(substr(d, 9, 8), 'hex'))::bit(64)::bigint AS lo"
                f" FROM (SELECT sha256(convert_to(ROW({names})::text, 'UTF8')) AS d"
                f' FROM {{app}}."{row["table_name"]}" AS held WHERE block_number'
                f" BETWEEN {row['first_number']} AND {row['last_number']}) AS hashed) AS parts"
            )[0]
            assert (row["row_count"], row["content_hash"]) == (
                found["row_count"],
                found["content"],
            ), row


def _is_within(row: Row, spans: Sequence[Span]) -> bool:
    return any(row["block_number"] in span for span in spans)


def _key(dataset: DerivedDataset, row: Row) -> str:
    """The partition that a row belongs to."""
    match dataset.partitioning:
        case ByBlocks(size):
            bounds = aligned(row["block_number"], size)
            return f"{bounds.first}-{bounds.last}"
        case ByDay(column):
            return str(row[column].isoformat())
        case None:
            return WHOLE
