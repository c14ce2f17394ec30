"""What waits behind a run, and the durable messages among it."""

from __future__ import annotations

import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import (
    CallRefused,
    InvalidCall,
    NodeFailed,
    NothingToResume,
    Quarantined,
    UnknownChannel,
    UnknownInterrupt,
)
from beamweaver.events import MessageRejected
from beamweaver.limits import Limits
from beamweaver.types import Cancelled, Completed, Drained, Interrupted
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fan, graph


def busy(*, ends=None, limits=None, **nodes):
    """A run that executes; it ends after a second, with `ends`."""
    node = lambda _s: Later(1, {"log": ["slow"]} if ends is None else ends)
    driver = Driver(fan(slow=node, **nodes), **({"limits": limits} if limits else {}))
    driver.send_invoke({"n": 1}, run_id="R")
    driver.run(seconds=0.5)
    return driver


class TestOrder:
    def test_calls_have_their_turns_in_order_of_arrival(self):
        """reference I."""
        driver = Driver(fan(add=lambda s: {"log": [s["x"]]}))
        calls = [driver.send_invoke({"x": i}) for i in range(10)]
        driver.run()
        assert [driver.answer(call).state["log"][-1] for call in calls] == list(range(10))
        assert driver.row.run.number == 10

    def test_more_than_may_wait_are_refused(self):
        driver = busy(limits=Limits(queued_calls=2))
        driver.send_invoke({})
        driver.send_invoke({})
        with pytest.raises(CallRefused, match="limits.queued_calls"):
            driver.invoke({})

    def test_every_call_is_answered_once(self):
        driver = busy()
        for _call in range(3):
            driver.send_invoke({})
        driver.send(CallKind.CONTINUE)
        driver.run()
        assert set(driver.reply_counts.values()) == {1}
        assert len(driver.reply_counts) == 5

    def test_a_call_of_a_run_that_ends_before_its_turn_gets_that_runs_outcome(self):
        driver = busy()
        driver.send_invoke({"n": 10}, run_id="next")
        driver.run(
            until=lambda: driver.machine.in_flight is not None and driver.status == "complete"
        )
        call = driver.send_invoke({"n": 1}, run_id="R")
        driver.run()
        assert (driver.answer(call)["n"], driver.row.run.number) == (1, 2)

    def test_a_call_whose_caller_went_away_does_nothing(self):
        driver = busy()
        gone, there = driver.send_invoke({"n": 10}), driver.send_invoke({"n": 100})
        driver.advance()
        gone.withdrawn = True
        driver.run()
        assert driver.answer(there).state["n"] == 101


class TestAfterTheRun:
    def test_behind_a_failed_run_a_call_gets_its_failure(self):
        driver = busy(ends=ValueError("boom"))
        call = driver.send_invoke({"n": 10})
        driver.run()
        with pytest.raises(NodeFailed, match="boom"):
            driver.answer(call)
        assert driver.machine.state.values["n"] == 1

    def test_behind_a_cancelled_run_a_call_hears_of_it(self):
        driver = busy()
        call = driver.send_invoke({})
        driver.call(CallKind.CANCEL)
        assert type(driver.answer(call)) is Cancelled

    def test_behind_a_drained_run_a_call_hears_of_it(self):
        driver = busy()
        call = driver.send_invoke({})
        driver.advance()
        driver.machine.cut()
        driver.run()
        assert type(driver.answer(call)) is Drained

    def test_behind_a_run_that_ends_with_a_question_a_call_is_that_rows_call(self):
        driver = busy(ask=asks())
        call = driver.send_invoke({"x": 7})
        driver.run()
        assert type(driver.answer(call)) is Interrupted
        assert driver.resume("yes").state["x"] == 7
        assert driver.row.run.number == 1

    def test_behind_a_failed_run_an_answer_to_its_open_question_has_its_turn(self):
        ends = [ValueError("boom"), {"log": ["slow"]}]
        driver = Driver(fan(slow=lambda _s: Later(1, ends.pop(0)), ask=asks()))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        assert driver.resume("yes").state["log"] == ["slow", "ask:yes"]

    def test_behind_a_run_that_is_quarantined_calls_are_refused(self):
        driver = busy()
        for _death in range(2):
            driver.crash()
            driver.run(seconds=0.1)
        driver.recover = False
        driver.crash()
        call = driver.send(CallKind.CONTINUE)
        driver.run()
        with pytest.raises(Quarantined):
            driver.answer(call)
        assert driver.reply_counts[call.id] == 1


