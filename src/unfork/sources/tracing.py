"""Owns how the call traces of a block are got from a node: trace_block, else callTracer.

Invariants: traces are handed on only when they were tied to the very block and every transaction
of it has one; traces that are not there yet make the block be asked for again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from unfork.errors import MethodMissing, SourceUnavailable
from unfork.sources import answers, checks, traces
from unfork.sources.endpoint import Endpoint
from unfork.sources.rpc import Call, Rpc
from unfork.sources.traces import Trace


async def fetch(rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]) -> list[list[Trace]]:
    """The traces of each block, in order."""
    # The first block was never executed, and nodes refuse to trace it.
    real = [block for block in blocks if checks.number_of(block) > 0]
    lacking: MethodMissing | None = None
    for place in range(endpoint.abilities.traces, len(WAYS)):
        try:
            found = await WAYS[place](rpc, endpoint, real) if real else []
            return [[] for _ in blocks[len(real) :]] + found
        except MethodMissing as error:
            lacking = error
            endpoint.abilities.traces = min(place + 1, len(WAYS) - 1)
    # Which way it lacks now is asked anew next time: it may have been a passing refusal.
    endpoint.abilities.traces = 0
    raise MethodMissing(
        f"{endpoint.name} has neither trace_block nor debug_traceBlockByHash: set traces: false, "
        "or name an endpoint that has one",
        endpoint=endpoint.name,
    ) from lacking


async def _flat(rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]) -> list[list[Trace]]:
    calls = [Call("trace_block", (block.number,), answers.PARITY_TRACES) for block in blocks]
    rows: list[list[Trace]] = []
    for block, answer in zip(blocks, await rpc.exchange(endpoint, calls), strict=True):
        got = answer.read(answers.PARITY_TRACES)
        if not got and block.transactions:
            raise _late(endpoint, block)
        with answer.doubted():
            checks.parity_traces(block, got or [])
            rows.append(traces.from_parity(got or []))
    return rows


async def _nested(
    rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]
) -> list[list[Trace]]:
    tracer = {"tracer": "callTracer"}
    calls = [
        Call("debug_traceBlockByHash", (block.hash, tracer), answers.FRAMES) for block in blocks
    ]
    rows: list[list[Trace]] = []
    for block, answer in zip(blocks, await rpc.exchange(endpoint, calls), strict=True):
        got = answer.read(answers.FRAMES)
        if not got and block.transactions:
            raise _late(endpoint, block)
        with answer.doubted():
            checks.frames(block, got or [])
        rows.append(traces.from_frames(got or [], [row.hash for row in block.transactions]))
    return rows


def _late(endpoint: Endpoint, block: answers.Block) -> SourceUnavailable:
    number = checks.number_of(block)
    return SourceUnavailable(
        f"{endpoint.name} has block {number} but not its traces yet",
        endpoint=endpoint.name,
        block_number=number,
    )


Way = Callable[[Rpc, Endpoint, Sequence[answers.Block]], Awaitable[list[list[Trace]]]]

WAYS: tuple[Way, ...] = (_flat, _nested)
