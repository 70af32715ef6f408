"""Proves that a reader who polls constantly sees only states that the chain held (I2, I3).

Method: a thread takes snapshots as fast as it can while a simulated world forks, fails and dies
(world.py). Each snapshot must be one whole chain: the rows of exactly the blocks that lead to the
position, with no row of another fork, no half block and no row above the position. What is seen in
the midst of it all is up to the machine; the world waits to be seen wherever it has come to rest.
"""

from __future__ import annotations

import threading

import pytest

from tests.places import Place
from tests.simulation.world import World
from unfork.datasets import evm
from unfork.devnet.block import Block
from unfork.testing import compare, oracle, raw

#: Seconds that one look may take.
PATIENCE_S = 120.0


class Watcher(threading.Thread):
    """A reader with a connection of its own."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self.world = world
        self.stopping = threading.Event()
        self.positions: set[bytes] = set()
        #: Snapshots whose taking has begun, and has ended.
        self.begun = self.ended = 0
        self.looked = threading.Condition()
        self.wrong: str | None = None
        self._expected: dict[bytes, oracle.Rows] = {}

    def sees(self) -> None:
        """Returns once a snapshot was taken that began after this was called."""
        with self.looked:
            wanted = self.begun + 1
            self.looked.wait_for(lambda: self.ended >= wanted or not self.is_alive(), PATIENCE_S)
            assert self.ended >= wanted, self.wrong or "nobody looks any more"

    def run(self) -> None:
        try:
            self._watch()
        finally:
            with self.looked:
                self.looked.notify_all()

    def _watch(self) -> None:
        place = self.world.place
        reader = raw.RawReader.connect(place.dsn, place.raw, place.folder / "payloads")
        while not self.stopping.is_set() and self.wrong is None:
            self.begun += 1
            found = reader.snapshot(self.world.datasets)
            if found["chain"]:
                self.wrong = self._judge(found)
            with self.looked:
                self.ended = self.begun
                self.looked.notify_all()
        reader.close()

    def _judge(self, found: dict[str, list[raw.Row]]) -> str | None:
        """What is wrong with a snapshot, None where it is a state of the chain."""
        position = found["chain"][0]["position_hash"]
        blocks = self._path(position)
        if position is not None:
            self.positions.add(position)
        for name in self.world.datasets:
            wanted = [row for block in blocks for row in self._rows(block)[name]]
            told = compare.difference(evm.BY_NAME[name], wanted, found[name])
            if told:
                return told
        raw.check_lookups(found)
        return None

    def _path(self, hash: bytes | None) -> list[Block]:
        """The blocks from where we start to a position."""
        path: list[Block] = []
        while hash is not None:
            block = self.world.tree.by_hash(hash)
            assert block is not None, "a position that no chain ever had"
            if block.number < self.world.start:
                break
            path.append(block)
            hash = block.header.parent_hash if block.number else None
        return path[::-1]

    def _rows(self, block: Block) -> oracle.Rows:
        if block.hash not in self._expected:
            self._expected[block.hash] = oracle.rows(block)
        return self._expected[block.hash]


@pytest.mark.parametrize("seed", range(9001, 9005))
async def test_a_reader_that_polls_constantly_sees_only_states_the_chain_held(
    seed: int, place: Place
) -> None:
    world = World(seed, place)
    watcher = Watcher(world)
    world.settled = watcher.sees
    watcher.start()
    try:
        await world.run(moves=10)
    finally:
        watcher.stopping.set()
        watcher.join()

    assert watcher.wrong is None, f"{watcher.wrong}\n" + "\n".join(world.told[-30:])
    assert len(watcher.positions) >= 5, "the reader hardly saw anything"
