"""Guarded edges, deferred nodes and warnings, as a user sees them."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import END, START, Graph, Invoke, Runtime, Send, interrupt
from beamweaver.errors import RouterFailed, StateMutated, StepTimeout
from tests.runtime.children import guarded_and_die, guarded_app, killed
from tests.runtime.kit import Gate, Log, line, wrote


def looping(when=None, **options):
    """`a` goes round by its guarded edge, and then to `b`."""
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("b", wrote("b"))
    graph.add_edge(START, "a").add_edge("a", "a", when=when, **options)
    return graph.add_edge("a", "b", default=True).add_edge("b", END)


def short(state):
    return len(state["log"]) < 3


async def short_async(state):
    await asyncio.sleep(0)
    return len(state["log"]) < 3


class WithContext:
    """A predicate that keeps what it knows of its place."""

    def __init__(self):
        self.seen = []

    def __call__(self, state, ctx):
        self.seen.append((ctx.node, ctx.step_number, ctx.thread_id, ctx.run_id))
        return len(state["log"]) < 2


class TestPredicates:
    @pytest.mark.parametrize("when", [short, short_async], ids=["sync", "async"])
    def test_they_are_asked_after_each_step(self, store, when):
        with looping(when).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["a", "a", "a", "b"]

    @pytest.mark.parametrize("when", [short, short_async], ids=["sync", "async"])
    def test_without_a_store_too(self, when):
        with looping(when, max_runs=1).compile() as app:
            assert app.invoke({}).state["log"] == ["a", "a", "b"]

    def test_they_know_where_they_are_asked(self, store):
        guard = WithContext()
        with looping(guard).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", run_id="R")
        assert guard.seen == [("a", 1, "t", "R"), ("a", 2, "t", "R")]

    def test_one_that_changes_its_state_is_named(self, store):
        def guard(state):
            state["n"] = 99
            return False

        with looping(guard).compile(checkpointer=store) as app:
            with pytest.raises(StateMutated, match="guard 'guard' of the edge 'a' -> 'a' changed"):
                app.invoke({"n": 1}, thread_id="t")
            assert app.get_state("t").values["n"] == 1

    def test_budgets_hold_on_each_thread_and_run(self, store):
        with looping(max_runs=2).compile(checkpointer=store) as app:
            for _run in range(2):
                assert app.invoke({}, thread_id="t").state["log"][-4:] == ["a", "a", "a", "b"]
            assert app.invoke({}, thread_id="u").state["log"] == ["a", "a", "a", "b"]

    def test_from_the_entry(self, store):
        graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("b", wrote("b"))
        graph.add_edge(START, "a", when=lambda state: state["n"] > 1)
        graph.add_edge(START, "b", default=True)
        with graph.compile(checkpointer=store) as app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["b"]
            assert app.invoke({"n": 2}, thread_id="u").state["log"] == ["a"]

    def test_after_sends_each_task_chooses(self, store):
        graph = Graph(Log, name="g")
        for name in ("s", "w", "b", "c"):
            graph.add_node(name, wrote(name), **({"destinations": ["w"]} if name == "s" else {}))
        graph.add_conditional_edges("s", lambda _state: [Send("w", {"item": i}) for i in range(3)])
        graph.add_edge(START, "s").add_edge("w", "b", max_runs=2).add_edge("w", "c", default=True)
        with graph.compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["s", "w", "w", "w", "b", "c"]


class TestFailures:
    @pytest.mark.parametrize(
        ("when", "words"),
        [
            (lambda _state: 1 / 0, "raised ZeroDivisionError: division by zero"),
            (lambda _state: "yes", r"returned 'yes' \(str\); expected True or False"),
            (lambda _state: short_async({"log": []}), "give the async function itself as when="),
            (lambda _state: interrupt("?"), r"called interrupt\(\); only nodes can ask"),
            (lambda _state: next(iter(())), "raised StopIteration"),
        ],
        ids=["raises", "no bool", "coroutine", "asks", "stops"],
    )
    def test_the_error_names_the_edge_and_the_results_stay(self, store, when, words):
        with looping(when).compile(checkpointer=store) as app:
            with pytest.raises(RouterFailed, match=words) as caught:
                app.invoke({}, thread_id="t")
            error, state = caught.value, app.get_state("t")
        assert "the guard '<lambda>' of the edge 'a' -> 'a'" in error.message
        assert (error.node, error.target) == ("a", "a")
        assert (state.status, state.values["log"], state.next) == ("failed", ["a"], ("a",))

    @pytest.mark.parametrize("loops", [False, True], ids=["sync", "async"])
    def test_continuing_asks_again_and_runs_no_node(self, store, loops):
        bad = [True]

        def guard(state):
            if bad:
                bad.pop()
                raise ValueError("lost")
            return short(state)

        async def guard_async(state):
            return guard(state)

        with looping(guard_async if loops else guard).compile(checkpointer=store) as app:
            with pytest.raises(RouterFailed, match="when the guard is mended"):
                app.invoke({}, thread_id="t")
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "a", "a", "b"]

    def test_one_that_hangs_is_cut_by_the_step_timeout(self, store):
        gate = Gate(True)

        def guard(state):
            gate(state)
            return False

        with looping(guard).compile(checkpointer=store) as app:
            with pytest.raises(StepTimeout, match="routers and guards"):
                app.invoke({}, thread_id="t", step_timeout=0.05)
            gate.open()
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "b"]

    def test_a_kill_while_it_is_asked_asks_again(self, disk):
        killed(guarded_and_die, disk.path)
        with guarded_app(lambda _state: True).compile(checkpointer=disk.open()) as app:
            outcome = app.invoke(None, thread_id="t")
        assert outcome.state["log"] == ["a", "a", "a"]


class Kept(TypedDict, total=False):
    log: Annotated[list, operator.add]


def deferring(**nodes):
    graph = Graph(Kept, name="g")
    for name in ("a", "b", "c", "late"):
        graph.add_node(name, nodes.get(name, wrote(name)), defer=name == "late")
    graph.add_edge(START, "a").add_edge("a", "late").add_edge("a", "b").add_edge("b", "c")
    return graph.add_edge("c", "late").add_edge("late", END)


class TestDefer:
    def test_it_runs_last_and_once(self, store):
        with deferring().compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["a", "b", "c", "late"]

    def test_what_waits_is_shown_in_next(self, store):
        with deferring(c=lambda _s: {"log": [interrupt("?")]}).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            state = app.get_state("t")
            past = [each.next for each in app.get_state_history("t")]
            outcome = app.resume("c", thread_id="t")
        assert (state.next, [task.node for task in state.tasks]) == (("c", "late"), ["c"])
        assert past == [("c", "late"), ("b", "late"), ("a",)]
        assert outcome.state["log"] == ["a", "b", "c", "late"]


def half_armed(name="g"):
    graph = Graph(Log, name=name)
    for node in ("a", "b", "c"):
        graph.add_node(node, wrote(node))
    return graph.add_edge(START, "a").add_edge(["a", "b"], "c")


class TestWarnings:
    def test_they_are_those_of_the_run_in_the_next_process_too(self, disk):
        for _process in range(2):
            graph = half_armed()
            with graph.compile(checkpointer=disk.open(), allow_unreachable=True) as app:
                outcome = app.invoke({"n": 1}, thread_id="t", run_id="one")
            (warning,) = outcome.warnings
            assert warning == (
                "the run ended with the join ['a', 'b'] -> 'c' half armed: only a arrived"
            )

    def test_an_older_runs_recorded_outcome_has_them(self, store):
        with half_armed().compile(checkpointer=store, allow_unreachable=True) as app:
            first = app.invoke({"n": 1}, thread_id="t", run_id="one")
            app.invoke({"n": 2}, thread_id="t", run_id="two")
            again = app.invoke({"n": 1}, thread_id="t", run_id="one")
        assert again.warnings == first.warnings != ()
        assert again.state == first.state

    def test_a_run_without_any_has_none(self, store):
        app = line("g", a=wrote("a")).compile()
        with Runtime(store, graphs=[app]) as runtime:
            assert runtime.thread("t").ask(Invoke({})).warnings == ()
