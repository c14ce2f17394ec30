"""From a value of any supported type to a tree of plain ones, exactly; see `_marks.py`."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import fractions
import itertools
import pathlib
import uuid
import zoneinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from beamweaver.checkpoint._classes import Classes, is_storable
from beamweaver.checkpoint._marks import SCALARS, Mark, Refused, step_into, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["BUILTIN_EXCEPTIONS", "FACTORIES", "PATHS", "Walker", "is_plain"]

Tree: TypeAlias = Any
"""None, bool, int, float, str, bytes, or a list or dict of these, or a mark."""

MARKS: Final = {mark: msgspec.msgpack.Ext(int(mark), b"") for mark in Mark}
PATHS: Final[dict[str, type[pathlib.PurePath]]] = {
    cls.__name__: cls
    for cls in (
        pathlib.PosixPath,
        pathlib.WindowsPath,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
    )
}
FACTORIES: Final[dict[str, type]] = {
    cls.__name__: cls
    for cls in (list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes)
}
BUILTIN_EXCEPTIONS: Final[dict[str, type[Exception]]] = {
    name: item
    for name, item in vars(__import__("builtins")).items()
    if isinstance(item, type) and issubclass(item, Exception)
}
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 64) - 1


def is_plain(value: object, depth: int) -> bool:
    """Whether msgpack alone gives a value back exactly (sizes of ints and surrogates aside).

    Args:
        value: Any value.
        depth: How deep it may nest.
    """
    kind = type(value)
    if kind in SCALARS:
        return True
    if depth <= 0:
        return False
    if isinstance(value, dict) and kind is dict:
        return SCALARS.issuperset(map(type, value)) and _all_plain(value.values(), depth - 1)
    if isinstance(value, list) and kind is list:
        return _all_plain(value, depth - 1)
    return False


def _all_plain(items: Iterable[object], depth: int) -> bool:
    for item in items:  # noqa: SIM110 the hottest loop of all: a generator costs twice as much
        if type(item) not in SCALARS and not is_plain(item, depth):
            return False
    return True


class Walker:
    """Turns values into trees.

    Args:
        classes: The classes that may be stored.
        depth: How deep a value may nest.
    """

    def __init__(self, classes: Classes, depth: int) -> None:
        self._classes = classes
        self._depth = depth
        self._by_type: dict[type, Callable[[Any, int], Tree]] = {
            int: self._int,
            str: self._text,
            list: partial(self._many, ()),
            dict: self._dict,
            tuple: partial(self._many, (MARKS[Mark.TUPLE],)),
            set: partial(self._members, Mark.SET),
            frozenset: partial(self._members, Mark.FROZENSET),
            bytearray: lambda value, _: [MARKS[Mark.BYTEARRAY], bytes(value)],
            collections.OrderedDict: partial(self._pairs, (MARKS[Mark.ORDERED_DICT],)),
            collections.Counter: partial(self._pairs, (MARKS[Mark.COUNTER],)),
            collections.defaultdict: self._default_dict,
            collections.deque: self._deque,
            range: self._range,
            complex: lambda value, _: [MARKS[Mark.COMPLEX], value.real, value.imag],
            fractions.Fraction: self._fraction,
            decimal.Decimal: lambda value, _: [MARKS[Mark.DECIMAL], str(value)],
            uuid.UUID: lambda value, _: [MARKS[Mark.UUID], value.bytes],
            dt.date: lambda value, _: [MARKS[Mark.DATE], value.isoformat()],
            dt.time: lambda value, depth: self._moment(Mark.TIME, value, depth),
            dt.datetime: lambda value, depth: self._moment(Mark.DATETIME, value, depth),
            dt.timedelta: lambda value, _: [MARKS[Mark.TIMEDELTA], *_delta(value)],
            dt.timezone: _timezone,
            zoneinfo.ZoneInfo: _zone,
        }
        self._by_type.update(dict.fromkeys(PATHS.values(), self._path))
        self._by_type.update(dict.fromkeys(BUILTIN_EXCEPTIONS.values(), self._exception))

    def walk(self, value: object) -> Tree:
        """The tree of a value.

        Raises:
            Refused: It, or something in it, cannot be stored.
        """
        return self._walk(value, self._depth)

    def _walk(self, value: object, depth: int) -> Tree:
        kind = type(value)
        handler = self._by_type.get(kind)
        if handler is not None:
            if depth <= 0 and kind not in SCALARS:
                raise self._too_deep(kind)
            return handler(value, depth - 1)
        if kind in SCALARS:
            return value
        return self._other(value, depth)

    # ---- scalars ---------------------------------------------------------------------------------

    def _int(self, value: int, _depth: int) -> Tree:
        if _MIN_INT <= value <= _MAX_INT:
            return value
        return [MARKS[Mark.INT], value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)]

    def _text(self, value: str, _depth: int) -> Tree:
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            return [MARKS[Mark.TEXT], value.encode("utf-8", "surrogatepass")]
        return value

    def _range(self, value: range, depth: int) -> Tree:
        ends = (value.start, value.stop, value.step)
        return [MARKS[Mark.RANGE], *(self._walk(end, depth) for end in ends)]

    def _fraction(self, value: fractions.Fraction, depth: int) -> Tree:
        parts = (value.numerator, value.denominator)
        return [MARKS[Mark.FRACTION], *(self._walk(part, depth) for part in parts)]

    def _path(self, value: pathlib.PurePath, depth: int) -> Tree:
        return [MARKS[Mark.PATH], type(value).__name__, self._walk(str(value), depth)]

    def _moment(self, mark: Mark, value: dt.time | dt.datetime, depth: int) -> Tree:
        zone = value.tzinfo
        if zone is not None and type(zone) not in (dt.timezone, zoneinfo.ZoneInfo):
            raise Refused(
                f"its zone is a {type_name(type(zone))}; use zoneinfo.ZoneInfo or datetime.timezone",
                type_name(type(value)),
            )
        text = value.replace(tzinfo=None, fold=0).isoformat()
        return [MARKS[mark], text, value.fold, self._walk(zone, depth)]

    # ---- containers ------------------------------------------------------------------------------

    def _many(self, start: tuple[Tree, ...], value: Iterable[object], depth: int) -> Tree:
        """The items behind `start`, which is empty or a mark and what belongs to it."""
        tree: list[Tree] = [*start]
        walk = self._walk
        try:
            for item in value:
                tree.append(walk(item, depth))  # noqa: PERF401 the length tells where it stopped
        except Refused as refused:
            refused.steps.append(f"[{len(tree) - len(start)}]")
            raise
        return tree

    def _members(self, mark: Mark, value: Iterable[object], depth: int) -> Tree:
        tree: list[Tree] = [MARKS[mark]]
        for item in value:
            try:
                tree.append(self._walk(item, depth))
            except Refused as refused:
                refused.steps.append("{*}")
                raise
        return tree

    def _dict(self, value: dict[Any, object], depth: int) -> Tree:
        tree: dict[object, Tree] = {}
        walk = self._walk
        for key, item in value.items():
            try:
                name = walk(key, depth)
                if type(name) is list:
                    break  # a key that is no scalar
                tree[name] = walk(item, depth)
            except Refused as refused:
                refused.steps.append(step_into(key))
                raise
        else:
            return tree
        # What is walked stays so: each level would double the work of the one inside it otherwise.
        done = itertools.chain.from_iterable(tree.items())
        rest = dict(itertools.islice(value.items(), len(tree), None))
        return self._pairs((MARKS[Mark.MAP], *done), rest, depth)

    def _pairs(self, start: tuple[Tree, ...], value: Mapping[object, object], depth: int) -> Tree:
        _no_attributes(value)
        tree: list[Tree] = [*start]
        for key, item in value.items():
            try:
                tree.append(self._walk(key, depth))
                tree.append(self._walk(item, depth))
            except Refused as refused:
                refused.steps.append(step_into(key))
                raise
        return tree

    def _default_dict(self, value: collections.defaultdict[object, object], depth: int) -> Tree:
        factory = value.default_factory
        name = None if factory is None else self._factory_name(factory)
        return self._pairs((MARKS[Mark.DEFAULT_DICT], name), value, depth)

    def _factory_name(self, factory: Any) -> str:
        name = getattr(factory, "__name__", "")
        if FACTORIES.get(name) is factory:
            return str(name)
        registered = self._classes.names.get(factory) if isinstance(factory, type) else None
        if registered is None or registered in FACTORIES:
            raise Refused(
                f"its factory {factory!r} cannot be stored; use list, dict, set, int, float or str, or a "
                "registered class",
                "collections.defaultdict",
            )
        return registered

    def _deque(self, value: collections.deque[object], depth: int) -> Tree:
        return self._many((MARKS[Mark.DEQUE], value.maxlen), value, depth)

    # ---- objects -----------------------------------------------------------------------------------

    def _exception(self, value: Exception, depth: int) -> Tree:
        # What an exception is pickled by: the arguments of its class, then attributes.
        parts: Any = value.__reduce__()
        state: dict[Any, object] = {
            "args": list(parts[1]),
            "attributes": dict(parts[2]) if len(parts) > 2 else {},
        }
        return [MARKS[Mark.EXCEPTION], type(value).__name__, self._dict(state, depth)]

    def _other(self, value: object, depth: int) -> Tree:
        cls = type(value)
        name = self._classes.names.get(cls)
        if name is None:
            raise Refused(_cure(value), type_name(cls))
        if depth <= 0:
            raise self._too_deep(cls)
        if isinstance(value, enum.Enum):
            return self._enum(value, name, depth - 1)
        state = self._classes.forms[cls].take(value)
        # The state stands for the value itself: it is no level of its own.
        tree = self._dict(state, depth - 1) if type(state) is dict else self._walk(state, depth)
        return [MARKS[Mark.OBJECT], name, tree]

    def _too_deep(self, cls: type) -> Refused:
        return Refused(
            f"it nests deeper than {self._depth} levels (is it a cycle?)", type_name(cls)
        )

    def _enum(self, value: enum.Enum, name: str, depth: int) -> Tree:
        member = value._name_
        if type(value)._member_map_.get(member) is value:
            return [MARKS[Mark.ENUM], name, member]
        return [MARKS[Mark.ENUM], name, None, self._walk(value._value_, depth)]


def _no_attributes(value: object) -> None:
    extras = getattr(value, "__dict__", None)
    if extras:
        raise Refused(f"its attributes {sorted(extras)!r} would be lost", type_name(type(value)))


def _delta(value: dt.timedelta) -> tuple[int, int, int]:
    return value.days, value.seconds, value.microseconds


def _timezone(value: dt.timezone, _depth: int) -> Tree:
    offset = value.utcoffset(None)
    name = value.tzname(None)
    default = dt.timezone(offset).tzname(None)
    return [MARKS[Mark.TIMEZONE], *_delta(offset), None if name == default else name]


def _zone(value: zoneinfo.ZoneInfo, _depth: int) -> Tree:
    if value.key is None:
        raise Refused(
            "a zone without a key cannot be stored; make it by its key", "zoneinfo.ZoneInfo"
        )
    return [MARKS[Mark.ZONE], value.key]


def _cure(value: object) -> str:
    """Why a value of an unknown class cannot be stored, and what to do."""
    cls = type(value)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return "code cannot be stored; keep a name in the state and look the code up in the node"
    if is_storable(cls):
        return (
            f"its class is not known to the codec; declare {cls.__name__} in the graph's schema, or pass "
            f"Codec(types=[{cls.__name__}])"
        )
    base = next((base for base in _plain_bases() if isinstance(value, base)), None)
    if base is not None:
        return f"a subclass would come back as another type; convert it: {base.__name__}(value)"
    if hasattr(value, "tolist"):
        return (
            "it is no plain value; convert it by .tolist(), or keep it in a file and store the path"
        )
    if any(hasattr(value, name) for name in ("fileno", "acquire", "__next__", "send")):
        cure = "open it in the node that uses it, or keep it in an Untracked key"
        return f"an open handle cannot be stored; {cure}"
    return (
        "it is no plain value; store its data (a dict, dataclass or Struct), or register the class with "
        "encode= and decode="
    )


def _plain_bases() -> Iterator[type]:
    yield from (bool, int, float, str, bytes, list, tuple, set, frozenset, dict)
    yield from (collections.deque, dt.datetime, dt.date, dt.time, decimal.Decimal)
