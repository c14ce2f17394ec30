"""Failures and questions in one step: what is raised, what stays open, and what runs again."""

from __future__ import annotations

import pytest

from beamweaver.errors import AlreadyAnswered, AmbiguousResume, NodeFailed
from beamweaver.types import Interrupted
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fails, fails_once, fan, wrote


def slow(name, seconds=9):
    return lambda _state: Later(seconds, {"log": [name]})


def ran(driver, names="abcd"):
    return [driver.runs(name) for name in names]


def four(**options):
    """Two that fail at first, one that asks, one that is fine."""
    nodes = {"a": asks("a"), "b": fails_once("b"), "c": wrote("c"), "d": fails_once("d", KeyError)}
    return Driver(fan(**nodes, options=options))


class TestProceed:
    def test_the_first_failure_is_raised_with_all_of_them_and_the_questions(self):
        driver = four()
        error = driver.fails({})
        assert isinstance(error, NodeFailed)
        assert (error.node, [f.node for f in error.failures]) == ("b", ["b", "d"])
        assert [question.node for question in error.interrupts] == ["a"]
        assert driver.status == "failed"

    def test_an_answer_runs_what_was_answered_and_what_failed(self):
        driver = four()
        driver.fails({})
        assert driver.resume("yes").state["log"] == ["a:yes", "b", "c", "d"]
        assert ran(driver) == [2, 2, 1, 2]

    def test_without_an_answer_only_what_failed(self):
        driver = four()
        id_ = driver.fails({}).interrupts[0].id
        outcome = driver.go_on()
        assert type(outcome) is Interrupted
        assert [question.id for question in outcome.interrupts] == [id_]
        assert ran(driver) == [1, 2, 1, 2]
        assert driver.resume(answers={id_: "yes"}).state["log"] == ["a:yes", "b", "c", "d"]

    def test_an_input_amends_and_runs_only_what_failed(self):
        driver = four()
        driver.fails({})
        outcome = driver.invoke({"x": 1})
        assert (type(outcome), outcome.state["x"]) == (Interrupted, 1)
        assert ran(driver) == [1, 2, 1, 2]

    def test_a_partial_map_leaves_the_rest_open_and_runs_what_failed(self):
        driver = Driver(fan(a=asks("a"), b=asks("b"), c=fails(2, "c"), d=None))
        first, second = driver.fails({}).interrupts
        with pytest.raises(AmbiguousResume):
            driver.resume("yes")
        with pytest.raises(NodeFailed) as caught:
            driver.resume(answers={second.id: "B"})
        assert [question.id for question in caught.value.interrupts] == [first.id]
        assert ran(driver) == [1, 2, 2, 1]
        with pytest.raises(AlreadyAnswered):
            driver.resume(answers={second.id: "again"})
        assert driver.resume("A").state["log"] == ["a:A", "b:B", "c", "d"]
        assert ran(driver) == [2, 2, 3, 1]

    def test_all_of_it_is_the_same_in_the_next_process(self):
        driver = four()
        error = driver.fails({})
        driver.crash()
        again = driver.machine.error()
        assert [f.node for f in again.failures] == ["b", "d"]
        assert again.interrupts == error.interrupts
        assert driver.resume("yes").state["log"] == ["a:yes", "b", "c", "d"]
        assert ran(driver) == [2, 2, 1, 2]

    def test_a_retry_that_waits_ends_before_the_run_stops(self):
        driver = Driver(
            fan(a=asks("a"), b=fails_once("b"), options={"b": {"retries": 1}}),
        )
        assert type(driver.invoke({})) is Interrupted
        assert driver.resume("yes").state["log"] == ["a:yes", "b"]


class TestPanic:
    def test_a_question_cancels_nobody(self):
        """langgraph 59."""
        driver = Driver(fan(a=asks("a"), b=slow("b"), options={"failure_policy": "panic"}))
        assert type(driver.invoke({})) is Interrupted
        assert driver.killed == []
        assert driver.resume("yes").state["log"] == ["a:yes", "b"]
        assert driver.runs("b") == 1

    def test_a_failure_cuts_the_others_and_keeps_the_open_questions(self):
        driver = Driver(
            fan(
                a=asks("a"),
                b=lambda _s, left=[1]: Later(1, ValueError(left.pop()) if left else {"log": ["b"]}),
                c=slow("c"),
                d=wrote("d"),
                options={"failure_policy": "panic"},
            )
        )
        error = driver.fails({})
        assert [f.node for f in error.failures] == ["b"]
        assert [question.node for question in error.interrupts] == ["a"]
        assert [attempt.task.node for attempt in driver.killed] == ["c"]
        driver.crash()
        outcome = driver.go_on()
        assert [question.node for question in outcome.interrupts] == ["a"]
        assert ran(driver) == [1, 2, 2, 1]
        assert driver.resume("yes").state["log"] == ["a:yes", "b", "c", "d"]

    def test_an_answer_runs_what_was_answered_failed_and_cut(self):
        driver = Driver(
            fan(
                a=asks("a"),
                b=lambda _s, left=[1]: Later(1, ValueError(left.pop()) if left else {"log": ["b"]}),
                c=slow("c"),
                options={"failure_policy": "panic"},
            )
        )
        driver.fails({})
        assert driver.resume("yes").state["log"] == ["a:yes", "b", "c"]
        assert ran(driver, "abc") == [2, 2, 2]

    def test_a_question_that_was_not_asked_in_time_is_asked_later(self):
        asked = asks("a")
        driver = Driver(
            fan(
                a=lambda s, ctx: Later(9) if ctx.era == 0 else asked(s, ctx),
                b=fails_once("b"),
                options={"failure_policy": "panic"},
            )
        )
        assert driver.fails({}).interrupts == ()
        assert driver.go_on().interrupt.node == "a"
        assert driver.resume("yes").state["log"] == ["a:yes", "b"]
