"""State is shared by reference: what nodes, routers and callers change in place harms nobody, or is found."""

from __future__ import annotations

import dataclasses
import threading
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver import END, START, Graph, Invoke, Resume, RetryPolicy, Runtime, Send, interrupt
from beamweaver.errors import InvalidCall, NodeFailed, StateMutated
from beamweaver.graph import Untracked, append
from tests.runtime.kit import Caller, Gate


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[Any], append]
    deep: dict[str, list[int]]
    client: Annotated[object, Untracked]


@dataclasses.dataclass
class Data:
    n: int = 0
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list)
    deep: dict[str, list[int]] = dataclasses.field(default_factory=dict)


def graph(node, schema=State, **options):
    return Graph(schema, name="g").add_node("a", node, **options).add_edge(START, "a")


def fails(store, builder, given=None, **options):
    with builder.compile(checkpointer=store, **options) as app:
        with pytest.raises(StateMutated) as caught:
            app.invoke({"n": 1, "deep": {"x": [1]}} if given is None else given, thread_id="t")
        state = app.get_state("t")
    assert state.status == "failed"
    return caught.value, state


def set_key(state):
    state["n"] = 2


def set_attribute(state):
    state.n = 2


def go_deep(state):
    state["deep"]["x"].append(2)


def go_deep_in_an_instance(state):
    state.deep["x"].append(2)


class TestTheTopLevel:
    """`mutation`: semantics 16, the shallow copy compared by identity."""

    def test_a_key_that_a_node_sets_is_named(self, store):
        error, state = fails(store, graph(set_key))
        assert str(error) == (
            "node 'a' changed the key 'n' of the state that it was given, in place. State is shared, so that "
            'change is lost or seen by others: return an update, such as {"n": ...}'
        )
        assert (error.node, error.keys, error.code) == ("a", ("n",), "state_mutated")
        assert state.values["n"] == 1

    @pytest.mark.parametrize("schema", [None, State], ids=["open", "typed"])
    @pytest.mark.parametrize(
        "change",
        [
            lambda state: state.update(n=2),
            lambda state: state.pop("n") and None,
            lambda state: state.update(new=2),
            lambda state: state.clear(),
        ],
        ids=["set", "deleted", "added", "cleared"],
    )
    def test_every_way_is_found(self, store, schema, change):
        fails(store, graph(change, schema=schema))

    def test_an_attribute_that_a_node_sets_is_named(self, store):
        error, _state = fails(store, graph(set_attribute, schema=Data))
        assert error.keys == ("n",)

    def test_what_a_node_with_a_schema_of_its_own_sets_is_named(self, store):
        class Own(TypedDict):
            n: int

        error, _state = fails(store, graph(set_key, input_schema=Own))
        assert error.keys == ("n",)

    def test_an_async_node_is_found_too(self, store):
        async def node(state):
            set_key(state)

        fails(store, graph(node))

    def test_a_router_is_found_too(self, store):
        def route(state):
            set_key(state)
            return END

        builder = graph(lambda state: None).add_conditional_edges("a", route)
        error, _state = fails(store, builder)
        assert str(error) == (
            "router 'route' after 'a' changed the key 'n' of the state that it was given, in place. State is "
            "shared, so that change is lost or seen by others: let a node do it"
        )

    def test_what_a_send_laid_over_the_state_is_no_change(self, store):
        builder = graph(lambda state: None)
        builder.add_conditional_edges("a", lambda state: Send("w", {"n": 7}))
        builder.add_node("w", lambda state: {"log": state["n"]})
        with builder.compile(checkpointer=store, strict=True) as app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == [7]

    def test_it_is_not_tried_again(self, store):
        runs = []

        def node(state):
            runs.append(1)
            set_key(state)

        fails(store, graph(node, retries=3))
        assert runs == [1]

    def test_a_mended_node_goes_on(self, place):
        fails(place.open(), graph(set_key))
        with graph(lambda s: {"n": s["n"] + 1}).compile(checkpointer=place.open()) as app:
            assert app.invoke(None, thread_id="t").state["n"] == 2


