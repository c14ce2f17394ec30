"""Branches and edits of graphs with budgets, deferred nodes, schemas, kinds of keys, sleeps and versions."""

from __future__ import annotations

import dataclasses
import operator
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver import START, Command, Graph, Invoke, StateUpdate, interrupt
from beamweaver.errors import InvalidUpdate, UnknownChannel
from beamweaver.graph import Topic, Untracked
from supervisors.testing import eventually
from tests.runtime.kit import Log, line, wrote


def ids(app):
    states = app.get_state_history("t")
    return [state.config["configurable"]["checkpoint_id"] for state in states]


def loop(store):
    """`a` runs at most three times in a run."""
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("end", wrote("end"))
    graph.add_edge(START, "a").add_edge("a", "a", when=lambda _s: True, max_runs=2)
    graph.add_edge("a", "end", default=True)
    return graph.compile(checkpointer=store)


def test_a_branch_has_the_budgets_of_its_checkpoint(store):
    with loop(store) as app:
        assert app.invoke({}, thread_id="t").state["log"] == ["a", "a", "a", "end"]
        after_two = ids(app)[2]
        assert app.get_state("t", after_two).values["log"] == ["a", "a"]
        outcome = app.invoke(None, thread_id="t", checkpoint_id=after_two)
        assert outcome.state["log"] == ["a", "a", "a", "end"]


def test_an_edit_spends_the_budget_of_the_edge_that_it_takes(store):
    with loop(store) as app:
        app.update_state("t", {}, as_node=START)
        for _ in range(2):
            app.update_state("t", {}, as_node="a")
            assert app.get_state("t").next == ("a",)
        app.update_state("t", {}, as_node="a")
        assert app.get_state("t").next == ("end",)


def test_deferred_nodes_wait_in_a_branch_too(store):
    graph = Graph(Log, name="g")
    for name in ("a", "b1", "b2"):
        graph.add_node(name, wrote(name))
    graph.add_node("last", wrote("last"), defer=True)
    graph.add_edge(START, "a").add_edge(START, "b1").add_edge("b1", "b2").add_edge("a", "last")
    with graph.compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        before_b2 = ids(app)[-2]
        assert app.get_state("t", before_b2).next == ("b2", "last")
        outcome = app.invoke(None, thread_id="t", checkpoint_id=before_b2)
        assert outcome.state["log"] == ["a", "b1", "b2", "last"]
        app.update_state("t", {"log": ["edited"]}, as_node="b2", checkpoint_id=before_b2)
        assert app.get_state("t").next == ("last",)


def test_an_amended_step_keeps_what_is_deferred(store):
    failing = [True]

    def bad(_state):
        if failing:
            failing.pop()
            raise ValueError("boom")
        return {"log": ["bad"]}

    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("bad", bad)
    graph.add_node("last", wrote("last"), defer=True)
    graph.add_edge(START, "a").add_edge("a", "last").add_edge("a", "bad")
    with graph.compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t", raises=False)
        app.update_state("t", {"n": 1})
        assert app.invoke(None, thread_id="t").state == {"log": ["a", "bad", "last"], "n": 1}


class Kinds(TypedDict, total=False):
    news: Annotated[list[str], Topic]
    live: Annotated[Any, Untracked]
    log: Annotated[list, operator.add]


def kinds(store):
    graph = Graph(Kinds, name="g").add_node("a", lambda s: {"log": [list(s["news"])]})
    return graph.add_edge(START, "a").compile(checkpointer=store)


def test_keys_that_last_for_one_step_are_seen_by_the_next_one(store):
    with kinds(store) as app:
        app.update_state("t", {"news": ["x"]}, as_node=START)
        assert app.get_state("t").values["news"] == ["x"]
        app.update_state("t", {"news": ["y"]})
        outcome = app.invoke(None, thread_id="t")
        assert outcome.state["log"][0] == ["x", "y"]


def test_live_objects_are_there_for_this_process(store):
    held = object()
    with kinds(store) as app:
        app.update_state("t", {"live": held}, as_node=START)
        assert app.invoke(None, thread_id="t").state["live"] is held


@dataclasses.dataclass
class Order:
    total: int = 0
    notes: Annotated[list, operator.add] = dataclasses.field(default_factory=list)


def test_a_class_judges_what_an_edit_makes(store):
    graph = (
        Graph(Order, name="g").add_node("a", lambda o: {"notes": [o.total]}).add_edge(START, "a")
    )
    with graph.compile(checkpointer=store) as app:
        app.invoke({"total": 1}, thread_id="t")
        app.update_state("t", {"total": 7}, as_node=START)
        assert app.get_state("t").values.total == 7
        with pytest.raises(UnknownChannel):
            app.update_state("t", {"totl": 7})
        with pytest.raises(InvalidUpdate):
            app.update_state("t", {"total": "x"})
        assert app.invoke(None, thread_id="t").state.notes == [1, 7]


def test_a_sleep_is_slept_again_in_a_branch(store):
    def nap(_state, ctx):
        ctx.sleep(3_600, key="nap")
        return {"log": ["nap"]}

    with line("g", a=wrote("a"), nap=nap, b=wrote("b")).compile(checkpointer=store) as app:
        thread = app.thread("t")
        thread.tell(Invoke({}))
        eventually(lambda: thread.get_state() and thread.get_state().status == "sleeping")
        app.cancel("t")
        app.update_state("t", {"log": ["edited"]}, as_node="nap")
        state = app.get_state("t")
        assert (state.next, state.status) == (("b",), "cancelled")
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "edited", "b"]


def test_several_sends_of_an_edit_are_tasks(store):
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("b", wrote("b"))
    graph.add_edge(START, "a")
    with graph.compile(checkpointer=store, allow_unreachable=True) as app:
        steps = [[StateUpdate({}, START)], [StateUpdate(Command(goto=["a", "b"]), "a")]]
        app.bulk_update_state("t", steps)
        assert app.get_state("t").next == ("a", "b")
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "b"]


def test_a_branch_under_durability_exit_is_one_record_and_its_end(store):
    with line("g", a=wrote("a"), b=wrote("b"), c=wrote("c")).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        app.invoke(None, thread_id="t", checkpoint_id=ids(app)[-1], durability="exit")
        sources = [state.metadata["source"] for state in app.get_state_history("t")]
        assert sources == ["loop", "fork", "loop", "loop", "loop", "input"]


def test_a_graph_in_a_node_asks_in_each_branch(store):
    """Its question is there again when the head comes back, and an edit leaves it open."""

    def ask(_state):
        return {"log": [interrupt("?")]}

    inner = line("inner", x=wrote("x"), ask=ask, y=wrote("y")).compile()
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_node("in", inner)
    graph.add_edge(START, "a").add_edge("a", "in")
    with graph.compile(checkpointer=store) as app:
        (question,) = app.invoke({}, thread_id="t").interrupts
        waiting, before_a = ids(app)
        outcome = app.resume("other", thread_id="t", checkpoint_id=before_a)
        assert outcome.state["log"] == ["a", "x", "other", "y"]
        app.set_head("t", waiting)
        state = app.get_state("t")
        assert (state.status, state.interrupts, state.next) == ("waiting", (question,), ("in",))
        app.update_state("t", {"note": "edited"})
        assert app.get_state("t").interrupts == (question,)
        assert app.resume("mine", thread_id="t").state == {
            "log": ["a", "x", "mine", "y"],
            "note": "edited",
        }
