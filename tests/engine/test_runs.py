"""Runs, their names, and ids that depend on nothing but the place."""

from __future__ import annotations

import msgspec
import pytest

from beamweaver.checkpoint.records import RunRow
from beamweaver.engine.ids import checkpoint_id, idempotency_key, interrupt_id, parse_checkpoint_id
from beamweaver.errors import InvalidCall
from beamweaver.events import RunAdmitted, RunEnded, StepCommitted, TaskAcknowledged, TaskStarted
from beamweaver.limits import Limits
from beamweaver.types import Send
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fails_once, fan, graph, line


def ids_of(driver):
    return [attempt.task_id for attempt in driver.started]


class TestNames:
    def test_a_run_id_is_honoured(self):
        """reference AQ."""
        driver = Driver(line("a"))
        assert driver.invoke({}, run_id="mine").run_id == "mine"
        assert driver.commits[-1].record.checkpoint.run_id == "mine"
        assert driver.store.run_number("t", "mine") == 1

    def test_an_outcome_names_the_run_where_the_call_has_no_name(self):
        driver = Driver(fan(bad=fails_once()))
        driver.fails({}, run_id="mine")
        assert driver.go_on().run_id == "mine"

    def test_given_names_beyond_the_limit_are_refused_and_change_nothing(self):
        driver = Driver(fan(ask=asks()), limits=Limits(run_names=2))
        driver.invoke({}, run_id="one")
        driver.invoke({"x": 1}, run_id="two")
        for refused in (
            lambda: driver.invoke({"x": 2}, run_id="three"),
            lambda: driver.resume("yes", run_id="three"),
        ):
            with pytest.raises(InvalidCall, match="limits.run_names"):
                refused()
        assert driver.machine.state.values.get("x") is None
        assert driver.resume("yes", run_id="one").state["x"] == 1

    def test_drawn_names_never_fill_a_runs_names(self):
        questions = [str(i) for i in range(20)]
        driver = Driver(fan(ask=asks("ask", *questions)), limits=Limits(run_names=4))
        driver.invoke({}, run_id="one")
        for question in questions:
            outcome = driver.resume(question)
        assert outcome.state["log"] == ["ask:" + ",".join(questions)]

    def test_a_name_that_only_the_index_knows_is_the_runs_name(self):
        driver = Driver(fan(ask=asks()))
        driver.invoke({"n": 1}, run_id="one")
        driver.machine.state.row = _without_name(driver.machine.state.row, "one")
        call = driver.send_invoke({"n": 1})
        call.named, call.run_id, call.known_run = True, "one", 1
        driver.run()
        assert driver.answer(call).state["n"] == 1


def _without_name(row, name):
    run = msgspec.structs.replace(
        row.run, names=tuple(n for n in row.run.names if n != name) or ("x",)
    )
    return msgspec.structs.replace(row, run=run)


class TestIds:
    def test_a_task_has_one_id_in_every_attempt_run_and_process(self):
        driver = Driver(fan(bad=fails_once()))
        driver.fails({}, run_id="one")
        driver.now += 1_000
        driver.crash()
        driver.invoke({"x": 1}, run_id="two")
        assert len(set(ids_of(driver))) == 1

    def test_ids_of_different_steps_differ(self):
        driver = Driver(line("a", "b"))
        driver.invoke({})
        driver.invoke({})
        assert len(set(ids_of(driver))) == 4

    def test_ids_of_sends_depend_on_source_and_index(self):
        one = graph("^>a ^>b", a=lambda _s: [Send("w", {})] * 2, b=lambda _s: Send("w", {}), w=None)
        driver = Driver(one)
        driver.invoke({})
        assert len(set(ids_of(driver))) == 5

    def test_threads_of_two_branches_have_ids_of_their_own(self):
        one, other = Driver(line("a")), Driver(line("a"))
        other.ids = iter(["other"])
        one.invoke({})
        other.invoke({})
        assert set(ids_of(one)).isdisjoint(ids_of(other))

    def test_a_question_has_one_id_in_every_attempt(self):
        driver = Driver(graph("^>bad ^>ask", bad=fails_once(), ask=asks("ask", "a", "b")))
        first = driver.fails({}).interrupts[0].id
        driver.crash()
        assert driver.go_on().interrupts[0].id == first

    def test_questions_by_key_and_by_order_have_ids_of_their_own(self):
        assert (
            len({interrupt_id("t", 0, None), interrupt_id("t", 1, None), interrupt_id("t", 0, "0")})
            == 3
        )

    def test_an_idempotency_key_belongs_to_thread_and_task(self):
        assert idempotency_key("t", "x") != idempotency_key("u", "x")
        assert idempotency_key("t", "x") == idempotency_key("t", "x")

    def test_a_checkpoint_id_can_be_read_back(self):
        assert parse_checkpoint_id(checkpoint_id("a-b", 17)) == ("a-b", 17)

    @pytest.mark.parametrize("text", ["", "x", "-1", "b-", "b-x", "b-²"])
    def test_other_texts_are_no_checkpoint_ids(self, text):
        assert parse_checkpoint_id(text) is None

    def test_an_outcome_names_its_checkpoint(self):
        driver = Driver(line("a"))
        assert driver.invoke({}).checkpoint_id == checkpoint_id(driver.machine.state.branch, 1)


