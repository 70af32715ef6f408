"""Goal: our RLP equals the reference library's. Method: random nested items, and the edge sizes."""

from __future__ import annotations

from typing import Any

import pytest
import rlp as oracle
from hypothesis import given
from hypothesis import strategies as st

from unfork.proof import rlp

ITEMS: st.SearchStrategy[Any] = st.recursive(
    st.binary(max_size=80) | st.integers(min_value=0, max_value=2**256 - 1),
    lambda items: st.lists(items, max_size=20) | st.lists(items, max_size=5).map(tuple),
    max_leaves=60,
)


@given(ITEMS)
def test_every_item_encodes_as_the_reference_library_encodes_it(item: Any) -> None:
    assert rlp.encode(item) == oracle.encode(item)


@pytest.mark.parametrize(
    "size", [0, 1, 2, 54, 55, 56, 57, 255, 256, 257, 1023, 1024, 1025, 65535, 65536, 70000]
)
def test_bytes_and_lists_of_every_edge_size_encode_as_the_reference_library_does(size: int) -> None:
    for byte in (b"\x00", b"\x7f", b"\x80", b"\xff"):
        assert rlp.encode(byte * size) == oracle.encode(byte * size)
    assert rlp.encode([b"\x01"] * size) == oracle.encode([b"\x01"] * size)


@pytest.mark.parametrize("bits", [0, 1, 7, 8, 9, 63, 64, 255, 256, 439, 440, 441, 2048])
def test_numbers_of_every_width_encode_as_the_reference_library_does(bits: int) -> None:
    for number in {max(0, 2**bits - 1), 2**bits, 2**bits + 1}:
        assert rlp.encode(number) == oracle.encode(number)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(AssertionError):
        rlp.encode(-1)
