"""Goal: a merge is the fold of its changes in the order of the chain, and undoing it to any block
gives the fold up to there, however the changes are cut into runs and wherever the floor is.

Method: hypothesis draws changes of few keys over few blocks with every rule and NULLs; a dict in
plain Python is the model; the table is a real one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import toy
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker, committed
from unfork.app.derived import DerivedDataset
from unfork.chain.span import Span
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import Mode, Rule, Strategy

RULES = {
    "total": Rule.ADD,
    "lowest": Rule.MIN,
    "highest": Rule.MAX,
    "last_word": Rule.SET,
    "first_word": Rule.SET_IF_NULL,
}

STATE = DerivedDataset(
    name="state",
    job="fold",
    inputs=("blocks",),
    mode=Mode.CURSOR,
    strategy=Strategy.MERGE,
    columns=(
        Column("block_number", Kind.INT),
        Column("key", Kind.TEXT),
        Column("total", Kind.SIGNED, nullable=True),
        Column("lowest", Kind.INT, nullable=True),
        Column("highest", Kind.U256, nullable=True),
        Column("last_word", Kind.BYTES, nullable=True),
        Column("first_word", Kind.TEXT, nullable=True),
    ),
    key=("key",),
    rules=RULES,
)

#: How a rule goes on from one value to the next.
FOLDS: dict[Rule, Callable[[Any, Any], Any]] = {
    Rule.ADD: operator.add,
    Rule.MIN: min,
    Rule.MAX: max,
}

LAST = 12
Row = dict[str, Any]

changes = st.fixed_dictionaries(
    {
        "total": st.none() | st.integers(-(2**256), 2**256),
        "lowest": st.none() | st.integers(-5, 5),
        "highest": st.none() | st.integers(0, 2**256 - 1),
        "last_word": st.none() | st.binary(max_size=2),
        "first_word": st.none() | st.sampled_from(["x", "y", "'"]),
    }
)
#: By block and key.
histories = st.dictionaries(st.tuples(st.integers(1, LAST), st.sampled_from("pqr")), changes)


def folded(history: dict[tuple[int, str], Row], last: int) -> list[Row]:
    """The state after a block, the plain way."""
    state: dict[str, Row] = {}
    for (block, key), change in sorted(history.items(), key=lambda item: item[0]):
        if block > last:
            continue
        row = state.setdefault(key, {"key": key, **dict.fromkeys(RULES)})
        row["block_number"] = block
        for name, rule in RULES.items():
            old, new = row[name], change[name]
            if rule is Rule.SET or old is None:
                row[name] = new
            elif new is not None and rule is not Rule.SET_IF_NULL:
                row[name] = FOLDS[rule](old, new)
    return toy.ordered(list(state.values()))


def returned(history: dict[tuple[int, str], Row], span: Span) -> list[Row]:
    return [
        {"block_number": block, "key": key, **change}
        for (block, key), change in history.items()
        if block in span
    ]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    history=histories,
    cuts=st.sets(st.integers(1, LAST - 1), max_size=3),
    floor=st.none() | st.integers(1, LAST),
    target=st.integers(0, LAST),
)
async def test_a_merge_is_the_fold_of_its_changes_and_undoes_to_any_block(
    place: Place,
    history: dict[tuple[int, str], Row],
    cuts: set[int],
    floor: int | None,
    target: int,
) -> None:
    await place.wipe()
    journal = Journal().commit("-".join(f"a{number}" for number in range(1, LAST + 1)))
    if floor is not None:
        journal.finalize(floor)
    worker = Worker(place, journal)
    await worker.register(STATE)
    await worker.follow()
    first = 1
    for last in [*sorted(cuts), LAST]:
        build = await worker.build(STATE)
        span = Span(first, last)
        lease = await worker.claim(build, span)
        assert lease is not None
        run = await worker.compute(
            build,
            lease,
            journal.blocks(span),
            parent=journal.at(first - 1) if first > 1 else None,
            rows=returned(history, span),
        )
        committed(await worker.commits.commit(run))
        assert await worker.held(STATE) == folded(history, last)
        first = last + 1
    target = max(target, floor or 0)
    journal.unwind(target or None)
    await worker.follow()
    assert await worker.held(STATE) == folded(history, target)
    await worker.place.close()
