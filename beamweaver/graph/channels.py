"""Channels: one key of a graph's state, its type and how updates become its value.

Example:
    >>> import operator
    >>> log = Channel("log", list[str], operator.add)
    >>> log.fold(log.initial(), [["a"], ["b"]])
    ['a', 'b']
"""

from __future__ import annotations

import collections
import collections.abc as cabc
import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, get_args, get_origin

from beamweaver.errors import InvalidUpdate
from beamweaver.graph._signatures import second_annotation
from beamweaver.graph._text import described, giver
from beamweaver.graph._typecheck import ANYTHING, Checker, checker, strip, type_name
from beamweaver.graph.changes import Change, changes_of
from beamweaver.graph.kinds import MANAGED_TYPES, Ephemeral, Kind, Topic, Untracked
from beamweaver.graph.reducers import add_messages, append, merge

__all__ = ["MISSING", "Channel", "Folded", "Missing", "Reducer"]


class Missing(enum.Enum):
    """The type of `MISSING`."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Literal[Missing.MISSING]] = Missing.MISSING
"""A channel that nothing has written yet."""

Reducer: TypeAlias = Callable[[Any, Any], Any]

_ADDS: Final = (operator.add, operator.iadd, operator.concat, operator.iconcat)
_SAME_TYPE: Final = (*_ADDS, operator.or_, operator.ior, operator.and_, operator.mul, max, min)
_EMPTY: Final[dict[type, type]] = {
    **{cls: cls for cls in (list, dict, set, frozenset, tuple, str, bytes, int, float, bool)},
    **{cls: cls for cls in (complex, bytearray, collections.deque, collections.Counter)},
    collections.OrderedDict: collections.OrderedDict,
    **dict.fromkeys((cabc.Sequence, cabc.MutableSequence), list),
    **dict.fromkeys((cabc.Set, cabc.MutableSet), set),
    **dict.fromkeys((cabc.Mapping, cabc.MutableMapping), dict),
}
_COPIED: Final = (list, dict, set)
_LISTS: Final = (append, add_messages)
"""Reducers that take a list of items, or one item."""


class Folded(NamedTuple):
    """A channel's new value, and what changed in it (None: only the whole value says)."""

    value: Any
    changes: tuple[Change, ...] | None


