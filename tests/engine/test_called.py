"""Graphs that functions call (`ctx.call`): what a call begins, comes to, and holds meanwhile."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest

from beamweaver.checkpoint.entries import Memo
from beamweaver.engine import CallKind
from beamweaver.engine.calling import Calling, start_of
from beamweaver.engine.effects import CancelAttempt, Noted
from beamweaver.engine.ids import call_ordinal
from beamweaver.errors import NodeFailed
from beamweaver.limits import Limits
from beamweaver.types import Completed, RetryPolicy
from tests.engine.driver import HANGS, Driver, Later
from tests.engine.graphs import asks, fails, fan, graph


def takes(seconds, name="x"):
    return lambda _s: Later(seconds, {"log": [name]})


def calls(child, given=None, **options):
    """A function that calls this graph and takes over what it logged."""

    def node(_state, ctx):
        return {"log": ctx.call(child, {} if given is None else given(), **options)["log"]}

    return node


def child_of(**nodes):
    return graph(" ".join(f"^>{name}" for name in nodes), name="child", **nodes)


def calling(driver, child, key, given=None):
    """A call, as a function that makes several at once makes it."""
    env = driver.env.inside(child)
    prepared = driver.prepared(given or {}, child, env)
    return Calling(
        child, (child.name, call_ordinal(None), key), prepared.digest, start_of(child, prepared)
    )


class Several:
    """A function that hangs while the test makes its calls."""

    def __init__(self, child, *keys, options=None, **limits):
        self.driver = Driver(
            graph("^>a", a=lambda _s: HANGS, options=options or {}), limits=Limits(**limits)
        )
        self.sent = self.driver.send_invoke({})
        self.driver.run(until=lambda: self.driver.started)
        (self.attempt,) = self.driver.started
        self.calls = [self.call(child, key) for key in keys]

    def call(self, child, key, given=None):
        made = calling(self.driver, child, key, given)
        self.taken = self.driver.machine.called(self.attempt, made)
        return made

    @property
    def told(self):
        """The calls of which their caller was told what they came to."""
        return [e.token.key for e in self.driver.effects if type(e) is Noted]


@pytest.fixture(autouse=True)
def _only_look_at_what_is_told(monkeypatch):
    """The functions of `Several` have no body that could be run again."""
    goes_on = Driver._do_called

    def called(driver, token):
        if token in driver.callers:
            goes_on(driver, token)

    monkeypatch.setattr(Driver, "_do_called", called)


class TestWhatItComesTo:
    def test_another_input_than_it_began_with_is_refused(self):
        """semantics 4, as for a sub-step: `StepChanged`."""
        given = iter([{"x": 1}, {"x": 2}])
        driver = Driver(fan(a=calls(child_of(ask=asks()), lambda: next(given))))
        driver.invoke({})
        call = driver.send(CallKind.RESUME, answer="yes")
        driver.run()
        with pytest.raises(NodeFailed, match="with another input than that with") as failed:
            driver.answer(call)
        assert failed.value.failures[0].type_name == "beamweaver.errors.StepChanged"

    def test_calls_within_calls_have_a_bound(self):
        deepest = child_of(x=None)
        middle = graph("^>m", name="middle", m=calls(deepest))
        driver = Driver(fan(a=calls(middle)), limits=Limits(call_depth=1))
        assert "inside of 1 calls, which is limits.call_depth" in str(driver.fails({}))
        assert Driver(fan(a=calls(middle)), limits=Limits(call_depth=2)).invoke({})

    def test_a_result_that_is_too_large_is_the_callers_failure(self):
        child = child_of(x=lambda _s: {"log": ["y" * 1000]})
        driver = Driver(fan(a=calls(child)), limits=Limits(memo_bytes_a_task=500))
        error = driver.fails({})
        assert "limits.memo_bytes_a_task is 500" in str(error)
        assert error.failures[0].type_name == "beamweaver.errors.InvalidCall"
        assert driver.machine.state.step.tasks[0].inner == {}, (
            "it begins anew when it is called again"
        )

    def test_one_that_failed_goes_on_when_it_is_called_again(self):
        runs = []

        def bad(_state):
            runs.append(1)
            if len(runs) == 1:
                raise ValueError("boom")
            return {"log": ["bad"]}

        child = graph("^>ok ok>bad", name="child", ok=None, bad=bad)
        driver = Driver(fan(a=calls(child)))
        driver.fails({})
        assert driver.go_on().state["log"] == ["ok", "bad"]
        assert driver.runs("ok") == 1

    def test_one_whose_beginning_cannot_be_stored_fails_again_when_it_is_called_again(self):
        """The function may have caught its failure; nothing of it was ever stored."""

        class Reduced(TypedDict, total=False):
            made: Annotated[list[Any], lambda _old, _new: [object()]]

        child = graph("^>x x>y", schema=Reduced, name="child", x=lambda _s: None, y=fails(2))
        one = Several(child)
        for _again in range(2):
            one.calls.append(one.call(child, "a", {"made": [1]}))
            one.driver.run(seconds=1)
            assert "made[0] is of type object" in str(one.calls[-1].end)
        assert one.told == ["a", "a"]

    def test_one_that_failed_goes_on_where_the_function_calls_it_again_at_once(self):
        """It has caught the failure; what was finished of it stays."""
        child = graph("^>ok ok>bad", name="child", ok=None, bad=fails(1))
        one = Several(child)
        first = one.call(child, "a")
        one.driver.run(seconds=1)
        assert "boom" in str(first.end)
        again = one.call(child, "a")
        one.driver.run(seconds=1)
        assert type(again.end) is Memo
        assert (one.driver.runs("ok"), one.driver.runs("bad")) == (1, 2)
        one.driver.crash()
        (task,) = one.driver.machine.state.step.tasks
        assert (task.inner or {}, list(task.memos)) == ({}, [(again.name, again.ordinal, "a")])

    def test_one_that_sleeps_has_its_caller_sleep(self):
        def sleeper(_state, ctx):
            ctx.sleep(50)
            return {"log": ["slept"]}

        driver = Driver(fan(a=calls(child_of(x=sleeper))))
        sent = driver.send_invoke({})
        driver.run(seconds=1)
        assert driver.stored_status == "sleeping"
        driver.run()
        assert driver.answer(sent).state["log"] == ["slept"]


class TestSeveralAtOnce:
    def test_the_caller_is_told_of_each_when_it_ends(self):
        one = Several(child_of(x=takes(1)), "a")
        one.calls.append(one.call(child_of(x=takes(3)), "b"))
        one.driver.run(seconds=2)
        assert one.told == ["a"]
        one.driver.run(seconds=2)
        assert one.told == ["a", "b"]

    def test_one_that_waits_parks_the_caller_when_the_others_have_ended(self):
        one = Several(child_of(x=asks("x")), "a")
        one.calls.append(one.call(child_of(x=takes(3)), "b"))
        one.driver.run(seconds=1)
        assert one.told == []
        one.driver.run(seconds=3)
        assert one.told == ["b", "a"]
        assert [call.end is None for call in one.calls] == [True, False]

    def test_each_question_of_theirs_is_answered_by_its_id(self):
        one = Several(child_of(x=asks("x")), "a", "b")
        one.driver.run(seconds=1)
        one.driver.actions.append(("end", (one.attempt, None)))  # the body parks
        one.driver.run()
        first, second = one.driver.machine.open_interrupts()
        one.driver.send(CallKind.RESUME, answers={second.id: "yes"})
        one.driver.run()
        one.driver.crash()
        assert [each.id for each in one.driver.machine.open_interrupts()] == [first.id]

    def test_a_body_that_was_lost_is_started_again_when_all_have_ended(self):
        one = Several(child_of(x=takes(1)), "a")
        one.calls.append(one.call(child_of(x=takes(3)), "b"))
        one.driver.machine.lost(one.attempt)
        one.driver.run(seconds=2)
        assert one.driver.runs("a") == 1
        one.driver.run(seconds=2)
        assert one.driver.runs("a") == 2

    def test_what_a_body_did_not_wait_for_is_given_up(self):
        one = Several(child_of(x=takes(9)), "a", "b")
        one.driver.run(seconds=1)
        one.driver.actions.append(("end", (one.attempt, one.driver._judged(one.attempt, {"x": 1}))))
        one.driver.run()
        assert type(one.driver.answer(one.sent)) is Completed
        assert [call.given_up for call in one.calls] == [True, True]
        assert [attempt.node.name for attempt in one.driver.killed] == ["x", "x"]

    def test_a_cancel_stops_all_and_ends_when_their_bodies_have(self):
        one = Several(child_of(x=lambda _s: HANGS), "a", "b")
        one.driver.run(seconds=1)
        cancel = one.driver.send(CallKind.CANCEL)
        one.driver.advance()
        assert sorted(attempt.node.name for attempt in one.driver.killed) == ["a", "x", "x"]
        for attempt in one.driver.killed[:2]:
            assert cancel.id not in one.driver.replies
            one.driver._do_lost(attempt)
            one.driver.advance()
        one.driver.run()
        assert one.driver.answer(cancel).thread_id == "t"
        assert one.driver.status == "cancelled"

    def test_a_cancel_that_meets_a_lost_body_ends_when_its_calls_have(self):
        one = Several(child_of(x=lambda _s: HANGS), "a")
        one.driver.run(seconds=1)
        one.driver.machine.lost(one.attempt)
        cancel = one.driver.send(CallKind.CANCEL)
        one.driver.run()
        assert one.driver.answer(cancel).thread_id == "t"
        assert one.driver.status == "cancelled"

    def test_in_a_drain_the_caller_is_stopped_when_what_it_called_has(self):
        """It would wait for ever: what it called starts nothing more."""
        child = graph("^>x x>y", name="child", x=takes(2), y=takes(2, "y"))
        one = Several(child, "a")
        one.driver.run(seconds=1)
        one.driver.machine.drain()
        one.driver.run()
        assert (one.driver.status, one.driver.log) == ("drained", ["a", "x"])
        assert one.driver.killed == [one.attempt]

    def test_a_call_that_comes_while_all_is_to_stop_begins_nothing(self):
        child = child_of(x=takes(1))
        one = Several(child)
        cancel = one.driver.send(CallKind.CANCEL)
        one.driver.advance()
        assert one.call(child, "late").end is None
        assert one.taken
        one.driver.run()
        assert one.driver.runs("x") == 0
        assert one.driver.answer(cancel).thread_id == "t"
        kills = [e for e in one.driver.effects if type(e) is CancelAttempt]
        assert {kill.attempt for kill in kills} == {one.attempt}


class TestRoom:
    def test_a_caller_that_waits_takes_no_place(self):
        driver = Driver(fan(a=calls(child_of(x=None)), options={"max_concurrency": 1}))
        assert driver.invoke({}).state["log"] == ["x"]

    def test_only_so_many_workers_are_held_by_functions_that_wait(self):
        """Each caller that waits holds its worker, though it counts for no place."""
        child = child_of(x=takes(5))
        nodes = {name: calls(child) for name in "abc"}
        driver = Driver(fan(**nodes), limits=Limits(sync_nodes_a_thread=2))
        driver.send_invoke({})
        driver.run(seconds=1)
        assert sorted(driver.log) == ["a", "b", "x", "x"]
        driver.run()
        assert driver.values["log"] == ["x", "x", "x"]

    def test_an_async_function_that_waits_holds_no_worker(self):
        child = child_of(x=takes(5))

        async def calls_it(_state, ctx):
            return {"log": ctx.call(child, {})["log"]}

        nodes = dict.fromkeys("abc", calls_it)
        driver = Driver(fan(**nodes), limits=Limits(sync_nodes_a_thread=3))
        driver.send_invoke({})
        driver.run(seconds=1)
        assert driver.log == ["a", "b", "c", "x", "x", "x"]
        assert driver.machine.held is None

    def test_a_timer_of_a_called_graph_is_known_from_those_of_others(self):
        retry = RetryPolicy(max_attempts=2, initial_delay=5, jitter=False, retry_on="any")
        ends = [ValueError("boom"), {"log": ["x"]}]
        child = graph("^>x", name="child", x=lambda _s: Later(0.5, ends.pop(0)),
                      options={"x": {"retry": retry}})  # fmt: skip
        driver = Driver(fan(a=calls(child)))
        assert driver.invoke({}).state["log"] == ["x"]
