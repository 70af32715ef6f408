"""Proves how the floor moves: never up to what we do not hold, never down, never by empty words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unfork.chain import finality
from unfork.chain.block import BlockRef, Head

POLICY = finality.Policy(depth_min=64, depth_max=1000)


def floor(
    position: int, head: int, finalized: int | None, held: int | None, is_held: bool = True
) -> int | None:
    return finality.floor_number(
        policy=POLICY,
        position=position,
        head=head,
        finalized=finalized,
        is_held=is_held,
        floor=held,
    )


def test_the_floor_is_the_finalized_block_where_that_is_deep_enough() -> None:
    assert floor(position=1000, head=1000, finalized=900, held=None) == 900


def test_the_floor_stays_depth_min_below_the_head_whatever_the_node_calls_final() -> None:
    assert floor(position=1000, head=1000, finalized=990, held=None) == 936


def test_a_final_block_that_we_do_not_hold_says_nothing_about_our_own() -> None:
    assert floor(position=200, head=400, finalized=300, held=None, is_held=False) is None
    assert floor(position=9000, head=9000, finalized=8900, held=None, is_held=False) == 8000


def test_far_below_the_head_the_floor_is_the_position_even_without_finality() -> None:
    assert floor(position=200, head=9000, finalized=8900, held=None, is_held=False) == 200


def test_a_chain_that_stopped_finalizing_keeps_its_floor_at_the_last_final_block() -> None:
    assert floor(position=9000, head=9000, finalized=5000, held=None) == 5000
    assert floor(position=9000, head=9000, finalized=5000, held=None, is_held=False) == 5000


def test_without_finality_the_floor_is_depth_max_below_the_head() -> None:
    assert floor(position=5000, head=5000, finalized=None, held=None) == 4000
    assert floor(position=500, head=500, finalized=None, held=None) is None


def test_a_lower_word_of_another_replica_never_lowers_the_floor() -> None:
    assert floor(position=1000, head=1000, finalized=700, held=900) == 900
    assert floor(position=1000, head=950, finalized=None, held=900) == 900


def head(latest: int, finalized: int | None) -> Head:
    return Head(
        latest=BlockRef(latest, b"l"),
        finalized=None if finalized is None else BlockRef(finalized, b"f"),
    )


def test_a_finalized_block_that_is_the_latest_one_says_nothing() -> None:
    assert finality.believed(head(100, 100)) is None
    assert finality.believed(head(100, 101)) is None
    assert finality.believed(head(100, 99)) is None
    assert finality.believed(head(100, 36)) == BlockRef(36, b"f")
    assert finality.believed(head(100, None)) is None


@given(
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.none() | st.integers(0, 3000),
    st.none() | st.integers(0, 3000),
    st.booleans(),
)
def test_the_floor_never_falls_and_never_passes_the_position(
    position: int, latest: int, finalized: int | None, held: int | None, is_held: bool
) -> None:
    held = None if held is None else min(held, position)
    moved = floor(position, latest, finalized, held, is_held)

    assert moved is None or moved <= position
    assert held is None or (moved is not None and moved >= held)
