"""A tree in which equal values are equal bytes: mapping keys and set members are sorted by their bytes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from beamweaver.checkpoint._marks import Mark

__all__ = ["canonical"]

_encode: Final = msgspec.msgpack.Encoder().encode
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
        pairs = sorted(
            (_encode(canonical(key)), _encode(canonical(item))) for key, item in tree.items()
        )
        return [msgspec.msgpack.Ext(int(Mark.MAP), b""), *(part for pair in pairs for part in pair)]
    if not isinstance(tree, list):
        return tree
    if not tree or not isinstance(tree[0], msgspec.msgpack.Ext):
        return [canonical(item) for item in tree]
    mark, rest = tree[0], tree[1:]
    code = Mark(mark.code)
    if code in _SETS:
        return [mark, *sorted(_encode(canonical(item)) for item in rest)]
    start = _PAIRS.get(code)
    if start is None:
        return [mark, *(canonical(item) for item in rest)]
    items = [_encode(canonical(item)) for item in tree[start:]]
    pairs = sorted(zip(items[::2], items[1::2], strict=True))
    return [*tree[:start], *(part for pair in pairs for part in pair)]
