"""Reducers that come with the library.

A reducer takes a channel's value and one update and returns the new value. It must not change what
it is given.

Example:
    >>> append(["a"], "b"), append(["a"], ["b", "c"]), merge({"a": 1}, {"b": 2})
    (['a', 'b'], ['a', 'b', 'c'], {'a': 1, 'b': 2})
    >>> add_messages([{"id": "1", "text": "hullo"}], {"id": "1", "text": "hello"})
    [{'id': '1', 'text': 'hello'}]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["add_messages", "append", "merge"]


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


def add_messages(current: list[Any], update: Any) -> list[Any]:
    """Adds messages to a list; one whose id is there already takes that one's place.

    A message is a mapping with a key `"id"`, or an object with an attribute `id`. One without an id (or
    with the id None) is always added: ids are the writer's to give, so that they are the same when a node
    runs again. Where several messages of a list have one id, the last one of them stands.

    Args:
        current: The channel's list.
        update: A list of messages, or one message.

    Returns:
        A new list.

    Example:
        >>> add_messages([{"id": "a", "n": 1}], [{"id": "b", "n": 1}, {"id": "a", "n": 2}])
        [{'id': 'a', 'n': 2}, {'id': 'b', 'n': 1}]
    """
    messages = list(current)
    places = {id_: index for index, id_ in enumerate(map(_message_id, messages)) if id_ is not None}
    for message in update if isinstance(update, list) else [update]:
        id_ = _message_id(message)
        if id_ is not None and id_ in places:
            messages[places[id_]] = message
            continue
        if id_ is not None:
            places[id_] = len(messages)
        messages.append(message)
    return messages


def _message_id(message: Any) -> Any:
    if isinstance(message, Mapping):
        return message.get("id")
    return getattr(message, "id", None)
