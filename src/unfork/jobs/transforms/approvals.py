"""Owns the dataset `approvals`: who may spend what of whose tokens, as token contracts say it.

An Approval of ERC-20 names an amount, one of ERC-721 a single token; as with transfers the number
of topics tells them apart. An ApprovalForAll is for everything, and the same in ERC-721 and
ERC-1155: which of them its contract is, the log does not say. A word that is neither 0 nor 1 is no
answer to whether something is approved, so a log with one is no approval.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.datasets.dataset import Kind
from unfork.jobs.transforms import topics, word
from unfork.jobs.transforms.columns import typed
from unfork.jobs.transforms.names import LOGS, TRANSACTION

_NO, _YES = (topics.literal(answer.to_bytes(word.BYTES, "big")) for answer in (0, 1))


def approvals(logs: DataFrame) -> DataFrame:
    """One row an approval, those that take an earlier one back too."""
    logs = logs.select(*LOGS)
    is_for_all = f"topic0 = {topics.literal(topics.APPROVAL_FOR_ALL)}"
    is_answered = f"topic3 IS NULL AND data IN ({_NO}, {_YES})"
    is_approval = f"({topics.is_token_or_nft(topics.APPROVAL)}) OR ({is_for_all} AND {is_answered})"
    is_erc721 = "topic3 IS NOT NULL"
    return logs.where(
        f"{topics.is_any(topics.APPROVAL, topics.APPROVAL_FOR_ALL)} AND ({is_approval})"
    ).select(
        *TRANSACTION,
        "log_index",
        F.expr(
            f"CASE WHEN {is_erc721} THEN 'erc721' WHEN NOT {is_for_all} THEN 'erc20' END"
            " AS standard"
        ),
        F.expr("address AS token_address"),
        F.expr(f"{word.account('topic1')} AS owner_address"),
        F.expr(f"{word.account('topic2')} AS spender_address"),
        typed("topic3", "token_id", Kind.U256),
        typed(f"CASE WHEN NOT ({is_for_all} OR {is_erc721}) THEN data END", "amount", Kind.U256),
        F.expr(f"CASE WHEN {is_for_all} THEN data = {_YES} END AS is_approved"),
    )
