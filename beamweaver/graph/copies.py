"""Values that share nothing that can be changed with the ones they are copies of.

Example:
    >>> log = [{"text": "a"}]
    >>> copy = unshared(log, lambda value: value)
    >>> copy[0]["text"] = "b"
    >>> log
    [{'text': 'a'}]
"""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import uuid
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["unshared"]

_ATOMS: Final = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range, frozenset),
        *(decimal.Decimal, fractions.Fraction, uuid.UUID),
        *(dt.date, dt.time, dt.datetime, dt.timedelta),
    }
)


def unshared(value: Any, remake: Callable[[Any], Any]) -> Any:
    """A copy of a value, made anew wherever it could be changed in place.

    Args:
        value: The value. Members of sets and keys of dicts are taken to be immutable.
        remake: Makes another object that is equal to one of a type that is not built in.

    Returns:
        The value itself where it is immutable, else a copy.

    Raises:
        RecursionError: It holds itself.
        Exception: What `remake` raises.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list:
        if _ATOMS.issuperset(map(type, value)):
            return value.copy()
        return [unshared(item, remake) for item in value]
    if kind is dict:
        return {key: unshared(item, remake) for key, item in value.items()}
    if kind is tuple:
        return tuple([unshared(item, remake) for item in value])
    if kind is set:
        return value.copy()
    return remake(value)
