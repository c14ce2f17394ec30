"""What bodies are given of the state, and whether they have changed it in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from beamweaver.graph.copies import unshared
from beamweaver.graph.mutations import mutations, watch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.engine.effects import Attempt
    from beamweaver.graph.mutations import Watch
    from beamweaver.graph.shapes import Shape
    from beamweaver.runtime.frames import Frame

__all__ = ["Given", "changes", "give"]


class _Guarded:
    """A view that is more than a dict of all values, or that is watched at any depth."""

    __slots__ = ("shape", "values", "watch")

    def __init__(self, shape: Shape, view: Any, watching: Watch | None) -> None:
        self.shape = shape
        self.values = shape.read(view)
        self.watch = watching

    def changes(self, view: Any) -> tuple[str, ...]:
        """As `changes`."""
        found = mutations(self.values, self.shape.read(view))
        return found if found or self.watch is None else self.watch.changes()


Given: TypeAlias = "Mapping[str, Any] | _Guarded"
"""What a body was given, to be compared with what it leaves."""


def give(frame: Frame, attempt: Attempt) -> Given:
    """Put in the place of an attempt's values what its body sees of them: a new dict or instance.

    In strict mode the body has copies of the values, so that a change hits nobody, and is nobody else's.

    Raises:
        InvalidUpdate: The class of the schema refuses the values.
    """
    values: dict[str, Any] = attempt.view
    if frame.plain and attempt.node.shape is None:
        attempt.view = dict(values)
        return values
    return _guarded(frame, attempt, values)


def _guarded(frame: Frame, attempt: Attempt, values: dict[str, Any]) -> _Guarded:
    graph, node = frame.graph, attempt.node
    if frame.strict:
        kept = graph.unstored  # live objects, which cannot be copied
        values = {k: v if k in kept else unshared(v, frame.codec.copy) for k, v in values.items()}
    attempt.view = view = graph.view(values, node)
    return _Guarded(graph.shape_of(node), view, watch(graph, values) if frame.strict else None)


def changes(view: Any, given: Given) -> tuple[str, ...]:
    """The keys that a body has set, added or deleted; in strict mode also the places inside of values."""
    return mutations(given, view) if type(given) is dict else given.changes(view)  # type: ignore[union-attr] # the rest is guarded
