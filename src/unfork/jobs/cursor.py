"""Owns the planning of cursor jobs: what comes after the watermark, and what is done again below.

At the head a run is small and begins where the watermark ends. History is cut into ranges that
begin at multiples of `range_size`; where blocks do not depend on each other, many are open at once,
and the watermark follows when the gap is closed. A serial build has one open run, at the watermark
or, to correct something, from the first wrong block up to the watermark, which is undone first.
"""

from __future__ import annotations

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.jobs.run import Action, Cause
from unfork.jobs.state import Kind, Lease
from unfork.jobs.view import Readable
from unfork.jobs.work import Work, holes_of


def plan(work: Work) -> bool:
    """Plans a build; False where it cannot be mended and has to be built anew."""
    inputs = work.inputs()
    if inputs is None:
        return not _is_broken(work)
    return _serial(work, inputs) if work.spec.is_serial else _parallel(work, inputs)


def _is_broken(work: Work) -> bool:
    """Whether a serial build has to correct blocks whose changes can no longer be undone."""
    floor = work.generation.history_floor
    first = _first_wrong(work)
    return work.spec.is_serial and first is not None and floor is not None and first <= floor


def _first_wrong(work: Work) -> int | None:
    built = work.generation
    below = [row.span.first for row in work.outdated if row.span.first < built.next]
    return max(min(below), built.first) if below else None


