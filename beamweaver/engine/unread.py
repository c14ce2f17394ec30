"""What the store has of a graph that a function calls, before the function has called it again.

Such a graph is known by its call alone. Its records are folded all the same, for its questions must be
answered and its sleeps end before the function runs again; but its values stay as they are stored, until
`read` brings them into the terms of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.engine.merge import with_initial

if TYPE_CHECKING:
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import InnerState, Planned, Result, Task, Write
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["AsPlainData", "Unread", "read"]


class Unread:
    """An `Env` for folding that leaves the values of channels as they are stored."""

    def __init__(self, env: Env) -> None:
        self.graph = env.graph
        self.around: Any = self
        self.decode_any = env.decode_any

    def decode(self, _channel: str, data: bytes) -> Any:
        """The value as it is stored."""
        return data

    def decode_sent(self, _node: str, _key: str, data: bytes) -> Any:
        """The value as it is stored."""
        return data


class AsPlainData(Unread):
    """The same for those who only look: values are plain data."""

    def decode(self, _channel: str, data: bytes) -> Any:
        """The value, of no type that a graph declares."""
        return self.decode_any(data)

    def decode_sent(self, _node: str, _key: str, data: bytes) -> Any:
        """The value, of no type that a graph declares."""
        return self.decode_any(data)


def read(state: InnerState, graph: CompiledGraph, env: Env) -> None:
    """Bring what is known of a called graph into the terms of that graph.

    Args:
        state: What the store has of it.
        graph: The graph.
        env: Of the graph.

    Raises:
        DeserializationError: A stored value cannot be read back.
    """
    start = {key: env.decode(key, data) for key, data in state.start.items()}
    values = {key: env.decode(key, data) for key, data in state.values.items()}
    for task in (*state.step.tasks, *state.deferred):
        _read_task(task, graph, env)
    state.graph, state.unread = graph, False
    state.start, state.values = start, with_initial(graph, values)


def _read_task(task: Task, graph: CompiledGraph, env: Env) -> None:
    if task.update_data is not None:
        task.update = {
            key: env.decode_sent(task.node, key, data) for key, data in task.update_data.items()
        }
    if task.result is not None:
        _read_result(task.result, env)
        if task.result.up is not None:
            _read_result(task.result.up, env.around)
    node = graph.nodes.get(task.node)
    inner = (task.inner or {}).get("")
    if inner is None:
        return
    if node is None or node.subgraph is None:
        assert task.inner is not None, "it was just looked into"
        del task.inner[""]  # the graph has lost the node; who goes on with it is told
        return
    inner.outer = graph
    read(inner, node.subgraph, env.inside(node.subgraph))


def _read_result(result: Result, env: Env) -> None:
    _read_writes(result.writes, env)
    for send in result.sends:
        _read_send(send, env)


def _read_writes(writes: tuple[Write, ...], env: Env) -> None:
    for write in writes:
        write.value = env.decode(write.channel, write.data)


def _read_send(send: Planned, env: Env) -> None:
    send.update = {key: env.decode_sent(send.node, key, data) for key, data in send.data.items()}
