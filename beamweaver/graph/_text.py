"""Words for error messages: short values, names of types, the nearest name."""

from __future__ import annotations

import difflib
import reprlib
import sys
from typing import TYPE_CHECKING

from beamweaver.types import END, START

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

__all__ = ["described", "giver", "listed", "nearest", "node_text", "place", "plural", "shown"]

_LISTED = 12
_PACKAGE = "beamweaver."

_repr = reprlib.Repr()
_repr.maxstring = 80
_repr.maxother = 80
_repr.maxlong = 40


def giver(node: str | None) -> str:
    """Who gave what a message is about, as it begins: a node, or whoever gave the input."""
    return "the input has" if node is None else f"node {node!r} returned"


def shown(value: object) -> str:
    """A value's repr, cut to a length that a message can hold."""
    return _repr.repr(value)


def described(value: object) -> str:
    """A value's short repr with its type, as in `'oops' (str)`."""
    return "None" if value is None else f"{shown(value)} ({type(value).__name__})"


def listed(names: Iterable[object]) -> str:
    """Names as `'a', 'b', 'c'`, cut when there are many."""
    every = list(names)
    texts = [node_text(name) for name in every[:_LISTED]]
    if len(every) > _LISTED:
        texts.append(f"and {len(every) - _LISTED} more")
    return ", ".join(texts) if texts else "none"


def node_text(name: object) -> str:
    """A node's name as code writes it: `START`, `END`, `'load'`."""
    return (
        {START: "START", END: "END"}.get(name, repr(name)) if isinstance(name, str) else repr(name)
    )


def nearest(name: object, names: Iterable[object]) -> str:
    """The hint ` Did you mean 'x'?`, or nothing when no name is near."""
    if not isinstance(name, str):
        return ""
    candidates = [other for other in names if isinstance(other, str)]
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    if not close:
        lowered = {other.lower(): other for other in candidates}
        close = [lowered[name.lower()]] if name.lower() in lowered else []
    return f" Did you mean {close[0]!r}?" if close else ""


def plural(count: int, noun: str) -> str:
    """A count with its noun, as in `1 fault` and `2 faults`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def place() -> str:
    """`file:line` of the user's call: of the nearest frame outside the library."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the only way to a caller's line
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "unknown place"
