"""Shows that devnet blocks hold everything a chain may hold, and that proven ones can be proven.

Method: one chain of a few hundred dense blocks is read through once per claim, one more with the
awkward values mixed in. Proofs are made from the expected rows, as they would be from stored ones.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from unfork.devnet import abi, contracts
from unfork.devnet.block import Block, Call, Executed
from unfork.devnet.envelope import BLOB_GAS, BLOBS_MAX
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.proof import header as proof_header
from unfork.proof import rlp
from unfork.proof import rows as proof_rows
from unfork.proof import transaction as proof_transaction
from unfork.proof.columns import UNCOMMITTED
from unfork.proof.finding import Check, Outcome
from unfork.proof.receipt import Log
from unfork.testing import oracle

U256_MAX = 2**256 - 1
INLINE_MAX = 8_192


@pytest.fixture(scope="module")
def plain() -> tuple[Block, ...]:
    return _chain(Knobs(seed=1, density=8), 300)


@pytest.fixture(scope="module")
def hostile() -> tuple[Block, ...]:
    return _chain(Knobs(seed=1, density=8, hostile=True), 300)


def test_transactions_of_every_type_occur_with_the_fields_of_their_type(
    plain: tuple[Block, ...],
) -> None:
    seen = Counter()
    for executed in _executed(plain):
        own = executed.transaction
        seen[own.type] += 1
        assert (own.chain_id is None) == (own.type == 0)
        assert (own.gas_price is None) == (own.type >= 2)
        assert (own.max_fee_per_gas is None) == (own.max_priority_fee_per_gas is None)
        assert (own.max_fee_per_gas is None) == (own.type < 2)
        assert not own.access_list or own.type >= 1
        assert bool(own.blob_versioned_hashes) == (own.type == 3)
        assert (own.max_fee_per_blob_gas is not None) == (own.type == 3)
        assert bool(own.authorization_list) == (own.type == 4)
        assert own.to is not None or own.type <= 2
        assert own.v in ((0, 1) if own.type else (27, 28, 2709, 2710))
    assert set(seen) == {0, 1, 2, 3, 4}
    assert any(e.transaction.access_list for e in _executed(plain))


def test_every_event_of_the_token_standards_occurs(plain: tuple[Block, ...]) -> None:
    shapes = {(log.topics[0], len(log.topics)) for log in _logs(plain) if log.topics}
    assert shapes >= {
        (abi.TRANSFER, 3),
        (abi.TRANSFER, 4),
        (abi.APPROVAL, 3),
        (abi.APPROVAL, 4),
        (abi.APPROVAL_FOR_ALL, 3),
        (abi.TRANSFER_SINGLE, 4),
        (abi.TRANSFER_BATCH, 4),
    }
    assert abi.TRANSFER.hex().startswith("ddf252ad")


def test_logs_have_none_to_four_topics(plain: tuple[Block, ...]) -> None:
    assert {len(log.topics) for log in _logs(plain)} == {0, 1, 2, 3, 4}


def test_calls_of_every_kind_occur_in_well_formed_trees(plain: tuple[Block, ...]) -> None:
    kinds = set()
    for executed in _executed(plain):
        calls = executed.calls
        paths = [call.path for call in calls]
        assert paths[0] == () and paths == sorted(paths)
        for call in calls:
            kinds.add((call.type, call.call_type, call.error is None))
            children = [p for p in paths if len(p) == len(call.path) + 1 and p[:-1] == call.path]
            assert [path[-1] for path in children] == list(range(call.subtraces))
            assert (call.to is None) == (call.type == "create" and call.error is not None)
    assert kinds >= {
        ("call", "call", True),
        ("call", "call", False),
        ("call", "delegatecall", True),
        ("call", "staticcall", True),
        ("create", None, True),
        ("create", None, False),
        ("suicide", None, True),
    }


def test_the_outermost_call_is_the_transaction(plain: tuple[Block, ...]) -> None:
    for executed in _executed(plain):
        own, outermost = executed.transaction, executed.calls[0]
        assert outermost.sender == executed.sender
        assert (outermost.value, outermost.input) == (own.value, own.input)
        assert outermost.to == (own.to if own.to is not None else executed.contract_address)
        assert (outermost.error is None) == (executed.status == 1)


def test_failed_transactions_occur_and_leave_nothing(plain: tuple[Block, ...]) -> None:
    failed = [executed for executed in _executed(plain) if executed.status == 0]
    assert failed
    assert all(not e.logs and e.contract_address is None and e.gas_used for e in failed)


def test_a_transaction_may_succeed_though_a_call_within_it_failed(
    plain: tuple[Block, ...],
) -> None:
    def survived(executed: Executed) -> bool:
        return executed.status == 1 and any(call.error is not None for call in executed.calls)

    failing: list[Call] = [
        call for e in _executed(plain) if survived(e) for call in e.calls if call.error
    ]
    assert any(call.subtraces for call in failing) and any(not call.subtraces for call in failing)


def test_a_created_contract_has_the_address_of_its_creator_and_nonce(
    plain: tuple[Block, ...],
) -> None:
    created = [e for e in _executed(plain) if e.contract_address is not None]
    assert created
    for executed in created:
        assert executed.transaction.to is None
        assert executed.contract_address == contracts.address_of(
            executed.sender, executed.transaction.nonce
        )


def test_the_address_of_a_creation_is_the_one_that_ethereum_gives() -> None:
    # The first two contracts that this account of the main chain created.
    sender = bytes.fromhex("6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0")
    assert contracts.address_of(sender, 0).hex() == "cd234a471b72ba2f1ccf0a70fcaba648a5eecd8d"
    assert contracts.address_of(sender, 1).hex() == "343c43a37d37dff08ae8c4a11544c718abb4fcf8"


def test_created_contracts_are_called_later_on(plain: tuple[Block, ...]) -> None:
    created = {e.contract_address for e in _executed(plain)} - {None}
    called = {e.transaction.to for e in _executed(plain)}
    assert created & called


def test_gas_and_prices_add_up(plain: tuple[Block, ...]) -> None:
    for block in plain:
        gas = 0
        for executed in block.transactions:
            gas += executed.gas_used
            assert executed.cumulative_gas_used == gas
            assert executed.gas_used <= executed.transaction.gas
            base_fee = block.header.base_fee_per_gas
            assert base_fee is not None and executed.effective_gas_price >= base_fee
        assert block.header.gas_used == gas <= block.header.gas_limit


def test_blobs_stay_within_the_target_of_a_block(plain: tuple[Block, ...]) -> None:
    for block in plain:
        blobs = sum(len(e.transaction.blob_versioned_hashes) for e in block.transactions)
        assert blobs <= BLOBS_MAX
        assert block.header.blob_gas_used == BLOB_GAS * blobs
        assert block.header.excess_blob_gas == 0


def test_withdrawals_are_numbered_without_gaps(plain: tuple[Block, ...]) -> None:
    numbers = [withdrawal.index for block in plain for withdrawal in block.withdrawals]
    assert len(numbers) > 50 and numbers == list(range(len(numbers)))


def test_a_block_holds_as_many_transactions_as_the_knob_says_on_average(
    plain: tuple[Block, ...],
) -> None:
    assert 7 < len(_executed(plain)) / len(plain) < 9
    assert not _executed(_chain(Knobs(seed=1, density=0), 50))


def test_hashes_of_transactions_and_blocks_are_unique_though_not_proven(
    plain: tuple[Block, ...],
) -> None:
    hashes = [e.hash for e in _executed(plain)] + [block.hash for block in plain]
    assert len(set(hashes)) == len(hashes)


def test_without_the_knob_nothing_awkward_occurs(plain: tuple[Block, ...]) -> None:
    for block in plain:
        indexes = [index for e in block.transactions for index in e.log_indexes]
        assert indexes == list(range(len(indexes)))
    assert all(len(e.transaction.input) < INLINE_MAX for e in _executed(plain))
    assert all(len(log.data) < INLINE_MAX for log in _logs(plain))
    assert all(e.transaction.value < 2**128 for e in _executed(plain))


def test_hostile_amounts_reach_the_largest_number(hostile: tuple[Block, ...]) -> None:
    most = abi.word(U256_MAX)
    transferred = [log for log in _logs(hostile) if log.topics[:1] == (abi.TRANSFER,)]
    assert any(len(log.topics) == 3 and log.data == most for log in transferred)
    assert any(len(log.topics) == 4 and log.topics[3] == most for log in transferred)
    batches = [log for log in _logs(hostile) if log.topics[:1] == (abi.TRANSFER_BATCH,)]
    assert any(most in log.data for log in batches)
    assert any(e.transaction.value == U256_MAX and e.status == 0 for e in _executed(hostile))
    assert any(most in e.transaction.input for e in _executed(hostile))


def test_hostile_strings_hold_nul_bytes(hostile: tuple[Block, ...]) -> None:
    notes = [log for log in _logs(hostile) if log.topics[:1] == (abi.NOTE,)]
    assert any(b"a\0b\0" in log.data for log in notes)
    assert any(b"\0with\0" in e.transaction.input for e in _executed(hostile))


def test_hostile_log_indexes_ascend_with_gaps_and_beyond_32_bits(
    hostile: tuple[Block, ...],
) -> None:
    gaps = huge = 0
    for block in hostile:
        indexes = [index for e in block.transactions for index in e.log_indexes]
        assert indexes == sorted(set(indexes))
        gaps += any(after - before > 1 for before, after in itertools.pairwise(indexes))
        huge += any(index > 2**32 for index in indexes)
        assert all(index < 2**62 for index in indexes)
    assert gaps > 10 and huge > 5


def test_hostile_payloads_stand_on_both_sides_of_the_inline_limit_and_come_again(
    hostile: tuple[Block, ...],
) -> None:
    inputs = Counter(e.transaction.input for e in _executed(hostile))
    sizes = {len(payload) for payload in inputs}
    assert {INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1} <= sizes and max(sizes) > 20_000
    assert any(len(payload) > INLINE_MAX and count > 1 for payload, count in inputs.items())
    assert any(len(log.data) > INLINE_MAX for log in _logs(hostile))
    assert any(len(call.output) > INLINE_MAX for e in _executed(hostile) for call in e.calls)


def test_hostile_contracts_have_empty_symbols_and_names_with_nul() -> None:
    tree = Tree(Knobs(seed=1, density=8, hostile=True))
    tree.extend(300)
    found = [
        tree.metadata(e.contract_address, tree.head.hash)
        for e in _executed(_path(tree))
        if e.contract_address is not None
    ]
    known = [metadata for metadata in found if metadata is not None]
    assert len(known) == len(found)
    assert any(metadata.symbol == b"" for metadata in known)
    assert any(b"\0" in metadata.name for metadata in known)
    assert any(metadata.decimals == 255 for metadata in known)
    assert all((metadata.decimals is None) == (metadata.standard != "erc20") for metadata in known)


def test_empty_blocks_come_in_hundreds_where_the_knob_asks_for_them() -> None:
    blocks = _chain(Knobs(seed=1, density=4, empty_stretch=150), 700)
    stretch = blocks[450:600]
    assert not any(block.transactions or block.withdrawals for block in stretch)
    assert sum(bool(block.transactions) for block in blocks[400:450] + blocks[600:650]) > 60


@pytest.mark.parametrize("is_hostile", [False, True])
def test_proven_blocks_can_be_proven_from_their_rows_also_after_forks(is_hostile: bool) -> None:
    tree = Tree(Knobs(seed=5, density=6, proven=True, hostile=is_hostile, fork_rate=0.3))
    blocks = []
    for _ in range(60):
        blocks += tree.advance().added
    assert {e.transaction.type for e in _executed(blocks)} == {0, 1, 2, 3, 4}
    for block in blocks:
        expected = oracle.rows(block)
        stored = proof_rows.Rows(
            block=expected["blocks"][0],
            transactions=expected["transactions"],
            logs=expected["logs"],
            withdrawals=expected["withdrawals"],
            traces=expected["traces"],
        )
        for finding in proof_rows.findings(stored):
            assert finding.outcome is not Outcome.FAILED, finding
            # No root contains an index, so awkward ones cannot be proven, only believed.
            if finding.check is Check.LOG_INDEXES and is_hostile:
                continue
            # A creation that failed names no contract, and no block commits to the rest.
            if finding.check not in {Check.CREATED_CONTRACTS, *UNCOMMITTED}:
                assert finding.outcome is Outcome.PROVEN, finding


@pytest.mark.parametrize("style", Style)
def test_every_style_of_fork_makes_provable_blocks(style: Style) -> None:
    tree = Tree(Knobs(seed=6, density=6, proven=True))
    tree.extend(8)
    for block in tree.fork(depth=4, length=5, style=style).added:
        assert proof_header.hash(block.header) == block.hash
        assert all(proof_transaction.hash(e.transaction) == e.hash for e in block.transactions)


def test_the_size_of_a_proven_block_is_that_of_its_encoding() -> None:
    for block in _chain(Knobs(seed=7, density=5, proven=True, hostile=True), 40):
        encoded = [
            (e.transaction.type, proof_transaction.encode(e.transaction))
            for e in block.transactions
        ]
        transactions = b"".join(rlp.encode(text) if type else text for type, text in encoded)
        withdrawals = rlp.encode(
            [(w.index, w.validator_index, w.address, w.amount) for w in block.withdrawals]
        )
        whole = rlp.wrap(
            proof_header.encode(block.header)
            + rlp.wrap(transactions)
            + rlp.encode(())
            + withdrawals
        )
        assert block.size == len(whole)


def _chain(knobs: Knobs, blocks: int) -> tuple[Block, ...]:
    tree = Tree(knobs)
    tree.extend(blocks)
    return _path(tree)


def _path(tree: Tree) -> tuple[Block, ...]:
    blocks = (tree.at(number) for number in range(tree.head.number + 1))
    return tuple(block for block in blocks if block is not None)


def _executed(blocks: tuple[Block, ...] | list[Block]) -> list[Executed]:
    return [executed for block in blocks for executed in block.transactions]


def _logs(blocks: tuple[Block, ...]) -> list[Log]:
    return [log for executed in _executed(blocks) for log in executed.logs]