def _serial(work: Work, inputs: list[Readable]) -> bool:
    built = work.generation
    last = min(readable.last for readable in inputs)
    holes = holes_of(inputs)
    wrong = _first_wrong(work)
    is_broken = _is_broken(work)
    if wrong is not None and not is_broken:
        wanted = Span(wrong, built.next - 1)
        action, kind = Action.REPLAY, Kind.RECOMPUTE
    else:
        wanted_last = _before_hole(built.next, min(last, _live_end(work, last)), holes)
        if wanted_last < built.next:
            _say_current(work, built.next, last, inputs)
            return not is_broken
        wanted = Span(built.next, wanted_last)
        action = Action.EXTEND
        kind = Kind.BACKFILL if _is_history(work, last) else Kind.LIVE

    def is_wanted(lease: Lease) -> bool:
        if action is Action.REPLAY:
            return lease.kind is Kind.RECOMPUTE and lease.span == wanted
        is_ahead = lease.kind is not Kind.RECOMPUTE and lease.span.first == wanted.first
        return is_ahead and _before_hole(built.next, last, holes) >= lease.span.last

    work.take_leases(is_wanted, lambda lease: action)
    if work.part.runs:
        work.count([run.span for run in work.part.runs], runs=len(work.part.runs))
    elif work.is_busy:
        work.rest(Cause.BUSY, None, "somebody computes it now")
    elif not work.blocked:
        if action is Action.REPLAY and (last < wanted.last or _overlaps(wanted, holes)):
            why = "waits for its inputs to be corrected first"
            work.rest(Cause.WAITING, wanted, why)
        else:
            work.plan(wanted, action=action, kind=kind)
            more = Span(wanted.first, max(wanted.last, last if action is Action.EXTEND else 0))
            runs = len(work.part.runs) + -(-(more.last - wanted.last) // len(wanted))
            work.count([more], runs=runs)
    return not is_broken


def _parallel(work: Work, inputs: list[Readable]) -> bool:
    built = work.generation
    last = min(readable.last for readable in inputs)
    holes = holes_of(inputs)
    covered = [Span(built.first, built.next - 1)] if built.next > built.first else []
    wrong = _within(work, covered)
    redo = spans.subtract(wrong, holes)
    if spans.subtract(wrong, redo):
        work.rest(Cause.WAITING, None, "waits for its inputs to be corrected first")
    ahead = spans.subtract([Span(built.next, last)], holes) if built.next <= last else ()

    def is_wanted(lease: Lease) -> bool:
        area = redo if lease.kind is Kind.RECOMPUTE else ahead
        return any(p.first <= lease.span.first and lease.span.last <= p.last for p in area)

    def action(lease: Lease) -> Action:
        if lease.kind is Kind.RECOMPUTE:
            return Action.REPLACE
        return Action.EXTEND if lease.span.first == built.next else Action.FILL

    work.take_leases(is_wanted, action)
    again = spans.subtract(redo, work.blocked)
    pieces = [part for span in again for part in _aligned(span, work.limits.range_size)]
    for piece in pieces[: work.limits.runs_max]:
        work.plan(piece, action=Action.REPLACE, kind=Kind.RECOMPUTE)
    count = len(pieces)
    if _is_history(work, last):
        count += _history(work, ahead)
    elif ahead and ahead[0].first == built.next:
        count += _live(work, ahead[0])
    elif built.next <= last or (not wrong and not work.blocked):
        _say_current(work, built.next, last, inputs)
    taken = [run.span for run in work.part.runs if run.lease is not None]
    rest = spans.subtract(ahead, [*work.blocked, *work.done])
    work.count([*taken, *again, *rest], runs=len(taken) + count)
    return True


def _history(work: Work, ahead: tuple[Span, ...]) -> int:
    """Ranges up to the floor, each by itself; returns how many there are."""
    final = [part for span in ahead if (part := _up_to(span, work.view.floor)) is not None]
    free = spans.subtract(final, [*work.blocked, *work.done])
    pieces = [part for span in free for part in _aligned(span, work.limits.range_size)]
    for piece in pieces[: work.limits.runs_max]:
        action = Action.EXTEND if piece.first == work.generation.next else Action.FILL
        work.plan(piece, action=action, kind=Kind.BACKFILL)
    if not pieces and not work.part.runs and work.is_busy:
        work.rest(Cause.BUSY, None, "others compute all of it now")
    return len(pieces)


def _live(work: Work, area: Span) -> int:
    """One small run at the watermark; returns how many it takes for all."""
    if any(area.first in span for span in work.done):
        why = "what is computed ahead moves the watermark first"
        work.rest(Cause.BUSY, area, why)
        return 0
    size = work.limits.live_blocks_max
    free = spans.subtract([area], [*work.blocked, *work.done])
    if not free or free[0].first != area.first:
        if work.is_busy:
            work.rest(Cause.BUSY, area, "somebody computes it now")
        return 0
    work.plan(
        Span(area.first, min(free[0].last, area.first + size - 1)),
        action=Action.EXTEND,
        kind=Kind.LIVE,
    )
    return sum(-(-len(span) // size) for span in free)


def _is_history(work: Work, last: int) -> bool:
    """Whether what is missing is final, and more than a live run takes."""
    final = min(last, work.view.floor) - work.generation.next + 1
    return final > work.limits.live_blocks_max


def _live_end(work: Work, last: int) -> int:
    """The last block of the next run of a serial build."""
    first = work.generation.next
    if _is_history(work, last):
        return min(spans.aligned(first, work.limits.range_size).last, work.view.floor)
    return first + work.limits.live_blocks_max - 1


def _before_hole(first: int, last: int, holes: tuple[Span, ...]) -> int:
    """The last block that can be read without a gap from `first` on; first-1 for none."""
    for hole in holes:
        if hole.last >= first:
            return min(last, hole.first - 1)
    return last


def _within(work: Work, covered: list[Span]) -> list[Span]:
    """What has to be done again of the blocks that are covered."""
    parts = [spans.intersect(row.span, span) for row in work.outdated for span in covered]
    return [part for part in parts if part is not None]


def _aligned(span: Span, size: int) -> list[Span]:
    """A span cut at the multiples of `size`."""
    first = spans.aligned(span.first, size).last
    if span.last <= first:
        return [span]
    return [Span(span.first, first), *spans.split(Span(first + 1, span.last), size)]


def _up_to(span: Span, last: int) -> Span | None:
    return Span(span.first, min(span.last, last)) if span.first <= last else None


def _overlaps(span: Span, others: tuple[Span, ...]) -> bool:
    return any(span.overlaps(other) for other in others)


def _say_current(work: Work, first: int, last: int, inputs: list[Readable]) -> None:
    """Nothing is missing, or the inputs have a gap first."""
    if first <= last:
        why = "waits for its inputs to be corrected first"
        work.rest(Cause.WAITING, Span(first, last), why)
        return
    slow = [readable.dataset for readable in inputs if readable.last < work.view.head.number]
    if slow:
        why = f"includes all that `{slow[0]}` has"
        work.rest(Cause.WAITING, None, why)
    else:
        work.rest(Cause.CURRENT, None, "includes every block")
