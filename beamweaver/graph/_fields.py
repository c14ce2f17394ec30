"""The fields of the classes that can be schemas, in one form.

Pydantic is never imported: a model is known by what pydantic puts on it.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
import typing
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from beamweaver.graph._typecheck import required_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

__all__ = ["Field", "Form", "SchemaFault", "fields_of", "form_of"]

Form: TypeAlias = Literal["typed dict", "dataclass", "struct", "pydantic"]
_FRAMES: Final = 16


class SchemaFault(Exception):  # never leaves the package; the builder turns it into InvalidGraph
    """The schema cannot be used; the text says why and what to do."""


class Field(msgspec.Struct, frozen=True):
    """One field of a schema.

    Attributes:
        name: Its name.
        hint: Its annotation, with `Annotated`.
        required: Whether it has no default.
        default: Makes its default, or None.
    """

    name: str
    hint: Any
    required: bool
    default: Callable[[], Any] | None = None


def form_of(schema: Any) -> Form | None:
    """What kind of class a schema is, or None if it is none that can be one."""
    if typing.is_typeddict(schema):
        return "typed dict"
    if not isinstance(schema, type):
        return None
    if issubclass(schema, msgspec.Struct):
        return "struct"
    if hasattr(schema, "__pydantic_fields__") and hasattr(schema, "model_construct"):
        return "pydantic"
    return "dataclass" if dataclasses.is_dataclass(schema) else None


def fields_of(schema: Any) -> list[Field]:
    """The fields of a schema, in order.

    Raises:
        SchemaFault: It is no class that can be a schema, names what is not defined, or a field cannot be
            set by its name when an instance is made.
    """
    form = form_of(schema)
    if form is None:
        shape = getattr(schema, "__name__", None) or repr(schema)
        raise SchemaFault(
            f"the schema {shape} is no TypedDict, dataclass, msgspec.Struct or pydantic model; give one "
            "of these, or none for any key"
        )
    hints = _hints(schema)
    return list(_READERS[form](schema, hints))


def _typed_dict_fields(schema: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    required = required_keys(schema, hints)
    for name, hint in hints.items():
        yield Field(name, hint, name in required)


def _dataclass_fields(schema: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for field in dataclasses.fields(schema):
        where = f"{schema.__name__}.{field.name}"
        if not field.init:
            raise SchemaFault(
                f"{where} has init=False, so no state can set it; make it a property, or leave init=False out"
            )
        if field.default_factory is not dataclasses.MISSING:
            yield Field(field.name, hints[field.name], False, field.default_factory)
        else:
            yield _with_default(field.name, hints, field.default, dataclasses.MISSING)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise SchemaFault(
                f"{schema.__name__}.{name} is an InitVar, which no state keeps; make it a field"
            )


def _struct_fields(schema: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for field in msgspec.structs.fields(schema):
        if field.default_factory is not msgspec.NODEFAULT:
            yield Field(field.name, hints[field.name], False, field.default_factory)
        else:
            yield _with_default(field.name, hints, field.default, msgspec.NODEFAULT)


def _pydantic_fields(schema: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for name, info in schema.__pydantic_fields__.items():
        alias = info.validation_alias or info.alias
        if alias not in (None, name):
            raise SchemaFault(
                f"{schema.__name__}.{name} has the alias {alias!r}; the keys of a state are the names of the "
                "fields: leave the alias out"
            )
        if info.is_required():
            yield Field(name, hints[name], True)
        elif info.default_factory is not None:
            yield Field(name, hints[name], False, info.default_factory)
        else:
            yield Field(name, hints[name], False, functools.partial(copy.deepcopy, info.default))


def _with_default(name: str, hints: Mapping[str, Any], default: Any, none: object) -> Field:
    if default is none:
        return Field(name, hints[name], True)
    return Field(name, hints[name], False, lambda: default)


_READERS: Final[dict[Form, Callable[[Any, Mapping[str, Any]], Iterator[Field]]]] = {
    "typed dict": _typed_dict_fields,
    "dataclass": _dataclass_fields,
    "struct": _struct_fields,
    "pydantic": _pydantic_fields,
}


def _hints(schema: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(schema, include_extras=True)
    except NameError:
        pass
    # Written inside a function under `from __future__ import annotations`: names are the caller's.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only way to a caller's names
    missing = ""
    for _ in range(_FRAMES):
        if frame is None:
            break
        try:
            return typing.get_type_hints(schema, localns=dict(frame.f_locals), include_extras=True)
        except NameError as error:
            missing = error.name or missing
        frame = frame.f_back
    raise SchemaFault(
        f"the schema {schema.__name__} names {missing!r}, which is not defined in its module; "
        "import it there (not only under TYPE_CHECKING)"
    )
