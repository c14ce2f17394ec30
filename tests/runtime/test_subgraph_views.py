"""How graphs inside of tasks are shown: open steps, questions, kept values, and their history."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import START, Graph, Runtime
from beamweaver.errors import InvalidCall, NodeFailed
from tests.runtime.kit import Log, line, star, wrote


def asks(_state, ctx):
    return {"log": [f"asked {ctx.interrupt('why?')}"]}


def waiting(store):
    """An app whose thread `t` waits two graphs deep."""
    grand = line("grand", c=wrote("c"), asks=asks).compile()
    child = line("child", b=wrote("b"), grand=grand).compile()
    app = line("top", a=wrote("a"), child=child, z=wrote("z")).compile(checkpointer=store)
    app.invoke({"n": 1}, thread_id="t")
    return app


class TestOpenSteps:
    """`langgraph 83`, `langgraph 111`."""

    def test_each_task_shows_the_graph_in_it_at_every_depth(self, store):
        with waiting(store) as app:
            state = app.get_state("t", subgraphs=True)

        (task,) = state.tasks
        (inner,) = task.subgraph.tasks
        (deepest,) = inner.subgraph.tasks
        assert (state.next, task.subgraph.next, inner.subgraph.next) == (
            ("child",),
            ("grand",),
            ("asks",),
        )
        assert [t.namespace for t in (task, inner, deepest)] == [
            (),
            ("child",),
            ("child", "grand"),
        ]
        assert [t.state for t in (task, inner, deepest)] == ["waiting"] * 3
        assert inner.subgraph.values == {"n": 1, "log": ["a", "b", "c"]}
        assert task.subgraph.values == {"n": 1, "log": ["a", "b"]}
        assert state.values == {"n": 1, "log": ["a"]}
        assert state.interrupts == task.subgraph.interrupts == inner.subgraph.interrupts
        assert state.interrupts[0].namespace == ("child", "grand")

    def test_without_asking_only_the_thread_is_shown(self, store):
        with waiting(store) as app:
            state = app.get_state("t")

        assert state.tasks[0].subgraph is None

    def test_a_namespace_is_that_graphs_own_state(self, store):
        with waiting(store) as app:
            state = app.get_state("t", namespace=("child", "grand"))

        assert state.values["log"] == ["a", "b", "c"]
        assert state.next == ("asks",)
        assert state.metadata["graph"] == "grand"
        assert state.metadata["namespace"] == ("child", "grand")

    def test_what_failed_inside_is_shown_where_it_failed(self, store):
        def fails(_state):
            raise ValueError("boom")

        child = star("child", ok=wrote("ok"), fails=fails).compile()
        with line("top", child=child).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
            state = app.get_state("t", subgraphs=True)

        (task,) = state.tasks
        assert task.state == "failed"
        assert [(t.node, t.state) for t in task.subgraph.tasks] == [
            ("ok", "finished"),
            ("fails", "failed"),
        ]
        assert [write[1:] for write in task.subgraph.pending_writes] == [("log", ["ok"])]

    def test_a_graph_that_has_not_begun_there_is_none(self, store):
        with waiting(store) as app:
            app.resume("because", thread_id="t")
            assert app.get_state("t", namespace=("child",)) is None

    @pytest.mark.parametrize("namespace", [("chil",), ("a",), ("child", "b"), "child"])
    def test_a_namespace_that_is_none_is_refused(self, store, namespace):
        with waiting(store) as app, pytest.raises(InvalidCall, match="namespace"):
            app.get_state("t", namespace=namespace)

    def test_a_runtime_shows_them_too(self, store):
        app = waiting(store)
        app.close()
        with Runtime(store, graphs=[app]) as runtime:
            assert runtime.get_state("t", subgraphs=True).tasks[0].subgraph.next == ("grand",)
            assert runtime.get_state("t", namespace=("child",)).next == ("grand",)


class TestHistory:
    """A graph's own steps, while the step around is open."""

    def test_its_steps_are_given_newest_first(self, store):
        with waiting(store) as app:
            steps = list(app.get_state_history("t", namespace=("child", "grand")))
            newest = list(app.get_state_history("t", namespace=("child", "grand"), limit=1))

        assert [state.next for state in steps] == [("asks",), ("c",)]
        assert [state.values["log"] for state in steps] == [["a", "b", "c"], ["a", "b"]]
        assert newest == steps[:1]

    def test_ids_and_notes_are_for_threads(self, store):
        with waiting(store) as app, pytest.raises(InvalidCall, match="leave before= and filter="):
            app.get_state_history("t", namespace=("child",), filter={"source": "loop"})


class Own(TypedDict, total=False):
    log: Annotated[list, operator.add]
    count: Annotated[int, operator.add]


def counting():
    graph = Graph(Own, name="counting").add_node("count", lambda _s: {"count": 1})
    graph.add_node("tell", lambda s: {"log": [str(s["count"])]})
    return graph.add_edge(START, "count").add_edge("count", "tell").compile()


class TestPersistent:
    def app(self, store):
        graph = Graph(Log, name="parent").add_node("c", counting(), persistent=True)
        return graph.add_edge(START, "c").compile(checkpointer=store)

    def test_what_it_keeps_is_shown_between_runs(self, store):
        with self.app(store) as app:
            app.invoke({}, thread_id="t")
            app.invoke({}, thread_id="t")
            kept = app.get_state("t", namespace=("c",))

        assert kept.values["count"] == 2
        assert kept.next == ()
        assert kept.metadata["source"] == "kept"

    def test_each_checkpoint_has_what_it_kept_then(self, store):
        """`langgraph 110`: an older checkpoint has the state of the child as it was."""
        with self.app(store) as app:
            app.invoke({}, thread_id="t")
            first = app.get_state("t").config["configurable"]["checkpoint_id"]
            app.invoke({}, thread_id="t")
            then = app.get_state("t", first, namespace=("c",))

        assert then.values["count"] == 1