class Channel:
    """One key of the state. Immutable.

    Args:
        name: The key.
        annotation: The type of its value; None or `Any` accepts everything.
        reducer: Makes a new value from the value and an update; None keeps the last write, of which
            a step has at most one.
        kind: Anything but a plain value or reducer; see `beamweaver.graph.kinds`.
        default: Makes the value before any write, in place of the type's empty one.
        judge: Makes another judge of whole values around that of the type.

    Attributes:
        name: The key.
        type: The type, without `Annotated`; None if there is none.
        reducer: The reducer (`append` for a topic), or None where a step takes one write.
        kind: The kind, or None.
        exact: Types whose instances are valid updates without a further look.
        whole: Types whose instances are valid values without a further look.
        clears: Whether the value lasts for one step only.
        stored: Whether a store keeps it.
        managed: Whether the engine computes it, so that nobody may write it.

    Example:
        >>> Channel("n", int).initial()
        MISSING
    """

    __slots__ = (
        "_adds", "_default", "_empty", "_judge", "_updates", "_values", "clears", "exact", "kind",
        "managed", "name", "reducer", "stored", "type", "whole",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        annotation: Any = None,
        reducer: Reducer | None = None,
        kind: Kind | None = None,
        default: Callable[[], Any] | None = None,
        judge: Callable[[Checker], Checker] | None = None,
    ) -> None:
        self.name = name
        self.type = None if annotation is None else strip(annotation)[0]
        self.kind = kind
        self.reducer = reducer = append if isinstance(kind, Topic) else reducer
        self._default = default
        self._judge = judge
        self.managed = type(kind) in MANAGED_TYPES
        self.stored = not (self.managed or isinstance(kind, Untracked))
        self.clears = isinstance(kind, Ephemeral) or (
            isinstance(kind, Topic) and not kind.accumulate
        )
        values = ANYTHING if annotation is None else checker(annotation)
        self._values = values if judge is None else judge(values)
        self._updates = self._values if reducer is None else _update_checker(self.type, reducer)
        self._empty = None if reducer is None else default or _empty_of(self.type, reducer)
        self._adds = reducer in _ADDS
        self.exact = frozenset[type]() if self.managed else self._updates.exact
        self.whole = frozenset[type]() if self.managed else self._values.exact

    def __repr__(self) -> str:
        reducer = "" if self.reducer is None else f", {reducer_name(self.reducer)}"
        kind = "" if self.kind is None else f", {self.kind!r}"
        return f"Channel({self.name!r}, {self.type_text}{reducer}{kind})"

    def reduced_by(self, reducer: Reducer) -> Channel:
        """The same key with another reducer."""
        return Channel(self.name, self.type, reducer, self.kind, self._default, self._judge)

    @property
    def type_text(self) -> str:
        """The type as messages write it."""
        return "Any" if self.type is None else type_name(self.type)

    def initial(self) -> Any:
        """The value before any write: a new empty one of a reducer's type, else `MISSING`."""
        return MISSING if self._empty is None else self._empty()

    def check(self, value: object, *, node: str | None = None) -> None:
        """Judges an update (without its `Overwrite`).

        Args:
            value: The update.
            node: Who wrote it; None for the caller's input.

        Raises:
            InvalidUpdate: It is not of the declared type, or the key is managed.
        """
        if type(value) not in self.exact and (self.managed or self._updates.fault(value)):
            self._refuse(self._updates, value, node)

    def check_value(
        self, value: object, *, node: str | None = None, sent: tuple[str, str] | None = None
    ) -> None:
        """Judges a whole value: what an `Overwrite` or the overlay of a `Send` brings.

        Args:
            value: The value.
            node: Who wrote it; None for the caller's input.
            sent: Who sends it and to which node, if a `Send` brings it.

        Raises:
            InvalidUpdate: It is not of the declared type, or the key is managed.
        """
        if self.managed or self._values.fault(value):
            self._refuse(self._values, value, node, sent)

    def _refuse(
        self, judge: Checker, value: object, node: str | None, sent: tuple[str, str] | None = None
    ) -> NoReturn:
        who = giver(node) if sent is None else f"{sent[0]} made a Send to {sent[1]!r} with"
        if self.managed:
            raise InvalidUpdate(
                f"{who} {described(value)} for the key {self.name!r}, which is read only: it is "
                f"computed for each step ({type(self.kind).__name__}). Leave it out, or use another key",
                node=node,
                key=self.name,
            )
        path, expected, got = judge.fault(value) or ("", judge.text, value)
        where = f" at {self.name}{path}" if path else ""
        raise InvalidUpdate(
            f"{who} {described(got)} for the key {self.name!r}{where}; expected {expected}. "
            f"{self._cure(value)}",
            node=node,
            key=self.name,
            expected=expected,
            got=type(got).__name__,
        )

    def _cure(self, value: object) -> str:
        origin = get_origin(self.type) or self.type
        if origin is list and not isinstance(value, (list, tuple, set, frozenset)):
            return f'Wrap it in a list: {{"{self.name}": [...]}}'
        if origin is list:
            return f"Give a list of the declared type: {self.type_text}"
        return f"Give a value of type {self.type_text}, or change the type of {self.name!r}"

    def begin(self, current: Any) -> Any:
        """What the writes of a step are folded onto, given the value before the step.

        Returns:
            `current`; `MISSING` for a channel that clears, whose value before is gone.
        """
        return MISSING if self.clears else current

    def rest(self, current: Any) -> Any:
        """The value after a step in which nothing was written to the channel.

        Returns:
            `current`; for a channel that clears its initial value (`MISSING`: the key is absent).
        """
        return self.initial() if self.clears else current

    def is_empty(self, value: Any) -> bool:
        """Whether a value is the empty one that a topic or a reducer's channel starts at."""
        if self._empty is None or type(value) not in _EMPTY:
            return False
        return not value and not self.initial()

    def folded(self, current: Any, updates: Sequence[Any]) -> Folded:
        """As `fold`, with what changed.

        Args:
            current: The value before, as `begin` or an `Overwrite` gave it.
            updates: Plain updates of one step.

        Returns:
            The new value and its changes from `current`; the changes are None if `current` is `MISSING`
            or only the whole value says what changed.
        """
        value = self.fold(current, updates)
        return Folded(value, self.changes(current, value, updates))

    def changes(self, before: Any, after: Any, updates: Sequence[Any]) -> tuple[Change, ...] | None:
        """What changed in the channel.

        Args:
            before: The value that the updates were folded onto.
            after: What `fold` made of it.
            updates: Plain updates of one step.

        Returns:
            The changes in order; None if `before` is `MISSING` or only the whole value says what changed.
        """
        return changes_of(self.reducer, before, after, updates) if updates else ()

    def fold(self, current: Any, updates: Sequence[Any]) -> Any:
        """The value after updates, in order; `current` itself is never changed.

        Args:
            current: The value before; `MISSING` is the channel's initial value.
            updates: Plain updates of one step. A channel without a reducer takes the last one.

        Returns:
            The new value; `current` if there are no updates.

        Raises:
            TypeError: The reducer returned something that is not of the channel's type.
            Exception: Whatever the reducer raises.
        """
        if not updates:
            return current
        if self.reducer is None:
            return updates[-1]
        if current is MISSING:
            current = self.initial()
        if current is MISSING:
            current, updates = updates[0], updates[1:]
        if self._adds and type(current) is list and all(type(item) is list for item in updates):
            return _extended(current, updates)
        if self.reducer is append and type(current) is list:
            return _appended(current, updates)
        return self._reduced(self.reducer, current, updates)

    def _reduced(self, reducer: Reducer, current: Any, updates: Sequence[Any]) -> Any:
        # A reducer that changes its first argument in place would change the step's beginning.
        value = current.copy() if type(current) in _COPIED else current
        for update in updates:
            value = reducer(value, update)
        if updates and not self._has_kind(value):
            raise TypeError(
                f"the reducer {reducer_name(reducer)} of the key {self.name!r} returned "
                f"{described(value)}; expected {self.type_text}"
            )
        return value

    def _has_kind(self, value: object) -> bool:
        # Only the outside: looking into a value that grows would cost more with each step.
        origin = get_origin(self.type) or self.type
        if not isinstance(origin, type) or self._values is ANYTHING or not _EMPTY.get(origin):
            return True
        numbers = {float: (float, int), complex: (complex, float, int)}
        return isinstance(value, numbers.get(origin, (origin,)))


