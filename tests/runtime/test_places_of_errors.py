"""Errors say whose fault it is, where, and which argument is meant."""

from __future__ import annotations

import asyncio
from typing import TypedDict

import pytest

from beamweaver import END, START, Graph, Invoke, Runtime
from beamweaver.errors import (
    InvalidCall,
    InvalidUpdate,
    NodeFailed,
    RunFailed,
    SerializationError,
    UnknownChannel,
)
from beamweaver.limits import Limits
from tests.runtime.kit import Log, line, wrote


class Topic(TypedDict, total=False):
    topic: str


def fails(_state):
    raise OSError("boom")


def asks(_state, ctx):
    return {"log": [ctx.interrupt("why?")]}


def looking():
    graph = Graph(Topic, name="look").add_node("find", lambda _s: None)
    return graph.add_edge(START, "find").add_edge("find", END).compile()


class TestTheInputOfACall:
    @pytest.mark.parametrize(
        ("given", "error", "says"),
        [
            ({"topc": "x"}, UnknownChannel, r"the input has the key 'topc'.*Did you mean 'topic'"),
            ({"topic": 7}, InvalidUpdate, "the input has"),
            ({"topic": object()}, InvalidUpdate, "the input has"),
            (["topic"], InvalidUpdate, "the input is"),
        ],
    )
    @pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
    def test_its_node_its_call_and_its_graph_are_named(self, memory, given, error, says, awaited):
        child = looking()

        def calls(_state, ctx):
            ctx.call(child, given, key="b")

        async def awaits(_state, ctx):
            await ctx.call(child, given, key="b")

        with line("top", n=awaits if awaited else calls).compile(checkpointer=memory) as app:
            with pytest.raises(
                error, match=rf"^node 'n' calls graph 'look' \(call 'look:b' of the task\): {says}"
            ) as caught:
                app.invoke({}, thread_id="t")
        assert caught.value.node == "n"

    def test_also_of_what_it_lacks(self, memory):
        class Needs(TypedDict):
            n: int

        child = Graph(Log, name="child", input_schema=Needs).add_node("a", wrote("a"))
        child = child.add_edge(START, "a").compile()
        with line("top", n=lambda _s, ctx: ctx.call(child)).compile(checkpointer=memory) as app:
            with pytest.raises(InvalidUpdate, match="^node 'n' calls graph 'child' .*lacks 'n'"):
                app.invoke({}, thread_id="t")

    def test_also_of_what_cannot_be_stored(self, memory):
        child = Graph(name="free").add_node("a", lambda _s: None)
        child = child.add_edge(START, "a").add_edge("a", END).compile()
        top = line("top", n=lambda _s, ctx: ctx.call(child, {"x": object()}))
        with top.compile(checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match="node 'n' calls graph 'free'") as caught:
                app.invoke({}, thread_id="t")
        assert isinstance(caught.value.__cause__, SerializationError)
        assert caught.value.__cause__.path


class TestAnEdit:
    def test_inside_of_a_task_its_place_is_named(self, memory):
        child = line("child", a=wrote("a"), b=fails).compile()
        with line("top", n=child).compile(checkpointer=memory) as app:
            with pytest.raises(RunFailed):
                app.invoke({}, thread_id="t")
            with pytest.raises(
                UnknownChannel,
                match=r"^update_state of graph 'child' at namespace \('n',\): the update has the key 'lg'",
            ):
                app.update_state("t", {"lg": ["x"]}, namespace=("n",))

    def test_of_a_thread_it_is_no_input(self, memory):
        with line("top", a=wrote("a")).compile(checkpointer=memory) as app:
            with pytest.raises(
                UnknownChannel, match="^update_state of graph 'top': the update has"
            ):
                app.update_state("t", {"lg": ["x"]})


class TestArguments:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"filter": "source"}, r"^filter is 'source'; give a dict"),
            ({"filter": [("source", "loop")]}, r"^filter is \[.*; give a dict"),
            ({"limit": -1}, "^limit is -1; give a number from 0"),
            ({"limit": True}, "^limit is True; give a number from 0"),
            ({"limit": -1, "namespace": ("n",)}, "^limit is -1; give a number from 0"),
            ({"limit": "1", "namespace": ("n",)}, "^limit is '1'; give a number from 0"),
            ({"before": "zz"}, "^before is 'zz', which is no checkpoint's id"),
            ({"before": {"configurable": {}}}, "^before is {'configurable': {}}, which is no"),
        ],
    )
    def test_of_a_history(self, memory, options, says):
        child = line("child", a=wrote("a")).compile()
        with line("top", n=child).compile(checkpointer=memory) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(InvalidCall, match=says):
                app.get_state_history("t", **options)

    @pytest.mark.parametrize(
        ("key", "says"),
        [
            (7, "the key of call 'look' is 7; give a text"),
            ("", "the key of call 'look' is ''; give a text"),
            (
                "x" * 300,
                "the key of call 'look' is '" + "x" * 40 + "'…, of 300 characters; give a text",
            ),
        ],
    )
    def test_a_key_is_shown_as_it_is(self, memory, key, says):
        child = looking()
        with line("top", n=lambda _s, ctx: ctx.call(child, key=key)).compile() as app:
            with pytest.raises(NodeFailed, match=says):
                app.invoke({})


class TestFailuresOfCallsInCalls:
    def test_the_cause_is_said_once(self, memory):
        graphs = []
        graphs.append(line("endless", r=lambda _s, ctx: ctx.call(graphs[0])).compile())
        with Runtime(memory, graphs=graphs, limits=Limits(call_depth=5)) as runtime:
            with pytest.raises(NodeFailed) as caught:
                runtime.thread("t").ask(Invoke({}), timeout=10)
        text = str(caught.value)
        assert text.startswith(
            "node 'r' failed in attempt 1, in a graph that it called: node 'r' failed in attempt 1: "
            "beamweaver.errors.InvalidCall: "
        )
        assert text.count("failed in attempt") == 2
        assert "limits.call_depth" in text

    def test_the_innermost_node_is_named(self, place):
        inner = line("inner", c=fails).compile()
        middle = line("middle", b=lambda _s, ctx: ctx.call(inner)).compile()
        top = line("top", a=lambda _s, ctx: ctx.call(middle))
        text = (
            "node 'a' failed in attempt 1, in a graph that it called: node 'c' failed in attempt 1: "
            "OSError: boom"
        )
        with top.compile(checkpointer=place.open()) as app:
            with pytest.raises(NodeFailed) as caught:
                app.invoke({}, thread_id="t")
            assert str(caught.value) == text
            assert isinstance(caught.value.__cause__.__cause__.__cause__, OSError)


def test_who_gathers_questions_as_results_is_told_of_it(memory):
    child = line("child", asks=asks).compile()

    async def node(_state, ctx):
        await asyncio.gather(ctx.call(child, key="a"), return_exceptions=True)

    with line("top", n=node).compile(checkpointer=memory) as app:
        with pytest.raises(InvalidUpdate, match="return_exceptions=True"):
            app.invoke({}, thread_id="t")
