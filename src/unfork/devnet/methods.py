"""Owns what each JSON-RPC method answers, as a node would, and the faults of single calls.

A method takes a question and returns JSON bytes. A fault is asked for at the very point where it
would change the answer, so that one that strikes has changed something.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from unfork.chain.block import BlockRef
from unfork.devnet import contract_calls, log_filter, render
from unfork.devnet import faults as fault_kinds
from unfork.devnet.block import Block
from unfork.devnet.faults import Faults
from unfork.devnet.fragments import Fragments, array
from unfork.devnet.protocol import (
    INVALID_PARAMS,
    METHOD_MISSING,
    SERVER_ERROR,
    RpcError,
    is_hash,
    read_block_name,
    read_data,
)
from unfork.devnet.transaction_index import TransactionIndex
from unfork.devnet.view import Chain, View

NULL = b"null"


class Session(Protocol):
    """A WebSocket connection, as far as methods see it."""

    def subscribe(self) -> str:
        """Starts announcing heads; the subscription's name."""
        ...

    def unsubscribe(self, subscription: str) -> bool:
        """Ends a subscription; whether there was one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call with everything its answer depends on."""

    method: str
    params: list[Any]
    #: The chain as this call sees it.
    view: View
    tree: Chain
    fragments: Fragments
    faults: Faults
    index: TransactionIndex
    #: Heads the node has shown, the current one last.
    heads: Sequence[BlockRef]
    #: None over HTTP.
    session: Session | None

    def param(self, position: int) -> Any:
        """A parameter that must be there."""
        if position >= len(self.params):
            message = f"missing value for required argument {position}"
            raise RpcError(INVALID_PARAMS, message)
        return self.params[position]

    def block(self, name: Any, *, argument: int = 0) -> Block | None:
        """The block that a number or tag, a hash, or an object with either stands for."""
        if is_hash(name):
            hash = name["blockHash"] if isinstance(name, dict) else name
            return self.view.by_hash(read_data(hash, size=32, argument=argument))
        if isinstance(name, dict):
            name = name.get("blockNumber")
        return self.named(read_block_name(name, argument=argument))

    def named(self, name: int | str) -> Block | None:
        """The block that a number or tag stands for."""
        match name:
            case int():
                return self.view.at(name)
            case "earliest":
                return self.view.at(0)
            case "safe":
                return _found(self.view.safe, "safe block not found")
            case "finalized":
                return _found(self.view.finalized, "finalized block not found")
            case _:
                # The devnet has no pool: what is pending is what is there.
                return self.view.head


def _found(block: Block | None, message: str) -> Block:
    if block is None:
        raise RpcError(SERVER_ERROR, message)
    return block


# --- the chain


def _chain_id(question: Question) -> bytes:
    return orjson.dumps(hex(question.tree.knobs.chain_id))


def _net_version(question: Question) -> bytes:
    return orjson.dumps(str(question.tree.knobs.chain_id))


def _client_version(question: Question) -> bytes:
    return orjson.dumps("unfork-devnet/v1")


def _syncing(question: Question) -> bytes:
    return b"false"


def _block_number(question: Question) -> bytes:
    return orjson.dumps(hex(question.view.head.number))


# --- blocks


def _block_by_number(question: Question) -> bytes:
    return _block(question, question.named(read_block_name(question.param(0))))


def _block_by_hash(question: Question) -> bytes:
    return _block(question, question.view.by_hash(read_data(question.param(0), size=32)))


def _block(question: Question, block: Block | None) -> bytes:
    full = question.param(1)
    if not isinstance(full, bool):
        raise RpcError(INVALID_PARAMS, "invalid argument 1: json: cannot unmarshal into bool")
    if block is None or question.faults.strike(fault_kinds.NullBlock, question.method):
        return NULL
    return question.fragments.block(block, full=full)


# --- receipts and transactions


def _block_receipts(question: Question) -> bytes:
    block = _receipts_block(question)
    if block is None:
        return NULL
    given = _receipts_given(question, block)
    late = _lateness(question, block)
    if late is None:
        return question.fragments.receipts(given)
    match late.answer:
        case "null":
            return NULL
        case "empty":
            return b"[]"
        case "fewer":
            return array(question.fragments.receipt_pieces(given)[:-1])


def _receipts_block(question: Question) -> Block | None:
    name = question.param(0)
    block = question.block(name)
    if block is None or not is_hash(name):
        return block
    refused = question.faults.strike(fault_kinds.HashRefused, question.method)
    if refused is None:
        return block
    if refused.answer == "error":
        raise RpcError(INVALID_PARAMS, "invalid argument 0: hex string has length 64, want 16")
    return None


