"""How many restarts are too many: windows, escalation, budgets of children, backoff."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisors import (
    Backoff,
    ChildBudget,
    ChildSpec,
    Crashed,
    DynamicSupervisor,
    InvalidSpec,
    RestartChild,
    Restarting,
    RestartsExceeded,
    RestartWindow,
    Shutdown,
    StartChild,
    Supervisor,
    count_children,
    delete_child,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from supervisors.errors import AlreadyPresent
from supervisors.testing import DeterministicScheduler
from tests.supervisors.test_supervisor_restarts import end, failing, states, tree
from tests.supervisors.world import Boom, Puppet, World, crash, starts, stops


def always_after_first() -> Callable[[Puppet], None]:
    return failing(10**9)


class TestWindow:
    def test_intensity_0_allows_no_restart(self):
        assert not RestartWindow(0, 5).add(0)

    def test_the_edge_of_the_window_counts(self):
        window = RestartWindow(1, 1.0)

        assert window.add(0.0)
        assert not window.add(1.0)

    def test_a_restart_just_outside_of_the_window_is_forgotten(self):
        """Supervision C42: exact seconds, where OTP truncates to whole ones."""
        window = RestartWindow(1, 1.0)

        assert window.add(0.0)
        assert window.add(1.01)

    @settings(max_examples=40)
    @given(
        st.integers(0, 5),
        st.floats(0.1, 10),
        st.lists(st.floats(0, 3, allow_nan=False), max_size=40),
    )
    def test_a_window_refuses_exactly_when_the_definition_does(self, intensity, period, gaps):
        window, now, times = RestartWindow(intensity, period), 0.0, []
        for gap in gaps:
            now += gap
            times.append(now)
            expected = sum(t >= now - period for t in times) <= intensity

            assert window.add(now) is expected
            assert len(window) <= intensity + 1

    def test_children_have_windows_of_their_own(self):
        budget = ChildBudget(1, 5)

        assert budget.allows("a", 0)
        assert budget.allows("b", 0)
        assert not budget.allows("a", 1)
        budget.forget("a")
        assert budget.allows("a", 1)


class TestIntensity:
    def test_intensity_0_ends_the_supervisor_at_the_first_crash(self, world: World):
        """Supervision C41."""
        supervisor = tree(world, "a", [], intensity=0)
        reason = world.system.monitor_from_outside(supervisor)
        end(world, "a", Crashed(Boom()))

        assert isinstance(reason.get(timeout=5), Shutdown)

    def test_crashes_further_apart_than_the_period_are_survived(self, world: World):
        """Supervision C42."""
        supervisor = tree(world, "a", [], intensity=1, period=1)
        for _ in range(5):
            end(world, "a", Crashed(Boom()))
            world.advance(1.01)

        assert states(supervisor) == {"a": "running"}

    def test_the_end_says_why_with_the_last_crash(self, world: World):
        supervisor = tree(world, "a", [], intensity=1)
        reason = world.system.monitor_from_outside(supervisor)
        for _ in range(2):
            end(world, "a", Crashed(Boom()))
        term = reason.get(timeout=5).term

        assert isinstance(term, RestartsExceeded)
        assert term.child_id == "a"
        assert isinstance(term.last_crash, Boom)
        assert "restarts_exceeded" in world.kinds()

    def test_a_restart_that_keeps_failing_ends_the_supervisor_and_the_sibling(self, world: World):
        """Supervision C43, protoactor-go."""
        log: list[object] = []
        supervisor = tree(world, "ab", log, fails={"b": always_after_first()})
        reason = world.system.monitor_from_outside(supervisor)
        end(world, "b", Crashed(Boom()))

        assert isinstance(reason.get(timeout=5), Shutdown)
        assert log[-1] == ("stop", "a", Shutdown())
        assert world.kinds().count("restart_failed") == 3

    @pytest.mark.parametrize(("restart", "again"), [("permanent", 1), ("transient", 0)])
    def test_a_supervisor_that_gives_up_is_restarted_only_if_permanent(self, world, restart, again):
        """Supervision C45 and C46: the reason is a shutdown."""
        log: list[object] = []
        inner = ChildSpec("leaf", Puppet, ("leaf", log), name="leaf")
        middle = ChildSpec("sub", Supervisor, ([inner],), {"intensity": 0}, restart=restart)
        supervisor = world.system.start(Supervisor, [middle])
        end(world, "leaf", Crashed(Boom()))

        assert len(starts(log)) == 1 + again
        assert states(supervisor) == {"sub": "running" if again else "undefined"}

    def test_the_last_crash_is_seen_through_two_supervisors(self, world: World):
        inner = ChildSpec("leaf", Puppet, ("leaf", []), name="leaf")
        middle = ChildSpec("sub", Supervisor, ([inner],), {"intensity": 0})
        root = world.system.start(Supervisor, [middle], intensity=0)
        reason = world.system.monitor_from_outside(root)
        end(world, "leaf", Crashed(Boom("deep")))
        term = reason.get(timeout=5).term

        assert isinstance(term.last.term, RestartsExceeded)
        assert term.last_crash.args == ("leaf",)
        assert term.__cause__ is term.last_crash

    def test_a_group_restart_counts_once(self, world: World):
        supervisor = tree(world, "abc", [], strategy="one_for_all", intensity=1)
        end(world, "a", Crashed(Boom()))

        assert states(supervisor) == dict.fromkeys("abc", "running")

    def test_stops_and_starts_by_hand_consume_no_budget(self, world: World):
        """Supervision C53."""
        log: list[object] = []
        supervisor = tree(world, "a", log, restarts={"a": "transient"}, intensity=0)
        for _ in range(20):
            terminate_child(supervisor, "a", timeout=5)
            restart_child(supervisor, "a", timeout=5)

        assert len(starts(log)) == 21

    def test_the_window_counts_time_and_not_messages(self, simulated: World):
        """Elle."""
        supervisor = tree(simulated, "a", [], intensity=2)
        reason = simulated.system.monitor_from_outside(supervisor)
        for _ in range(3):
            for _ in range(100):
                supervisor.tell("noise")
            end(simulated, "a", Crashed(Boom()))

        assert reason.done()


class TestRetryLoop:
    def make(self, world: World) -> object:
        supervisor = tree(world, "ab", [], fails={"b": always_after_first()}, intensity=10**9)
        world.system.whereis("b").tell(crash)
        while "restart_failed" not in world.kinds():
            world.scheduler.step()
        return supervisor

    @pytest.fixture
    def loop(self) -> World:
        world = World(DeterministicScheduler(5, step_cost=1e-6))
        yield world
        world.system.shutdown()

    def test_questions_are_answered_during_the_loop(self, loop: World):
        """Supervision C47."""
        supervisor = self.make(loop)
        for _ in range(5):
            found = states(supervisor)
            assert found["a"] == "running"
            assert found["b"] in {"restarting", "starting"}
        counts = count_children(supervisor, timeout=1)

        assert (counts.specs, counts.active, counts.workers) == (2, 1, 2)

    def test_the_child_can_neither_be_started_nor_restarted_nor_deleted(self, loop: World):
        """Supervision C47."""
        supervisor = self.make(loop)

        with pytest.raises(AlreadyPresent):
            start_child(supervisor, ChildSpec("b", Puppet), timeout=1)
        with pytest.raises(Restarting):
            restart_child(supervisor, "b", timeout=1)
        with pytest.raises(Restarting):
            delete_child(supervisor, "b", timeout=1)

    def test_terminating_the_child_ends_the_loop(self, loop: World):
        """Supervision C47."""
        supervisor = self.make(loop)
        terminate_child(supervisor, "b", timeout=1)
        loop.scheduler.settle()

        assert states(supervisor) == {"a": "running", "b": "undefined"}

    def test_two_loops_of_rest_for_one_leave_the_first_child_alone(self, loop: World):
        """Supervision C49."""
        log: list[object] = []
        supervisor = tree(
            loop, "abc", log, strategy="rest_for_one", intensity=10**9,
            fails={"b": always_after_first(), "c": always_after_first()},
        )  # fmt: skip
        loop.system.whereis("b").tell(crash)
        while "restart_failed" not in loop.kinds():
            loop.scheduler.step()
        counts = count_children(supervisor, timeout=1)

        assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (3, 1, 0, 3)
        assert starts(log).count("a") == 1

    def test_restarting_children_of_a_dynamic_supervisor_count(self, loop: World):
        """Supervision C50 and C91: specs is the number of children, as in Elixir."""
        supervisor = loop.system.start(DynamicSupervisor, max_children=2, intensity=10**9)
        start_child(supervisor, ChildSpec("a", Puppet), timeout=1)
        bad = ChildSpec("b", Puppet, ("b",), {"fail": always_after_first()}, name="b")
        old = start_child(supervisor, bad, timeout=1)
        old.tell(crash)
        while "restart_failed" not in loop.kinds():
            loop.scheduler.step()
        counts = count_children(supervisor, timeout=1)

        assert (counts.specs, counts.workers) == (2, 2)
        assert counts.active == 1
        with pytest.raises(Exception, match="raise max_children"):
            start_child(supervisor, ChildSpec("c", Puppet), timeout=1)


def test_a_restarting_dynamic_child_is_terminated_by_its_old_reference(simulated: World):
    """Supervision C86."""
    supervisor = simulated.system.start(
        DynamicSupervisor, backoff=Backoff(1.0, cap=1.0), intensity=10
    )
    old = start_child(supervisor, ChildSpec("a", Puppet), timeout=1)
    old.tell(crash)
    simulated.settle()
    assert states(supervisor) == {"a": "restarting"}
    terminate_child(supervisor, old, timeout=1)

    assert count_children(supervisor, timeout=1).specs == 0
    simulated.advance(5)
    assert count_children(supervisor, timeout=1).specs == 0


class TestChildBudget:
    def test_a_child_that_exceeds_its_own_budget_is_given_up_alone(self, world: World):
        given_up: list[object] = []

        class Patient(DynamicSupervisor):
            def on_give_up(self, child_id: object, reason: object) -> None:
                given_up.append((child_id, type(reason)))

        supervisor = world.system.start(Patient, budget="child", intensity=2)
        for name in "ab":
            start_child(supervisor, ChildSpec(name, Puppet, (name,), name=name), timeout=5)
        for _ in range(3):
            end(world, "a", Crashed(Boom()))
        end(world, "b", Crashed(Boom()))

        assert given_up == [("a", Crashed)]
        assert states(supervisor) == {"b": "running"}
        assert "child_given_up" in world.kinds()

    def test_a_policy_of_the_program_decides(self, world: World):
        asked: list[object] = []

        class Policy:
            def allows(self, child_id: object, now: float) -> bool:
                asked.append((child_id, now))
                return child_id != "b"

        supervisor = world.system.start(DynamicSupervisor, budget=Policy())
        for name in "ab":
            start_child(supervisor, ChildSpec(name, Puppet, (name,), name=name), timeout=5)
        world.advance(2)
        for name in "ab":
            end(world, name, Crashed(Boom()))

        assert states(supervisor) == {"a": "running"}
        assert asked == [("a", 2.0), ("b", 2.0)]

    def test_the_shared_budget_is_spent_by_siblings_together(self, world: World):
        """Actor-ts: OTP's rule, kept."""
        supervisor = world.system.start(DynamicSupervisor, intensity=3)
        reason = world.system.monitor_from_outside(supervisor)
        for name in "abcd":
            start_child(supervisor, ChildSpec(name, Puppet, (name,), name=name), timeout=5)
        for name in "abcd":
            end(world, name, Crashed(Boom()))

        assert isinstance(reason.get(timeout=5).term, RestartsExceeded)

    def test_an_unknown_budget_is_refused(self, world: World):
        with pytest.raises(Exception, match="budget") as caught:
            world.system.start(DynamicSupervisor, budget="family")
        assert isinstance(caught.value.__cause__, InvalidSpec)


