"""Questions: asked once, answered once, by id or alone."""

from __future__ import annotations

import msgspec
import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import (
    AlreadyAnswered,
    AmbiguousResume,
    InvalidAnswer,
    InvalidCall,
    NothingToResume,
    SerializationError,
    UnknownInterrupt,
)
from beamweaver.types import Completed, Interrupted
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fails_once, fan, graph


class TestOne:
    def test_a_question_parks_the_run(self):
        """graph 19."""
        driver = Driver(graph("^>a a>ask", a=None, ask=asks("ask", {"draft": 1})))
        outcome = driver.invoke({})
        assert type(outcome) is Interrupted
        assert (outcome.interrupt.value, outcome.interrupt.node) == ({"draft": 1}, "ask")
        assert outcome.interrupt.task_id == driver.started[-1].task_id

    def test_the_node_runs_again_from_its_top_with_the_answer(self):
        driver = Driver(fan(ask=asks()))
        driver.invoke({})
        assert driver.resume("yes").state["log"] == ["ask:yes"]
        assert driver.runs("ask") == 2

    def test_none_is_an_answer(self):
        """graph 22."""
        driver = Driver(fan(ask=asks()))
        driver.invoke({})
        assert driver.resume(None).state["log"] == ["ask:None"]

    def test_an_answer_is_kept_over_a_crash(self):
        driver = Driver(fan(ask=asks()))
        driver.invoke({})
        driver.send(CallKind.RESUME, answer=("yes", 1))
        driver.run(until=lambda: driver.runs("ask") == 2)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["ask:('yes', 1)"]

    def test_a_question_is_kept_over_a_crash(self):
        driver = Driver(fan(ask=asks("ask", {"q": (1, 2)})))
        first = driver.invoke({})
        driver.crash()
        assert driver.go_on().interrupts == first.interrupts
        assert driver.runs("ask") == 1

    def test_an_answer_that_cannot_be_stored_leaves_the_question_open(self):
        driver = Driver(fan(ask=asks()))
        driver.invoke({})
        with pytest.raises(SerializationError):
            driver.resume(object())
        assert driver.resume("yes").state["log"] == ["ask:yes"]

    def test_a_failure_after_an_answer_keeps_the_answer(self):
        left = [1]

        def node(_state, ctx):
            answer = ctx.interrupt("ok?")
            if left:
                raise ValueError(left.pop())
            return {"log": [answer]}

        driver = Driver(fan(ask=node))
        driver.invoke({})
        with pytest.raises(Exception, match="1"):
            driver.resume("yes")
        driver.crash()
        assert driver.go_on().state["log"] == ["yes"]


class TestSeveralOfOneNode:
    def test_answers_are_replayed_by_order(self):
        """graph 23."""
        driver = Driver(fan(ask=asks("ask", "a", "b", "c")))
        ids = [driver.invoke({}).interrupt.id]
        for answer in ("1", "2"):
            ids.append(driver.resume(answer).interrupt.id)
        assert driver.resume("3").state["log"] == ["ask:1,2,3"]
        assert len(set(ids)) == 3

    def test_answers_are_replayed_by_key(self):
        order = [["a", "b"], ["b", "a"], ["b", "a"]]

        def node(_state, ctx):
            answers = {key: ctx.interrupt(key, key=key) for key in order.pop(0)}
            return {"log": [answers["a"], answers["b"]]}

        driver = Driver(fan(ask=node))
        driver.invoke({})
        assert driver.resume("A").interrupt.value == "b"
        assert driver.resume("B").state["log"] == ["A", "B"]

    def test_keys_and_order_do_not_meet(self):
        def node(_state, ctx):
            first = ctx.interrupt("first")
            keyed = ctx.interrupt("keyed", key="0")
            return {"log": [first, keyed, ctx.interrupt("second")]}

        driver = Driver(fan(ask=node))
        driver.invoke({})
        for answer in (1, 2):
            driver.resume(answer)
        assert driver.resume(3).state["log"] == [1, 2, 3]

    def test_between_two_answers_the_node_is_still_next(self):
        """peers 18."""
        driver = Driver(fan(ask=asks("ask", "a", "b")))
        driver.invoke({})
        outcome = driver.resume("1")
        assert [i.value for i in outcome.interrupts] == ["b"]
        assert driver.machine.state.step.tasks[0].result is None

    def test_they_outlive_a_crash_between_them(self):
        driver = Driver(fan(ask=asks("ask", "a", "b")))
        driver.invoke({})
        driver.resume("1")
        driver.crash()
        assert driver.resume("2").state["log"] == ["ask:1,2"]


