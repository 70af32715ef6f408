"""Goal: a run is believed exactly where what it has read is of the chain. Method: drawn chains."""

from __future__ import annotations

import pytest

from tests.drawn import chain, ref
from unfork.app.state import Follower
from unfork.chain.span import Span
from unfork.jobs import verdict
from unfork.jobs.verdict import Anchor, AsRead, Why


def judged(
    drawn: str,
    floor: str | None,
    span: tuple[int, int],
    parent: str | None,
    last: str,
    read: dict[str, int],
) -> Why | None:
    """The verdict over a run; refs are known from the floor up."""
    blocks = chain(drawn)
    bottom = ref(floor) if floor else None
    held = Follower(
        seq=1,
        epoch=1,
        first=1,
        position=blocks[-1] if blocks else None,
        floor=bottom,
        history_floor=None,
    )
    refs = {one.number: one.hash for one in blocks if not bottom or one.number >= bottom.number}
    anchor = Anchor(
        span=Span(*span), parent_hash=parent.encode() if parent else None, last=ref(last)
    )
    as_read = AsRead(epoch=read.get("epoch", 1), floor=read.get("floor"))
    told = verdict.of_chain([anchor], as_read, held, refs)
    return told[0] if told else None


WHOLE = "a1-b2-c3-d4-e5-f6"


@pytest.mark.parametrize(
    ("floor", "span", "parent", "last", "read", "wanted"),
    [
        (None, (2, 4), "a1", "d4", {}, None),
        (None, (1, 4), None, "d4", {}, None),
        ("c3", (4, 6), "c3", "f6", {}, None),
        (None, (2, 4), "a1", "d4'", {}, Why.ORPHANED),
        (None, (2, 4), "a1'", "d4", {}, Why.ORPHANED),
        (None, (5, 7), "d4", "g7", {}, Why.ORPHANED),
        ("d4", (2, 3), "a1", "c3", {"floor": 3}, None),
        ("d4", (2, 3), "a1", "c3", {"floor": 4}, None),
        ("d4", (2, 3), "a1", "c3'", {"floor": 2}, Why.UNVERIFIABLE),
        ("d4", (2, 3), "a1", "c3", {}, Why.UNVERIFIABLE),
        ("d4", (3, 5), "b2", "e5", {"floor": 2}, None),
        ("d4", (3, 5), "b2", "e5", {"floor": 1}, Why.UNVERIFIABLE),
        ("d4", (3, 4), "b2", "d4'", {"floor": 2}, Why.ORPHANED),
        (None, (2, 4), "a1", "d4", {"epoch": 2}, Why.ORPHANED),
        # What lies before the first block of the store nobody can check.
        (None, (1, 2), "zero0", "b2", {}, None),
    ],
)
def test_a_run_is_believed_where_its_ends_are_of_the_chain_or_were_final_when_read(
    floor: str | None,
    span: tuple[int, int],
    parent: str | None,
    last: str,
    read: dict[str, int],
    wanted: Why | None,
) -> None:
    assert judged(WHOLE, floor, span, parent, last, read) is wanted


def test_nothing_is_believed_while_nothing_is_held() -> None:
    assert judged("", None, (1, 2), None, "b2", {}) is Why.ORPHANED