def _receipts_given(question: Question, block: Block) -> Block:
    """The block whose receipts are given: another one where that fault strikes."""
    other = functools.cache(lambda: _neighbour(question, block))
    struck = question.faults.strike(
        fault_kinds.OtherReceipts,
        question.method,
        # Two empty lists are the same answer, so there is no fault to speak of.
        lambda fault: bool(other().transactions or block.transactions),
    )
    return block if struck is None else other()


def _neighbour(question: Question, block: Block) -> Block:
    """A block that one might be taken for: a replaced one of its number, else its parent."""
    for ref in reversed(question.heads):
        if ref.number == block.number and ref.hash != block.hash:
            return question.tree.by_hash(ref.hash) or block
    return question.tree.by_hash(block.header.parent_hash) or block


def _lateness(question: Question, block: Block) -> fault_kinds.LateReceipts | None:
    faults = question.faults
    return faults.strike(
        fault_kinds.LateReceipts,
        question.method,
        lambda fault: (
            (bool(block.transactions) or fault.answer == "null")
            and faults.is_late(fault, block.hash)
        ),
    )


def _transaction_by_hash(question: Question) -> bytes:
    place = question.index.find(read_data(question.param(0), size=32), question.view)
    if place is None:
        return NULL
    block, position = place
    return question.fragments.transactions(block)[position]


def _transaction_receipt(question: Question) -> bytes:
    place = question.index.find(read_data(question.param(0), size=32), question.view)
    if place is None:
        return NULL
    block, position = place
    if _lateness(question, block) is not None:
        return NULL
    return question.fragments.receipt_pieces(block)[position]


# --- logs


def _logs(question: Question) -> bytes:
    criteria = question.param(0)
    if not isinstance(criteria, dict):
        raise RpcError(INVALID_PARAMS, "invalid argument 0: json: cannot unmarshal into a filter")
    wanted = log_filter.read(criteria)
    if criteria.get("blockHash") is not None:
        return array(_matching(question, _hash_block(question, criteria), wanted))
    return _range_logs(question, criteria, wanted)


def _hash_block(question: Question, criteria: dict[str, Any]) -> Block:
    if criteria.get("fromBlock") is not None or criteria.get("toBlock") is not None:
        message = "cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other"
        raise RpcError(INVALID_PARAMS, f"invalid argument 0: {message}")
    block = question.view.by_hash(read_data(criteria["blockHash"], size=32))
    return _found(block, "unknown block")


def _range_logs(
    question: Question, criteria: dict[str, Any], wanted: log_filter.LogFilter
) -> bytes:
    first = _bound(question, criteria.get("fromBlock"))
    last = _bound(question, criteria.get("toBlock"))
    if first > last:
        raise RpcError(INVALID_PARAMS, "invalid block range params")
    _refuse_range(question, first, last)
    last = min(last, question.view.head.number)
    found: list[bytes] = []
    ends: list[int] = []
    for number in range(first, last + 1):
        block = question.view.at(number)
        assert block is not None
        found.extend(_matching(question, block, wanted))
        ends.append(len(found))
    _refuse_results(question, first, ends)
    if found and question.faults.strike(fault_kinds.DuplicateLogs, question.method):
        found = [piece for piece in found for _ in range(2)]
    return array(found)


def _bound(question: Question, value: Any) -> int:
    name = "latest" if value is None else read_block_name(value)
    if isinstance(name, int):
        return name
    block = question.named(name)
    assert block is not None
    return block.number


def _refuse_range(question: Question, first: int, last: int) -> None:
    head = question.view.head.number
    if question.faults.strike(fault_kinds.BeyondHead, question.method, lambda fault: last > head):
        raise RpcError(INVALID_PARAMS, "block range extends beyond current head block")
    blocks = last - first + 1
    cap = question.faults.strike(
        fault_kinds.RangeCap, question.method, lambda fault: blocks > fault.blocks_max
    )
    if cap is not None:
        message = cap.message.format(
            blocks_max=cap.blocks_max,
            blocks=blocks,
            first=hex(first),
            last=hex(first + cap.blocks_max - 1),
        )
        raise RpcError(cap.code, message)


def _refuse_results(question: Question, first: int, ends: list[int]) -> None:
    """Refuses too many logs; `ends` is how many there are up to each block of the range."""
    total = ends[-1] if ends else 0
    cap = question.faults.strike(
        fault_kinds.ResultCap, question.method, lambda fault: total > fault.logs_max
    )
    if cap is not None:
        fitting = sum(1 for end in ends if end <= cap.logs_max)
        message = cap.message.format(
            logs_max=cap.logs_max, first=hex(first), last=hex(first + max(fitting, 1) - 1)
        )
        raise RpcError(cap.code, message)


def _matching(
    question: Question, block: Block, wanted: log_filter.LogFilter
) -> Iterator[bytes] | tuple[bytes, ...]:
    if not any(executed.logs for executed in block.transactions):
        return ()
    pieces = question.fragments.logs(block)
    if wanted.is_open:
        return pieces
    logs = (log for executed in block.transactions for log in executed.logs)
    return (piece for log, piece in zip(logs, pieces, strict=True) if wanted.matches(log))


