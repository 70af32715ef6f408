"""Goal: the root of a list is the root of its trie. Method: the `trie` library as the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import rlp
from hypothesis import given
from hypothesis import strategies as st
from trie import HexaryTrie

from unfork.proof import trie


def oracle(items: Sequence[bytes]) -> bytes:
    """The root as the library computes it."""
    full = HexaryTrie({})
    for index, item in enumerate(items):
        full[rlp.encode(index)] = item
    return bytes(full.root_hash)


@given(st.lists(st.binary(min_size=1, max_size=70), max_size=20))
def test_the_root_of_any_short_list_is_the_root_of_the_trie(items: list[bytes]) -> None:
    assert trie.ordered_root(items) == oracle(items)


@pytest.mark.parametrize("count", [1, 2, 16, 17, 127, 128, 129, 130, 255, 256, 257, 300, 700])
@pytest.mark.parametrize("size", [1, 20, 33, 200])
def test_the_root_of_a_long_list_is_the_root_of_the_trie(count: int, size: int) -> None:
    items = [(index + 1).to_bytes(4, "big").rjust(size, b"\x05")[-size:] for index in range(count)]
    items = [item if any(item) else b"\x01" * size for item in items]
    assert trie.ordered_root(items) == oracle(items)


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=140), st.data())
def test_another_order_has_another_root(items: list[bytes], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(items))
    assert (trie.ordered_root(shuffled) == trie.ordered_root(items)) == (shuffled == items)


def test_an_empty_list_has_the_known_root() -> None:
    expected = "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
    assert trie.ordered_root([]).hex() == expected


def test_an_empty_item_is_refused() -> None:
    with pytest.raises(AssertionError):
        trie.ordered_root([b"a", b""])
