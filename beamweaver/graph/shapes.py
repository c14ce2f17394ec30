"""What nodes and callers see of a state: a dict, or an instance of the schema's class.

Example:
    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class State:
    ...     url: str
    ...     pages: int = 0
    >>> shape = shape_of(State)
    >>> shape.make({"url": "https://example.com"}), sorted(shape.required)
    (State(url='https://example.com', pages=0), ['url'])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.errors import InvalidUpdate
from beamweaver.graph._fields import Form, fields_of, form_of
from beamweaver.graph._text import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPEN", "Shape", "shape_of"]


class Shape:
    """The form in which a schema shows values. Immutable.

    Attributes:
        schema: The class, or None.
        form: What kind of class it is; None without a schema.
        keys: Its keys in order; empty without a schema, where any key is shown.
        required: Keys that must have a value.
        whole: Whether a view has all values, without asking for the keys.
    """

    __slots__ = ("_make", "form", "keys", "required", "schema", "whole")

    def __init__(
        self, schema: Any, form: Form | None, keys: tuple[str, ...], required: frozenset[str]
    ) -> None:
        self.schema = schema
        self.form = form
        self.keys = keys
        self.required = required
        self.whole = form is None
        self._make = schema.model_construct if form == "pydantic" else schema

    @property
    def name(self) -> str:
        """How messages call it."""
        return str(getattr(self.schema, "__name__", "the schema"))

    @property
    def is_dict(self) -> bool:
        """Whether views are dicts."""
        return self.form in (None, "typed dict")

    def make(self, values: Mapping[str, Any]) -> Any:
        """A view of values: a new dict, or a new instance of the class. The values are shared, not copied.

        Raises:
            InvalidUpdate: A required field has no value, or the class refuses what it is given.
        """
        if self.whole:
            return dict(values)
        given = {key: values[key] for key in self.keys if key in values}
        if self.form == "typed dict":
            return given
        missing = [key for key in self.keys if key in self.required and key not in given]
        if missing:
            raise InvalidUpdate(
                f"the state lacks {listed(missing)}, which {self.name} requires and nothing has written: "
                f"give it in the input, or give the field a default",
                keys=tuple(missing),
            )
        try:
            return self._make(**given)
        except Exception as error:  # the class is user code
            raise InvalidUpdate(
                f"{self.name} cannot be made of the state: {type(error).__name__}: {error}"
            ) from error

    def read(self, view: Any) -> dict[str, Any]:
        """The values of a view by key, in a new dict.

        Fields that an instance has lost (`del state.key`) are left out.
        """
        if self.is_dict:
            return dict(view)
        return {key: getattr(view, key) for key in self.keys if hasattr(view, key)}


OPEN = Shape(None, None, (), frozenset())
"""The shape of a state without a schema."""


def shape_of(schema: Any) -> Shape:
    """The shape of a schema that `channels_of` has taken.

    Raises:
        SchemaFault: It is no class that can be a schema.
    """
    if schema is None:
        return OPEN
    fields = fields_of(schema)
    required = frozenset(field.name for field in fields if field.required)
    return Shape(schema, form_of(schema), tuple(field.name for field in fields), required)
