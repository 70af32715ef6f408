"""Owns the shapes of a node's answers: only the fields that are stored or checked, still as text.

Numbers and bytes stay the hex text the node sent; columns turn it into Arrow a whole column at a
time. Lengths that are fixed are checked while parsing. A field that some node leaves out is
optional here; one that every node must send is not, and an answer without it does not parse.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

#: Levels of JSON that are followed; what is nested deeper is no answer of a node.
_NESTING_MAX = 8192

#: Texts of one length; the parser measures them while it has them at hand, which costs nothing.
Hash = Annotated[str, msgspec.Meta(min_length=66, max_length=66)]
Address = Annotated[str, msgspec.Meta(min_length=42, max_length=42)]
#: A plain number where a node writes one instead of hex: positions in a trace.
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Answered(msgspec.Struct, gc=False, rename="camel"):
    """Base of everything a node answers; unknown fields are skipped, never an error."""


class AccessEntry(Answered):
    """One address of an access list."""

    address: str
    storage_keys: list[str]


class Authorization(Answered, omit_defaults=True):
    """One entry of a type-4 transaction's authorization list."""

    chain_id: str
    address: str
    nonce: str
    y_parity: str | None = None
    r: str | None = None
    s: str | None = None


class Transaction(Answered):
    """A transaction inside its block."""

    hash: Hash
    transaction_index: str
    nonce: str
    sender: Address = msgspec.field(name="from")
    gas: str
    value: str
    input: str
    block_hash: str | None = None
    to: Address | None = None
    type: str | None = None
    gas_price: str | None = None
    max_fee_per_gas: str | None = None
    max_priority_fee_per_gas: str | None = None
    max_fee_per_blob_gas: str | None = None
    blob_versioned_hashes: list[Hash] | None = None
    access_list: list[AccessEntry] | None = None
    authorization_list: list[Authorization] | None = None
    chain_id: str | None = None
    v: str | None = None
    y_parity: str | None = None
    r: str | None = None
    s: str | None = None


class Withdrawal(Answered):
    """One withdrawal of the consensus layer."""

    index: str
    validator_index: str
    address: Address
    amount: str


class Ref(Answered):
    """As much of a block as its place on the chain needs."""

    number: str
    hash: Hash
    parent_hash: Hash


class Header(Ref):
    """A block's own fields."""

    timestamp: str
    nonce: str | None = None
    mix_hash: str | None = None
    sha3_uncles: str | None = None
    logs_bloom: str | None = None
    transactions_root: str | None = None
    state_root: str | None = None
    receipts_root: str | None = None
    miner: str | None = None
    difficulty: str | None = None
    total_difficulty: str | None = None
    size: str | None = None
    extra_data: str | None = None
    gas_limit: str | None = None
    gas_used: str | None = None
    base_fee_per_gas: str | None = None
    withdrawals_root: str | None = None
    blob_gas_used: str | None = None
    excess_blob_gas: str | None = None
    parent_beacon_block_root: str | None = None
    requests_hash: str | None = None


class Outline(Header):
    """A block asked for without its transactions: their hashes only."""

    transactions: list[str] | None = None


class Block(Header, kw_only=True):
    """A block asked for with its transactions."""

    transactions: list[Transaction]
    withdrawals: list[Withdrawal] | None = None


class ReceiptLog(Answered):
    """One log inside its receipt."""

    address: Address
    topics: list[Hash]
    data: str
    block_hash: str
    transaction_hash: Hash
    transaction_index: str
    log_index: str
    removed: bool | None = None


class Log(ReceiptLog, kw_only=True):
    """One log by itself, which must say where it belongs."""

    block_number: str


class Receipt(Answered):
    """The outcome of one transaction."""

    transaction_hash: Hash
    transaction_index: str
    block_hash: str
    logs: list[ReceiptLog]
    status: str | None = None
    root: str | None = None
    gas_used: str | None = None
    cumulative_gas_used: str | None = None
    effective_gas_price: str | None = None
    contract_address: Address | None = None
    blob_gas_used: str | None = None
    blob_gas_price: str | None = None


class TraceAction(Answered):
    """What was called, created, destroyed or rewarded, in the manner of trace_block."""

    call_type: str | None = None
    sender: Address | None = msgspec.field(name="from", default=None)
    to: Address | None = None
    value: str | None = None
    gas: str | None = None
    input: str | None = None
    init: str | None = None
    address: Address | None = None
    refund_address: Address | None = None
    balance: str | None = None
    author: Address | None = None
    reward_type: str | None = None


class TraceResult(Answered):
    """What came of it, in the manner of trace_block."""

    gas_used: str | None = None
    output: str | None = None
    address: Address | None = None
    code: str | None = None


class ParityTrace(Answered):
    """One entry of trace_block."""

    action: TraceAction
    block_hash: str
    type: str
    trace_address: list[Position]
    subtraces: Position
    result: TraceResult | None = None
    error: str | None = None
    transaction_hash: Hash | None = None
    transaction_position: Position | None = None


class Frame(msgspec.Struct, rename="camel"):
    """One call of callTracer with the calls it made."""

    type: str
    sender: Address | None = msgspec.field(name="from", default=None)
    to: Address | None = None
    value: str | None = None
    gas: str | None = None
    gas_used: str | None = None
    input: str | None = None
    output: str | None = None
    error: str | None = None
    calls: list[Frame] | None = None


class FramedTransaction(Answered):
    """One transaction of debug_traceBlockByHash."""

    result: Frame
    tx_hash: str | None = None


class Failure(msgspec.Struct):
    """The error object of JSON-RPC; nodes are not strict about the types of its fields."""

    code: Any = None
    message: Any = None
    data: Any = None


class Envelope(msgspec.Struct):
    """One JSON-RPC answer, its result not parsed yet."""

    id: Any = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Failure | None = None


class Shape(Generic[T]):
    """What a result looks like, with the parsers for it; built once, because building is slow."""

    def __init__(self, kind: Any) -> None:
        self.result: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        fields: list[Any] = [
            ("id", Any, None),
            ("result", kind | msgspec.UnsetType, msgspec.UNSET),
            ("error", Failure | None, None),
        ]
        envelopes: Any = list.__class_getitem__(msgspec.defstruct("ShapedEnvelope", fields))
        #: A batch of calls whose results all look like this, parsed in one go.
        self.batch: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(envelopes)


def parse(decoder: msgspec.json.Decoder[T], text: msgspec.Raw | bytes) -> T:
    """Parses an answer; raises msgspec's errors.

    Calls may be nested a thousand deep on a chain, each in two levels of JSON, which is more than
    Python allows by default; anybody could stop a follower with one such transaction.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _NESTING_MAX))
        try:
            return decoder.decode(text)
        finally:
            sys.setrecursionlimit(limit)


BLOCK: Shape[Block | None] = Shape(Block | None)
OUTLINE: Shape[Outline | None] = Shape(Outline | None)
REF: Shape[Ref | None] = Shape(Ref | None)
LOGS: Shape[list[Log] | None] = Shape(list[Log] | None)
RECEIPT: Shape[Receipt | None] = Shape(Receipt | None)
RECEIPTS: Shape[list[Receipt] | None] = Shape(list[Receipt] | None)
PARITY_TRACES: Shape[list[ParityTrace] | None] = Shape(list[ParityTrace] | None)
FRAMES: Shape[list[FramedTransaction] | None] = Shape(list[FramedTransaction] | None)
TEXT: Shape[str | None] = Shape(str | None)
ONE_ENVELOPE = msgspec.json.Decoder(Envelope)
MANY_ENVELOPES = msgspec.json.Decoder(list[Envelope])
