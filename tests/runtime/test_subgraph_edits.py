"""Edits, branches and reruns of threads whose open step has graphs inside."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from beamweaver import START, Graph
from tests.runtime.kit import Counted, Log, line, wrote


def asks(state, ctx):
    return {"log": [f"{ctx.interrupt('why?')} {state.get('n')}"]}


def app_of(store, first=None, **options):
    child = line("child", a=first or wrote("a"), asks=asks, b=wrote("b")).compile()
    graph = Graph(Log, name="top").add_node("x", wrote("x")).add_node("child", child)
    graph.add_node("y", wrote("y")).add_edge(START, "x").add_edge("x", "child")
    graph.add_conditional_edges("child", lambda _state: "y")
    return graph.compile(checkpointer=store, **options)


def before_the_child(app):
    """The checkpoint after which the child ran."""
    (found,) = [s for s in app.get_state_history("t") if s.next == ("child",)]
    return found.config["configurable"]["checkpoint_id"]


def test_an_update_of_the_thread_reaches_a_graph_that_has_begun(place):
    """`graph 44`, for the keys that both keep by their last value."""
    with app_of(place.open()) as app:
        app.invoke({"n": 1}, thread_id="t")
        app.update_state("t", {"n": 5})
        shown = app.get_state("t", namespace=("child",)).values["n"]
    with app_of(place.open()) as app:
        outcome = app.resume("yes", thread_id="t")

    assert shown == 5
    assert outcome.state["log"] == ["x", "a", "yes 5", "b", "y"]


def test_an_update_as_the_node_is_its_result(store):
    with app_of(store) as app:
        app.invoke({"n": 1}, thread_id="t")
        app.update_state("t", {"log": ["by hand"]}, as_node="child")
        state = app.get_state("t")
        outcome = app.invoke(None, thread_id="t")

    assert state.next == ("y",)
    assert state.interrupts == ()
    assert outcome.state["log"] == ["x", "by hand", "y"]


def test_a_branch_begins_the_graph_anew(store):
    """`graph 47`, `langgraph 101`, `langgraph 103`: from before the child, its parent does not run again."""
    first = Counted(wrote("a"))
    with app_of(store, first) as app:
        one = app.invoke({"n": 1}, thread_id="t")
        checkpoint = before_the_child(app)
        app.resume("one", thread_id="t")
        two = app.invoke(None, thread_id="t", checkpoint_id=checkpoint)
        outcome = app.resume("two", thread_id="t")

    assert two.interrupt.id != one.interrupt.id
    assert outcome.state["log"] == ["x", "a", "two 1", "b", "y"]
    assert first.runs == 2


def test_a_branch_takes_an_answer_for_what_it_will_ask_inside(store):
    with app_of(store) as app:
        app.invoke({"n": 1}, thread_id="t")
        outcome = app.resume("ahead", thread_id="t", checkpoint_id=before_the_child(app))

    assert outcome.state["log"] == ["x", "a", "ahead 1", "b", "y"]


def test_a_branch_has_what_a_persistent_graph_kept_at_its_checkpoint(store):
    class Own(TypedDict, total=False):
        log: Annotated[list, operator.add]
        count: Annotated[int, operator.add]

    child = Graph(Own, name="child").add_node("count", lambda _s: {"count": 1})
    child.add_node("tell", lambda s: {"log": [s["count"]]})
    child.add_edge(START, "count").add_edge("count", "tell")
    graph = (
        Graph(Log, name="top").add_node("c", child.compile(), persistent=True).add_edge(START, "c")
    )
    with graph.compile(checkpointer=store) as app:
        first = app.invoke({}, thread_id="t").checkpoint_id
        app.invoke({}, thread_id="t")
        app.invoke({}, thread_id="t")
        outcome = app.invoke({"n": 1}, thread_id="t", checkpoint_id=first)

    assert outcome.state["log"] == [1, 2]


def test_a_rerun_of_a_finished_graph_begins_it_anew(store):
    first = Counted(wrote("a"))
    inner = line("inner", a=first).compile()
    graph = Graph(Log, name="top").add_node("inner", inner).add_node("asks", asks)
    graph.add_edge(START, "inner").add_edge(START, "asks")
    with graph.compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t")
        app.invoke(None, thread_id="t", rerun=["inner"])
        outcome = app.resume("yes", thread_id="t")

    assert first.runs == 2
    assert outcome.state["log"] == ["a", "yes 1"]
