"""Owns the root of an ordered list: the Merkle Patricia trie that a header commits to lists with.

The keys are the encoded indexes, so they are known beforehand and none is the beginning of another:
the trie is built bottom-up from the sorted keys, each node is made and hashed once, and a branch
never carries a value of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from unfork.proof import rlp
from unfork.proof.keccak import keccak256

#: The root of an empty list.
EMPTY_ROOT = keccak256(b"\x80")


def ordered_root(items: Sequence[bytes]) -> bytes:
    """The root over encoded items in their order."""
    if not items:
        return EMPTY_ROOT
    keys, order = _keys(len(items))
    # The root is hashed even where it is short enough to stand inside another node.
    return keccak256(_node(keys, [items[index] for index in order], 0, len(keys), 0))


def _node(keys: Sequence[bytes], items: Sequence[bytes], first: int, end: int, depth: int) -> bytes:
    """The encoded node over keys[first:end], which agree in their first `depth` nibbles."""
    key = keys[first]
    if end - first == 1:
        item = items[first]
        assert item, "an empty item cannot be told from an absent one"
        return rlp.encode((_path(key[depth:], 0x20), item))
    last = keys[end - 1]
    shared = depth
    # The keys are sorted: what the first and the last share, all share.
    while key[shared] == last[shared]:
        shared += 1
    if shared > depth:
        branch = _reference(_node(keys, items, first, end, shared))
        return rlp.wrap(rlp.encode(_path(key[depth:shared], 0)) + branch)
    children = [b"\x80"] * 17
    while first < end:
        nibble = keys[first][depth]
        stop = first + 1
        while stop < end and keys[stop][depth] == nibble:
            stop += 1
        children[nibble] = _reference(_node(keys, items, first, stop, depth + 1))
        first = stop
    return rlp.wrap(b"".join(children))


def _reference(node: bytes) -> bytes:
    """How a parent holds a node: whole where it is shorter than a hash, else hashed."""
    return node if len(node) < 32 else b"\xa0" + keccak256(node)


def _path(nibbles: bytes, flag: int) -> bytes:
    """Nibbles packed behind a flag: 0x20 marks a leaf, 0x10 an odd count of nibbles."""
    if len(nibbles) % 2:
        packed = bytes((flag | 0x10 | nibbles[0],))
        rest = nibbles[1:]
    else:
        packed = bytes((flag,))
        rest = nibbles
    return packed + bytes([(rest[i] << 4) | rest[i + 1] for i in range(0, len(rest), 2)])


@lru_cache(maxsize=512)
def _keys(count: int) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """The keys of `count` items as nibbles, sorted, and the index each belongs to.

    Index 0 is encoded as 0x80: after 1 to 127, which stand for themselves, and before all others.
    """
    order = (*range(1, min(count, 0x80)), 0, *range(0x80, count))
    keys = tuple(
        bytes(nibble for byte in rlp.encode(index) for nibble in (byte >> 4, byte & 15))
        for index in order
    )
    return keys, order
