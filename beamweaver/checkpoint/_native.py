"""Which declared types msgpack alone carries exactly, and the check that a value is of exactly these.

msgspec flattens tuples, sets, Decimals, UUIDs in untyped places, but gives them back where the type is
known. A check is either a set of exact types, or a function for what a type alone does not tell.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

__all__ = ["Check", "check_of", "hints_of", "passes"]

Check: TypeAlias = frozenset[type] | Callable[[Any], bool]

_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})
_EXACT: Final = _PLAIN | {dt.date, dt.timedelta, uuid.UUID, decimal.Decimal}
_AMBIGUOUS_WITH_NUMBERS: Final = frozenset({dt.timedelta, decimal.Decimal})


def passes(check: Check, value: object) -> bool:
    """Whether a value is of exactly the type of the check."""
    return type(value) in check if isinstance(check, frozenset) else check(value)


def check_of(declared: Any) -> Check | None:
    """The check of a declared type, or None if the type is not native."""
    check = _check(declared, ())
    if check is None:
        return None
    try:
        msgspec.msgpack.Decoder(declared)
    except (TypeError, ValueError, NameError, RecursionError):
        return None  # msgspec does not take it, so the value is walked
    return check


def hints_of(cls: Any) -> dict[str, Any] | None:
    """The types of a class's fields, or None if they cannot be told."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001 evaluating an annotation may raise anything
        return None


def _check(declared: Any, outer: tuple[Any, ...]) -> Check | None:
    if declared is None:
        return frozenset({type(None)})
    if declared in (dt.datetime, dt.time):
        return lambda value: type(value) is declared and value.tzinfo is None and not value.fold
    origin = typing.get_origin(declared)
    if origin is typing.Annotated:
        plain = not any(isinstance(item, msgspec.Meta) for item in declared.__metadata__)
        return _check(declared.__origin__, outer) if plain else None
    if origin in (typing.Union, types.UnionType):
        return _union(declared, outer)
    if origin is not None:
        return _container(origin, typing.get_args(declared), outer)
    if not isinstance(declared, type) or declared in outer:
        return None  # Any, a TypeVar, a string, or a type within itself
    if declared in _EXACT:
        return frozenset({declared})
    if issubclass(declared, enum.Enum):
        return _enum(declared)
    return _fields(declared, (*outer, declared))


def _union(declared: Any, outer: tuple[Any, ...]) -> Check | None:
    """A union of scalars, with at most one other type, which msgpack then tells apart."""
    members = typing.get_args(declared)
    scalars = {type(None) if item is None else item for item in members if item in (*_PLAIN, None)}
    others = [item for item in members if item is not None and item not in scalars]
    if not others:
        return frozenset(scalars)
    lone = scalars <= {type(None)}
    if len(others) > 1 or not (lone or _stands_apart(others[0])):
        return None
    check = _check(others[0], outer)
    if check is None:
        return None
    if isinstance(check, frozenset):
        return check | scalars
    exact, other = frozenset(scalars), check
    return lambda value: type(value) in exact or other(value)


def _stands_apart(declared: Any) -> bool:
    """Whether msgpack cannot take it for a scalar; msgspec itself refuses what is str-like twice."""
    if declared in _AMBIGUOUS_WITH_NUMBERS or declared in (dt.datetime, dt.time, dt.date):
        return False
    return not (isinstance(declared, type) and issubclass(declared, enum.Enum))


def _container(origin: Any, args: tuple[Any, ...], outer: tuple[Any, ...]) -> Check | None:
    if origin is tuple:
        return _tuple(args, outer)
    if origin is dict and len(args) == 2 and args[0] is str:
        item = _check(args[1], outer)
        return None if item is None else _dict_of(item)
    if origin in (list, set) and len(args) == 1:
        item = _check(args[0], outer)
        return None if item is None else _many(origin, item)
    return None


def _many(kind: Any, item: Check) -> Check:
    if isinstance(item, frozenset):
        exact = item

        def typed(value: Any) -> bool:
            return type(value) is kind and exact.issuperset(map(type, value))

        return typed
    check = item

    def checked(value: Any) -> bool:
        return type(value) is kind and all(map(check, value))

    return checked


def _dict_of(item: Check) -> Check:
    names = frozenset({str})
    if isinstance(item, frozenset):
        exact = item
        return lambda value: (
            type(value) is dict
            and names.issuperset(map(type, value))
            and exact.issuperset(map(type, value.values()))
        )
    check = item
    return lambda value: (
        type(value) is dict
        and names.issuperset(map(type, value))
        and all(map(check, value.values()))
    )


def _tuple(args: tuple[Any, ...], outer: tuple[Any, ...]) -> Check | None:
    if len(args) == 2 and args[1] is Ellipsis:
        item = _check(args[0], outer)
        return None if item is None else _many(tuple, item)
    checks = [_check(arg, outer) for arg in args]
    found = [check for check in checks if check is not None]
    if len(found) != len(args):
        return None
    return lambda value: type(value) is tuple and _each(found, value)


def _each(checks: list[Check], values: Any) -> bool:
    return len(checks) == len(values) and all(map(passes, checks, values))


def _enum(cls: type[enum.Enum]) -> Check | None:
    """Msgspec writes an Enum by its value, which must be text or a number of 64 bits."""
    if issubclass(cls, enum.Flag) or "_missing_" in vars(cls):
        return None
    values = [item.value for item in cls]
    if all(type(value) is str and value.isascii() for value in values):
        return frozenset({cls})
    if all(type(value) is int and -(1 << 63) <= value < (1 << 63) for value in values):
        return frozenset({cls})
    return None


def _fields(cls: Any, outer: tuple[Any, ...]) -> Check | None:
    names = _field_names(cls)
    hints = hints_of(cls) if names is not None else None
    if names is None or hints is None or not set(names) <= hints.keys():
        return None
    checks: list[Check] = []
    for name in names:
        check = _check(hints[name], outer)
        if check is None:
            return None
        checks.append(check)
    if issubclass(cls, tuple):
        return lambda value: type(value) is cls and _each(checks, value)
    pairs = list(zip(names, checks, strict=True))
    return lambda value: type(value) is cls and _all_fields(value, names, pairs)


def _all_fields(value: Any, names: list[str], pairs: list[tuple[str, Check]]) -> bool:
    attributes = getattr(value, "__dict__", None)
    if attributes is not None and len(attributes) != len(names):
        return False  # an attribute that is no field, or a field that is not set
    try:
        return all(passes(check, getattr(value, name)) for name, check in pairs)
    except AttributeError:
        return False


def _field_names(cls: Any) -> list[str] | None:
    """The fields of a class that msgspec puts together without losing or running anything."""
    if getattr(cls, "__orig_bases__", None) and typing.Generic in cls.__mro__:
        return None
    if issubclass(cls, tuple):
        return list(cls._fields) if hasattr(cls, "_fields") else None
    if hasattr(cls, "__post_init__"):
        return None
    if issubclass(cls, msgspec.Struct):
        config = cls.__struct_config__
        plain = not (config.omit_defaults or config.dict or config.tag or config.array_like)
        return list(cls.__struct_fields__) if plain else None
    if dataclasses.is_dataclass(cls) and isinstance(cls, type):
        fields = dataclasses.fields(cls)
        return [field.name for field in fields] if all(field.init for field in fields) else None
    return None
