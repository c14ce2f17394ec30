"""`key=` of a persistent graph: several states, of which each task goes on with its own."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import pytest

from beamweaver import END, START, Graph, Send
from beamweaver.errors import (
    ConcurrentSubgraph,
    InvalidCall,
    InvalidGraph,
    InvalidUpdate,
    NodeFailed,
)
from beamweaver.graph.migrations import Migration
from beamweaver.types import Interrupted
from tests.runtime.kit import wrote


class Chat(TypedDict, total=False):
    user: str
    n: int
    log: Annotated[list, operator.add]


class Mind(TypedDict, total=False):
    user: str
    seen: Annotated[list, operator.add]
    n: int
    log: Annotated[list, operator.add]


def mind(ask=False):
    """A graph that remembers which numbers it was sent, and writes them."""

    def note(state, ctx):
        said = [ctx.interrupt(state["user"])] if ask else [state["n"]]
        return {"seen": said}

    def tell(state):
        return {"log": [f"{state['user']}: {' '.join(map(str, state['seen']))}"]}

    graph = Graph(Mind, name="mind").add_node("note", note).add_node("tell", tell)
    return graph.add_edge(START, "note").add_edge("note", "tell").compile()


def chat(child, key="user", **options):
    """Sends what `log` names, `"ann 1"` for example, to the graph."""

    def sends(state):
        found = [entry.split() for entry in state.get("log", ()) if ":" not in entry]
        return [Send("mind", {"user": user, "n": int(n)}) for user, n in found]

    graph = Graph(Chat, name="chat").add_node("mind", child, persistent=True, key=key)
    graph.add_conditional_edges(START, sends, ["mind"]).add_edge("mind", END)
    return graph.compile(**options)


def said(outcome):
    return [entry for entry in outcome.state["log"] if ":" in entry]


class TestApart:
    @pytest.mark.parametrize("key", ["user", lambda state: state["user"]])
    def test_tasks_at_once_go_on_with_a_state_each_over_runs(self, store, key):
        with chat(mind(), key, checkpointer=store) as app:
            assert said(app.invoke({"log": ["ann 1", "bob 2"]}, thread_id="t")) == [
                "ann: 1",
                "bob: 2",
            ]
            app.copy_thread("t", "u")
            app.delete_thread("t")
            last = said(app.invoke({"log": ["cy 5"]}, thread_id="u"))[2:]
        assert last == ["ann: 1 1", "bob: 2 2", "cy: 5"]

    def test_a_key_may_be_a_number_or_have_any_characters(self, place):
        class Ticket(TypedDict, total=False):
            number: int

        made = Graph(Ticket, name="made").add_node("add", lambda s: {"number": s.get("number", 0)})
        made = made.add_edge(START, "add").compile()
        keys = [7, "a:b|c%3A", "ä"]

        def app():
            graph = Graph(name="top").add_node(
                "made", made, persistent=True, key=lambda state: keys[state["number"]]
            )
            graph.add_conditional_edges(
                START, lambda _s: [Send("made", {"number": n}) for n in range(3)], ["made"]
            )
            graph.add_reducer("number", max)
            return graph.compile(checkpointer=place.open())

        with app() as opened:
            opened.invoke({"x": 1}, thread_id="t")
        with app() as opened:
            for number, key in enumerate(keys):
                state = opened.get_state("t", namespace=(f"made:{key}",))
                assert state.values == {"number": number}

    def test_what_waits_in_one_of_them_goes_on_in_another_process(self, place):
        def app():
            return chat(mind(ask=True), checkpointer=place.open())

        with app() as opened:
            outcome = opened.invoke({"log": ["ann 1", "bob 2"]}, thread_id="t")
            assert isinstance(outcome, Interrupted)
            assert [i.namespace for i in outcome.interrupts] == [("mind:ann",), ("mind:bob",)]
        with app() as opened:
            assert opened.get_state("t", namespace=("mind:bob",)).next == ("note",)
            answers = {i.id: f"by {i.value}" for i in outcome.interrupts}
            outcome = opened.resume(answers=answers, thread_id="t")
        assert said(outcome) == ["ann: by ann", "bob: by bob"]

    def test_graphs_in_it_keep_apart_too(self, store):
        inner = mind()
        graph = Graph(Mind, name="outer").add_node("inner", inner, persistent=True)
        with chat(graph.add_edge(START, "inner").compile(), checkpointer=store) as app:
            app.invoke({"log": ["ann 1", "bob 2"]}, thread_id="t")
            outcome = app.invoke({"log": ["ann 3"]}, thread_id="t", raises=False)
        assert isinstance(outcome.error, ConcurrentSubgraph)

    def test_a_migration_renames_the_node_and_they_stay(self, place):
        with chat(mind(), checkpointer=place.open()) as app:
            app.invoke({"log": ["ann 1"]}, thread_id="t")
        graph = Graph(Chat, name="chat", version=2)
        graph.add_node("brain", mind(), persistent=True, key="user").add_edge(START, "brain")
        migrations = {1: Migration(rename={"mind": "brain"})}
        with graph.compile(checkpointer=place.open(), migrations=migrations) as app:
            outcome = app.invoke({"user": "ann", "n": 2}, thread_id="t")
        assert said(outcome)[-1] == "ann: 1 2"


class TestRefused:
    def test_two_tasks_with_one_key_before_any_of_them_runs(self, store):
        with chat(mind(), checkpointer=store) as app:
            with pytest.raises(ConcurrentSubgraph, match="their key= is the same"):
                app.invoke({"log": ["ann 1", "ann 2"]}, thread_id="t")

    def test_without_a_key_the_cure_is_named(self, store):
        with chat(mind(), None, checkpointer=store) as app:
            with pytest.raises(ConcurrentSubgraph, match=r"give add_node\(…, key=…\)"):
                app.invoke({"log": ["ann 1", "bob 2"]}, thread_id="t")

    @pytest.mark.parametrize("found", [None, "", "x" * 257, True, 1.5, "\ud800"])
    def test_a_key_that_is_none(self, memory, found):
        with chat(mind(), lambda _state: found, checkpointer=memory) as app:
            with pytest.raises(
                InvalidUpdate, match="give a text of 1 to 256 characters, or an int"
            ):
                app.invoke({"log": ["ann 1"]}, thread_id="t")

    def test_what_its_function_raises_is_the_nodes_failure(self, memory):
        with chat(mind(), lambda state: state["nope"], checkpointer=memory) as app:
            with pytest.raises(NodeFailed) as caught:
                app.invoke({"log": ["ann 1", "bob 2"]}, thread_id="t")
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.node == "mind"

    def test_a_namespace_of_no_graph(self, memory):
        with chat(mind(), checkpointer=memory) as app:
            app.invoke({"log": ["ann 1"]}, thread_id="t")
            with pytest.raises(InvalidCall, match="no such node"):
                app.get_state("t", namespace=("mnd:ann",))
            assert app.get_state("t", namespace=("mind:zoe",)) is None

    @pytest.mark.parametrize(
        ("options", "cure"),
        [
            ({"key": "user"}, "give persistent=True too"),
            ({"persistent": True, "key": 7}, "give the name of a key of the state"),
            ({"persistent": True, "key": "usr"}, "Did you mean 'user'"),
        ],
    )
    def test_a_declaration_that_is_unfit(self, options, cure):
        graph = Graph(Chat, name="chat")
        with pytest.raises(InvalidGraph, match=cure):
            graph.add_node("mind", mind(), **options).add_edge(START, "mind").compile()

    def test_an_async_function(self):
        async def key(_state):
            return "k"

        with pytest.raises(InvalidGraph, match="which is async"):
            Graph(Chat, name="chat").add_node("mind", mind(), persistent=True, key=key)

    def test_a_function_as_a_node(self):
        with pytest.raises(InvalidGraph, match="for a compiled graph"):
            Graph(Chat, name="chat").add_node("x", wrote("x"), persistent=True, key="user")
