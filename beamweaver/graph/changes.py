"""What a step changed in a channel, as data: what a store may keep in place of the whole value.

Only channel types and reducers whose effect is known by their nature have changes: `append`, `merge`,
`add_messages`, topics, and `operator.add`, `|`, `&`, `-` and `^` on the built-in types. For every other
reducer the whole value is the change. No reducer is called to find one out, none to read it back.

Example:
    >>> changes_of(merge, {"a": 1}, {"a": 1, "b": 2}, [{"b": 2}])
    (KeysSet(items={'b': 2}),)
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from beamweaver.graph.reducers import add_messages, append, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Appended", "Change", "KeysRemoved", "KeysSet", "Replaced", "changes_of"]


class Appended(msgspec.Struct, frozen=True):
    """`items` come after the value: a list, tuple, str or bytes, of the value's own type."""

    items: Any


class KeysSet(msgspec.Struct, frozen=True):
    """The keys of the dict `items` are set in its order, or the members of the set are added."""

    items: Any


class KeysRemoved(msgspec.Struct, frozen=True):
    """The members of a set that the list `keys` has are gone."""

    keys: list[Any]


class Replaced(msgspec.Struct, frozen=True):
    """The items of a list at `indexes` are now those of the list `items`."""

    indexes: tuple[int, ...]
    items: list[Any]


Change: TypeAlias = Appended | KeysSet | KeysRemoved | Replaced
_Find: TypeAlias = "Callable[[Any, Any, Sequence[Any]], tuple[Change, ...] | None]"


def changes_of(
    reducer: object, before: Any, after: Any, updates: Sequence[Any]
) -> tuple[Change, ...] | None:
    """The changes that lead from one value of a channel to the next one.

    Args:
        reducer: The channel's reducer, or None.
        before: The value before, which the updates were folded onto.
        after: What the fold returned.
        updates: The updates.

    Returns:
        The changes in order, or None where only the whole value says what changed.
    """
    if type(before) is not type(after):
        return None
    for known, find in _FINDERS:  # by identity: a reducer need not be hashable
        if reducer is known:
            return find(before, after, updates)
    return None


def _tail(before: Any, after: Any, _updates: Sequence[Any]) -> tuple[Change, ...] | None:
    if type(before) not in (list, tuple, str, bytes):
        return None
    added = after[len(before) :]
    return (Appended(added),) if added else ()


def _keys(before: Any, after: Any, updates: Sequence[Any]) -> tuple[Change, ...] | None:
    if type(before) is dict:
        items = {key: after[key] for update in updates for key in update}
        return (KeysSet(items),) if items else ()
    return _members(before, after, updates)


def _members(before: Any, after: Any, _updates: Sequence[Any]) -> tuple[Change, ...] | None:
    if type(before) not in (set, frozenset):
        return None
    added, removed = after - before, before - after
    found: list[Change] = []
    if removed:
        found.append(KeysRemoved(list(removed)))
    if added:
        found.append(KeysSet(added))
    return tuple(found)


def _upserted(before: Any, after: Any, _updates: Sequence[Any]) -> tuple[Change, ...] | None:
    pairs = enumerate(zip(before, after, strict=False))
    where = tuple([index for index, (old, new) in pairs if old is not new])
    found: list[Change] = []
    if where:
        found.append(Replaced(where, [after[index] for index in where]))
    if len(after) > len(before):
        found.append(Appended(after[len(before) :]))
    return tuple(found)


_FINDERS: Final[tuple[tuple[object, _Find], ...]] = (
    (append, _tail),
    (operator.add, _tail),
    (operator.iadd, _tail),
    (operator.concat, _tail),
    (operator.iconcat, _tail),
    (merge, _keys),
    (operator.or_, _keys),
    (operator.ior, _keys),
    (operator.and_, _members),
    (operator.iand, _members),
    (operator.sub, _members),
    (operator.isub, _members),
    (operator.xor, _members),
    (operator.ixor, _members),
    (add_messages, _upserted),
)
