"""Persistent graphs: what a node's graph keeps over runs, and where; two at once are refused."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver.engine.kept import moved, place_at, place_of
from beamweaver.errors import ConcurrentSubgraph, InvalidUpdate, NodeFailed
from beamweaver.graph import Graph
from beamweaver.types import START, Completed, Send
from tests.engine.driver import Driver
from tests.engine.graphs import State, asks, fails, graph


class Own(State, total=False):
    """`runs` is the graph's own: the graph around has no such key."""

    runs: Annotated[int, operator.add]


class Needs(TypedDict):
    x: int


def counter():
    """A graph that logs how often it ran before."""
    return graph("^>n", schema=Own, name="counter", n=lambda s: {"log": [s["runs"]], "runs": 1})


def keeping(edges=("p",), *, key=None, inner=None, **nodes):
    """A graph whose node `p` is a persistent graph."""
    builder = Graph(State, name="g").add_node("p", inner or counter(), persistent=True, key=key)
    for name, fn in nodes.items():
        builder.add_node(name, fn)
    for name in edges:
        builder.add_edge(START, name)
    return Driver(builder.compile(allow_unreachable=True))


def sends(*updates):
    return lambda _s: [Send("p", update) for update in updates]


class TestKeys:
    def test_each_key_has_a_state_of_its_own(self):
        """semantics 11."""
        driver = keeping(key="x")
        driver.invoke({"x": "ann"})
        driver.invoke({"x": "bob"})
        driver.invoke({"x": 7})
        assert sorted(driver.machine.state.kept) == ["p|7", "p|ann", "p|bob"]
        assert driver.invoke({"x": "ann"}).state["log"][-1] == 1

    def test_a_function_gives_the_key_of_what_the_task_sees(self):
        driver = keeping(key=lambda state: f"{state['x']}:{state['y']}")
        driver.invoke({"x": 1, "y": "a"})
        assert list(driver.machine.state.kept) == ["p|1%3Aa"]

    @pytest.mark.parametrize("key", ["", "x" * 257, None, 1.5, True, "\ud800"])
    def test_one_that_is_no_text_and_no_int_fails_the_task(self, key):
        driver = keeping(key=lambda _s: key)
        error = driver.fails({})
        assert isinstance(error, InvalidUpdate)
        assert "give a text of 1 to 256 characters, or an int" in str(error)

    def test_a_name_that_the_state_lacks_is_said(self):
        assert "key='x', which gives None" in str(keeping(key="x").fails({}))

    def test_a_function_that_raises_fails_the_task(self):
        driver = keeping(key=lambda state: state["y"] / 0)
        assert isinstance(driver.fails({"y": 1}), NodeFailed)
        assert isinstance(driver.fails({"y": 1, "n": 1}), NodeFailed), "it can be continued"


