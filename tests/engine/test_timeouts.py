"""Time limits of an attempt, a step and a run."""

from __future__ import annotations

import pytest

from beamweaver.engine.effects import SetTimer
from beamweaver.errors import NodeTimeout, RunTimeout, StepTimeout
from beamweaver.types import Completed, RetryPolicy, Send, TimeoutPolicy
from tests.engine.driver import HANGS, START_TIME, Driver, Later
from tests.engine.graphs import asks, fan, graph


def hangs(_state):
    return HANGS


def takes(seconds, **update):
    return lambda _s: Later(seconds, update or {"log": ["took"]})


class TestAttempts:
    def test_one_that_takes_too_long_fails_and_is_killed(self):
        """graph 4."""
        driver = Driver(fan(a=hangs, options={"a": {"timeout": 2}}))
        error = driver.fails({})
        assert isinstance(error, NodeTimeout)
        assert (error.node, error.timeout, len(driver.killed)) == ("a", 2, 1)

    def test_each_node_has_a_clock_of_its_own(self):
        """reference AU."""
        driver = Driver(fan(quick=None, slow=takes(300), options={"quick": {"timeout": 20}}))
        assert type(driver.invoke({})) is Completed

    def test_a_send_has_its_own_limit(self):
        """graph 62."""
        driver = Driver(graph("^>a", a=lambda _s: Send("w", {}, timeout=3), w=takes(5)))
        assert driver.fails({}).timeout == 3

    def test_a_send_limit_survives_a_crash(self):
        """graph 79."""
        driver = Driver(graph("^>a", a=lambda _s: Send("w", {}, timeout=3), w=takes(5)))
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("w"))
        driver.crash()
        assert isinstance(driver.fails(None), NodeTimeout)

    def test_a_sends_limit_wins_over_the_nodes(self):
        one = graph(
            "^>a", a=lambda _s: Send("w", {}, timeout=9), w=takes(5), options={"w": {"timeout": 1}}
        )
        assert type(Driver(one).invoke({})) is Completed

    def test_every_attempt_has_the_whole_limit(self):
        retry = RetryPolicy(max_attempts=2, initial_delay=1, jitter=False)
        ends = [HANGS, Later(1.5, {"log": ["ok"]})]
        one = fan(a=lambda _s: ends.pop(0), options={"a": {"timeout": 2, "retry": retry}})
        driver = Driver(one)
        assert driver.invoke({}).state["log"] == ["ok"]

    def test_a_late_result_is_refused(self):
        """peers 37."""
        driver = Driver(fan(a=takes(3), options={"a": {"timeout": 2}}))
        driver.fails({})
        assert driver.machine.state.values["log"] == []

    def test_a_late_result_of_an_attempt_does_not_end_the_next_one(self):
        """peers 38."""
        retry = RetryPolicy(max_attempts=2, initial_delay=0.5, jitter=False)
        ends = [Later(3, {"log": ["late"]}), Later(1, {"log": ["second"]})]
        one = fan(a=lambda _s: ends.pop(0), options={"a": {"timeout": 2, "retry": retry}})
        assert Driver(one).invoke({}).state["log"] == ["second"]

    @pytest.mark.parametrize("what", ["failed", "asked", "lost"])
    def test_whatever_a_given_up_attempt_says_is_refused(self, what):
        driver = Driver(fan(a=hangs, options={"a": {"timeout": 2}}))
        driver.fails({})
        (attempt,) = driver.started
        before = len(driver.commits)
        args = () if what == "lost" else (None,)
        getattr(driver.machine, what)(attempt, *args)
        driver.run()
        assert len(driver.commits) == before

    def test_a_timer_of_an_attempt_that_ended_never_ends_another(self):
        """A cut attempt's timer must not fire at the attempt after a continuation."""
        driver = Driver(fan(a=takes(3), options={"a": {"timeout": 5}}))
        driver.send_invoke({})
        driver.run(seconds=1)
        driver.machine.cut()
        driver.run(seconds=0)
        driver.now += 3
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.status == "complete"

    def test_a_timer_that_fired_too_late_ends_no_later_attempt(self):
        one = graph(
            "^>a a>b", a=None, b=takes(3), options={"a": {"timeout": 5}, "b": {"timeout": 5}}
        )
        driver = Driver(one)
        driver.send_invoke({})
        driver.run(until=lambda: driver.timers)
        (old,) = driver.timers
        driver.run(until=lambda: driver.runs("b"))
        driver.machine.fired(old)
        driver.run()
        assert driver.status == "complete"

    def test_no_timer_is_left_when_a_run_stops(self):
        one = fan(
            a=takes(3),
            b=takes(1),
            options={"a": {"timeout": 5}, "run_timeout": 60, "step_timeout": 50},
        )
        driver = Driver(one)
        driver.invoke({})
        assert driver.timers == {}

    def test_no_timer_is_left_when_a_run_is_cut(self):
        retry = RetryPolicy(max_attempts=2, initial_delay=9)
        options = {
            "a": {"timeout": 5},
            "bad": {"retry": retry},
            "run_timeout": 60,
            "step_timeout": 50,
        }

        def bad(_state):
            raise ValueError("boom")

        driver = Driver(fan(a=hangs, bad=bad, options=options))
        driver.send_invoke({})
        driver.run(seconds=1)
        assert len(driver.timers) == 4
        driver.machine.cut()
        driver.run(seconds=0)
        assert driver.timers == {}


