"""Rows of the lists of cases about graphs inside of graphs that no other test names."""

from __future__ import annotations

import pytest

from beamweaver import START, Command, Graph
from beamweaver.errors import NodeFailed
from beamweaver.types import PARENT
from tests.runtime.kit import Counted, Log, line, star, wrote


def asks(_state, ctx):
    return {"log": [f"answer {ctx.interrupt('?')}"]}


def fails(_state):
    raise ValueError("inside")


def inside(**nodes):
    return line("inner", **nodes).compile()


def test_the_handler_of_the_node_around_hears_of_a_failure_inside(memory):
    """graph 109."""

    def mends(failure):
        return {"log": [f"mended {failure.message}"]}

    graph = line("g", child=(inside(x=fails), {"error_handler": mends}))
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["mended inside"]


def test_a_node_inside_knows_the_nodes_around_it(memory):
    """graph 189, graph 46: from its namespace."""
    seen = []
    inner = inside(x=lambda _s, ctx: seen.append((ctx.thread_id, ctx.namespace)))
    with line("g", child=inner).compile(checkpointer=memory) as app:
        app.invoke({}, thread_id="t")
    assert seen == [("t", ("child",))]


def test_a_command_to_the_graph_around_is_no_failure_of_a_node_with_a_timeout(memory):
    """langgraph 50."""

    def up(_state):
        return Command(graph=PARENT, update={"log": ["from inside"]}, goto="b")

    graph = Graph(Log, name="g").add_node("child", inside(x=up), timeout=30, destinations=["b"])
    graph.add_node("b", wrote("b")).add_edge(START, "child")
    with graph.compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["from inside", "b"]


def test_a_persistent_graph_that_is_entered_again_asks_again_and_remembers(store):
    """langgraph 82."""
    graph = Graph(Log, name="g").add_node("child", inside(x=asks), persistent=True)
    graph.add_edge(START, "child").add_edge("child", "child", max_runs=1)
    with graph.compile(checkpointer=store) as app:
        first = app.invoke({}, thread_id="t").interrupt
        second = app.resume("1", thread_id="t").interrupt
        assert first.id != second.id
        assert app.resume("2", thread_id="t").state["log"] == ["answer 1", "answer 2"]


def test_a_breakpoint_two_levels_down(store):
    """langgraph 85."""
    bottom = line("bottom", x=wrote("x"), y=wrote("y")).compile(interrupt_before=["y"])
    with line("g", mid=inside(low=bottom)).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        assert app.get_state("t").status == "waiting"
        assert app.invoke(None, thread_id="t").state["log"] == ["x", "y"]


def test_an_answer_reaches_the_third_level_and_nothing_above_runs_again(store):
    """langgraph 105."""
    before = [Counted(wrote(name)) for name in "abc"]
    bottom = inside(c=before[2], ask=asks)
    mid = inside(b=before[1], low=bottom)
    with line("g", a=before[0], mid=mid).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t")
        assert app.resume("yes", thread_id="t").state["log"] == ["a", "b", "c", "answer yes"]
    assert [node.runs for node in before] == [1, 1, 1]


def test_a_plain_graph_inside_begins_empty_in_each_run(memory):
    """langgraph 109, langgraph 115, graph 48."""
    seen = []

    def looks(state):
        seen.append(state.get("note"))
        return {"note": "left inside"}

    inner = Graph(name="inner").add_node("x", looks).add_edge(START, "x").compile()
    with line("g", child=inner).compile(checkpointer=memory) as app:
        for note in ("one", "two"):
            app.invoke({"note": note}, thread_id="t")
    assert seen == ["one", "two"]


def test_one_graph_twice_in_a_step_is_two_runs(memory):
    """langgraph 119."""
    inner = inside(x=lambda state: {"log": [state["n"]]})
    with star("g", one=inner, two=inner).compile(checkpointer=memory) as app:
        assert app.invoke({"n": 7}).state["log"] == [7, 7]


def test_a_graph_inside_has_the_time_that_its_own_nodes_have(memory):
    """reference AV: without a timeout at the node around, nothing ends it."""
    inner = inside(x=(wrote("x"), {"timeout": 60}))
    with line("g", mid=inside(low=inner)).compile(checkpointer=memory) as app:
        assert app.invoke({}).state["log"] == ["x"]


def test_a_failure_inside_names_where_it_was(memory):
    """langgraph 113: the nodes around it, which an event has too."""
    with line("g", child=inside(x=fails)).compile(checkpointer=memory) as app:
        with pytest.raises(NodeFailed):
            app.invoke({}, thread_id="t")
        (task,) = app.get_state("t", subgraphs=True).tasks
        assert [inner.node for inner in task.subgraph.tasks] == ["x"]
