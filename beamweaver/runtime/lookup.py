"""The state of a thread as people ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.engine.refusals import wrong_graph
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.inner_views import inner_at, with_subgraphs
from beamweaver.runtime.namespaces import check_namespace
from beamweaver.runtime.reading import ReadEnv, folded, is_checkpoint, seq_of, snapshot, why_not

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import ThreadRow
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import ThreadState

__all__ = ["read_state", "row_of"]


def read_state(
    store: Checkpointer,
    codec: Any,
    graph: CompiledGraph,
    thread_id: str,
    checkpoint: str | None = None,
    *,
    subgraphs: bool = False,
    namespace: Sequence[str] = (),
) -> ThreadState | None:
    """A thread, or a graph in it, as the store has it; None if it, or that checkpoint, does not exist.

    Args:
        store: Where the thread is.
        codec: Decodes its values.
        graph: The thread's.
        thread_id: The thread.
        checkpoint: A checkpoint's id, raw; None for the head.
        subgraphs: Whether tasks show how the graphs in them stand.
        namespace: The nodes that lead to the graph that is asked for; none for the thread's own.

    Raises:
        WrongGraph: The thread was begun by a graph of another name.
        InvalidCall: `checkpoint` is no checkpoint id, or `namespace` is none of the graph.
    """
    seq = seq_of(checkpoint)
    names = check_namespace(graph, namespace)
    image = store.load(thread_id, seq)
    if image is None or not is_checkpoint(image, checkpoint):
        return None
    if image.row.graph != graph.name:
        raise wrong_graph(thread_id, image.row.graph, graph.name)
    raw = seq is not None
    plans = GraphCodec(codec, graph)
    env = ReadEnv(codec, plans)
    deep = subgraphs or bool(names)
    state, error = folded(image, codec, plans, raw=raw, deep=deep)
    if not raw:
        error = why_not(image, graph, error)
    found = snapshot(graph, image, state, env, raw=raw, graph_error=error)
    if names:
        return inner_at(found, state, env, names)
    return with_subgraphs(found, state) if subgraphs else found


def row_of(store: Checkpointer, thread_id: str) -> ThreadRow | None:
    """The thread's row, read without its values; None if it does not exist."""
    image = next(store.history(thread_id, limit=1, values=False), None)
    return None if image is None else image.row