class TestSteps:
    def test_a_step_that_takes_too_long_stops_the_run(self):
        """graph 66."""
        driver = Driver(fan(a=takes(9), b=takes(8), options={"step_timeout": 5}))
        error = driver.fails({})
        assert isinstance(error, StepTimeout)
        assert (
            "step 1 of thread 't' took longer than its step_timeout of 5 s; unfinished: a, b"
            in str(error)
        )
        assert driver.machine.state.values["log"] == []

    def test_results_that_came_in_time_are_kept(self):
        driver = Driver(fan(quick=takes(1), slow=takes(9), options={"step_timeout": 5}))
        driver.fails({})
        assert driver.machine.state.step.tasks[0].result is not None

    def test_it_can_be_continued(self):
        ends = [HANGS, {"log": ["ok"]}]
        driver = Driver(fan(a=lambda _s: ends.pop(0), options={"step_timeout": 5}))
        driver.fails({})
        driver.crash()
        assert driver.go_on().state["log"] == ["ok"]

    def test_each_step_has_the_whole_limit(self):
        driver = Driver(graph("^>a a>b", a=takes(4), b=takes(4), options={"step_timeout": 5}))
        assert type(driver.invoke({})) is Completed

    def test_a_call_may_give_its_own(self):
        driver = Driver(fan(a=takes(9)))
        assert isinstance(driver.fails({}, step_timeout=5.0), StepTimeout)

    def test_it_includes_waits_between_attempts(self):
        retry = RetryPolicy(max_attempts=9, initial_delay=4, max_delay=4, jitter=False)

        def bad(_state):
            raise ValueError("boom")

        driver = Driver(fan(bad=bad, options={"bad": {"retry": retry}, "step_timeout": 5}))
        assert isinstance(driver.fails({}), StepTimeout)
        assert driver.runs("bad") == 2

    def test_it_includes_the_routers(self):
        driver = Driver(
            graph("^>a", a=None, routers=[("a", lambda _s: "a")], options={"step_timeout": 5})
        )
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.actions.clear()
        driver.run()
        assert driver.status == "failed"
        assert "unfinished: routers" in driver.machine.state.step.failure.message

    def test_a_limit_that_passes_while_the_step_is_written_does_not_stop_the_next_one(self):
        driver = Driver(graph("^>a a>b", a=takes(4), b=takes(4), options={"step_timeout": 5}))
        driver.send_invoke({})
        driver.run(until=lambda: len(driver.started) == 1)
        (key,) = [key for key in driver.timers if key[0] == "step"]
        driver.run(until=lambda: len(driver.commits) == 1 and driver.machine.in_flight)
        driver.machine.fired(key)
        driver.run()
        assert driver.status == "complete"

    def test_many_unfinished_tasks_are_counted(self):
        nodes = {f"n{i:02}": hangs for i in range(13)}
        driver = Driver(fan(**nodes, options={"step_timeout": 5}))
        assert "n09 and 3 more" in str(driver.fails({}))


