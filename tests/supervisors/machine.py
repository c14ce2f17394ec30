"""A Hypothesis state machine that drives trees beside their model (`model.py`)."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.supervisors.model import REASONS, RESTARTS, Node, Pair, Plan

places = st.integers(0, 40)


class Trees(RuleBasedStateMachine):
    """Starts, crashes, terminations, restarts, deletions, exit signals, time."""

    steps = 0
    pair: Pair

    @initialize(seed=st.integers(0, 2**32))
    def plant(self, seed: int) -> None:
        self.pair = Pair(seed)

    def node(self, place: int) -> Node:
        type(self).steps += 1
        nodes = self.pair.model.nodes()
        return nodes[place % len(nodes)]

    def standing(self) -> bool:
        return not self.pair.over

    @precondition(standing)
    @rule(place=places, how=st.sampled_from(REASONS))
    def exits(self, place: int, how: str) -> None:
        self.pair.exit(self.node(place), how)

    @precondition(standing)
    @rule(place=places, how=st.sampled_from(REASONS[:3]))
    def is_signalled(self, place: int, how: str) -> None:
        self.pair.signal(self.node(place), how)

    @precondition(standing)
    @rule(place=places, verb=st.sampled_from(["terminate", "restart", "delete"]))
    def is_managed(self, place: int, verb: str) -> None:
        self.pair.manage(self.node(place), verb)

    @precondition(standing)
    @rule(place=places, restart=st.sampled_from(RESTARTS))
    def gets_a_child(self, place: int, restart: str) -> None:
        self.pair.start_child(self.node(place), Plan(f"x{self.pair.steps}", restart))

    @precondition(standing)
    @rule(place=places, times=st.integers(1, 4))
    def will_fail_to_start(self, place: int, times: int) -> None:
        self.pair.fail_next(self.node(place), times)

    @precondition(standing)
    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 5.5]))
    def time_passes(self, seconds: float) -> None:
        type(self).steps += 1
        self.pair.advance(seconds)

    @precondition(lambda self: self.pair.over)
    @rule(seed=st.integers(0, 2**32))
    def is_replanted(self, seed: int) -> None:
        self.pair.finish()
        self.pair = Pair(seed)

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.pair.finish()


def drive(examples: int, seed: int) -> int:
    """Run the machine on `examples` trees drawn from `seed`; return how many steps it took."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )
    machine: Any = type("Trees", (Trees,), {"steps": 0})
    seeded(seed)(machine)
    run_state_machine_as_test(machine, settings=chosen)
    steps: int = machine.steps
    return steps
