"""Owns the list of what is computed from EVM chains: every built-in transform, by its name."""

from __future__ import annotations

from unfork.jobs.transforms.approvals import approvals
from unfork.jobs.transforms.balances import token_balances
from unfork.jobs.transforms.days import daily_summary
from unfork.jobs.transforms.enriched import enrich_transfers
from unfork.jobs.transforms.internal import internal_transactions
from unfork.jobs.transforms.participation import address_transactions
from unfork.jobs.transforms.stats import address_stats
from unfork.jobs.transforms.transfers import token_transfers

__all__ = [
    "address_stats",
    "address_transactions",
    "approvals",
    "daily_summary",
    "enrich_transfers",
    "internal_transactions",
    "token_balances",
    "token_transfers",
]
