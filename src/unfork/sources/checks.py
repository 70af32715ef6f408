"""Owns what an answer must fulfil before it is believed.

Nodes lie without meaning to: a load balancer mixes replicas on different forks, receipts of another
block come back, a list is cut, an entry comes twice. Every check here compares what the node sent
with what was asked and with itself; together they tie each transaction, receipt, log and trace to
one block hash. They work on the hex text as it came, which is fast and exact.

Invariants: everything raised is Unbelievable and names the block; nothing is changed, except that
exact duplicates in an answer about logs are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise, repeat

from unfork.errors import Unbelievable
from unfork.sources import answers

#: The texts of small positions, to compare a whole column of them at once.
_POSITIONS = [hex(position) for position in range(2048)]


def number_of(block: answers.Ref) -> int:
    """The block's number."""
    return quantity(block.number, block, "number")


def hash_of(block: answers.Ref) -> bytes:
    """The block's hash."""
    return _hash(block.hash, block, "hash")


def parent_of(block: answers.Ref) -> bytes:
    """The parent's hash."""
    return _hash(block.parent_hash, block, "parentHash")


def bloom_of(block: answers.Header) -> bytes | None:
    """A block's filter over the addresses and topics of its logs, where the node gives one."""
    text = block.logs_bloom
    if text is None:
        return None
    try:
        bloom = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        bloom = b""
    if len(bloom) != 256:
        raise _refused(block, f"logsBloom {text[:20]}... is no filter of 256 bytes")
    return bloom


def placed(block: answers.Ref, number: int, hash: str | None = None) -> None:
    """The block stands where it was asked for, and is the one that was asked for."""
    if number_of(block) != number:
        raise _refused(block, f"block {number} was asked for, block {block.number} came")
    hash_of(block)
    parent_of(block)
    if hash is not None and block.hash != hash:
        raise _refused(block, f"block {hash} was asked for, another one came")


def linked(blocks: Sequence[answers.Ref]) -> None:
    """Each block names the one before it as its parent."""
    for below, above in pairwise(blocks):
        if above.parent_hash != below.hash:
            raise _refused(above, f"its parent is not {below.hash}, the block below it")


def transactions(block: answers.Block) -> None:
    """Every transaction is of this block, once, in its place."""
    rows = block.transactions
    _in_place([row.transaction_index for row in rows], block, "a transaction")
    hashes = [row.hash for row in rows]
    if len(set(hashes)) != len(hashes):
        raise _refused(block, "a transaction comes twice")
    named = [row.block_hash for row in rows]
    if named.count(block.hash) != len(named) and any(
        name is not None and name != block.hash for name in named
    ):
        raise _refused(block, "a transaction names another block")


def receipts(block: answers.Block, receipts: Sequence[answers.Receipt]) -> None:
    """There is one receipt per transaction, in order, and all of it is of this block."""
    if len(receipts) != len(block.transactions):
        count = f"{len(receipts)} receipts for {len(block.transactions)} transactions"
        raise _refused(block, f"there are {count}")
    if [r.block_hash for r in receipts].count(block.hash) != len(receipts):
        raise _refused(block, "a receipt is of another block")
    hashes = [receipt.transaction_hash for receipt in receipts]
    if hashes != [t.hash for t in block.transactions]:
        raise _refused(block, "the receipts are of other transactions, or in another order")
    positions = [receipt.transaction_index for receipt in receipts]
    _in_place(positions, block, "a receipt")
    logs = list(chain.from_iterable([receipt.logs for receipt in receipts]))
    if not logs:
        return
    _of_block(block, logs)
    counts = [len(receipt.logs) for receipt in receipts]
    owners = list(chain.from_iterable(map(repeat, hashes, counts)))
    if [log.transaction_hash for log in logs] != owners:
        raise _refused(block, "a log names another transaction than the receipt it is in")
    places = list(chain.from_iterable(map(repeat, positions, counts)))
    if [log.transaction_index for log in logs] != places:
        for log, place in zip(logs, places, strict=True):
            if int(log.transaction_index, 16) != int(place, 16):
                raise _refused(block, "a log names another position than the receipt it is in")


