"""Graphs as nodes, from outside: what goes in and comes back, at any depth, on each store."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import END, START, Command, Graph, Send
from beamweaver.errors import (
    AmbiguousResume,
    ConcurrentSubgraph,
    InvalidUpdate,
    NodeFailed,
    NodeTimeout,
    RecursionLimit,
    UnknownTarget,
)
from beamweaver.types import PARENT, Completed, Interrupted, RetryPolicy
from tests.runtime.kit import Counted, Log, line, star, wrote


def nested(*levels, store=None, **options):
    """Graphs in graphs: each level is a list of `(name, function)` around the one after it."""
    inner = None
    for depth, nodes in reversed(list(enumerate(levels))):
        given = {name: inner if fn is None else fn for name, fn in nodes}
        compiled = options if depth == 0 else {}
        graph = line(f"level{depth}", **given)
        inner = graph.compile(checkpointer=store, **compiled) if depth == 0 else graph.compile()
    return inner


def asks(state, ctx):
    return {"log": [f"asked {ctx.interrupt('why?')}"]}


class TestValues:
    """Semantics: what a graph that is a node starts from, and what comes back."""

    def test_it_runs_inside_of_its_parent_at_depth_three(self, store):
        app = nested(
            [("a", wrote("a")), ("child", None), ("z", wrote("z"))],
            [("b", wrote("b")), ("grand", None), ("y", wrote("y"))],
            [("c", wrote("c")), ("d", wrote("d"))],
            store=store,
        )

        with app:
            assert app.invoke({"log": ["in"]}, thread_id="t").state["log"] == [
                "in", "a", "b", "c", "d", "y", "z",
            ]  # fmt: skip

    def test_it_has_keys_of_its_own_that_do_not_come_back(self):
        class Inner(TypedDict):
            n: int
            secret: str

        def work(state):
            return {"secret": "s", "n": state["n"] + 1}

        child = Graph(Inner, name="child")
        child.add_node("work", work).add_edge(START, "work")
        child.add_node("check", lambda state: {"n": state["n"] + len(state["secret"])})
        child.add_edge("work", "check")
        app = line("parent", child=child.compile()).compile()

        with app:
            assert app.invoke({"n": 1}).state == {"n": 3, "log": []}

    def test_a_key_that_it_did_not_write_is_no_write_of_a_second_node(self):
        app = star("p", child=line("c", x=wrote("x")).compile(), n=lambda _s: {"n": 5}).compile()

        with app:
            assert app.invoke({"n": 1}).state == {"n": 5, "log": ["x"]}

    def test_what_each_of_several_at_once_added_is_kept_in_task_order(self, store):
        child = line(
            "child", first=lambda s: {"log": [f"f{s['item']}"]}, second=wrote("s")
        ).compile()
        graph = Graph(Log, name="parent").add_node("child", child)
        graph.add_conditional_edges(
            START, lambda _s: [Send("child", {"item": i}) for i in range(3)]
        )

        with graph.compile(checkpointer=store) as app:
            assert app.invoke({"log": ["in"]}, thread_id="t").state["log"] == [
                "in", "f0", "s", "f1", "s", "f2", "s",
            ]  # fmt: skip

    def test_a_value_that_does_not_fit_its_types_fails_the_node_before_it_begins(self):
        class Typed(TypedDict):
            n: int

        child = Graph(Typed, name="child").add_node("x", lambda _s: None).add_edge(START, "x")
        graph = Graph(name="open").add_node("child", child.compile()).add_edge(START, "child")

        with graph.compile() as app, pytest.raises(InvalidUpdate, match="'n'"):
            app.invoke({"n": "text"})

    def test_an_async_node_runs_inside_of_it(self):
        async def work(state):
            return {"log": ["async"]}

        with line("p", child=line("c", x=work, y=wrote("y")).compile()).compile() as app:
            assert app.invoke({}).state["log"] == ["async", "y"]

    def test_a_router_and_a_send_inside_of_it(self):
        child = Graph(Log, name="child").add_node("a", wrote("a"))
        child.add_node("w", lambda state: {"log": [f"w{state['item']}"]}).add_edge(START, "a")
        child.add_conditional_edges(
            "a", lambda _s: [Send("w", {"item": 1}), Send("w", {"item": 2})]
        )

        with line("parent", child=child.compile()).compile() as app:
            assert app.invoke({}).state["log"] == ["a", "w1", "w2"]

    def test_nodes_know_where_they_are(self):
        """`graph 46`, `graph 87`."""
        seen = []

        def look(state, ctx):
            seen.append((ctx.namespace, ctx.node, ctx.graph_name, ctx.thread_id))

        app = nested([("child", None), ("z", look)], [("x", look)])
        with app:
            outcome = app.invoke({})

        assert seen == [
            (("child",), "x", "level1", outcome.thread_id),
            ((), "z", "level0", outcome.thread_id),
        ]


class TestGoingOnInside:
    """Failed or interrupted work inside goes on inside."""

    def test_what_finished_inside_does_not_run_again(self, place):
        """`graph 43`: a child of which one node fails is continued at that node."""

        def flaky(_state):
            if fails.pop():
                raise ValueError("boom")
            return {"log": ["flaky"]}

        fails = [False, True]
        one = Counted(wrote("one"))
        graph = star("child", one=one, flaky=flaky).add_node("last", wrote("last"))
        child = graph.add_edge(["one", "flaky"], "last").compile()
        app = line("parent", before=wrote("before"), child=child).compile(checkpointer=place.open())

        with app:
            with pytest.raises(NodeFailed, match="boom") as caught:
                app.invoke({}, thread_id="t")
            outcome = app.invoke(None, thread_id="t")

        assert caught.value.node == "flaky"
        assert caught.value.failures[0].namespace == ("child",)
        assert outcome.state["log"] == ["before", "one", "flaky", "last"]
        assert one.runs == 1

    def test_a_retry_of_the_node_goes_on_inside(self, store):
        """`peers 39`: in-process retry does not repeat finished work of a subgraph."""
        s1 = Counted(wrote("s1"))
        left = [1]

        def s2(_state):
            if left[0]:
                left[0] -= 1
                raise ConnectionError("later")
            return {"log": ["s2"]}

        child = line("child", s1=s1, s2=s2).compile()
        policy = RetryPolicy(max_attempts=2, initial_delay=0, jitter=False)
        app = line("parent", child=(child, {"retry": policy})).compile(checkpointer=store)

        with app:
            assert app.invoke({}, thread_id="t").state["log"] == ["s1", "s2"]
        assert s1.runs == 1

    def test_a_question_inside_is_answered_from_the_top(self, place):
        """`graph 24`, `langgraph 70`, `langgraph 74`."""
        levels = (
            [("a", wrote("a")), ("child", None), ("z", wrote("z"))],
            [("b", wrote("b")), ("grand", None)],
            [("c", wrote("c")), ("asks", asks)],
        )
        with nested(*levels, store=place.open()) as app:
            first = app.invoke({}, thread_id="t")
            state = app.get_state("t")
        with nested(*levels, store=place.open()) as app:
            outcome = app.resume({first.interrupt.id: "because"}, thread_id="t")

        assert type(first) is Interrupted
        assert (first.interrupt.node, first.interrupt.namespace) == ("asks", ("child", "grand"))
        assert state.next == ("child",)
        assert state.interrupts == first.interrupts
        assert type(outcome) is Completed
        assert outcome.state["log"] == ["a", "b", "c", "asked because", "z"]

    def test_several_questions_inside_need_a_map_and_may_be_answered_one_by_one(self, store):
        """`peers 17`: one answer is not taken for two questions inside of one task."""
        one = Counted(lambda _s: None)

        def asker(name):
            def body(state, ctx):
                one(state)
                return {"log": [f"{name}={ctx.interrupt(name)}"]}

            return body

        child = star("child", x=asker("x"), y=asker("y")).compile()
        with line("parent", child=child).compile(checkpointer=store) as app:
            first = app.invoke({}, thread_id="t")
            with pytest.raises(AmbiguousResume):
                app.resume("both", thread_id="t")
            by_value = {i.value: i.id for i in first.interrupts}
            second = app.resume({by_value["y"]: "Y"}, thread_id="t")
            runs = one.runs
            outcome = app.resume({by_value["x"]: "X"}, thread_id="t")

        assert [i.value for i in second.interrupts] == ["x"]
        assert runs == 3
        assert outcome.state["log"] == ["x=X", "y=Y"]

    def test_a_step_and_a_question_in_a_child_of_a_child(self, store):
        """`peers 21`: sub-steps are kept at any depth."""
        calls = []

        def work(state, ctx):
            ctx.step("pay", lambda: calls.append(1))
            return {"log": [ctx.interrupt("ok?")]}

        with nested([("c", None)], [("d", None)], [("work", work)], store=store) as app:
            app.invoke({}, thread_id="t")
            assert app.resume("yes", thread_id="t").state["log"] == ["yes"]

        assert calls == [1]

    def test_an_amendment_reaches_a_graph_that_has_begun(self, store):
        """The keys that both keep by their last value; what is added to others comes at the end."""
        seen = []

        def needs(state):
            seen.append(state["n"])
            if state["n"] < 10:
                raise ValueError("too small")
            return {"log": ["fine"]}

        child = line("child", first=wrote("first"), needs=needs).compile()
        with line("parent", child=child).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1}, thread_id="t")
            outcome = app.invoke({"n": 10, "log": ["amended"]}, thread_id="t")

        assert seen == [1, 10]
        assert outcome.state == {"n": 10, "log": ["amended", "first", "fine"]}


class TestLimits:
    """Budgets, time and failure policies reach every depth."""

    def test_the_recursion_limit_goes_into_a_subgraph(self):
        """`graph 3`."""
        ran = []
        child = line("child", one=wrote("one"), two=lambda _s: ran.append(2)).compile()

        with line("parent", child=child).compile() as app:
            with pytest.raises(RecursionLimit) as caught:
                app.invoke({}, recursion_limit=1)
        with line("parent", child=child).compile(recursion_limit=1) as app:
            with pytest.raises(RecursionLimit):
                app.invoke({})

        assert caught.value.limit == 1
        assert ran == []

    def test_a_limit_of_its_own_holds_for_a_subgraph(self):
        child = line("child", **{f"n{i}": wrote(str(i)) for i in range(8)}).compile(
            recursion_limit=50
        )

        with line("parent", child=child).compile(recursion_limit=5) as app:
            assert len(app.invoke({}).state["log"]) == 8

    def test_a_timeout_of_the_node_cuts_what_runs_inside(self, store):
        from tests.runtime.kit import Gate

        gate = Gate({"log": ["late"]})
        child = line("child", first=wrote("first"), slow=gate).compile()
        app = line("parent", child=(child, {"timeout": 0.05})).compile(checkpointer=store)

        with app:
            with pytest.raises(NodeTimeout) as caught:
                app.invoke({}, thread_id="t")
            gate.open()
            outcome = app.invoke(None, thread_id="t")

        assert caught.value.node == "child"
        assert outcome.state["log"] == ["first", "late"]


class TestCommandsToTheParent:
    """`Command(graph=PARENT)`: `graph 41`, `langgraph 49`."""

    def app(self, inside, **options):
        child = Graph(Log, name="child").add_node("x", inside).add_edge(START, "x")
        child.add_node("never", wrote("never")).add_edge("x", "never")
        graph = Graph(Log, name="parent").add_node("child", child.compile())
        graph.add_node("next", wrote("next")).add_node("other", wrote("other"))
        graph.add_edge(START, "child").add_edge("child", "next").add_edge("next", END)
        return graph.add_edge("other", END).compile(allow_unreachable=True, **options)

    def test_its_update_and_goto_are_those_of_the_node(self):
        def inside(_state):
            return [{"log": ["own"]}, Command(graph=PARENT, update={"log": ["up"]}, goto="other")]

        with self.app(inside) as app:
            assert app.invoke({}).state["log"] == ["own", "up", "other"]

    def test_without_a_goto_the_edges_of_the_parent_are_taken(self):
        with self.app(lambda _s: Command(graph=PARENT, update={"n": 3})) as app:
            assert app.invoke({}).state == {"log": ["next"], "n": 3}

    def test_a_send_in_it_is_one_of_the_parent(self):
        command = Command(graph=PARENT, goto=Send("other", {"item": 1}))
        with self.app(lambda _s: command) as app:
            assert app.invoke({}).state["log"] == ["other"]

    def test_an_unknown_target_is_refused_with_the_nearest_name(self):
        with self.app(lambda _s: Command(graph=PARENT, goto="othr")) as app:
            with pytest.raises(UnknownTarget, match="Did you mean 'other'"):
                app.invoke({})

    def test_at_the_top_it_is_an_error(self):
        with line("p", x=lambda _s: Command(graph=PARENT, goto="x")).compile() as app:
            with pytest.raises(InvalidUpdate, match="does not run inside of another one"):
                app.invoke({})

    def test_it_reaches_the_graph_around_and_no_other(self):
        def deep(_state):
            return Command(graph=PARENT, update={"log": ["deep"]}, goto="after")

        middle = Graph(Log, name="middle").add_node("deep", line("d", x=deep).compile())
        middle.add_node("after", wrote("after")).add_node("not", wrote("not"))
        middle.add_edge(START, "deep").add_edge("deep", "not")
        app = line(
            "top", middle=middle.compile(allow_unreachable=True), after=wrote("top")
        ).compile()

        with app:
            assert app.invoke({}).state["log"] == ["deep", "after", "top"]


class Counts(TypedDict, total=False):
    log: Annotated[list, operator.add]


class TestPersistent:
    """`graph 48`, `langgraph 114`, `langgraph 117`, `langgraph 118`."""

    def child(self, name="child"):
        class Own(TypedDict, total=False):
            log: Annotated[list, operator.add]
            count: Annotated[int, operator.add]

        graph = Graph(Own, name=name).add_node("count", lambda _s: {"count": 1})
        graph.add_node("tell", lambda s: {"log": [f"{name} {s['count']}"]})
        return graph.add_edge(START, "count").add_edge("count", "tell").compile()

    def test_it_keeps_its_own_keys_over_runs_and_processes(self, place):
        def app():
            graph = Graph(Counts, name="parent").add_node("c", self.child(), persistent=True)
            return graph.add_edge(START, "c").compile(checkpointer=place.open())

        for count in (1, 2, 3):
            with app() as opened:
                log = opened.invoke({}, thread_id="t").state["log"]
            assert log[-1] == f"child {count}"
        assert app().get_state("t").values == {"log": ["child 1", "child 2", "child 3"]}

    def test_without_persistent_it_starts_anew(self, store):
        graph = Graph(Counts, name="parent").add_node("c", self.child()).add_edge(START, "c")
        with graph.compile(checkpointer=store) as app:
            for _run in range(2):
                log = app.invoke({}, thread_id="t").state["log"]
        assert log == ["child 1", "child 1"]

    def test_it_sees_what_it_kept_when_it_runs_again_in_one_run(self, store):
        graph = Graph(Counts, name="parent").add_node("c", self.child(), persistent=True)
        graph.add_edge(START, "c")
        graph.add_conditional_edges("c", lambda s: "c" if len(s["log"]) < 3 else END)
        with graph.compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["log"] == ["child 1", "child 2", "child 3"]

    def test_two_do_not_mix(self, store):
        graph = Graph(Counts, name="parent")
        for name in ("one", "two"):
            graph.add_node(name, self.child(name), persistent=True)
        graph.add_edge(START, "one").add_edge(START, "two")
        with graph.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            log = app.invoke({}, thread_id="t").state["log"]
        assert log == ["one 1", "two 1", "one 2", "two 2"]

    def test_one_inside_of_a_graph_that_is_not_persistent_keeps_too(self, store):
        middle = Graph(Counts, name="middle").add_node("c", self.child(), persistent=True)
        middle = middle.add_edge(START, "c").compile()
        graph = Graph(Counts, name="parent").add_node("m", middle).add_edge(START, "m")
        with graph.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            assert app.invoke({}, thread_id="t").state["log"] == ["child 1", "child 2"]

    def test_what_it_keeps_is_seen_by_no_node(self, store):
        seen = []
        graph = Graph(name="parent").add_node("c", self.child(), persistent=True)
        graph.add_node("look", lambda state: seen.append(sorted(state)))
        graph.add_edge(START, "c").add_edge("c", "look")
        with graph.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            outcome = app.invoke({}, thread_id="t", run_id="known")
            again = app.invoke({}, thread_id="t", run_id="known")
            app.invoke({}, thread_id="t")
            recorded = app.invoke({}, thread_id="t", run_id="known")
            histories = [sorted(state.values) for state in app.get_state_history("t")]
        assert seen[0] == ["count", "log"]
        assert again.state == outcome.state == recorded.state
        assert {key for keys in histories for key in keys} == {"count", "log"}

    def test_two_tasks_at_once_in_one_are_an_error(self, store):
        graph = Graph(Counts, name="parent").add_node("c", self.child(), persistent=True)
        graph.add_node("a", lambda _s: [Send("c"), Send("c")], destinations=["c"])
        graph.add_edge(START, "a")
        with (
            graph.compile(checkpointer=store) as app,
            pytest.raises(ConcurrentSubgraph, match="'c'"),
        ):
            app.invoke({}, thread_id="t")
