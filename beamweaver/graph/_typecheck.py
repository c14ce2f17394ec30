"""Checks of values against annotations, without converting anything.

An annotation is compiled once into a `Checker`; a value whose exact type is in `exact` needs no
further look. Classes are checked by `isinstance` and not looked into: their own constructor is the
judge of their fields. An annotation that this module does not know accepts everything.
"""

from __future__ import annotations

import collections
import collections.abc as cabc
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

__all__ = ["ANYTHING", "Checker", "Fault", "checker", "required_keys", "strip", "type_name"]

Fault: TypeAlias = tuple[str, str, object]
"""Where in the value, what is expected there, and what is there."""
_Look: TypeAlias = Callable[[object], Fault | None]


class Checker:
    """A compiled annotation.

    Attributes:
        exact: Types whose own instances need no further look.
        text: How a message writes the annotation.
    """

    __slots__ = ("_look", "exact", "text")

    def __init__(self, text: str, exact: Iterable[type] = (), look: _Look | None = None) -> None:
        self.text = text
        self.exact = frozenset(exact)
        self._look = look

    def fault(self, value: object) -> Fault | None:
        """What is wrong with the value, or None."""
        if type(value) in self.exact:
            return None
        if self._look is None:
            return ("", self.text, value)
        return self._look(value)


def _accept(_value: object) -> None:
    return None


ANYTHING: Final = Checker("anything", (), _accept)

_NAMED: Final[dict[Any, str]] = {Any: "Any", None: "None", type(None): "None", Ellipsis: "..."}
_SCALARS: Final = (int, str, bytes, float, complex, bool, bytearray)
_MANY: Final = (list, set, frozenset)
_WRAPPERS: Final = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar", "Annotated"}


def _is_wrapper(origin: object) -> bool:
    return getattr(origin, "_name", None) in _WRAPPERS or origin is typing.Annotated


