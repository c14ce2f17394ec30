"""`context=`: what callers give to nodes beside the state; it is judged at once and never stored."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any, TypedDict

import pytest

from beamweaver import START, Continue, Graph, Interrupted, Invoke, Resume, Runtime, interrupt
from beamweaver.errors import InvalidCall, NodeFailed
from supervisors import KILLED
from supervisors.testing import eventually
from tests.runtime.kit import PATIENCE, Boom, Caller, Gate


@dataclasses.dataclass
class User:
    name: str
    client: Any = None


@dataclasses.dataclass
class Settings:
    model: str = "small"


class Keys(TypedDict):
    api_key: str


def greet(state, ctx):
    return {"greeting": f"hello {ctx.context.name}"}


def graph(node=greet, schema: Any = User, **options: Any) -> Graph:
    return (
        Graph(name="g", context_schema=schema).add_node("a", node, **options).add_edge(START, "a")
    )


def test_nodes_find_what_the_caller_gave(store):
    with graph().compile(checkpointer=store) as app:
        assert app.invoke({}, thread_id="t", context=User("ann")).state["greeting"] == "hello ann"


def test_it_is_the_object_itself_and_need_not_be_storable(store):
    lock, seen = threading.Lock(), []
    node = lambda state, ctx: seen.append(ctx.context.client)
    with graph(node).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t", context=User("ann", lock))
    assert seen == [lock]


def test_without_a_store_too():
    with graph().compile() as app:
        assert app.invoke({}, context=User("ann")).state["greeting"] == "hello ann"


def test_awaitable_calls_take_it_too():
    async def node(state, ctx):
        return greet(state, ctx)

    async def main():
        with graph(node).compile() as app:
            return await app.ainvoke({}, context=User("ann"))

    assert asyncio.run(main()).state["greeting"] == "hello ann"


def test_routers_see_it(store):
    seen = []
    built = graph()
    built.add_conditional_edges("a", lambda s, ctx: seen.append(ctx.context.name) or [], ["a"])
    with built.compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t", context=User("ann"))
    assert seen == ["ann"]


def test_a_dict_becomes_the_class(store):
    with graph().compile(checkpointer=store) as app:
        state = app.invoke({}, thread_id="t", context={"name": "ann"}).state
    assert state["greeting"] == "hello ann"


def test_what_has_defaults_need_not_be_given(store):
    node = lambda state, ctx: {"model": ctx.context.model}
    with graph(node, Settings).compile(checkpointer=store) as app:
        assert app.invoke({}, thread_id="t").state["model"] == "small"
        assert app.invoke({}, thread_id="t", context=Settings("large")).state["model"] == "large"
        assert app.invoke({}, thread_id="t").state["model"] == "small", "a new run has its own"


def test_without_a_schema_it_is_anything(store):
    node = lambda state, ctx: {"seen": repr(ctx.context)}
    with graph(node, None).compile(checkpointer=store) as app:
        assert app.invoke({}, thread_id="t", context=7).state["seen"] == "7"
        assert app.invoke({}, thread_id="t").state["seen"] == "None"


@pytest.mark.parametrize(
    ("schema", "context", "match"),
    [
        (User, 7, "is 7; give a User"),
        (User, {"nam": "ann"}, "no User can be made"),
        (User, None, "give a User"),
        (Keys, {"api_key": 7}, "give a Keys"),
        (Keys, {}, "give a Keys"),
        (int, "7", "give a int"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(memory, schema, context, match):
    with graph(lambda state: {}, schema).compile(checkpointer=memory) as app:
        with pytest.raises(InvalidCall, match=match):
            app.invoke({}, thread_id="t", context=context)
        assert app.get_state("t") is None


def test_an_input_without_one_is_refused_at_once(memory):
    with graph().compile(checkpointer=memory) as app:
        with pytest.raises(InvalidCall, match="declares context_schema=User"):
            app.invoke({}, thread_id="t")
        assert app.get_state("t") is None


def test_an_answer_keeps_the_callers_and_may_bring_another(store):
    def node(state, ctx):
        first = interrupt("1")
        second = interrupt("2")
        return {"seen": [ctx.context.name, first, second]}

    with graph(node).compile(checkpointer=store) as app:
        app.invoke({}, thread_id="t", context=User("ann"))
        assert isinstance(app.resume("x", thread_id="t"), Interrupted)
        state = app.resume("y", thread_id="t", context=User("bob")).state
    assert state["seen"] == ["bob", "x", "y"]


def test_a_queued_run_has_its_own(store):
    gate, seen = Gate(), []

    def node(state, ctx):
        gate(state)
        seen.append(ctx.context.name)

    app = graph(node).compile()
    with Runtime(store, graphs=[app]) as runtime:
        thread = runtime.thread("t")
        calling = Caller(thread.ask, Invoke({}, context=User("ann")))
        gate.wait()
        thread.tell(Invoke({"n": 1}, context=User("bob")))
        thread.tell(Invoke({"n": 2}, context=User("cid")))
        gate.open()
        calling.join()
        eventually(lambda: len(seen) == 3, timeout=PATIENCE)
    assert seen == ["ann", "bob", "cid"]


def test_a_killed_actor_loses_none(store):
    gate, seen = Gate(), []

    def node(state, ctx):
        gate(state)
        seen.append(ctx.context.name)

    app = graph(node).compile()
    with Runtime(store, graphs=[app]) as runtime:
        runtime.thread("t").tell(Invoke({}, context=User("ann")))
        gate.wait()
        hub = runtime._core.hub
        hub.system.exit(hub.actors["t"], KILLED)
        gate.open()
        eventually(lambda: seen, timeout=PATIENCE)
    assert set(seen) == {"ann"}


class TestNextProcess:
    """A run that another process left has no caller here."""

    def leave(self, place):
        def fail(state, ctx):
            raise Boom

        app = graph(fail).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtime.thread("t").ask(Invoke({}, context=User("ann")), raises=False)

    def test_it_has_that_of_the_runtime(self, place):
        self.leave(place)
        app = graph().compile()
        with Runtime(place.open(), graphs=[app], contexts={"g": User("robot")}) as runtime:
            state = runtime.thread("t").ask(Continue()).state
            assert state["greeting"] == "hello robot"
            assert runtime.thread("u").ask(Invoke({})).state["greeting"] == "hello robot"
            own = runtime.thread("v").ask(Invoke({}, context=User("ann")))
            assert own.state["greeting"] == "hello ann"

    def test_or_that_of_the_call_that_continues_it(self, place):
        self.leave(place)
        app = graph().compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            outcome = runtime.thread("t").ask(Continue(context=User("bob")))
        assert outcome.state["greeting"] == "hello bob"

    def test_without_one_the_node_that_reads_it_fails(self, place):
        self.leave(place)
        app = graph().compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            with pytest.raises(NodeFailed, match="a context is not stored"):
                runtime.thread("t").ask(Continue())

    def test_a_graph_that_comes_later_brings_its_own(self, place):
        self.leave(place)
        with Runtime(place.open()) as runtime:
            runtime.register(graph().compile(), context={"name": "late"})
            assert runtime.thread("t").ask(Continue()).state["greeting"] == "hello late"

    @pytest.mark.parametrize(
        ("contexts", "match"),
        [({"h": User("x")}, "names the graph 'h'"), ({"g": 7}, r"contexts\['g'\]")],
    )
    def test_what_does_not_fit_is_refused_at_once(self, memory, contexts, match):
        with pytest.raises(InvalidCall, match=match):
            Runtime(memory, graphs=[graph().compile()], contexts=contexts)


def test_an_answer_by_message_brings_it(store):
    app = graph(lambda state, ctx: {"seen": [interrupt("?"), ctx.context.name]}).compile()
    with Runtime(store, graphs=[app]) as runtime:
        thread = runtime.thread("t")
        thread.ask(Invoke({}, context=User("ann")))
        state = thread.ask(Resume("yes", context=User("bob"))).state
    assert state["seen"] == ["yes", "bob"]
