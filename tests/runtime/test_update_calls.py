"""Calls of `update_state`: what is refused, what they wait for, and from where they are made."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import (
    END,
    START,
    Command,
    Graph,
    Invoke,
    Runtime,
    StateUpdate,
    interrupt,
)
from beamweaver.errors import (
    InvalidCall,
    InvalidUpdate,
    NoCheckpointer,
    RouterFailed,
    StepTimeout,
    ThreadBusy,
    UnknownChannel,
    WouldBlock,
    WrongGraph,
)
from beamweaver.events import StateUpdated
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Events, Gate, line, wrote


class Sums(TypedDict, total=False):
    value: Annotated[int, operator.add]
    items: Annotated[list, operator.add]
    route: str
    path: Annotated[list, operator.add]


def ask(_state):
    return {"log": [interrupt("ok?")]}


def once(update):
    """A node that fails at its first call."""
    left = [True]

    def node(_state):
        if left and left.pop():
            raise ValueError("boom")
        return update

    return node


def adds(n):
    return lambda _state: {"value": n}


def ids(states):
    return [state.config["configurable"]["checkpoint_id"] for state in states]


def routed(router=lambda state: state["route"]):
    """A graph whose node `route` leads to `left` or `right`."""
    graph = Graph(Sums, name="g")
    for name in ("route", "left", "right"):
        graph.add_node(name, lambda _s, name=name: {"path": [name]})
    return graph.add_edge(START, "route").add_conditional_edges("route", router, ["left", "right"])


class TestWrongUse:
    @pytest.mark.parametrize(
        ("values", "options", "error"),
        [
            ({"colour": 1}, {}, UnknownChannel),
            ({"value": "x"}, {}, InvalidUpdate),
            (5, {}, InvalidUpdate),
            ({}, {"as_node": "rout"}, InvalidCall),
            ({}, {"as_node": 5}, InvalidCall),
            ({}, {"as_node": "0" * 24}, InvalidCall),
            (Command(goto="left"), {"as_node": END}, InvalidCall),
            ({}, {"checkpoint_id": "nonsense"}, InvalidCall),
            ({}, {"checkpoint_id": "x-0"}, InvalidCall),
            ({}, {"checkpoint_id": f"x-{1 << 64}"}, InvalidCall),
            ({}, {"on_busy": "wait"}, InvalidCall),
            ({}, {"namespace": ("child",)}, InvalidCall),
        ],
        ids=repr,
    )
    def test_it_is_refused_and_nothing_changes(self, store, values, options, error):
        with routed().compile(checkpointer=store) as app:
            app.invoke({"route": "left", "value": 1}, thread_id="t")
            before = app.get_state("t")
            with pytest.raises(error):
                app.update_state("t", values, **options)
            assert app.get_state("t") == before

    def test_a_near_name_is_said(self, store):
        with routed().compile(checkpointer=store) as app:
            with pytest.raises(InvalidCall, match="Did you mean 'route'"):
                app.update_state("t", {}, as_node="rout")

    def test_without_a_store_there_is_nothing_to_edit(self):
        with pytest.raises(NoCheckpointer):
            routed().compile().update_state("t", {})

    def test_another_graphs_thread_is_left_alone(self, store):
        with line("g", a=wrote("a")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            with line("h", a=wrote("a")).compile(checkpointer=store) as other:
                with pytest.raises(WrongGraph):
                    other.update_state("t", {})

    def test_a_router_that_fails_fails_the_edit(self, store):
        def router(state):
            return {"left": "left"}[state["route"]]

        with routed(router).compile(checkpointer=store) as app:
            app.invoke({"route": "left"}, thread_id="t")
            before = app.get_state("t")
            with pytest.raises(RouterFailed):
                app.update_state("t", {"route": "up"}, as_node="route")
            assert app.get_state("t") == before
            app.update_state("t", {"route": "left"}, as_node="route")

    def test_a_router_that_hangs_is_timed_out(self, store):
        gate = Gate("left")
        with routed(gate).compile(checkpointer=store, step_timeout=0.05) as app:
            with pytest.raises(StepTimeout, match="routers"):
                app.update_state("t", {"route": "left"}, as_node="route")
            assert app.get_state("t") is None


class TestWhileOthersWork:
    def test_an_edit_waits_for_the_run(self, store):
        gate = Gate({"log": ["a"]})
        with line("g", a=gate).compile(checkpointer=store) as app:
            running = Caller(app.invoke, {}, thread_id="t")
            gate.wait()
            editing = Caller(app.update_state, "t", {"log": ["x"]})
            with pytest.raises(ThreadBusy):
                app.update_state("t", {"log": ["y"]}, on_busy="reject")
            gate.open()
            assert running.join().state["log"] == ["a"]
            editing.join()
            assert app.get_state("t").values["log"] == ["a", "x"]

    def test_an_edit_has_its_turn_when_the_run_failed(self, store):
        gate = Gate(5)
        with line("g", a=gate).compile(checkpointer=store) as app:
            running = Caller(app.invoke, {}, thread_id="t", raises=False)
            gate.wait()
            editing = Caller(app.update_state, "t", {"log": ["x"]}, as_node="a")
            gate.open()
            running.join()
            editing.join()
            assert app.get_state("t").status == "complete"

    def test_calls_wait_for_an_edit_that_asks_its_routers(self, store):
        gate = Gate("left")
        with routed(gate).compile(checkpointer=store) as app:
            editing = Caller(app.update_state, "t", {"value": 1}, as_node="route")
            gate.wait()
            calling = Caller(app.invoke, {"value": 1}, thread_id="t")
            gate.open()
            editing.join()
            assert calling.join().state["path"] == ["left"]

    def test_an_edit_that_asks_its_routers_can_be_cancelled(self, store):
        gate = Gate("left")
        with routed(gate).compile(checkpointer=store) as app:
            app.update_state("t", {"value": 1}, as_node=END)
            editing = Caller(app.update_state, "t", {"value": 1}, as_node="route")
            gate.wait()
            app.cancel("t")
            with pytest.raises(Exception, match="cancelled while its routers ran"):
                editing.join()
            assert app.get_state("t").values["value"] == 1

    def test_a_node_edits_another_thread(self, store):
        held = []

        def node(_state):
            held[0].update_state("u", {"log": ["x"]})
            return {"log": ["a"]}

        with line("g", a=node).compile(checkpointer=store) as app:
            held.append(app)
            app.invoke({}, thread_id="t")
            assert app.get_state("u").values["log"] == ["x"]

    def test_it_is_told(self, place):
        with Runtime(place.open(), graphs=[line("g", a=wrote("a")).compile()]) as runtime:
            events = Events(runtime)
            made = runtime.update_state("t", {"n": 1})
            assert events.wait(StateUpdated).checkpoint_id == made


class TestFaces:
    def test_a_handle_edits(self, place):
        with Runtime(place.open(), graphs=[line("g", a=wrote("a")).compile()]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Invoke({}))
            made = thread.update_state({"log": ["x"]}, as_node="a")
            assert thread.get_state(made).values["log"] == ["a", "x"]
            assert runtime.update_state("t", {"log": ["y"]})
            assert thread.get_state().values["log"] == ["a", "x", "y"]

    def test_all_have_awaitable_twins(self, store):
        app = line("g", a=wrote("a")).compile(checkpointer=store)

        async def main():
            await app.ainvoke({}, thread_id="t")
            await app.aupdate_state("t", {"log": ["x"]})
            await app.abulk_update_state("t", [[StateUpdate({"log": ["y"]}, "a")]])
            thread = app.thread("t")
            await thread.aupdate_state({"log": ["z"]})
            await thread.abulk_update_state([[StateUpdate({"log": ["w"]}, "a")]])
            return await app.aget_state("t")

        with app:
            assert asyncio.run(main()).values["log"] == ["a", "x", "y", "z", "w"]

    def test_an_edit_that_was_given_up_before_its_turn_does_nothing(self, store):
        gate = Gate({"log": ["a"]})

        async def main(app):
            editing = asyncio.create_task(app.aupdate_state("t", {"log": ["x"]}))
            waiters = app._core.hub.waiters
            await asyncio.to_thread(eventually, lambda: len(waiters) == 2)
            editing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await editing

        with line("g", a=gate).compile(checkpointer=store) as app:
            running = Caller(app.invoke, {}, thread_id="t")
            gate.wait()
            asyncio.run(main(app))
            gate.open()
            running.join()
            eventually(lambda: not len(app._core.hub.waiters))
            assert app.get_state("t").values["log"] == ["a"]

    def test_on_the_loop_of_the_nodes_it_would_block(self, store):
        held = []

        async def node(_state):
            with pytest.raises(WouldBlock, match="aupdate_state"):
                held[0].update_state("u", {})
            await held[0].aupdate_state("u", {"log": ["x"]})
            return {"log": ["a"]}

        with line("g", a=node).compile(checkpointer=store) as app:
            held.append(app)
            app.invoke({}, thread_id="t")
            assert app.get_state("u").values["log"] == ["x"]

    def test_the_form_of_langgraph(self, store):
        with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            older = list(app.get_state_history("t"))[1].config
            app.update_state(None, {"log": ["x"]}, config=older)
            assert app.get_state("t").values["log"] == ["a", "x"]
