"""Goal: plans that are carried out always lead to what a full recomputation gives (I1, I6).

Method: a state machine plays with a toy world (planning_world.py): blocks come, forks and
corrections strike while runs are under way, runs fail, jobs change, are paused and backfilled. The
world itself refuses a run before its inputs, an overlap, a gap and a second open run of a serial
build. In the end everything is carried out and compared with an oracle that knows only the chain.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.planning_world import JOBS, World
from unfork.jobs.run import Cause

NAMES = [spec.name for spec in JOBS]
values = st.lists(st.integers(0, 30), min_size=1, max_size=12)


class PlanningMachine(RuleBasedStateMachine):
    """A world that moves while its plans are carried out."""

    @initialize(start=st.integers(0, 25), blocks=values)
    def begin(self, start: int, blocks: list[int]) -> None:
        self.world = World(start=start)
        self.world.extend(blocks)

    @rule(blocks=values, day=st.integers(0, 1))
    def blocks_come(self, blocks: list[int], day: int) -> None:
        self.world.extend(blocks, day=day)

    @rule(count=st.integers(20, 60))
    def many_blocks_come(self, count: int) -> None:
        self.world.extend([n * 7 % 31 for n in range(count)], day=1)

    @rule(depth=st.integers(1, 15), blocks=values, day=st.integers(0, 2))
    def a_fork_strikes(self, depth: int, blocks: list[int], day: int) -> None:
        self.world.fork(depth, blocks, day=day)

    @rule(behind=st.integers(0, 20))
    def the_floor_rises(self, behind: int) -> None:
        self.world.finalize(self.world.head.number - behind)

    @rule(place=st.integers(0, 10_000), value=st.integers(0, 30))
    def a_block_is_corrected(self, place: int, value: int) -> None:
        chain = self.world.chain
        self.world.correct(chain[place % len(chain)].ref.number, value)

    @rule(picks=st.lists(st.integers(0, 1000), min_size=1, max_size=6))
    def runs_are_claimed(self, picks: list[int]) -> None:
        for pick in picks:
            made = self.world.plan()
            if made.steps:
                for step in made.steps:
                    self.world.step(step)
            elif made.runs:
                self.world.claim(made.runs[pick % len(made.runs)])

    @rule(picks=st.lists(st.tuples(st.integers(0, 1000), st.booleans()), max_size=6))
    def runs_end(self, picks: list[tuple[int, bool]]) -> None:
        for pick, is_good in picks:
            if self.world.flights:
                flight = self.world.flights[pick % len(self.world.flights)]
                if is_good:
                    self.world.commit(flight)
                else:
                    self.world.fail(flight)

    @rule()
    def everything_is_carried_out(self) -> None:
        self.world.settle()

    @rule(name=st.sampled_from(NAMES))
    def a_job_changes(self, name: str) -> None:
        self.world.settings[name] += 1

    @rule(name=st.sampled_from(NAMES))
    def a_schema_changes(self, name: str) -> None:
        self.world.settings[name] += 1
        self.world.schemas[name] += 1

    @rule(name=st.sampled_from(NAMES))
    def a_backfill_is_asked_for(self, name: str) -> None:
        self.world.ask_backfill(name, None)

    @rule(name=st.sampled_from(NAMES))
    def a_job_is_paused_or_resumed(self, name: str) -> None:
        self.world.paused ^= {name}

    @invariant()
    def plans_are_a_function_of_the_state_speak_of_every_job_and_overlap_nowhere(self) -> None:
        if not hasattr(self, "world"):
            return
        made = self.world.plan()
        assert self.world.plan() == made
        spoken = {part.job for part in (*made.runs, *made.idle, *made.steps)}
        assert spoken == set(NAMES)
        # Such a plan can be claimed as a whole.
        for run in made.runs if not made.steps else ():
            clash = [
                other for other in made.runs
                if other is not run and other.generation == run.generation
                and other.span.overlaps(run.span)
            ]  # fmt: skip
            assert not clash

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.paused.clear()
        world.settle()
        for spec in world.lineage.order:
            made = world.plan()
            if any(one.job == spec.name for one in made.stale):
                world.ask_backfill(spec.name, None)
                world.settle()
        made = world.plan()
        assert not made.stale
        assert {idle.cause for idle in made.idle} == {Cause.CURRENT}, made.idle
        for name in NAMES:
            assert world.found(name) == world.expected(name), name


TestPlanning = PlanningMachine.TestCase
TestPlanning.settings = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
