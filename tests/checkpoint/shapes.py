"""Classes whose instances the codec's tests store."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple, TypedDict

import msgspec


class Color(enum.Enum):
    RED = 1
    BLUE = "b"
    CRIMSON = 1  # noqa: PIE796 an alias


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Name(enum.StrEnum):
    A = "a"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Outer:
    class Inner(enum.Enum):
        ONE = (1, 2)


@dataclasses.dataclass
class Item:
    phase: Any
    tags: list[str] = dataclasses.field(default_factory=list)
    size: int = dataclasses.field(init=False, default=3)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass
class Derived:
    n: int

    def __post_init__(self):
        self.double = self.n * 2

    @cached_property
    def triple(self):
        return self.n * 3


class Box(msgspec.Struct):
    inside: Any = None


class Strict(msgspec.Struct, frozen=True, kw_only=True):
    n: int
    when: dt.date | None = None


class Normal(msgspec.Struct):
    text: str

    def __post_init__(self):
        self.text = self.text.strip()


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Line(NamedTuple):
    start: Point
    end: Point


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    price: Decimal
    on: dt.date
    lines: list[Line]
    notes: dict[str, tuple[int, ...]]
    level: Level | None = None


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


class State(TypedDict):
    items: list[Item]
    color: Color


class Failed(Exception):
    def __init__(self, a, *, b):
        super().__init__(f"{a} {b}")
        self.a, self.b = a, b


class Handle:
    """Nothing that can be stored without being told how."""

    def __init__(self, number):
        self.number = number


TYPES = (
    Color,
    Level,
    Name,
    Right,
    Outer.Inner,
    Item,
    Point,
    Derived,
    Box,
    Strict,
    Normal,
    Pair,
    Line,
    Order,
    Node,
    Failed,
)
