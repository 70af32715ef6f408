"""Owns the call trace as a row: two ways of asking a node flatten to the same rows.

trace_block lists calls flat, debug_traceBlockByHash nests them; both become `Trace` in depth-first
order, named as ethereum-etl names them. A call took effect only if every call around it did, which
neither way says: the status is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from unfork.errors import Unbelievable
from unfork.sources import answers


class Trace(msgspec.Struct, gc=False, kw_only=True):
    """One call of a block, hex still as text."""

    transaction_hash: str | None
    transaction_index: int | None
    #: Path in the call tree as "0,2,1".
    trace_address: str
    trace_type: str
    call_type: str | None = None
    reward_type: str | None = None
    from_address: str | None = None
    to_address: str | None = None
    value: str | None = None
    gas: str | None = None
    gas_used: str | None = None
    input: str | None = None
    output: str | None = None
    subtraces: int = 0
    error: str | None = None
    #: 1 where the call and every call around it took effect.
    status: int


def from_parity(entries: Sequence[answers.ParityTrace]) -> list[Trace]:
    """The rows of a trace_block answer."""
    failed: set[tuple[str | None, tuple[int, ...]]] = set()
    rows = []
    for entry in entries:
        path = tuple(entry.trace_address)
        owner = entry.transaction_hash
        if entry.error is not None or (path and (owner, path[:-1]) in failed):
            failed.add((owner, path))
        rows.append(_parity_row(entry, status=0 if (owner, path) in failed else 1))
    return rows


def from_frames(
    transactions: Sequence[answers.FramedTransaction], hashes: Sequence[str]
) -> list[Trace]:
    """The rows of a callTracer answer; `hashes` are the block's transactions, in order."""
    assert len(transactions) == len(hashes), "one call tree per transaction"
    rows: list[Trace] = []
    for index, (traced, owner) in enumerate(zip(transactions, hashes, strict=True)):
        for path, frame, status in _walk(traced.result, (), 1):
            rows.append(_frame_row(frame, path, owner=owner, index=index, status=status))
    return rows


def _walk(
    frame: answers.Frame, path: tuple[int, ...], around: int
) -> Iterator[tuple[tuple[int, ...], answers.Frame, int]]:
    """Depth first without recursion: a call tree may be a thousand calls deep."""
    stack = [(path, frame, around)]
    while stack:
        path, frame, around = stack.pop()
        status = around if frame.error is None else 0
        yield path, frame, status
        inner = list(enumerate(frame.calls or ()))
        stack.extend(((*path, place), call, status) for place, call in reversed(inner))


def _parity_row(entry: answers.ParityTrace, *, status: int) -> Trace:
    # Some nodes give a result with a failure, most do not: the rows never hold one.
    has_result = entry.result is not None and entry.error is None
    action = entry.action
    result = entry.result if has_result and entry.result else answers.TraceResult()
    row = Trace(
        transaction_hash=entry.transaction_hash,
        transaction_index=entry.transaction_position,
        trace_address=",".join(map(str, entry.trace_address)),
        trace_type=entry.type,
        subtraces=entry.subtraces,
        error=entry.error,
        status=status,
    )
    match entry.type:
        case "call":
            row.call_type = action.call_type
            row.from_address, row.to_address = action.sender, action.to
            row.value, row.gas, row.gas_used = action.value, action.gas, result.gas_used
            row.input, row.output = action.input, result.output
        case "create":
            row.from_address, row.to_address = action.sender, result.address
            row.value, row.gas, row.gas_used = action.value, action.gas, result.gas_used
            row.input, row.output = action.init, result.code
        case "suicide":
            row.from_address, row.to_address = action.address, action.refund_address
            row.value = action.balance
        case "reward":
            row.to_address, row.value = action.author, action.value
            row.reward_type = action.reward_type
        case unknown:
            raise Unbelievable(
                f"block {entry.block_hash}: a trace has the unknown type {unknown!r}",
                block_hash=entry.block_hash,
            )
    return row


def _frame_row(
    frame: answers.Frame, path: tuple[int, ...], *, owner: str, index: int, status: int
) -> Trace:
    kind = frame.type.lower()
    row = Trace(
        transaction_hash=owner,
        transaction_index=index,
        trace_address=",".join(map(str, path)),
        trace_type="call",
        from_address=frame.sender,
        to_address=frame.to,
        value=frame.value,
        subtraces=len(frame.calls or ()),
        error=_PARITY_WORDS.get(frame.error, frame.error) if frame.error else None,
        status=status,
    )
    if kind == "selfdestruct":
        row.trace_type = "suicide"
        return row
    row.gas, row.input = frame.gas, frame.input
    if frame.error is None:
        row.gas_used = frame.gas_used
        row.output = frame.output or "0x"  # What is empty is left out there.
    if kind in ("create", "create2"):
        row.trace_type = "create"
        if frame.error is not None:
            row.to_address = None
    else:
        row.call_type = kind
        if kind == "staticcall":
            row.value = row.value or "0x0"
    return row


#: Failures in the words of callTracer, and of trace_block.
_PARITY_WORDS = {
    "execution reverted": "Reverted",
    "out of gas": "Out of gas",
    "invalid jump destination": "Bad jump destination",
    "stack underflow": "Stack underflow",
}