class TestSteps:
    def test_numbers_go_on_over_runs(self):
        driver = Driver(line("a"))
        driver.invoke({})
        driver.invoke({})
        assert [c.record.checkpoint.step for c in driver.commits] == [0, 1, 2, 3]

    def test_a_planned_number_is_not_used_again_by_a_restart(self):
        driver = Driver(graph("^>a a>ask", a=None, ask=asks()))
        driver.invoke({})
        planned = driver.machine.state.step.number
        driver.invoke({}, on_unfinished="restart")
        steps = [c.record.checkpoint.step for c in driver.commits if c.record.checkpoint]
        assert planned not in steps
        assert steps == sorted(set(steps))

    def test_a_continued_step_keeps_its_number(self):
        driver = Driver(fan(bad=fails_once()))
        driver.fails({})
        driver.go_on()
        assert [attempt.step for attempt in driver.started] == [1, 1]

    def test_each_record_has_the_next_number(self):
        driver = Driver(graph("^>a ^>ask a>b", a=None, ask=asks(), b=None))
        driver.invoke({})
        driver.crash()
        driver.resume("yes")
        assert [c.record.seq for c in driver.commits] == list(range(len(driver.commits)))


class TestEvents:
    def test_a_run_tells_its_admission_steps_and_end(self):
        driver = Driver(line("a"))
        driver.invoke({}, run_id="R")
        assert [type(event) for event in driver.events] == [
            RunAdmitted,
            TaskStarted,
            TaskAcknowledged,
            StepCommitted,
            RunEnded,
        ]

    def test_a_result_is_told_as_acknowledged_once_and_not_before_its_record(self):
        driver = Driver(fan(quick=None, slow=lambda _s: Later(1)))
        driver.send_invoke({})
        driver.run(seconds=0.5)
        told = driver.told_events(TaskAcknowledged)
        driver.run()
        assert [event.node for event in told] == ["quick"]
        assert [e.node for e in driver.told_events(TaskAcknowledged)] == ["quick", "slow"]

    def test_an_acknowledgement_names_the_task_of_its_own_step(self):
        """Though the step after it may have a task of the same node."""
        driver = Driver(graph("^>a", a=None, guards=[("a>a", {"max_runs": 2})]))
        driver.invoke({})
        told = [event.task_id for event in driver.told_events(TaskAcknowledged)]
        assert told == [event.task_id for event in driver.told_events(TaskStarted)]

    def test_a_told_call_that_is_kept_acknowledges_no_result(self):
        driver = Driver(fan(quick=None, slow=lambda _s: Later(1)))
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("slow"))
        driver.step()
        driver.tell({})
        driver.advance()
        driver.step()
        driver.advance()
        assert len(driver.inbox) == 1
        assert driver.told_events(TaskAcknowledged) == []
        driver.run(seconds=0.5)
        assert [event.node for event in driver.told_events(TaskAcknowledged)] == ["quick"]


def test_a_run_row_of_an_admission_forgets_the_run_before():
    driver = Driver(fan(ask=asks()))
    driver.invoke({})
    driver.resume("yes")
    assert driver.row.run.answered
    driver.invoke({})
    row = driver.row.run
    assert row.answered == RunRow(1, (), b"", 0).answered
