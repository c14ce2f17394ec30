"""Cancel, drain and cut."""

from __future__ import annotations

import pytest

from beamweaver.engine import CallKind
from beamweaver.engine.failures import describe
from beamweaver.limits import Limits
from beamweaver.types import Cancelled, Completed, Drained, Interrupted, RetryPolicy
from tests.engine.driver import HANGS, Driver, Later
from tests.engine.graphs import asks, fails, fan, graph


def takes(seconds, name="slow"):
    return lambda _s: Later(seconds, {"log": [name]})


def begun(one, seconds=0.5, **options):
    """A run that executes since half a second."""
    driver = Driver(one, **options)
    driver.first = driver.send_invoke({})
    driver.run(seconds=seconds)
    return driver


class TestCancel:
    def test_the_run_is_cancelled_and_its_waiters_hear_it(self):
        driver = begun(fan(a=takes(9)))
        assert type(driver.call(CallKind.CANCEL)) is Cancelled
        assert type(driver.answer(driver.first)) is Cancelled

    def test_it_ends_only_when_the_bodies_have_ended(self):
        """peers 43."""
        driver = begun(fan(a=takes(9), b=takes(9)))
        call = driver.send(CallKind.CANCEL)
        driver.advance()
        driver.step()
        driver.advance()
        early = call.id in driver.replies
        driver.run()
        assert (early, call.id in driver.replies) == (False, True)

    def test_a_second_one_waits_for_the_same_bodies(self):
        driver = begun(fan(a=takes(9)))
        calls = [driver.send(CallKind.CANCEL) for _time in range(2)]
        driver.run()
        assert [type(driver.answer(call)) for call in calls] == [Cancelled] * 2
        assert len(driver.killed) == 1

    def test_one_of_another_run_leaves_this_one(self):
        driver = begun(fan(a=takes(9)))
        driver.call(CallKind.CANCEL, run_id="another")
        assert type(driver.answer(driver.first)) is Completed

    def test_one_of_this_run_by_its_name_cancels_it(self):
        driver = begun(fan(a=takes(9)))
        assert type(driver.call(CallKind.CANCEL, run_id=driver.first.run_id)) is Cancelled

    def test_one_of_a_call_that_waits_for_this_run_cancels_it(self):
        driver = begun(fan(a=takes(9)), limits=Limits(run_names=2))  # no room for its drawn name
        joins = driver.send(CallKind.CONTINUE)
        driver.advance()
        driver.call(CallKind.CANCEL, run_id=joins.run_id)
        assert type(driver.answer(joins)) is Cancelled

    def test_results_that_come_meanwhile_are_kept(self):
        driver = begun(fan(a=takes(9), b=takes(9)))
        driver.send(CallKind.CANCEL)
        driver.advance()
        attempt = driver.started[0]
        driver.machine.succeeded(attempt, driver._judged(attempt, {"log": ["a"]}))
        driver.run()
        assert driver.go_on().state["log"] == ["a", "slow"]
        assert (driver.runs("a"), driver.runs("b")) == (1, 2)

    def test_a_question_that_comes_meanwhile_is_kept(self):
        driver = Driver(fan(ask=asks(), slow=takes(9)))
        driver.send_invoke({})
        driver.advance()
        driver.step()
        driver.run(until=lambda: driver.runs("ask"))
        outcome = driver.call(CallKind.CANCEL)
        assert outcome.interrupt.value == "ok?"

    def test_a_failure_that_comes_meanwhile_is_kept(self):
        driver = begun(fan(a=takes(9)))
        driver.send(CallKind.CANCEL)
        driver.advance()
        driver.machine.failed(driver.started[0], describe(ValueError("late"), "a", "t", 1))
        driver.run()
        assert driver.status == "cancelled"
        assert driver.machine.state.step.tasks[0].failure.message == "late"

    def test_tasks_that_wait_to_start_or_to_be_tried_again_do_not(self):
        options = {"bad": {"retry": RetryPolicy(initial_delay=5)}, "max_concurrency": 2}
        driver = begun(fan(bad=fails(1), a=takes(9), b=takes(9), c=None, options=options))
        driver.call(CallKind.CANCEL)
        assert sorted(driver.log) == ["a", "b", "bad"]

    def test_a_timer_says_nothing_while_bodies_end(self):
        driver = begun(fan(a=takes(9), options={"a": {"timeout": 1}, "step_timeout": 2}))
        driver.send(CallKind.CANCEL)
        driver.advance()
        driver.now += 5
        driver.run()
        assert driver.status == "cancelled"

    def test_a_limit_that_passes_while_bodies_end_changes_nothing(self):
        driver = begun(fan(a=takes(9), options={"run_timeout": 60}))
        (key,) = driver.timers
        driver.send(CallKind.CANCEL)
        driver.advance()
        driver.machine.fired(key)
        driver.run()
        assert driver.status == "cancelled"

    def test_routers_are_stopped(self):
        one = graph("^>a", a=None, b=None, routers=[("a", lambda _s: "b")])
        driver = Driver(one)
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.call(CallKind.CANCEL)
        assert driver.go_on().state["log"] == ["a", "b"]
        assert driver.runs("a") == 1

    def test_routers_that_failed_too_late_say_nothing(self):
        one = graph("^>a", a=None, routers=[("a", lambda _s: 1 / 0)])
        driver = Driver(one)
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.call(CallKind.CANCEL)
        assert driver.status == "cancelled"

    def test_a_cancelled_run_can_be_restarted(self):
        driver = begun(fan(a=takes(1)))
        driver.call(CallKind.CANCEL)
        assert type(driver.invoke({"x": 1}, on_unfinished="restart")) is Completed

    def test_what_was_cancelled_is_cancelled_in_the_store_when_it_is_told(self):
        driver = begun(fan(a=takes(9)))
        call = driver.send(CallKind.CANCEL)
        driver.run(until=lambda: call.id in driver.replies)
        assert driver.stored_status == "cancelled"


