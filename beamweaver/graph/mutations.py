"""Has a node changed what it was given? State is shared by reference, so nobody may change it in place.

The top level of a view is looked at after each call, by identity: cheap, and always on. What is inside of
values is watched in strict mode only.

Example:
    >>> before = {"n": 1, "log": ["a"]}
    >>> view = dict(before)
    >>> watch = Watch(before)
    >>> view["n"] = 2
    >>> view["log"].append("b")
    >>> mutations(before, view), watch.changes()
    (('n',), ("['log']",))
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Mapping
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from beamweaver.errors import StateMutated
from beamweaver.graph._text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["Watch", "mutations", "state_mutated", "watch"]

_ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes, range})
_UNSEEN: Final = (type, types.ModuleType, types.FunctionType, types.MethodType, enum.Enum)
_GONE: Final = object()


def mutations(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of a view that were set, added or deleted.

    Args:
        before: The values when the view was made.
        after: The values of the view now: the view itself if it is a dict, else `Shape.read(view)`.

    Returns:
        The keys in order; empty if all is as it was.
    """
    # This runs after each node. Where the order is another one, it is looked at key by key.
    if all(map(is_, before.values(), after.values())) and [*before] == [*after]:
        return ()
    keys = dict.fromkeys((*before, *after))
    return tuple(key for key in keys if before.get(key, _GONE) is not after.get(key, _GONE))


def state_mutated(node: str, places: Iterable[str], *, asked: str = "") -> StateMutated:
    """The error of a node, or of a router or guard after it, that changed its state.

    Args:
        node: The node.
        places: Keys of `mutations`, or paths of `Watch.changes`.
        asked: How messages call the router or guard, if one did it.
    """
    found = tuple(places)
    who = asked or f"node {node!r}"
    if found[0].startswith("["):
        where = ", ".join(f"state{path}" for path in found)
        cure = 'return a new value, such as {"log": [*state["log"], item]}, or use a reducer'
    else:
        where = f"the key {found[0]!r}" if len(found) == 1 else f"the keys {listed(found)}"
        cure = f'return an update, such as {{"{found[0]}": ...}}'
    if asked:
        cure = "let a node do it"
    return StateMutated(
        f"{who} changed {where} of the state that it was given, in place. State is shared, so "
        f"that change is lost or seen by others: {cure}",
        node=node,
        keys=found,
    )


def watch(graph: CompiledGraph, values: Mapping[str, Any]) -> Watch:
    """A watch over the values of a graph's state; untracked keys hold live objects and are left out."""
    channels = graph.channels
    return Watch({k: v for k, v in values.items() if k not in channels or channels[k].stored})


class Watch:
    """Remembers what is inside of values, to find out later what was changed in place.

    It looks into lists, dicts, sets, deques, bytearrays, tuples, and the attributes of other objects; each
    container is compared item by item, by identity. What it costs grows with the size of the state.

    Args:
        values: The values, by key.
        most: How many containers it looks into; what is beyond is not watched, and `complete` is False.

    Attributes:
        complete: Whether everything is watched.
    """

    def __init__(self, values: Mapping[str, Any], *, most: int = 100_000) -> None:
        self.complete = True
        self._seen: list[tuple[str, Any, Any]] = []
        known: set[int] = set()
        queue = collections.deque((f"[{key!r}]", value) for key, value in values.items())
        while queue:
            path, value = queue.popleft()
            if type(value) in _ATOMS or isinstance(value, _UNSEEN) or id(value) in known:
                continue
            if len(known) >= most:
                self.complete = False
                return
            known.add(id(value))
            inside = _inside(value)
            if inside is None:
                continue
            if not isinstance(value, (tuple, frozenset)):
                self._seen.append((path, value, inside))
            queue.extend(_children(path, value, inside))

    def changes(self) -> tuple[str, ...]:
        """The paths of the containers that were changed since, as in `['log'][2]`."""
        return tuple(
            path for path, value, inside in self._seen if not _same(_inside(value), inside)
        )


def _inside(value: Any) -> Any:
    """A shallow copy of what a value holds, or None if it is no container that can be looked into."""
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, (list, tuple, collections.deque)):
        return tuple(value)
    if isinstance(value, (set, frozenset)):
        return frozenset(value)
    if isinstance(value, bytearray):
        return bytes(value)
    return _attributes(value)


def _attributes(value: Any) -> tuple[tuple[str, Any], ...] | None:
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            item = getattr(value, name, _GONE)
            if item is not _GONE and name not in ("__dict__", "__weakref__"):
                found[name] = item
    return tuple(found.items()) or None


def _children(path: str, value: Any, inside: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", item) for key, item in inside]
    if isinstance(value, (list, tuple, collections.deque)):
        return [(f"{path}[{index}]", item) for index, item in enumerate(inside)]
    if isinstance(value, (set, frozenset)):
        return [(f"{path}{{...}}", item) for item in inside]
    if isinstance(value, bytearray):
        return []
    return [(f"{path}.{name}", item) for name, item in inside]


def _same(now: Any, then: Any) -> bool:
    if isinstance(then, (frozenset, bytes)):
        return bool(now == then)
    if now is None or len(now) != len(then):
        return False
    return all(
        new is old or (type(new) is tuple is type(old) and _same_pair(new, old))
        for new, old in zip(now, then, strict=True)
    )


def _same_pair(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    """Pairs of a mapping or of attributes are made anew at each look; what is in them is not."""
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