class TestSeveralNodes:
    def test_one_answer_for_several_questions_is_ambiguous(self):
        """graph 21; peers 17."""
        driver = Driver(fan(a=asks("a", "qa"), b=asks("b", "qb")))
        driver.invoke({})
        with pytest.raises(AmbiguousResume, match="'qa'.*'qb'"):
            driver.resume("yes")

    def test_a_map_answers_them_all(self):
        driver = Driver(fan(a=asks("a"), b=asks("b")))
        answers = {i.id: i.node.upper() for i in driver.invoke({}).interrupts}
        assert driver.resume(answers=answers).state["log"] == ["a:A", "b:B"]

    def test_a_partial_map_leaves_the_rest_open_and_only_complete_tasks_run(self):
        """peers 15; peers 19."""
        driver = Driver(fan(a=asks("a"), b=asks("b"), c=asks("c")))
        first, second, third = driver.invoke({}).interrupts
        outcome = driver.resume(answers={second.id: "B"})
        assert [i.id for i in outcome.interrupts] == [first.id, third.id]
        assert [driver.runs(node) for node in "abc"] == [1, 2, 1]
        assert driver.resume(answers={first.id: "A", third.id: "C"}).state["log"] == [
            "a:A",
            "b:B",
            "c:C",
        ]

    def test_an_unknown_id_is_refused_and_nothing_changes(self):
        """peers 27."""
        driver = Driver(fan(a=asks("a"), b=asks("b")))
        known = driver.invoke({}).interrupts[0].id
        before = len(driver.commits)
        with pytest.raises(UnknownInterrupt, match="'int_nobody'"):
            driver.resume(answers={known: 1, "int_nobody": 2})
        assert len(driver.commits) == before

    def test_a_map_without_an_entry_is_refused(self):
        driver = Driver(fan(a=asks("a")))
        driver.invoke({})
        with pytest.raises(InvalidCall, match="at least one"):
            driver.resume(answers={})


class TestAnsweredAlready:
    def answered(self, *nodes):
        driver = Driver(graph(*nodes) if nodes else fan(ask=asks()))
        self.id = driver.invoke({}).interrupts[0].id
        return driver

    def test_in_a_complete_run(self):
        """peers 27."""
        driver = self.answered()
        driver.resume("yes")
        with pytest.raises(AlreadyAnswered):
            driver.resume(answers={self.id: "again"})

    def test_while_another_question_is_open(self):
        driver = Driver(fan(a=asks("a"), b=asks("b")))
        first, _second = driver.invoke({}).interrupts
        driver.resume(answers={first.id: "A"})
        with pytest.raises(AlreadyAnswered):
            driver.resume(answers={first.id: "again"})

    def test_in_a_failed_run(self):
        driver = Driver(graph("^>ask ask>bad", ask=asks(), bad=fails_once()))
        id_ = driver.invoke({}).interrupt.id
        with pytest.raises(Exception, match="boom"):
            driver.resume("yes")
        with pytest.raises(AlreadyAnswered):
            driver.resume(answers={id_: "again"})

    def test_in_a_run_that_a_dead_process_left(self):
        driver = Driver(graph("^>ask ask>slow", ask=asks(), slow=lambda _s: Later(1)))
        id_ = driver.invoke({}).interrupt.id
        driver.send(CallKind.RESUME, answer="yes")
        driver.run(until=lambda: driver.runs("slow"))
        driver.recover = False
        driver.crash()
        with pytest.raises(AlreadyAnswered):
            driver.resume(answers={id_: "again"})

    def test_in_a_run_that_was_cancelled_or_drained(self):
        for stop in ("cancelled", "drained"):
            driver = Driver(
                graph("^>ask ask>slow slow>c", ask=asks(), slow=lambda _s: Later(1), c=None)
            )
            id_ = driver.invoke({}).interrupt.id
            driver.send(CallKind.RESUME, answer="yes")
            driver.run(until=lambda driver=driver: driver.runs("slow"))
            if stop == "drained":
                driver.machine.drain()
                driver.run()
            else:
                driver.call(CallKind.CANCEL)
            assert driver.status == stop
            with pytest.raises(AlreadyAnswered):
                driver.resume(answers={id_: "again"})

    def test_in_a_run_that_executes_here(self):
        driver = Driver(graph("^>ask ask>slow", ask=asks(), slow=lambda _s: Later(1)))
        id_ = driver.invoke({}).interrupt.id
        driver.send(CallKind.RESUME, answer="yes")
        driver.run(until=lambda: driver.runs("slow"))
        late = driver.send(CallKind.RESUME, answers={id_: "again"})
        driver.run()
        with pytest.raises(AlreadyAnswered):
            driver.answer(late)

    def test_in_a_run_that_stands_at_a_breakpoint(self):
        driver = Driver(
            graph("^>ask ask>b", ask=asks(), b=None, options={"interrupt_before": ["b"]})
        )
        id_ = driver.invoke({}).interrupt.id
        driver.resume("yes")
        with pytest.raises(AlreadyAnswered):
            driver.resume(answers={id_: "again"})

    def test_by_a_second_answer_at_the_same_time(self):
        """peers 27."""
        driver = Driver(fan(ask=asks()))
        id_ = driver.invoke({}).interrupt.id
        first = driver.send(CallKind.RESUME, answers={id_: "first"})
        second = driver.send(CallKind.RESUME, answers={id_: "second"})
        driver.run()
        assert driver.answer(first).state["log"] == ["ask:first"]
        with pytest.raises(AlreadyAnswered):
            driver.answer(second)

    def test_until_a_new_run_begins(self):
        driver = self.answered()
        driver.resume("yes")
        driver.invoke({})
        with pytest.raises(UnknownInterrupt):
            driver.resume(answers={self.id: "again"})


