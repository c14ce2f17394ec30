"""Reducers that come with the library.

A reducer takes a channel's value and one update and returns the new value. It must not change what
it is given.

Example:
    >>> append(["a"], "b"), append(["a"], ["b", "c"]), merge({"a": 1}, {"b": 2})
    (['a', 'b'], ['a', 'b', 'c'], {'a': 1, 'b': 2})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["append", "merge"]


def append(current: list[Any], update: Any) -> list[Any]:
    """Adds to a list: the items of a list, or any other value as one item.

    Args:
        current: The channel's list.
        update: A list of items, or one item that is no list.

    Returns:
        A new list.

    Example:
        >>> append([1], [2, 3])
        [1, 2, 3]
    """
    return [*current, *update] if isinstance(update, list) else [*current, update]


def merge(current: Mapping[Any, Any], update: Mapping[Any, Any]) -> dict[Any, Any]:
    """Lays a mapping over another: keys of the update win.

    Args:
        current: The channel's mapping.
        update: Keys to set.

    Returns:
        A new dict.

    Example:
        >>> merge({"a": 1, "b": 1}, {"b": 2})
        {'a': 1, 'b': 2}
    """
    return {**current, **update}