class TestCancelFirst:
    """`on_busy="cancel"`."""

    def test_the_call_finds_a_cancelled_thread(self):
        driver = begun(fan(a=takes(9), ok=None))
        outcome = driver.invoke({"n": 10}, on_busy="cancel")
        assert (outcome.state["n"], outcome.state["log"]) == (10, ["ok", "slow"])
        assert type(driver.answer(driver.first)) is Cancelled
        assert (driver.runs("a"), driver.runs("ok"), driver.row.run.number) == (2, 1, 1)

    def test_with_a_restart_it_stops_that_and_does_this(self):
        driver = begun(fan(a=takes(9), ok=None))
        outcome = driver.invoke({"n": 10}, on_busy="cancel", on_unfinished="restart")
        assert (outcome.state["log"], driver.row.run.number) == (["slow", "ok"], 2)

    def test_it_starts_only_when_the_bodies_have_ended(self):
        driver = begun(fan(a=takes(9)))
        driver.send_invoke({"n": 10}, on_busy="cancel")
        driver.advance()
        driver.actions.clear()
        driver.run(seconds=1)
        assert driver.runs("a") == 1

    def test_calls_that_only_wait_hear_of_the_cancel(self):
        driver = begun(fan(a=takes(9)))
        waits = driver.send_invoke({"n": 1})
        driver.send_invoke({"n": 10}, on_busy="cancel")
        driver.run()
        assert type(driver.answer(waits)) is Cancelled

    def test_a_told_one_is_kept_first(self):
        driver = begun(fan(a=takes(9)))
        driver.tell({"n": 10}, on_busy="cancel")
        driver.run()
        assert driver.machine.state.values["n"] == 10
        assert driver.inbox == ()

    @pytest.mark.parametrize("recover", [True, False])
    def test_one_that_a_dead_process_was_told_still_cancels(self, recover):
        driver = begun(fan(a=takes(9), ok=None))
        driver.tell({"n": 10}, on_busy="cancel", on_unfinished="restart")
        driver.run(until=lambda: driver.inbox != ())
        driver.recover = recover
        driver.crash()
        driver.run()
        rows = [commit.thread.status for commit in driver.commits if commit.thread is not None]
        assert "cancelled" in rows
        assert driver.inbox == ()
        assert (driver.row.run.number, driver.machine.state.values["log"]) == (2, ["slow", "ok"])


