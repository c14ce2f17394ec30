"""Kinds of keys through the public API: topics, ephemeral, untracked and managed ones, and reducers."""

from __future__ import annotations

import dataclasses
import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver import END, START, Graph, Invoke, Overwrite, Resume, Runtime, Send, interrupt
from beamweaver.errors import InvalidUpdate, NodeFailed, RecursionLimit
from beamweaver.graph import (
    Ephemeral,
    IsLastStep,
    RemainingSteps,
    Topic,
    Untracked,
    add_messages,
    append,
    merge,
)
from tests.runtime.kit import Caller, Gate


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    found: Annotated[list[str], Topic]
    all_found: Annotated[list[str], Topic(accumulate=True)]
    hint: Annotated[str, Ephemeral]
    most: Annotated[int, max, Ephemeral]
    client: Annotated[object, Untracked]
    calls: Annotated[int, Untracked]
    left: Annotated[int, RemainingSteps]
    last: Annotated[bool, IsLastStep]


class Client:
    """A live object that no store keeps."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def line(*nodes, schema=State, **options):
    """The nodes a, b, c one after the other."""
    graph, before = Graph(schema, name="g", **options), START
    for name, node in zip("abcdef", nodes, strict=False):
        graph.add_node(name, node).add_edge(before, name)
        before = name
    return graph


def star(*nodes, schema=State):
    """The nodes a, b, c side by side."""
    graph = Graph(schema, name="g")
    for name, node in zip("abcdef", nodes, strict=False):
        graph.add_node(name, node).add_edge(START, name)
    return graph


def sees(key):
    """A node that logs what it sees of a key."""
    return lambda state: {"log": f"{key}={state.get(key)}"}


def writes(**update):
    return lambda state: update


def run(store, graph, given=None, **options):
    with graph.compile(checkpointer=store) as app:
        return app.invoke(given or {}, thread_id="t", **options).state


class TestTopic:
    """`graph 139`, `graph 33`: what a step writes, the next one sees; then it is empty."""

    def test_the_next_step_sees_it_and_then_it_is_empty(self, store):
        state = run(store, line(writes(found=["x", "y"]), sees("found"), sees("found")))
        assert state["log"] == ["found=['x', 'y']", "found=[]"]
        assert state["found"] == []

    def test_it_collects_in_task_order(self, store):
        """`graph 11`: two writers of a topic."""
        graph = star(writes(found="a"), writes(found=["b1", "b2"]))
        assert run(store, graph)["found"] == ["a", "b1", "b2"]

    def test_one_that_accumulates_keeps_what_earlier_steps_wrote(self, store):
        graph = line(writes(all_found="a"), writes(log="quiet"), writes(all_found=["b"]))
        assert run(store, graph)["all_found"] == ["a", "b"]

    def test_an_input_is_a_step_like_others(self, store):
        with line(sees("found")).compile(checkpointer=store) as app:
            assert app.invoke({"found": ["in"]}, thread_id="t").state["log"] == ["found=['in']"]
            assert app.invoke({}, thread_id="t").state["log"][-1] == "found=[]"

    def test_a_run_begins_without_what_the_last_one_left(self, store):
        with line(sees("found"), writes(found="z")).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["found"] == ["z"]
            assert app.get_state("t").values["found"] == ["z"]
            app.invoke({}, thread_id="t")
            assert app.get_state("t").values["log"] == ["found=[]", "found=[]"]

    def test_overwrite_drops_the_other_writes_of_the_step(self, store):
        graph = star(writes(found="a"), writes(found=Overwrite(["b"])), writes(found="c"))
        assert run(store, graph)["found"] == ["b"]

    def test_overwrite_replaces_what_has_accumulated(self, store):
        graph = line(writes(all_found="a"), writes(all_found=Overwrite(["b"])))
        assert run(store, graph)["all_found"] == ["b"]

    def test_an_item_of_a_wrong_type_is_refused(self, store):
        with pytest.raises(InvalidUpdate) as caught:
            run(store, line(writes(found=["x", 7])))
        assert str(caught.value) == (
            "node 'a' returned 7 (int) for the key 'found' at found[1]; expected str. "
            "Give a list of the declared type: list[str]"
        )

    def test_a_continued_task_sees_what_its_step_began_with(self, store):
        """The step is not over, so nothing of it is cleared."""
        failing = [True]

        def second(state):
            if failing:
                failing.clear()
                raise ValueError("once")
            return {"log": f"found={state['found']}"}

        graph = star(writes(found=["x"])).add_node("b", second).add_edge("a", "b")
        graph.add_node("c", writes(found=["y"])).add_edge("a", "c")
        graph.add_node("d", sees("found")).add_edge(["b", "c"], "d")
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
            state = app.invoke({"found": ["amended"]}, thread_id="t").state
        assert state["log"] == [
            "found=['x', 'y', 'amended']",
            "found=['y', 'amended']",
        ]


class TestEphemeral:
    """`graph 142`: for one step after the write; then the key is absent."""

    def test_the_next_step_sees_it_and_then_it_is_gone(self, store):
        state = run(store, line(writes(hint="go"), sees("hint"), sees("hint")))
        assert state["log"] == ["hint=go", "hint=None"]
        assert "hint" not in state

    def test_it_is_gone_in_the_store_too(self, place):
        with line(writes(hint="go"), sees("hint")).compile(checkpointer=place.open()) as app:
            app.invoke({}, thread_id="t")
            history = [state.values.get("hint") for state in app.get_state_history("t")]
        assert history == [None, "go", None]
        with line(sees("hint")).compile(checkpointer=place.open()) as app:
            assert "hint" not in app.get_state("t").values
            assert app.invoke({"log": []}, thread_id="t").state["log"] == ["hint=go", "hint=None"]

    def test_two_writers_in_one_step_are_refused(self, store):
        with pytest.raises(InvalidUpdate, match="'a' and 'b' wrote 'hint' in one step"):
            run(store, star(writes(hint="1"), writes(hint="2")))

    def test_with_a_reducer_it_takes_several_and_begins_anew(self, store):
        graph = star(writes(most=3), writes(most=9)).add_node("d", sees("most"))
        graph.add_node("e", sees("most")).add_edge(["a", "b"], "d").add_edge("d", "e")
        assert run(store, graph, {"most": 50})["log"] == ["most=9", "most=0"]

    def test_overwrite_writes_it(self, store):
        graph = star(writes(hint="1"), writes(hint=Overwrite("2")))
        assert run(store, graph)["hint"] == "2"

    def test_a_write_in_each_step_keeps_it(self, store):
        graph = line(writes(hint="1"), writes(hint="2"), sees("hint"))
        assert run(store, graph)["log"] == ["hint=2"]

    def test_in_a_class_it_is_back_at_its_default(self, store):
        @dataclasses.dataclass
        class Job:
            hint: Annotated[str, Ephemeral] = "none"
            log: Annotated[list[str], append] = dataclasses.field(default_factory=list)

        sees_it = lambda state: {"log": state.hint}
        state = run(store, line(sees_it, sees_it, schema=Job), {"hint": "go"})
        assert state == Job("none", ["go", "none"])

    def test_a_required_one_must_be_in_every_input(self, store):
        class Asked(TypedDict):
            hint: Annotated[str, Ephemeral]

        with line(sees("hint"), input_schema=Asked).compile(checkpointer=store) as app:
            app.invoke({"hint": "go"}, thread_id="t")
            with pytest.raises(InvalidUpdate, match="the input lacks 'hint', which Asked requires"):
                app.invoke({}, thread_id="t")


class TestUntracked:
    """`graph 143`, `graph 173`: never stored; back at its default after a recovery."""

    def test_it_holds_its_value_over_steps_and_runs(self, store):
        client, seen = Client(), []
        graph = line(lambda s: seen.append(s.get("client")), lambda s: seen.append(s["client"]))
        with graph.compile(checkpointer=store) as app:
            outcome = app.invoke({"client": client}, thread_id="t")
            app.invoke({"log": "again"}, thread_id="t")
            state = app.get_state("t")
        assert seen == [client] * 4
        assert outcome.state["client"] is client
        assert "client" not in state.values

    def test_a_node_may_write_it_beside_siblings(self, store):
        client, seen = Client(), []
        graph = star(writes(client=client), writes(log="b"))
        graph.add_node("d", lambda s: seen.append(s["client"])).add_edge(["a", "b"], "d")
        run(store, graph)
        assert seen == [client]

    def test_a_question_leaves_it_where_it_is(self, store):
        client, seen = Client(), []

        def ask(state):
            answer = interrupt("?")
            seen.append(state["client"])
            return {"log": answer}

        with line(ask).compile(checkpointer=store) as app:
            app.invoke({"client": client}, thread_id="t")
            app.resume("yes", thread_id="t")
        assert seen == [client]

    def test_after_a_restart_it_is_at_its_default(self, place):
        def graph():
            return line(writes(client=Client()), lambda s: {"log": interrupt(str("client" in s))})

        app = graph().compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            waiting = runtime.thread("t").ask(Invoke({}))
            assert waiting.interrupt.value == "True"
        app = graph().add_node("c", sees("client")).add_edge("b", "c").compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            state = runtime.thread("t").ask(Resume("yes")).state
        assert state["log"] == ["yes", "client=None"]

    def test_after_a_restart_a_class_has_its_default(self, place):
        @dataclasses.dataclass
        class Job:
            client: Annotated[Any, Untracked] = None
            log: Annotated[list[str], append] = dataclasses.field(default_factory=list)

        def app():
            return line(lambda s: {"log": str(s.client)}, schema=Job).compile()

        with Runtime(place.open(), graphs=[one := app()]) as runtime:
            client = Client()
            state = runtime.thread("t", one).ask(Invoke({"client": client})).state
            assert state == Job(client, [str(client)])
        with Runtime(place.open(), graphs=[one := app()]) as runtime:
            state = runtime.thread("t", one).ask(Invoke({"log": "in"})).state
            assert state.log[1:] == ["in", "None"]

    def test_one_with_a_reducer_begins_at_its_empty_value_again(self, place):
        class Counting(TypedDict, total=False):
            log: Annotated[list[str], append]
            calls: Annotated[int, operator.add, Untracked]

        def app(store):
            return line(writes(calls=1), sees("calls"), schema=Counting).compile(checkpointer=store)

        with app(place.open()) as one:
            one.invoke({}, thread_id="t")
            assert one.invoke({}, thread_id="t").state["log"] == ["calls=1", "calls=2"]
        with app(place.open()) as one:
            assert one.invoke({}, thread_id="t").state["log"][-1] == "calls=1"

    def test_equal_inputs_are_the_same_call_whatever_their_clients(self, place):
        gate = Gate({"log": "done"})
        app = line(gate).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({"log": "in", "client": Client()}))
            gate.wait()
        gate.open()
        with Runtime(place.open(), graphs=[app], recover="none") as runtime:
            outcome = runtime.thread("t").ask(Invoke({"log": "in", "client": Client()}))
        assert outcome.state["log"] == ["in", "done"]

    @pytest.mark.parametrize("run_id", [None, "R"])
    def test_the_same_call_again_brings_back_what_was_lost(self, place, run_id):
        gate, client = Gate({"log": "done"}), Client()
        app = line(gate).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            given = Invoke({"log": "in", "client": Client()}, run_id=run_id)
            runtime.thread("t").tell(given)
            gate.wait()
        seen = []
        app = line(lambda state: seen.append(state["client"])).compile()
        with Runtime(place.open(), graphs=[app], recover="none") as runtime:
            given = Invoke({"log": "in", "client": client}, run_id=run_id)
            assert runtime.thread("t").ask(given).state["client"] is client
        assert seen == [client]

    def test_a_question_may_be_answered_with_it_at_hand(self, place):
        def app(seen):
            def ask(state):
                answer = interrupt("?")
                seen.append(state["client"])
                return {"log": answer}

            return line(ask).compile()

        with Runtime(place.open(), graphs=[app([])]) as runtime:
            runtime.thread("t").ask(Invoke({"client": Client()}))
        seen, client = [], Client()
        with Runtime(place.open(), graphs=[app(seen)]) as runtime:
            runtime.thread("t").ask(Invoke({"client": client}))
            runtime.thread("t").ask(Resume("yes"))
        assert seen == [client]

    def test_who_joins_a_run_changes_nothing_of_it(self, store):
        gate, first, seen = Gate(), Client(), []
        app = line(gate, lambda state: seen.append((state["client"], state["calls"])))
        app.add_reducer("calls", operator.add)
        with Runtime(store, graphs=[app := app.compile()]) as runtime:
            given = {"client": first, "calls": 1}
            one = Caller(runtime.thread("t").ask, Invoke(given, run_id="R"))
            gate.wait()
            given = {"client": Client(), "calls": 1}
            two = Caller(runtime.thread("t").ask, Invoke(given, run_id="R"))
            gate.open()
            one.join()
            two.join()
        assert seen == [(first, 1)]

    def test_a_send_may_bring_it(self, store):
        client, seen = Client(), []
        graph = Graph(State, name="g").add_node("w", lambda s: seen.append(s["client"]))
        graph.add_conditional_edges(START, lambda s: Send("w", {"client": client}))
        run(store, graph)
        assert seen == [client]

    def test_its_type_is_checked_all_the_same(self, store):
        class Typed(TypedDict, total=False):
            client: Annotated[Client, Untracked]

        with pytest.raises(InvalidUpdate, match=r"returned 7 \(int\) for the key 'client'"):
            run(store, line(writes(client=7), schema=Typed))


class TestManaged:
    """`graph 132`, `graph 133`: computed for each step, read only."""

    def test_nodes_see_how_many_steps_remain(self, store):
        graph = line(sees("left"), sees("left"), sees("last"))
        assert run(store, graph, recursion_limit=3)["log"] == ["left=3", "left=2", "last=True"]

    def test_a_node_may_stop_before_the_limit(self, store):
        graph = line(lambda s: {"log": f"{s['left']}"})
        graph.add_conditional_edges("a", lambda s: END if s["left"] <= 2 else "a")
        assert run(store, graph, recursion_limit=5)["log"] == ["5", "4", "3", "2"]

    def test_a_continuation_counts_anew(self, store):
        graph = line(lambda s: {"log": f"{s['left']}"}).add_edge("a", "a")
        with graph.compile(checkpointer=store, recursion_limit=2) as app:
            for _ in range(2):
                with pytest.raises(RecursionLimit):
                    app.invoke(None if app.get_state("t") else {}, thread_id="t")
            assert app.get_state("t").values["log"] == ["2", "1", "2", "1"]

    def test_a_recovery_counts_on(self, place):
        gate = Gate()
        app = line(sees("left"), gate).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({}, recursion_limit=7))
            gate.wait()
        app = line(sees("left"), sees("left")).compile()
        with Runtime(place.open(), graphs=[app], recover="none") as runtime:
            state = runtime.thread("t").ask(Invoke(None)).state
        assert state["log"] == ["left=7", "left=6"]

    def test_outcomes_and_states_lack_them(self, store):
        with line(writes(log="a")).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state.keys() == {
                "log",
                "found",
                "all_found",
                "most",
            }
            assert "left" not in app.get_state("t").values

    def test_async_nodes_see_them(self, store):
        async def node(state):
            return {"log": f"{state['left']}"}

        assert run(store, line(node), recursion_limit=4)["log"] == ["4"]

    @pytest.mark.parametrize("value", [3, Overwrite(3)], ids=["plain", "overwrite"])
    def test_a_write_is_refused(self, store, value):
        with pytest.raises(
            InvalidUpdate, match=r"the key 'left', which is read only.*RemainingSteps"
        ):
            run(store, line(writes(left=value)))

    def test_an_input_of_it_is_refused(self, store):
        with pytest.raises(InvalidUpdate, match="the input has True .*'last', which is read only"):
            run(store, line(writes(log="a")), {"last": True})


class Reduced(TypedDict, total=False):
    items: Annotated[list[str], append]
    known: Annotated[dict[str, int], merge]
    messages: Annotated[list[dict[str, Any]], add_messages]
    total: Annotated[int, operator.add]
    text: Annotated[str, operator.add]
    tags: Annotated[set[str], operator.or_]
    longest: Annotated[tuple[int, ...], lambda a, b: max(a, b, key=len)]


class TestReducers:
    EMPTY = {  # noqa: RUF012 - compared, never changed
        "items": [],
        "known": {},
        "messages": [],
        "total": 0,
        "text": "",
        "tags": set(),
        "longest": (),
    }

    def test_each_begins_at_the_empty_value_of_its_type(self, store):
        seen = []
        graph = line(lambda state: seen.append(dict(state)), schema=Reduced)
        assert run(store, graph) == self.EMPTY
        assert seen == [self.EMPTY]

    def test_each_takes_parallel_writes_in_task_order(self, store):
        a = writes(
            items="a", known={"k": 1}, messages={"id": "1", "t": "a"}, total=1, text="a", tags={"a"}
        )
        b = writes(
            items=["b"],
            known={"k": 2},
            messages=[{"id": "1", "t": "b"}, {"id": "2", "t": "b"}],
            total=2,
            text="b",
            tags={"b"},
            longest=(1, 2),
        )
        assert run(store, star(a, b, schema=Reduced)) == {
            "items": ["a", "b"],
            "known": {"k": 2},
            "messages": [{"id": "1", "t": "b"}, {"id": "2", "t": "b"}],
            "total": 3,
            "text": "ab",
            "tags": {"a", "b"},
            "longest": (1, 2),
        }

    @pytest.mark.parametrize("key", ["items", "known", "messages", "total", "text", "tags"])
    def test_overwrite_of_the_empty_value_is_kept(self, place, key):
        """`graph 149`: an Overwrite with something false, also in what is read back."""
        empty = self.EMPTY[key]
        given = {
            "items": ["x"],
            "known": {"x": 1},
            "messages": [{"id": "x"}],
            "total": 9,
            "text": "x",
            "tags": {"x"},
        }
        graph = line(writes(**{key: Overwrite(empty)}), schema=Reduced)
        assert run(place.open(), graph, given)[key] == empty
        with graph.compile(checkpointer=place.open()) as app:
            assert app.get_state("t").values[key] == empty

    def test_overwrite_of_none_is_kept(self, place):
        class Maybe(TypedDict, total=False):
            x: int | None

        graph = line(writes(x=Overwrite(None)), schema=Maybe)
        assert run(place.open(), graph, {"x": 3}) == {"x": None}
        with graph.compile(checkpointer=place.open()) as app:
            assert app.get_state("t").values == {"x": None}
