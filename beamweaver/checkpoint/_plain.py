"""Values whose classes have changed or are gone, as plain data."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from beamweaver.checkpoint._marks import SCALARS, Broken
from beamweaver.checkpoint._unwalk import Unwalker

__all__ = ["PlainUnwalker", "loses"]

_PYDANTIC = "__dict__"


class PlainUnwalker(Unwalker):
    """Reads walked values; what is of a class that cannot be made is a dict of its fields.

    A member of an Enum that is gone is its name, or its value where it had no name.
    """

    def _default_dict(self, tree: list[Any]) -> object:
        with suppress(Broken):
            return super()._default_dict(tree)
        return dict(self._pairs(tree, 2))

    def _enum(self, tree: list[Any]) -> object:
        try:
            return super()._enum(tree)
        except (Broken, ValueError):
            return self._value(tree[3]) if tree[2] is None else tree[2]

    def _object(self, tree: list[Any]) -> object:
        state = tree[2]
        state = self._dict(state) if isinstance(state, dict) else self._value(state)
        try:
            cls = self._classes.named(tree[1])
            kept = dict(state) if isinstance(state, dict) else state
            return self._classes.forms[cls].make(kept)
        except Exception:  # noqa: BLE001 - a class that changed fails in any way
            return _fields(state)


def _fields(state: Any) -> Any:
    """The fields of an instance, from what was stored of it."""
    if isinstance(state, dict) and isinstance(state.get(_PYDANTIC), dict):
        return state[_PYDANTIC]
    return state


def loses(value: Any, plain: Any) -> bool:
    """Whether a value that was made of plain data lacks some of it: fields that its class does not have.

    Example:
        >>> class Item(msgspec.Struct):
        ...     name: str
        >>> plain = [{"name": "a", "price": 3}]
        >>> loses(msgspec.convert(plain, list[Item]), plain)
        True
    """
    return type(value) not in SCALARS and _lacks(msgspec.to_builtins(value), plain)


def _lacks(made: Any, plain: Any) -> bool:
    if isinstance(plain, dict) and isinstance(made, dict):
        return any(key not in made or _lacks(made[key], item) for key, item in plain.items())
    if isinstance(plain, list) and isinstance(made, list):
        if len(plain) > len(made):
            return True
        return any(_lacks(one, other) for one, other in zip(made, plain, strict=False))
    return False