def strip(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The bare type of `Annotated`, `Required`, `NotRequired`, `ReadOnly`, and the metadata."""
    metadata: tuple[Any, ...] = ()
    while True:
        own = getattr(annotation, "__metadata__", None)
        if own is not None:
            metadata = (*own, *metadata)
            annotation = annotation.__origin__
        elif _is_wrapper(get_origin(annotation)):
            annotation = get_args(annotation)[0]
        else:
            return annotation, metadata


def type_name(annotation: Any, *, qualified: bool = False) -> str:
    """An annotation as text: `list[str]`, `int | None`; with modules where `qualified`."""
    annotation, _ = strip(annotation)
    if annotation in _NAMED:
        return _NAMED[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType}:
        return " | ".join(type_name(arg, qualified=qualified) for arg in args)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if origin is not None and args and not isinstance(args[0], list):
        inner = ", ".join(type_name(arg, qualified=qualified) for arg in args)
        return f"{type_name(origin, qualified=qualified)}[{inner}]"
    if qualified and isinstance(annotation, type) and annotation.__module__ != "builtins":
        return f"{annotation.__module__}.{annotation.__qualname__}"
    return str(getattr(annotation, "__name__", annotation))


def checker(annotation: Any) -> Checker:
    """Compile an annotation."""
    annotation, _ = strip(annotation)
    if annotation is None or annotation is type(None):
        return Checker("None", (type(None),))
    if hasattr(annotation, "__supertype__"):  # NewType
        return checker(annotation.__supertype__)
    if hasattr(annotation, "__value__"):  # a `type X = …` statement; it may name itself
        return _lazy(annotation)
    text = type_name(annotation)
    if get_origin(annotation) is None:
        return _plain(annotation, text)
    return _special(get_origin(annotation), get_args(annotation), text)


def _special(origin: Any, args: tuple[Any, ...], text: str) -> Checker:
    if origin in {Union, types.UnionType}:
        return _union([checker(arg) for arg in args], text)
    if origin is Literal:
        return Checker(text, (), _literal(args, text))
    if origin is cabc.Callable:
        return Checker(text, (), _callable)
    if not isinstance(origin, type):
        return ANYTHING
    if origin is type:
        return Checker(text, (), _instance(type, text))
    return _generic(origin, args, text)


def _lazy(alias: Any) -> Checker:
    made: list[Checker] = []

    def look(value: object) -> Fault | None:
        if not made:
            made.append(checker(alias.__value__))
        return made[0].fault(value)

    return Checker(type_name(alias), (), look)


def _plain(annotation: Any, text: str) -> Checker:
    if annotation is Any or annotation is object or not isinstance(annotation, type):
        return ANYTHING
    if typing.is_typeddict(annotation):
        return _typed_dict(annotation, text)
    if getattr(annotation, "_is_protocol", False) and not _can_test(annotation):
        return ANYTHING
    if annotation is float:
        return Checker(text, (float, int), _instance(float, text))  # PEP 484: an int is a float
    if annotation is complex:
        return Checker(text, (complex, float, int), _instance(complex, text))
    return Checker(text, (annotation,), _instance(annotation, text))


def _can_test(protocol: type) -> bool:
    try:
        isinstance(None, protocol)
    except TypeError:
        return False
    return True


def _instance(cls: type, text: str) -> _Look:
    def look(value: object) -> Fault | None:
        # Python's bool is an int, but nobody who writes `n: int` means True.
        if isinstance(value, cls) and not (cls in _SCALARS and type(value) is bool):
            return None
        return ("", text, value)

    return look


def _callable(value: object) -> Fault | None:
    return None if callable(value) else ("", "a callable", value)


def _literal(values: tuple[object, ...], text: str) -> _Look:
    def look(value: object) -> Fault | None:
        if any(type(value) is type(known) and value == known for known in values):
            return None
        return ("", text, value)

    return look


def _union(members: list[Checker], text: str) -> Checker:
    if any(member is ANYTHING for member in members):
        return ANYTHING
    exact = frozenset[type]().union(*(member.exact for member in members))

    def look(value: object) -> Fault | None:
        inner: Fault | None = None
        for member in members:
            fault = member.fault(value)
            if fault is None:
                return None
            if fault[0]:  # the value is of this member's kind; its inside is wrong
                inner = fault
        return inner or ("", text, value)

    return Checker(text, exact, look)


def _typed_dict(cls: Any, text: str) -> Checker:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError:
        return Checker(text, (), _instance(dict, text))
    required = required_keys(cls, hints)
    members: dict[str, Checker] = {}

    def look(value: object) -> Fault | None:
        if not members and hints:
            members.update((key, checker(hint)) for key, hint in hints.items())
        if not isinstance(value, dict):
            return ("", text, value)
        for key in value.keys() - members.keys():
            return (f"[{key!r}]", f"no such key ({text} has {', '.join(members)})", value[key])
        for key in sorted(required - value.keys()):
            return ("", f"{text} with the key {key!r}", value)
        return _first_fault((f"[{key!r}]", members[key], item) for key, item in value.items())

    return Checker(text, (), look)


def required_keys(cls: Any, hints: Mapping[str, Any]) -> frozenset[str]:
    """The keys that a TypedDict must have."""
    # Under postponed annotations the class itself does not see Required and NotRequired.
    marks = {key: _mark(hint) for key, hint in hints.items()}
    needed = {key for key, mark in marks.items() if mark == "Required"}
    return frozenset(
        key
        for key in cls.__required_keys__ | needed
        if key in hints and marks[key] != "NotRequired"
    )


def _mark(hint: Any) -> str:
    while hasattr(hint, "__metadata__") or _is_wrapper(get_origin(hint)):
        name = getattr(get_origin(hint), "_name", None)
        if name in {"Required", "NotRequired"}:
            return str(name)
        hint = hint.__origin__ if hasattr(hint, "__metadata__") else get_args(hint)[0]
    return ""


def _first_fault(parts: Iterable[tuple[str, Checker, object]]) -> Fault | None:
    for path, member, item in parts:
        fault = member.fault(item)
        if fault is not None:
            return (path + fault[0], fault[1], fault[2])
    return None


def _generic(origin: type, args: tuple[Any, ...], text: str) -> Checker:
    members = [ANYTHING if isinstance(arg, list) else checker(arg) for arg in args]
    if origin is tuple:
        return _tuple(args, members, text)
    if issubclass(origin, cabc.Mapping) and len(members) == 2:
        return _container(origin, text, members, _mapping_look(members[0], members[1]))
    if issubclass(origin, collections.Counter):
        return _container(origin, text, members, _mapping_look(members[0], checker(int)))
    if issubclass(origin, (cabc.Sequence, cabc.Set, collections.deque)) and len(members) == 1:
        return _container(origin, text, members, _items_look(members[0]))
    return Checker(text, (origin,), _instance(origin, text))


def _container(origin: type, text: str, members: list[Checker], inside: _Look) -> Checker:
    outside = _instance(origin, text)
    if all(member is ANYTHING for member in members):
        return Checker(text, (origin,), outside)
    if origin in _MANY:
        return Checker(text, (), _many_look(origin, members[0].exact, outside, inside))

    def look(value: object) -> Fault | None:
        return outside(value) or inside(value)

    return Checker(text, (), look)


def _many_look(origin: type, exact: frozenset[type], outside: _Look, inside: _Look) -> _Look:
    """The look at a list or a set, which most often is one, of items that need no look."""

    def look(value: Any) -> Fault | None:
        kind: type = type(value)
        if kind is origin and exact.issuperset(map(type, value)):
            return None
        return outside(value) or inside(value)

    return look


def _all_exact(items: Iterable[object], member: Checker) -> bool:
    return member is ANYTHING or member.exact.issuperset(map(type, items))


def _items_look(member: Checker) -> _Look:
    def look(value: Any) -> Fault | None:
        if isinstance(value, str) or _all_exact(value, member):
            return None
        return _first_fault((f"[{index}]", member, item) for index, item in enumerate(value))

    return look


def _mapping_look(keys: Checker, values: Checker) -> _Look:
    def look(value: object) -> Fault | None:
        mapping: Mapping[object, object] = value  # type: ignore[assignment]  # the caller tested it
        if not _all_exact(mapping, keys):
            fault = _first_fault((f" key {key!r}", keys, key) for key in mapping)
            if fault is not None:
                return fault
        if _all_exact(mapping.values(), values):
            return None
        return _first_fault((f"[{key!r}]", values, item) for key, item in mapping.items())

    return look


def _tuple(args: tuple[Any, ...], members: list[Checker], text: str) -> Checker:
    if len(args) == 2 and args[1] is Ellipsis:
        return _container(tuple, text, members[:1], _items_look(members[0]))

    def look(value: object) -> Fault | None:
        if not isinstance(value, tuple) or len(value) != len(members):
            return ("", text, value)
        pairs = enumerate(zip(members, value, strict=True))
        return _first_fault((f"[{index}]", member, item) for index, (member, item) in pairs)

    return Checker(text, (), look)
