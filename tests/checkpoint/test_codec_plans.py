"""Plans of declared types: which are native, and that both ways are exact."""

# ruff: noqa: DTZ001, DTZ901 naive times are among the values

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.checkpoint import Codec
from beamweaver.errors import DeserializationError
from tests.checkpoint.shapes import (
    Box,
    Color,
    Derived,
    Item,
    Level,
    Line,
    Name,
    Node,
    Order,
    Point,
    Right,
    Strict,
)
from tests.checkpoint.test_codec_values import same

ORDER = Order(
    uuid.UUID(int=7),
    Decimal("1.10"),
    dt.date(2024, 2, 29),
    [Line(Point(1), Point(2, 3))],
    {"a": (1, 2)},
    Level.HIGH,
)

NATIVE = [
    (None, [None]),
    (int, [0, -(2**63), 2**64 - 1]),
    (float, [1.0, -0.0]),
    (str, ["", "é"]),
    (bytes, [b"", b"\xc1x"]),
    (bool, [True]),
    (int | None, [1, None]),
    (Optional[str], ["x", None]),  # noqa: UP045 the older spelling too
    (int | str | float | None, [1, "1", 1.0, None]),
    (list[int], [[], [1, 2]]),
    (tuple[int, ...], [(), (1, 2)]),
    (tuple[int, str], [(1, "a")]),
    (tuple[()], [()]),
    (set[str], [set(), {"a"}]),
    (dict[str, float], [{}, {"a": 1.0}]),
    (dict[str, list[tuple[int, ...]]], [{"a": [(1,), ()]}]),
    (list[int] | None, [[1], None]),
    (uuid.UUID, [uuid.UUID(int=1)]),
    (Decimal, [Decimal("-0"), Decimal("NaN7"), Decimal("1E+3")]),
    (dt.date, [dt.date.max]),
    (dt.datetime, [dt.datetime(2024, 1, 1, 2, 3, 4, 5)]),
    (dt.time, [dt.time(1, 2, 3, 4)]),
    (dt.timedelta, [dt.timedelta.min, dt.timedelta(microseconds=1)]),
    (Level, [Level.LOW]),
    (Name, [Name.A]),
    (Point, [Point(1, 2)]),
    (Strict, [Strict(n=1), Strict(n=2, when=dt.date.min)]),
    (Line, [Line(Point(1), Point(2))]),
    (Order, [ORDER]),
    (list[Order], [[ORDER, ORDER]]),
    (Point | None, [Point(1), None]),
    (Annotated[list[int], "a reducer"], [[1]]),
]

WALKED = [
    (Any, [1, (1, {2})]),
    (list, [[1, (2,)]]),
    (dict, [{"a": (1,)}]),
    (list[Any], [[(1,)]]),
    (dict[int, str], [{1: "a"}]),
    (frozenset[int], [frozenset({1})]),
    (Color, [Color.RED, Color.BLUE]),
    (Right, [Right.READ | Right.WRITE]),
    (Item, [Item((1,))]),
    (Derived, [Derived(1)]),
    (Box, [Box({1})]),
    (Node, [Node(1, Node(2))]),
    (Literal["a", 1], ["a", 1]),
    (list[int] | tuple[int, ...], [[1], (1,)]),
    (int | Decimal, [1, Decimal(1)]),
    (str | uuid.UUID, ["x", uuid.UUID(int=1)]),
    (Level | int, [Level.LOW, 1]),
    (dt.date | dt.datetime, [dt.date.min, dt.datetime.min]),
    ("Forward", [1, (2,)]),
]


@pytest.mark.parametrize(("declared", "values"), NATIVE, ids=[str(row[0]) for row in NATIVE])
def test_a_native_type_is_plain_msgpack_and_exact(declared, values):
    plan = Codec().plan(declared)
    for value in values:
        assert plan.encode(value)[0] != 0xC1
        assert same(plan.decode(plan.encode(value)), value)


@pytest.mark.parametrize(("declared", "values"), WALKED, ids=[str(row[0]) for row in WALKED])
def test_any_other_type_is_exact_too(declared, values):
    plan = Codec().plan(declared)
    assert declared is None or not plan.native or declared == Any
    for value in values:
        assert same(plan.decode(plan.encode(value)), value)


ODD = [
    (int, [2**64, True, 1.0, "1", None, (1,), [1], Level.LOW]),
    (float, [1, Decimal(1)]),
    (str, ["\ud800", b"x", Name.A]),
    (list[int], [[2**70], [True], (1,), [1, [2]], ["a"]]),
    (tuple[int, int], [(1,), (1, 2, 3), [1, 2], (1, True)]),
    (set[int], [frozenset({1}), {1, "a"}]),
    (dict[str, int], [{1: 2}, {"a": 2**64}, {"a": None}, {"\ud800": 1}]),
    (
        dt.datetime,
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, fold=1), dt.date.min],
    ),
    (dt.time, [dt.time(1, tzinfo=dt.UTC), dt.time(1, fold=1)]),
    (Decimal, [1, 1.0, "1"]),
    (Level, [1, Level.LOW.value, Name.A]),
    (Point, [Point(2**70), Point("a"), {"x": 1, "y": 2}, None]),
    (Strict, [Strict(n=True), Strict(n=1, when=dt.datetime.min)]),
    (Order, [Order(*["wrong"] * 6)]),
    (list[Point], [[Point(1), Point(1.5)], [Point(1), None]]),
]


