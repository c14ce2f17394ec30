"""The classes whose instances may be stored, by name. Nothing is ever imported by a stored name."""

from __future__ import annotations

import dataclasses
import enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from beamweaver.checkpoint._marks import Broken, Refused, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Classes", "Form", "form_of", "is_storable"]

State: TypeAlias = dict[str, Any]
_EXTRAS: Final = ""
"""The key of attributes beside the fields: no field can have this name."""
_MISSING: Final = object()
_PLAIN_BASES: Final = (
    list,
    dict,
    set,
    frozenset,
    tuple,
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
)


class Form:
    """How instances of one class are taken apart and put together.

    Args:
        take: From an instance to something that can be walked.
        make: From that to an instance.
    """

    __slots__ = ("make", "take")

    def __init__(self, take: Callable[[Any], object], make: Callable[[Any], object]) -> None:
        self.take = take
        self.make = make


class Classes:
    """Names and classes, both ways. A class may have several names; it is written by one of them."""

    def __init__(self) -> None:
        self.by_name: dict[str, type] = {}
        self.names: dict[type, str] = {}
        self.forms: dict[type, Form] = {}

    def add(self, cls: type, names: Iterable[str], form: Form | None) -> None:
        """Make a class known; the first name is the one that is written.

        Raises:
            ValueError: A name stands for another class.
            TypeError: Instances of the class cannot be taken apart.
        """
        given = list(names)
        for name in given:
            known = self.by_name.get(name)
            if known is not None and known is not cls and type_name(known) != type_name(cls):
                raise ValueError(
                    f"the name {name!r} stands for {type_name(known)} and cannot stand for "
                    f"{type_name(cls)} too; give another name"
                )
        self.forms[cls] = form or form_of(cls)
        self.names[cls] = given[0]
        self.by_name.update(dict.fromkeys(given, cls))

    def named(self, name: object) -> type:
        """The class of a stored name.

        Raises:
            Broken: There is none.
        """
        cls = self.by_name.get(name) if isinstance(name, str) else None
        if cls is None:
            raise Broken(
                f"the class {name!r} is not known here. If it was renamed, register the new class with "
                f"aliases=[{name!r}]; else declare it in the schema or register it",
                str(name),
            )
        return cls


def is_storable(cls: type) -> bool:
    """Whether instances of a class can be taken apart without being told how."""
    return _find_form(cls) is not None or issubclass(cls, enum.Enum)


def form_of(cls: type) -> Form:
    """How instances of a class are taken apart.

    Raises:
        TypeError: Nothing says how.
    """
    form = _find_form(cls)
    if form is not None:
        return form
    if issubclass(cls, enum.Enum):
        return Form(_never, _never)  # written by member, never taken apart
    raise TypeError(
        f"{type_name(cls)} is no Enum, dataclass, msgspec Struct, NamedTuple, attrs or pydantic class, or "
        "exception: register it with encode= and decode="
    )


def _never(value: object) -> object:
    raise Refused("an Enum is written by its member", type_name(type(value)))


