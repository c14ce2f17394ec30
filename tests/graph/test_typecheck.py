"""Checks of values against annotations, and annotations as text."""

from __future__ import annotations

import collections
import collections.abc as cabc
import dataclasses
import datetime as dt
import enum
import sys
import typing
from typing import Any, Literal, NamedTuple, NewType, Optional, Protocol, TypedDict, TypeVar, Union

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.graph._typecheck import checker, type_name


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


class Struct(msgspec.Struct):
    x: int


class Pair(NamedTuple):
    a: int
    b: str


class Item(TypedDict):
    name: str
    size: typing.NotRequired[int]


class Closes(Protocol):
    def close(self) -> None: ...


@typing.runtime_checkable
class Sized(Protocol):
    def __len__(self) -> int: ...


class Marked(TypedDict, total=False):
    a: typing.Annotated[typing.Required[int], "note"]
    b: typing.NotRequired[int]


class Lost(TypedDict):
    a: Nowhere  # noqa: F821


UserId = NewType("UserId", int)
T = TypeVar("T")


class Child(Point):
    pass


GOOD = [
    (int, 1),
    (float, 1.5),
    (float, 1),
    (complex, 1),
    (str, "a"),
    (bytes, b"a"),
    (bool, True),
    (None, None),
    (type(None), None),
    (object, 3),
    (Any, 3),
    (list, [1, "a"]),
    (list[int], [1, 2]),
    (list[int], []),
    (list[Any], [1, "a"]),
    (list[float], [1, 2.5]),
    (dict, {1: 2}),
    (dict[str, int], {"a": 1}),
    (dict[str, Any], {"a": object()}),
    (dict[str, list[int]], {"a": [1]}),
    (collections.OrderedDict[str, int], collections.OrderedDict(a=1)),
    (dict[str, int], collections.OrderedDict(a=1)),
    (collections.Counter[str], collections.Counter("aab")),
    (collections.defaultdict[str, int], collections.defaultdict(int)),
    (set[str], {"a"}),
    (frozenset[int], frozenset({1})),
    (collections.deque[int], collections.deque([1])),
    (tuple, (1, "a")),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[int, ...], ()),
    (tuple[()], ()),
    (Optional[int], None),  # noqa: UP045
    (Union[int, str], "a"),  # noqa: UP007
    (int | str | None, None),
    (list[int] | dict[str, int], {"a": 1}),
    (int | Any, object()),
    (Literal["a", 1], "a"),
    (Literal["a", 1], 1),
    (Colour, Colour.RED),
    (Point, Point(1)),
    (Point, Child(1)),
    (Struct, Struct(1)),
    (Pair, Pair(1, "a")),
    (Item, {"name": "a"}),
    (Item, {"name": "a", "size": 1}),
    (Marked, {"a": 1}),
    (Lost, {"a": object()}),
    (dict[T, int], {object(): 1}),
    (UserId, 1),
    (T, object()),
    (Closes, object()),
    (Sized, [1]),
    (dt.datetime, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    (type[int], int),
    (cabc.Sequence[int], [1]),
    (cabc.Sequence[int], (1,)),
    (cabc.Mapping[str, int], {"a": 1}),
    (cabc.Iterable[int], iter([1])),
    (cabc.Callable[[int], int], len),
    (typing.Annotated[int, "note"], 1),
    ("UnknownName", object()),
]


@pytest.mark.parametrize(("annotation", "value"), GOOD)
def test_a_value_of_the_type_passes(annotation, value):
    assert checker(annotation).fault(value) is None


