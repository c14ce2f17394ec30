"""The channels that a schema declares, and updates made with its types.

Example:
    >>> from typing import Annotated, TypedDict
    >>> from beamweaver.graph.reducers import append
    >>> State = TypedDict("State", {"n": int, "log": Annotated[list[str], append]})
    >>> list(channels_of(State))
    ['n', 'log']
"""

from __future__ import annotations

import collections.abc as cabc
import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, get_origin

from beamweaver.errors import InvalidUpdate, UnknownChannel
from beamweaver.graph._fields import Field, SchemaFault, fields_of
from beamweaver.graph._pydantic import judge_of
from beamweaver.graph._signatures import reducer_fault
from beamweaver.graph._text import listed, nearest
from beamweaver.graph._typecheck import strip
from beamweaver.graph.channels import Channel, Reducer
from beamweaver.graph.kinds import KINDS, MANAGED_TYPES, Kind, Topic, kinds_in
from beamweaver.types import Overwrite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from beamweaver.graph._typecheck import Checker

__all__ = ["SchemaFault", "channels_of", "update_of"]

_P = ParamSpec("_P")
_LIST_TYPES: Final = (list, cabc.Sequence, cabc.MutableSequence)


def channels_of(schema: Any) -> dict[str, Channel]:
    """The channels of a schema, in the order of its keys.

    Args:
        schema: A `TypedDict`, dataclass, `msgspec.Struct` or pydantic model, or None for any key.

    Returns:
        A channel a key; none without a schema.

    Raises:
        SchemaFault: It is no such class, names what is not defined, or a reducer or key is unfit.
    """
    if schema is None:
        return {}
    name = getattr(schema, "__name__", repr(schema))
    return {
        field.name: _channel(f"{name}.{field.name}", field, judge_of(schema, field.name))
        for field in fields_of(schema)
    }


def update_of(schema: Callable[_P, Any], *args: _P.args, **fields: _P.kwargs) -> dict[str, Any]:
    """An update whose keys and types are those of a schema: type checkers judge it as a call of the class.

    Args:
        schema: The class of the state: a dataclass, `msgspec.Struct` or pydantic model.
        *args: None; fields are given by name.
        **fields: The keys to write.

    Returns:
        A dict with these keys and no others: defaults of the class are not written.

    Raises:
        UnknownChannel: The schema has no such key.
        InvalidUpdate: A value is of another type, or a field is given by position.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass
        ... class State:
        ...     url: str = ""
        ...     pages: int = 0
        >>> update_of(State, pages=3)
        {'pages': 3}
    """
    name = getattr(schema, "__name__", repr(schema))
    if args:
        raise InvalidUpdate(
            f"update_of({name}, ...) has {len(args)} values without names; give each by its name"
        )
    channels = _cached_channels(schema)
    for key, value in fields.items():
        channel = channels.get(key)
        if channel is None:
            raise UnknownChannel(
                f"update_of({name}, ...) has the key {key!r}, which {name} lacks.{nearest(key, channels)} "
                f"Its keys: {listed(channels)}",
                key=key,
            )
        if isinstance(value, Overwrite):
            channel.check_value(value.value)
        else:
            channel.check(value)
    return dict(fields)


@functools.lru_cache(maxsize=256)
def _cached_channels(schema: Any) -> Mapping[str, Channel]:
    try:
        return MappingProxyType(channels_of(schema))
    except SchemaFault as error:
        raise InvalidUpdate(f"update_of: {error}") from None


def _channel(where: str, field: Field, judge: Callable[[Checker], Checker] | None) -> Channel:
    if field.name.startswith("__"):
        raise SchemaFault(f"{where}: names that begin with '__' are reserved; rename the key")
    annotation, metadata = _bare(field.hint)
    kind = _kind(where, metadata, annotation)
    # Classes in Annotated belong to other libraries; only functions and callable objects reduce.
    reducers = [each for each in metadata if callable(each) and not isinstance(each, type)]
    if len(reducers) > 1:
        raise SchemaFault(f"{where} has {len(reducers)} reducers; keep one")
    reducer: Reducer | None = reducers[0] if reducers else None
    if reducer is not None:
        fault = reducer_fault(reducer, f"the reducer of {where}") or _both_fault(where, kind)
        if fault is not None:
            raise SchemaFault(fault)
    return Channel(field.name, annotation, reducer, kind, _start(field), judge)


def _start(field: Field) -> Callable[[], Any] | None:
    """What a reducer's channel starts at: the field's default, unless that is None (no value yet)."""
    if field.default is None or field.default() is None:
        return None
    return field.default


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and its metadata; a managed kind by itself stands for `Annotated[its type, kind]`."""
    annotation, metadata = strip(hint)
    if isinstance(annotation, type) and annotation in MANAGED_TYPES:
        return MANAGED_TYPES[annotation], (*metadata, annotation)
    return annotation, metadata


def _kind(where: str, metadata: tuple[Any, ...], annotation: Any) -> Kind | None:
    kinds = kinds_in(metadata)
    if not kinds:
        if isinstance(annotation, type) and annotation in KINDS:
            name = annotation.__name__
            raise SchemaFault(f"{where} is {name}; give its type too: Annotated[type, {name}]")
        return None
    if len(kinds) > 1:
        names = " and ".join(type(kind).__name__ for kind in kinds)
        raise SchemaFault(f"{where} is {names}; keep one")
    kind = kinds[0]
    if isinstance(kind, Topic) and (get_origin(annotation) or annotation) not in _LIST_TYPES:
        raise SchemaFault(
            f"{where} is a Topic, which holds a list: write Annotated[list[T], Topic]"
        )
    wanted = MANAGED_TYPES.get(type(kind))
    if wanted is not None and annotation is not wanted:
        raise SchemaFault(
            f"{where} is {type(kind).__name__}: write Annotated[{wanted.__name__}, {type(kind).__name__}]"
        )
    return kind


def _both_fault(where: str, kind: Kind | None) -> str | None:
    if isinstance(kind, Topic):
        return (
            f"{where} is a Topic and has a reducer; a topic collects by itself: keep one of the two"
        )
    if type(kind) in MANAGED_TYPES:
        name = type(kind).__name__
        return f"{where} is {name} and has a reducer; nobody writes it: leave the reducer out"
    return None
