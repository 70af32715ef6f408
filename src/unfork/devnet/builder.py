"""Owns the making of a block: from the state before it, a salt and orders to the block itself.

Building is pure: the same state, salt and orders give the same bytes in any process. A proven block
has the hashes that consensus asks for; an unproven one has hashes drawn from its dice, so that
simulations are not about hashing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from unfork.devnet import acts, calls, cast, commitments, contracts, envelope, hostile, pools
from unfork.devnet.acts import Act, Scene
from unfork.devnet.block import Block, Call, Executed
from unfork.devnet.cast import ACCOUNTS, DEPLOYER
from unfork.devnet.commitments import Commitments
from unfork.devnet.dice import Dice
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Create, Keep, Order, Send
from unfork.devnet.state import State
from unfork.proof import header as proof_header
from unfork.proof import transaction as proof_transaction
from unfork.proof.header import EMPTY_UNCLES, Header
from unfork.proof.keccak import keccak256
from unfork.proof.receipt import Log, Withdrawal
from unfork.proof.transaction import Transaction

#: Seconds since 1970 at block 0.
GENESIS_TIMESTAMP = 1_735_689_600
GAS_LIMIT = 60_000_000
#: Contracts created of late that transactions still turn to.
RECENT = 8

#: What a block without execution requests commits to.
_NO_REQUESTS = hashlib.sha256(b"").digest()
_NO_NONCE = bytes(8)
#: Gas that every transaction takes before it does anything.
_INTRINSIC_GAS = 21_000
#: Bytes that stand in for the size of a header where nothing is encoded.
_HEADER_SIZE = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A block and the state after it."""

    block: Block
    state: State


def genesis(knobs: Knobs, key: bytes) -> Built:
    """Block 0: no content, but the first contracts stand."""
    before = State(
        number=-1,
        hash=bytes(32),
        timestamp=GENESIS_TIMESTAMP - knobs.block_time_s,
        nonces=(0,) * ACCOUNTS,
        contracts=cast.of(knobs.seed, knobs.hostile).contracts,
        created=(),
        withdrawal_index=0,
    )
    return build(knobs, key, before, b"genesis", ())


def build(
    knobs: Knobs, key: bytes, before: State, salt: bytes, orders: Iterable[Order] | None
) -> Built:
    """The block after a state; without orders it has as much content as the knobs ask for.

    `key` is the knobs' content key, passed along because it is the same for every block.
    """
    making = _Making(knobs, before, Dice(key, before.hash, salt))
    if orders is None:
        making.fill()
    else:
        for order in orders:
            making.obey(order)
    return making.finish()