class TestStrict:
    """Semantics 16: nested changes are found by strict=True, of a graph or of a runtime."""

    @pytest.mark.parametrize(
        ("node", "schema"),
        [(go_deep, State), (go_deep_in_an_instance, Data)],
        ids=["dict", "class"],
    )
    def test_a_change_inside_of_a_value_is_named_and_lost(self, store, node, schema):
        error, state = fails(store, graph(node, schema=schema), strict=True)
        assert str(error) == (
            "node 'a' changed state['deep']['x'] of the state that it was given, in place. State is shared, "
            'so that change is lost or seen by others: return a new value, such as {"log": [*state["log"], '
            "item]}, or use a reducer"
        )
        values = state.values if schema is State else dataclasses.asdict(state.values)
        assert values["deep"] == {"x": [1]}

    def test_without_it_nobody_looks(self, store):
        with graph(go_deep).compile(checkpointer=store) as app:
            app.invoke({"deep": {"x": [1]}}, thread_id="t")
            assert app.get_state("t").values["deep"] == {"x": [1]}

    def test_only_the_one_who_did_it_is_blamed(self, store):
        gate = Gate()

        def waits(state):
            gate(state)
            return {"log": len(state["deep"]["x"])}

        builder = graph(go_deep).add_node("b", waits).add_edge(START, "b")
        app = builder.compile(strict=True)
        with Runtime(store, graphs=[app]) as runtime:
            call = Caller(runtime.thread("t").ask, Invoke({"deep": {"x": [1]}}))
            gate.wait()
            gate.open()
            with pytest.raises(StateMutated) as caught:
                call.join()
            assert [failure.node for failure in caught.value.failures] == ["a"]
            assert runtime.get_state("t").values["log"] == [1]

    def test_a_router_is_watched_too(self, store):
        def route(state):
            go_deep(state)
            return END

        error, _state = fails(
            store, graph(lambda s: None).add_conditional_edges("a", route), strict=True
        )
        assert error.keys == ("['deep']['x']",)

    def test_live_objects_are_left_alone(self, store):
        client = {"lock": threading.Lock(), "calls": []}
        builder = graph(lambda state: state["client"]["calls"].append(1))
        with builder.compile(checkpointer=store, strict=True) as app:
            app.invoke({"client": client}, thread_id="t")
        assert client["calls"] == [1]

    def test_a_runtime_is_strict_with_graphs_that_do_not_say(self, store):
        apps = [
            Graph(State, name=name)
            .add_node("a", go_deep)
            .add_edge(START, "a")
            .compile(strict=strict)
            for name, strict in (("silent", None), ("lax", False))
        ]
        with Runtime(store, graphs=apps, strict=True) as runtime:
            with pytest.raises(StateMutated):
                runtime.thread("t", apps[0]).ask(Invoke({"deep": {"x": []}}))
            runtime.thread("u", apps[1]).ask(Invoke({"deep": {"x": []}}))

    def test_a_runtime_that_takes_over_a_private_one_is_strict(self, store):
        with graph(go_deep).compile(checkpointer=store) as app:
            app.invoke({"deep": {"x": []}}, thread_id="t")
            with Runtime(store, graphs=[app], strict=True), pytest.raises(StateMutated):
                app.invoke({"deep": {"x": []}}, thread_id="u")

    def test_strict_is_true_or_false(self, memory):
        with pytest.raises(InvalidCall, match="strict is 1; give True or False"):
            Runtime(memory, strict=1)


class Spoiled(Exception):
    pass


def spoils(times, *, how):
    """A node that changes a shared value, and ends so without a result the first times."""
    left = [times]

    def node(state):
        before = list(state["deep"]["x"])
        state["deep"]["x"].append(9)
        if left[0]:
            left[0] -= 1
            how()
        return {"log": before}

    return node


def raises():
    raise Spoiled


class TestWhatFailedAttemptsLeave:
    """Semantics 6: a retry has the view that its attempt had before; so has a continuation."""

    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
    def test_a_retry_sees_what_the_first_attempt_saw(self, store, is_async):
        node = spoils(2, how=raises)

        async def asynchronous(state):
            return node(state)

        policy = RetryPolicy(max_attempts=3, initial_delay=0, retry_on=Spoiled)
        builder = graph(asynchronous if is_async else node, retry=policy)
        with builder.compile(checkpointer=store) as app:
            outcome = app.invoke({"deep": {"x": [1]}}, thread_id="t")
        assert outcome.state["log"] == [1]

    def test_a_retry_sees_it_after_a_timeout(self, store):
        def hang():
            while True:
                pass

        policy = RetryPolicy(max_attempts=2, initial_delay=0)
        builder = graph(spoils(1, how=hang), retry=policy, timeout=0.05)
        with builder.compile(checkpointer=store) as app:
            outcome = app.invoke({"deep": {"x": [1]}}, thread_id="t")
        assert outcome.state["log"] == [1]

    def test_a_continuation_sees_it(self, store):
        with graph(spoils(1, how=raises)).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"deep": {"x": [1]}}, thread_id="t")
            assert app.invoke(None, thread_id="t").state["log"] == [1]

    def test_an_answered_node_sees_it(self, store):
        builder = graph(spoils(9, how=lambda: interrupt("?")))
        app = builder.compile()
        with Runtime(store, graphs=[app]) as runtime:
            waiting = runtime.thread("t").ask(Invoke({"deep": {"x": [1]}}))
            assert waiting.state["deep"] == {"x": [1]}
            assert runtime.thread("t").ask(Resume("yes")).state["log"] == [1]

    def test_live_objects_outlast_it(self, store):
        client, seen = object(), []

        def node(state):
            seen.append(state["client"])
            if len(seen) == 1:
                raise Spoiled

        policy = RetryPolicy(max_attempts=2, initial_delay=0, retry_on=Spoiled)
        with graph(node, retry=policy).compile(checkpointer=store) as app:
            app.invoke({"client": client}, thread_id="t")
        assert seen == [client, client]


