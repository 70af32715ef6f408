"""Owns what the built-in datasets mean: a sentence for each of them and for each of their columns.

It is told in docs/datasets.md, which is written from here. What Spark says that the columns are is
compared with it by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unfork.datasets.dataset import Kind

INT, U256, SIGNED, BYTES = Kind.INT, Kind.U256, Kind.SIGNED, Kind.BYTES
TEXT, TIME, DATE, BOOL = Kind.TEXT, Kind.TIME, Kind.DATE, Kind.BOOL

Columns = Mapping[str, tuple[Kind, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a dataset is."""

    #: What one row is.
    row: str
    #: Everything else that one should know before relying on it.
    more: str = ""
    #: What each column holds, in order.
    columns: Columns


_BLOCK: Columns = {
    "block_number": (INT, "Number of the block."),
    "block_hash": (BYTES, "Hash of the block."),
    "block_timestamp": (TIME, "When the block says it was made."),
}
_TRANSACTION: Columns = {
    **_BLOCK,
    "transaction_hash": (BYTES, "Hash of the transaction."),
    "transaction_index": (INT, "Its place in the block."),
}
_LOG: Columns = {
    **_TRANSACTION,
    "log_index": (INT, "Place of the log in the block; may have gaps."),
}
_LAST: Columns = {
    "block_number": (INT, "The last block that changed the row."),
    "block_hash": (BYTES, "Its hash."),
    "block_timestamp": (TIME, "Its time."),
}
_TRANSFER: Columns = {
    **_LOG,
    "batch_ordinal": (INT, "Place in a batch, from 0; 0 for what is no batch."),
    "standard": (TEXT, "`erc20`, `erc721` or `erc1155`."),
    "token_address": (BYTES, "The contract."),
    "from_address": (BYTES, "Who had it; the zero address where it is minted."),
    "to_address": (BYTES, "Who has it; the zero address where it is burnt."),
    "token_id": (U256, "Which token of the contract; NULL for ERC-20."),
    "amount": (U256, "How much; 1 for ERC-721."),
}

