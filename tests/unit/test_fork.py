"""Proves each consideration of fork handling on tiny drawn chains.

Method: every row names one consideration, draws our history, the other side's sample and our floor,
and states the one outcome that must follow. The last block of the history is the position.
"""

from __future__ import annotations

import pytest

from tests.drawn import chain, ref
from unfork.chain import fork
from unfork.chain.fork import Ancestor, AtFloor, Conflict, NeedsOlder, Outcome, Restart, TooDeep

# consideration, history, sample, floor, depth_max, refuted, outcome
CASES: list[tuple[str, str, str, str, int, str, Outcome]] = [
    (
        "the head was replaced: the block below it is the ancestor",
        "a1-b2-c3", "a1-b2-c3'", "", 9, "", Ancestor(ref("b2")),
    ),
    (
        "an ascending sample gives the highest shared block, not the first",
        "a1-b2-c3-d4", "a1-b2-c3-d4'", "", 9, "", Ancestor(ref("c3")),
    ),
    (
        "a descending sample gives the same",
        "a1-b2-c3-d4", "d4'-c3-b2-a1", "", 9, "", Ancestor(ref("c3")),
    ),
    (
        "a sample of one shared entry is enough",
        "a1-b2-c3", "b2", "", 9, "", Ancestor(ref("b2")),
    ),
    (
        "a sample of one foreign entry asks for an older one",
        "a1-b2-c3", "c3'", "", 9, "", NeedsOlder(ref("b2")),
    ),
    (
        "an empty sample asks for an older one too",
        "a1-b2-c3", "", "", 9, "", NeedsOlder(ref("b2")),
    ),
    (
        "the same number with another hash is not shared",
        "a1-b2-c3", "b2'-c3'", "", 9, "", NeedsOlder(ref("a1")),
    ),
    (
        "the same number with another hash, with the first block of all, leaves nothing shared",
        "a1-b2-c3", "a1'-b2'-c3'", "", 9, "", Restart(1),
    ),
    (
        "empty history at start: nothing to unwind",
        "", "a1-b2", "", 9, "", Restart(None),
    ),
    (
        "gaps in the history are stepped over by number and hash",
        "a1-d4-h8", "a1-c3'-d4-h8'", "", 9, "", Ancestor(ref("d4")),
    ),
    (
        "gaps in both, where only one number is in both",
        "b2-d4-f6", "a1-d4-g7'", "", 9, "", Ancestor(ref("d4")),
    ),
    (
        "gaps that leave no number in both ask for the next lower block we hold",
        "b2-d4-f6", "c3'-e5'", "", 9, "", NeedsOlder(ref("d4")),
    ),
    (
        "no finality at all: an ordinary fork",
        "a1-b2-c3-d4-e5", "b2-c3'-d4'", "", 9, "", Ancestor(ref("b2")),
    ),
    (
        "no finality at all and every block held is orphaned: a fork below the first block held",
        "c3-d4-e5", "a1-b2-c3'-d4'", "", 9, "", Restart(3),
    ),
    (
        "a sample wholly below our first block says nothing about it: step down",
        "c3-d4-e5", "a1-b2", "", 9, "", NeedsOlder(ref("d4")),
    ),
    (
        "a sample wholly below our first block, after our first was declined: all is orphaned",
        "c3-d4-e5", "a1-b2", "", 9, "c3", Restart(3),
    ),
    (
        "the sample lies wholly below the floor: a lagging replica",
        "a1-b2-c3-d4-e5", "a1-b2", "c3", 9, "", AtFloor(ref("c3")),
    ),
    (
        "wholly below the floor stays a lagging replica after the floor was asked",
        "a1-b2-c3-d4-e5", "a1-b2", "c3", 9, "c3", AtFloor(ref("c3")),
    ),
    (
        "an empty sample after the floor was asked: ask again, guess nothing",
        "a1-b2-c3-d4-e5", "", "c3", 9, "c3", AtFloor(ref("c3")),
    ),
    (
        "wholly below the floor, and contradicting a final block: a conflict",
        "a1-b2-c3-d4-e5", "a1-b2'", "c3", 9, "", Conflict(ref("b2"), ref("b2'")),
    ),
    (
        "partly above the floor without a match, and contradicting it: a conflict",
        "a1-b2-c3-d4-e5", "b2-c3'-d4'-e5'", "c3", 9, "", Conflict(ref("c3"), ref("c3'")),
    ),
    (
        "partly above the floor without a match, silent on the floor itself: ask after the floor",
        "a1-b2-c3-d4-e5", "b2-d4'-e5'", "c3", 9, "", NeedsOlder(ref("c3")),
    ),
    (
        "the floor declined by one who reaches beyond it: a conflict",
        "a1-b2-c3-d4-e5", "d4'-e5'", "c3", 9, "c3", Conflict(ref("c3"), ref("d4'")),
    ),
    (
        "the floor is kept as the anchor of the deepest fork allowed",
        "a1-b2-c3-d4-e5", "b2-c3-d4'-e5'", "c3", 9, "", Ancestor(ref("c3")),
    ),
    (
        "the floor is an anchor even where the history given does not reach it",
        "d4-e5", "c3-d4'", "c3", 9, "", Ancestor(ref("c3")),
    ),
    (
        "a shared block below the floor is no ancestor: the floor is asked first",
        "a1-b2-c3-d4-e5", "a1-d4'", "c3", 9, "", NeedsOlder(ref("c3")),
    ),
    (
        "a floor reported lower is not our floor: our own decides",
        "a1-b2-c3-d4-e5", "a1-b2-c3-d4-e5'", "d4", 9, "", Ancestor(ref("d4")),
    ),
    (
        "an ancestor deeper than allowed is too deep",
        "a1-b2-c3-d4-e5", "a1-b2-c3'-d4'-e5'", "", 2, "", TooDeep(3, 2),
    ),
    (
        "an ancestor exactly as deep as allowed is followed",
        "a1-b2-c3-d4-e5", "a1-b2-c3'-d4'-e5'", "", 3, "", Ancestor(ref("b2")),
    ),
    (
        "all we may search is refuted: too deep",
        "a1-b2-c3-d4-e5", "c3'-d4'-e5'", "", 2, "", TooDeep(3, 2),
    ),
    (
        "everything is orphaned but too deep to restart by ourselves",
        "a1-b2-c3-d4-e5", "a1'-b2'-c3'-d4'-e5'", "", 3, "", TooDeep(5, 3),
    ),
    (
        "deeper than the history: the first block is as low as we can ask",
        "c3-d4-e5-f6", "d4'-e5'-f6'", "", 9, "", NeedsOlder(ref("c3")),
    ),
    (
        "steps double: as deep again as the search has come",
        "a1-b2-c3-d4-e5-f6-g7-h8-i9", "g7'-h8'-i9'", "", 9, "", NeedsOlder(ref("d4")),
    ),
    (
        "steps never pass the floor",
        "a1-b2-c3-d4-e5-f6-g7-h8-i9", "f6'-g7'-h8'-i9'", "e5", 9, "", NeedsOlder(ref("e5")),
    ),
    (
        "steps never pass the depth allowed",
        "a1-b2-c3-d4-e5-f6-g7-h8-i9", "f6'-g7'-h8'-i9'", "", 5, "", NeedsOlder(ref("d4")),
    ),
    (
        "a longer chain whose blocks above ours are unknown to us",
        "a1-b2-c3", "b2-c3'-d4'-e5'", "", 9, "", Ancestor(ref("b2")),
    ),
    (
        "a fork while we were down, under a final block far above us, is an ordinary fork",
        "a1-b2-c3", "a1-b2'-c3'-d4'-e5'-f6'", "a1", 9, "", Ancestor(ref("a1")),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    "history, sample, floor, depth_max, refuted, outcome",
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_resolve_returns_the_outcome_drawn(
    history: str, sample: str, floor: str, depth_max: int, refuted: str, outcome: Outcome
) -> None:
    found = fork.resolve(
        chain(history),
        chain(sample),
        ref(floor) if floor else None,
        depth_max,
        ref(refuted) if refuted else None,
    )

    assert found == outcome


def test_repeated_rounds_converge_on_the_highest_shared_block() -> None:
    ours = chain("a1-b2-c3-d4-e5-f6-g7-h8-i9-j10-k11-l12")
    theirs = chain("a1-b2-c3-d4'-e5'-f6'-g7'-h8'-i9'-j10'-k11'-l12'")
    search = fork.Search(position=ours[-1], floor=None, depth_max=20)
    asked, asks = ours[-1], []
    while True:
        if asked in theirs:
            outcome = search.accepted(ours, asked)
        else:
            # The shortest sample there is: one block, at the height that was asked.
            sample = (theirs[asked.number - 1],)
            outcome = search.declined(ours, fork.Fork(sample=sample, refuted=asked))
        if isinstance(outcome, Ancestor):
            break
        assert isinstance(outcome, NeedsOlder)
        asked = outcome.ref
        asks.append(asked.number)

    assert outcome == Ancestor(ref("c3"))
    assert asks == [11, 9, 5, 1, 3, 4]  # steps double on the way down, then halve back up


def test_an_accepted_answer_makes_the_asked_block_the_ancestor_once_nothing_lies_between() -> None:
    ours = chain("a1-b2-c3")
    search = fork.Search(position=ours[-1], floor=None, depth_max=9)
    search.declined(ours, fork.Fork(sample=(), refuted=ref("c3")))

    assert search.accepted(ours, ref("b2")) == Ancestor(ref("b2"))


def test_a_newer_word_wins_when_the_other_side_moves_between_rounds() -> None:
    ours = chain("a1-b2-c3-d4-e5")
    search = fork.Search(position=ours[-1], floor=None, depth_max=9)
    first = search.declined(ours, fork.Fork(sample=tuple(chain("b2-e5'")), refuted=ref("e5")))
    moved = search.declined(ours, fork.Fork(sample=tuple(chain("a1-b2'")), refuted=ref("c3")))

    assert first == NeedsOlder(ref("d4"))
    assert moved == Ancestor(ref("a1"))


def test_a_lower_head_that_we_share_contradicts_nothing() -> None:
    assert not fork.contradicts(chain("a1-b2-c3"), chain("a1-b2"))
    assert fork.contradicts(chain("a1-b2-c3"), chain("a1-b2'"))
