"""Edits of a graph inside of a task: entries of the open step, from which its own machine goes on."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver.engine import Call, CallKind, Prepared
from beamweaver.engine.state import Edit
from beamweaver.errors import AmbiguousUpdate, InvalidCall
from beamweaver.graph import Graph, Untracked
from beamweaver.graph.edits import normalize_update
from beamweaver.types import END, START, Send
from tests.engine.driver import Driver
from tests.engine.graphs import State, fails, graph, wrote

CHILD = ("c",)


def within(child, name="top", node="c"):
    """A graph whose only node is this graph."""
    return Graph(State, name=name).add_node(node, child).add_edge(START, node).compile()


def edit(driver, child, values, as_node=None, namespace=CHILD, around=()):
    """`update_state(values, as_node, namespace=…)`; the new checkpoint's id."""
    env = driver.env.inside(child)
    result = driver.result_of(normalize_update(child, as_node, values), env)
    prepared = Prepared(result.writes, b"", result.goto, result.sends)
    graphs = (*around, *(child for _name in namespace[len(around) :]))
    given = Edit(as_node, prepared, namespace, graphs)
    call = Call(
        f"e{len(driver.commits)}", CallKind.UPDATE, driver.graph.name, "e", updates=((given,),)
    )
    driver.calls.append(call)
    driver.machine.call(call)
    driver.run()
    return driver.answer(call).checkpoint_id


def inner(driver):
    """The state of the graph inside of the only open task."""
    (task,) = driver.machine.state.step.tasks
    (state,) = task.inner.values()
    return state


def failing(child):
    driver = Driver(within(child))
    driver.fails({"x": 0})
    driver.checks = True
    return driver


def summing(*, routed=False):
    """`one` ends well, `two` fails until it is told that it is ok; `three` is jumped to."""

    def two(state):
        if state.get("y") != "ok":
            raise OSError("not yet")
        return {"log": [f"two {state['x']}"]}

    routers = [("one", lambda s: "two" if s["x"] < 20 else "three", ["two", "three"])]
    return graph(
        "^>one two>$ three>$" + ("" if routed else " one>two"),
        one=wrote("one", x=3),
        two=two,
        three=None,
        routers=routers if routed else (),
        name="child",
    )


class TestOnItsStep:
    def test_without_a_node_it_is_an_amendment(self):
        child = summing()
        driver = failing(child)
        edit(driver, child, {"y": "ok"})
        assert driver.status == "failed"
        assert driver.go_on().state["log"] == ["one", "two 3"]

    def test_as_a_node_of_the_step_it_is_the_tasks_result(self):
        child = summing()
        driver = failing(child)
        edit(driver, child, {"log": ["by hand"]}, "two")
        assert driver.go_on().state["log"] == ["one", "by hand"]

    def test_as_one_that_is_finished_it_is_an_amendment(self):
        child = graph("^>ok ^>bad", ok=None, bad=fails(1), name="child")
        driver = failing(child)
        edit(driver, child, {"log": ["more"]}, "ok")
        assert sorted(driver.go_on().state["log"]) == ["bad", "more", "ok"]
        assert driver.runs("ok") == 1

    def test_as_the_id_of_a_task_it_is_that_ones(self):
        child = graph(
            "^>a", name="child", w=fails(2), a=lambda _s: [Send("w", {"x": 1}), Send("w", {"x": 2})]
        )
        driver = failing(child)
        state = inner(driver)
        ids = tuple(state.id_of(task) for task in state.step.tasks)
        with pytest.raises(AmbiguousUpdate) as refused:
            edit(driver, child, {"log": ["which?"]}, "w")
        assert refused.value.candidates == ids
        edit(driver, child, {"log": ["second"]}, ids[1])
        assert driver.go_on().state["log"] == ["bad", "second"]

    def test_it_is_there_after_a_crash(self):
        child = summing()
        driver = failing(child)
        edit(driver, child, {"y": "ok"})
        driver.crash()
        assert driver.go_on().state["log"] == ["one", "two 3"]


