"""Owns the memory of blocks already built, so that the same chain again costs next to nothing.

It is shared by every tree of the process and bounded: a block counts with everything in it, and
what was used longest ago goes first. Forgetting is always safe, a block can be built again.
"""

from __future__ import annotations

from collections import OrderedDict

from unfork.devnet.builder import Built

#: Content key, hash of the parent, salt: together they say all about a block.
Key = tuple[bytes, bytes, bytes]


class Cache:
    """Built blocks by what they were built from."""

    def __init__(self, weight_max: int) -> None:
        #: Parts of blocks held at most: transactions, logs, calls, and the block itself.
        self.weight_max = weight_max
        self.weight = 0
        self._kept: OrderedDict[Key, Built] = OrderedDict()

    def find(self, key: Key) -> Built | None:
        """The block of a key, None where it is not held."""
        built = self._kept.get(key)
        if built is not None:
            self._kept.move_to_end(key)
        return built

    def keep(self, key: Key, built: Built) -> None:
        """Holds a block that was not held, and lets go of what there is no room for."""
        assert key not in self._kept
        self._kept[key] = built
        self.weight += _weight(built)
        while self.weight > self.weight_max and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self.weight -= _weight(gone)

    def clear(self) -> None:
        """Forgets everything."""
        self._kept.clear()
        self.weight = 0


#: A part takes about half a kilobyte, so this is some 50 MB.
SHARED = Cache(weight_max=100_000)

#: Bytes of payload that weigh as much as one part.
_PAYLOAD_UNIT = 512


def _weight(built: Built) -> int:
    block = built.block
    parts = sum(1 + len(each.logs) + len(each.calls) for each in block.transactions)
    return 2 + parts + block.size // _PAYLOAD_UNIT
