"""Schemas: the channels that a TypedDict declares."""

from __future__ import annotations

import operator
import typing
from typing import Annotated, NotRequired, Required, TypedDict

import pytest

from beamweaver.errors import InvalidGraph, UnknownChannel
from beamweaver.graph import Graph, append
from beamweaver.types import START


def nothing(state):
    return None


def channels(schema):
    graph = Graph(schema, name="g").add_node("a", nothing).add_edge(START, "a")
    return graph.compile().channels


class Base(TypedDict):
    n: int


class Child(Base, total=False):
    log: Annotated[list[str], append]
    note: Required[str]
    extra: NotRequired[Annotated[int, operator.add]]


def test_keys_come_in_the_order_of_declaration_with_inherited_ones_first():
    assert list(channels(Child)) == ["n", "log", "note", "extra"]


def test_required_and_not_required_are_taken_off_the_type():
    found = channels(Child)

    assert (found["note"].type, found["extra"].type) == (str, int)
    assert found["extra"].reducer is operator.add


def test_a_reducer_is_read_from_the_annotation():
    assert channels(Child)["log"].reducer is append
    assert channels(Child)["n"].reducer is None


def test_names_of_the_enclosing_function_are_found_under_postponed_annotations():
    def mine(current: list[int], update: list[int]) -> list[int]:
        return current + update

    class Inner(TypedDict):
        items: Annotated[list[int], mine]

    assert channels(Inner)["items"].reducer is mine


def test_the_functional_form_is_a_schema():
    assert list(channels(TypedDict("Made", {"a": int}))) == ["a"]


def test_metadata_that_is_no_function_is_left_alone():
    class Noted(TypedDict):
        n: Annotated[int, "a note", list]

    assert channels(Noted)["n"].reducer is None


def test_without_a_schema_any_key_has_a_channel():
    compiled = Graph(name="g").add_node("a", nothing).add_edge(START, "a").compile()

    assert compiled.open
    assert compiled.channel("whatever").name == "whatever"
    with pytest.raises(UnknownChannel, match="no key '__x'"):
        compiled.channel("__x")


def test_an_unknown_channel_is_told_with_the_nearest():
    compiled = Graph(Base, name="g").add_node("a", nothing).add_edge(START, "a").compile()

    with pytest.raises(UnknownChannel, match=r"graph 'g' has no key 'N'. Did you mean 'n'"):
        compiled.channel("N")


def test_two_reducers_at_one_key_are_refused():
    class Two(TypedDict):
        log: Annotated[list, operator.add, append]

    with pytest.raises(InvalidGraph, match=r"Two.log has 2 reducers; keep one"):
        Graph(Two, name="g")


def test_a_reducer_of_one_argument_is_refused():
    class One(TypedDict):
        log: Annotated[list, lambda a: a]

    with pytest.raises(InvalidGraph, match=r"the reducer of One.log has the parameters \(a\)"):
        Graph(One, name="g")


def test_a_reserved_key_is_refused():
    reserved = TypedDict("Reserved", {"__x": int})

    with pytest.raises(
        InvalidGraph, match=r"Reserved.__x: names that begin with '__' are reserved"
    ):
        Graph(reserved, name="g")


@pytest.mark.parametrize("schema", [dict, 7, "State", typing.NamedTuple("N", [("n", int)])])
def test_other_schemas_are_refused(schema):
    with pytest.raises(
        InvalidGraph, match="is no TypedDict, dataclass, msgspec.Struct or pydantic"
    ):
        Graph(schema, name="g")


def test_a_name_that_is_nowhere_is_refused():
    names = {"x": typing.ForwardRef("Nowhere")}
    lost = TypedDict("Lost", names)

    with pytest.raises(InvalidGraph, match="the schema Lost names 'Nowhere', which is not defined"):
        Graph(lost, name="g")
