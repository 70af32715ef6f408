"""A chain drawn by hand: blocks with exactly the content a test is about."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from unfork.devnet.block import Block, Call, Executed
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Metadata
from unfork.proof import receipt
from unfork.proof.header import Header
from unfork.proof.receipt import Log, Withdrawal
from unfork.proof.transaction import Authorization, Transaction

ALICE, BOB, TOKEN, MINER = (bytes([n]) * 20 for n in (0xA1, 0xB0, 0x70, 0x31))
TRANSFER = bytes([0xDD]) * 32


def topic(number: int) -> bytes:
    return number.to_bytes(32, "big")


def transaction(type: int = 2, **changes: Any) -> Transaction:
    """A transaction of a type with every field that its type has."""
    fields: dict[str, Any] = {
        "type": type,
        "chain_id": None if type == 0 else 1337,
        "nonce": 7,
        "gas_price": 100 if type < 2 else None,
        "gas": 50_000,
        "to": BOB,
        "value": 5,
        "input": b"\x01\x02",
        "v": 2 * 1337 + 35 if type == 0 else 1,
        "r": 0x0123,
        "s": 0xFF,
    }
    if type >= 1:
        fields["access_list"] = ((TOKEN, (topic(1), topic(2))),)
    if type >= 2:
        fields |= {"max_priority_fee_per_gas": 2, "max_fee_per_gas": 200}
    if type == 3:
        fields |= {"max_fee_per_blob_gas": 9, "blob_versioned_hashes": (topic(3), topic(4))}
    if type == 4:
        fields["authorization_list"] = (
            Authorization(chain_id=1337, address=TOKEN, nonce=0, y_parity=1, r=10, s=11),
        )
    return Transaction(**(fields | changes))


def executed(own: Transaction, *logs: Log, indexes: tuple[int, ...] = (), **changes: Any) -> Any:
    """A transaction that took effect and left these logs."""
    outer = Call(
        path=(),
        type="call",
        call_type="call",
        sender=ALICE,
        to=own.to,
        value=own.value,
        gas=own.gas,
        gas_used=21_000,
        input=own.input,
        output=b"",
        subtraces=0,
        error=None,
    )
    value = Executed(
        transaction=own,
        hash=hashlib.sha256(repr(own).encode()).digest(),
        sender=ALICE,
        status=1,
        gas_used=21_000,
        cumulative_gas_used=21_000,
        effective_gas_price=111 if own.gas_price is None else own.gas_price,
        contract_address=None,
        logs=logs,
        log_indexes=indexes or tuple(range(len(logs))),
        calls=(outer,),
    )
    return replace(value, **changes)


def block(parent: Block | None, *content: Executed, name: str = "", **changes: Any) -> Block:
    """A block on top of another."""
    number = 0 if parent is None else parent.number + 1
    logs = [log for each in content for log in each.logs]
    header = Header(
        parent_hash=bytes(32) if parent is None else parent.hash,
        sha3_uncles=topic(1001),
        miner=MINER,
        state_root=topic(1002),
        transactions_root=topic(1003),
        receipts_root=topic(1004),
        logs_bloom=receipt.bloom(logs),
        difficulty=0,
        number=number,
        gas_limit=30_000_000,
        gas_used=21_000 * len(content),
        timestamp=1_700_000_000 + 12 * number,
        extra_data=name.encode(),
        mix_hash=topic(1005),
        nonce=bytes(8),
        base_fee_per_gas=7,
        withdrawals_root=topic(1006),
        blob_gas_used=0,
        excess_blob_gas=0,
        parent_beacon_block_root=topic(1007),
        requests_hash=topic(1008),
    )
    header = replace(header, **changes)
    return Block(
        header=header,
        hash=hashlib.sha256(repr((header, [each.hash for each in content])).encode()).digest(),
        size=1234,
        transactions=content,
        withdrawals=(Withdrawal(index=0, validator_index=1, address=ALICE, amount=2),),
    )


class HandmadeChain:
    """A chain whose path a test sets by hand."""

    def __init__(self, *path: Block) -> None:
        self.knobs = Knobs()
        #: What contracts say of themselves, wherever asked.
        self.contracts: dict[bytes, Metadata] = {}
        self.safe: Block | None = None
        self.finalized: Block | None = None
        self._known: dict[bytes, Block] = {}
        self.show(*path)

    def show(self, *path: Block) -> None:
        """Makes a path canonical; what was there before stays known."""
        self.path = path
        self._known.update({each.hash: each for each in path})

    @property
    def head(self) -> Block:
        return self.path[-1]

    def at(self, number: int) -> Block | None:
        return self.path[number] if 0 <= number < len(self.path) else None

    def by_hash(self, hash: bytes) -> Block | None:
        return self._known.get(hash)

    def is_canonical(self, hash: bytes) -> bool:
        known = self._known.get(hash)
        return known is not None and self.at(known.number) is known

    def metadata(self, address: bytes, block_hash: bytes) -> Metadata | None:
        assert block_hash in self._known
        return self.contracts.get(address)