def spoil(state: Any) -> None:
    """Change everything in an outcome."""
    values = state if isinstance(state, dict) else state.__dict__
    values["deep"]["x"].append(666)
    values["log"].append("spoiled")
    values["n"] = 666


@pytest.mark.parametrize("schema", [State, Data], ids=["dict", "class"])
class TestCallersAndThreads:
    """`peers`: what a caller does with an outcome or an input is his own affair."""

    def start(self, store, schema, node=lambda state: {"log": "a"}):
        return graph(node, schema=schema).compile(checkpointer=store)

    def test_an_outcome_is_the_callers_own(self, store, schema):
        with self.start(store, schema) as app:
            spoil(app.invoke({"n": 1, "deep": {"x": [1]}}, thread_id="t").state)
            outcome = app.invoke({"n": 2}, thread_id="t")
            state = app.get_state("t").values
        assert outcome.state == state
        values = state if schema is State else dataclasses.asdict(state)
        assert values == {"n": 2, "deep": {"x": [1]}, "log": ["a", "a"]}

    def test_the_outcome_of_a_failed_run_is_the_callers_own(self, store, schema):
        failing = [True]

        def node(state):
            if failing:
                failing.clear()
                raise Spoiled
            return {"log": "a"}

        with self.start(store, schema, node) as app:
            spoil(app.invoke({"n": 1, "deep": {"x": [1]}}, thread_id="t", raises=False).state)
            state = app.invoke(None, thread_id="t").state
        values = state if schema is State else dataclasses.asdict(state)
        assert values == {"n": 1, "deep": {"x": [1]}, "log": ["a"]}

    def test_an_input_stays_the_callers_own(self, store, schema):
        given = {"n": 1, "deep": {"x": [1]}, "log": ["in"]}
        with self.start(store, schema) as app:
            app.invoke(given, thread_id="t")
            spoil(given)
            state = app.invoke({"n": 2}, thread_id="t").state
        values = state if schema is State else dataclasses.asdict(state)
        assert values == {"n": 2, "deep": {"x": [1]}, "log": ["in", "a", "a"]}

    def test_a_question_and_its_answer_stay_their_owners(self, store, schema):
        seen = []

        def node(state):
            first = interrupt({"options": [1]})
            seen.append(first)
            return {"log": str([first, interrupt("second")])}

        with self.start(store, schema, node) as app:
            waiting = app.invoke({"n": 1, "deep": {"x": [1]}}, thread_id="t")
            waiting.interrupt.value["options"].append(666)
            assert app.get_state("t").interrupts[0].value == {"options": [1]}
            answer = {"chosen": [1]}
            app.resume(answers={waiting.interrupt.id: answer}, thread_id="t")
            answer["chosen"].append(666)
            app.resume("done", thread_id="t")
        assert seen[-1] == {"chosen": [1]}


def test_values_of_registered_classes_are_copied_too(store):
    @dataclasses.dataclass
    class Page:
        links: list[str]

    class Pages(TypedDict, total=False):
        pages: list[Page]

    with graph(lambda s: {"pages": [Page(["a"])]}, schema=Pages).compile(checkpointer=store) as app:
        first = app.invoke({}, thread_id="t").state
        first["pages"][0].links.append("spoiled")
        assert app.invoke(None, thread_id="t").state == {"pages": [Page(["a"])]}


def test_a_state_that_a_node_spoiled_in_place_is_still_shown(store):
    """A cycle, and what no store takes, put inside of a value: not watched, so nobody is told."""

    def node(state):
        state["deep"]["x"].append(state["deep"])
        state["deep"]["y"] = threading.Lock()

    with graph(node).compile(checkpointer=store) as app:
        assert app.invoke({"deep": {"x": [1]}}, thread_id="t").state["deep"]["x"][0] == 1
        assert app.get_state("t").values["deep"] == {"x": [1]}