class TestDrain:
    def test_what_runs_ends_and_nothing_more_starts(self):
        driver = begun(graph("^>a a>b", a=takes(1), b=None))
        driver.machine.drain()
        driver.run()
        assert type(driver.answer(driver.first)) is Drained
        assert driver.log == ["a"]

    def test_a_run_whose_last_step_ends_meanwhile_is_complete(self):
        driver = begun(fan(a=takes(1)))
        driver.machine.drain()
        driver.run()
        assert type(driver.answer(driver.first)) is Completed

    def test_a_run_whose_last_task_fails_meanwhile_has_failed(self):
        driver = begun(fan(a=lambda _s: Later(1, ValueError("boom"))))
        driver.machine.drain()
        driver.run()
        assert driver.stored_status == "failed"

    def test_a_run_whose_last_task_asks_meanwhile_waits(self):
        driver = begun(fan(slow=takes(1), ask=asks()))
        driver.machine.drain()
        driver.run()
        assert type(driver.answer(driver.first)) is Interrupted

    def test_no_router_is_asked_any_more(self):
        asked = []
        one = graph("^>a", a=takes(1), b=None, routers=[("a", lambda _s: asked.append(1) or "b")])
        driver = begun(one)
        driver.machine.drain()
        driver.run()
        assert asked == []
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["slow", "b"]
        assert driver.runs("a") == 1

    def test_a_router_that_was_asked_ends(self):
        driver = Driver(graph("^>a", a=None, b=None, routers=[("a", lambda _s: "b")]))
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.machine.drain()
        driver.run()
        assert driver.stored_status == "drained"
        assert driver.machine.state.step.tasks[0].node == "b"

    def test_waits_between_attempts_end(self):
        """peers 41."""
        options = {"bad": {"retry": RetryPolicy(initial_delay=60, max_delay=60)}}
        driver = begun(fan(bad=fails(1), options=options))
        driver.machine.drain()
        driver.run(seconds=0)
        assert driver.stored_status == "drained"
        assert driver.timers == {}

    def test_the_rest_of_a_wait_is_waited_by_the_next_process(self):
        options = {"bad": {"retry": RetryPolicy(initial_delay=60, max_delay=60, jitter=False)}}
        driver = begun(fan(bad=fails(1), options=options))
        driver.machine.drain()
        driver.run(seconds=0)
        driver.crash()
        driver.run(seconds=59)
        early = driver.runs("bad")
        driver.run(seconds=1)
        assert (early, driver.runs("bad")) == (1, 2)

    def test_an_attempt_that_fails_meanwhile_keeps_those_that_are_left(self):
        ends = [ValueError("boom"), {"log": ["a"]}]
        options = {"a": {"retry": RetryPolicy(max_attempts=2)}}
        driver = begun(fan(a=lambda _s: Later(1, ends.pop(0)), options=options))
        driver.machine.drain()
        driver.run()
        assert (driver.stored_status, driver.runs("a"), driver.timers) == ("drained", 1, {})
        driver.crash()
        driver.run()
        assert driver.stored_status == "complete"
        assert [attempt.number for attempt in driver.started] == [1, 2]

    def test_a_last_attempt_that_fails_while_the_run_is_cancelled_is_kept_as_failed(self):
        options = {"a": {"retry": RetryPolicy()}}
        driver = begun(fan(a=takes(9), options=options))
        driver.send(CallKind.CANCEL)
        driver.advance()
        driver.machine.failed(driver.started[0], describe(ValueError("late"), "a", "t", 1))
        driver.run()
        assert driver.machine.state.step.tasks[0].failure.message == "late"

    def test_a_drain_of_a_thread_that_rests_changes_nothing(self):
        driver = Driver(fan(a=None))
        driver.invoke({})
        driver.machine.drain()
        driver.machine.cut()
        driver.run()
        assert driver.stored_status == "complete"

    def test_a_drain_in_the_middle_of_a_commit_stops_after_it(self):
        driver = Driver(graph("^>a a>b", a=None, b=None))
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("a") and driver.machine.in_flight)
        driver.machine.drain()
        driver.run()
        assert (driver.log, driver.stored_status) == (["a"], "drained")

    def test_a_cancel_of_a_run_that_drains_cancels_it(self):
        driver = begun(fan(a=takes(9)))
        driver.machine.drain()
        assert type(driver.call(CallKind.CANCEL)) is Cancelled


class TestCut:
    def test_bodies_past_the_deadline_are_cut_and_run_again_in_the_next_process(self):
        ends = [HANGS, {"log": ["a"]}]
        driver = begun(fan(a=lambda _s: ends.pop(0), ok=None))
        driver.machine.drain()
        driver.run(seconds=1)
        driver.machine.cut()
        driver.run()
        assert type(driver.answer(driver.first)) is Drained
        driver.crash()
        driver.run()
        assert (driver.status, driver.runs("a"), driver.runs("ok")) == ("complete", 2, 1)

    def test_a_drain_counts_as_no_death(self):
        driver = begun(fan(a=takes(9)))
        for _process in range(5):
            driver.machine.cut()
            driver.run(seconds=0)
            driver.crash()
            driver.run(seconds=0.5)
        assert (driver.stored_status, driver.row.run.deaths) == ("running", 0)

    def test_a_run_that_is_being_cancelled_stays_cancelled(self):
        driver = begun(fan(a=takes(9)))
        driver.send(CallKind.CANCEL)
        driver.advance()
        driver.actions.clear()
        driver.machine.cut()
        driver.run()
        assert driver.stored_status == "cancelled"

    def test_a_router_is_cut(self):
        driver = Driver(graph("^>a", a=None, b=None, routers=[("a", lambda _s: "b")]))
        driver.send_invoke({})
        driver.run(until=lambda: driver.machine.transition is not None)
        driver.actions.clear()
        driver.machine.cut()
        driver.run()
        assert driver.stored_status == "drained"


class TestLost:
    def test_an_attempt_that_was_lost_starts_again_uncounted(self):
        driver = Driver(fan(a=lambda _s: HANGS if len(driver.started) == 1 else {"log": ["a"]}))
        driver.send_invoke({})
        driver.run()
        driver.machine.lost(driver.started[0])
        driver.run()
        assert [attempt.number for attempt in driver.started] == [1, 1]
        assert driver.status == "complete"


@pytest.mark.parametrize("seed", range(30))
def test_a_cancel_in_any_order_of_events_loses_no_acknowledged_result(seed):
    driver = Driver(graph("^>a ^>b ^>c a>d", a=None, b=takes(1), c=None, d=None), seed=seed)
    driver.checks = True
    driver.send_invoke({})
    driver.run(until=lambda: len(driver.started) > seed % 4)
    driver.send(CallKind.CANCEL)
    driver.run()
    if driver.status == "cancelled":
        driver.crash()
        driver.go_on()
    assert driver.faults == [], f"seed {seed}"
    assert driver.machine.state.values["log"] == ["a", "slow", "c", "d"], f"seed {seed}"
