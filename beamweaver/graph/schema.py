"""The channels that a schema declares.

Example:
    >>> from typing import Annotated, TypedDict
    >>> from beamweaver.graph.reducers import append
    >>> State = TypedDict("State", {"n": int, "log": Annotated[list[str], append]})
    >>> list(channels_of(State))
    ['n', 'log']
"""

from __future__ import annotations

import sys
import typing
from typing import Any, Final

from beamweaver.graph._signatures import reducer_fault
from beamweaver.graph._typecheck import strip
from beamweaver.graph.channels import Channel, Reducer

if typing.TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

__all__ = ["SchemaFault", "channels_of"]

_FRAMES: Final = 16


class SchemaFault(Exception):  # never leaves the package; the builder turns it into InvalidGraph
    """The schema cannot be used; the text says why and what to do."""


def channels_of(schema: Any) -> dict[str, Channel]:
    """The channels of a schema, in the order of its keys.

    Args:
        schema: A `TypedDict`, or None for any key.

    Returns:
        A channel a key; none without a schema.

    Raises:
        SchemaFault: It is no TypedDict, names what is not defined, or a reducer or key is unfit.
    """
    if schema is None:
        return {}
    if not typing.is_typeddict(schema):
        shape = getattr(schema, "__name__", None) or repr(schema)
        raise SchemaFault(
            f"the schema {shape} is no TypedDict; only TypedDict classes (or no schema) are "
            "supported yet"
        )
    hints = _hints(schema)
    name = schema.__name__
    return {key: _channel(f"{name}.{key}", key, hint) for key, hint in hints.items()}


def _channel(where: str, key: str, hint: Any) -> Channel:
    if key.startswith("__"):
        raise SchemaFault(f"{where}: names that begin with '__' are reserved; rename the key")
    annotation, metadata = strip(hint)
    # Classes in Annotated belong to other libraries; only functions and callable objects reduce.
    reducers = [each for each in metadata if callable(each) and not isinstance(each, type)]
    if len(reducers) > 1:
        raise SchemaFault(f"{where} has {len(reducers)} reducers; keep one")
    reducer: Reducer | None = reducers[0] if reducers else None
    if reducer is not None:
        fault = reducer_fault(reducer, f"the reducer of {where}")
        if fault is not None:
            raise SchemaFault(fault)
    return Channel(key, annotation, reducer)


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
