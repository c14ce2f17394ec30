"""What the answer to a question must be: the type that a node gives, and its description that is stored.

A type cannot be stored. So a question carries two things: the type itself, while the process that asked
lives, and for everyone a description of it as a JSON schema, for people and for a first look at an answer.
The node's own type has the last word, in the process where the node runs again.

Example:
    >>> take(int, 3)
    3
    >>> take(bool, "yes")
    Traceback (most recent call last):
        ...
    beamweaver.graph.answers.AnswerFault: Expected `bool`, got `str`
"""

from __future__ import annotations

import datetime as dt
import decimal
import typing
import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver.errors import InvalidCall
from beamweaver.graph._fields import form_of
from beamweaver.graph._text import described, listed, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AnswerFault", "description_of", "glance", "plain_answer", "take"]

_KEPT: Final = (dt.datetime, dt.date, dt.time, dt.timedelta, bytes, uuid.UUID, decimal.Decimal)
_JSON_TYPES: Final[dict[type, tuple[str, ...]]] = {
    type(None): ("null",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    tuple: ("array",),
    dict: ("object",),
}


class AnswerFault(Exception):  # the engine makes InvalidAnswer of it, a node another question
    """An answer that does not fit; the text has path and cure."""


def take(schema: Any, answer: object) -> Any:
    """The answer as a value of the type: a dict becomes an instance, text a date.

    Args:
        schema: What `interrupt(schema=…)` was given.
        answer: What somebody answered.

    Raises:
        AnswerFault: It is none of that type.
    """
    try:
        if form_of(schema) == "pydantic":
            return schema.model_validate(answer)
        return msgspec.convert(answer, schema, dec_hook=_take_custom)
    except Exception as error:  # validators of a class are user code
        raise AnswerFault(_fault_of(error, schema, answer)) from error


def plain_answer(answer: Any) -> Any:
    """An instance of a class as plain values, which any process can read; else the answer itself."""
    if form_of(type(answer)) is None:
        return answer
    return msgspec.to_builtins(answer, builtin_types=_KEPT, enc_hook=_give_custom)


def description_of(schema: Any) -> bytes:
    """The type as a JSON schema, encoded.

    Raises:
        InvalidCall: It is no type that answers can be judged by.
    """
    try:
        if form_of(schema) == "pydantic":
            found = _custom(schema)
        else:
            found = msgspec.json.schema(schema, schema_hook=_custom)
        return msgspec.json.encode(found, enc_hook=str)
    except TypeError as error:
        raise InvalidCall(
            f"schema= of interrupt() is {shown(schema)}, by which no answer can be judged ({error}); give "
            'a type: bool, Literal["yes", "no"], a dataclass, a Struct, a TypedDict, a pydantic model'
        ) from None


def glance(description: Mapping[str, Any], answer: object) -> None:
    """Judge an answer by the stored description alone, where the type is not at hand.

    It looks at what can be told of plain values: kinds, choices, keys. What it lets pass the node judges.

    Raises:
        AnswerFault: It cannot be right.
    """
    fault = _look(description, answer, "$", description.get("$defs", {}))
    if fault is not None:
        raise AnswerFault(fault)


def _take_custom(schema: Any, value: Any) -> Any:
    if form_of(schema) == "pydantic":
        return schema.model_validate(value)
    if isinstance(value, schema):
        return value
    raise ValueError(f"Expected `{schema.__name__}`, got `{type(value).__name__}`")


def _give_custom(value: Any) -> Any:
    if form_of(type(value)) == "pydantic":
        return value.model_dump()
    raise NotImplementedError


def _custom(schema: Any) -> dict[str, Any]:
    """A class that describes itself, or by its name only; under `allOf`, at which no glance looks."""
    if form_of(schema) == "pydantic":
        return {"allOf": [schema.model_json_schema()]}
    return {"title": schema.__name__}


def _fault_of(error: Exception, schema: Any, answer: object) -> str:
    """What is wrong, with the path; of a choice, what there is to choose from."""
    own = getattr(error, "errors", None)
    if callable(own):  # pydantic's ValidationError
        first = own(include_url=False)[0]
        path = "".join(
            f".{part}" if isinstance(part, str) else f"[{part}]" for part in first["loc"]
        )
        return f"{first['msg']}, got {described(first.get('input'))} - at `${path}`"
    if typing.get_origin(schema) is typing.Literal:
        return f"it is {described(answer)}; give one of {listed(typing.get_args(schema))}"
    return str(error)


def _look(node: Mapping[str, Any], value: object, path: str, defs: Mapping[str, Any]) -> str | None:
    """The first thing that is wrong with a value, or None."""
    if "$ref" in node:
        node = defs.get(str(node["$ref"]).rpartition("/")[2], {})
    names = _JSON_TYPES.get(type(value))
    if names is None or "format" in node or "contentEncoding" in node:
        return None  # dates and the like come as text or as themselves: the type judges
    if "anyOf" in node:
        faults = [_look(each, value, path, defs) for each in node["anyOf"]]
        return None if None in faults else f"it fits none of the types that it may be - at `{path}`"
    if "enum" in node and value not in node["enum"]:
        return f"it is {described(value)}; give one of {listed(node['enum'])} - at `{path}`"
    if "type" in node and node["type"] not in names:
        return f"Expected `{node['type']}`, got `{type(value).__name__}` - at `{path}`"
    if isinstance(value, dict):
        return _look_at_keys(node, value, path, defs)
    if isinstance(value, (list, tuple)) and isinstance(node.get("items"), dict):
        faults = [_look(node["items"], each, f"{path}[{i}]", defs) for i, each in enumerate(value)]
        return next((fault for fault in faults if fault), None)
    return None


def _look_at_keys(
    node: Mapping[str, Any], value: dict[Any, Any], path: str, defs: Mapping[str, Any]
) -> str | None:
    properties = node.get("properties", {})
    for key in node.get("required", ()):
        if key not in value:
            return f"Object missing required field `{key}` - at `{path}`"
    for key, each in value.items():
        inner = properties.get(key)
        if inner is None:
            continue
        fault = _look(inner, each, f"{path}.{key}", defs)
        if fault is not None:
            return fault
    return None
