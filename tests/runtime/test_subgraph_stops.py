"""Breakpoints, error handlers, on_failure and sleeps where graphs run inside of graphs."""

from __future__ import annotations

import pytest

from beamweaver.errors import NodeFailed
from beamweaver.types import Completed, Interrupted
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Counted, line, star, wrote


def boom(_state):
    raise ValueError("boom")


class TestBreakpoints:
    """`langgraph 85`: a breakpoint two levels down."""

    @pytest.mark.parametrize("option", ["interrupt_before", "interrupt_after"])
    def test_one_of_a_graph_inside_stops_the_thread_once(self, place, option):
        a = Counted(wrote("a"))
        node = "b" if option == "interrupt_before" else "a"

        def app():
            grand = line("grand", a=a, b=wrote("b")).compile(**{option: [node]})
            child = line("child", grand=grand).compile()
            return line("top", child=child, z=wrote("z")).compile(checkpointer=place.open())

        with app() as opened:
            first = opened.invoke({}, thread_id="t")
            state = opened.get_state("t")
        with app() as opened:
            outcome = opened.invoke(None, thread_id="t")

        assert type(first) is Interrupted
        (where,) = first.breakpoints
        assert (where.node, where.namespace) == (node, ("child", "grand"))
        assert state.next == ("child",)
        assert outcome.state["log"] == ["a", "b", "z"]
        assert a.runs == 1

    def test_one_before_the_first_node_inside(self, store):
        child = line("child", a=wrote("a")).compile(interrupt_before=["a"])
        with line("top", child=child).compile(checkpointer=store) as app:
            assert type(app.invoke({}, thread_id="t")) is Interrupted
            assert app.invoke(None, thread_id="t").state["log"] == ["a"]

    def test_those_of_a_call_are_for_the_graph_that_is_called(self, store):
        child = line("child", a=wrote("a"), b=wrote("b")).compile()
        with line("top", child=child, b=wrote("z")).compile(checkpointer=store) as app:
            first = app.invoke({}, thread_id="t", interrupt_before=["b"])
            outcome = app.invoke(None, thread_id="t", interrupt_before=[])

        assert [(b.node, b.namespace) for b in first.breakpoints] == [("b", ())]
        assert outcome.state["log"] == ["a", "b", "z"]

    def test_an_answer_elsewhere_does_not_pass_it(self, store):
        def asks(_state, ctx):
            return {"log": [ctx.interrupt("?")]}

        child = line("child", a=wrote("a"), b=wrote("b")).compile(interrupt_before=["b"])
        with star("top", child=child, asks=asks).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            second = app.resume("yes", thread_id="t")
            outcome = app.invoke(None, thread_id="t")

        assert type(second) is Interrupted
        assert [b.node for b in second.breakpoints] == ["b"]
        assert type(outcome) is Completed
        assert sorted(outcome.state["log"]) == ["a", "b", "yes"]


class TestHandlers:
    """`graph 109`: a handler of the graph around takes over what failed inside."""

    def test_the_error_handler_of_the_node_takes_over(self, store):
        child = line("child", a=wrote("a"), boom=boom).compile()

        def handler(failure):
            return {"log": [f"handled {failure.node}"]}

        app = line("top", child=(child, {"error_handler": handler})).compile(checkpointer=store)
        with app:
            assert app.invoke({}, thread_id="t").state["log"] == ["handled boom"]

    def test_one_inside_keeps_the_graph_going(self, store):
        child = line(
            "child", boom=(boom, {"error_handler": lambda _f: {"log": ["saved"]}}), b=wrote("b")
        )
        with line("top", child=child.compile()).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["saved", "b"]

    def test_on_failure_hears_what_failed_inside(self, store):
        heard = []
        child = line("child", boom=boom).compile(on_failure=lambda fs: heard.append(("child", fs)))
        top = line("top", child=child)
        with top.compile(
            checkpointer=store, on_failure=lambda fs: heard.append(("top", fs))
        ) as app:
            with pytest.raises(NodeFailed, match="boom"):
                app.invoke({}, thread_id="t")

        assert [who for who, _failures in heard] == ["child", "top"]
        assert heard[1][1][0].namespace == ("child",)


@pytest.mark.slow
def test_a_sleep_inside_is_a_sleep_of_the_thread(place):
    """The thread is stored as one that sleeps, and goes on in the next process."""

    def rests(_state, ctx):
        ctx.sleep(1.2)
        return {"log": ["rested"]}

    a = Counted(wrote("a"))

    def app():
        child = line("child", a=a, rests=rests).compile()
        return line("top", child=child).compile(checkpointer=place.open())

    with app() as opened:
        caller = Caller(opened.invoke, {}, thread_id="t")
        eventually(lambda: (s := opened.get_state("t")) and s.status == "sleeping", timeout=10)
        (task,) = opened.get_state("t").tasks
        assert caller.join().state["log"] == ["a", "rested"]

    assert task.state == "sleeping"
    assert a.runs == 1