MEANINGS: Mapping[str, Meaning] = {
    "token_transfers": Meaning(
        row="One transfer of an ERC-20, ERC-721 or ERC-1155 token",
        more=(
            "mints, burns, transfers of nothing and to oneself are there. A log is a transfer only"
            " where hash of signature, number of topics and size of data are those of its standard:"
            " three topics and 32 bytes (ERC-20), four topics and none (ERC-721), four topics and"
            " 64 bytes (ERC-1155, one), four topics and two arrays of equal length that lie wholly"
            " within data of at least 128 bytes (ERC-1155, batch). Everything else is left out and"
            " stays in `logs`: a batch whose arrays differ in length or reach beyond the data is no"
            " transfer at all, not half of one. Addresses are the last 20 bytes of their topics"
        ),
        columns=_TRANSFER,
    ),
    "approvals": Meaning(
        row="One approval: of an amount (ERC-20), of one token (ERC-721), or of everything",
        more=(
            "approvals that take an earlier one back are there. ApprovalForAll is the same event in"
            " ERC-721 and ERC-1155; one whose data is neither 0 nor 1 is left out"
        ),
        columns={
            **_LOG,
            "standard": (TEXT, "`erc20` or `erc721`; NULL for ApprovalForAll."),
            "token_address": (BYTES, "The contract."),
            "owner_address": (BYTES, "Whose tokens they are."),
            "spender_address": (BYTES, "Who may move them; the zero address is nobody."),
            "token_id": (U256, "Which token, for ERC-721."),
            "amount": (U256, "How much, for ERC-20."),
            "is_approved": (BOOL, "Whether he may, for ApprovalForAll."),
        },
    ),
    "internal_transactions": Meaning(
        row="One call within a transaction that moves Ether, creates a contract or ends one",
        more=(
            "it needs traces (`traces: true`) and is unavailable on chains without them. The"
            " outermost call is the transaction itself and is not there; calls by delegation move"
            " nothing and are not there either. What failed, or was undone with a call around it,"
            " has status 0"
        ),
        columns={
            **_TRANSACTION,
            "trace_index": (INT, "Place of the trace in the block."),
            "trace_address": (TEXT, "Path in the call tree, as `0,2,1`."),
            "trace_type": (TEXT, "`call`, `create` or `suicide`."),
            "call_type": (TEXT, "`call`; NULL where it is none."),
            "from_address": (BYTES, "Who calls, creates or ends."),
            "to_address": (BYTES, "Who is called, created or left the rest; NULL if not created."),
            "value": (U256, "Wei that it carries."),
            "gas": (INT, "Gas it was given; NULL for an end."),
            "gas_used": (INT, "Gas it took; NULL where it failed."),
            "error": (TEXT, "Why it failed; NULL where it did not by itself."),
            "status": (INT, "1 where it took effect, else 0."),
        },
    ),
    "enrich_transfers": Meaning(
        row="One transfer, as in `token_transfers`, with what its transaction and block say",
        columns={
            **_TRANSFER,
            "transaction_from_address": (BYTES, "Who signed the transaction."),
            "transaction_to_address": (BYTES, "What it calls; NULL where it creates a contract."),
            "transaction_value": (U256, "Wei that it carries."),
            "transaction_method": (
                BYTES,
                "First four bytes of its input; NULL where it has fewer.",
            ),
            "transaction_gas_used": (INT, "Gas it took."),
            "transaction_effective_gas_price": (U256, "Wei paid for each gas."),
            "transaction_status": (INT, "1 where it worked; NULL before Byzantium."),
            "block_miner": (BYTES, "Who gets the block's fees."),
            "block_base_fee_per_gas": (U256, "Wei burnt for each gas; NULL before London."),
        },
    ),
    "address_transactions": Meaning(
        row="One address and one transaction that it took part in, with every role it had",
        more=(
            "the zero address takes part where Ether is sent to it, not where tokens are minted or"
            " burnt. On a chain without traces nobody has the roles of internal transactions, and"
            " contracts that others create are not known as created"
        ),
        columns={
            "address": (BYTES, "Who took part."),
            **_TRANSACTION,
            "is_sender": (BOOL, "Signed it."),
            "is_receiver": (BOOL, "Is called by it."),
            "is_created": (BOOL, "Is a contract that it creates."),
            "is_token_sender": (BOOL, "Had tokens that were moved."),
            "is_token_receiver": (BOOL, "Got tokens."),
            "is_internal_sender": (BOOL, "Is on the sending side of an internal transaction."),
            "is_internal_receiver": (BOOL, "Is on the receiving side of one."),
        },
    ),
    "address_stats": Meaning(
        row="One address, with all that it did and that was done to it",
        more=(
            "a row comes with the first transaction that the address takes part in, and its last"
            " block is the last one that counted something. Value is what really moved: of"
            " transactions that did not fail and of internal transactions that took effect. On a"
            " chain without traces the latter count nothing, so there the sums are of transactions"
            " alone. Fees, withdrawals and rewards are no part of value"
        ),
        columns={
            "address": (BYTES, "Whose numbers they are."),
            **_LAST,
            "first_block_number": (INT, "The first block in which it took part."),
            "first_block_timestamp": (TIME, "Its time."),
            "transactions_sent": (INT, "Transactions it signed, failed ones too."),
            "transactions_received": (INT, "Transactions that call or create it, failed ones too."),
            "transactions_failed": (INT, "Of those it signed, the ones that failed."),
            "token_transfers_sent": (INT, "Token transfers from it."),
            "token_transfers_received": (INT, "Token transfers to it."),
            "internal_transactions_sent": (INT, "Internal transactions from it, undone ones too."),
            "internal_transactions_received": (
                INT,
                "Internal transactions to it, undone ones too.",
            ),
            "value_sent": (SIGNED, "Wei that it sent."),
            "value_received": (SIGNED, "Wei that it got."),
            "gas_used": (INT, "Gas that its transactions took."),
            "gas_spent": (SIGNED, "Wei that it paid for gas, without that of blobs."),
        },
    ),
    "token_balances": Meaning(
        row="What an address holds of a token: for ERC-20 all of it, else by token id",
        more=(
            "a balance is what transfers add up to. A contract that moves tokens without an event"
            " makes it wrong, and may bring it below zero; as a sum it stays exact. The zero"
            " address holds nothing. Rows that became zero stay. For ERC-20 the id is 0,"
            " so `standard = 'erc20'`, contract and address name one row"
        ),
        columns={
            **_LAST,
            "token_address": (BYTES, "The contract."),
            "address": (BYTES, "Who holds it."),
            "standard": (TEXT, "`erc20`, `erc721` or `erc1155`."),
            "token_id": (U256, "Which token; 0 for ERC-20."),
            "balance": (SIGNED, "How much."),
        },
    ),
    "tokens": Meaning(
        row="What a token contract says of itself",
        more=(
            "asked after the first block in which it moves a token, and again after a contract is"
            " created at its address; needs a node ([reads.md](reads.md))"
        ),
        columns={
            "address": (BYTES, "The contract."),
            "name": (TEXT, "What `name()` returns; NULL where it returns no text."),
            "symbol": (TEXT, "What `symbol()` returns; NULL where it returns no text."),
            "decimals": (INT, "What `decimals()` returns; NULL where it returns no such number."),
            "standard": (
                TEXT,
                "Of its first transfer; NULL where none was seen since it is there.",
            ),
            "remarks": (TEXT, "What was odd about the answers; NULL where nothing was."),
            "block_number": (INT, "The block after which it was asked."),
            "block_hash": (BYTES, "Its hash."),
            "block_timestamp": (TIME, "Its time."),
        },
    ),
    "daily_summary": Meaning(
        row="One UTC day",
        more="the running day is computed anew with every block, as what it is up to that block",
        columns={
            "day": (DATE, "The day."),
            "block_number": (INT, "The last block that is counted."),
            "block_hash": (BYTES, "Its hash."),
            "block_timestamp": (TIME, "Its time."),
            "first_block": (INT, "The first block of the day."),
            "blocks": (INT, "Blocks."),
            "transactions": (INT, "Transactions."),
            "failed_transactions": (INT, "Those that failed."),
            "senders": (INT, "Different signers."),
            "contracts_created": (INT, "Contracts that transactions created themselves."),
            "gas_used": (INT, "Gas that was taken."),
            "value_sum": (SIGNED, "Wei that transactions carry, failed ones too."),
        },
    ),
}
