"""Owns the planning of full jobs: all of it again, when something is new and some time has passed.

A full job may read states, which are what they are at their own ref and cannot be cut: it is
computed at that ref, and waits while two states stand at different ones.
"""

from __future__ import annotations

from datetime import timedelta

from unfork.chain.span import Span
from unfork.jobs.run import Action, Cause
from unfork.jobs.state import Kind, Lease
from unfork.jobs.work import Work, holes_of


def plan(work: Work) -> None:
    """Plans a build."""
    inputs = work.inputs()
    if inputs is None:
        return
    built, view = work.generation, work.view
    last = min(readable.last for readable in inputs)
    wanted = Span(built.first, last)
    fixed = {readable.last for readable in inputs if not readable.is_cuttable}

    def is_wanted(lease: Lease) -> bool:
        return lease.span == wanted or (not fixed and lease.span.last <= last)

    if fixed - {last}:
        work.rest(Cause.WAITING, wanted, "waits until the states it reads stand at one block")
        return
    if holes_of(inputs):
        work.rest(Cause.WAITING, wanted, "waits for its inputs to be corrected first")
        return
    version = built.versions[-1] if built.versions else None
    is_fine = version is not None and view.is_good(version) and version.last == last
    if is_fine and version is not None and version.config_hash == work.fingerprint.config_hash:
        work.rest(Cause.CURRENT, None, f"includes every block up to {last}")
        return
    work.take_leases(is_wanted, lambda lease: Action.REPLACE)
    if not work.part.runs and not work.blocked:
        interval = timedelta(seconds=work.spec.min_interval_s)
        if version is not None and version.at + interval > view.state.now:
            why = f"runs at most every {work.spec.min_interval_s:g} s"
            work.rest(Cause.INTERVAL, wanted, why)
            return
        kind = Kind.BACKFILL if version is None else Kind.RECOMPUTE
        rows = None if version is None else version.rows
        work.plan(wanted, action=Action.REPLACE, kind=kind, rows=rows)
    work.count([run.span for run in work.part.runs], runs=len(work.part.runs))
