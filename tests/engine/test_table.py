"""Calls on an existing thread: the table of semantics 5, row by row."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.records import Continued
from beamweaver.engine import CallKind
from beamweaver.errors import (
    NodeFailed,
    NothingToContinue,
    NothingToResume,
    Quarantined,
    ThreadBusy,
    UnfinishedRun,
    UnknownRun,
    WrongGraph,
)
from beamweaver.types import Cancelled, Completed, Drained, Interrupted, RetryPolicy
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fails, fails_once, fan, graph, line, wrote

INPUT = {"n": 1}
OTHER = {"n": 10}


def slow(name="slow"):
    """A node that takes a second."""
    return lambda _s: Later(1, {"log": [name]})


def new():
    return Driver(line("a"))


def complete():
    driver = new()
    driver.invoke(INPUT, run_id="R")
    return driver


def failed(times=1):
    driver = Driver(fan(ok=None, bad=fails(times)))
    driver.fails(INPUT, run_id="R")
    return driver


def waiting():
    driver = Driver(fan(ok=None, ask=asks()))
    driver.invoke(INPUT, run_id="R")
    return driver


def running():
    driver = Driver(fan(slow=slow()))
    driver.first = driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    return driver


def cancelled(node=None):
    driver = Driver(fan(ok=None, slow=node or slow()))
    driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    driver.call(CallKind.CANCEL)
    return driver


def drained():
    driver = Driver(graph("^>slow slow>b", slow=slow(), b=None))
    driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    driver.machine.drain()
    driver.run()
    driver.recover = False
    driver.crash()
    return driver


def left(*, recover, until_end=False, **nodes):
    """A thread that a dead process left."""
    driver = Driver(fan(**(nodes or {"ok": None, "slow": slow()})))
    driver.send_invoke(INPUT)
    driver.run(seconds=0.5)
    driver.recover = recover
    driver.crash()
    if recover:
        driver.run(seconds=None if until_end else 0.5)
    return driver


def quarantined():
    driver = Driver(fan(slow=slow()))
    driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    for _death in range(3):
        driver.crash()
        driver.run(seconds=0.1)
    assert driver.stored_status == "quarantined"
    return driver


class TestNew:
    def test_an_invoke_starts(self):
        assert type(new().invoke(INPUT)) is Completed

    def test_a_continuation_has_nothing_to_continue(self):
        with pytest.raises(NothingToContinue):
            new().go_on()

    def test_an_answer_has_nothing_to_resume(self):
        """reference O."""
        with pytest.raises(NothingToResume):
            new().resume("yes")

    @pytest.mark.parametrize("kind", [CallKind.CANCEL, CallKind.RELEASE])
    def test_there_is_nothing_to_stop_or_release(self, kind):
        with pytest.raises(NothingToContinue):
            new().call(kind)


class TestComplete:
    def test_an_invoke_starts_a_run_on_top_of_its_state(self):
        """graph 69."""
        driver = complete()
        outcome = driver.invoke(OTHER)
        assert (outcome.state["n"], outcome.state["log"]) == (11, ["a", "a"])
        assert driver.row.run.number == 2

    def test_an_equal_invoke_starts_a_run_too(self):
        assert complete().invoke(INPUT).state["n"] == 2

    def test_the_same_run_id_gives_its_outcome_and_runs_nothing(self):
        driver = complete()
        assert driver.invoke(OTHER, run_id="R").state["n"] == 1
        assert driver.runs("a") == 1

    def test_a_continuation_gives_its_state_and_runs_nothing(self):
        driver = complete()
        outcome = driver.go_on()
        assert (type(outcome), outcome.state["n"], driver.runs("a")) == (Completed, 1, 1)

    def test_an_answer_has_nothing_to_resume(self):
        with pytest.raises(NothingToResume, match="complete"):
            complete().resume("yes")

    def test_a_resume_without_an_answer_is_a_continuation(self):
        assert type(complete().resume()) is Completed

    def test_an_empty_input_starts_a_run(self):
        driver = complete()
        driver.invoke({})
        assert driver.runs("a") == 2

    def test_the_run_id_of_an_older_run_gives_its_recorded_outcome(self):
        driver = complete()
        driver.invoke(OTHER)
        assert driver.invoke(OTHER, run_id="R")["n"] == 1
        assert driver.runs("a") == 2

    def test_an_older_run_that_was_replaced_has_no_outcome(self):
        driver = failed()
        driver.invoke(OTHER, on_unfinished="restart")
        with pytest.raises(UnknownRun):
            driver.invoke(INPUT, run_id="R")

    def test_a_cancel_tells_its_state(self):
        assert type(complete().call(CallKind.CANCEL)) is Completed


class TestFailed:
    def test_an_equal_input_joins_and_is_not_applied_again(self):
        driver = failed()
        assert driver.invoke(INPUT).state["n"] == 1

    def test_the_same_run_id_continues_and_applies_nothing(self):
        assert failed().invoke(OTHER, run_id="R").state["n"] == 1

    def test_another_input_amends(self):
        assert failed().invoke(OTHER).state["n"] == 11

    def test_the_last_input_is_the_one_that_may_be_equal(self):
        driver = failed(times=2)
        driver.fails(OTHER)
        assert driver.invoke(OTHER).state["n"] == 11

    def test_an_unknown_run_id_with_an_equal_input_amends(self):
        assert failed().invoke(INPUT, run_id="other").state["n"] == 2

    def test_an_amending_run_id_is_one_more_name_of_the_run(self):
        driver = failed(times=2)
        driver.fails(OTHER, run_id="two")
        assert driver.row.run.names == ("R", "two")
        driver.invoke(OTHER, run_id="two")
        assert driver.row.run.number == 1

    def test_failed_tasks_go_on_and_finished_ones_do_not(self):
        """graph 1."""
        driver = failed()
        driver.go_on()
        assert (driver.runs("ok"), driver.runs("bad")) == (1, 2)

    def test_a_resume_without_an_answer_is_a_continuation(self):
        assert type(failed().resume()) is Completed

    def test_an_answer_has_nothing_to_resume(self):
        with pytest.raises(NothingToResume, match="is failed and no question is open"):
            failed().resume("yes")

    def test_an_answer_to_an_open_question_runs_answered_and_failed_tasks(self):
        driver = Driver(fan(bad=fails_once(), ask=asks()))
        error = driver.fails({})
        assert [i.node for i in error.interrupts] == ["ask"]
        assert driver.resume("yes").state["log"] == ["bad", "ask:yes"]

    def test_a_continuation_leaves_an_open_question_open(self):
        driver = Driver(fan(bad=fails_once(), ask=asks()))
        driver.fails({})
        assert type(driver.go_on()) is Interrupted
        assert driver.runs("ask") == 1

    def test_it_is_refused_where_unfinished_runs_are(self):
        driver = failed()
        with pytest.raises(UnfinishedRun, match="failed"):
            driver.invoke(OTHER, on_unfinished="reject")
        assert driver.go_on().state["n"] == 1

    def test_a_cancel_tells_its_failure(self):
        with pytest.raises(NodeFailed):
            failed().call(CallKind.CANCEL)


class TestWaiting:
    def test_an_equal_input_joins_and_nothing_runs(self):
        driver = waiting()
        outcome = driver.invoke(INPUT)
        assert (type(outcome), outcome.state["n"], driver.runs("ask")) == (Interrupted, 1, 1)

    def test_another_input_amends_and_nothing_runs(self):
        driver = waiting()
        outcome = driver.invoke(OTHER)
        assert (outcome.state["n"], driver.runs("ask")) == (11, 1)
        assert driver.stored_status == "waiting"

    def test_a_continuation_is_asked_again(self):
        driver = waiting()
        first = driver.replies["c0"].outcome
        again = driver.go_on()
        assert again.interrupts == first.interrupts
        assert driver.runs("ask") == 1

    def test_an_answer_goes_on(self):
        assert waiting().resume("yes").state["log"] == ["ok", "ask:yes"]

    def test_it_is_refused_where_unfinished_runs_are(self):
        with pytest.raises(UnfinishedRun, match="waiting"):
            waiting().invoke(OTHER, on_unfinished="reject")

    def test_it_waits_after_a_crash_too(self):
        driver = waiting()
        driver.crash()
        assert driver.commits[-1].thread.status == "waiting"
        assert driver.resume("yes").state["log"] == ["ok", "ask:yes"]

    def test_a_cancel_tells_its_questions(self):
        assert type(waiting().call(CallKind.CANCEL)) is Interrupted


class TestRunning:
    def test_an_invoke_waits_behind_the_run(self):
        driver = running()
        outcome = driver.invoke(OTHER)
        assert (outcome.state["n"], driver.row.run.number) == (11, 2)
        assert driver.answer(driver.first).state["n"] == 1

    def test_an_equal_invoke_waits_too(self):
        driver = running()
        assert driver.invoke(INPUT).state["n"] == 2

    def test_a_busy_thread_may_be_refused(self):
        with pytest.raises(ThreadBusy, match="'R'"):
            running().invoke(OTHER, on_busy="reject")

    def test_the_same_run_id_joins(self):
        driver = running()
        assert driver.invoke(OTHER, run_id="R").state["n"] == 1
        assert driver.runs("slow") == 1

    def test_a_continuation_waits_for_it(self):
        driver = running()
        assert driver.go_on().state["n"] == 1
        assert driver.row.run.number == 1

    def test_a_continuation_with_a_run_id_gives_the_run_one_more_name(self):
        driver = running()
        driver.go_on(run_id="two")
        assert driver.row.run.names == ("R", "two")

    def test_an_answer_waits_behind_the_run(self):
        driver = Driver(fan(ask=asks("ask", "q"), slow=slow()))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        assert driver.resume("yes").state["log"] == ["ask:yes", "slow"]

    def test_an_answer_may_be_refused_while_it_runs(self):
        with pytest.raises(ThreadBusy):
            running().resume("yes", on_busy="reject")


class TestCancelled:
    def test_an_equal_input_joins_and_goes_on(self):
        driver = cancelled()
        outcome = driver.invoke(INPUT)
        assert (outcome.state["n"], driver.runs("ok"), driver.runs("slow")) == (1, 1, 2)

    def test_another_input_amends_and_goes_on(self):
        assert cancelled().invoke(OTHER).state["n"] == 11

    def test_a_continuation_goes_on(self):
        assert cancelled().go_on().state["log"] == ["ok", "slow"]

    def test_an_answer_has_nothing_to_resume(self):
        with pytest.raises(NothingToResume, match="cancelled"):
            cancelled().resume("yes")

    def test_an_answer_to_an_open_question_goes_on(self):
        driver = Driver(fan(ask=asks(), slow=slow()))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        assert driver.call(CallKind.CANCEL).interrupt.value == "ok?"
        assert driver.resume("yes").state["log"] == ["ask:yes", "slow"]

    def test_no_process_takes_it_up_by_itself(self):
        driver = cancelled()
        driver.crash()
        driver.run()
        assert (driver.stored_status, driver.runs("slow")) == ("cancelled", 1)


class TestDrained:
    def test_an_equal_input_joins_and_goes_on(self):
        driver = drained()
        assert driver.invoke(INPUT).state["n"] == 1
        assert driver.log == ["slow", "b"]

    def test_another_input_amends_and_goes_on(self):
        assert drained().invoke(OTHER).state["n"] == 11

    def test_another_input_amends_although_busy_threads_are_refused(self):
        assert drained().invoke(OTHER, on_busy="reject").state["n"] == 11

    def test_a_continuation_goes_on(self):
        assert drained().go_on().state["log"] == ["slow", "b"]

    def test_an_answer_without_a_question_goes_on(self):
        assert drained().resume("yes").state["log"] == ["slow", "b"]

    def test_an_answer_to_an_open_question_answers_and_goes_on(self):
        driver = Driver(fan(ask=asks(), slow=slow()))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.machine.cut()
        driver.run()
        driver.recover = False
        driver.crash()
        assert driver.resume("yes", on_busy="reject").state["log"] == ["ask:yes", "slow"]

    def test_a_cancel_stops_it_for_good(self):
        driver = drained()
        assert type(driver.call(CallKind.CANCEL)) is Cancelled
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.log == ["slow"]

    def test_the_next_process_takes_it_up_by_itself(self):
        driver = drained()
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.log == ["slow", "b"]


class TestLeft:
    """By a dead process; recovery has not begun, has begun, or has finished."""

    @pytest.mark.parametrize("recover", [False, True])
    def test_an_equal_input_joins(self, recover):
        driver = left(recover=recover)
        assert driver.invoke(INPUT).state["n"] == 1

    @pytest.mark.parametrize("recover", [False, True])
    def test_another_input_amends(self, recover):
        driver = left(recover=recover)
        assert driver.invoke(OTHER).state["n"] == 11
        assert driver.row.run.number == 1

    @pytest.mark.parametrize("recover", [False, True])
    def test_an_empty_input_joins(self, recover):
        driver = left(recover=recover)
        assert driver.invoke({}).state["n"] == 1
        assert driver.entries(Continued) == []

    @pytest.mark.parametrize("recover", [False, True])
    def test_a_continuation_goes_on(self, recover):
        assert left(recover=recover).go_on().state["log"] == ["ok", "slow"]

    @pytest.mark.parametrize("recover", [False, True])
    def test_an_equal_input_joins_whatever_it_says_of_unfinished_runs(self, recover):
        assert left(recover=recover).invoke(INPUT, on_unfinished="reject").state["n"] == 1

    @pytest.mark.parametrize("recover", [False, True])
    def test_another_input_is_refused_where_unfinished_runs_are(self, recover):
        with pytest.raises(UnfinishedRun):
            left(recover=recover).invoke(OTHER, on_unfinished="reject")

    def test_an_equal_input_on_a_run_that_recovery_finished_is_the_same_call(self):
        driver = left(recover=True, until_end=True)
        assert driver.invoke(INPUT).state["n"] == 1
        assert driver.row.run.number == 1

    def test_only_the_first_call_claims_a_run_that_recovery_finished(self):
        driver = left(recover=True, until_end=True)
        driver.invoke(INPUT)
        assert driver.invoke(INPUT).state["n"] == 2

    def test_only_the_first_call_joins_a_run_that_recovery_goes_on_with(self):
        driver = left(recover=True)
        first = driver.send_invoke(INPUT)
        second = driver.send_invoke(INPUT)
        driver.run()
        assert (driver.answer(first).state["n"], driver.answer(second).state["n"]) == (1, 2)

    def test_another_input_on_a_run_that_recovery_finished_starts_one(self):
        driver = left(recover=True, until_end=True)
        assert driver.invoke(OTHER).state["n"] == 11
        assert driver.row.run.number == 2

    def test_a_call_that_repeats_a_failed_run_goes_on_with_it(self):
        ends = [{}, ValueError("boom"), {"x": 1}]
        driver = left(recover=True, until_end=True, bad=lambda _s: Later(1, ends.pop(0)))
        assert driver.stored_status == "failed"
        assert driver.invoke(INPUT).state["n"] == 1

    def test_finished_tasks_do_not_run_again(self):
        driver = left(recover=False)
        driver.go_on()
        assert (driver.runs("ok"), driver.runs("slow")) == (1, 2)

    def test_one_record_takes_a_run_up_for_a_caller(self):
        driver = left(recover=False)
        before = len(driver.commits)
        driver.send_invoke(OTHER, run_id="two")
        driver.advance()
        driver.step()
        commit = driver.commits[before]
        assert (commit.thread.run.taken_up_epoch, commit.thread.run.claimed_epoch) == (2, 2)
        assert commit.thread.run.names[-1] == "two"
        assert [type(entry) for entry in commit.record.entries] == [Continued]

    def test_a_cancel_before_recovery_keeps_recovery_away(self):
        driver = left(recover=False)
        assert type(driver.call(CallKind.CANCEL)) is Cancelled
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.runs("slow") == 1

    def test_amending_a_recovered_run_restarts_its_counts(self):
        driver = left(recover=True, bad=fails(1), slow=slow())
        assert driver.invoke(OTHER).state["log"] == ["bad", "slow"]

    def test_an_amendment_of_a_recovered_run_survives_a_crash(self):
        driver = left(recover=True)
        driver.checks = True
        driver.send_invoke(OTHER)
        driver.run(seconds=0.1)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["n"] == 11

    def test_an_amendment_wakes_a_task_that_waits_for_its_next_attempt(self):
        retry = RetryPolicy(max_attempts=2, initial_delay=5.0, jitter=False)
        one = fan(bad=fails(2), slow=slow(), options={"bad": {"retry": retry}})
        driver = Driver(one)
        driver.send_invoke(INPUT)
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.1)
        driver.checks = True
        assert type(driver.invoke(OTHER)) is Completed
        assert driver.now < 1_700_000_010

    def test_an_amendment_cancels_the_routers_of_the_step(self):
        asked = []
        one = graph("^>a", a=None, b=None, routers=[("a", lambda s: asked.append(s["n"]) or "b")])
        driver = Driver(one)
        driver.send_invoke(INPUT)
        driver.run(until=lambda: driver.entries_kept() == 1)
        driver.crash()
        driver.run(until=lambda: driver.machine.transition is not None)
        assert driver.invoke(OTHER).state["n"] == 11
        assert asked[-1] == 11

    def test_an_amendment_that_does_not_merge_is_refused(self):
        one = fan(a=wrote("a", x=1), b=wrote("b", x=2), slow=slow())
        driver = Driver(one)
        driver.send_invoke({})
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.5)
        assert "wrote 'x'" in str(driver.fails(OTHER))

    def test_an_amendment_of_a_run_that_is_being_stopped_waits_behind_it(self):
        driver = left(recover=True)
        driver.send(CallKind.CANCEL)
        driver.advance()
        assert type(driver.invoke(OTHER)) is Cancelled

    def test_an_amendment_that_meets_a_failure_that_stops_the_run_gets_the_failure(self):
        nodes = {"bad": lambda _s: Later(1, ValueError("boom")), "slow": lambda _s: Later(9)}
        driver = Driver(fan(**nodes, options={"failure_policy": "panic"}))
        driver.send_invoke(INPUT)
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.5)
        driver._move_time(float("inf"))
        driver.step()
        with pytest.raises(NodeFailed, match="boom"):
            driver.invoke(OTHER)

    def test_an_attempt_that_was_amended_while_it_ran_keeps_its_beginning(self):
        policy = RetryPolicy(max_attempts=2, initial_delay=1, jitter=False)
        ends = [{}, ValueError("boom"), {"x": 1}]
        begun = []

        def node(_state, ctx):
            begun.append(ctx.first_attempt_at)
            return Later(1, ends.pop(0))

        driver = Driver(fan(a=node, options={"a": {"retry": policy}}))
        driver.send_invoke(INPUT)
        driver.run(seconds=0.5)
        driver.crash()
        driver.run(seconds=0.5)
        driver.invoke(OTHER)
        assert begun[2] == begun[1]

    def test_a_drain_while_an_amendment_is_written_starts_nothing(self):
        driver = left(recover=True)
        call = driver.send_invoke(OTHER)
        driver.advance()
        driver.machine.drain()
        driver.run()
        assert type(driver.answer(call)) is Completed
        assert driver.runs("ok") == 1

    def test_a_run_is_taken_up_where_nobody_listens(self):
        driver = left(recover=False)
        driver.publishing = False
        driver.recover = True
        driver.crash()
        driver.run()
        assert (driver.stored_status, driver.events[-1].__class__.__name__) == (
            "complete",
            "TaskAcknowledged",
        )


class TestRestart:
    @pytest.mark.parametrize("make", [failed, waiting, cancelled, drained])
    def test_it_starts_a_run_on_the_committed_state(self, make):
        driver = make()
        number = driver.machine.state.step.number
        driver.send_invoke(OTHER, on_unfinished="restart", run_id="new")
        driver.run(seconds=0.5)
        assert (driver.row.run.number, driver.row.run.names) == (2, ("new",))
        assert driver.machine.state.values["n"] == 11
        assert driver.machine.state.step.number > number

    def test_pending_results_and_questions_are_dropped(self):
        driver = waiting()
        outcome = driver.invoke(OTHER, on_unfinished="restart")
        assert (driver.runs("ok"), driver.runs("ask")) == (2, 2)
        assert outcome.state["log"] == ["ok"]
        assert len({i.id for c in ("c0", "c1") for i in driver.replies[c].outcome.interrupts}) == 2

    def test_an_equal_input_of_a_new_call_restarts_too(self):
        driver = failed()
        driver.invoke(INPUT, on_unfinished="restart")
        assert driver.row.run.number == 2

    def test_a_restart_that_a_dead_process_made_is_joined_when_it_is_made_again(self):
        driver = failed(times=1)
        driver.send_invoke(OTHER, on_unfinished="restart")
        driver.run(until=lambda: driver.row.run.number == 2)
        driver.recover = False
        driver.crash()
        assert driver.invoke(OTHER, on_unfinished="restart").state["n"] == 11
        assert driver.row.run.number == 2

    def test_an_input_that_is_refused_leaves_the_old_run(self):
        driver = Driver(graph("^>a ^>ask", a=None, ask=asks()))
        driver.invoke({})
        call = driver.send_invoke({"x": 1}, on_unfinished="restart")
        call.input.writes = call.input.writes * 2
        driver.run()
        with pytest.raises(Exception, match="two values"):
            driver.answer(call)
        assert driver.resume("yes").state["log"] == ["a", "ask:yes"]

    def test_ids_of_the_new_run_are_new(self):
        driver = failed()
        driver.invoke(INPUT, on_unfinished="restart")
        ids = [attempt.task_id for attempt in driver.started if attempt.task.node == "ok"]
        assert len(set(ids)) == 2


class TestQuarantined:
    @pytest.mark.parametrize("how", ["invoke", "go_on", "resume"])
    def test_every_call_is_refused(self, how):
        driver = quarantined()
        calls = {
            "invoke": lambda: driver.invoke(OTHER),
            "go_on": driver.go_on,
            "resume": lambda: driver.resume("yes"),
        }
        with pytest.raises(Quarantined, match=r"died 3 times in step 1 \(nodes slow\)"):
            calls[how]()

    def test_a_release_goes_on(self):
        driver = quarantined()
        assert type(driver.call(CallKind.RELEASE)) is Completed

    def test_a_release_forgets_the_deaths(self):
        driver = quarantined()
        driver.send(CallKind.RELEASE)
        driver.run(seconds=0.1)
        driver.crash()
        driver.run()
        assert driver.stored_status == "complete"

    def test_a_release_of_a_thread_that_is_not_set_aside_tells_how_it_stands(self):
        assert type(complete().call(CallKind.RELEASE)) is Completed

    def test_after_a_release_an_equal_input_is_another_call(self):
        driver = quarantined()
        driver.send(CallKind.RELEASE)
        assert driver.invoke(INPUT).state["n"] == 2


@pytest.mark.parametrize("make", [complete, failed, waiting, cancelled, quarantined])
def test_a_thread_belongs_to_the_graph_that_began_it(make):
    with pytest.raises(WrongGraph, match="belongs to graph 'g'"):
        make().invoke(INPUT, graph="other")


def test_a_drained_outcome_says_so():
    driver = Driver(graph("^>slow slow>b", slow=slow(), b=None))
    call = driver.send_invoke({})
    driver.run(seconds=0.5)
    driver.machine.drain()
    driver.run()
    assert type(driver.answer(call)) is Drained