class TestRuns:
    def test_a_run_that_takes_too_long_is_stopped(self):
        """graph 67."""
        one = graph("^>a a>b b>c", a=takes(4), b=takes(4), c=takes(4), options={"run_timeout": 10})
        driver = Driver(one)
        error = driver.fails({})
        assert isinstance(error, RunTimeout)
        assert "run 1 of thread 't' took longer than its run_timeout of 10 s; unfinished: c" in str(
            error
        )

    def test_a_continuation_has_the_whole_limit(self):
        one = graph("^>a a>b b>c", a=takes(4), b=takes(4), c=takes(4), options={"run_timeout": 10})
        driver = Driver(one)
        driver.fails({})
        assert type(driver.go_on()) is Completed

    def test_a_call_may_give_its_own(self):
        assert isinstance(Driver(fan(a=takes(9))).fails({}, run_timeout=5.0), RunTimeout)

    def test_it_does_not_run_while_a_question_is_open(self):
        driver = Driver(fan(ask=asks(), options={"run_timeout": 10}))
        driver.invoke({})
        driver.now += 1_000
        assert type(driver.resume("yes")) is Completed

    def test_one_that_passes_while_the_last_step_is_written_changes_nothing(self):
        driver = Driver(fan(a=takes(4), options={"run_timeout": 5}))
        driver.send_invoke({})
        driver.run(until=lambda: len(driver.commits) == 1 and driver.machine.in_flight)
        (key,) = driver.timers
        driver.machine.fired(key)
        driver.run()
        assert driver.status == "complete"

    def test_one_that_passes_while_a_step_is_written_stops_the_run_after_it(self):
        driver = Driver(graph("^>a a>b", a=takes(4), b=None, options={"run_timeout": 5}))
        driver.send_invoke({})
        driver.run(until=lambda: len(driver.commits) == 1 and driver.machine.in_flight)
        (key,) = driver.timers
        driver.machine.fired(key)
        driver.run()
        assert (driver.status, driver.log) == ("failed", ["a"])

    def test_a_timer_of_an_older_step_says_nothing(self):
        driver = Driver(fan(a=None, options={"run_timeout": 5}))
        driver.invoke({})
        for key in (("run", 1), ("step", 1), ("retry", 0, 1), ("attempt", 0, 1), ("other",)):
            driver.machine.fired(key)
        driver.run()
        assert driver.status == "complete"


IDLE = TimeoutPolicy(idle=2)


def beats(driver):
    """The attempt that runs gives a sign of life."""
    driver.started[-1].beat(driver.env.clock())


class TestIdle:
    """semantics 7: `TimeoutPolicy(idle=…)`, seconds without a sign of life."""

    def started(self, one):
        driver = Driver(one)
        driver.sent = driver.send_invoke({})
        driver.run(seconds=1)
        return driver

    def test_an_attempt_without_a_sign_of_life_fails(self):
        driver = self.started(fan(a=hangs, options={"a": {"timeout": IDLE}}))
        driver.run()
        with pytest.raises(NodeTimeout, match=r"no sign of life within its idle timeout of 2 s"):
            driver.answer(driver.sent)
        assert driver.now - START_TIME == pytest.approx(2)
        assert len(driver.killed) == 1

    def test_each_sign_of_life_begins_the_time_anew(self):
        driver = self.started(fan(a=hangs, options={"a": {"timeout": IDLE}}))
        beats(driver)
        driver.run(seconds=1.5)
        beats(driver)
        driver.run()
        assert isinstance(driver.replies[driver.sent.id].error, NodeTimeout)
        assert driver.now - START_TIME == pytest.approx(4.5)

    def test_one_that_ends_in_time_leaves_no_timer(self):
        driver = Driver(fan(a=takes(1), options={"a": {"timeout": IDLE}}))
        assert type(driver.invoke({})) is Completed
        assert driver.timers == {}

    def test_the_timer_of_an_attempt_that_ended_says_nothing(self):
        one = graph("^>a a>b", a=None, b=takes(9), options={"a": {"timeout": IDLE}})
        driver = self.started(one)
        (late,) = {e.key for e in driver.effects if type(e) is SetTimer and e.key[0] == "idle"}
        driver.machine.fired(late)
        driver.run()
        assert type(driver.answer(driver.sent)) is Completed

    def test_a_sign_of_life_inside_is_one_of_all_around(self):
        child = graph("^>x", name="child", x=takes(5))
        driver = self.started(fan(c=child, options={"c": {"timeout": IDLE}}))
        beats(driver)
        driver.run(seconds=1.5)
        assert driver.status == "running"
        driver.run(until=lambda: driver.replies)
        assert isinstance(driver.replies[driver.sent.id].error, NodeTimeout)
        assert driver.now - START_TIME == pytest.approx(3)


def test_a_call_that_takes_a_run_up_gives_it_its_own_limits():
    """Each option that the call gives replaces the run's; the others hold."""
    driver = Driver(fan(a=takes(5)), recover=False)
    driver.send_invoke({}, run_timeout=90.0, step_timeout=80.0)
    driver.run(seconds=1)
    driver.crash()
    with pytest.raises(StepTimeout, match="step_timeout of 2 s"):
        driver.go_on(step_timeout=2.0)
    assert driver.row.run.options.run_timeout == 90.0


def test_an_amendment_of_a_recovered_run_gives_it_its_whole_time():
    """semantics 6: a caller's continuation has a fresh `run_timeout`."""
    driver = Driver(fan(a=takes(8), options={"run_timeout": 10}))
    driver.send_invoke({"x": 1})
    driver.run(seconds=1)
    driver.crash()
    driver.run(seconds=6)
    call = driver.send_invoke({"x": 2})
    driver.run()
    assert driver.answer(call).state["x"] == 2
    assert driver.timers == {}
