"""Graphs that a function calls, from outside: `ctx.call()`."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TypedDict

import pytest

from beamweaver import END, START, Command, Graph, Runtime, Send
from beamweaver.errors import (
    InvalidCall,
    InvalidUpdate,
    KeyRequired,
    NodeFailed,
    RecursionLimit,
    RunFailed,
    StepChanged,
)
from beamweaver.limits import Limits
from beamweaver.types import PARENT, Completed, Interrupted, Invoke, RetryPolicy
from tests.runtime.kit import Counted, Log, line, star, wrote


def asks(state, ctx):
    return {"log": [f"asked {ctx.interrupt('why?')}"]}


def calling(child, given=None, **options):
    """A graph of one node that calls another graph and writes what came back."""

    def calls(_state, ctx):
        return {"log": ctx.call(child, given or {"log": ["in"]})["log"]}

    return line("top", calls=calls).compile(**options)


class Flaky:
    """A node that fails the first times."""

    def __init__(self, times=1):
        self.times = times
        self.runs = 0

    def __call__(self, _state):
        self.runs += 1
        if self.runs <= self.times:
            raise OSError("boom")
        return {"log": ["flaky"]}


class TestValues:
    def test_it_returns_the_state_of_the_graph(self, store):
        child = line("child", a=wrote("a"), b=wrote("b")).compile()

        with calling(child, checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["in", "a", "b"]

    def test_no_store_is_needed(self):
        with calling(line("child", a=wrote("a")).compile()) as app:
            assert app.invoke({}).state["log"] == ["in", "a"]

    def test_it_is_awaited_in_async_nodes(self, store):
        child = line("child", a=wrote("a")).compile()

        async def calls(_state, ctx):
            return {"log": (await ctx.call(child, {"log": ["in"]}))["log"]}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["in", "a"]

    def test_two_calls_of_one_graph_are_independent(self, store):
        """`langgraph 119`."""
        child = line("child", a=wrote("a")).compile()

        def calls(_state, ctx):
            first = ctx.call(child, {"log": ["1"]})["log"]
            return {"log": [*first, *ctx.call(child, {"log": ["2"]})["log"]]}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["1", "a", "2", "a"]

    def test_several_run_at_once_by_keys(self, store):
        child = line("child", a=wrote("a")).compile()

        async def calls(_state, ctx):
            made = [ctx.call(child, {"log": [str(n)]}, key=str(n)) for n in range(3)]
            return {"log": [entry for each in await asyncio.gather(*made) for entry in each["log"]]}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["0", "a", "1", "a", "2", "a"]

    def test_the_result_is_in_the_form_of_the_output_schema(self, store):
        @dataclasses.dataclass
        class State:
            n: int = 0
            secret: str = "s"

        @dataclasses.dataclass
        class Shown:
            n: int = 0

        child = Graph(State, name="child", output_schema=Shown)
        child.add_node("a", lambda state: {"n": state.n + 1, "secret": "t"}).add_edge(START, "a")
        compiled, seen = child.compile(), []

        def calls(_state, ctx):
            for _again in range(2):
                seen.append(ctx.call(compiled, {"n": 1}))
            return {"n": seen[-1].n}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["n"] == 2
        assert seen == [Shown(2), Shown(2)]

    def test_without_an_input_it_starts_empty(self):
        def calls(_state, ctx):
            return {"log": ctx.call(line("child", a=wrote("a")).compile())["log"]}

        with line("top", calls=calls).compile() as app:
            assert app.invoke({}).state["log"] == ["a"]

    def test_it_may_call_others_and_have_graphs_as_nodes(self, store):
        deepest = line("deepest", x=wrote("x")).compile()
        nested = line("nested", y=wrote("y")).compile()

        def inner(_state, ctx):
            return {"log": ctx.call(deepest)["log"]}

        child = line("child", inner=inner, nested=nested).compile()
        with calling(child, checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["in", "x", "y"]

    def test_a_node_that_is_inside_of_a_graph_calls_too(self, store):
        inner = calling(line("child", a=wrote("a")).compile())
        with line("outer", inner=inner).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["in", "a"]

    def test_nodes_know_where_they_are(self):
        seen = []

        def look(_state, ctx):
            seen.append((ctx.namespace, ctx.task_id))

        child = line("child", look=look).compile()

        def calls(_state, ctx):
            ctx.call(child)
            ctx.call(child)
            ctx.call(child, key="k")

        with line("top", calls=calls).compile() as app:
            app.invoke({})
        assert [names for names, _id in seen] == [
            ("calls:child",),
            ("calls:child|2",),
            ("calls:child:k",),
        ]
        assert len({id_ for _names, id_ in seen}) == 3

    def test_what_a_persistent_graph_in_it_keeps_lasts_as_long_as_the_call(self, store):
        keeps = line("keeps", k=lambda state: {"n": state.get("n", 0) + 1}).compile()
        child = Graph(Log, name="child").add_node("keeps", keeps, persistent=True)
        child.add_edge(START, "keeps").add_edge("keeps", "keeps", max_runs=1)
        child = child.compile()

        def calls(_state, ctx):
            return {"log": [ctx.call(child)["n"], ctx.call(child)["n"]]}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == [2, 2]


class TestQuestions:
    def test_a_question_of_it_is_one_of_the_thread(self, place):
        """`langgraph 74`: one in a graph that a node calls, answered in another process."""
        a = Counted(wrote("a"))

        def app():
            child = line("child", a=a, asks=asks, z=wrote("z")).compile()
            return calling(child, checkpointer=place.open())

        with app() as opened:
            outcome = opened.invoke({}, thread_id="t")
            assert isinstance(outcome, Interrupted)
            assert outcome.interrupt.value == "why?"
            assert outcome.interrupt.namespace == ("calls:child",)
        with app() as opened:
            assert opened.get_state("t").status == "waiting"
            outcome = opened.resume("because", thread_id="t")

        assert outcome.state["log"] == ["in", "a", "asked because", "z"]
        assert a.runs == 1

    def test_two_one_after_the_other(self, place):
        """`langgraph 74`: two sequential questions."""

        def app():
            child = line("child", one=asks, two=asks).compile()
            return calling(child, checkpointer=place.open())

        for turn, answer in enumerate([None, "1", "2"]):
            with app() as opened:
                call = opened.resume if turn else opened.invoke
                outcome = call(answer or {}, thread_id="t")
        assert outcome.state["log"] == ["in", "asked 1", "asked 2"]

    def test_what_it_asks_deep_inside_after_a_send_waits_for_another_process(self, place):
        class Item(TypedDict):
            item: int
            log: list

        def each(state, ctx):
            return {"log": [f"{state['item']} {ctx.interrupt(state['item'])}"]}

        def app():
            inner = line("inner", each=each).compile()
            child = Graph(Log, name="child").add_node("first", wrote("first"))
            child.add_node("inner", inner).add_edge(START, "first")
            child.add_conditional_edges(
                "first", lambda _s: [Send("inner", {"item": n}) for n in range(2)], ["inner"]
            )
            return calling(child.compile(), checkpointer=place.open())

        with app() as opened:
            outcome = opened.invoke({}, thread_id="t")
            assert [i.value for i in outcome.interrupts] == [0, 1]
            assert outcome.interrupts[0].namespace == ("calls:child", "inner")
        with app() as opened:
            first, second = outcome.interrupts
            again = opened.resume(answers={second.id: "b"}, thread_id="t")
            assert [i.id for i in again.interrupts] == [first.id]
        with app() as opened:
            outcome = opened.resume("a", thread_id="t")
        assert outcome.state["log"] == ["in", "first", "0 a", "1 b"]

    def test_what_was_finished_beside_the_question_is_read_when_it_is_called_again(self, place):
        """Updates, Sends and commands of graphs in it, in another process."""

        def item(state):
            return {"log": [f"item {state['item']}"]}

        def app():
            nested = star("nested", asks=asks, up=lambda _s: Command(graph=PARENT, update={"n": 7}))
            child = star("child", asks=asks, nested=nested.compile())
            child.add_node("sends", lambda _s: [{"log": ["sent"]}, Send("item", {"item": 3})])
            child.add_node("item", item).add_edge(START, "sends").add_edge("item", END)
            called = child.compile(allow_unreachable=True)

            def calls(_state, ctx):
                found = ctx.call(called)
                return {"log": found["log"], "n": found["n"]}

            return line("top", calls=calls).compile(checkpointer=place.open())

        with app() as opened:
            outcome = opened.invoke({}, thread_id="t")
            assert len(outcome.interrupts) == 2
        with app() as opened:
            answers = {each.id: "x" for each in outcome.interrupts}
            state = opened.resume(answers=answers, thread_id="t").state
        assert state["log"] == ["asked x", "asked x", "sent", "item 3"]
        assert state["n"] == 7

    @pytest.mark.parametrize("lost", ["asks", "nested"])
    def test_a_graph_that_has_lost_the_node_that_waits_says_so(self, place, lost):
        def app(**nodes):
            return calling(
                line("child", a=wrote("a"), **nodes).compile(), checkpointer=place.open()
            )

        asking = {"asks": asks, "nested": line("nested", asks=asks).compile()}
        with app(**{lost: asking[lost]}) as opened:
            opened.invoke({}, thread_id="t")
        with app(other=wrote("b")) as opened:
            with pytest.raises(NodeFailed, match=f"is about to run node '{lost}'"):
                opened.resume("x", thread_id="t")

    def test_siblings_run_to_their_end_before_the_node_parks(self, store):
        b = Counted(wrote("b"))
        one = line("one", a=wrote("a"), asks=asks).compile()
        two = line("two", b=b, c=b, d=b).compile()

        async def calls(_state, ctx):
            found = await asyncio.gather(ctx.call(one), ctx.call(two))
            return {"log": [*found[0]["log"], *found[1]["log"]]}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            assert isinstance(app.invoke({}, thread_id="t"), Interrupted)
            assert b.runs == 3
            outcome = app.resume("x", thread_id="t")
        assert outcome.state["log"] == ["a", "asked x", "b", "b", "b"]
        assert b.runs == 3

    def test_a_breakpoint_of_it_stops_the_thread_once(self, place):
        def app():
            child = line("child", a=wrote("a"), b=wrote("b")).compile(interrupt_before=["b"])
            return calling(child, checkpointer=place.open())

        with app() as opened:
            assert isinstance(opened.invoke({}, thread_id="t"), Interrupted)
        with app() as opened:
            assert opened.invoke(None, thread_id="t").state["log"] == ["in", "a", "b"]

    def test_who_catches_what_parks_the_node_is_told(self, memory):
        child = line("child", asks=asks).compile()

        def calls(_state, ctx):
            try:
                ctx.call(child)
            except BaseException:
                return {"log": ["caught"]}

        with line("top", calls=calls).compile(checkpointer=memory) as app:
            with pytest.raises(InvalidUpdate, match=r"ctx\.call\(\) and returned all the same"):
                app.invoke({}, thread_id="t")


class TestFailures:
    def test_its_error_reaches_the_function(self, store):
        child = line("child", a=wrote("a"), flaky=Flaky(9)).compile()
        seen = []

        def calls(_state, ctx):
            try:
                ctx.call(child)
            except NodeFailed as error:
                seen.append(error)
                return {"log": [error.node]}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            outcome = app.invoke({}, thread_id="t")

        assert outcome.state["log"] == ["flaky"]
        assert isinstance(seen[0].__cause__, OSError)
        assert seen[0].failures[0].namespace == ("calls:child",)

    def test_who_catches_it_may_call_again_and_what_is_done_is_not_run_again(self, store):
        """`peers 39`."""
        a, flaky = Counted(wrote("a")), Flaky()
        child = line("child", a=a, flaky=flaky).compile()

        def calls(_state, ctx):
            try:
                return {"log": ctx.call(child)["log"]}
            except NodeFailed:
                return {"log": ctx.call(child)["log"]}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["a", "flaky"]
        assert (a.runs, flaky.runs) == (1, 2)

    def test_a_retry_of_the_node_goes_on_inside(self, store):
        """`peers 39`."""
        a, flaky = Counted(wrote("a")), Flaky()
        child = line("child", a=a, flaky=flaky).compile()

        def calls(_state, ctx):
            return {"log": ctx.call(child)["log"]}

        retry = RetryPolicy(max_attempts=2, initial_delay=0.01, retry_on="any")
        with line("top", calls=(calls, {"retry": retry})).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["a", "flaky"]
        assert (a.runs, flaky.runs) == (1, 2)

    def test_a_caller_that_continues_goes_on_inside_in_another_process(self, place):
        """`graph 43`, of a graph that is called."""
        a, flaky = Counted(wrote("a")), Flaky()

        def app():
            child = line("child", a=a, flaky=flaky).compile()
            return calling(child, checkpointer=place.open())

        with app() as opened, pytest.raises(NodeFailed, match="boom"):
            opened.invoke({}, thread_id="t")
        with app() as opened:
            assert opened.invoke(None, thread_id="t").state["log"] == ["in", "a", "flaky"]
        assert (a.runs, flaky.runs) == (1, 2)

    def test_what_was_done_before_the_node_failed_is_not_run_again(self, place):
        a, fails = Counted(wrote("a")), [True]

        def app():
            child = line("child", a=a).compile()

            def calls(_state, ctx):
                found = ctx.call(child)["log"]
                if fails:
                    fails.clear()
                    raise OSError("after the call")
                return {"log": found}

            return line("top", calls=calls).compile(checkpointer=place.open())

        with app() as opened, pytest.raises(NodeFailed):
            opened.invoke({}, thread_id="t")
        with app() as opened:
            assert opened.invoke(None, thread_id="t").state["log"] == ["a"]
        assert a.runs == 1

    def test_retries_inside_are_its_own(self, store):
        retry = RetryPolicy(max_attempts=3, initial_delay=0.01, retry_on="any")
        flaky = Flaky(2)
        with calling(line("child", f=(flaky, {"retry": retry})).compile()) as app:
            assert app.invoke({}).state["log"] == ["in", "flaky"]

    def test_its_limit_of_steps_is_an_error_of_the_call(self, store):
        child = Graph(Log, name="child").add_node("a", wrote("a")).add_edge(START, "a")
        child = child.add_edge("a", "a", max_runs=50).compile(recursion_limit=5)
        seen = []

        def calls(_state, ctx):
            try:
                ctx.call(child)
            except RecursionLimit as error:
                seen.append(error)
            return {"n": 1}

        with line("top", calls=calls).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert "limit is 5" in str(seen[0])

    def test_an_error_handler_calls_graphs_of_its_own(self, store):
        child = line("child", a=wrote("a")).compile()
        seen = []

        def look(_state, ctx):
            seen.append(ctx.task_id)

        looks = line("looks", look=look).compile()

        def calls(_state, ctx):
            ctx.call(looks)
            raise OSError("boom")

        def handler(_failure, _state, ctx):
            ctx.call(looks)
            return {"log": ctx.call(child)["log"]}

        graph = line("top", calls=(calls, {"error_handler": handler}))
        with graph.compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["a"]
        assert len(set(seen)) == 2


class TestWhatIsRefused:
    def test_another_input_on_the_same_call(self, place):
        n = Counted(lambda _s: None)

        def app():
            child = line("child", a=wrote("a"), asks=asks).compile()

            def calls(_state, ctx):
                n(None)
                return {"log": ctx.call(child, {"n": n.runs})["log"]}

            return line("top", calls=calls).compile(checkpointer=place.open())

        with app() as opened:
            opened.invoke({}, thread_id="t")
        with app() as opened, pytest.raises(NodeFailed) as caught:
            opened.resume("x", thread_id="t")
        assert isinstance(caught.value.__cause__, StepChanged)
        assert "'top'" not in str(caught.value)
        assert "calls graph 'child'" in str(caught.value)

    def test_another_input_on_a_call_that_was_done(self, memory):
        n = Counted(lambda _s: None)
        child = line("child", a=wrote("a")).compile()

        def calls(_state, ctx):
            n(None)
            ctx.call(child, {"n": n.runs})
            return {"log": [ctx.interrupt("?")]}

        with line("top", calls=calls).compile(checkpointer=memory) as app:
            app.invoke({}, thread_id="t")
            with pytest.raises(NodeFailed, match="with another input") as caught:
                app.resume("x", thread_id="t")
        assert isinstance(caught.value.__cause__, StepChanged)

    def test_two_at_once_without_keys(self, memory):
        child = line("child", a=wrote("a")).compile()

        async def calls(_state, ctx):
            await asyncio.gather(ctx.call(child), ctx.call(child))

        with line("top", calls=calls).compile(checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match="two calls of graph 'child' at once") as caught:
                app.invoke({}, thread_id="t")
        assert isinstance(caught.value.__cause__, KeyRequired)

    @pytest.mark.parametrize(
        ("graph", "given", "cure"),
        [
            (None, {}, "give a compiled graph"),
            (line("child", a=wrote("a")), {}, "give a compiled graph"),
            (line("child", a=wrote("a")).compile(), Command(goto="a"), "give an update"),
            (line("child", a=wrote("a")).compile(), {"nope": 1}, "has the key 'nope'"),
        ],
    )
    def test_what_is_no_graph_or_no_update_of_it(self, memory, graph, given, cure):
        def calls(_state, ctx):
            ctx.call(graph, given)

        with line("top", calls=calls).compile(checkpointer=memory) as app:
            with pytest.raises(RunFailed, match=cure):
                app.invoke({}, thread_id="t")

    def test_a_graph_with_a_checkpointer_of_its_own(self, memory):
        child = line("child", a=wrote("a")).compile(checkpointer=memory)
        with calling(child, checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match="compile it without one") as caught:
                app.invoke({}, thread_id="t")
        assert isinstance(caught.value.__cause__, InvalidCall)

    def test_an_input_that_lacks_what_it_requires(self, memory):
        class Needs(TypedDict):
            n: int

        child = Graph(Log, name="child", input_schema=Needs).add_node("a", wrote("a"))
        child = child.add_edge(START, "a").compile()
        with calling(child, {"n": 1}, checkpointer=memory) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["a"]

        def calls(_state, ctx):
            ctx.call(child, {})

        with line("top", calls=calls).compile(checkpointer=memory) as app:
            with pytest.raises(InvalidUpdate, match="the input lacks 'n'"):
                app.invoke({}, thread_id="u")

    def test_a_command_of_the_graph_around(self, memory):
        child = line("child", a=lambda _s: Command(graph=PARENT, goto="calls")).compile()
        with calling(child, checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match="does not run inside of another one"):
                app.invoke({}, thread_id="t")

    def test_calls_that_nest_too_deep(self, memory):
        graphs = []

        def calls(_state, ctx):
            ctx.call(graphs[0])

        graphs.append(line("endless", calls=calls).compile())
        with Runtime(memory, graphs=graphs, limits=Limits(call_depth=3)) as runtime:
            with pytest.raises(NodeFailed, match=r"inside of 3 calls, which is limits\.call_depth"):
                runtime.thread("t").ask(Invoke({}), timeout=10)

    def test_a_result_that_is_too_large_to_be_kept_beside_the_others(self, memory):
        child = line("child", a=lambda _s: {"note": "x" * 600}).compile()

        def calls(_state, ctx):
            ctx.call(child)
            ctx.call(child)

        graph = line("top", calls=calls).compile()
        with Runtime(memory, graphs=[graph], limits=Limits(memo_bytes_a_task=1_000)) as runtime:
            with pytest.raises(NodeFailed, match=r"limits\.memo_bytes_a_task is 1000"):
                runtime.thread("t").ask(Invoke({}), timeout=10)

    def test_a_call_inside_of_a_step_needs_a_key(self, memory):
        child = line("child", a=wrote("a")).compile()

        def calls(_state, ctx):
            return {"log": ctx.step("s", lambda: ctx.call(child)["log"])}

        with line("top", calls=calls).compile(checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match="inside of step 's'"):
                app.invoke({}, thread_id="t")

    def test_routers_call_nothing(self, memory):
        child = line("child", a=wrote("a")).compile()
        graph = star("top", a=wrote("a"), b=wrote("b"))
        graph.add_conditional_edges("a", lambda _s, ctx: ctx.call(child), ["b"])
        with graph.compile(checkpointer=memory) as app:
            with pytest.raises(Exception, match="only a node and its error handler"):
                app.invoke({}, thread_id="t")


def test_a_finished_call_runs_in_no_later_run(store):
    """What a call did goes with its task: the next run calls anew."""
    a = Counted(wrote("a"))
    with calling(line("child", a=a).compile(), checkpointer=store) as app:
        for _run in range(2):
            assert type(app.invoke({}, thread_id="t")) is Completed
    assert a.runs == 2
