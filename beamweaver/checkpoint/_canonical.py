"""A tree in which equal values are equal bytes: mapping keys and set members are sorted by their bytes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from beamweaver.checkpoint._marks import Mark

__all__ = ["canonical"]

_encode: Final = msgspec.msgpack.Encoder().encode
_MAP: Final = msgspec.msgpack.Ext(int(Mark.MAP), b"")
_SETS: Final = frozenset({Mark.SET, Mark.FROZENSET})
_PAIRS: Final = {
    Mark.MAP: 1,
    Mark.ORDERED_DICT: 1,
    Mark.COUNTER: 1,
    Mark.DEFAULT_DICT: 2,
}


def canonical(tree: Any) -> Any:
    """The tree with everything sorted whose order says nothing."""
    if isinstance(tree, dict):
        pairs = []
        for key, item in tree.items():
            pairs.append((_encode(key), _encode(canonical(item))))
        return [_MAP, *(part for pair in sorted(pairs) for part in pair)]
    if not isinstance(tree, list):
        return tree
    if not tree or not isinstance(tree[0], msgspec.msgpack.Ext):
        return _each([], tree)
    mark, rest = tree[0], tree[1:]
    code = Mark(mark.code)
    if code in _SETS:
        return [mark, *sorted(_encode(item) for item in _each([], rest))]
    start = _PAIRS.get(code)
    if start is None:
        return _each([mark], rest)
    items = [_encode(item) for item in _each([], tree[start:])]
    pairs = sorted(zip(items[::2], items[1::2], strict=True))
    return [*tree[:start], *(part for pair in pairs for part in pair)]


def _each(start: list[Any], items: list[Any]) -> list[Any]:
    for item in items:
        start.append(canonical(item))  # noqa: PERF401 one frame a level, or deep values could not be stored
    return start
