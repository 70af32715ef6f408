"""Goal: the tables that people watch say how fast a chain is now, and at the end how fast it was.

Method: a tally is told of commits under a clock of the test's own.
"""

from __future__ import annotations

import time

import pytest
from rich.console import Console

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.cli import progress
from unfork.cli.progress import Tally
from unfork.hot.state import ChainState
from unfork.ingest.follow import Committed


def printed(tally: Tally, *, is_final: bool) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(progress.board([tally], is_final=is_final))
    return captured.get()


def test_the_last_table_says_how_fast_it_was_not_that_it_stands_still_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    tally = Tally(chain="one", started_at=now)
    now = 1010.0
    at = BlockRef(99, b"\x01" * 32)
    state = ChainState(
        chain_id=1,
        first=0,
        position=at,
        floor=None,
        finalized_seen=None,
        head=at,
        head_at=None,
        seq=1,
        epoch=1,
    )
    tally.heard(Committed(span=Span(0, 99), rows=100, state=state))
    now = 1100.0
    assert " 0.0 " in printed(tally, is_final=False)
    assert " 10.0 " in printed(tally, is_final=True)


def test_a_chain_without_a_block_has_no_rate() -> None:
    assert Tally(chain="one").rate_over_all == 0.0