class TestTwoAtOnce:
    """semantics 11: two tasks at once in one persistent child are refused."""

    def test_planned_ones_fail_the_step_before_either_runs(self):
        driver = keeping(["a"], a=sends({}, {}))
        error = driver.fails({})
        assert isinstance(error, ConcurrentSubgraph)
        assert "give add_node(…, key=…)" in str(error)
        assert driver.runs("n") == 0

    def test_with_one_key_too(self):
        driver = keeping(["a"], key="x", a=sends({"x": 1}, {"x": 1}))
        assert "their key= is the same ('x')" in str(driver.fails({}))

    def test_with_two_keys_they_run(self):
        driver = keeping(["a"], key="x", a=sends({"x": 1}, {"x": 2}))
        assert driver.invoke({}).state["log"] == [0, 0]

    def test_one_whose_key_cannot_be_told_fails_alone(self):
        driver = keeping(["a"], key=lambda s: 1 // s["n"], a=sends({"n": 0}, {"n": 1}))
        assert isinstance(driver.fails({}), NodeFailed)
        assert driver.runs("n") == 1

    def test_beside_other_nodes_it_runs(self):
        driver = keeping(["p", "other"], other=lambda _s: {"x": 1})
        assert driver.invoke({}).state["x"] == 1

    def test_a_step_that_two_got_into_fails_when_it_ends(self):
        """What a key= function gives may change while the step is open."""
        given = iter(["a", "b", "c", "c"])
        driver = keeping(["a"], key=lambda _s: next(given), a=sends({}, {}))
        assert isinstance(driver.fails({}), ConcurrentSubgraph)


class TestPlaces:
    def test_a_place_has_the_nodes_that_lead_to_it(self):
        assert place_at(["a", "b:x:y", "c"]) == f"a:{place_of('b', 'x:y')}:c"

    @pytest.mark.parametrize(
        ("place", "new"), [("a", "A"), ("a|k:b", "A|k:b"), ("b:a", "b:a"), ("gone:a", None)]
    )
    def test_a_renamed_node_keeps_what_was_in_it(self, place, new):
        assert moved(place, {"a": "A", "b": "b"}.get) == new

    def test_what_one_inside_of_an_unfinished_graph_keeps_is_there_after_a_crash(self):
        middle = Graph(State, name="middle").add_node("p", counter(), persistent=True)
        middle.add_node("ask", asks()).add_edge(START, "p").add_edge("p", "ask")
        driver = keeping(inner=middle.compile())
        driver.invoke({})
        (inner,) = driver.machine.state.step.tasks[0].inner.values()
        kept = inner.kept
        assert list(kept) == ["p"]
        driver.crash()
        (inner,) = driver.machine.state.step.tasks[0].inner.values()
        assert inner.kept == kept
        driver.resume("yes")
        assert sorted(driver.machine.state.kept) == ["p", "p:p"]

    def test_what_is_kept_deeper_is_kept_in_the_place_of_the_graph_around(self):
        middle = Graph(State, name="middle").add_node("p", counter(), persistent=True)
        driver = keeping(inner=middle.add_edge(START, "p").compile())
        driver.invoke({})
        assert sorted(driver.machine.state.kept) == ["p", "p:p"]
        driver.crash()
        assert driver.invoke({}).state["log"] == [0, 1]


class TestWhatItBeginsWith:
    def test_what_the_graph_around_does_not_declare_is_judged(self):
        """A graph without a schema may have any value under a key of which this one declares the type."""
        inner = graph("^>i", name="inner", i=None)
        outer = Graph(name="outer").add_node("c", inner).add_edge(START, "c").compile()
        driver = Driver(outer)
        error = driver.fails({"n": "no number", "other": 1})
        assert isinstance(error, InvalidUpdate)
        assert "'n'" in str(error)

    def test_of_keys_that_neither_declares_nothing_is_judged(self):
        inner = graph("^>i", schema=None, name="inner", i=lambda s: {"y": s["x"]})
        outer = Graph(name="outer").add_node("c", inner).add_edge(START, "c").compile()
        assert Driver(outer).invoke({"x": [1]}).state == {"x": [1], "y": [1]}

    def test_of_a_graph_with_some_keys_only_those_are_judged(self):
        inner = graph("^>i", name="inner", i=lambda s: {"x": s["log"]})
        outer = Graph(name="outer").add_node("c", inner).add_edge(START, "c").compile()
        assert Driver(outer).invoke({"log": ["in"], "other": 1}).state["x"] == ["in"]

    def test_what_it_requires_must_be_there(self):
        inner = Graph(State, name="inner", input_schema=Needs).add_node("i", lambda _s: None)
        outer = Graph(name="outer").add_node("c", inner.add_edge(START, "i").compile())
        driver = Driver(outer.add_edge(START, "c").compile())
        assert "'x'" in str(driver.fails({"y": 1}))
        assert driver.invoke({"x": 1}, on_unfinished="restart").state["x"] == 1


def test_a_run_must_have_what_its_schema_requires():
    one = Graph(State, name="g", input_schema=Needs).add_node("a", lambda _s: None)
    driver = Driver(one.add_edge(START, "a").compile())
    assert isinstance(driver.fails({}), InvalidUpdate)
    assert driver.status is None
    assert type(driver.invoke({"x": 1})) is Completed


def test_a_task_that_failed_keeps_nothing():
    driver = keeping(inner=graph("^>a a>bad", name="inner", a=None, bad=fails(1)))
    driver.fails({})
    assert driver.machine.state.kept is None
    driver.go_on()
    assert list(driver.machine.state.kept) == ["p"]
