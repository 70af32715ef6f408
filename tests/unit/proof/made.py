"""Makes one stored block that has everything: all transaction types, logs, withdrawals, traces.

Values come from a seeded generator, roots and hashes from the functions under test (which other
tests hold against real chains and reference libraries).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from unfork.proof import header, receipt, rlp, transaction
from unfork.proof.header import EMPTY_UNCLES, Header
from unfork.proof.keccak import keccak256
from unfork.proof.receipt import Log, Receipt, Withdrawal
from unfork.proof.rows import Rows
from unfork.proof.transaction import Authorization, Transaction
from unfork.proof.trie import ordered_root

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The columns that every table but blocks begins with.
PLACE = ("block_number", "block_hash", "block_timestamp")


def block(
    seed: int, *, parent: Rows | None = None, size: int = 6, later: int = 6, scope: str = "all"
) -> Rows:
    """A whole block in rows as the hot store gives them; `later` fields of later rules.

    The block has no excess of blobs, so that their price is known.
    """
    rng = random.Random(seed)
    transactions = [_transaction(rng, at % 5 if later == 6 else 0) for at in range(size)]
    receipts, used = [], 0
    for signed in transactions:
        used += rng.randrange(21000, 10**6)
        logs = tuple(_log(rng) for _ in range(rng.randrange(3)))
        status = None if later == 0 else rng.randrange(2)
        root = rng.randbytes(32) if status is None else None
        receipts.append(
            Receipt(type=signed.type, status=status, root=root, cumulative_gas_used=used, logs=logs)
        )
    withdrawals = [
        Withdrawal(
            index=rng.randrange(2**40),
            validator_index=rng.randrange(2**24),
            address=rng.randbytes(20),
            amount=rng.randrange(2**64),
        )
        for _ in range(rng.randrange(1, 4) if later >= 2 else 0)
    ]
    whole = Header(
        parent_hash=bytes(32) if parent is None else parent.block["hash"],
        sha3_uncles=EMPTY_UNCLES,
        miner=rng.randbytes(20),
        state_root=rng.randbytes(32),
        transactions_root=ordered_root([transaction.encode(part) for part in transactions]),
        receipts_root=ordered_root([receipt.encode(part) for part in receipts]),
        logs_bloom=receipt.bloom(log for part in receipts for log in part.logs),
        difficulty=rng.randrange(2**60),
        number=0 if parent is None else parent.block["number"] + 1,
        gas_limit=30_000_000,
        gas_used=used,
        timestamp=1_700_000_000 + 12 * seed,
        extra_data=rng.randbytes(rng.randrange(33)),
        mix_hash=rng.randbytes(32),
        nonce=rng.randbytes(8),
        base_fee_per_gas=rng.randrange(2**40),
        withdrawals_root=ordered_root([receipt.encode_withdrawal(part) for part in withdrawals]),
        blob_gas_used=rng.randrange(2**20),
        excess_blob_gas=0,
        parent_beacon_block_root=rng.randbytes(32),
        requests_hash=rng.randbytes(32),
    )
    whole = replace(whole, **dict.fromkeys(header.LATER[later:]))
    made = _rows(whole, transactions, receipts, withdrawals, scope)
    before = 0 if parent is None else parent.block["total_difficulty"]
    made.block["total_difficulty"] = before + whole.difficulty
    for row in made.transactions or ():
        row.update(_derived(rng, row, whole))
    if made.transactions is None:
        return made
    return replace(made, traces=[*_traces(rng, made)])


def _derived(rng: random.Random, row: dict[str, Any], whole: Header) -> dict[str, Any]:
    """What a node adds to a transaction."""
    sender, kind = rng.randbytes(20), row["transaction_type"]
    paid = row["gas_price"]
    if kind >= 2:
        paid = min(
            row["max_fee_per_gas"], row["max_priority_fee_per_gas"] + (whole.base_fee_per_gas or 0)
        )
    created = keccak256(rlp.encode((sender, row["nonce"])))[12:]
    return {
        "from_address": sender,
        "contract_address": created if row["to_address"] is None else None,
        "gas_price": paid,
        "effective_gas_price": paid,
        "blob_gas_used": 131_072 * len(row["blob_versioned_hashes"]) if kind == 3 else None,
        "blob_gas_price": 1 if kind == 3 else None,
    }


def _traces(rng: random.Random, made: Rows) -> Iterator[dict[str, Any]]:
    """A tree of calls for each transaction, then a reward."""
    at = 0
    for own in made.transactions or ():
        broken = rng.choice(["1", "1,0", "1,0,0"])
        for path, inner in (("", 3), ("0", 0), ("1", 2), ("1,0", 1), ("1,0,0", 0), ("1,1", 0)):
            has_failed = path == broken or (not path and own["status"] == 0)
            around = not own["status"] == 0 and not f"{path},".startswith(f"{broken},")
            yield {
                **_call(rng, own, path),
                "trace_index": at,
                "trace_address": path,
                "subtraces": inner + (path == "1,1"),
                "error": "Reverted" if has_failed else None,
                "status": int(around),
            }
            at += 1
        yield {
            **_call(rng, own, "1,1,0"),
            "trace_index": at,
            "trace_address": "1,1,0",
            "subtraces": 0,
            "error": None,
            "trace_type": "suicide",
            "call_type": None,
            "gas": None,
            "gas_used": None,
            "input": None,
            "output": None,
            "status": int(own["status"] != 0 and broken != "1"),
        }
        at += 1
        yield {
            **_call(rng, own, "2"),
            "trace_index": at,
            "trace_address": "2",
            "subtraces": 0,
            "error": None,
            "trace_type": "create",
            "call_type": None,
            "status": int(own["status"] != 0),
        }
        at += 1
    if made.transactions:
        yield {
            **{name: made.transactions[0][name] for name in PLACE},
            "transaction_hash": None,
            "transaction_index": None,
            "trace_index": at,
            "trace_address": "",
            "trace_type": "reward",
            "call_type": None,
            "reward_type": "block",
            "from_address": None,
            "to_address": rng.randbytes(20),
            "value": rng.randrange(2**60),
            "gas": None,
            "gas_used": None,
            "input": None,
            "output": None,
            "subtraces": 0,
            "error": None,
            "status": 1,
        }


def _call(rng: random.Random, own: Any, path: str) -> dict[str, Any]:
    is_creation = not path and own["to_address"] is None
    to = own["contract_address"] if is_creation else own["to_address"]
    return {
        **{name: own[name] for name in (*PLACE, "transaction_index")},
        "transaction_hash": own["hash"],
        "trace_type": "create" if is_creation else "call",
        "call_type": None if is_creation else "staticcall" if path else "call",
        "reward_type": None,
        "from_address": rng.randbytes(20) if path else own["from_address"],
        "to_address": rng.randbytes(20) if path else to,
        "value": rng.randrange(2**80) if path else own["value"],
        "gas": rng.randrange(10**7),
        "gas_used": rng.randrange(10**7),
        "input": rng.randbytes(36) if path else own["input"],
        "output": rng.randbytes(32),
    }


def _size(whole: Header, transactions: list[Transaction], withdrawals: list[Withdrawal]) -> int:
    """Bytes of the block, encoded whole."""
    encoded = [transaction.encode(part) for part in transactions]
    parts = [
        header.encode(whole),
        rlp.wrap(
            b"".join(
                rlp.encode(text) if part.type else text
                for part, text in zip(transactions, encoded, strict=True)
            )
        ),
        rlp.encode([]),
    ]
    if whole.withdrawals_root is not None:
        parts.append(rlp.wrap(b"".join(map(receipt.encode_withdrawal, withdrawals))))
    return len(rlp.wrap(b"".join(parts)))


def _rows(
    whole: Header,
    transactions: list[Transaction],
    receipts: list[Receipt],
    withdrawals: list[Withdrawal],
    scope: str,
) -> Rows:
    row: dict[str, Any] = {field.name: getattr(whole, field.name) for field in fields(whole)}
    row["timestamp"] = EPOCH + timedelta(seconds=whole.timestamp)
    row["hash"] = header.hash(whole)
    row["transaction_count"] = len(transactions)
    row["size"] = _size(whole, transactions, withdrawals)
    place = {
        "block_number": whole.number,
        "block_hash": row["hash"],
        "block_timestamp": row["timestamp"],
    }
    parts, logs, before = [], [], 0
    for at, (signed, outcome) in enumerate(zip(transactions, receipts, strict=True)):
        hash = transaction.hash(signed)
        parts.append({**place, "transaction_index": at, **_stored(signed, hash, outcome, before)})
        before = outcome.cumulative_gas_used
        for log in outcome.logs:
            named = {"transaction_hash": hash, "transaction_index": at, "log_index": len(logs)}
            topics = {f"topic{at}": topic for at, topic in enumerate(log.topics)}
            logs.append({**place, **named, "address": log.address, "data": log.data, **topics})
    stored = [
        {**place, "withdrawal_index": at, **{f.name: getattr(part, f.name) for f in fields(part)}}
        for at, part in enumerate(withdrawals)
    ]
    if scope == "logs":
        return Rows(block=row, transactions=None, logs=logs, withdrawals=None)
    return Rows(block=row, transactions=parts, logs=logs, withdrawals=stored)


def _stored(signed: Transaction, hash: bytes, outcome: Receipt, before: int) -> dict[str, Any]:
    return {
        "hash": hash,
        "transaction_type": signed.type,
        "nonce": signed.nonce,
        "to_address": signed.to,
        "value": signed.value,
        "gas": signed.gas,
        "gas_price": signed.gas_price,
        "max_fee_per_gas": signed.max_fee_per_gas,
        "max_priority_fee_per_gas": signed.max_priority_fee_per_gas,
        "max_fee_per_blob_gas": signed.max_fee_per_blob_gas,
        "blob_versioned_hashes": list(signed.blob_versioned_hashes) or None,
        "access_list": None
        if signed.type == 0
        else [
            {"address": _hex(address), "storageKeys": [_hex(key) for key in keys]}
            for address, keys in signed.access_list
        ],
        "authorization_list": [
            {
                "chainId": hex(part.chain_id),
                "address": _hex(part.address),
                "nonce": hex(part.nonce),
                "yParity": hex(part.y_parity),
                "r": hex(part.r),
                "s": hex(part.s),
            }
            for part in signed.authorization_list
        ]
        or None,
        "chain_id": signed.chain_id,
        "v": signed.v,
        "r": signed.r,
        "s": signed.s,
        "input": signed.input,
        "status": outcome.status,
        "root": outcome.root,
        "gas_used": outcome.cumulative_gas_used - before,
        "cumulative_gas_used": outcome.cumulative_gas_used,
    }


def _transaction(rng: random.Random, kind: int) -> Transaction:
    dynamic = kind >= 2
    chain_id = rng.randrange(1, 2**20)
    return Transaction(
        type=kind,
        chain_id=chain_id,
        nonce=rng.randrange(2**20),
        gas_price=None if dynamic else rng.randrange(2**40),
        max_priority_fee_per_gas=rng.randrange(2**40) if dynamic else None,
        max_fee_per_gas=rng.randrange(2**40) if dynamic else None,
        gas=rng.randrange(21000, 10**7),
        to=None if kind < 3 and rng.random() < 0.3 else rng.randbytes(20),
        value=rng.choice([0, 1, 2**256 - 1, rng.randrange(2**80)]),
        input=rng.randbytes(rng.choice([0, 4, 36, 300])),
        access_list=tuple((rng.randbytes(20), (rng.randbytes(32),)) for _ in range(2))
        if kind
        else (),
        max_fee_per_blob_gas=rng.randrange(2**40) if kind == 3 else None,
        blob_versioned_hashes=(rng.randbytes(32), rng.randbytes(32)) if kind == 3 else (),
        authorization_list=tuple(
            Authorization(
                chain_id=chain_id,
                address=rng.randbytes(20),
                nonce=rng.randrange(9),
                y_parity=rng.randrange(2),
                r=rng.randrange(2**256),
                s=rng.randrange(2**255),
            )
            for _ in range(2)
        )
        if kind == 4
        else (),
        v=rng.randrange(2) + (0 if kind else 35 + 2 * chain_id),
        r=rng.randrange(2**256),
        s=rng.randrange(2**255),
    )


def _log(rng: random.Random) -> Log:
    topics = tuple(rng.randbytes(32) for _ in range(rng.randrange(5)))
    return Log(
        address=rng.randbytes(20), topics=topics, data=rng.randbytes(rng.choice([0, 32, 96]))
    )


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
