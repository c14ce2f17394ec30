"""Static breakpoints from outside: at compile, by call, over kills."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import (
    START,
    Breakpoint,
    Completed,
    Continue,
    Graph,
    Interrupted,
    Invoke,
    Runtime,
    interrupt,
)
from beamweaver.errors import (
    InterruptWithoutCheckpointer,
    InvalidCall,
    InvalidGraph,
    NothingToResume,
)
from beamweaver.graph import Migration
from beamweaver.types import Command
from tests.runtime.children import killed
from tests.runtime.kit import Log, line, wrote
from tests.runtime.people import (
    guarded,
    pass_and_die,
    stop_and_die,
    stop_by_call_and_die,
    store_at,
)

BEFORE_B = (Breakpoint(node="b", when="before"),)


def test_a_run_stops_shows_where_and_is_let_go_on(store):
    """graph 92."""
    with guarded().compile(checkpointer=store, interrupt_before=["b"]) as app:
        outcome = app.invoke({"n": 1}, thread_id="t")
        assert type(outcome) is Interrupted
        assert (outcome.breakpoints, outcome.interrupts) == (BEFORE_B, ())
        assert outcome.state == {"n": 1, "log": ["a"]}
        state = app.get_state("t")
        assert (state.status, state.next, state.breakpoints) == ("waiting", ("b",), BEFORE_B)
        assert state.tasks[0].state == "pending"
        assert app.resume(thread_id="t").state["log"] == ["a", "b", "c"]
        assert app.get_state("t").breakpoints == ()


def test_a_call_brings_its_own(store):
    with guarded().compile(checkpointer=store) as app:
        stops = [app.invoke({"n": 1}, thread_id="t", interrupt_before="*").breakpoints]
        stops.append(app.invoke(None, thread_id="t", interrupt_after=["a"]).breakpoints)
        stops.append(app.resume(thread_id="t", interrupt_before=["c"]).breakpoints)
        assert [(each.when, each.node) for (each,) in stops] == [
            ("before", "a"),
            ("after", "a"),
            ("before", "c"),
        ]
        assert type(app.invoke(None, thread_id="t")) is Completed


def test_a_call_may_want_none(store):
    with guarded().compile(checkpointer=store, interrupt_before="*") as app:
        assert type(app.invoke({"n": 1}, thread_id="t", interrupt_before=[])) is Completed


def test_by_messages_and_awaited(place):
    app = guarded().compile(interrupt_after=["a"])
    with Runtime(place.open(), graphs=[app]) as runtime:
        thread = runtime.thread("t", graph=app)
        assert thread.ask(Invoke({"n": 1})).breakpoints == (Breakpoint(node="a", when="after"),)
        assert thread.ask(Continue(interrupt_before=["c"])).breakpoints[0].node == "c"
        thread.tell(Continue())
        assert type(thread.ask(Continue())) is Completed

    with guarded().compile(checkpointer=place.open(), interrupt_before=["b"]) as app:

        async def on_app():
            first = await app.ainvoke({"n": 1}, thread_id="u")
            return first.breakpoints, await app.aresume(thread_id="u")

        where, last = asyncio.run(on_app())
    assert where == BEFORE_B
    assert type(last) is Completed


@pytest.mark.parametrize("given", [["x"], ["B"], "b", 3])
def test_unknown_nodes_are_refused_at_once(memory, given):
    with pytest.raises(InvalidGraph, match="interrupt_before"):
        guarded().compile(interrupt_before=given)
    with guarded().compile(checkpointer=memory) as app:
        with pytest.raises(InvalidCall, match="interrupt_after"):
            app.invoke({"n": 1}, thread_id="t", interrupt_after=given)
        assert app.get_state("t") is None


def test_the_nearest_name_is_told(memory):
    with (
        guarded().compile(checkpointer=memory) as app,
        pytest.raises(InvalidCall, match="mean 'b'"),
    ):
        app.invoke({"n": 1}, thread_id="t", interrupt_before=["B"])


def test_without_a_store_nobody_could_pass_them():
    with guarded().compile(interrupt_before=["b"]) as app:
        with pytest.raises(InterruptWithoutCheckpointer, match="no checkpointer"):
            app.invoke({"n": 1})
        assert type(app.invoke({"n": 1}, interrupt_before=[])) is Completed


def test_another_process_passes_it(tmp_path):
    path = tmp_path / "state.lmdb"
    assert killed(stop_and_die, path) == [["b"]]
    store = store_at(path)
    with guarded().compile(checkpointer=store, interrupt_before=["b"]) as app:
        assert app.get_state("t").breakpoints == BEFORE_B
        assert app.invoke({"n": 1}, thread_id="t").breakpoints == BEFORE_B, "the same call tells"
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "b", "c"]
    store.close()


def test_a_runtime_takes_up_no_run_that_stands_at_one(tmp_path):
    path = tmp_path / "state.lmdb"
    killed(stop_and_die, path)
    store = store_at(path)
    app = guarded().compile(interrupt_before=["b"])
    with Runtime(store, graphs=[app]) as runtime:
        assert runtime.thread("t", graph=app).ask(Invoke({"n": 1})).breakpoints == BEFORE_B
    store.close()


def test_a_kill_behind_it_does_not_bring_it_back(tmp_path):
    path = tmp_path / "state.lmdb"
    killed(stop_and_die, path)
    killed(pass_and_die, path)
    store = store_at(path)
    with guarded().compile(checkpointer=store, interrupt_before=["b"]) as app:
        assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["a", "b", "c"]
    store.close()


def test_what_a_call_wanted_holds_in_the_next_process(tmp_path):
    path = tmp_path / "state.lmdb"
    killed(stop_by_call_and_die, path)
    store = store_at(path)
    app = guarded().compile()
    with Runtime(store, graphs=[app]) as runtime:
        outcome = runtime.thread("t", graph=app).ask(Invoke({"n": 1}))
        assert [each.node for each in outcome.breakpoints] == ["c"]
    store.close()


def test_code_that_changed_while_a_run_stood_at_one_passes_it(place):
    """peers 23."""
    with guarded().compile(checkpointer=place.open(), interrupt_before=["b"]) as app:
        app.invoke({"n": 1}, thread_id="t")
    changed = guarded(lambda _s: {"log": ["new b"]})
    with changed.compile(checkpointer=place.open(), interrupt_before=["b", "a"]) as app:
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "new b", "c"]


def test_questions_and_breakpoints_take_turns(store):
    graph = line("g", a=lambda _s: {"log": [interrupt("?")]}, b=wrote("b"))
    with graph.compile(checkpointer=store, interrupt_before=["a", "b"]) as app:
        assert app.invoke({"n": 1}, thread_id="t").breakpoints[0].node == "a"
        with pytest.raises(NothingToResume):
            app.resume({"int_0": 1}, thread_id="t")
        question = app.invoke(None, thread_id="t").interrupt
        assert question.value == "?"
        assert app.invoke(None, thread_id="t").interrupt == question
        assert app.resume("yes", thread_id="t").breakpoints == BEFORE_B
        outcome = app.invoke(Command(update={"n": 2}, resume="go"), thread_id="t")
        assert outcome.state == {"n": 2, "log": ["yes", "b"]}


class TestEdits:
    def test_an_update_at_one_leaves_the_run_there(self, store):
        with guarded().compile(checkpointer=store, interrupt_before=["b"]) as app:
            app.invoke({"n": 1}, thread_id="t")
            app.update_state("t", {"n": 7})
            state = app.get_state("t")
            assert (state.status, state.breakpoints, state.values["n"]) == ("waiting", BEFORE_B, 7)
            assert app.invoke(None, thread_id="t").state == {"n": 7, "log": ["a", "b", "c"]}

    def test_routing_comes_before_the_stop_and_an_update_as_the_node_routes_again(self, store):
        """peers 26."""
        ran = []
        graph = Graph(Log, name="g").add_node("a", lambda _s: {"n": 1})
        for node in "xy":
            graph.add_node(node, lambda _s, node=node: ran.append(node))
        graph.add_edge(START, "a").add_conditional_edges("a", lambda s: "x" if s["n"] == 1 else "y")
        with graph.compile(checkpointer=store, interrupt_after=["a"]) as app:
            assert app.invoke({}, thread_id="t").breakpoints[0].node == "a"
            assert app.get_state("t").next == ("x",)
            app.update_state("t", {"n": 2}, as_node="a")
            assert app.get_state("t").next == ("y",)
            assert type(app.invoke(None, thread_id="t")) is Completed
        assert ran == ["y"]

    def test_a_branch_from_a_checkpoint_at_which_a_run_stood_goes_on(self, store):
        with guarded().compile(checkpointer=store, interrupt_before=["b"]) as app:
            stood = app.invoke({"n": 1}, thread_id="t")
            app.invoke(None, thread_id="t")
            again = app.invoke(None, thread_id="t", checkpoint_id=stood.checkpoint_id)
            assert again.state["log"] == ["a", "b", "c"]


class TestVersions:
    """A thread of an older version that stands at a breakpoint, or is on its way to one."""

    def migrated(self, place, **migration):
        graph = Graph(Log, name="guarded", version=2)
        names = [migration.get("rename", {}).get(name, name) for name in "abc"]
        before = START
        for name in names:
            graph.add_node(name, wrote(name)).add_edge(before, name)
            before = name
        return graph.compile(checkpointer=place.open(), migrations={1: Migration(**migration)})

    def test_it_stands_there_still_under_the_new_name_of_its_node(self, place):
        with guarded().compile(checkpointer=place.open(), interrupt_before=["b"]) as app:
            app.invoke({"n": 1}, thread_id="t")
        with self.migrated(place, rename={"b": "bb"}) as app:
            outcome = app.invoke({"n": 1}, thread_id="t")
            assert outcome.breakpoints == (Breakpoint(node="bb", when="before"),)
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "bb", "c"]

    def test_what_its_last_call_wanted_is_renamed_too(self, disk):
        killed(stop_by_call_and_die, disk.path)
        with self.migrated(disk, rename={"c": "cc"}) as app:
            outcome = app.invoke({"n": 1}, thread_id="t")
            assert outcome.breakpoints == (Breakpoint(node="cc", when="before"),)
