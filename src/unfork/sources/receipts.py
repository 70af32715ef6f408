"""Owns how the receipts of a block are got from a node, whatever the node has.

The ways stand in the order of preference. A way that a node lacks is left for good (for a while: a
front may have said so by mistake); a way that gives nothing where a later one gives receipts is
left after it did so repeatedly. Receipts that no way gives yet are late: the block is asked again.

Invariants: receipts are handed on only after `checks.receipts` tied them to the very block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from unfork.errors import MethodMissing, SourceUnavailable
from unfork.sources import answers, checks
from unfork.sources.endpoint import Endpoint
from unfork.sources.rpc import Answer, Call, Rpc

#: Times a later way must have worked instead before the current one is left.
DOUBTS_MAX = 3
#: Seconds after which ways that were left are tried again.
RETRY_WAYS_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a node knows of a block beyond the block itself."""

    #: One per transaction, None where the node has no receipts at all.
    receipts: list[answers.Receipt] | None
    #: The logs, where they came without receipts.
    logs: list[answers.Log] = field(default_factory=list)


#: No transactions, so nothing to ask for.
NOTHING = Outcome(receipts=[])


async def fetch(rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]) -> list[Outcome]:
    """The receipts of each block; raises where they are late, or not believable."""
    found: dict[str, Outcome] = {b.hash: NOTHING for b in blocks if not b.transactions}
    known = endpoint.abilities
    if known.receipts and rpc.clock.now() - known.receipts_since > RETRY_WAYS_S:
        known.receipts, known.receipts_doubts = 0, 0
    lacking: MethodMissing | None = None
    preferred = known.receipts
    for place in range(preferred, len(WAYS)):
        open_blocks = [block for block in blocks if block.hash not in found]
        if not open_blocks:
            break
        if WAYS[place] is _logs and place != preferred and lacking is None:
            break  # Receipts exist here and are late: logs alone would lose the outcomes.
        try:
            got = await WAYS[place](rpc, endpoint, open_blocks)
        except MethodMissing as error:
            lacking = error
            _leave(endpoint, rpc, place)
            continue
        lacking = None
        found.update(got)
        _learn(endpoint, rpc, place, worked=bool(got))
    missing = [block for block in blocks if block.hash not in found]
    if missing and lacking is not None:
        raise lacking
    if missing:
        raise SourceUnavailable(
            f"{endpoint.name} has block {checks.number_of(missing[0])} but not its receipts yet",
            endpoint=endpoint.name,
            block_number=checks.number_of(missing[0]),
        )
    return [found[block.hash] for block in blocks]


def by_number(number: int) -> Call:
    """Asks for receipts before the block's hash is known; to be checked against it."""
    return Call("eth_getBlockReceipts", (hex(number),), answers.RECEIPTS, is_optional=True)


def believed(block: answers.Block, answer: Answer) -> Outcome | None:
    """The receipts in an answer; None where there are none yet."""
    got = answer.read(answers.RECEIPTS)
    if not got:
        return None
    with answer.doubted():
        checks.receipts(block, got)
    return Outcome(receipts=got)


def _leave(endpoint: Endpoint, rpc: Rpc, place: int) -> None:
    """The node lacks a way: the next one is the first to try from now on."""
    known = endpoint.abilities
    if known.receipts == place and place + 1 < len(WAYS):
        known.receipts, known.receipts_doubts = place + 1, 0
        known.receipts_since = rpc.clock.now()


def _learn(endpoint: Endpoint, rpc: Rpc, place: int, *, worked: bool) -> None:
    """Notes whether the preferred way works, or a later one does instead."""
    known = endpoint.abilities
    if not worked:
        return
    if place == known.receipts:
        known.receipts_doubts = 0
        return
    known.receipts_doubts += 1
    if known.receipts_doubts >= DOUBTS_MAX:
        known.receipts, known.receipts_doubts = place, 0
        known.receipts_since = rpc.clock.now()


async def _asked(
    rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block], calls: Sequence[Call]
) -> dict[str, Outcome]:
    """One call per block."""
    found: dict[str, Outcome] = {}
    got = await rpc.exchange(endpoint, calls)
    for block, answer in zip(blocks, got, strict=True):
        outcome = believed(block, answer)
        if outcome is not None:
            found[block.hash] = outcome
    return found


async def _by_hash(
    rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]
) -> dict[str, Outcome]:
    calls = [Call("eth_getBlockReceipts", (block.hash,), answers.RECEIPTS) for block in blocks]
    return await _asked(rpc, endpoint, blocks, calls)


async def _by_object(
    rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]
) -> dict[str, Outcome]:
    names = [{"blockHash": block.hash} for block in blocks]
    calls = [Call("eth_getBlockReceipts", (name,), answers.RECEIPTS) for name in names]
    return await _asked(rpc, endpoint, blocks, calls)


async def _by_number(
    rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]
) -> dict[str, Outcome]:
    calls = [Call("eth_getBlockReceipts", (block.number,), answers.RECEIPTS) for block in blocks]
    return await _asked(rpc, endpoint, blocks, calls)


async def _by_transaction(
    rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]
) -> dict[str, Outcome]:
    """One call per transaction; a block counts only when all of them are there."""
    owners = [block for block in blocks for _ in block.transactions]
    calls = [
        Call("eth_getTransactionReceipt", (row.hash,), answers.RECEIPT)
        for block in blocks
        for row in block.transactions
    ]
    got = await rpc.exchange(endpoint, calls)
    parts: dict[str, list[answers.Receipt]] = {block.hash: [] for block in blocks}
    for block, answer in zip(owners, got, strict=True):
        receipt = answer.read(answers.RECEIPT)
        if receipt is not None:
            parts[block.hash].append(receipt)
    found: dict[str, Outcome] = {}
    for block in blocks:
        if len(parts[block.hash]) == len(block.transactions):
            checks.receipts(block, parts[block.hash])
            found[block.hash] = Outcome(receipts=parts[block.hash])
    return found


async def _logs(
    rpc: Rpc, endpoint: Endpoint, blocks: Sequence[answers.Block]
) -> dict[str, Outcome]:
    """Logs alone, for a node that has no receipts; what only receipts know stays NULL."""
    calls = [Call("eth_getLogs", ({"blockHash": b.hash},), answers.LOGS) for b in blocks]
    got = await rpc.exchange(endpoint, calls)
    found: dict[str, Outcome] = {}
    for block, answer in zip(blocks, got, strict=True):
        logs = answer.read(answers.LOGS)
        if logs is None:
            continue
        with answer.doubted():
            hashes = [row.hash for row in block.transactions]
            found[block.hash] = Outcome(receipts=None, logs=checks.logs(block, hashes, logs))
    return found


Way = Callable[[Rpc, Endpoint, Sequence[answers.Block]], Awaitable[dict[str, Outcome]]]

WAYS: tuple[Way, ...] = (_by_hash, _by_object, _by_number, _by_transaction, _logs)
#: The ways up to here ask for a whole block's receipts at once.
WHOLE_WAYS = 3