BAD = [
    (int, "1", "", "int"),
    (int, 1.0, "", "int"),
    (int, True, "", "int"),
    (float, True, "", "float"),
    (float, "1", "", "float"),
    (str, b"a", "", "str"),
    (str, None, "", "str"),
    (bytes, "a", "", "bytes"),
    (bool, 1, "", "bool"),
    (None, 0, "", "None"),
    (list, (1,), "", "list"),
    (list[int], (1,), "", "list[int]"),
    (list[int], [1, "a"], "[1]", "int"),
    (list[int], [True], "[0]", "int"),
    (list[list[int]], [[1], [2, None]], "[1][1]", "int"),
    (dict[str, int], {1: 1}, " key 1", "str"),
    (dict[str, int], {"a": "b"}, "['a']", "int"),
    (dict[str, list[int]], {"a": [1, "b"]}, "['a'][1]", "int"),
    (collections.Counter[str], collections.Counter([1]), " key 1", "str"),
    (set[str], {1}, "[0]", "str"),
    (set[str], ["a"], "", "set[str]"),
    (tuple[int, str], (1,), "", "tuple[int, str]"),
    (tuple[int, str], (1, 2), "[1]", "str"),
    (tuple[int, ...], (1, "a"), "[1]", "int"),
    (int | None, "a", "", "int | None"),
    (list[int] | None, ["a"], "[0]", "int"),
    (Literal["a", 1], True, "", "Literal['a', 1]"),
    (Literal["a"], "b", "", "Literal['a']"),
    (Colour, 1, "", "Colour"),
    (Point, {"x": 1}, "", "Point"),
    (Struct, {"x": 1}, "", "Struct"),
    (Item, {}, "", "Item with the key 'name'"),
    (Item, {"name": 1}, "['name']", "str"),
    (Item, {"name": "a", "sise": 1}, "['sise']", "no such key (Item has name, size)"),
    (Item, [], "", "Item"),
    (Marked, {"b": 1}, "", "Marked with the key 'a'"),
    (Lost, [], "", "Lost"),
    (dict[int | str, int], {1: "a"}, "[1]", "int"),
    (UserId, "1", "", "int"),
    (Sized, 3, "", "Sized"),
    (dt.datetime, "2020-01-01", "", "datetime"),
    (type[int], 3, "", "type[int]"),
    (cabc.Sequence[int], {1}, "", "Sequence[int]"),
    (cabc.Mapping[str, int], [], "", "Mapping[str, int]"),
    (cabc.Callable[[int], int], 3, "", "a callable"),
]


@pytest.mark.parametrize(("annotation", "value", "path", "expected"), BAD)
def test_a_value_of_another_type_is_told_with_its_path(annotation, value, path, expected):
    fault = checker(annotation).fault(value)

    assert fault is not None
    assert fault[:2] == (path, expected)


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, "int"),
        (list[str], "list[str]"),
        (dict[str, int | None], "dict[str, int | None]"),
        (Optional[int], "int | None"),  # noqa: UP045
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["a"], "Literal['a']"),
        (Any, "Any"),
        (None, "None"),
        (Point, "Point"),
        (typing.List[int], "list[int]"),  # noqa: UP006
        (typing.Annotated[int, 3], "int"),
        (UserId, "UserId"),
    ],
)
def test_a_type_is_written_as_code_writes_it(annotation, text):
    assert type_name(annotation) == text


def test_a_qualified_name_has_its_module():
    assert type_name(list[Point], qualified=True) == f"list[{__name__}.Point]"
    assert type_name(list[int], qualified=True) == "list[int]"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement is newer")
def test_a_type_statement_may_name_itself():
    names: dict[str, Any] = {}
    exec("type Json = int | list[Json]", names)

    assert checker(names["Json"]).fault([1, [2]]) is None
    assert checker(names["Json"]).fault([1, ["a"]]) is not None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, "a", "b", True, None]), max_size=6))
def test_the_fast_look_at_a_list_equals_a_look_at_each_item(items):
    fault = checker(list[int | str]).fault(items)
    wrong = [index for index, item in enumerate(items) if type(item) not in (int, str)]

    assert fault == ((f"[{wrong[0]}]", "int | str", items[wrong[0]]) if wrong else None)