class _Making:
    """A block in the making."""

    def __init__(self, knobs: Knobs, before: State, dice: Dice) -> None:
        self.knobs = knobs
        self.before = before
        self.dice = dice
        self.number = before.number + 1
        self.scene = Scene(
            dice=dice,
            cast=cast.of(knobs.seed, knobs.hostile),
            contracts=before.contracts,
            is_hostile=knobs.hostile,
        )
        self.base_fee = envelope.BASE_FEE + dice.below(envelope.BASE_FEE)
        self.log_indexes = hostile.log_indexes(dice, hostile=knobs.hostile)
        self.nonces = list(before.nonces)
        self.executed: list[Executed] = []
        self.gas_used = 0
        self.blobs = 0

    def fill(self) -> None:
        """Makes up as many transactions as the knobs ask for."""
        dice, knobs = self.dice, self.knobs
        if knobs.is_empty(self.number):
            return
        count = dice.below(2 * knobs.density + 1)
        if knobs.hostile and dice.one_in(100):
            count *= 8
        for _ in range(count):
            is_creation = dice.one_in(12)
            self.obey(Create() if is_creation else Send(1 + dice.below(ACCOUNTS - 1)))

    def obey(self, order: Order) -> None:
        """Includes what an order asks for."""
        match order:
            case Send(position):
                sender = self.scene.cast.accounts[position]
                self._send(position, self._act(sender))
            case Create(avoid):
                nonce = self.nonces[DEPLOYER]
                self._send(DEPLOYER, acts.create(self.scene, nonce, avoid=avoid))
            case Keep(executed, fails):
                position = self.scene.cast.positions[executed.sender]
                if executed.transaction.nonce == self.nonces[position]:
                    self._keep(position, executed, fails)

    def _act(self, sender: bytes) -> Act:
        """Something that an account does, with pools where the knobs ask for them."""
        if self.knobs.pools and self.dice.one_in(2):
            return pools.draw(self.scene, sender, self.knobs.pools)
        return acts.draw(self.scene, sender)

    def finish(self) -> Built:
        """The block with everything included so far, and the state after it."""
        withdrawals = self._withdrawals()
        if self.knobs.proven:
            committed = commitments.real(self.executed, withdrawals)
            header = self._header(committed)
            encoded = proof_header.encode(header)
            hash = keccak256(encoded)
            size = commitments.whole_size(len(encoded) + committed.body_size)
        else:
            committed = commitments.stand_in(self.executed)
            header = self._header(committed)
            hash = self.dice.data(32)
            size = _HEADER_SIZE + committed.body_size
        block = Block(
            header=header,
            hash=hash,
            size=size,
            transactions=tuple(self.executed),
            withdrawals=withdrawals,
        )
        return Built(block=block, state=self._state_after(block))

    def _send(self, position: int, act: Act) -> None:
        """Includes a new transaction."""
        frame = act.frame
        work = 16 * len(act.input) + 9_000 * (len(act.logs) + len(frame.children))
        spare = self.dice.below(50_000)
        transaction = envelope.seal(
            self.dice,
            act,
            nonce=self.nonces[position],
            gas=_INTRINSIC_GAS + work + spare,
            chain_id=self.knobs.chain_id,
            blobs_left=envelope.BLOBS_MAX - self.blobs,
        )
        self._include(
            position,
            transaction,
            hash=(proof_transaction.hash(transaction) if self.knobs.proven else self.dice.data(32)),
            status=1 if frame.error is None else 0,
            gas_used=_INTRINSIC_GAS + work,
            contract_address=act.contract_address,
            logs=act.logs,
            calls=calls.flatten(frame, gas=work + spare, gas_used=work),
        )

    def _keep(self, position: int, executed: Executed, fails: bool) -> None:
        """Includes a transaction that another block had, with the same outcome or as a failure."""
        self._include(
            position,
            executed.transaction,
            hash=executed.hash,
            status=0 if fails else executed.status,
            gas_used=executed.gas_used,
            contract_address=None if fails else executed.contract_address,
            logs=() if fails else executed.logs,
            calls=calls.undone(executed.calls) if fails else executed.calls,
        )

    def _include(
        self,
        position: int,
        transaction: Transaction,
        *,
        hash: bytes,
        status: int,
        gas_used: int,
        contract_address: bytes | None,
        logs: tuple[Log, ...],
        calls: tuple[Call, ...],
    ) -> None:
        self.nonces[position] += 1
        self.gas_used += gas_used
        self.blobs += len(transaction.blob_versioned_hashes)
        self.executed.append(
            Executed(
                transaction=transaction,
                hash=hash,
                sender=self.scene.cast.accounts[position],
                status=status,
                gas_used=gas_used,
                cumulative_gas_used=self.gas_used,
                effective_gas_price=envelope.price_paid(transaction, self.base_fee),
                contract_address=contract_address,
                logs=logs,
                log_indexes=tuple(islice(self.log_indexes, len(logs))),
                calls=calls,
            )
        )

    def _withdrawals(self) -> tuple[Withdrawal, ...]:
        dice = self.dice
        if self.number == 0 or self.knobs.is_empty(self.number):
            return ()
        first = self.before.withdrawal_index
        return tuple(
            Withdrawal(
                index=first + offset,
                validator_index=dice.below(1_000_000),
                address=dice.pick(self.scene.cast.accounts),
                amount=dice.below(2**32),
            )
            for offset in range(max(0, dice.below(5) - 2))
        )

    def _header(self, committed: Commitments) -> Header:
        dice = self.dice
        missed_slots = dice.below(3) if self.number > 0 and dice.one_in(16) else 0
        return Header(
            parent_hash=self.before.hash,
            sha3_uncles=EMPTY_UNCLES,
            miner=dice.pick(self.scene.cast.accounts),
            state_root=dice.data(32),
            transactions_root=committed.transactions_root,
            receipts_root=committed.receipts_root,
            logs_bloom=committed.logs_bloom,
            difficulty=0,
            number=self.number,
            gas_limit=GAS_LIMIT,
            gas_used=self.gas_used,
            timestamp=self.before.timestamp + self.knobs.block_time_s * (1 + missed_slots),
            extra_data=b"devnet\0" if self.knobs.hostile else b"devnet",
            mix_hash=dice.data(32),
            nonce=_NO_NONCE,
            base_fee_per_gas=self.base_fee,
            withdrawals_root=committed.withdrawals_root,
            blob_gas_used=envelope.BLOB_GAS * self.blobs,
            excess_blob_gas=0,
            parent_beacon_block_root=dice.data(32),
            requests_hash=_NO_REQUESTS,
        )

    def _state_after(self, block: Block) -> State:
        created = tuple(
            contracts.created_by(each.transaction.input, each.contract_address)
            for each in self.executed
            if each.contract_address is not None
        )
        standing = self.before.contracts
        if created:
            first = len(self.scene.cast.contracts)
            standing = standing[:first] + (standing[first:] + created)[-RECENT:]
        return State(
            number=block.number,
            hash=block.hash,
            timestamp=block.header.timestamp,
            nonces=tuple(self.nonces) if self.executed else self.before.nonces,
            contracts=standing,
            created=created,
            withdrawal_index=self.before.withdrawal_index + len(block.withdrawals),
        )