class TestTold:
    def test_one_on_an_idle_thread_starts_a_run_and_is_told_its_name(self):
        driver = Driver(fan(a=None))
        call = driver.tell({})
        driver.run()
        assert driver.admitted == [(call.id, call.run_id)]
        assert driver.status == "complete"

    def test_one_on_a_busy_thread_is_kept_before_it_is_admitted(self):
        driver = busy()
        driver.tell({"n": 10})
        driver.run(until=lambda: len(driver.admitted) == 2)
        assert len(driver.inbox) == 1

    def test_it_leaves_the_inbox_with_the_record_that_it_causes(self):
        driver = busy()
        driver.tell({"n": 10})
        driver.run()
        assert driver.inbox == ()
        (drop,) = [c for c in driver.commits if c.inbox_drop]
        assert drop.record.checkpoint.source == "input"
        assert driver.machine.state.values["n"] == 11

    @pytest.mark.parametrize("written", [False, True])
    def test_it_takes_effect_exactly_once_wherever_the_process_dies(self, written):
        clean = busy()
        clean.tell({"n": 10})
        clean.run()
        for at in range(2, len(clean.commits)):
            driver = busy()
            driver.crash_at, driver.written = at, written
            call = driver.tell({"n": 10})
            try:
                driver.run()
            except BaseException:
                told = (call.id, call.run_id) in driver.admitted
                driver.crash()
                driver.run()
                if not told and len(driver.inbox) == 0 and driver.row.run.number == 1:
                    driver.tell({"n": 10})  # it was never durable, so its sender sends it again
                    driver.run()
            assert driver.machine.state.values["n"] == 11, f"crash at {at}"
            assert driver.row.run.number == 2, f"crash at {at}"

    def test_one_behind_a_run_stays_behind_it_when_the_process_dies(self):
        driver = busy()
        driver.tell({"n": 10})
        driver.run(until=lambda: driver.inbox)
        driver.crash()
        driver.run()
        assert driver.row.run.number == 2
        assert driver.machine.state.values["n"] == 11

    def test_one_with_an_equal_input_is_no_repetition_of_the_run_before_it(self):
        driver = busy()
        driver.tell({"n": 1})
        driver.run(until=lambda: driver.inbox)
        driver.crash()
        driver.run()
        assert (driver.row.run.number, driver.machine.state.values["n"]) == (2, 2)

    def test_behind_a_failed_run_it_waits_for_a_continuation(self):
        ends = [ValueError("boom"), {}, {}]
        driver = Driver(fan(slow=lambda _s: Later(1, ends.pop(0))))
        driver.send_invoke({"n": 1})
        driver.run(seconds=0.5)
        driver.tell({"n": 10})
        driver.run()
        assert (driver.status, len(driver.inbox)) == ("failed", 1)
        driver.crash()
        driver.run()
        assert len(driver.inbox) == 1
        assert driver.go_on().state["n"] == 1
        assert (driver.machine.state.values["n"], driver.inbox) == (11, ())

    def test_an_answer_that_was_told_while_the_run_executes_is_kept(self):
        driver = busy(ask=asks())
        driver.tell(None, CallKind.RESUME, answer="yes")
        driver.run(until=lambda: driver.inbox)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["slow", "ask:yes"]

    def test_answers_by_id_that_were_told_are_kept(self):
        driver = busy(ask=asks(), other=asks("other"))
        ids = [i.id for i in driver.machine.open_interrupts()]
        driver.tell(None, CallKind.RESUME, answers={ids[0]: "1", ids[1]: "2"})
        driver.run(until=lambda: driver.inbox)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["slow", "ask:1", "other:2"]

    def test_one_that_cannot_be_taken_is_consumed_and_refused(self):
        driver = busy(ask=asks())
        call = driver.tell(None, CallKind.RESUME, answers={"int_none": 1})
        driver.run()
        assert driver.inbox == ()
        assert isinstance(driver.replies[call.id].error, UnknownInterrupt)

    def test_one_that_only_joins_is_consumed(self):
        driver = busy(ask=asks())
        driver.tell({"n": 1})
        driver.run()
        assert driver.inbox == ()
        assert (driver.row.run.number, driver.machine.state.values["n"]) == (1, 1)

    def test_a_durable_one_is_never_refused_for_want_of_room(self):
        driver = busy(limits=Limits(queued_calls=2))
        driver.tell({"n": 10})
        driver.tell({"n": 100})
        driver.run(until=lambda: len(driver.inbox) == 2)
        driver.limits = Limits(queued_calls=1)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["n"] == 111

    def test_a_continuation_that_was_told_is_admitted_to_the_run(self):
        driver = busy()
        call = driver.tell(None, CallKind.CONTINUE)
        driver.run()
        assert (call.id, "R") in driver.admitted

    def test_a_continuation_that_is_told_to_a_complete_thread_changes_nothing(self):
        driver = Driver(fan(a=None))
        driver.invoke({}, run_id="R")
        before = len(driver.commits)
        call = driver.tell(None, CallKind.CONTINUE)
        driver.run()
        assert (call.id, "R") in driver.admitted
        assert len(driver.commits) == before

    def test_a_message_of_a_recorded_run_is_consumed(self):
        driver = busy()
        driver.tell({"n": 10}, run_id="two")
        driver.run(until=lambda: driver.inbox)
        driver.crash()
        (call,) = driver.machine.queue
        call.known_run, call.run_id = 0, "older"
        driver.run()
        assert driver.inbox == ()

    def test_a_cancel_that_is_told_is_durable_when_it_is_admitted(self):
        driver = busy()
        call = driver.tell(None, CallKind.CANCEL)
        driver.run(until=lambda: any(id_ == call.id for id_, _run in driver.admitted))
        assert driver.stored_status == "cancelled"


