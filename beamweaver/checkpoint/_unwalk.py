"""From a tree back to the value; see `_marks.py`. A tree may be damaged or hostile: nothing is believed."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from beamweaver.checkpoint._marks import SCALARS, Broken, Mark, step_into, type_name
from beamweaver.checkpoint._walk import BUILTIN_EXCEPTIONS, FACTORIES, PATHS

if TYPE_CHECKING:
    from beamweaver.checkpoint._classes import Classes

__all__ = ["Unwalker"]

Maker: TypeAlias = Callable[[list[Any]], object]


class _Marked:
    """A mark, as it is met in a tree that was read."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Maker) -> None:
        self.name = name
        self.make = make


class Unwalker:
    """Reads walked values.

    Args:
        classes: The classes that may be made.
    """

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        makers: dict[Mark, Maker] = {
            Mark.TUPLE: lambda tree: tuple(self._rest(tree, 1)),
            Mark.SET: lambda tree: set(self._rest(tree, 1)),
            Mark.FROZENSET: lambda tree: frozenset(self._rest(tree, 1)),
            Mark.INT: lambda tree: int.from_bytes(_only(tree, bytes), "big", signed=True),
            Mark.TEXT: lambda tree: _only(tree, bytes).decode("utf-8", "surrogatepass"),
            Mark.BYTEARRAY: lambda tree: bytearray(_only(tree, bytes)),
            Mark.MAP: lambda tree: dict(self._pairs(tree, 1)),
            Mark.ORDERED_DICT: lambda tree: collections.OrderedDict(self._pairs(tree, 1)),
            Mark.DEFAULT_DICT: self._default_dict,
            Mark.COUNTER: lambda tree: collections.Counter(dict(self._pairs(tree, 1))),
            Mark.DEQUE: lambda tree: collections.deque(self._rest(tree, 2), tree[1]),
            Mark.RANGE: lambda tree: range(*self._rest(tree, 1)),
            Mark.COMPLEX: lambda tree: complex(*_all_of(float, tree[1:3])),
            Mark.FRACTION: lambda tree: fractions.Fraction(*_all_of(int, self._rest(tree, 1))),
            Mark.DECIMAL: lambda tree: decimal.Decimal(_only(tree, str)),
            Mark.UUID: lambda tree: uuid.UUID(bytes=_only(tree, bytes)),
            Mark.PATH: self._path,
            Mark.DATE: lambda tree: dt.date.fromisoformat(_only(tree, str)),
            Mark.TIME: lambda tree: self._moment(dt.time.fromisoformat(tree[1]), tree),
            Mark.DATETIME: lambda tree: self._moment(dt.datetime.fromisoformat(tree[1]), tree),
            Mark.TIMEDELTA: lambda tree: dt.timedelta(*tree[1:4]),
            Mark.TIMEZONE: _timezone,
            Mark.ZONE: lambda tree: zoneinfo.ZoneInfo(_only(tree, str)),
            Mark.ENUM: self._enum,
            Mark.OBJECT: self._object,
            Mark.EXCEPTION: self._exception,
        }
        self._marks = {int(mark): _Marked(mark.name, make) for mark, make in makers.items()}
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._mark)

    def read(self, data: bytes | memoryview) -> object:
        """The value of a tree's bytes.

        Raises:
            Broken: They stand for no value.
            msgspec.DecodeError: They are no msgpack.
            RecursionError: They nest too deep.
        """
        return self._value(self._decoder.decode(data))

    def _mark(self, code: int, _data: memoryview) -> object:
        mark = self._marks.get(code)
        if mark is None:
            raise Broken(f"the mark {code} is unknown; upgrade beamweaver")
        return mark

    def _value(self, tree: object) -> object:
        kind = type(tree)
        if kind in SCALARS:
            return tree
        if isinstance(tree, list):
            if not tree or not isinstance(tree[0], _Marked):
                return list(self._rest(tree, 0))
            mark = tree[0]
            try:
                return mark.make(tree)
            except (Broken, RecursionError):
                raise
            except Exception as error:  # a damaged tree fails in any way that its class can
                raise Broken(f"its stored form is damaged: {error!r}", mark.name.lower()) from error
        if isinstance(tree, dict):
            return self._dict(tree)
        raise Broken("a mark stands where a value should be", type_name(kind))

    def _rest(self, tree: list[Any], start: int) -> Iterator[Any]:
        for index in range(start, len(tree)):
            item = tree[index]
            if type(item) in SCALARS:
                yield item
                continue
            try:
                yield self._value(item)
            except Broken as broken:
                broken.steps.append(f"[{index - start}]")
                raise

    def _dict(self, tree: dict[Any, Any]) -> dict[Any, Any]:
        for key, item in tree.items():
            if type(item) in SCALARS and type(key) in SCALARS:
                continue
            try:
                self._value(key)
                tree[key] = self._value(item)  # the keys stay, so this may be done on the way
            except Broken as broken:
                broken.steps.append(step_into(key))
                raise
        return tree

    def _pairs(self, tree: list[Any], start: int) -> Iterator[tuple[Any, Any]]:
        for index in range(start, len(tree), 2):
            key = self._value(tree[index])
            try:
                yield key, self._value(tree[index + 1])
            except Broken as broken:
                broken.steps.append(step_into(key))
                raise

    def _default_dict(self, tree: list[Any]) -> object:
        name = tree[1]
        factory = None if name is None else FACTORIES.get(name) or self._classes.named(name)
        return collections.defaultdict(factory, self._pairs(tree, 2))

    def _path(self, tree: list[Any]) -> object:
        return PATHS[tree[1]](str(self._value(tree[2])))

    def _moment(self, moment: dt.time | dt.datetime, tree: list[Any]) -> object:
        zone = self._value(tree[3])
        if zone is not None and not isinstance(zone, dt.tzinfo):
            raise Broken("its zone is none", "zone")
        return moment.replace(tzinfo=zone, fold=tree[2])

    def _enum(self, tree: list[Any]) -> object:
        cls: Any = self._classes.named(tree[1])
        if tree[2] is None:
            return cls(self._value(tree[3]))
        member = cls._member_map_.get(tree[2])
        if member is None:
            raise Broken(
                f"{type_name(cls)} has no member {tree[2]!r} any more; keep the member",
                type_name(cls),
            )
        return member

    def _object(self, tree: list[Any]) -> object:
        cls = self._classes.named(tree[1])
        state = tree[2]
        state = self._dict(state) if isinstance(state, dict) else self._value(state)
        return self._classes.forms[cls].make(state)

    def _exception(self, tree: list[Any]) -> object:
        state: Any = self._value(tree[2])
        error = BUILTIN_EXCEPTIONS[tree[1]](*state["args"])
        error.__setstate__(state["attributes"])
        return error


def _only(tree: list[Any], kind: type) -> Any:
    """The one thing that follows a mark."""
    if type(tree[1]) is not kind:
        raise TypeError(f"{kind.__name__} expected")
    return tree[1]


def _all_of(kind: type, items: Iterable[Any]) -> list[Any]:
    """The items, which must be of one type: a text would be parsed, and that can take for ever."""
    found = list(items)
    if any(type(item) is not kind for item in found):
        raise TypeError(f"{kind.__name__} expected")
    return found


def _timezone(tree: list[Any]) -> dt.timezone:
    offset, name = dt.timedelta(*tree[1:4]), tree[4]
    if name is not None:
        return dt.timezone(offset, name)
    return dt.timezone(offset) if offset else dt.UTC