def reducer_name(reducer: Reducer) -> str:
    """A reducer as messages and fingerprints write it: `operator.add`, `mine.longest`."""
    module = getattr(reducer, "__module__", None) or ""
    name = getattr(reducer, "__qualname__", None) or type(reducer).__qualname__
    module = {"_operator": "operator", "builtins": ""}.get(module, module)
    return f"{module}.{name}" if module else name


def _extended(current: list[Any], updates: Sequence[list[Any]]) -> list[Any]:
    value = current.copy()
    for update in updates:
        value.extend(update)
    return value


def _appended(current: list[Any], updates: Sequence[Any]) -> list[Any]:
    value = current.copy()
    for update in updates:
        if isinstance(update, list):
            value.extend(update)
        else:
            value.append(update)
    return value


def _empty_of(annotation: Any, reducer: Reducer) -> Callable[[], Any] | None:
    origin = get_origin(annotation) or annotation
    if annotation is None or origin is Any:
        return {append: list, add_messages: list, merge: dict}.get(reducer)
    return _EMPTY.get(origin) if isinstance(origin, type) else None


def _update_checker(annotation: Any, reducer: Reducer) -> Checker:
    """What a reducer takes as its second argument, as far as that is known."""
    if annotation is None:
        return ANYTHING
    if reducer in _SAME_TYPE or reducer is merge:
        return checker(annotation)
    if reducer in _LISTS:
        args = get_args(annotation)
        return checker(annotation | args[0]) if args else ANYTHING
    return checker(second_annotation(reducer))
