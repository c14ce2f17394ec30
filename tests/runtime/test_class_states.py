"""Classes as schemas, through the public API: what nodes, routers and callers see, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from beamweaver import END, START, Command, Graph, Invoke, Overwrite, Runtime, Send, interrupt
from beamweaver.errors import InvalidUpdate, NodeFailed, UnknownChannel
from beamweaver.graph import append, update_of
from tests.runtime.kit import Caller, Gate

try:
    import pydantic
except ImportError:  # an optional partner: its own tests are skipped then
    pydantic = None


@dataclasses.dataclass
class Data:
    url: str
    pages: int = 0
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list)


class Struct(msgspec.Struct):
    url: str
    pages: int = 0
    log: Annotated[list[str], append] = []


CLASSES: list[Any] = [Data, Struct]
if pydantic is not None:

    class Model(pydantic.BaseModel):
        url: str
        pages: int = 0
        log: Annotated[list[str], append] = pydantic.Field(default_factory=list)

    CLASSES.append(Model)
each_class = pytest.mark.parametrize("schema", CLASSES, ids=lambda schema: schema.__name__)


def build(schema, node, **options):
    return Graph(schema, name="g", **options).add_node("a", node).add_edge(START, "a")


@each_class
class TestEachClass:
    def test_nodes_and_outcomes_and_states_have_instances(self, schema, store):
        """`langgraph`: a class schema; the thread goes on with it in its next run."""
        seen = []

        def node(state, ctx):
            seen.append(state)
            assert ctx.state is state
            return update_of(schema, pages=state.pages + 1, log=state.url)

        with build(schema, node).compile(checkpointer=store) as app:
            outcome = app.invoke({"url": "/"}, thread_id="t")
            again = app.invoke({"url": "/b"}, thread_id="t")

            assert outcome.state == schema(url="/", pages=1, log=["/"])
            assert again.state == schema(url="/b", pages=2, log=["/", "/b"])
            assert app.get_state("t").values == again.state
        assert [type(state) for state in seen] == [schema, schema]

    def test_routers_have_instances(self, schema, store):
        graph = Graph(schema, name="g").add_node("a", lambda state: {"pages": state.pages + 1})
        graph.add_conditional_edges("a", lambda state: "a" if state.pages < 3 else END)
        graph.add_conditional_edges(START, lambda state: "a" if state.url else END)

        with graph.compile(checkpointer=store) as app:
            assert app.invoke({"url": "/"}, thread_id="t").state.pages == 3
            assert app.invoke({"url": ""}, thread_id="u").state.pages == 0

    def test_async_nodes_have_instances(self, schema, store):
        async def node(state):
            return {"pages": len(state.url)}

        with build(schema, node).compile(checkpointer=store) as app:
            assert app.invoke({"url": "/"}, thread_id="t").state == schema(url="/", pages=1)

    def test_a_question_waits_with_an_instance_and_goes_on_after_a_restart(self, schema, place):
        def app():
            return build(schema, lambda state: {"log": [interrupt(state.url)]}).compile()

        with Runtime(place.open(), graphs=[app()]) as runtime:
            waiting = runtime.thread("t").ask(Invoke({"url": "/"}))
            assert (waiting.interrupt.value, waiting.state) == ("/", schema(url="/"))
        again = app()
        with Runtime(place.open(), graphs=[again]) as runtime:
            assert runtime.get_state("t").values == schema(url="/")
            outcome = runtime.thread("t").ask(Invoke({"pages": 5}))
            assert outcome.state == schema(url="/", pages=5)

    def test_the_first_input_must_bring_what_has_no_default(self, schema, store):
        with build(schema, lambda state: None).compile(checkpointer=store) as app:
            with pytest.raises(InvalidUpdate) as caught:
                app.invoke({"pages": 1}, thread_id="t")

            assert str(caught.value) == (
                f"the input lacks 'url', which {schema.__name__} requires: give {{\"url\": ...}}, or a "
                "default to the field"
            )
            assert app.get_state("t") is None
            app.invoke({"url": "/"}, thread_id="t")
            assert app.invoke({"pages": 1}, thread_id="t").state == schema(url="/", pages=1)

    def test_it_is_said_too_where_a_router_leads_on_from_the_start(self, schema, store):
        graph = build(schema, lambda state: None).add_conditional_edges(START, lambda state: "a")
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(InvalidUpdate, match="the input lacks 'url'"):
                app.invoke({"pages": 1}, thread_id="t")
            assert app.get_state("t") is None

    def test_a_returned_instance_is_refused_with_the_cure(self, schema, store):
        with build(schema, lambda state: state).compile(checkpointer=store) as app:
            with pytest.raises(
                InvalidUpdate, match=rf"return update_of\({schema.__name__}, url="
            ) as e:
                app.invoke({"url": "/"}, thread_id="t")
        assert e.value.node == "a"

    def test_a_wrong_type_is_refused_before_it_is_stored(self, schema, store):
        with build(schema, lambda state: {"pages": "3"}).compile(checkpointer=store) as app:
            with pytest.raises(
                InvalidUpdate, match=r"node 'a' returned '3' \(str\) for the key 'pages'"
            ):
                app.invoke({"url": "/"}, thread_id="t")
            assert app.get_state("t").values == schema(url="/")

    def test_overwrite_bypasses_the_reducer(self, schema, store):
        with build(schema, lambda s: {"log": Overwrite(["b"])}).compile(checkpointer=store) as app:
            outcome = app.invoke({"url": "/", "log": ["a"]}, thread_id="t")
        assert outcome.state.log == ["b"]

    def test_history_has_instances(self, schema, store):
        with build(schema, lambda state: {"pages": 7}).compile(checkpointer=store) as app:
            app.invoke({"url": "/"}, thread_id="t")
            found = [state.values for state in app.get_state_history("t")]
        assert found == [schema(url="/", pages=7), schema(url="/")]

    def test_a_recorded_outcome_has_an_instance(self, schema, store):
        with build(schema, lambda state: {"log": "x"}).compile(checkpointer=store) as app:
            app.invoke({"url": "/"}, thread_id="t", run_id="one")
            app.invoke({"url": "/"}, thread_id="t", run_id="two")
            again = app.invoke({"url": "/"}, thread_id="t", run_id="one")
        assert again.state == schema(url="/", log=["x"])


class Pages(TypedDict, total=False):
    pages: int


class Input(TypedDict):
    url: str


class TestInputAndOutput:
    """`graph 57`, `graph 58`: input and output schemas."""

    def test_outcomes_have_only_the_keys_of_the_output_schema(self, store):
        graph = build(Data, lambda state: {"pages": 2}, output_schema=Pages)
        with graph.compile(checkpointer=store) as app:
            outcome = app.invoke({"url": "/"}, thread_id="t", run_id="one")
            app.invoke({"url": "/b"}, thread_id="t")
            recorded = app.invoke({"url": "/"}, thread_id="t", run_id="one")
            state = app.get_state("t")

        assert outcome.state == recorded.state == {"pages": 2}
        assert state.values == Data(url="/b", pages=2)

    def test_an_outcome_may_be_an_instance_of_another_class(self, store):
        report = dataclasses.make_dataclass("Report", [("pages", int, 0)])
        graph = build(None, lambda state: {"pages": 2}, output_schema=report)
        with graph.compile(checkpointer=store) as app:
            assert app.invoke({"url": "/"}, thread_id="t").state == report(2)

    def test_an_input_has_the_keys_of_the_input_schema(self, store):
        with build(Data, lambda state: None, input_schema=Input).compile(checkpointer=store) as app:
            with pytest.raises(UnknownChannel) as caught:
                app.invoke({"url": "/", "pages": 1}, thread_id="t")
            with pytest.raises(InvalidUpdate, match="the input lacks 'url', which Input requires"):
                app.invoke({}, thread_id="t")
            assert app.get_state("t") is None
            assert app.invoke({"url": "/"}, thread_id="t").state == Data(url="/")

        assert str(caught.value) == (
            "the input has the key 'pages', which Input lacks. Its keys: 'url'. Leave 'pages' out, or add it "
            "to Input"
        )

    def test_an_amendment_need_not_bring_what_the_first_input_did(self, store):
        graph = build(Data, lambda state: {"log": [interrupt("?")]}, input_schema=Data)
        with graph.compile(checkpointer=store) as app:
            app.invoke({"url": "/"}, thread_id="t")
            app.invoke({"pages": 2}, thread_id="t")
            assert app.resume("yes", thread_id="t").state == Data("/", 2, ["yes"])

    def test_a_message_with_an_unfit_input_is_refused_at_once(self, store):
        app = build(Data, lambda state: None, input_schema=Input).compile()
        with Runtime(store, graphs=[app]) as runtime:
            with pytest.raises(InvalidUpdate, match="the input lacks 'url'"):
                runtime.thread("t").tell(Invoke({}))
            with pytest.raises(InvalidUpdate, match="expected str"):
                runtime.thread("t").tell(Invoke({"url": 7}))
            assert runtime.get_state("t") is None


class Checked(msgspec.Struct):
    """A class that judges its own state."""

    low: int = 0
    high: int = 10

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low is {self.low} and high {self.high}")


WORDS = "Checked cannot be made of the state: ValueError: low is 11 and high 10"


class TestAClassThatRefusesItsState:
    def test_an_input_that_it_refuses_is_refused(self, store):
        with build(Checked, lambda state: None).compile(checkpointer=store) as app:
            with pytest.raises(InvalidUpdate, match=WORDS):
                app.invoke({"low": 11}, thread_id="t")
            assert app.get_state("t") is None

    def test_an_update_that_it_refuses_is_never_committed_and_can_be_amended(self, store):
        with build(Checked, lambda state: {"low": 11}).compile(checkpointer=store) as app:
            with pytest.raises(InvalidUpdate, match=WORDS):
                app.invoke({"high": 10}, thread_id="t")
            state = app.get_state("t")
            assert (state.status, state.values) == ("failed", {"low": 11, "high": 10})
            assert state.merge_error == WORDS
            outcome = app.invoke({"high": 20}, thread_id="t")

        assert outcome.state == Checked(11, 20)

    def test_an_outcome_that_its_class_refuses_says_so(self, store):
        graph = build(None, lambda state: {"low": 11, "high": 10}, output_schema=Checked)
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(InvalidUpdate, match=WORDS):
                app.invoke({}, thread_id="t")
            assert app.get_state("t").status == "complete"


class Item(TypedDict):
    item: tuple[int, ...]
    pages: int


class TestNodesWithASchemaOfTheirOwn:
    """`langgraph 5`, `langgraph 10`: a node sees the keys of its own schema, and what only a Send brings."""

    def build(self, schema, worker):
        graph = Graph(Data, name="g").add_node("w", worker, input_schema=schema)
        graph.add_node("a", lambda state: Send("w", {"item": (1, 2)})).add_edge(START, "a")
        return graph

    def test_it_sees_its_keys_only(self, store):
        seen = []
        graph = build(Data, lambda state: None)
        graph.add_node("b", seen.append, input_schema=Pages).add_edge("a", "b")
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            app.invoke({"url": "/", "pages": 4}, thread_id="t")
        assert seen == [{"pages": 4}]

    @pytest.mark.parametrize(
        "schema",
        [Item, dataclasses.make_dataclass("Own", [("item", tuple[int, ...]), ("pages", int, 0)])],
    )
    def test_a_send_may_bring_keys_that_only_the_node_has(self, schema, store):
        seen = []
        graph = self.build(schema, seen.append)
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            outcome = app.invoke({"url": "/", "pages": 4}, thread_id="t")
        assert seen == [schema(item=(1, 2), pages=4)]
        assert outcome.state == Data("/", 4)

    def test_what_a_send_brings_is_read_back_in_the_nodes_types(self, place):
        gate, seen = Gate(), []
        app = self.build(Item, gate).compile(allow_unreachable=True)
        with Runtime(place.open(), graphs=[app]) as runtime:
            runtime.thread("t").tell(Invoke({"url": "/"}))
            gate.wait()
        gate.open()
        app = self.build(Item, seen.append).compile(allow_unreachable=True)
        with Runtime(place.open(), graphs=[app], recover="none") as runtime:
            runtime.thread("t").ask(Invoke(None))
        assert seen == [{"item": (1, 2)}]

    def test_what_it_does_not_see_is_refused(self, store):
        graph = self.build(Pages, lambda state: None)
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            with pytest.raises(
                UnknownChannel, match="with the key 'item'.*which that node does not see"
            ):
                app.invoke({"url": "/"}, thread_id="t")

    def test_a_wrong_type_in_a_send_is_refused(self, store):
        graph = Graph(Data, name="g").add_node("w", lambda s: None, input_schema=Item)

        def wrong(state):
            return Send("w", {"item": (1, "2")})

        graph.add_conditional_edges(START, wrong)
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(InvalidUpdate) as caught:
                app.invoke({"url": "/"}, thread_id="t")

        assert str(caught.value) == (
            "router 'wrong' made a Send to 'w' with '2' (str) for the key 'item' at item[1]; expected int. "
            "Give a value of type tuple[int, ...], or change the type of 'item'"
        )

    def test_a_call_may_send_too(self, store):
        seen = []
        graph = self.build(Item, seen.append)
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            app.invoke(Command(update={"url": "/"}, goto=Send("w", {"item": (3,)})), thread_id="t")
        assert seen == [{"item": (3,), "pages": 0}] or seen == [{"item": (3,)}]

    def test_a_class_that_lacks_a_value_is_the_nodes_failure(self, store):
        own = dataclasses.make_dataclass("Own", [("item", int)])
        graph = build(Data, lambda state: None).add_node("w", lambda state: None, input_schema=own)
        graph.add_edge("a", "w")
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(
                InvalidUpdate, match="the state lacks 'item', which Own requires"
            ) as e:
                app.invoke({"url": "/"}, thread_id="t")
        assert e.value.node == "w"


def test_a_run_that_fails_shows_its_state_in_the_form_of_the_schema(store):
    def fails(state):
        raise ValueError(state.url)

    with build(Data, fails).compile(checkpointer=store) as app:
        outcome = app.invoke({"url": "/"}, thread_id="t", raises=False)
    assert isinstance(outcome.error, NodeFailed)
    assert outcome.state == Data("/")


def test_a_caller_that_joins_has_an_instance_of_its_own(store):
    gate = Gate({"pages": 1})
    app = build(Data, gate).compile()
    with Runtime(store, graphs=[app]) as runtime:
        one = Caller(runtime.thread("t").ask, Invoke({"url": "/"}, run_id="R"))
        gate.wait()
        two = Caller(runtime.thread("t").ask, Invoke({"url": "/"}, run_id="R"))
        gate.open()
        first, second = one.join().state, two.join().state
    assert first == second == Data("/", 1)
    assert first is not second
    assert first.log is not second.log
