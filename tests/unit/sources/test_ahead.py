"""How far ahead is fetched, and in what portions: shown on pieces that are made up, not fetched."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.sources.ahead import PIECES, Ahead, Pace
from unfork.sources.piece import Piece

FAR = 10_000


def ref(number: int) -> BlockRef:
    return BlockRef(number, number.to_bytes(32, "big"))


def piece(span: Span, bytes_each: int) -> Piece:
    """Blocks that weigh so much each."""
    refs = tuple(ref(number) for number in range(span.first, span.last + 1))
    words = pa.array([0] * (len(refs) * bytes_each // 8), pa.int64())
    parent = ref(span.first - 1) if span.first else None
    return Piece(parent=parent, refs=refs, tables={"blocks": pa.table({"word": words})})


async def sizes(*, bytes_each: int, blocks: int = 600, piece_max: int = 100) -> list[int]:
    """The sizes of the pieces in which so many blocks are taken."""
    asked: list[Span] = []
    taken = 0
    widest = 0

    async def fetch(span: Span) -> Piece:
        asked.append(span)
        await asyncio.sleep(0)
        return piece(span, bytes_each)

    pace = Pace(blocks_ahead_max=lambda: 256, rows_max=1_000_000, bytes_max=64 * 1024)
    ahead = Ahead(fetch, first=0, pace=pace, piece_max=lambda: piece_max, pieces_max=16)
    ahead.extend(FAR)
    found = []
    while taken < blocks:
        got = await ahead.next()
        assert got is not None and got.refs[0].number == taken
        found.append(len(got.refs))
        taken += len(got.refs)
        widest = max(widest, asked[-1].last + 1 - taken)
    await ahead.close()
    assert widest <= 256
    return found


async def test_light_blocks_come_in_pieces_as_large_as_their_share() -> None:
    found = await sizes(bytes_each=16)
    assert found[0] < 256 // PIECES
    assert set(found[PIECES + 1 :]) == {256 // PIECES}


async def test_no_piece_is_larger_than_the_fetcher_takes() -> None:
    assert max(await sizes(bytes_each=16, piece_max=20)) == 20


async def test_heavy_blocks_come_in_small_pieces() -> None:
    found = await sizes(bytes_each=4096)
    assert set(found[PIECES + 1 :]) == {64 * 1024 // 4096 // PIECES}


async def test_a_block_heavier_than_the_bound_comes_alone() -> None:
    found = await sizes(bytes_each=128 * 1024, blocks=40)
    assert set(found[PIECES + 1 :]) == {1}