@pytest.mark.parametrize(("declared", "values"), ODD, ids=[str(row[0]) for row in ODD])
def test_a_value_that_is_not_exactly_of_its_type_comes_back_as_it_is(declared, values):
    """The graph judges types; what is stored is what was given."""
    codec = Codec([Level, Name, Point])
    plan = codec.plan(declared)
    assert plan.native
    for value in values:
        assert same(plan.decode(plan.encode(value)), value)


def test_an_attribute_that_is_no_field_is_not_lost():
    value = Order(*[None] * 6)
    value.extra = (1,)
    plan = Codec().plan(Order)

    assert plan.decode(plan.encode(value)).extra == (1,)


scalar_types = [int, float, str, bytes, bool, type(None), Decimal, uuid.UUID, dt.date, dt.timedelta]
VALUES_OF = {
    int: st.integers(-(2**66), 2**66),
    float: st.floats(),
    str: st.text(),
    bytes: st.binary(),
    bool: st.booleans(),
    type(None): st.none(),
    Decimal: st.decimals(),
    uuid.UUID: st.uuids(),
    dt.date: st.dates(),
    dt.timedelta: st.timedeltas(),
}


def compound(inner):
    return st.one_of(
        inner.map(lambda pair: (list[pair[0]], st.lists(pair[1], max_size=3))),
        inner.map(lambda pair: (tuple[pair[0], ...], st.lists(pair[1], max_size=3).map(tuple))),
        inner.map(
            lambda pair: (
                dict[str, pair[0]],
                st.dictionaries(st.text(max_size=3), pair[1], max_size=3),
            )
        ),
        inner.map(lambda pair: (pair[0] | None, pair[1] | st.none())),
        st.tuples(inner, inner).map(
            lambda pairs: (tuple[pairs[0][0], pairs[1][0]], st.tuples(pairs[0][1], pairs[1][1]))
        ),
        st.tuples(inner, inner).map(
            lambda pairs: (pairs[0][0] | pairs[1][0], pairs[0][1] | pairs[1][1])
        ),
    )


typed = st.recursive(
    st.sampled_from(scalar_types).map(lambda kind: (kind, VALUES_OF[kind])), compound, max_leaves=5
)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(st.data())
def test_a_value_of_any_declared_type_comes_back(data):
    declared, values = data.draw(typed)
    value = data.draw(values)
    plan = Codec().plan(declared)

    assert same(plan.decode(plan.encode(value)), value)


def test_a_value_that_a_plan_wrote_is_read_where_its_type_is_not_declared():
    """Stores open, list and verify without the graph's code."""
    assert Codec().decode(Codec().plan(Order).encode(ORDER))["price"] == "1.10"


def test_a_value_that_no_plan_wrote_is_read_as_the_type_declared_since():
    assert Codec().plan(Point).decode(Codec().encode({"x": 1, "y": 2})) == Point(1, 2)


def test_a_stored_value_of_another_type_is_refused_with_its_path():
    data = Codec().encode({"x": 1, "y": "two"})
    with pytest.raises(DeserializationError) as caught:
        Codec().plan(Point).decode(data, "state.at")

    assert caught.value.path == "state.at.y"
    assert "migration" in str(caught.value)


class Missing(enum.Enum):
    A = "a"

    @classmethod
    def _missing_(cls, _value):
        return cls.A


class Renamed(msgspec.Struct, rename="camel"):
    long_name: int


class Tagged(msgspec.Struct, tag=True, omit_defaults=True):
    n: int = 1


@pytest.mark.parametrize("value", [Missing.A, Renamed(1), Tagged(), Tagged(2)])
def test_classes_with_options_come_back(value):
    plan = Codec().plan(type(value))

    assert same(plan.decode(plan.encode(value)), value)


class Model(pydantic.BaseModel):
    n: int
    tags: set[str] = pydantic.Field(default_factory=set)
    inside: Any = None
    _private: int = pydantic.PrivateAttr(default=0)


class Open(pydantic.BaseModel, extra="allow"):
    n: int = 1


class Attrs:
    """What attrs leaves on a class, so that the tests do not need it."""

    __slots__ = ("x",)
    __attrs_attrs__ = (type("Attribute", (), {"name": "x"}),)

    def __init__(self, value):
        self.x = value

    def __eq__(self, other):
        return type(other) is Attrs and other.x == self.x

    __hash__ = None


class TestOtherLibraries:
    def test_a_pydantic_model_comes_back(self):
        plan = Codec().plan(Model)
        value = Model(n=1, inside=(1, {2}))
        value._private = 5
        again = plan.decode(plan.encode(value))

        assert again == value
        assert again.inside == (1, {2})
        assert again._private == 5
        assert again.model_fields_set == {"n", "inside"}

    def test_extra_fields_of_a_model_come_back(self):
        codec = Codec([Open])

        assert codec.decode(codec.encode(Open(n=2, more=(1,)))).more == (1,)

    def test_a_field_that_a_model_got_later_takes_its_default(self):
        class Before(pydantic.BaseModel):
            n: int

        before, after = Codec(), Codec()
        before.register(Before, name="model")
        after.register(Model, name="model")

        assert after.decode(before.encode(Before(n=1))) == Model(n=1)

    def test_a_field_that_a_model_has_no_more_is_named(self):
        before, after = Codec(), Codec()
        before.register(Model, name="model")
        after.register(Open, name="model")
        with pytest.raises(DeserializationError, match="inside"):
            after.decode(before.encode(Model(n=1)))

    def test_an_attrs_class_comes_back(self):
        codec = Codec([Attrs])

        assert codec.decode(codec.encode([Attrs((1,))])) == [Attrs((1,))]