def test_a_second_answer_without_an_id_has_nothing_to_resume():
    driver = Driver(fan(ask=asks()))
    driver.invoke({})
    driver.resume("yes")
    with pytest.raises(NothingToResume):
        driver.resume("yes")


def test_an_answer_with_its_own_limit_has_it():
    driver = Driver(graph("^>ask ask>b b>c", ask=asks(), b=None, c=None))
    driver.invoke({})
    with pytest.raises(Exception, match="recursion_limit is 2"):
        driver.resume("yes", recursion_limit=2)
    assert type(driver.go_on()) is Completed


def test_a_question_and_a_failed_sibling_are_both_durable():
    driver = Driver(fan(bad=fails_once(), ask=asks()))
    driver.fails({})
    driver.crash()
    assert [i.node for i in driver.machine.open_interrupts()] == ["ask"]
    assert driver.resume("yes").state["log"] == ["bad", "ask:yes"]


class TestSchemas:
    """`interrupt(schema=…)`: what an answer must be."""

    def waiting(self, kind=None):
        def ask(_state, ctx):
            return {"x": ctx.interrupt("how many?", schema=b'{"type":"integer"}', kind=kind)}

        driver = Driver(fan(ask=ask))
        assert driver.invoke({}).interrupt.schema == {"type": "integer"}
        return driver

    def test_an_answer_that_does_not_fit_leaves_the_question_open(self):
        """semantics 9: the question stays."""
        driver = self.waiting(int)
        with pytest.raises(InvalidAnswer, match="Expected `int`.*the question is open"):
            driver.resume("many")
        assert driver.resume(3).state["x"] == 3

    def test_after_a_crash_the_description_judges(self):
        driver = self.waiting(int)
        driver.crash()
        with pytest.raises(InvalidAnswer, match="does not fit its schema"):
            driver.resume("many")
        assert driver.resume(3).state["x"] == 3

    def test_of_a_map_none_is_kept_where_one_does_not_fit(self):
        driver = self.waiting()
        (question,) = driver.machine.state.step.tasks[0].questions
        with pytest.raises(InvalidAnswer) as refused:
            driver.resume(answers={question.id: "many"})
        assert refused.value.interrupt_id == question.id
        assert question.answer is None

    def test_an_instance_is_kept_as_plain_values(self):
        class Count(msgspec.Struct):
            n: int

        def ask(_state, ctx):
            return {"x": ctx.interrupt("how many?", schema=b'{"type":"object"}')}

        driver = Driver(fan(ask=ask))
        driver.invoke({})
        assert driver.resume(Count(3)).state["x"] == {"n": 3}
