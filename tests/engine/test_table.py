"""Calls on an existing thread: the table of semantics 5, row by row."""

from __future__ import annotations

import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import (
    NodeFailed,
    NothingToContinue,
    NothingToResume,
    ThreadBusy,
    UnfinishedRun,
    UnknownRun,
)
from beamweaver.types import Cancelled, Completed, Interrupted
from tests.engine.driver import Driver
from tests.engine.graphs import asks, fails_once, fan
from tests.engine.standings import (
    INPUT,
    OTHER,
    cancelled,
    complete,
    drained,
    failed,
    new,
    running,
    slow,
    waiting,
)


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