def logs(
    block: answers.Header, hashes: Sequence[str] | None, logs: Sequence[answers.Log]
) -> list[answers.Log]:
    """The logs of one block that came without receipts, exact duplicates dropped, in order.

    `hashes` are the block's transactions, None where the node did not list them. Two logs with one
    index that differ are refused: one of them is wrong, and nothing says which.
    """
    _of_block(block, logs)
    by_index: dict[int, answers.Log] = {}
    for log in logs:
        index = quantity(log.log_index, block, "logIndex")
        known = by_index.setdefault(index, log)
        if known is not log and known != log:
            raise _refused(block, f"two different logs have the index {index}")
        place = quantity(log.transaction_index, block, "transactionIndex")
        if hashes is not None and (place >= len(hashes) or hashes[place] != log.transaction_hash):
            raise _refused(block, f"log {index} names a transaction that is not in its place")
    return [by_index[index] for index in sorted(by_index)]


def parity_traces(block: answers.Block, traces: Sequence[answers.ParityTrace]) -> None:
    """Every trace is of this block, and every transaction has one."""
    if [trace.block_hash for trace in traces].count(block.hash) != len(traces):
        raise _refused(block, "a trace is of another block")
    hashes = [transaction.hash for transaction in block.transactions]
    traced = set()
    last = 0
    for trace in traces:
        place = trace.transaction_position
        if place is None:
            continue
        if place >= len(hashes) or hashes[place] != trace.transaction_hash or place < last:
            raise _refused(block, "a trace names a transaction that is not in its place")
        traced.add(place)
        last = place
    if len(traced) != len(hashes):
        raise _refused(block, f"{len(traced)} of {len(hashes)} transactions have traces")


def frames(block: answers.Block, traced: Sequence[answers.FramedTransaction]) -> None:
    """Every transaction has its call tree, in order."""
    hashes = [transaction.hash for transaction in block.transactions]
    if len(traced) != len(hashes):
        raise _refused(block, f"there are {len(traced)} call trees for {len(hashes)} transactions")
    for tree, expected in zip(traced, hashes, strict=True):
        if tree.tx_hash is not None and tree.tx_hash != expected:
            raise _refused(block, "the call trees are of other transactions, or in another order")


def quantity(text: str, block: answers.Ref, field: str) -> int:
    """A number written as a hex quantity."""
    try:
        if not text.startswith("0x") or "_" in text:
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise _refused(block, f"{field} {text[:80]!r} is not a hex quantity") from None


def _of_block(block: answers.Ref, logs: Sequence[answers.ReceiptLog]) -> None:
    if [log.block_hash for log in logs].count(block.hash) != len(logs):
        raise _refused(block, "a log is of another block")
    if any(log.removed for log in logs):
        raise _refused(block, "a log is marked as removed")


def _in_place(positions: list[str], block: answers.Ref, what: str) -> None:
    """Positions run 0..n-1; compared as text first, since nodes write them without zeros."""
    count = len(positions)
    if count <= len(_POSITIONS) and positions == _POSITIONS[:count]:
        return
    for place, text in enumerate(positions):
        if quantity(text, block, "transactionIndex") != place:
            raise _refused(block, f"{what} with the position {text} stands at {place}")


def _hash(text: str, block: answers.Ref, field: str) -> bytes:
    try:
        if len(text) != 66 or not text.startswith("0x"):
            raise ValueError
        return bytes.fromhex(text[2:])
    except ValueError:
        raise _refused(block, f"{field} {text[:80]!r} is not a hash") from None


def _refused(block: answers.Ref, why: str) -> Unbelievable:
    try:
        number: int | None = int(block.number, 16)
    except ValueError:
        number = None
    shown = block.number[:20] if number is None else str(number)
    return Unbelievable(
        f"block {shown} ({block.hash[:80]}): {why}", block_number=number, block_hash=block.hash
    )