class TestAsAnotherNode:
    def test_the_step_is_left_and_the_edges_of_the_node_lead_on(self):
        """graph 44."""
        child = summing()
        driver = failing(child)
        edit(driver, child, {"x": 13, "y": "ok"}, "one")
        state = inner(driver)
        assert ([task.node for task in state.step.tasks], state.values["x"]) == (["two"], 13)
        driver.crash()
        assert driver.go_on().state["log"] == ["one", "two 13"]
        assert driver.runs("one") == 1

    @pytest.mark.parametrize(("x", "log"), [(13, ["one", "two 13"]), (20, ["one", "three"])])
    def test_where_routers_choose_they_are_asked_when_it_goes_on(self, x, log):
        child = summing(routed=True)
        driver = failing(child)
        edit(driver, child, {"x": x, "y": "ok"}, "one")
        assert inner(driver).step.tasks[0].result is not None
        driver.crash()
        assert driver.go_on().state["log"] == log

    def test_as_its_last_node_it_ends_the_graph_when_it_goes_on(self):
        child = summing()
        driver = failing(child)
        edit(driver, child, {"log": ["by hand"]}, "three")
        driver.crash()
        outcome = driver.go_on()
        assert (outcome.state["log"], outcome.state["x"]) == (["one", "by hand"], 3)

    def test_at_depth_two(self):
        child = summing()
        middle = within(child, "middle", "m")
        driver = failing(middle)
        edit(driver, child, {"x": 7, "y": "ok"}, "one", ("c", "m"), (middle,))
        driver.crash()
        assert driver.go_on().state["log"] == ["one", "two 7"]

    def test_what_was_finished_of_the_step_that_is_left_stays(self):
        child = graph("^>ok ^>bad next>last", name="child", ok=wrote("ok", x=5), bad=fails(9),
                      next=None, last=None)  # fmt: skip
        driver = failing(child)
        edit(driver, child, {"log": ["next"]}, "next")
        outcome = driver.go_on()
        assert (outcome.state["log"], outcome.state["x"]) == (["ok", "next", "last"], 5)

    def test_what_no_store_keeps_is_not_stored(self):
        class Live(TypedDict, total=False):
            log: Annotated[list[Any], operator.add]
            client: Annotated[object, Untracked]

        child = graph("^>a a>bad next>last", schema=Live, name="child", bad=fails(9),
                      a=lambda _s: {"client": object(), "log": ["a"]}, next=lambda _s: None,
                      last=lambda _s: {"log": ["last"]})  # fmt: skip
        driver = failing(child)
        edit(driver, child, {"log": ["next"]}, "next")
        assert driver.go_on().state["log"] == ["a", "next", "last"]

    def test_what_a_persistent_graph_of_the_step_that_is_left_keeps_is_kept(self):
        counter = graph("^>n", name="counter", n=lambda s: {"log": [f"n={len(s.get('log', []))}"]})
        child = Graph(State, name="child").add_node("p", counter, persistent=True)
        child.add_node("bad", fails(9)).add_node("again", lambda _s: {"x": "again"})
        child.add_edge(START, "p").add_edge(START, "bad").add_edge("again", "p")
        compiled = child.compile(allow_unreachable=True)
        driver = failing(compiled)
        edit(driver, compiled, {"x": 1}, "again")
        kept = driver.machine.state.step.tasks[0].inner[""].kept
        assert list(kept) == ["p"]
        driver.crash()
        assert driver.machine.state.step.tasks[0].inner[""].kept == kept
        assert driver.go_on().state["log"] == ["n=0", "n=1"]


class TestRefused:
    @pytest.mark.parametrize("node", [START, END])
    def test_as_the_start_or_the_end(self, node):
        child = summing()
        driver = failing(child)
        with pytest.raises(InvalidCall, match="has begun and not ended; give one of its nodes"):
            edit(driver, child, {"x": 1}, node)

    def test_as_a_task_that_is_gone(self):
        child = summing()
        driver = failing(child)
        with pytest.raises(InvalidCall, match=r"no node of graph 'child'\..*Its nodes: 'one'"):
            edit(driver, child, {"x": 1}, "0" * 24)

    @pytest.mark.parametrize("namespace", [("nope",), ("c", "two")])
    def test_where_no_graph_has_begun(self, namespace):
        child = summing()
        driver = failing(child)
        with pytest.raises(InvalidCall, match=f"no graph '{namespace[-1]}' has begun"):
            edit(driver, child, {"x": 1}, namespace=namespace)
