"""Classes as schemas: dataclasses, Structs and pydantic models, and the views that nodes get of them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from beamweaver.errors import InvalidGraph, InvalidUpdate, UnknownChannel
from beamweaver.graph import (
    MISSING,
    Ephemeral,
    Graph,
    RemainingSteps,
    Untracked,
    append,
    normalize,
    normalize_input,
    update_of,
)
from beamweaver.types import START, Command, Overwrite, Send

try:
    import pydantic
except ImportError:  # an optional partner: its own tests are skipped then
    pydantic = None

pytestmark = pytest.mark.usefixtures("everything")


@dataclasses.dataclass
class Data:
    url: str
    pages: int = 0
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list)
    left: Annotated[int, RemainingSteps] = 0


class Struct(msgspec.Struct):
    url: str
    pages: int = 0
    log: Annotated[list[str], append] = []
    left: Annotated[int, RemainingSteps] = 0


CLASSES: list[Any] = [Data, Struct]
if pydantic is not None:

    class Model(pydantic.BaseModel):
        url: str
        pages: int = 0
        log: Annotated[list[str], append] = pydantic.Field(default_factory=list)
        left: Annotated[int, RemainingSteps] = 0

    CLASSES.append(Model)
each_class = pytest.mark.parametrize("schema", CLASSES, ids=lambda schema: schema.__name__)


def nothing(state):
    return None


def build(schema=Data, **options):
    return Graph(schema, name="g", **options).add_node("a", nothing).add_edge(START, "a")


@each_class
class TestEachClass:
    def test_its_fields_are_channels_in_order(self, schema):
        channels = build(schema).compile().channels

        assert list(channels) == ["url", "pages", "log", "left"]
        assert channels["url"].type is str
        assert channels["log"].reducer is append
        assert channels["left"].managed

    def test_a_node_gets_an_instance(self, schema):
        compiled = build(schema).compile()
        view = compiled.view({"url": "/", "log": ["x"], **compiled.managed_values(4)})

        assert type(view) is schema
        assert (view.url, view.pages, view.log, view.left) == ("/", 0, ["x"], 4)

    def test_values_are_shared_not_copied(self, schema):
        log = ["x"]

        assert build(schema).compile().view({"url": "/", "log": log}).log is log

    def test_an_outcome_is_an_instance(self, schema):
        assert type(build(schema).compile().output({"url": "/"})) is schema

    def test_a_field_without_a_default_must_be_in_the_first_input(self, schema):
        compiled = build(schema).compile()

        assert compiled.required == {"url"}
        compiled.check_complete({"url": "/"})
        with pytest.raises(InvalidUpdate) as caught:
            compiled.check_complete({"pages": 1})
        assert str(caught.value) == (
            f"the input lacks 'url', which {schema.__name__} requires: give {{\"url\": ...}}, or a "
            "default to the field"
        )

    def test_a_view_without_a_required_value_says_so(self, schema):
        with pytest.raises(
            InvalidUpdate, match=f"the state lacks 'url', which {schema.__name__} requ"
        ):
            build(schema).compile().view({"pages": 1})

    def test_a_returned_instance_is_refused_with_a_cure(self, schema):
        compiled = build(schema).compile()

        with pytest.raises(
            InvalidUpdate, match=rf"return update_of\({schema.__name__}, url=\.\.\.\)"
        ):
            normalize(compiled, compiled.nodes["a"], schema(url="/"))

    def test_an_instance_as_input_is_refused_with_a_cure(self, schema):
        with pytest.raises(InvalidUpdate, match=rf"update_of\({schema.__name__}, url=\.\.\.\)$"):
            normalize_input(build(schema).compile(), schema(url="/"))

    def test_an_update_is_checked_by_the_fields_types(self, schema):
        with pytest.raises(InvalidUpdate, match=r"'3' \(str\) for the key 'pages'; expected int"):
            normalize_input(build(schema).compile(), {"pages": "3"})

    def test_update_of_has_only_what_is_given(self, schema):
        assert update_of(schema, pages=3) == {"pages": 3}

    def test_update_of_refuses_an_unknown_field(self, schema):
        with pytest.raises(UnknownChannel) as caught:
            update_of(schema, page=3)

        name = schema.__name__
        assert str(caught.value) == (
            f"update_of({name}, ...) has the key 'page', which {name} lacks. Did you mean 'pages'? "
            "Its keys: 'url', 'pages', 'log', 'left'"
        )

    def test_update_of_refuses_a_wrong_type(self, schema):
        with pytest.raises(InvalidUpdate, match="for the key 'pages'; expected int"):
            update_of(schema, pages="3")

    def test_update_of_takes_an_overwrite(self, schema):
        assert update_of(schema, log=Overwrite([])) == {"log": Overwrite([])}


class TestDefaults:
    def test_a_reducers_key_starts_at_its_fields_default(self):
        @dataclasses.dataclass
        class Started:
            total: Annotated[int, max] = 10

        assert build(Started).compile().channels["total"].initial() == 10

    def test_the_default_none_is_no_start(self):
        @dataclasses.dataclass
        class Started:
            total: Annotated[int | None, max] = None

        assert build(Started).compile().channels["total"].initial() is MISSING

    def test_a_key_without_a_reducer_is_absent_and_the_view_has_the_default(self):
        compiled = build(Data).compile()

        assert compiled.channels["pages"].initial() is MISSING
        assert compiled.view({"url": "/"}).pages == 0

    def test_each_start_is_a_new_object(self):
        log = build(Data).compile().channels["log"]

        assert log.initial() is not log.initial()


class Input(TypedDict):
    url: str


class Pages(TypedDict, total=False):
    pages: int


@dataclasses.dataclass
class Strict:
    url: str
    pages: int


class TestInputAndOutput:
    """`compiled 57`, `langgraph 5`: schemas of input and output."""

    def test_an_input_has_only_the_keys_of_its_schema(self):
        with pytest.raises(UnknownChannel) as caught:
            normalize_input(build(input_schema=Input).compile(), {"url": "/", "pages": 1})

        assert str(caught.value) == (
            "the input has the key 'pages', which Input lacks. Its keys: 'url'. Leave 'pages' out, or add "
            "it to Input"
        )

    def test_a_command_as_input_has_only_the_keys_of_the_input_schema(self):
        with pytest.raises(UnknownChannel, match="which Input lacks"):
            normalize_input(build(input_schema=Input).compile(), Command(update={"pages": 1}))

    def test_a_key_that_neither_has_is_told_by_the_states_own_words(self):
        with pytest.raises(UnknownChannel, match="'urll', which Data lacks"):
            normalize_input(build(input_schema=Input).compile(), {"urll": "/"})

    def test_an_input_is_judged_by_both_types(self):
        class Wide(TypedDict):
            url: str | None

        class Narrow(TypedDict):
            url: str

        compiled = build(Wide, input_schema=Narrow).compile()

        with pytest.raises(
            InvalidUpdate, match="the input has None for the key 'url'; expected str"
        ):
            normalize_input(compiled, {"url": None})

    def test_a_node_may_write_what_an_input_may_not(self):
        compiled = build(input_schema=Input).compile()

        assert normalize(compiled, compiled.nodes["a"], {"pages": 1}).writes == (
            ("pages", 1, False),
        )

    def test_the_keys_of_a_typed_dict_are_required_unless_not_required(self):
        assert build(input_schema=Input).compile().required == {"url"}
        assert build(Pages, input_schema=Pages).compile().required == frozenset()

    def test_a_typed_dict_as_state_requires_nothing(self):
        assert build(Input).compile().required == frozenset()

    def test_an_outcome_has_only_the_keys_of_the_output_schema(self):
        compiled = build(output_schema=Pages).compile()

        assert compiled.output({"url": "/", "pages": 2}) == {"pages": 2}
        assert compiled.view({"url": "/", "pages": 2}).url == "/"

    def test_without_a_schema_an_input_schema_still_judges(self):
        compiled = build(None, input_schema=Input).compile()

        with pytest.raises(UnknownChannel, match="which Input lacks"):
            normalize_input(compiled, {"other": 1})


class Extra(TypedDict):
    urls: str


class Left(TypedDict):
    left: int


FAULTS = {
    "an unknown key in input_schema": (
        lambda: build(input_schema=Extra),
        (
            "input_schema Extra has the key 'urls', which Data lacks. Did you mean 'url'? Its keys: 'url', "
            "'pages', 'log', 'left'. Add it there, or leave it out"
        ),
    ),
    "an unknown key in output_schema": (
        lambda: build(Input, output_schema=Pages),
        (
            "output_schema Pages has the key 'pages', which Input lacks. Its keys: 'url'. Add it there, or "
            "leave it out"
        ),
    ),
    "a managed key in input_schema": (
        lambda: build(Struct, input_schema=TypedDict("In", {"url": str, "left": int})),
        "input_schema: the key 'left' is computed for each step; leave it out",
    ),
    "a field that no input has to bring": (
        lambda: build(Strict, input_schema=Input),
        (
            "Strict.pages has no default, and no input has to bring it; give it a default, or require it in "
            "Input"
        ),
    ),
    "a managed field without a default": (
        lambda: build(dataclasses.make_dataclass("M", [("left", Annotated[int, RemainingSteps])])),
        "M.left has no default, and no input has to bring it; give it a default",
    ),
    "an ephemeral field without a default": (
        lambda: build(dataclasses.make_dataclass("M", [("hint", Annotated[str, Ephemeral])])),
        "M.hint is Ephemeral, so it has no value at times; give it a default",
    ),
    "an untracked field without a default": (
        lambda: build(dataclasses.make_dataclass("M", [("client", Annotated[object, Untracked])])),
        "M.client is Untracked, so it has no value at times; give it a default",
    ),
    "a managed key that only a node has": (
        lambda: build(Pages).add_node(
            "b", nothing, input_schema=TypedDict("B", {"left": Annotated[int, RemainingSteps]})
        ),
        (
            "the key 'left' is RemainingSteps, and in Pages it is not; declare it there as "
            "Annotated[int, RemainingSteps]"
        ),
    ),
    "an output field that nothing is sure to write": (
        lambda: build(Pages, output_schema=dataclasses.make_dataclass("Out", [("pages", int)])),
        "output_schema: Out.pages has no default, and nothing is sure to write it; give it a default",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_schemas_that_do_not_fit_are_a_fault(what):
    builder, fault = FAULTS[what]

    with pytest.raises(InvalidGraph) as caught:
        builder().compile()

    assert any(found.endswith(fault) for found in caught.value.faults)


@dataclasses.dataclass
class Derived:
    n: int = 0
    twice: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Initial:
    n: int = 0
    seed: dataclasses.InitVar[int] = 0


@pytest.mark.parametrize(
    ("schema", "words"),
    [(Derived, "Derived.twice has init=False"), (Initial, "Initial.seed is an InitVar")],
)
def test_a_field_that_no_state_can_set_is_refused(schema, words):
    with pytest.raises(InvalidGraph, match=words):
        build(schema)


def test_a_class_that_refuses_its_values_is_named():
    @dataclasses.dataclass
    class Checked:
        n: int = 0

        def __post_init__(self):
            if self.n < 0:
                raise ValueError("n is below 0")

    with pytest.raises(
        InvalidUpdate, match="Checked cannot be made of the state: ValueError: n is bel"
    ):
        build(Checked).compile().view({"n": -1})


def test_update_of_takes_names_only():
    with pytest.raises(
        InvalidUpdate, match=r"update_of\(Data, \.\.\.\) has 1 values without names"
    ):
        update_of(Data, "/")


def test_update_of_something_else_says_what_it_takes():
    with pytest.raises(InvalidUpdate, match="update_of: the schema dict is no TypedDict"):
        update_of(dict, n=1)


class TestNodesWithASchemaOfTheirOwn:
    """`langgraph 5`, `langgraph 10`: a node sees the keys of its own schema."""

    class Private(TypedDict):
        url: str
        item: int

    def build(self, schema):
        graph = (
            Graph(Data, name="g").add_node("a", nothing, destinations=["b"]).add_edge(START, "a")
        )
        return graph.add_node("b", nothing, input_schema=schema).compile()

    def test_it_sees_its_keys_only(self):
        compiled = self.build(self.Private)

        assert compiled.view({"url": "/", "pages": 1}, compiled.nodes["b"]) == {"url": "/"}

    def test_it_may_see_an_instance(self):
        own = dataclasses.make_dataclass("Own", [("url", str), ("item", int, 0)])
        compiled = self.build(own)

        view = compiled.view({"url": "/", "pages": 1}, compiled.nodes["b"])

        assert view == own(url="/", item=0)
        assert compiled.shape_of(compiled.nodes["b"]).read(view) == {"url": "/", "item": 0}

    def test_a_send_may_bring_keys_that_only_the_node_has(self):
        compiled = self.build(self.Private)

        returned = normalize(compiled, compiled.nodes["a"], Send("b", {"item": 3}))

        assert returned.sends == (Send("b", {"item": 3}),)
        assert compiled.view({"url": "/", "item": 3}, compiled.nodes["b"]) == {
            "url": "/",
            "item": 3,
        }

    def test_a_send_of_a_key_that_the_node_does_not_see_is_refused(self):
        compiled = self.build(self.Private)

        with pytest.raises(UnknownChannel) as caught:
            normalize(compiled, compiled.nodes["a"], Send("b", {"items": 3}))

        assert str(caught.value) == (
            "node 'a' made a Send to 'b' with the key 'items' (str), which that node does not see. Did you "
            "mean 'item'? Its keys: 'url', 'item'"
        )

    def test_a_send_of_a_wrong_type_is_refused(self):
        compiled = self.build(self.Private)

        with pytest.raises(InvalidUpdate, match=r"'3' \(str\) for the key 'item'; expected int"):
            normalize(compiled, compiled.nodes["a"], Send("b", {"item": "3"}))

    def test_an_unfit_schema_is_refused_where_it_is_given(self):
        with pytest.raises(
            InvalidGraph, match="add_node: input_schema: the schema 7 is no TypedDict"
        ):
            Graph(Data, name="g").add_node("b", nothing, input_schema=7)


def test_views_of_dicts_are_new_dicts():
    values: dict[str, Any] = {"n": 1}
    compiled = build(None).compile()

    view = compiled.view(values)

    assert view == values
    assert view is not values
