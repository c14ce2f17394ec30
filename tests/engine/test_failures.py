"""Failures: what is kept of them, and what a failed run raises."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import StepFailed, TaskFailed
from beamweaver.engine.failures import describe, error_of
from beamweaver.errors import (
    InvalidUpdate,
    NodeError,
    NodeFailed,
    NodeTimeout,
    RecursionLimit,
    ThreadBusy,
    UnknownTarget,
)
from beamweaver.events import AttemptFailed
from beamweaver.types import Completed, RetryPolicy
from tests.engine.driver import HANGS, Driver, Later, goto
from tests.engine.graphs import asks, fails, fails_once, fan, graph, line


def raises(error):
    def node(_state):
        raise error

    return node


class TestProceed:
    def test_siblings_finish_and_all_failures_are_kept(self):
        """graph 36."""
        driver = Driver(fan(ok=None, bad=fails_once("bad"), worse=fails_once("worse", KeyError)))
        error = driver.fails({})
        assert [failure.node for failure in error.failures] == ["bad", "worse"]
        assert driver.runs("ok") == 1

    @pytest.mark.parametrize("seed", range(8))
    def test_the_first_failure_in_task_order_is_raised(self, seed):
        driver = Driver(fan(a=fails_once("a", KeyError), b=fails_once("b")), seed=seed)
        assert driver.fails({}).node == "a", f"seed {seed}"

    def test_a_failed_run_shows_its_open_questions(self):
        driver = Driver(fan(bad=fails_once(), ask=asks()))
        error = driver.fails({})
        assert [i.value for i in error.interrupts] == ["ok?"]

    def test_its_state_is_told_with_the_failure(self):
        driver = Driver(fan(ok=None, bad=fails_once()))
        driver.fails({})
        outcome = driver.replies["c0"].outcome
        assert outcome.state["log"] == ["ok"]
        assert isinstance(outcome.error, NodeFailed)

    def test_a_question_never_cancels_a_sibling(self):
        """graph 19; reference U."""
        driver = Driver(fan(ask=asks(), slow=lambda _s: Later(5, {"log": ["slow"]})))
        assert driver.invoke({}).state["log"] == ["slow"]


class TestPanic:
    def test_running_siblings_are_cancelled_at_once(self):
        """reference D."""
        one = fan(bad=fails_once(), slow=lambda _s: Later(1), options={"failure_policy": "panic"})
        driver = Driver(one)
        driver.send_invoke({})
        driver.run(seconds=0)
        assert driver.stored_status == "failed"
        assert [attempt.task.node for attempt in driver.killed] == ["slow"]

    def test_siblings_that_were_not_started_do_not(self):
        options = {"failure_policy": "panic", "max_concurrency": 1}
        driver = Driver(fan(bad=fails_once(), ok=None, options=options))
        driver.fails({})
        assert driver.log == ["bad"]

    def test_results_from_before_are_kept(self):
        one = fan(
            ok=None,
            bad=lambda _s: Later(1, ValueError("boom")),
            slow=lambda _s: Later(9),
            options={"failure_policy": "panic"},
        )
        driver = Driver(one)
        driver.fails({})
        assert driver.machine.state.step.tasks[0].result is not None

    def test_failed_and_cut_tasks_go_on_after_a_continuation(self):
        ends = [HANGS, {"log": ["slow"]}]
        one = fan(
            ok=None,
            bad=fails_once(),
            slow=lambda _s: ends.pop(0),
            options={"failure_policy": "panic"},
        )
        driver = Driver(one)
        driver.fails({})
        driver.crash()
        assert driver.go_on().state["log"] == ["ok", "bad", "slow"]

    def test_an_attempt_that_is_tried_again_cancels_nobody(self):
        options = {"failure_policy": "panic", "bad": {"retry": RetryPolicy()}}
        driver = Driver(fan(bad=fails_once(), ok=None, options=options))
        assert type(driver.invoke({})) is Completed

    def test_siblings_that_wait_for_an_attempt_are_cut(self):
        options = {"failure_policy": "panic", "flaky": {"retry": RetryPolicy(initial_delay=5)}}
        one = fan(
            flaky=fails_once("flaky"), bad=lambda _s: Later(1, ValueError("x")), options=options
        )
        driver = Driver(one)
        driver.fails({})
        assert driver.runs("flaky") == 1
        assert driver.timers == {}


class TestErrors:
    def test_the_original_is_the_cause(self):
        boom = ValueError("boom")
        error = Driver(fan(bad=raises(boom))).fails({})
        assert error.__cause__ is boom

    def test_after_a_crash_it_is_told_from_what_is_stored(self):
        driver = Driver(fan(bad=fails(2)))
        first = driver.fails({})
        driver.crash()
        call = driver.send_invoke({})
        call.again, call.run_id = True, driver.row.run.names[0]
        driver.run()
        again = driver.replies[call.id].error
        assert (type(again), str(again), again.__cause__) == (NodeFailed, str(first), None)
        assert "ValueError: boom" in again.failures[0].traceback

    def test_it_names_thread_run_node_task_and_attempt(self):
        driver = Driver(fan(bad=fails_once()))
        error = driver.fails({}, run_id="R")
        assert (error.thread_id, error.run_id, error.node, error.attempt) == ("t", "R", "bad", 1)
        assert error.task_id == driver.started[0].task_id

    def test_a_node_may_declare_a_code(self):
        error = Driver(fan(bad=raises(NodeError("card_declined", "no money")))).fails({})
        assert (error.code, type(error)) == ("card_declined", NodeFailed)

    @pytest.mark.parametrize("crash", [False, True])
    def test_a_declared_code_is_not_taken_for_an_error_of_ours(self, crash):
        driver = Driver(fan(bad=raises(NodeError("recursion_limit", "mine"))))
        error = driver.fails({})
        if crash:
            driver.crash()
            error = driver.fails(None)
        assert type(error) is NodeFailed

    def test_a_declared_code_that_is_no_text_is_kept_as_text(self):
        driver = Driver(fan(bad=raises(NodeError(404, "gone"))))
        driver.fails({})
        driver.crash()
        assert driver.fails(None).code == "404"

    @pytest.mark.parametrize(
        ("inner", "code"),
        [
            (RecursionLimit("inner", thread_id="other", run_id="r", limit=3), "node_failed"),
            (NodeTimeout("inner", thread_id="other", node="x", timeout=1), "node_failed"),
            (ThreadBusy("inner", thread_id="other"), "thread_busy"),
        ],
        ids=lambda value: type(value).__name__,
    )
    @pytest.mark.parametrize("crash", [False, True])
    def test_a_failure_of_another_run_inside_a_node_is_the_nodes(self, inner, code, crash):
        driver = Driver(fan(bad=raises(inner)))
        error = driver.fails({})
        if crash:
            driver.crash()
            error = driver.fails(None)
        assert (type(error), error.node, error.thread_id) == (NodeFailed, "bad", "t")
        assert error.code == code

    @pytest.mark.parametrize("crash", [False, True])
    def test_a_return_that_is_no_update_is_an_invalid_update_of_the_node(self, crash):
        driver = Driver(fan(bad=lambda _s: 42))
        error = driver.fails({})
        if crash:
            driver.crash()
            error = driver.fails(None)
        assert (type(error), error.node) == (InvalidUpdate, "bad")

    def test_an_unknown_goto_is_told_as_such(self):
        """reference AF/AG."""
        error = Driver(fan(bad=lambda _s: goto("nowhere"))).fails({})
        assert (type(error), error.node) == (UnknownTarget, "bad")

    @pytest.mark.parametrize("crash", [False, True])
    def test_a_limit_is_told_as_such_after_a_crash_too(self, crash):
        driver = Driver(line("a", "b", "c", recursion_limit=1))
        error = driver.fails({})
        if crash:
            driver.crash()
            call = driver.send_invoke({})
            call.again, call.run_id = True, driver.row.run.names[0]
            driver.run()
            error = driver.replies[call.id].error
        assert (type(error), error.node) == (RecursionLimit, "")

    def test_an_exit_of_a_node_ends_only_its_attempt(self):
        error = Driver(fan(bad=raises(SystemExit(3)))).fails({})
        assert isinstance(error.__cause__, SystemExit)

    def test_the_steps_failure_comes_before_those_of_tasks(self):
        step = describe(RecursionLimit("limit", limit=1), "", "", 1)
        task = describe(ValueError("boom"), "a", "t", 1)
        error = error_of([task], step, thread_id="t", run_id="r")
        assert (type(error), error.failures) == (RecursionLimit, (step, task))


class TestDescriptions:
    def test_notes_belong_to_the_message(self):
        error = ValueError("boom")
        error.add_note("in row 7")
        assert describe(error, "a", "t", 1).message == "boom\nin row 7"

    def test_long_texts_are_cut(self):
        found = describe(ValueError("x" * 100_000), "a", "t", 1)
        assert len(found.message) <= 4_000
        assert len(found.traceback) <= 8_000

    def test_a_name_that_cannot_be_decoded_is_shown_escaped(self):
        driver = Driver(fan(bad=raises(FileNotFoundError("caf\udce9.txt"))))
        driver.fails({})
        assert driver.entries(TaskFailed)[0].failure.message == "caf\\udce9.txt"

    def test_a_message_that_raises_is_told_as_such(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError("odd")

        assert "message of Odd raised RuntimeError" in describe(Odd(), "a", "t", 1).message

    def test_a_type_has_its_module_unless_it_is_built_in(self):
        found = [describe(e, "", "", 1).type_name for e in (ValueError(), InvalidUpdate("x"))]
        assert found == ["ValueError", "beamweaver.errors.InvalidUpdate"]


class TestEvents:
    def test_every_failed_attempt_is_told_with_what_follows(self):
        policy = RetryPolicy(max_attempts=2, initial_delay=1, jitter=False)
        driver = Driver(fan(bad=fails(9), options={"bad": {"retry": policy}}))
        driver.fails({})
        told = [(e.attempt, e.failure_code, e.retry_in) for e in driver.told_events(AttemptFailed)]
        assert told == [(1, "node_failed", 1.0), (2, "node_failed", None)]


def test_a_failed_attempt_is_counted_where_nobody_listens():
    driver = Driver(fan(bad=fails_once()), publishing=False)
    driver.fails({})
    assert driver.events == []


def test_the_record_of_a_stopped_step_names_what_was_cut():
    one = graph(
        "^>a ^>b ^>c", a=None, b=lambda _s: HANGS, c=lambda _s: HANGS, options={"step_timeout": 1}
    )
    driver = Driver(one)
    driver.fails({})
    assert driver.entries(StepFailed)[0].cut == (1, 2)