class TestBackoff:
    def test_delays_grow_up_to_the_cap(self, simulated: World):
        """Supervision C54."""
        log: list[float] = []

        def note(actor: Puppet) -> None:
            log.append(round(actor.system.clock.monotonic(), 6))
            if len(log) > 1:
                raise Boom

        backoff = Backoff(0.1, 2, cap=0.3)
        spec = ChildSpec("a", Puppet, (), {"fail": note}, name="a")
        simulated.system.start(Supervisor, [spec], intensity=100, backoff=backoff)
        simulated.system.whereis("a").tell(crash)
        simulated.advance(1.3)

        assert log == [0.0, 0.1, 0.3, 0.6, 0.9, 1.2]

    def test_a_stable_life_resets_the_delay_but_not_the_budget(self, simulated: World):
        """Supervision C54, firstmate."""
        backoff = Backoff(0.1, 2, cap=10, stable_after=5)
        supervisor = tree(simulated, "a", [], intensity=3, period=1000, backoff=backoff)
        reason = simulated.system.monitor_from_outside(supervisor)
        for _ in range(3):
            end(simulated, "a", Crashed(Boom()))
            simulated.advance(0.1)
            assert states(supervisor) == {"a": "running"}
            simulated.advance(6)
        end(simulated, "a", Crashed(Boom()))

        assert reason.done()

    def test_a_short_life_does_not_reset_the_delay(self, simulated: World):
        log: list[object] = []
        backoff = Backoff(1.0, 2, cap=10, stable_after=5)
        supervisor = tree(simulated, "a", log, intensity=9, period=1000, backoff=backoff)
        end(simulated, "a", Crashed(Boom()))
        simulated.advance(1.1)
        end(simulated, "a", Crashed(Boom()))
        simulated.advance(1.1)
        assert states(supervisor) == {"a": "restarting"}
        simulated.advance(1.0)

        assert len(starts(log)) == 3

    def test_terminating_during_the_delay_cancels_the_restart(self, simulated: World):
        """Supervision C54, anarlog."""
        log: list[object] = []
        supervisor = tree(simulated, "a", log, backoff=Backoff(1.0, cap=5.0))
        end(simulated, "a", Crashed(Boom()))
        assert states(supervisor) == {"a": "restarting"}
        terminate_child(supervisor, "a", timeout=0.5)
        delete_child(supervisor, "a", timeout=0.5)
        start_child(supervisor, ChildSpec("a", Puppet, ("new", log)), timeout=0.5)
        simulated.advance(30)

        assert starts(log) == ["a", "new"]
        assert states(supervisor) == {"a": "running"}

    @pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
    def test_a_delayed_group_is_down_until_its_time(self, simulated: World, strategy):
        log: list[object] = []
        supervisor = tree(simulated, "ab", log, strategy=strategy, backoff=Backoff(1.0, cap=1.0))
        end(simulated, "a", Crashed(Boom()))
        simulated.advance(0.5)
        assert states(supervisor)["a"] == "restarting"
        simulated.advance(0.6)

        assert states(supervisor) == {"a": "running", "b": "running"}
        assert ("b" in stops(log)) is (strategy != "one_for_one")

    def test_many_crashes_together_are_counted_exactly(self, simulated: World):
        """Hew: timers only send."""
        supervisor = simulated.system.start(
            DynamicSupervisor, intensity=100, period=1000, backoff=Backoff(0.5, cap=0.5)
        )
        reason = simulated.system.monitor_from_outside(supervisor)
        refs = [start_child(supervisor, ChildSpec(n, Puppet, (n,)), timeout=1) for n in range(100)]
        for ref in refs:
            ref.tell(crash)
        simulated.advance(2)
        assert count_children(supervisor, timeout=1).active == 100
        which_children(supervisor, timeout=1)[0].ref.tell(crash)
        simulated.settle()

        assert reason.done()

    @pytest.mark.parametrize(
        "wrong", [{"initial": -1}, {"factor": 0.5}, {"cap": 0.01}, {"cap": float("inf")},
                  {"stable_after": 0}],
    )  # fmt: skip
    def test_wrong_delays_are_refused(self, wrong):
        """Deployex: the cap is mandatory."""
        with pytest.raises(InvalidSpec):
            Backoff(**{"initial": 1.0, **wrong})


def test_requests_are_values():
    assert StartChild(ChildSpec("a", Puppet)) == StartChild(ChildSpec("a", Puppet))
    assert RestartChild("a") != RestartChild("b")