class TestActorsThatDie:
    """A call that waited for an actor that died is handed to the next one."""

    def test_a_call_that_was_admitted_gets_the_outcome_and_runs_once(self):
        driver = busy()
        (call,) = driver.calls
        driver.restart_actor()
        driver.run()
        assert driver.answer(call).state["n"] == 1

    def test_a_call_that_was_admitted_to_a_run_that_failed_meanwhile_gets_the_failure(self):
        driver = busy(ends=ValueError("boom"))
        (call,) = driver.calls
        driver.calls = []
        driver.run()
        driver.replies.clear()
        driver.calls = [call]
        driver.restart_actor()
        driver.run()
        with pytest.raises(NodeFailed):
            driver.answer(call)
        assert driver.runs("slow") == 1

    def test_answers_that_were_admitted_are_not_refused(self):
        driver = Driver(graph("^>ask ask>slow", ask=asks(), slow=lambda _s: Later(1)))
        id_ = driver.invoke({}).interrupt.id
        call = driver.send(CallKind.RESUME, answers={id_: "yes"})
        call.run_id = "beyond the limit of names"
        driver.run(until=lambda: driver.runs("slow"))
        driver.machine.state.row = driver.row
        driver.restart_actor()
        driver.run()
        assert type(driver.answer(call)) is Completed

    def test_an_amendment_is_not_made_twice_however_many_names_the_run_has(self):
        driver = busy(limits=Limits(run_names=2))
        driver.crash()
        driver.run(seconds=0.1)
        call = driver.send_invoke({"n": 10})
        driver.run(until=lambda: driver.admitted[-1][0] == call.id)
        driver.restart_actor()
        driver.run()
        assert driver.answer(call).state["n"] == 11

    def test_a_call_that_waited_behind_the_run_still_has_its_turn(self):
        driver = busy()
        call = driver.send_invoke({"n": 10})
        driver.advance()
        driver.restart_actor()
        driver.run()
        assert driver.answer(call).state["n"] == 11

    def test_a_run_of_the_own_process_goes_on_without_a_record(self):
        driver = busy()
        before = len(driver.commits)
        driver.restart_actor()
        driver.advance()
        assert driver.machine.active
        assert len(driver.commits) == before
        assert driver.row.run.deaths == 0


class TestRejected:
    """A message that cannot be taken is kept as rejected, for its sender has gone."""

    def reject(self, driver, id_=None):
        call = driver.tell(None, CallKind.RESUME, answer="yes")
        call.id, call.lasting = id_ or call.id, True
        driver.run()
        assert isinstance(driver.replies[call.id].error, NothingToResume)
        return call

    def test_one_that_comes_again_is_rejected_again_and_kept_once(self):
        """Its actor may have died before it was told."""
        driver = Driver(fan(a=None))
        driver.invoke({})
        first = self.reject(driver)
        before = len(driver.commits)
        self.reject(driver, first.id)
        assert [each.id for each in driver.row.rejected] == [first.id]
        assert len(driver.commits) == before
        assert [e.message_id for e in driver.told_events(MessageRejected)] == [first.id] * 2

    def test_it_is_kept_where_nobody_listens(self):
        driver = Driver(fan(a=None), publishing=False)
        driver.invoke({})
        call = self.reject(driver)
        assert [each.id for each in driver.row.rejected] == [call.id]
        assert driver.events == []


class TestPlacesAtTheHead:
    def test_a_call_from_the_head_is_as_one_from_nowhere(self):
        """semantics 10."""
        driver = Driver(fan(a=None))
        driver.invoke({"x": 1})
        before = len(driver.commits)
        outcome = driver.branch(CallKind.CONTINUE, checkpoint=driver.head)
        assert (outcome.checkpoint_id, len(driver.commits)) == (driver.head, before)
        assert driver.branch(CallKind.INVOKE, {"x": 2}, checkpoint=driver.head).state["x"] == 2
        assert driver.row.run.number == 2

    def test_a_new_thread_has_no_checkpoint(self):
        driver = Driver(fan(a=None))
        with pytest.raises(InvalidCall, match="has no checkpoint"):
            driver.branch(CallKind.INVOKE, {"x": 1}, fork=True)
        assert driver.status is None


def test_an_input_that_other_code_of_the_graph_judged_is_judged_again():
    """An app may be called whose graph has the name of the one that its runtime has, and other keys."""
    driver = Driver(fan(a=None))
    other = Driver(graph("^>a", schema=None, a=lambda _s: None))
    call = driver.send(CallKind.INVOKE)
    call.input = other.prepared({"nope": 1})
    driver.run()
    with pytest.raises(UnknownChannel, match="'nope'"):
        driver.answer(call)
    assert driver.status is None
