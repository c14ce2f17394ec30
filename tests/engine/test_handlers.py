"""Error handlers: after the last attempt, as durable as a node, and only they run again."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Finished, Handled, TaskFailed
from beamweaver.engine import CallKind
from beamweaver.engine.effects import Attempt
from beamweaver.errors import ErrorHandlerFailed, NodeExit, NodeFailed, StepTimeout
from beamweaver.graph import Graph
from beamweaver.types import START, Completed, Interrupted, Overwrite, RetryPolicy, Send
from tests.engine.driver import HANGS, Crashed, Driver, Exits, Later, goto
from tests.engine.graphs import asks, fails, fails_once, fan, graph


def boom(_state):
    raise ValueError("boom")


class Counts:
    """A handler that notes what it was given, and gives what it is told to."""

    def __init__(self, *gives, log="handled"):
        self.gives = list(gives)
        self.log = log
        self.seen = []

    def __call__(self, failure, state, ctx):
        self.seen.append((failure, state, ctx))
        given = self.gives.pop(0) if self.gives else {"log": [self.log]}
        if isinstance(given, BaseException):
            raise given
        return given


def handled(node, handler, edges="^>a a>b", **options):
    given = {"error_handler": handler, **options.pop("a", {})}
    return Driver(graph(edges, a=node, b=None, options={"a": given, **options}))


class TestWhatItIs:
    def test_it_takes_the_place_of_the_failed_node(self):
        handler = Counts()
        driver = handled(boom, handler)
        assert driver.invoke({"x": 1}).state["log"] == ["handled", "b"]
        ((failure, state, ctx),) = handler.seen
        assert (failure.node, failure.attempt, failure.code) == ("a", 1, "node_failed")
        assert (failure.type_name, failure.message) == ("ValueError", "boom")
        assert isinstance(failure.exception, ValueError)
        assert "boom" in failure.traceback
        assert state["x"] == 1
        assert (ctx.node, ctx.attempt, ctx.task_id) == ("a", 1, failure.task_id)

    @pytest.mark.parametrize("gives", [None, {}, {"x": 1}])
    def test_with_any_update_the_node_has_ended_well(self, gives):
        driver = handled(boom, lambda failure: gives)
        assert driver.invoke({}).state["log"] == ["b"]

    def test_it_routes(self):
        """graph 106."""
        driver = Driver(
            graph(
                "^>a a>b",
                a=boom,
                b=None,
                c=None,
                options={"a": {"error_handler": lambda f: goto("c")}},
            )
        )
        assert driver.invoke({}).state["log"] == ["c"]

    def test_it_sends(self):
        driver = Driver(
            graph(
                "^>a",
                a=boom,
                w=lambda s: {"n": s["x"]},
                options={"a": {"error_handler": lambda f: [Send("w", {"x": i}) for i in (1, 2)]}},
            )
        )
        assert driver.invoke({}).state["n"] == 3

    def test_a_router_sees_what_it_wrote(self):
        driver = Driver(
            graph(
                "^>a",
                a=boom,
                b=None,
                c=None,
                routers=[("a", lambda s: s["x"])],
                options={"a": {"error_handler": lambda f: {"x": "c"}}},
            )
        )
        assert driver.invoke({}).state["log"] == ["c"]

    def test_a_join_counts_its_end(self):
        driver = Driver(
            graph(
                "^>a ^>b",
                a=boom,
                b=None,
                c=None,
                joins=[("a b", "c")],
                options={"a": {"error_handler": Counts()}},
            )
        )
        assert driver.invoke({}).state["log"] == ["handled", "b", "c"]

    def test_with_a_goto_it_does_not_arrive_at_the_join(self):
        driver = Driver(
            graph(
                "^>a ^>b",
                a=boom,
                b=None,
                c=None,
                joins=[("a b", "c")],
                options={"a": {"error_handler": lambda f: goto()}},
            )
        )
        outcome = driver.invoke({})
        assert outcome.state["log"] == ["b"]
        assert "half armed" in outcome.warnings[0]

    def test_its_update_merges_in_task_order_with_its_siblings(self):
        """graph 108; peers 29."""
        driver = Driver(
            fan(
                a=boom,
                b=lambda _s: Later(1, ValueError("late")),
                c=None,
                options={
                    "a": {"error_handler": Counts(log="ha")},
                    "b": {"error_handler": Counts(log="hb")},
                },
            )
        )
        assert driver.invoke({}).state["log"] == ["ha", "hb", "c"]
        assert [driver.runs(node) for node in "abc"] == [2, 2, 1]

    def test_of_a_send_it_sees_the_overlay(self):
        seen = Counts()
        driver = Driver(
            graph(
                "^>fan",
                fan=lambda s: [Send("w", {"x": i}) for i in range(3)],
                w=boom,
                options={"w": {"error_handler": seen}},
            )
        )
        driver.invoke({})
        assert [state["x"] for _f, state, _c in seen.seen] == [0, 1, 2]

    def test_an_overwrite_of_it_counts(self):
        driver = handled(boom, lambda f: {"log": Overwrite(["anew"])})
        assert driver.invoke({}).state["log"] == ["anew", "b"]


class TestWhen:
    def test_after_the_last_attempt(self):
        """graph 111."""
        handler = Counts()
        driver = handled(fails(9), handler, a={"retry": RetryPolicy(max_attempts=2)})
        assert driver.invoke({}).state["log"] == ["handled", "b"]
        assert handler.seen[0][0].attempt == 2
        assert driver.runs("a") == 3, "two attempts and the handler"

    def test_not_if_an_attempt_ends_well(self):
        handler = Counts()
        driver = handled(fails_once("a"), handler, a={"retries": 1})
        driver.invoke({})
        assert handler.seen == []

    def test_an_interrupt_is_no_failure(self):
        """langgraph 146; graph 146."""
        handler = Counts()
        driver = handled(asks("a"), handler)
        assert type(driver.invoke({})) is Interrupted
        assert driver.resume("yes").state["log"] == ["a:yes", "b"]
        assert handler.seen == []

    def test_a_timeout_is_one(self):
        handler = Counts()
        driver = handled(lambda _s: HANGS, handler, a={"timeout": 2})
        assert driver.invoke({}).state["log"] == ["handled", "b"]
        assert handler.seen[0][0].code == "node_timeout"

    def test_and_so_is_a_killed_actor(self):
        handler = Counts()
        handled(lambda _s: Exits(), handler).invoke({})
        assert handler.seen[0][0].code == NodeExit.code

    def test_and_an_update_that_does_not_fit(self):
        handler = Counts()
        handled(lambda _s: {"nobody": 1}, handler).invoke({})
        assert handler.seen[0][0].code == "unknown_channel"

    def test_the_failure_of_the_step_is_none_of_its_nodes(self):
        handler = Counts()
        driver = handled(lambda _s: HANGS, handler, step_timeout=1)
        assert isinstance(driver.fails({}), StepTimeout)
        assert handler.seen == []

    def test_a_cancel_is_none(self):
        handler = Counts()
        driver = handled(lambda _s: HANGS, handler)
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("a"))
        driver.call(CallKind.CANCEL)
        assert (driver.status, handler.seen) == ("cancelled", [])

    def test_a_failure_that_is_handled_makes_nobody_panic(self):
        driver = Driver(
            fan(
                a=boom,
                b=lambda _s: Later(5, {"log": ["b"]}),
                options={"failure_policy": "panic", "a": {"error_handler": Counts()}},
            )
        )
        assert driver.invoke({}).state["log"] == ["handled", "b"]
        assert driver.killed == []

    def test_a_handler_that_fails_does(self):
        driver = Driver(
            fan(
                a=boom,
                b=lambda _s: Later(5, {"log": ["b"]}),
                options={
                    "failure_policy": "panic",
                    "a": {"error_handler": Counts(RuntimeError("worse"))},
                },
            )
        )
        assert isinstance(driver.fails({}), ErrorHandlerFailed)
        assert [attempt.task.node for attempt in driver.killed] == ["b"]


class TestItsOwnFailure:
    def test_has_both_failures(self):
        driver = handled(boom, Counts(KeyError("worse")))
        error = driver.fails({})
        assert isinstance(error, ErrorHandlerFailed)
        assert (error.code, error.node, error.attempt) == ("error_handler_failed", "a", 1)
        assert "KeyError: 'worse'" in str(error)
        assert "ValueError: boom" in str(error)
        assert isinstance(error.__cause__, KeyError)

    def test_is_the_same_error_in_the_next_process(self):
        driver = handled(boom, Counts(KeyError("worse"), KeyError("worse")))
        first = driver.fails({})
        driver.crash()
        driver.recover = False
        state = driver.machine.state
        assert state.step.tasks[0].failure.code == "error_handler_failed"
        again = driver.machine.error()
        assert (type(again), str(again)) == (ErrorHandlerFailed, str(first))

    def test_is_not_tried_again_nor_handled(self):
        handler = Counts(ConnectionError("worse"))
        driver = handled(
            boom, handler, a={"retry": RetryPolicy(max_attempts=5, retry_on="transient")}
        )
        assert isinstance(driver.fails({}), ErrorHandlerFailed)
        assert len(handler.seen) == 1

    def test_continuing_runs_the_handler_and_not_the_node(self):
        """graph 107; langgraph 145."""
        handler = Counts(RuntimeError("worse"))
        driver = handled(boom, handler)
        driver.fails({})
        driver.crash()
        assert driver.go_on().state["log"] == ["handled", "b"]
        first, second = (failure for failure, _s, _c in handler.seen)
        assert (second.message, second.attempt, second.exception) == ("boom", 1, None)
        assert second.traceback == first.traceback
        assert driver.runs("a") == 3, "the node and two handlers"

    def test_it_is_under_the_timeout_of_its_node(self):
        """peers 30."""
        driver = handled(boom, lambda f: HANGS, a={"timeout": 2})
        error = driver.fails({})
        assert isinstance(error, ErrorHandlerFailed)
        assert "timeout of 2 s" in str(error)

    def test_a_return_that_does_not_fit_is_one(self):
        error = handled(boom, lambda f: {"nobody": 1}).fails({})
        assert isinstance(error, ErrorHandlerFailed)
        assert "'nobody'" in str(error)

    def test_dropping_its_result_runs_the_node(self):
        handler = Counts()
        driver = Driver(
            fan(a=fails_once("a"), b=fails_once("b"), options={"a": {"error_handler": handler}})
        )
        driver.fails({})
        assert driver.go_on(rerun=("a",)).state["log"] == ["a", "b"]
        assert len(handler.seen) == 1


class TestDurable:
    def test_its_failure_is_kept_before_it_starts(self):
        driver = handled(boom, Counts())
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("a") == 2)
        assert len(driver.entries(Handled)) == 1

    def test_a_committed_one_never_runs_again(self):
        """peers 6."""
        handler = Counts({"log": ["first"]}, {"log": ["second"]})
        driver = Driver(fan(a=boom, b=fails_once("b"), options={"a": {"error_handler": handler}}))
        assert isinstance(driver.fails({}), NodeFailed)
        assert driver.go_on().state["log"] == ["first", "b"]
        assert len(handler.seen) == 1

    def test_a_crash_in_it_runs_it_again_with_the_same_key(self):
        keys = []

        def handler(failure, state, ctx):
            keys.append((ctx.idempotency_key, ctx.task_id))
            return HANGS if len(keys) == 1 else {"log": ["handled"]}

        driver = handled(boom, handler)
        driver.send_invoke({})
        driver.run(until=lambda: keys)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["handled", "b"]
        assert keys[0] == keys[1]
        assert driver.runs("a") == 3

    def test_a_drain_in_front_of_it_leaves_it_to_the_next_process(self):
        handler = Counts()
        driver = handled(lambda _s: Later(1, ValueError("boom")), handler)
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("a"))
        driver.machine.drain()
        driver.run()
        assert (driver.status, handler.seen) == ("drained", [])
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["handled", "b"]
        assert driver.runs("a") == 2

    def test_a_cancel_of_it_leaves_it_to_the_next_call(self):
        gives = [HANGS]
        driver = handled(boom, lambda f: gives.pop() if gives else {"log": ["handled"]})
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("a") == 2)
        driver.call(CallKind.CANCEL)
        assert driver.status == "cancelled"
        assert driver.go_on().state["log"] == ["handled", "b"]
        assert driver.runs("a") == 3

    def test_a_step_that_runs_out_of_time_in_it(self):
        gives = [HANGS]
        driver = handled(
            boom, lambda f: gives.pop() if gives else {"log": ["handled"]}, step_timeout=1
        )
        assert isinstance(driver.fails({}), StepTimeout)
        assert driver.go_on().state["log"] == ["handled", "b"]
        assert driver.runs("a") == 3

    def test_a_death_at_any_commit(self):
        def build():
            return graph(
                "^>a ^>b a>c b>c",
                a=boom,
                b=None,
                c=None,
                options={"a": {"error_handler": lambda f: {"log": [f.message]}, "retries": 1}},
            )

        clean = Driver(build())
        clean.checks = True
        clean.invoke({})
        for number in range(len(clean.commits)):
            for written in (False, True):
                driver = Driver(build(), crash_at=number, written=written)
                try:
                    driver.invoke({})
                except Crashed:
                    driver.crash()
                    driver.run()
                    if driver.status is None:
                        driver.invoke({})
                where = f"crash {'after' if written else 'before'} commit {number}"
                assert driver.machine.state.values["log"] == ["boom", "b", "c"], where
                assert driver.faults == [], where

    def test_without_a_handler_nothing_is_recorded_of_one(self):
        driver = Driver(fan(a=boom))
        driver.fails({})
        assert (driver.entries(Handled), len(driver.entries(TaskFailed))) == ([], 1)

    def test_code_that_lost_its_handler_runs_the_node_again(self):
        driver = handled(boom, lambda f: HANGS)
        driver.send_invoke({})
        driver.run(until=lambda: driver.runs("a") == 2)
        driver.graph = graph("^>a a>b", a=None, b=None)
        driver.crash()
        driver.run()
        assert driver.machine.state.values["log"] == ["a", "b"]


class TestQuestions:
    def test_it_may_ask(self):
        """reference AH."""

        def handler(failure, state, ctx):
            return {"log": [f"{failure.message}: {ctx.interrupt('what now?')}"]}

        driver = handled(boom, handler)
        assert driver.invoke({}).interrupt.value == "what now?"
        driver.crash()
        assert driver.resume("go on").state["log"] == ["boom: go on", "b"]
        assert driver.runs("a") == 3

    def test_its_questions_are_not_those_of_its_node(self):
        def node(_state, ctx):
            raise ValueError(ctx.interrupt("of the node"))

        def handler(failure, state, ctx):
            return {"log": [failure.message, ctx.interrupt("of the handler")]}

        driver = handled(node, handler)
        first = driver.invoke({}).interrupt
        second = driver.resume("one").interrupt
        assert (first.value, second.value) == ("of the node", "of the handler")
        assert first.id != second.id
        assert driver.resume("two").state["log"] == ["one", "two", "b"]


def test_a_default_handler_is_that_of_each_node_without_one():
    """langgraph 147."""
    builder = Graph(name="g").set_node_defaults(error_handler=lambda f: {f.node: "default"})
    builder.add_node("a", boom).add_node("b", boom, error_handler=lambda f: {f.node: "own"})
    builder.add_node("c", lambda s: {"c": "none"}, error_handler=None)
    for node in "abc":
        builder.add_edge(START, node)
    outcome = Driver(builder.compile()).invoke({})
    assert type(outcome) is Completed
    assert outcome.state == {"a": "default", "b": "own", "c": "none"}


def test_an_async_handler():
    async def handler(failure):
        return {"log": [failure.message]}

    assert handled(boom, handler).invoke({}).state["log"] == ["boom", "b"]


def test_it_and_a_question_in_one_step():
    driver = Driver(fan(a=boom, ask=asks(), options={"a": {"error_handler": Counts()}}))
    assert type(driver.invoke({})) is Interrupted
    assert len(driver.entries(Finished)) == 1
    assert driver.resume("yes").state["log"] == ["handled", "ask:yes"]


def test_what_follows_a_handled_failure_is_of_the_attempt_that_failed():
    """A router after the task is given the number of that attempt, and effects under the handler's name."""
    driver = handled(boom, Counts(), "^>a", b={})
    driver.invoke({})
    (task,) = {attempt.task for attempt in driver.started}
    attempt = Attempt.of(task, driver.graph.nodes["a"], "branch", 1, {}, None)
    assert (attempt.number, attempt.scope) == (1, f"handler:{attempt.task_id}")
