"""Calls that begin a branch: what each makes of the checkpoint, and the answer that one is promised."""

from __future__ import annotations

import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import (
    AmbiguousResume,
    InvalidAnswer,
    InvalidCall,
    InvalidUpdate,
    NothingToResume,
    UnfinishedRun,
)
from beamweaver.types import Completed, Interrupted
from tests.engine.driver import HANGS, Driver
from tests.engine.graphs import asks, fan, graph, line


def oldest(driver):
    """The id of the first input's checkpoint."""
    image = list(driver.store.history("t"))[-1]
    return f"{image.checkpoint.checkpoint.branch}-{image.checkpoint.seq}"


def done(one=None):
    driver = Driver(one or line("a", "b"))
    driver.invoke({"x": 1})
    return driver


def unchanged(driver):
    """What a refused call must leave as it is."""
    state = driver.machine.state
    return state.branch, state.checkpoint_seq, state.step.number, dict(state.values), driver.status


class TestFromACheckpoint:
    def test_results_cannot_be_dropped_where_there_are_none(self):
        driver = done()
        before = unchanged(driver)
        with pytest.raises(InvalidCall, match="rerun= has none to drop"):
            driver.branch(CallKind.CONTINUE, checkpoint=oldest(driver), rerun=("a",))
        assert unchanged(driver) == before

    def test_amid_a_run_an_input_that_wants_no_unfinished_run_is_refused(self):
        driver = done()
        before = unchanged(driver)
        with pytest.raises(UnfinishedRun, match="amid a run"):
            driver.branch(
                CallKind.INVOKE, {"x": 2}, checkpoint=oldest(driver), on_unfinished="reject"
            )
        assert unchanged(driver) == before

    def test_amid_a_run_one_that_restarts_begins_a_new_run_there(self):
        driver = done()
        call = driver.branch(
            CallKind.INVOKE, {"y": 2}, checkpoint=oldest(driver), on_unfinished="restart"
        )
        assert call.state == {"x": 1, "y": 2, "log": ["a", "b"], "n": 0}
        assert driver.row.run.number == 2

    def test_where_the_run_was_complete_an_input_begins_a_new_run(self):
        driver = done()
        head = driver.head
        driver.invoke({"x": 2})
        outcome = driver.branch(CallKind.INVOKE, {"y": 3}, checkpoint=head)
        assert (outcome.state["x"], outcome.state["log"]) == (1, ["a", "b", "a", "b"])

    def test_an_input_that_does_not_fit_leaves_the_thread_where_it_is(self):
        """The machine is on the branch while it judges."""
        one = graph("^>a", a=None, guards=())
        driver = done(one)
        before = unchanged(driver)
        bad = driver.prepared({"x": 2})
        bad.writes[0].channel = "nope"
        call = driver.send(CallKind.INVOKE, checkpoint=oldest(driver), place=b"p")
        call.input = bad
        driver.run()
        with pytest.raises(InvalidUpdate):
            driver.answer(call)
        assert unchanged(driver) == before


class TestAPromisedAnswer:
    def branched(self, one, answer="yes", **options):
        """A branch from the first input, with an answer to what it will ask."""
        driver = done(one)
        place = {"checkpoint": oldest(driver), "fork": True, "place": b"p"}
        call = driver.send(CallKind.RESUME, answer=answer, **place, **options)
        driver.run()
        return driver, call

    def test_where_nothing_will_run_it_is_refused(self):
        driver = done()
        with pytest.raises(NothingToResume, match="is complete, so nothing will be asked"):
            driver.branch(CallKind.RESUME, answer="yes", fork=True)

    def test_a_map_is_refused_for_the_ids_will_be_new(self):
        driver = done(fan(ask=asks()))
        with pytest.raises(InvalidCall, match="takes one answer and no map"):
            driver.branch(CallKind.RESUME, answers={"int_1": "yes"}, fork=True)

    def test_it_answers_the_one_question(self):
        driver, call = self.branched(fan(ask=asks()))
        assert driver.answer(call).state["log"] == ["ask:yes"]

    def test_two_questions_at_once_leave_it_unused(self):
        driver, call = self.branched(fan(a=asks("a"), b=asks("b")))
        with pytest.raises(
            AmbiguousResume, match="asked 2 questions at once and one answer"
        ) as refused:
            driver.answer(call)
        assert len(refused.value.interrupts) == 2
        assert driver.status == "waiting"
        assert set(refused.value.interrupts) == {
            question.id for task in driver.machine.state.step.tasks for question in task.questions
        }

    def test_one_that_the_question_refuses_leaves_it_open(self):
        def ask(_state, ctx):
            return {"x": ctx.interrupt("how many?", schema=b'{"type":"integer"}')}

        driver, call = self.branched(graph("^>ask", ask=ask), "many")
        with pytest.raises(InvalidAnswer, match="does not fit its schema"):
            driver.answer(call)
        assert driver.status == "waiting"
        assert driver.resume(3).state["x"] == 3

    def test_others_who_wait_for_the_branch_hear_of_its_questions(self):
        driver = done(fan(a=asks("a"), b=asks("b")))
        call = driver.send(CallKind.RESUME, answer="yes", fork=True, place=b"p", run_id="R")
        other = driver.send(CallKind.CONTINUE)
        driver.run()
        with pytest.raises(AmbiguousResume):
            driver.answer(call)
        assert len(driver.answer(other).interrupts) == 2

    def test_at_a_breakpoint_it_waits_for_the_question(self):
        one = graph("^>a a>ask", a=None, ask=asks(), options={"interrupt_before": ["ask"]})
        driver, call = self.branched(one)
        assert type(driver.answer(call)) is Interrupted
        assert driver.go_on().state["log"] == ["a", "ask:yes"]

    def test_where_a_task_hangs_beside_the_question_the_stop_of_the_run_wins(self):
        """A cancel that comes while the answer is being kept ends the run."""
        one = graph("^>ask", ask=asks())
        driver = done(one)
        driver.send(CallKind.RESUME, answer="yes", fork=True, place=b"p")
        driver.run(until=lambda: driver.machine.state.step.era == 1 and driver.machine.in_flight)
        driver.machine.cut()
        driver.run()
        assert driver.status == "drained"
        driver.recover = True
        driver.crash()
        driver.run()
        assert driver.values["log"] == ["ask:yes"]

    def test_one_for_which_there_was_no_question_is_told(self):
        driver, call = self.branched(line("a"))
        outcome = driver.answer(call)
        assert type(outcome) is Completed
        assert outcome.warnings == (
            "the answer that was given with the call was not used: the branch asked no question",
        )


def test_a_cancel_of_a_branch_that_hangs_is_one_of_its_run():
    hangs = iter([None, HANGS])
    driver = done(fan(a=lambda _s: next(hangs)))
    driver.send(CallKind.CONTINUE, checkpoint=oldest(driver), place=b"p")
    driver.run()
    cancel = driver.send(CallKind.CANCEL)
    driver.run()
    assert driver.answer(cancel).thread_id == "t"
    assert driver.status == "cancelled"
