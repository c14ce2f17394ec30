"""`durability="exit"` from outside: what has a record, what survives, and what is refused."""

from __future__ import annotations

import pytest

from beamweaver import END, START, Graph, Invoke, Runtime, interrupt
from beamweaver.errors import InvalidCall, NodeFailed
from beamweaver.events import StepCommitted
from tests.runtime.kit import (
    NESTED,
    SIX,
    Boom,
    Counted,
    Events,
    Log,
    failing_at,
    line,
    nested,
    simulated,
    six,
    wrote,
)


def sources(app):
    return [state.metadata["source"] for state in app.get_state_history("t")]


def test_only_the_ends_of_a_run_are_checkpoints(store):
    with six().compile(checkpointer=store) as app:
        outcome = app.invoke({"n": 1}, thread_id="t", durability="exit")
        assert outcome.state == {"n": 1, "log": SIX}
        assert sources(app) == ["loop", "input"]
        assert app.get_state("t").values == outcome.state
        assert app.get_state("t").config["configurable"]["checkpoint_id"] == outcome.checkpoint_id
        app.invoke({"n": 2}, thread_id="t")
        assert len(sources(app)) > 4


def test_a_question_is_durable_with_all_before_it(place):
    def ask(_state):
        return {"log": [interrupt("?")]}

    first = Counted(wrote("a"))
    graph = line("g", a=first, ask=ask, b=wrote("b"))
    with graph.compile(checkpointer=place.open()) as app:
        app.invoke({}, thread_id="t", durability="exit")
    with graph.compile(checkpointer=place.open()) as app:
        state = app.get_state("t")
        assert (state.values["log"], state.next, state.status) == (["a"], ("ask",), "waiting")
        assert app.resume("yes", thread_id="t", durability="exit").state["log"] == ["a", "yes", "b"]
        assert first.runs == 1


def test_a_failure_is_durable_with_all_before_it(place):
    first, failing = Counted(wrote("a")), [True]

    def bad(_state):
        if failing:
            failing.pop()
            raise Boom("boom")
        return {"log": ["bad"]}

    graph = line("g", a=first, bad=bad)
    with graph.compile(checkpointer=place.open()) as app:
        with pytest.raises(NodeFailed):
            app.invoke({}, thread_id="t", durability="exit")
    with graph.compile(checkpointer=place.open()) as app:
        assert app.get_state("t").status == "failed"
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "bad"]
        assert first.runs == 1


def test_a_sub_step_is_durable_before_it_returns(store):
    seen = []

    def node(_state, ctx):
        ctx.step("work", lambda: 1)
        seen.append(store.load("t").checkpoint.checkpoint.step)
        return {"log": ["b"]}

    with line("g", a=wrote("a"), b=node).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t", durability="exit")
        assert seen == [1]


def test_a_step_is_told_as_not_durable(place):
    with Runtime(place.open(), graphs=[line("g", a=wrote("a"), b=wrote("b")).compile()]) as runtime:
        events = Events(runtime)
        outcome = runtime.thread("t").ask(Invoke({}, durability="exit"))
        events.wait(StepCommitted, durable=True)
        told = [(event.durable, event.checkpoint_id) for event in events.of(StepCommitted)]
        assert told == [(False, ""), (True, outcome.checkpoint_id)]


def test_an_actor_that_dies_goes_on_from_the_last_record(place):
    first = Counted(wrote("a"))
    graph = line("g", a=first, b=wrote("b")).compile()
    fault = failing_at("thread.start", times=1)
    armed = []

    def later(point, thread=""):
        if point == "thread.start":
            armed.append(point)
            if len(armed) > 1:
                fault(point, thread)

    with Runtime(place.open(), graphs=[graph], fault=later) as runtime:
        outcome = runtime.thread("t").ask(Invoke({}, durability="exit"))
        assert outcome.state["log"] == ["a", "b"]
        assert first.runs == 2


@pytest.mark.parametrize("seed", range(10))
def test_a_drain_writes_what_there_is(memory, seed):
    with simulated(memory, seed, graphs=[six().compile()]) as runtime:
        runtime.thread("t").tell(Invoke({"n": 1}, durability="exit"))
        assert runtime.drain(5)
        state = runtime.get_state("t")
        assert state.values["log"] == SIX[: len(state.values["log"])]
    with simulated(memory, seed, graphs=[six().compile()]) as runtime:
        assert runtime.thread("t").ask(Invoke(None)).state["log"] == SIX


def test_without_a_store_it_changes_nothing():
    with six().compile() as app:
        assert app.invoke({"n": 1}, durability="exit").state["log"] == SIX


@pytest.mark.parametrize("value", ["ASYNC", "never", None, 1])
def test_another_mode_is_refused(store, value):
    with six().compile(checkpointer=store) as app:
        with pytest.raises(InvalidCall, match="durability"):
            app.invoke({"n": 1}, thread_id="t", durability=value)
        assert app.get_state("t") is None


def test_graphs_as_nodes_end_as_under_sync(place):
    with nested().compile(checkpointer=place.open()) as app:
        assert app.invoke({"n": 1}, thread_id="t", durability="exit").state["log"] == NESTED
        assert app.get_state("t").values["log"] == NESTED


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_graphs_as_nodes_go_by_the_mode_of_the_call(store, mode):
    """`langgraph 65`: under `"exit"` no step of theirs is kept, else each is."""
    inner = line("inner", x=wrote("x"), y=wrote("y"), z=wrote("z")).compile()
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("in", inner)
    graph.add_edge(START, "a").add_edge("a", "in")
    with graph.compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t", durability=mode)
        found = [state.values["log"] for state in app.get_state_history("t", namespace=("in",))]
        wanted = [] if mode == "exit" else [["a", *"xyz"[:n]] for n in (3, 2, 1, 0)]
        assert found == wanted
        assert len(sources(app)) == (2 if mode == "exit" else 3)


def test_a_loop_of_graphs_does_not_gather_what_it_left_out(store):
    inner = line("inner", a=wrote("a")).compile()
    graph = Graph(Log, name="g").add_node("in", inner).add_edge(START, "in")
    graph.add_conditional_edges("in", lambda s: "in" if len(s["log"]) < 150 else END)
    with graph.compile(checkpointer=store, recursion_limit=200) as app:
        outcome = app.invoke({}, thread_id="t", durability="exit")
        assert len(outcome.state["log"]) == 150
        assert 2 < len(sources(app)) < 10


def test_a_question_in_a_graph_in_a_node_is_durable(place):
    def ask(_state):
        return {"log": [interrupt("?")]}

    inner = line("inner", x=wrote("x"), ask=ask, y=wrote("y")).compile()
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("in", inner)
    graph.add_edge(START, "a").add_edge("a", "in")
    with graph.compile(checkpointer=place.open()) as app:
        app.invoke({}, thread_id="t", durability="exit")
    with graph.compile(checkpointer=place.open()) as app:
        assert app.resume("yes", thread_id="t").state["log"] == ["a", "x", "yes", "y"]
