"""Taking values from the store again, after user code may have changed shared ones in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine.fold import fold_opening
from beamweaver.engine.merge import with_initial
from beamweaver.engine.unread import read

if TYPE_CHECKING:
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import InnerState, OpenStep, Result

__all__ = ["reread_inner", "reread_step"]


def reread_step(mine: OpenStep, stored: OpenStep) -> None:
    """Take the values of an open step as the store has them, beside those that no store keeps."""
    for task, kept in zip(mine.tasks, stored.tasks, strict=True):
        if task.result is not None and kept.result is not None:
            _take_stored(task.result, kept.result)
        if task.update is not None:
            task.update = {**task.update, **(kept.update or {})}
    for amendment, other in zip(mine.amendments, stored.amendments, strict=False):
        _take_stored(amendment, other)


def _take_stored(mine: Result, stored: Result) -> None:
    mine.writes = (*stored.writes, *[write for write in mine.writes if not write.data])
    for send, kept in zip(mine.sends, stored.sends, strict=True):
        send.update = {**send.update, **kept.update}


def reread_inner(mine: InnerState, stored: InnerState | None, env: Env) -> None:
    """The same for a graph inside of a task, and all in it, if the store has it in the same step.

    Of one that has no record yet the first record is ready: it has the values as they were at its beginning.

    Args:
        mine: The graph.
        stored: The same in the store.
        env: Of the graph.
    """
    if mine.opening is not None:
        stored = fold_opening(mine, env)
    if stored is None or stored.step.number != mine.step.number or mine.unread:
        return
    if stored.unread:
        read(stored, mine.graph, env)
    unstored = mine.graph.unstored
    for key in ("start", "values"):
        live = {k: v for k, v in getattr(mine, key).items() if k in unstored}
        setattr(mine, key, {**getattr(stored, key), **live})
    mine.values = with_initial(mine.graph, mine.values)
    reread_step(mine.step, stored.step)
    for task, kept in zip(mine.step.tasks, stored.step.tasks, strict=True):
        for key, inner in (task.inner or {}).items():
            reread_inner(inner, (kept.inner or {}).get(key), env.inside(inner.graph))