# --- traces


def _trace_block(question: Question) -> bytes:
    block = question.named(read_block_name(question.param(0)))
    return NULL if block is None else question.fragments.flat_traces(block)


def _debug_trace_by_hash(question: Question) -> bytes:
    hash = read_data(question.param(0), size=32)
    return _call_traces(
        question, question.view.by_hash(hash), f"block {render.data(hash)} not found"
    )


def _debug_trace_by_number(question: Question) -> bytes:
    name = read_block_name(question.param(0))
    return _call_traces(question, question.named(name), f"block #{name} not found")


def _call_traces(question: Question, block: Block | None, missing: str) -> bytes:
    block = _found(block, missing)
    if block.number == 0:
        raise RpcError(SERVER_ERROR, "genesis is not traceable")
    options = question.params[1] if len(question.params) > 1 else None
    if not isinstance(options, dict) or options.get("tracer") != "callTracer":
        raise RpcError(INVALID_PARAMS, "the devnet traces with the callTracer only")
    return question.fragments.call_traces(block)


# --- contracts


def _code(question: Question) -> bytes:
    address = read_data(question.param(0), size=20)
    contract = question.tree.metadata(address, _state_block(question).hash)
    return orjson.dumps(render.data(b"" if contract is None else contract_calls.code(contract)))


def _contract_call(question: Question) -> bytes:
    call = question.param(0)
    if not isinstance(call, dict):
        raise RpcError(INVALID_PARAMS, "invalid argument 0: json: cannot unmarshal into a call")
    block = _state_block(question)
    given = call.get("input", call.get("data"))
    data = b"" if given is None else read_data(given)
    if call.get("to") is None:
        return b'"0x"'
    contract = question.tree.metadata(read_data(call["to"], size=20), block.hash)
    output = b"" if contract is None else contract_calls.output(contract, data)
    return orjson.dumps(render.data(output))


def _state_block(question: Question) -> Block:
    """The block whose state is asked for: the head where the second parameter names none."""
    name = question.params[1] if len(question.params) > 1 else "latest"
    is_by_hash = is_hash(name)
    if is_by_hash and question.faults.strike(fault_kinds.HashRefused, question.method):
        raise RpcError(INVALID_PARAMS, "invalid argument 1: hex string has length 64, want 16")
    block = _found(question.block(name, argument=1), "header not found")
    if isinstance(name, dict) and name.get("requireCanonical") and is_by_hash:
        if not question.view.shows(block):
            raise RpcError(SERVER_ERROR, "hash is not currently canonical")
    if question.faults.strike(
        fault_kinds.Pruned,
        question.method,
        lambda fault: block.number <= question.view.head.number - fault.keeps_blocks,
    ):
        root = render.data(block.header.state_root)
        raise RpcError(
            SERVER_ERROR, f"missing trie node {root[2:]} (path ) state {root} is not available"
        )
    return block


# --- subscriptions


def _subscribe(question: Question) -> bytes:
    session = _session(question)
    if question.param(0) != "newHeads":
        message = f'no "{question.param(0)}" subscription in eth namespace'
        raise RpcError(METHOD_MISSING, message)
    return orjson.dumps(session.subscribe())


def _unsubscribe(question: Question) -> bytes:
    name = question.param(0)
    if not _session(question).unsubscribe(str(name)):
        raise RpcError(SERVER_ERROR, "subscription not found")
    return b"true"


def _session(question: Question) -> Session:
    if question.session is None:
        raise RpcError(METHOD_MISSING, "notifications not supported")
    return question.session


#: Methods whose answer does not depend on the head.
HEADLESS = frozenset(
    {
        "eth_chainId",
        "net_version",
        "web3_clientVersion",
        "eth_syncing",
        "eth_subscribe",
        "eth_unsubscribe",
    }
)

METHODS: dict[str, Callable[[Question], bytes]] = {
    "eth_chainId": _chain_id,
    "net_version": _net_version,
    "web3_clientVersion": _client_version,
    "eth_syncing": _syncing,
    "eth_blockNumber": _block_number,
    "eth_getBlockByNumber": _block_by_number,
    "eth_getBlockByHash": _block_by_hash,
    "eth_getBlockReceipts": _block_receipts,
    "eth_getTransactionByHash": _transaction_by_hash,
    "eth_getTransactionReceipt": _transaction_receipt,
    "eth_getLogs": _logs,
    "trace_block": _trace_block,
    "debug_traceBlockByHash": _debug_trace_by_hash,
    "debug_traceBlockByNumber": _debug_trace_by_number,
    "eth_getCode": _code,
    "eth_call": _contract_call,
    "eth_subscribe": _subscribe,
    "eth_unsubscribe": _unsubscribe,
}
