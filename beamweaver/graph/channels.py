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
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from beamweaver.errors import InvalidUpdate
from beamweaver.graph._signatures import second_annotation
from beamweaver.graph._text import described
from beamweaver.graph._typecheck import ANYTHING, Checker, checker, strip, type_name
from beamweaver.graph.reducers import append, merge

__all__ = ["MISSING", "Channel", "Missing", "Reducer"]


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


class Channel:
    """One key of the state. Immutable.

    Args:
        name: The key.
        annotation: The type of its value; None or `Any` accepts everything.
        reducer: Makes a new value from the value and an update; None keeps the last write, of which
            a step has at most one.

    Attributes:
        name: The key.
        type: The type, without `Annotated`; None if there is none.
        reducer: The reducer, or None.
        exact: Types whose instances are valid updates without a further look.

    Example:
        >>> Channel("n", int).initial()
        MISSING
    """

    __slots__ = ("_adds", "_empty", "_updates", "_values", "exact", "name", "reducer", "type")

    def __init__(self, name: str, annotation: Any = None, reducer: Reducer | None = None) -> None:
        self.name = name
        self.type = None if annotation is None else strip(annotation)[0]
        self.reducer = reducer
        self._values = ANYTHING if annotation is None else checker(annotation)
        self._updates = self._values if reducer is None else _update_checker(self.type, reducer)
        self._empty = None if reducer is None else _empty_of(self.type, reducer)
        self._adds = reducer in _ADDS
        self.exact = self._updates.exact

    def __repr__(self) -> str:
        reducer = "" if self.reducer is None else f", {reducer_name(self.reducer)}"
        return f"Channel({self.name!r}, {self.type_text}{reducer})"

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
            InvalidUpdate: It is not of the declared type.
        """
        if type(value) not in self.exact:
            self._refuse(self._updates, value, node)

    def check_value(self, value: object, *, node: str | None = None) -> None:
        """Judges a whole value: what an `Overwrite` or the overlay of a `Send` brings.

        Args:
            value: The value.
            node: Who wrote it; None for the caller's input.

        Raises:
            InvalidUpdate: It is not of the declared type.
        """
        if type(value) not in self._values.exact:
            self._refuse(self._values, value, node)

    def _refuse(self, judge: Checker, value: object, node: str | None) -> None:
        fault = judge.fault(value)
        if fault is None:
            return
        path, expected, got = fault
        where = f" at {self.name}{path}" if path else ""
        who = "the input has" if node is None else f"node {node!r} returned"
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


def _empty_of(annotation: Any, reducer: Reducer) -> type | None:
    origin = get_origin(annotation) or annotation
    if annotation is None or origin is Any:
        return {append: list, merge: dict}.get(reducer)
    return _EMPTY.get(origin) if isinstance(origin, type) else None


def _update_checker(annotation: Any, reducer: Reducer) -> Checker:
    """What a reducer takes as its second argument, as far as that is known."""
    if annotation is None:
        return ANYTHING
    if reducer in _SAME_TYPE or reducer is merge:
        return checker(annotation)
    if reducer is append:
        args = get_args(annotation)
        return checker(annotation | args[0]) if args else ANYTHING
    return checker(second_annotation(reducer))
