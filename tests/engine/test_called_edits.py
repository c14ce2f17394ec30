"""Graphs that functions call, before the function has called them again: read as plain data, and edited."""

from __future__ import annotations

import pytest

from beamweaver.engine.calls import CallKind, Prepared
from beamweaver.engine.fold import fold
from beamweaver.engine.state import Edit
from beamweaver.engine.unread import AsPlainData
from beamweaver.errors import InvalidCall
from beamweaver.graph import Graph
from beamweaver.graph.edits import normalize_update
from beamweaver.types import START, Completed, Interrupted, Send
from tests.engine.driver import Driver
from tests.engine.driver_parts import TestEnv
from tests.engine.generator import State


class Looking(TestEnv):
    """An env of somebody who looks, and does not know what is called."""

    def called(self, _node, _key):
        return self.graph, AsPlainData(self)


def waiting(*, crashed=True):
    """A driver of a function that calls a graph of a, a Send to a node that asks, and z; and that graph."""

    def asks(state, ctx):
        return {"log": [ctx.interrupt(state["hint"])]}

    child = Graph(State, name="child").add_node("a", lambda _s: {"log": ["a"]})
    child.add_node("asks", asks).add_node("z", lambda _s: {"log": ["z"]})
    child.add_edge(START, "a").add_edge("asks", "z")
    child.add_conditional_edges("a", lambda _s: [Send("asks", {"hint": "why?"})], ["asks"])
    called = child.compile()
    graph = Graph(State, name="top")
    graph.add_node("c", lambda _s, ctx: {"log": ctx.call(called, {"log": []})["log"]})
    driver = Driver(graph.add_edge(START, "c").compile())
    assert type(driver.invoke({})) is Interrupted
    if crashed:
        driver.crash()
    return driver, called


def edited(driver, graph, *updates, name="c:child"):
    """The answer to an edit of the called graph: a superstep for each pair of values and node."""
    made = []
    for values, node in updates:
        env = driver.env.inside(graph)
        result = driver.result_of(normalize_update(graph, node, values), env)
        prepared = Prepared(result.writes, b"", result.goto, result.sends)
        made.append((Edit(node, prepared, (name,), (graph,)),))
    return driver.call(CallKind.UPDATE, updates=tuple(made))


def test_who_looks_and_does_not_know_the_graph_sees_plain_data():
    driver, _child = waiting()
    image = driver.store.load(driver.thread_id)

    state = fold(image, Looking(driver, driver.graph))
    inner = state.step.tasks[0].inner["child"]

    assert inner.unread
    assert inner.values["log"] == ["a"]
    assert inner.step.tasks[0].update == {"hint": "why?"}


@pytest.mark.parametrize("crashed", [True, False])
def test_an_edit_as_the_node_that_asks_answers_for_it(crashed):
    driver, child = waiting(crashed=crashed)

    edited(driver, child, ({"log": ["hand"]}, "asks"))
    outcome = driver.go_on()

    assert type(outcome) is Completed
    assert outcome.state["log"] == ["a", "hand", "z"]


def test_one_edit_goes_on_from_the_one_before():
    driver, child = waiting()

    edited(driver, child, ({"log": ["more"]}, None), ({"log": ["hand"]}, "asks"))
    outcome = driver.go_on()

    assert outcome.state["log"] == ["a", "more", "hand", "z"]


def test_one_of_a_call_that_nobody_made_is_refused():
    driver, child = waiting()

    with pytest.raises(InvalidCall, match="no graph 'c:other' has begun"):
        edited(driver, child, ({"log": ["x"]}, None), name="c:other")
