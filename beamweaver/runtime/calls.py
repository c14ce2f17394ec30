"""Calls of graphs by functions: `ctx.call()`, seen from the attempt that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.entries import Memo
from beamweaver.engine.calling import Calling, changed_call, output_of, start_of
from beamweaver.engine.ids import inner_key
from beamweaver.engine.state import Sleep
from beamweaver.errors import InvalidCall
from beamweaver.graph._text import shown
from beamweaver.graph.compiled import CompiledGraph
from beamweaver.runtime import messages as msg
from beamweaver.runtime.inputs import prepare, told
from beamweaver.runtime.substeps import GivenUp, Opened
from beamweaver.types import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.runtime.context import Context
    from beamweaver.runtime.frames import Frame
    from beamweaver.runtime.substeps import Ident, SubSteps
    from supervisors import Future

__all__ = ["GraphCalls", "Pending"]


class Pending(Calling):
    """A call whose caller waits for it; `done` is set when `end` says what it came to."""

    __slots__ = ("done",)

    def __init__(
        self,
        graph: CompiledGraph,
        ident: Ident,
        digest: bytes,
        start: Mapping[str, Any],
        done: Future[None],
    ) -> None:
        super().__init__(graph, ident, digest, start)
        self.done = done

    def offer(self, value: None) -> None:
        """Wake the caller."""
        self.done.offer(value)


class GraphCalls:
    """The calls of one attempt."""

    __slots__ = ("_awaits", "_context", "_frame", "_steps")

    def __init__(self, context: Context, frame: Frame, steps: SubSteps, *, awaits: bool) -> None:
        self._context = context
        self._frame = frame
        self._steps = steps
        self._awaits = awaits

    def call(self, graph: Any, given: Any, key: str | None) -> Any:
        """Call a graph; in an async node, what is to be awaited."""
        if self._awaits:
            name = repr(graph.name) if isinstance(graph, CompiledGraph) else shown(graph)
            calling = self._call_async(graph, given, key)
            return self._steps.unawaited.watch(calling, f"ctx.call({name}, …)")
        _check_graph(graph, self._context.node)
        with Opened(self._steps, graph.name, key, "call") as ident:
            pending = self._begin(ident, graph, given)
            if type(pending) is Pending:
                pending.done.get()
            return self._end(ident, graph, pending)

    async def _call_async(self, graph: Any, given: Any, key: str | None) -> Any:
        _check_graph(graph, self._context.node)
        with Opened(self._steps, graph.name, key, "call") as ident:
            pending = self._begin(ident, graph, given)
            if type(pending) is Pending:
                await pending.done
            return self._end(ident, graph, pending)

    def _begin(self, ident: Ident, graph: CompiledGraph, given: Any) -> Memo | Pending:
        """What the call came to before, or the call that the thread's actor was told of."""
        hub, node = self._frame.hub, self._context.node
        if isinstance(given, Command):
            raise InvalidCall(
                f"node {node!r} calls graph {graph.name!r} with {shown(given)}; give an update of its state"
            )
        placed = (
            f"node {node!r} calls graph {graph.name!r} (call {inner_key(*ident)!r} of the task)"
        )
        with told(placed, node=node):
            prepared = prepare(hub, graph, hub.codec_of(graph), {} if given is None else given)
        memo = self._steps.recorded(ident)
        if memo is not None:
            if memo.digest != prepared.digest:
                raise changed_call(node, graph.name, inner_key(*ident))
            return memo
        if not self._steps.body.live:
            raise GivenUp
        begun: Pending | None = self._steps.under_way.get(ident)
        if begun is not None:  # its caller was cut off, and the graph went on
            if begun.digest != prepared.digest:
                raise changed_call(node, graph.name, inner_key(*ident))
            return begun
        with told(placed, node=node):
            start = start_of(graph, prepared)
        pending = Pending(graph, ident, prepared.digest, start, hub.system.future())
        self._steps.under_way[ident] = pending
        self._steps.body.tell(msg.Call(self._steps.attempt, pending))
        return pending

    def _end(self, ident: Ident, graph: CompiledGraph, pending: Memo | Pending) -> Any:
        """What the call returns, or how the body ends."""
        end = pending if isinstance(pending, Memo) else pending.end
        if isinstance(pending, Pending):
            self._steps.under_way.pop(ident, None)
            if pending.given_up:
                raise GivenUp
            if end is None:
                self._context.wait()
            if isinstance(end, Sleep):
                self._context.park(end)
            if isinstance(end, Exception):
                raise end
            assert isinstance(end, Memo), "a call has ended in one of these ways"
            self._steps.keep(ident, end)
        assert isinstance(end, Memo), "a call that ended before has a result"
        return output_of(graph, end.value, self._frame.hub.codec_of(graph))


def _check_graph(graph: object, node: str) -> None:
    if not isinstance(graph, CompiledGraph):
        raise InvalidCall(
            f"node {node!r}: ctx.call({shown(graph)}, …); give a compiled graph: Graph(…).compile()"
        )
    if graph.checkpointer is not None:
        raise InvalidCall(
            f"node {node!r} calls graph {graph.name!r}, which has a checkpointer, and what a node calls is "
            "kept with its thread: compile it without one. (For a thread of its own: graph.invoke(…), inside "
            "of ctx.step(…))"
        )
