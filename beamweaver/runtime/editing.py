"""Edits of a thread's state, as users make them on apps, runtimes and handles."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from beamweaver.errors import InvalidCall
from beamweaver.runtime.answers import given_id
from beamweaver.runtime.blocking import refuse_blocking
from beamweaver.runtime.requests import Update, check_thread_id, place_of
from beamweaver.types import StateUpdate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.core import Core
    from beamweaver.runtime.waiters import Waiting

__all__ = ["EditedThreads", "amake_edit", "make_edit"]


class EditedThreads(abc.ABC):
    """The calls of `App` and `Runtime` that edit the state of a thread."""

    @abc.abstractmethod
    def _place_of_edit(self, _thread_id: str) -> tuple[Core, CompiledGraph]:
        """Who runs the thread, and its graph."""

    def update_state(
        self,
        thread_id: str | None,
        values: Any,
        as_node: str | None = None,
        checkpoint_id: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        config: Mapping[str, Any] | None = None,
        on_busy: str = "queue",
    ) -> str:
        """Edit a thread's state: a new checkpoint, made through the graph's channels and edges.

        Reducers apply. Nothing runs but the routers of `as_node`; `invoke(None)` goes on from there.

        On a step that is not finished (the thread failed, waits, was cancelled …):

        - without `as_node` the values are an amendment: the step keeps its results and questions;
        - as a node of the step, or the id of one of its tasks, they are the result of that task; if the
          task is finished, they are added to what it gave. With the last result the step is finished;
        - as another node they leave the step: a branch with all that was finished, whose next tasks are
          those to which the edges of that node lead. `START` leads to the entry, `END` to nowhere.

        On a finished step the edges of `as_node` say what comes next; without it, it is the one node that ran
        last. A thread that does not exist begins, as `START` without `as_node`.

        Args:
            thread_id: The thread; None where `config` names it.
            values: What a node may return: an update, a `Command`, a `Send`, a list of these; or None.
            as_node: The node that they count as written by, `START`, `END`, or the id of a task.
            checkpoint_id: An older checkpoint, which starts a branch; the head if None.
            namespace: The path of nodes to a graph that has begun in the open step: the edit is of that
                graph's open step. `()` is the graph itself.
            config: LangGraph's form of thread and checkpoint.
            on_busy: While the thread runs: `"queue"` waits for it, `"reject"` raises `ThreadBusy`.

        Returns:
            The id of the new checkpoint, which is the thread's head.

        Raises:
            InvalidCall: There is no such node or checkpoint.
            InvalidUpdate, UnknownChannel, UnknownTarget: The values do not fit the graph, or do not merge.
            AmbiguousUpdate: As which node the values count is not clear; `.candidates` names them.
            RouterFailed: A router of `as_node` failed.
            ThreadBusy: The thread runs, with `on_busy="reject"`.
            WrongGraph: The thread belongs to another graph.
            StoreError: The store refused it.

        Example:
            >>> from beamweaver import END, START, Graph
            >>> from beamweaver.checkpoint import MemoryCheckpointer
            >>> graph = Graph(name="double").add_node("double", lambda state: {"n": state["n"] * 2})
            >>> graph = graph.add_edge(START, "double").add_edge("double", END)
            >>> with graph.compile(checkpointer=MemoryCheckpointer()) as app:
            ...     _ = app.invoke({"n": 21}, thread_id="a")
            ...     made = app.update_state("a", {"n": 5}, as_node=START)
            ...     app.get_state("a").next, app.invoke(None, thread_id="a").state["n"]
            (('double',), 10)
        """
        steps = [[StateUpdate(values, as_node)]]
        return self._make(thread_id, steps, checkpoint_id, namespace, config, on_busy)

    def bulk_update_state(
        self,
        thread_id: str | None,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        config: Mapping[str, Any] | None = None,
        on_busy: str = "queue",
    ) -> str:
        """Edit a thread's state in several supersteps, one checkpoint each; all become durable, or none.

        Args:
            thread_id: The thread; None where `config` names it.
            supersteps: For each superstep its updates; several in one each need a node of their own.
            checkpoint_id: See `update_state`.
            namespace: See `update_state`.
            config: See `update_state`.
            on_busy: See `update_state`.

        Returns:
            The id of the last checkpoint.

        Raises:
            InvalidCall: There is nothing to do, or the updates of a superstep do not fit together.
            BeamWeaverError: As `update_state`.
        """
        return self._make(thread_id, supersteps, checkpoint_id, namespace, config, on_busy)

    async def aupdate_state(
        self,
        thread_id: str | None,
        values: Any,
        as_node: str | None = None,
        checkpoint_id: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        config: Mapping[str, Any] | None = None,
        on_busy: str = "queue",
    ) -> str:
        """`update_state`, awaitable."""
        steps = [[StateUpdate(values, as_node)]]
        return await self._amake(thread_id, steps, checkpoint_id, namespace, config, on_busy)

    async def abulk_update_state(
        self,
        thread_id: str | None,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        config: Mapping[str, Any] | None = None,
        on_busy: str = "queue",
    ) -> str:
        """`bulk_update_state`, awaitable."""
        return await self._amake(thread_id, supersteps, checkpoint_id, namespace, config, on_busy)

    def _make(
        self,
        thread_id: str | None,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None,
        namespace: tuple[str, ...],
        config: Mapping[str, Any] | None,
        on_busy: str,
    ) -> str:
        thread_id, checkpoint = _checked(thread_id, checkpoint_id, config)
        core, graph = self._place_of_edit(thread_id)
        update = Update(supersteps, checkpoint, on_busy, namespace)
        return make_edit(core, graph, thread_id, update)

    async def _amake(
        self,
        thread_id: str | None,
        supersteps: Sequence[Sequence[StateUpdate]],
        checkpoint_id: str | None,
        namespace: tuple[str, ...],
        config: Mapping[str, Any] | None,
        on_busy: str,
    ) -> str:
        from beamweaver.runtime.aio import on_a_worker  # noqa: PLC0415 - asyncio is loaded here

        thread_id, checkpoint = _checked(thread_id, checkpoint_id, config)
        core, graph = await on_a_worker(self._place_of_edit, thread_id)  # it may open files
        update = Update(supersteps, checkpoint, on_busy, namespace)
        return await amake_edit(core, graph, thread_id, update)


def make_edit(core: Core, graph: CompiledGraph, thread_id: str, update: Update) -> str:
    """Edit a thread and wait until that is durable; the new checkpoint's id."""
    refuse_blocking(core, "update_state", "aupdate_state")
    waiting = _submitted(core, graph, thread_id, update)
    try:
        return given_id(waiting.done.get())
    except BaseException:  # a Ctrl-C too ends only the wait
        core.hub.waiters.leave(thread_id, waiting)
        raise
    finally:
        core.hub.waiters.let_go(waiting)


async def amake_edit(core: Core, graph: CompiledGraph, thread_id: str, update: Update) -> str:
    """The same, awaitable. A caller that goes away before the edit's turn takes it along."""
    from beamweaver.runtime.aio import edited_by  # noqa: PLC0415 - asyncio is loaded here

    waiting = _submitted(core, graph, thread_id, update)
    return given_id(await edited_by(core, graph, thread_id, waiting))


def _submitted(core: Core, graph: CompiledGraph, thread_id: str, update: Update) -> Waiting:
    check_thread_id(thread_id, core.hub.limits)
    return core.submit(graph, thread_id, update, waits=True)


def _checked(
    thread_id: str | None,
    checkpoint_id: str | None,
    config: Mapping[str, Any] | None,
) -> tuple[str, str | None]:
    given, checkpoint = place_of(thread_id, config, checkpoint_id)
    if given is None:
        raise InvalidCall("update_state needs a thread_id; it is in the outcome of every call")
    return given, checkpoint
