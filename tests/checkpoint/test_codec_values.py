"""Every supported value comes back exactly, by itself and inside any other."""

# ruff: noqa: DTZ001 naive times are among the values

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import fractions
import math
import pathlib
import struct
import uuid
import zoneinfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.checkpoint import Codec
from tests.checkpoint.shapes import (
    TYPES,
    Box,
    Color,
    Derived,
    Failed,
    Item,
    Level,
    Line,
    Name,
    Normal,
    Outer,
    Pair,
    Point,
    Right,
    Strict,
)

CODEC = Codec(TYPES)
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]


def same(left, right):
    """Equal in value and in every type within."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, complex):
        return same([left.real, left.imag], [right.real, right.imag])
    if isinstance(left, decimal.Decimal):
        return left.as_tuple() == right.as_tuple()
    if isinstance(left, (dt.datetime, dt.time)):
        return (left.replace(tzinfo=None), left.fold, repr(left.tzinfo)) == (
            right.replace(tzinfo=None),
            right.fold,
            repr(right.tzinfo),
        )
    if isinstance(left, collections.deque) and left.maxlen != right.maxlen:
        return False
    if (
        isinstance(left, collections.defaultdict)
        and left.default_factory is not right.default_factory
    ):
        return False
    if isinstance(left, (list, tuple, collections.deque)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, msgspec.Struct):
        return same(msgspec.structs.asdict(left), msgspec.structs.asdict(right))
    if dataclasses.is_dataclass(left):
        names = [field.name for field in dataclasses.fields(left)]
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, (set, frozenset)):
        return len(left) == len(right) and all(any(same(a, b) for b in right) for a in left)
    return left == right


VALUES = [
    *(
        None,
        True,
        False,
        0,
        -1,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**63) - 1,
        10**300,
    ),
    *(0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, NAN, 5e-324, complex(-0.0, math.nan)),
    *("", "é😀", "\x00", "a\ud800b", b"", b"\xc1", bytearray(b"x")),
    *([], (), {}, set(), frozenset(), [[]], ((),), {"": {}}, [()], ([],), {"a": (1, [2, {3}])}),
    *((1, "a", None), {1, "a", (2, 3)}, frozenset({frozenset({1})}), {True: 1, "b": 2, None: 3}),
    *(
        {(1, 2): 3},
        {2**70: 1},
        {"\ud800": 1},
        {1.5: 1, b"x": 2, uuid.UUID(int=1): 3},
        {dt.date.min: 1},
    ),
    dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    dt.datetime(2024, 10, 27, 2, 30, fold=1),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    dt.datetime.max.replace(tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-5, microseconds=1), "odd")),
    *(dt.date.min, dt.date.max, dt.time.max, dt.time(1, fold=1), dt.time(2, tzinfo=dt.UTC)),
    *(dt.timedelta.min, dt.timedelta.max, dt.timedelta(microseconds=-1)),
    *(dt.UTC, dt.timezone(dt.timedelta(hours=1)), dt.timezone(dt.timedelta(0), "Z"), BERLIN),
    *(
        decimal.Decimal(text)
        for text in ("0", "-0", "1.10", "1E+10", "NaN", "sNaN7", "-Infinity", "1" * 60)
    ),
    *(fractions.Fraction(1, 3), fractions.Fraction(-(2**80), 3), 1 - 2j, uuid.UUID(int=2**128 - 1)),
    *(
        pathlib.Path("a/b"),
        pathlib.PurePosixPath("/"),
        pathlib.PureWindowsPath("c:/x"),
        pathlib.Path(),
    ),
    pathlib.Path("a\udcff"),
    *(collections.deque(), collections.deque([1, (2,)], 3), collections.deque(maxlen=0)),
    *(
        collections.OrderedDict(b=1, a=2),
        collections.Counter("abca"),
        collections.Counter({(1,): -1}),
    ),
    *(
        collections.defaultdict(list, a=[1]),
        collections.defaultdict(None),
        collections.defaultdict(Item),
    ),
    *(range(0), range(5, -5, -2), range(2**70)),
    *(Color.RED, Color.BLUE, Color.CRIMSON, Level.HIGH, Name.A, Outer.Inner.ONE),
    *(Right.READ, Right.READ | Right.WRITE, Right(0)),
    *(
        Item((1, {2})),
        Item(None, ["x"]),
        Point(1, 2),
        Derived(2),
        Box(),
        Box(Box({1})),
        Strict(n=2**63),
    ),
    *(Normal("x"), Pair(1), Pair([Pair((), {1})], "r"), Line(Point(1), Point(2))),
]


@pytest.mark.parametrize(
    "value", VALUES, ids=[f"{type(value).__name__}-{number}" for number, value in enumerate(VALUES)]
)
class TestRoundTrips:
    """Peers 55: the fixed list."""

    def test_a_value_comes_back(self, value):
        assert same(CODEC.decode(CODEC.encode(value)), value)

    def test_a_value_comes_back_from_inside_others(self, value):
        around = {"a": [value, (value,)], "b": Box({"k": value})}

        assert same(CODEC.decode(CODEC.encode(around))["a"], [value, (value,)])
        assert same(CODEC.decode(CODEC.encode(around))["b"].inside, {"k": value})

    def test_a_value_comes_back_from_a_memoryview(self, value):
        assert same(CODEC.decode(memoryview(CODEC.encode(value))), value)

    def test_encoding_is_repeatable(self, value):
        assert CODEC.encode(value) == CODEC.encode(value)

    def test_the_digest_is_of_the_value_and_not_of_the_object(self, value):
        again = CODEC.decode(CODEC.encode(value))

        assert CODEC.digest({"v": again}) == CODEC.digest({"v": value})


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.text(st.characters(categories=["Cs", "Ll"]), max_size=3)
    | st.binary()
)
atoms = (
    scalars
    | st.complex_numbers()
    | st.decimals(allow_nan=True)
    | st.fractions()
    | st.uuids()
    | st.dates()
    | st.times(timezones=st.just(dt.UTC) | st.none())
    | st.datetimes(timezones=st.timezones() | st.none(), allow_imaginary=False)
    | st.timedeltas()
    | st.sampled_from([Color.RED, Level.LOW, Name.A, Right.READ | Right.WRITE, Outer.Inner.ONE])
    | st.builds(range, st.integers(), st.integers(), st.integers(1, 9))
    | st.builds(pathlib.PurePosixPath, st.text(max_size=5))
    | st.builds(Point, st.integers(), st.integers())
)
hashable = (
    st.integers() | st.text(max_size=3) | st.tuples(st.integers(), st.text(max_size=2)) | st.uuids()
)


def containers(inner):
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.dictionaries(hashable, inner, max_size=3).map(collections.OrderedDict)
        | st.dictionaries(hashable, inner, max_size=3).map(
            lambda d: collections.defaultdict(list, d)
        )
        | st.sets(hashable, max_size=4)
        | st.frozensets(hashable, max_size=4)
        | st.builds(lambda items: collections.deque(items, 4), st.lists(inner, max_size=4))
        | st.builds(Box, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Item, inner, st.lists(st.text(max_size=2), max_size=2))
    )


values = st.recursive(atoms, containers, max_leaves=12)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(values)
def test_any_value_comes_back(value):
    assert same(CODEC.decode(CODEC.encode(value)), value)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(values)
def test_any_value_comes_back_through_a_plan_of_no_type(value):
    plan = CODEC.plan(None)

    assert same(plan.decode(plan.encode(value)), value)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.text(max_size=3), values, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_a_mapping_does_not_change_its_digest(value, random):
    keys = list(value)
    random.shuffle(keys)

    assert CODEC.digest({key: value[key] for key in keys}) == CODEC.digest(value)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": (1,)}, {"a": [1]}),
        ({"a": {1}}, {"a": frozenset({1})}),
        ({"a": "1"}, {"a": b"1"}),
        ({"a": None}, {}),
        ({1: 2}, {2: 1}),
        ({(1, 2): 3}, {(1, 3): 2}),
        ({"a": {"b": 1}, "c": {}}, {"a": {}, "c": {"b": 1}}),
    ],
)
def test_values_that_differ_have_different_digests(left, right):
    assert CODEC.digest(left) != CODEC.digest(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}),
        ({"a": {3, 1, 2}}, {"a": {1, 2, 3}}),
        ({1: "a", "b": 2}, {"b": 2, 1: "a"}),
        ({"s": {("x", 1), ("y", 2)}, 2**70: 1}, {2**70: 1, "s": {("y", 2), ("x", 1)}}),
        ({"i": Item({1: 2, (3,): 4})}, {"i": Item({(3,): 4, 1: 2})}),
        (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    ],
)
def test_order_that_says_nothing_is_not_in_the_digest(left, right):
    assert CODEC.digest(left) == CODEC.digest(right)


def test_a_digest_is_the_same_in_every_version():
    """Digests are stored: a changed one would take the same call for another."""
    assert (
        CODEC.digest({"url": "https://example.com", "n": 1}).hex()
        == "7cb234c4935f847a059cf1f4aefb18e2"
    )
    assert (
        CODEC.digest({"at": (1, 2), "tags": {"a", "b"}}).hex() == "0dd736cb3b84b206f838450a03711a5c"
    )


class TestExceptions:
    """Peers 55: exceptions are among the values."""

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("a", 1),
            KeyError("k"),
            FileNotFoundError(2, "No such file", "x"),
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
            ExceptionGroup("two", [ValueError(1), OSError(2, "x")]),
            StopIteration((1, 2)),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_a_built_in_exception_comes_back_with_its_arguments(self, error):
        again = CODEC.decode(CODEC.encode([error]))[0]

        assert type(again) is type(error)
        assert repr(again) == repr(error)
        assert str(again) == str(error)

    def test_notes_and_attributes_come_back(self):
        error = ValueError("a")
        error.add_note("n")
        error.extra = (1,)
        again = CODEC.decode(CODEC.encode(error))

        assert again.__notes__ == ["n"]
        assert again.extra == (1,)

    def test_a_registered_exception_comes_back_though_its_init_takes_other_arguments(self):
        again = CODEC.decode(CODEC.encode(Failed(1, b=2)))

        assert (type(again), again.args, again.a, again.b) == (Failed, ("1 2",), 1, 2)


class TestObjects:
    def test_fields_that_init_does_not_take_come_back(self):
        """Peers 53: dataclasses with init=False fields."""
        item = Item(1)
        item.size = 99

        assert CODEC.decode(CODEC.encode(item)).size == 99

    def test_attributes_beside_the_fields_come_back(self):
        item = Item(1)
        item.extra = (1, 2)

        assert CODEC.decode(CODEC.encode(item)).extra == (1, 2)
        assert CODEC.decode(CODEC.encode(Derived(2))).double == 4

    def test_a_cached_property_is_computed_again(self):
        value = Derived(2)
        assert value.triple == 6

        assert "triple" not in vars(CODEC.decode(CODEC.encode(value)))

    def test_what_post_init_would_change_comes_back_as_it_was(self):
        value = Normal("x")
        value.text = "  y  "

        assert CODEC.decode(CODEC.encode(value)).text == "  y  "

    def test_a_frozen_class_comes_back(self):
        assert CODEC.decode(CODEC.encode(Point(1, 2))) == Point(1, 2)

    def test_an_alias_of_a_member_is_the_member(self):
        assert CODEC.decode(CODEC.encode(Color.CRIMSON)) is Color.RED


def test_a_deep_map_with_keys_of_its_own_kind_is_walked_once_a_level():
    value = {"leaf": 1}
    for _ in range(60):
        value = {"a": value, (1,): 0}

    assert CODEC.decode(CODEC.encode(value)) == value
