"""The steps of a graph inside of a task, as far as the records of the open step tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.engine.fold import fold, fold_along
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.inner_views import check_namespace, inner_at
from beamweaver.runtime.reading import ReadEnv, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from beamweaver.checkpoint.base import Checkpointer
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
    """The steps that the graph at a namespace has committed in the thread's open step, newest first.

    Args:
        store: Where the thread is.
        codec: Decodes its values.
        find: From a thread and the name of its graph to that graph.
        thread_id: The thread.
        namespace: The path of nodes.
        limit: How many at the most; None for all.

    Raises:
        InvalidCall: The namespace is none of the graph.
    """
    image = store.load(thread_id)
    if image is None:
        return
    graph = find(thread_id, image.row.graph)
    names = check_namespace(graph, namespace)
    env = ReadEnv(codec, GraphCodec(codec, graph))
    outer = snapshot(graph, image, fold(image, env), env, raw=False)
    found: list[ThreadState] = []
    for state in fold_along(image, env):
        inner = inner_at(outer, state, env, names)
        if inner is not None and (not found or _is_another(inner, found[-1])):
            found.append(inner)
    yield from found[::-1][:limit]


def _is_another(state: ThreadState, before: ThreadState) -> bool:
    return (state.step, state.metadata) != (before.step, before.metadata)
