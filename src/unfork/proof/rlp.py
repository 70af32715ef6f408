"""Owns RLP, the encoding that headers, transactions, receipts and trie nodes are hashed in.

Written by hand because a block is hundreds of small items: the encoder is one function that knows
bytes, numbers and sequences, with the frequent prefixes in tables.
"""

from __future__ import annotations

from collections.abc import Sequence

#: What can be encoded; a number is encoded as its shortest big-endian bytes, zero as none.
Item = bytes | int | Sequence["Item"]


def encode(item: Item) -> bytes:
    """The encoding of bytes, a number that is not negative, or a sequence of such items."""
    if isinstance(item, bytes):
        size = len(item)
        if size == 1 and item[0] < 0x80:
            return item
        return (_TEXT[size] if size < _TABLE else _prefix(size, 0x80)) + item
    if isinstance(item, int):
        if 0 <= item < 0x80:
            return _SMALL[item]
        assert item > 0, "a number is never negative in RLP"
        size = (item.bit_length() + 7) >> 3
        return (_TEXT[size] if size < _TABLE else _prefix(size, 0x80)) + item.to_bytes(size, "big")
    return wrap(b"".join([encode(part) for part in item]))


def wrap(encoded: bytes) -> bytes:
    """A list whose items are encoded and joined already."""
    size = len(encoded)
    return (_LIST[size] if size < _TABLE else _prefix(size, 0xC0)) + encoded


def size_with_prefix(size: int) -> int:
    """Bytes that a list takes whose items take `size`, or bytes of that number (from two on)."""
    return size + (1 if size < 56 else 1 + ((size.bit_length() + 7) >> 3))


def _prefix(size: int, base: int) -> bytes:
    """What stands before `size` bytes: 0x80 begins bytes, 0xC0 a list."""
    if size < 56:
        return bytes((base + size,))
    # From 56 bytes on: how many bytes the size takes, then the size.
    width = (size.bit_length() + 7) >> 3
    return bytes((base + 55 + width,)) + size.to_bytes(width, "big")


#: Sizes whose prefixes are looked up; larger items are rare.
_TABLE = 1024
_TEXT = tuple(_prefix(size, 0x80) for size in range(_TABLE))
_LIST = tuple(_prefix(size, 0xC0) for size in range(_TABLE))
_SMALL = (b"\x80", *(bytes((number,)) for number in range(1, 0x80)))
