"""`update_state(namespace=…)`: edits of a graph inside of a task."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import END, START, Graph, Send
from beamweaver.errors import AmbiguousUpdate, InvalidCall, InvalidUpdate, NodeFailed
from beamweaver.types import StateUpdate
from tests.runtime.kit import Counted, Log, line, star, wrote

CHILD = ("child",)


class Sum(TypedDict, total=False):
    value: int
    ok: bool
    log: Annotated[list, operator.add]


def retry_ok(state):
    if not state.get("ok"):
        raise OSError("not yet")
    return {"value": state["value"] + 2}


def summing(store, one=None, routed=False, depth=1):
    """Graphs around one of `one` (value 3), `two` (fails until it is told that it is ok) and an end."""
    graph = Graph(Sum, name="inner").add_node("one", one or (lambda _s: {"value": 3}))
    graph.add_node("two", retry_ok).add_node("three", lambda s: {"log": [f"3:{s['value']}"]})
    graph.add_edge(START, "one").add_edge("two", END).add_edge("three", END)
    if routed:
        graph.add_conditional_edges("one", lambda s: "two" if s["value"] < 20 else "three")
    else:
        graph.add_edge("one", "two")
    made = graph.compile(allow_unreachable=True)
    for level in range(depth):
        outer = Graph(Sum, name=f"outer{level}").add_node("child", made).add_edge(START, "child")
        made = outer.compile(**({"checkpointer": store} if level == depth - 1 else {}))
    return made


def failed(app):
    with pytest.raises(NodeFailed, match="not yet"):
        app.invoke({"value": 0}, thread_id="t")


def asks(state, ctx):
    return {"log": [f"asked {ctx.interrupt('why?')}"]}


class TestAsAnotherNode:
    def test_it_leaves_the_step_and_the_graph_goes_on_from_there(self, place):
        """`graph 44`."""
        one = Counted(lambda _s: {"value": 3})
        with summing(place.open(), one) as app:
            failed(app)
            assert app.get_state("t", namespace=CHILD).values["value"] == 3
            app.update_state("t", {"value": 13, "ok": True}, as_node="one", namespace=CHILD)
        with summing(place.open(), one) as app:
            state = app.get_state("t", namespace=CHILD)
            assert (state.values["value"], state.next) == (13, ("two",))
            assert app.invoke(None, thread_id="t").state["value"] == 15
        assert one.runs == 1

    @pytest.mark.parametrize(("value", "ends"), [(13, (15, [])), (20, (20, ["3:20"]))])
    def test_where_routers_choose_they_are_asked_when_it_goes_on(self, place, value, ends):
        with summing(place.open(), routed=True) as app:
            failed(app)
            app.update_state("t", {"value": value, "ok": True}, as_node="one", namespace=CHILD)
            assert app.get_state("t", namespace=CHILD).values["value"] == value
        with summing(place.open(), routed=True) as app:
            state = app.invoke(None, thread_id="t").state
        assert (state["value"], state["log"]) == ends

    def test_as_its_last_node_it_ends_the_graph(self, place):
        with summing(place.open()) as app:
            failed(app)
            app.update_state("t", {"log": ["by hand"]}, as_node="three", namespace=CHILD)
        with summing(place.open()) as app:
            outcome = app.invoke(None, thread_id="t")
        assert outcome.state["log"] == ["by hand"]
        assert outcome.state["value"] == 3

    def test_at_depth_two(self, place):
        with summing(place.open(), depth=2) as app:
            failed(app)
            app.update_state("t", {"value": 7, "ok": True}, "one", namespace=("child", "child"))
        with summing(place.open(), depth=2) as app:
            assert app.invoke(None, thread_id="t").state["value"] == 9

    def test_a_node_that_was_not_run_is_jumped_to(self, place):
        """`peers 25`: from a waiting child to another of its nodes."""
        func = Counted(wrote("func"))

        def app():
            graph = Graph(Log, name="inner").add_node("asks", asks).add_node("func", func)
            graph.add_node("func_2", wrote("func_2")).add_node("validate", wrote("validate"))
            graph.add_edge(START, "asks").add_edge("asks", "func").add_edge("func", END)
            graph.add_edge("func_2", "validate").add_edge("validate", END)
            inner = graph.compile(allow_unreachable=True)
            return line("top", child=inner, end=wrote("end")).compile(checkpointer=place.open())

        with app() as opened:
            opened.invoke({}, thread_id="t")
            opened.update_state("t", {"log": ["chosen"]}, as_node="func_2", namespace=CHILD)
            assert opened.get_state("t").interrupts == ()
        with app() as opened:
            outcome = opened.invoke(None, thread_id="t")
        assert outcome.state["log"] == ["chosen", "validate", "end"]
        assert func.runs == 0


class TestOnItsStep:
    def app(self, store, flaky):
        child = star("inner", a=wrote("a"), flaky=flaky).add_node("z", wrote("z"))
        child = child.add_edge(["a", "flaky"], "z").compile()
        return line("top", child=child).compile(checkpointer=store)

    def test_without_a_node_it_is_an_amendment(self, place):
        """`langgraph 103`, in place: it finishes the graph and the one around."""
        with summing(place.open()) as app:
            failed(app)
            app.update_state("t", {"ok": True}, namespace=CHILD)
            assert app.get_state("t", namespace=CHILD).values == {"value": 3, "ok": True, "log": []}
        with summing(place.open()) as app:
            assert app.invoke(None, thread_id="t").state["value"] == 5

    def test_as_a_node_of_the_step_it_is_the_tasks_result(self, place):
        def flaky(_state):
            raise OSError("boom")

        with self.app(place.open(), flaky) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["by hand"]}, as_node="flaky", namespace=CHILD)
        with self.app(place.open(), flaky) as app:
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "by hand", "z"]

    def test_as_one_that_is_finished_it_is_added(self, place):
        with self.app(place.open(), asks) as app:
            app.invoke({}, thread_id="t")
            app.update_state("t", {"log": ["more"]}, as_node="a", namespace=CHILD)
        with self.app(place.open(), asks) as app:
            outcome = app.resume("x", thread_id="t")
        assert sorted(outcome.state["log"]) == ["a", "asked x", "more", "z"]

    def test_several_supersteps_follow_one_another(self, store):
        with summing(store) as app:
            failed(app)
            steps = [[StateUpdate({"ok": True})], [StateUpdate({"value": 8}, "one")]]
            app.bulk_update_state("t", steps, namespace=CHILD)
            assert app.invoke(None, thread_id="t").state["value"] == 10


class TestRefused:
    @pytest.mark.parametrize(
        ("namespace", "as_node", "values", "error", "cure"),
        [
            (("chld",), None, {}, InvalidCall, "Did you mean 'child'"),
            ("child", None, {}, InvalidCall, "give a tuple of nodes"),
            (CHILD, "nope", {}, InvalidUpdate, "nope"),
            (CHILD, START, {"value": 1}, InvalidCall, "give one of its nodes"),
            (CHILD, END, {"value": 1}, InvalidCall, "give one of its nodes"),
            (CHILD, "one", {"nope": 1}, InvalidUpdate, "nope"),
        ],
    )
    def test_what_does_not_fit(self, memory, namespace, as_node, values, error, cure):
        with summing(memory) as app:
            failed(app)
            before = app.get_state("t")
            with pytest.raises((error, InvalidCall), match=cure):
                app.update_state("t", values, as_node, namespace=namespace)
            assert app.get_state("t") == before

    def test_a_graph_that_has_not_begun(self, memory):
        with summing(memory) as app:
            failed(app)
            app.update_state("t", {"ok": True}, namespace=CHILD)
            app.invoke(None, thread_id="t")
            with pytest.raises(InvalidCall, match="no graph 'child' has begun"):
                app.update_state("t", {"value": 1}, namespace=CHILD)

    def test_an_older_checkpoint_has_no_graph_that_has_begun(self, memory):
        with summing(memory) as app:
            failed(app)
            app.update_state("t", {"ok": True}, namespace=CHILD)
            oldest = list(app.get_state_history("t"))[-1].config["configurable"]["checkpoint_id"]
            with pytest.raises(InvalidCall, match="no graph 'child' has begun"):
                app.update_state("t", {"value": 1}, checkpoint_id=oldest, namespace=CHILD)

    def test_several_in_one_superstep(self, memory):
        with summing(memory) as app:
            failed(app)
            steps = [[StateUpdate({"value": 1}, "one"), StateUpdate({"value": 2}, "two")]]
            with pytest.raises(InvalidCall, match="give one in each superstep"):
                app.bulk_update_state("t", steps, namespace=CHILD)

    def test_a_node_of_several_open_tasks_is_named_by_the_id_of_one(self, memory):
        def each(state, ctx):
            return {"log": [f"{state['item']} {ctx.interrupt('?')}"]}

        inner = Graph(Log, name="inner").add_node("w", each)
        inner.add_conditional_edges(
            START, lambda _s: [Send("w", {"item": n}) for n in range(2)], ["w"]
        )
        with line("top", child=inner.compile()).compile(checkpointer=memory) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(AmbiguousUpdate, match="2 tasks of node 'w' are open") as caught:
                app.update_state("t", {"log": ["hand"]}, as_node="w", namespace=CHILD)
            last = caught.value.candidates[1]
            app.update_state("t", {"log": ["hand"]}, as_node=last, namespace=CHILD)
            outcome = app.resume("x", thread_id="t")
        assert outcome.state["log"] == ["0 x", "hand"]
