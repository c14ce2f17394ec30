"""Sleeps: what is parked, how the run stands meanwhile, and when it goes on."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Slept
from beamweaver.engine import CallKind
from beamweaver.engine.state import Sleep
from beamweaver.errors import (
    NodeFailed,
    NothingToResume,
    RunTimeout,
    StepTimeout,
    ThreadBusy,
)
from beamweaver.events import RunSleeps, TaskStarted
from beamweaver.types import Cancelled, Drained, Interrupted, RetryPolicy
from tests.engine.driver import HANGS, Crashed, Driver, Later
from tests.engine.graphs import asks, fails, fan, graph, wrote


def sleeps(name, *seconds):
    """A node that sleeps, perhaps several times, and writes its name."""

    def node(_state, ctx):
        for each in seconds:
            ctx.sleep(each)
        return {"log": [name]}

    return node


def asleep(one=None, **options):
    """A driver whose run sleeps 100 s."""
    driver = Driver(one or graph("^>a a>b b>$", a=sleeps("a", 100), b=None, **options))
    driver.call_sent = driver.send_invoke({})
    driver.run(until=lambda: driver.machine.at_rest)
    assert driver.stored_status == "sleeping"
    return driver


class TestAsleep:
    def test_a_run_sleeps_and_goes_on_when_it_is_due(self):
        driver = asleep()
        began = driver.now
        driver.run()
        assert driver.answer(driver.call_sent).state["log"] == ["a", "b"]
        assert driver.now - began == pytest.approx(100)
        assert driver.runs("a") == 2

    def test_the_caller_waits_meanwhile(self):
        driver = asleep()
        driver.run(seconds=99)
        assert driver.call_sent.id not in driver.replies

    def test_it_is_told_when_it_is_durable(self):
        driver = asleep()
        driver.advance()
        (event,) = driver.told_events(RunSleeps)
        assert event.due == pytest.approx(driver.now + 100)

    def test_each_sleep_of_a_task_is_slept_once(self):
        driver = Driver(fan(a=sleeps("a", 10, 20, 30)))
        began = driver.now
        assert driver.invoke({}).state["log"] == ["a"]
        assert driver.now - began == pytest.approx(60)
        assert [entry.ordinal for entry in driver.entries(Slept)] == [0, 1, 2]
        assert driver.runs("a") == 4

    def test_siblings_finish_first(self):
        driver = Driver(fan(a=sleeps("a", 5), b=lambda _s: Later(9, {"log": ["b"]})))
        assert driver.invoke({}).state["log"] == ["a", "b"]
        assert driver.stored_status == "complete"
        assert driver.told_events(RunSleeps) == [], "a sibling ran longer than the sleep"

    def test_two_sleepers_wake_one_after_the_other(self):
        driver = asleep(fan(a=sleeps("a", 100), b=sleeps("b", 150)))
        began = driver.now
        driver.run(until=lambda: driver.runs("a") == 2)
        assert driver.now - began == pytest.approx(100)
        driver.run(until=lambda: driver.machine.at_rest)
        assert driver.status == "sleeping"
        driver.run()
        assert driver.now - began == pytest.approx(150)
        assert driver.answer(driver.call_sent).state["log"] == ["a", "b"]

    def test_who_is_waked_is_stored_as_running_first(self):
        driver = asleep()
        driver.run(until=lambda: driver.runs("a") == 2)
        assert driver.stored_status == "running"

    def test_a_retry_and_a_sleep_wait_side_by_side(self):
        policy = RetryPolicy(max_attempts=2, initial_delay=200, max_delay=200, jitter=False)
        one = fan(a=sleeps("a", 100), bad=fails(1), options={"bad": {"retry": policy}})
        driver = Driver(one)
        began = driver.now
        assert driver.invoke({}).state["log"] == ["a", "bad"]
        assert driver.now - began == pytest.approx(200)
        assert driver.told_events(RunSleeps) == []

    def test_a_sleep_and_a_failure_of_one_task_count_apart(self):
        policy = RetryPolicy(max_attempts=3, initial_delay=10, max_delay=10, jitter=False)
        left = [1]

        def node(_state, ctx):
            ctx.sleep(100)
            if left[0]:
                left[0] -= 1
                raise ValueError
            return {"log": [f"attempt {ctx.attempt}"]}

        driver = Driver(fan(a=node, options={"a": {"retry": policy}}))
        began = driver.now
        assert driver.invoke({}).state["log"] == ["attempt 2"]
        assert driver.now - began == pytest.approx(110)


class TestOtherEnds:
    def test_a_failed_sibling_fails_the_run_at_once(self):
        driver = Driver(fan(a=sleeps("a", 100), bad=fails(1)))
        began = driver.now
        assert isinstance(driver.fails({}), NodeFailed)
        assert driver.now == began
        assert driver.go_on().state["log"] == ["a", "bad"]
        assert driver.now - began == pytest.approx(100), "the sleep went on"

    def test_a_question_comes_before_a_sleep(self):
        driver = Driver(fan(a=sleeps("a", 100), ask=asks()))
        began = driver.now
        assert isinstance(driver.invoke({}), Interrupted)
        assert (driver.now, driver.status) == (began, "waiting")
        driver.now += 60
        assert driver.resume("yes").state["log"] == ["a", "ask:yes"]
        assert driver.now - began == pytest.approx(100)

    def test_a_node_may_sleep_and_ask(self):
        def node(_state, ctx):
            ctx.sleep(50)
            answer = ctx.interrupt("?")
            ctx.sleep(50)
            return {"log": [answer]}

        driver = Driver(fan(a=node))
        began = driver.now
        assert isinstance(driver.invoke({}), Interrupted)
        assert driver.now - began == pytest.approx(50)
        driver.crash()
        assert driver.resume("yes").state["log"] == ["yes"]
        assert driver.now - began == pytest.approx(100)

    def test_a_cancel_ends_the_sleep_and_the_thread_goes_on_on_request(self):
        driver = asleep()
        driver.send(CallKind.CANCEL)
        driver.run(seconds=1)
        assert isinstance(driver.answer(driver.call_sent), Cancelled)
        assert driver.stored_status == "cancelled"
        driver.run(seconds=500)
        assert driver.runs("a") == 1
        assert driver.go_on().state["log"] == ["a", "b"]

    def test_a_drain_leaves_it_as_it_sleeps(self):
        driver = asleep()
        commits = len(driver.commits)
        driver.machine.drain()
        driver.run()
        assert isinstance(driver.answer(driver.call_sent), Drained)
        assert (driver.stored_status, len(driver.commits)) == ("sleeping", commits)

    def test_who_falls_asleep_in_a_drain_is_left_asleep(self):
        driver = Driver(fan(a=lambda _s, ctx: Later(5) if ctx.sleep(100) else {"log": ["a"]}))
        call = driver.send_invoke({})
        driver.run(until=lambda: driver.actions and driver.actions[-1][0] == "end")
        driver.machine.drain()
        driver.run()
        assert isinstance(driver.answer(call), Drained)
        assert driver.stored_status == "sleeping"
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["a"]

    def test_a_step_that_is_cut_is_no_sleep(self):
        driver = Driver(graph("^>a", a=sleeps("a", 100), options={"step_timeout": 5}))
        assert driver.invoke({}).state["log"] == ["a"], "the timeout stands still"

    @pytest.mark.parametrize(
        ("option", "error"), [("step_timeout", StepTimeout), ("run_timeout", RunTimeout)]
    )
    def test_timeouts_stand_still_and_then_go_on(self, option, error):
        def node(_state, ctx):
            ctx.sleep(100)
            return HANGS

        one = graph("^>a ^>b", a=node, b=lambda _s: Later(5), options={option: 10})
        driver = Driver(one)
        began = driver.now
        assert isinstance(driver.fails({}), error)
        assert driver.now - began == pytest.approx(105), "5 s before the sleep, and 5 s after it"

    def test_the_time_that_a_run_used_is_stored(self):
        def node(_state, ctx):
            ctx.sleep(100)
            return HANGS

        one = graph("^>a ^>b", a=node, b=lambda _s: Later(5), options={"run_timeout": 10})
        driver = Driver(one)
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.dozes and driver.machine.at_rest)
        driver.crash()
        began = driver.now
        driver.run()
        assert driver.status == "failed"
        assert driver.now - began == pytest.approx(95 + 5)


class TestCalls:
    def test_another_input_waits_for_it(self):
        driver = asleep()
        call = driver.send_invoke({"log": ["next"]})
        driver.run(seconds=50)
        assert call.id not in driver.replies
        driver.run()
        assert driver.answer(call).state["log"] == ["a", "b", "next", "a", "b"]

    def test_it_is_busy(self):
        driver = asleep()
        call = driver.send_invoke({"log": ["next"]}, on_busy="reject")
        driver.run(seconds=1)
        with pytest.raises(ThreadBusy):
            driver.answer(call)

    def test_a_call_may_cancel_it_and_take_its_place(self):
        driver = asleep()
        call = driver.send_invoke({}, on_busy="cancel", on_unfinished="restart")
        began = driver.now
        driver.run()
        assert driver.answer(call).state["log"] == ["a", "b"]
        assert driver.now - began == pytest.approx(100)

    def test_a_call_without_input_waits_for_it(self):
        driver = asleep()
        assert driver.go_on().state["log"] == ["a", "b"]
        assert driver.runs("a") == 2

    def test_nothing_is_to_be_resumed(self):
        driver = asleep()
        call = driver.send(CallKind.RESUME, answer="yes")
        driver.run(seconds=1)
        with pytest.raises(NothingToResume, match="sleeps"):
            driver.answer(call)
        assert driver.machine.dozes


class TestCrashes:
    @pytest.mark.parametrize("away", [0, 30, 99, 100, 5_000])
    def test_the_rest_is_slept_in_the_next_process(self, away):
        driver = asleep()
        began = driver.now
        driver.now += away
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["a", "b"]
        assert driver.now - began == pytest.approx(max(away, 100), abs=0.01)

    @pytest.mark.parametrize("step", [-1_000_000, -50, 1_000_000])
    def test_a_clock_that_was_set_makes_no_sleep_longer(self, step):
        driver = asleep()
        driver.now += step
        driver.crash()
        began = driver.now
        driver.run()
        assert driver.machine.state.values["log"] == ["a", "b"]
        assert driver.now - began == pytest.approx(0 if step > 0 else 100)

    def test_no_death_counts_against_who_sleeps(self):
        driver = asleep()
        for _ in range(9):
            driver.crash()
            driver.run(until=lambda: driver.machine.at_rest)
        assert driver.stored_status == "sleeping"
        assert driver.row.run.deaths == 0

    def test_a_death_after_the_sleep_counts(self):
        driver = asleep()
        driver.run(until=lambda: driver.runs("a") == 2)
        driver.crash()
        driver.run(until=lambda: driver.stored_status == "running" and driver.machine.active)
        assert driver.row.run.deaths == 1

    @pytest.mark.parametrize("written", [False, True])
    @pytest.mark.parametrize("at", range(12))
    def test_a_crash_at_any_commit_changes_no_result(self, at, written):
        def node(_state, ctx):
            ctx.sleep(10)
            answer = "yes" if ctx.attempt else ""
            ctx.sleep(20)
            return {"log": [answer]}

        one = graph("^>a ^>b a>c b>c", a=node, b=sleeps("b", 15), c=None)
        driver = Driver(one, crash_at=at, written=written)
        call = driver.send_invoke({})
        try:
            driver.run()
        except Crashed:
            driver.crash()
            if driver.store.load("t") is None:
                call = driver.send_invoke({})
            driver.run()
        assert driver.machine.state.values["log"] == ["yes", "b", "c"]
        assert driver.stored_status == "complete"
        assert driver.faults == []
        assert call is not None

    def test_another_input_amends_a_sleep_that_a_dead_process_left(self):
        driver = asleep()
        driver.crash()
        driver.run(until=lambda: driver.machine.at_rest)
        began = driver.now
        assert driver.invoke({"log": ["amended"]}).state["log"] == ["amended", "a", "b"]
        assert driver.now - began == pytest.approx(100)

    def test_the_sleep_of_a_sibling_that_finished_before_is_over(self):
        driver = asleep(fan(a=sleeps("a", 100), b=sleeps("b", 150, 50)))
        driver.run(until=lambda: driver.runs("a") == 2)
        driver.run(until=lambda: driver.machine.at_rest)
        driver.crash()
        driver.run(until=lambda: driver.runs("b") == 2 and driver.machine.at_rest)

        assert driver.row.run.due_us / 1e6 - driver.now == pytest.approx(50)

    def test_so_it_is_inside_of_a_graph_that_is_a_node(self):
        inner = fan(a=sleeps("a", 100), b=sleeps("b", 150, 50))
        driver = asleep(fan(inner=inner))
        began = driver.now
        driver.run(until=lambda: driver.runs("a") == 2)
        driver.run(until=lambda: driver.machine.at_rest)
        driver.crash()
        driver.run()

        assert driver.machine.state.values["log"] == ["a", "b"]
        assert driver.now - began == pytest.approx(200)
        assert driver.runs("b") == 3

    def test_an_actor_that_dies_in_a_sleep_sleeps_on(self):
        driver = asleep()
        commits = len(driver.commits)
        driver.restart_actor()
        driver.run(until=lambda: driver.machine.at_rest and driver.machine.dozes)
        assert len(driver.commits) == commits
        driver.run()
        assert driver.answer(driver.call_sent).state["log"] == ["a", "b"]

    @pytest.mark.parametrize("seed", range(30))
    def test_any_order_of_things_gives_the_same(self, seed):
        one = graph("^>a ^>b ^>c", a=sleeps("a", 5, 5), b=sleeps("b", 5), c=wrote("c"))
        driver = Driver(one, seed=seed)
        driver.checks = True
        assert driver.invoke({}).state["log"] == ["a", "b", "c"]
        assert len(driver.told_events(TaskStarted)) == 6


class TestWhatComesTooLate:
    def test_a_sleep_of_an_attempt_that_was_given_up_is_refused(self):
        driver = Driver(fan(a=lambda _s: HANGS, options={"a": {"timeout": 2}}))
        driver.fails({})
        (attempt,) = driver.started
        driver.machine.slept(attempt, Sleep(0, None, driver.env.now_us(), 5.0))
        driver.run()
        assert driver.entries(Slept) == []

    def test_the_timer_of_a_sleep_that_is_over_wakes_nobody(self):
        driver = asleep(graph("^>a", a=sleeps("a", 100, 100)))
        driver.run(seconds=1)
        ((old, _at),) = driver.timers.items()
        driver.run(seconds=100)
        driver.machine.fired(old)
        driver.run(seconds=1)
        assert (driver.runs("a"), driver.stored_status) == (2, "sleeping")

    def test_a_run_that_is_cut_while_its_waking_is_written_starts_nothing(self):
        driver = asleep()
        driver.run(until=lambda: not driver.machine.at_rest and driver.machine.in_flight)
        driver.machine.cut()
        driver.run()
        assert (driver.runs("a"), driver.status) == (1, "drained")


def test_a_sleep_that_the_stores_index_says_is_over_is_over():
    """The clock may have been set back since the due time was noticed."""
    driver = asleep()
    driver.recover = False
    driver.crash()
    driver.machine.begin(recover=True, due=True)
    began = driver.now
    driver.run()
    assert driver.status == "complete"
    assert driver.now == began


def test_of_several_sleeps_only_those_that_are_over_by_then_are():
    driver = asleep(fan(a=sleeps("a", 100), b=sleeps("b", 300)))
    driver.recover = False
    driver.crash()
    driver.machine.begin(recover=True, due=True)
    driver.run(seconds=0)
    assert [task.asleep for task in driver.machine.state.step.tasks] == [False, True]


def test_a_run_sleeps_where_nobody_listens():
    driver = Driver(fan(a=sleeps("a", 100)), publishing=False)
    driver.invoke({})
    assert (driver.status, driver.events) == ("complete", [])