def _find_form(cls: type) -> Form | None:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(cls)
    if issubclass(cls, _PLAIN_BASES) or issubclass(cls, enum.Enum):
        return None
    if issubclass(cls, msgspec.Struct):
        return _struct(cls)
    if dataclasses.is_dataclass(cls):
        return _attributes(cls, *_dataclass_fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return _attributes(cls, [field.name for field in cls.__attrs_attrs__], dict)
    if hasattr(cls, "__pydantic_fields__") and hasattr(cls, "model_fields"):
        return _pydantic(cls)
    if issubclass(cls, BaseException):
        return _exception(cls)
    return None


def _dataclass_fields(cls: type) -> tuple[list[str], Callable[[], State]]:
    fields = dataclasses.fields(cls)

    def defaults() -> State:
        found: State = {}
        for field in fields:
            if field.default is not dataclasses.MISSING:
                found[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                found[field.name] = field.default_factory()
        return found

    return [field.name for field in fields], defaults


def _attributes(cls: Any, names: list[str], defaults: Callable[[], State]) -> Form:
    """A class whose instances are their attributes; its `__init__` is not called to make one."""
    known = set(names)
    cached = {
        name
        for base in cls.__mro__
        for name, item in vars(base).items()
        if isinstance(item, cached_property)
    }

    def take(value: object) -> State:
        state = {name: getattr(value, name, _MISSING) for name in names}
        for name, item in state.items():
            if item is _MISSING:
                raise Refused(f"its field {name!r} is not set; set it", type_name(cls))
        extras = {
            name: item
            for name, item in getattr(value, "__dict__", {}).items()
            if name not in known and name not in cached
        }
        if extras:
            state[_EXTRAS] = extras
        return state

    def make(state: State) -> object:
        extras = state.pop(_EXTRAS, None)
        _complete(cls, state, known, defaults)
        value = cls.__new__(cls)
        for name, item in state.items():
            object.__setattr__(value, name, item)
        if extras:
            value.__dict__.update(extras)
        return value

    return Form(take, make)


def _struct(cls: type[msgspec.Struct]) -> Form:
    names = cls.__struct_fields__
    known = set(names)

    def take(value: msgspec.Struct) -> State:
        state: State = {name: getattr(value, name) for name in names}
        extras = getattr(value, "__dict__", None)
        if extras:
            state[_EXTRAS] = dict(extras)
        return state

    def make(state: State) -> object:
        extras = state.pop(_EXTRAS, None)
        unknown = sorted(state.keys() - known)
        if unknown:
            raise Broken(_unknown(cls, unknown), type_name(cls))
        try:
            value = cls(**state)  # a missing field takes its default, if it has one
        except TypeError:
            missing = sorted(known - state.keys())
            if not missing:
                raise
            raise Broken(_lacks(cls, missing), type_name(cls)) from None
        for name, item in state.items():  # what `__post_init__` may have changed
            if getattr(value, name) is not item:
                msgspec.structs.force_setattr(value, name, item)
        if extras:
            value.__dict__.update(extras)
        return value

    return Form(take, make)


def _named_tuple(cls: Any) -> Form:
    names: tuple[str, ...] = cls._fields
    known = set(names)

    def make(state: State) -> object:
        _complete(cls, state, known, lambda: dict(cls._field_defaults))
        return tuple.__new__(cls, [state[name] for name in names])

    return Form(lambda value: dict(zip(names, value, strict=True)), make)


def _pydantic(cls: Any) -> Form:
    def make(state: State) -> object:
        fields = cls.model_fields
        values = state["__dict__"]
        for name in fields.keys() - values.keys():
            if fields[name].is_required():
                raise Broken(_lacks(cls, [name]), type_name(cls))
            values[name] = fields[name].get_default(call_default_factory=True)
        unknown = [name for name in values if name not in fields and not _is_cached(cls, name)]
        if unknown:
            raise Broken(_unknown(cls, unknown), type_name(cls))
        private = _private_defaults(cls)
        if private:
            state["__pydantic_private__"] = private | (state["__pydantic_private__"] or {})
        value = cls.__new__(cls)
        value.__setstate__(state)
        return value

    return Form(lambda value: value.__getstate__(), make)


def _private_defaults(cls: Any) -> State:
    defaults = {name: item.get_default() for name, item in cls.__private_attributes__.items()}
    return {
        name: item
        for name, item in defaults.items()
        if type(item).__name__ != "PydanticUndefinedType"
    }


def _is_cached(cls: type, name: str) -> bool:
    return isinstance(getattr(cls, name, None), cached_property)


def _exception(cls: Any) -> Form:
    def take(value: BaseException) -> State:
        return {"args": list(value.args), "attributes": dict(value.__dict__)}

    def make(state: State) -> object:
        value = cls.__new__(cls, *state["args"])
        value.args = tuple(state["args"])
        value.__dict__.update(state["attributes"])
        return value

    return Form(take, make)


def _complete(cls: type, state: State, known: set[str], defaults: Callable[[], State]) -> None:
    """Fill in fields that the class got later; refuse fields that it has no more."""
    if state.keys() == known:
        return
    unknown = sorted(state.keys() - known)
    if unknown:
        raise Broken(_unknown(cls, unknown), type_name(cls))
    state.update({name: item for name, item in defaults().items() if name not in state})
    missing = sorted(known - state.keys())
    if missing:
        raise Broken(_lacks(cls, missing), type_name(cls))


def _unknown(cls: type, names: list[str]) -> str:
    return (
        f"it has the fields {names!r}, which {type_name(cls)} lacks. Keep the fields, or change the value "
        "by a migration"
    )


def _lacks(cls: type, names: list[str]) -> str:
    return f"it lacks the fields {names!r} of {type_name(cls)}. Give them defaults"
