"""The steps of a graph inside of a task, from the records that stay when the step around is closed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from beamweaver.engine.along import fold_along, lefts_of
from beamweaver.engine.fold import fold
from beamweaver.errors import DeserializationError
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.history import check_limit
from beamweaver.runtime.inner_views import inner_at
from beamweaver.runtime.namespaces import check_namespace
from beamweaver.runtime.reading import ReadEnv, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import ThreadImage
    from beamweaver.engine.along import Ends
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import ThreadState

__all__ = ["read_inner_history"]


def read_inner_history(
    store: Checkpointer,
    codec: Any,
    find: Callable[[str, str], CompiledGraph],
    thread_id: str,
    namespace: Sequence[str],
    limit: int | None,
) -> Iterator[ThreadState]:
    """The steps that the graph at a namespace has committed, newest first, over all branches.

    Args:
        store: Where the thread is.
        codec: Decodes its values.
        find: From a thread and the name of its graph to that graph.
        thread_id: The thread.
        namespace: The path of nodes.
        limit: How many at the most; None for all.

    Raises:
        InvalidCall: The namespace is none of the graph, or `limit` is no number from 0.
    """
    check_limit(limit)
    image = store.load(thread_id)
    if image is None:
        return iter(())
    graph = find(thread_id, image.row.graph)
    names = check_namespace(graph, namespace)
    return islice(_steps(store, codec, graph, thread_id, names), limit)


def _steps(
    store: Checkpointer, codec: Any, graph: CompiledGraph, thread_id: str, names: tuple[str, ...]
) -> Iterator[ThreadState]:
    plans = GraphCodec(codec, graph)
    node = names[0].partition(":")[0]
    ended: dict[int, Ends] = {}
    for seen in store.history(thread_id, values=False):
        checkpoint, seq = seen.checkpoint.checkpoint, seen.checkpoint.seq
        assert checkpoint is not None, "an image begins at a checkpoint"
        lefts = lefts_of(seen.checkpoint.entries)
        if lefts:
            ended.setdefault(checkpoint.parent, []).append((seq, lefts))
        ends = ended.pop(seq, [])
        if all(task.node != node for task in checkpoint.tasks):
            continue
        image = store.load(thread_id, seq, entries=True)
        if image is None:
            continue  # it was removed meanwhile
        try:
            yield from _inside(image, ReadEnv(codec, plans, deep=True), names, ends)
        except DeserializationError:  # it is of an older version: plain data is shown
            yield from _inside(image, ReadEnv(codec, plans, old=True, deep=True), names, ends)


def _inside(
    image: ThreadImage, env: ReadEnv, names: tuple[str, ...], ends: Ends
) -> list[ThreadState]:
    """The steps of the graph in the step that follows a checkpoint."""
    outer = snapshot(env.graph, image, fold(image, env), env, raw=False)
    found: list[ThreadState] = []
    for state in fold_along(image, env, ends):
        inner = inner_at(outer, state, env, names, kept=False)
        if inner is not None and (not found or _is_another(inner, found[-1])):
            found.append(inner)
    return found[::-1]


def _is_another(state: ThreadState, before: ThreadState) -> bool:
    return (state.step, state.metadata) != (before.step, before.metadata)
