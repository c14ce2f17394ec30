"""Looking back at threads that are kept, and cleaning up: what apps and runtimes have in common."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, get_args

from beamweaver.checkpoint.records import StatusName
from beamweaver.engine.refusals import wrong_graph
from beamweaver.errors import CorruptRecord, InvalidCall, ThreadBusy
from beamweaver.limits import DEFAULT_LIMITS
from beamweaver.runtime.blocking import refuse_blocking
from beamweaver.runtime.editing import EditedThreads
from beamweaver.runtime.edits import Apply
from beamweaver.runtime.heads import move_head
from beamweaver.runtime.history import read_history
from beamweaver.runtime.inner_history import read_inner_history
from beamweaver.runtime.lookup import row_of
from beamweaver.runtime.reading import seq_of
from beamweaver.runtime.requests import check_thread_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import ThreadRow
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits
    from beamweaver.runtime.core import Core
    from beamweaver.runtime.hub import Hub
    from beamweaver.types import ThreadState

__all__ = ["KeptThreads", "Source"]

_EXECUTING: Final = ("accepted", "running", "sleeping")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_PAGE: Final = 1_000


class Source:
    """Where threads are read: a store, its codec, and how a thread's graph is found."""

    __slots__ = ("codec", "find", "limits", "store")

    def __init__(
        self,
        store: Checkpointer,
        codec: Any,
        find: Callable[[str, str], CompiledGraph],
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.store = store
        self.codec = codec
        self.find = find
        self.limits = limits


class KeptThreads(EditedThreads):
    """The calls of `App` and `Runtime` about threads that are kept.

    Those that change the store go through its checkpoint writer, between two groups of commits. They need
    ownership, as calls do; reading needs none. On an app they are about the threads of its graph alone.
    """

    @abc.abstractmethod
    def _source(self) -> Source:
        """Where threads are read."""

    @abc.abstractmethod
    def _editor(self) -> tuple[Core, str | None]:
        """Who changes the store, and the only graph whose threads it may change, if there is one."""

    def _editing(self, call: str) -> tuple[Core, str | None]:
        """`_editor`, where the caller may wait for the writer."""
        core, only = self._editor()
        refuse_blocking(core, call, f"a{call}")
        return core, only

    def get_state_history(
        self,
        thread_id: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        namespace: Sequence[str] = (),
    ) -> Iterator[ThreadState]:
        """The checkpoints of a thread, of all its branches, newest first by the order of storing.

        Each is raw: the committed values and the tasks that came next, without what happened in the open step
        (`get_state` shows that). `status`, and `reason` in the metadata, are those of the thread now. It is
        read when it is iterated, some checkpoints at a time, also while the thread runs or another process
        owns the store; what is written or removed meanwhile is seen or missed.

        Args:
            thread_id: The thread; one that does not exist has no history.
            limit: How many at the most; None for all.
            before: A checkpoint's id; only older ones are given. It may have been removed since.
            filter: What the metadata must have, such as `{"source": "loop"}`: any of `graph`, `version`,
                `source` (`"input"`, `"loop"`, `"update"` or `"fork"`), `step`, `run_id`, `reason` and
                `owner_deaths`.
            namespace: The nodes that lead to a graph inside of this one, the outermost first: its steps
                in place of the thread's, of each time that it ran. Of several at once the first one's are
                given. `before` and `filter` are for threads.

        Returns:
            An iterator of states; `state.config["configurable"]["checkpoint_id"]` is the checkpoint's id.

        Raises:
            InvalidCall: An argument is wrong; raised by the call. Or `filter` names a key that no checkpoint
                of the thread has; raised when all were read.
            WrongGraph: The thread belongs to another graph than the app's; raised by the first item.
            UnknownGraph: The runtime has no such graph; raised by the first item.
            CorruptRecord: A record is damaged; raised where it is reached.

        Example:
            >>> from beamweaver import END, START, Graph
            >>> from beamweaver.checkpoint import MemoryCheckpointer
            >>> graph = Graph(name="double").add_node("double", lambda state: {"n": state["n"] * 2})
            >>> graph = graph.add_edge(START, "double").add_edge("double", END)
            >>> with graph.compile(checkpointer=MemoryCheckpointer()) as app:
            ...     _ = app.invoke({"n": 21}, thread_id="a")
            ...     [(state.step, state.values["n"]) for state in app.get_state_history("a", limit=1)]
            [(1, 42)]
        """
        source = self._source()
        check_thread_id(thread_id, source.limits)
        if namespace:
            if before is not None or filter is not None:
                raise InvalidCall(
                    "the steps of a subgraph have no ids and no notes; leave before= and filter= out"
                )
            store, codec, find = source.store, source.codec, source.find
            return read_inner_history(store, codec, find, thread_id, namespace, limit)
        return read_history(
            source.store,
            source.codec,
            source.find,
            thread_id,
            limit=limit,
            before=before,
            filter=filter,
        )

    def aget_state_history(
        self,
        thread_id: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        namespace: Sequence[str] = (),
    ) -> AsyncIterator[ThreadState]:
        """`get_state_history`, for `async for`: some checkpoints at a time are read on another worker."""
        from beamweaver.runtime.aio import read_aside  # noqa: PLC0415 - asyncio is loaded here

        return read_aside(
            self.get_state_history(
                thread_id, limit=limit, before=before, filter=filter, namespace=namespace
            )
        )

    def copy_thread(self, source: str, target: str) -> bool:
        """Copy a thread as the store has it, also while it runs: all checkpoints, runs and open questions.

        Messages in its inbox are not copied. Questions and checkpoints keep their ids. A run of the copy that
        was executing is `cancelled`: it goes on with the next call.

        Args:
            source: The thread.
            target: The id of the copy.

        Returns:
            Whether the source exists; if not, nothing was done.

        Raises:
            InvalidCall: The target exists.
            WrongGraph: The source belongs to another graph than the app's.
            StoreError: The store refused it; there is no copy then.
        """
        core, only = self._editing("copy_thread")
        limits = core.hub.limits
        check_thread_id(source, limits)
        check_thread_id(target, limits)

        def copy(store: Checkpointer, epoch: int) -> bool:
            _check_graph(row_of(store, source), only)
            if row_of(store, target) is not None:
                raise InvalidCall(
                    f"thread {target!r} exists, so thread {source!r} cannot be copied there; delete it "
                    "first, or give another id",
                    thread_id=target,
                )
            return store.copy_thread(epoch, source, target)

        return bool(_apply(core, copy, changes=target))

    def set_head(self, thread_id: str, checkpoint_id: str) -> bool:
        """Move the head of a thread to another checkpoint, of any branch; nothing is removed.

        At the last checkpoint of a branch the thread is as it was there, with the open questions and the
        results of its open step. Amid a branch, what goes on from there begins a new one.

        Args:
            thread_id: The thread.
            checkpoint_id: The checkpoint, as in `get_state_history`.

        Returns:
            Whether the thread exists; if not, nothing was done.

        Raises:
            InvalidCall: It has no such checkpoint.
            ThreadBusy: It runs; `cancel` it first, or wait.
            Quarantined: It is set aside.
            WrongGraph: It belongs to another graph than the app's.
            UnknownGraph: The runtime lacks its graph.
            StoreError: The store refused it.
        """
        core, only = self._editing("set_head")
        check_thread_id(thread_id, core.hub.limits)
        if seq_of(checkpoint_id) is None:
            raise InvalidCall("checkpoint_id is None; take one from get_state_history")

        def move(store: Checkpointer, epoch: int) -> bool:
            row = row_of(store, thread_id)
            if row is None:
                return False
            _check_graph(row, only)
            _check_rests(core.hub, row, epoch, "moved")
            return move_head(core.hub, store, epoch, row, checkpoint_id)

        return bool(_apply(core, move, changes=thread_id))

    def delete_thread(self, thread_id: str) -> bool:
        """Remove all of a thread, with its inbox; when this returns that is durable.

        A call that waits for its turn meanwhile begins a new thread, and so does the next one; a new thread
        under the id has new checkpoint ids, task ids and idempotency keys.

        Args:
            thread_id: The thread.

        Returns:
            Whether it existed.

        Raises:
            ThreadBusy: It runs; `cancel` it first, or wait.
            WrongGraph: It belongs to another graph than the app's.
            StoreError: The store refused it.
        """
        core, only = self._editing("delete_thread")
        hub = core.hub
        check_thread_id(thread_id, hub.limits)

        def delete(store: Checkpointer, epoch: int) -> bool:
            row = _row_if_whole(hub, store, thread_id)
            _check_graph(row, only)
            _check_rests(hub, row, epoch, "deleted")
            found = store.delete_thread(epoch, thread_id)
            hub.quarantined.pop(thread_id, None)
            hub.aside.pop(thread_id, None)
            return found

        return bool(_apply(core, delete, changes=thread_id))

    def delete_runs(self, thread_id: str, run_ids: Iterable[str]) -> int:
        """Remove the checkpoints of a thread's runs, and forget their ids: such an id begins a new run then.

        The run at the head stays, whoever asks; so a thread that runs goes on undisturbed.

        Args:
            thread_id: The thread.
            run_ids: The runs; unknown ones are passed over.

        Returns:
            How many checkpoints were removed.

        Raises:
            InvalidCall: `run_ids` is one text, or has something else in it.
            WrongGraph: The thread belongs to another graph than the app's.
            StoreError: The store refused it.
        """
        core, only = self._editing("delete_runs")
        check_thread_id(thread_id, core.hub.limits)
        names = _texts("run_ids", run_ids)

        def delete(store: Checkpointer, epoch: int) -> int:
            _check_graph(row_of(store, thread_id), only)
            return store.delete_runs(epoch, thread_id, names)

        removed: int = _apply(core, delete)
        return removed

    def prune(
        self,
        thread_ids: Iterable[str] | None = None,
        keep_last: int = 1,
        older_than: float | None = None,
    ) -> int:
        """Remove old checkpoints, also of threads that run. Commits come between its short transactions.

        The head of a thread stays, with its open step, its questions and what its values need.

        Args:
            thread_ids: Which threads; None for all (of the app's graph, or of the store). Unknown ones are
                passed over; of all, one that is called meanwhile may be.
            keep_last: How many of the newest checkpoints of each branch stay.
            older_than: Only those go that were committed more than so many seconds ago.

        Returns:
            How many checkpoints were removed.

        Raises:
            InvalidCall: An argument is wrong.
            WrongGraph: A thread belongs to another graph than the app's; those before it were pruned.
            CorruptRecord: A thread is damaged; it comes when all others are done.
            StoreError: The store refused it.
        """
        core, only = self._editing("prune")
        store = core.store
        if thread_ids is None:
            ids = _all_ids(store, only)
        else:
            given = _texts("thread_ids", thread_ids)
            ids = iter([check_thread_id(given_id, core.hub.limits) for given_id in given])
        _check_rule(keep_last, older_than)
        removed = 0
        damaged: CorruptRecord | None = None
        for thread_id in ids:
            try:
                _check_graph(row_of(store, thread_id), only)
                removed += _pruned(core, thread_id, keep_last, older_than)
            except CorruptRecord as error:
                damaged = damaged or error
        if damaged is not None:
            raise damaged
        return removed

    # The same, awaitable: it is waited for on another worker. A caller that goes away leaves it to go on.

    async def acopy_thread(self, source: str, target: str) -> bool:
        """`copy_thread`, awaitable."""
        return await _on_a_worker(self.copy_thread, source, target)

    async def aset_head(self, thread_id: str, checkpoint_id: str) -> bool:
        """`set_head`, awaitable."""
        return await _on_a_worker(self.set_head, thread_id, checkpoint_id)

    async def adelete_thread(self, thread_id: str) -> bool:
        """`delete_thread`, awaitable."""
        return await _on_a_worker(self.delete_thread, thread_id)

    async def adelete_runs(self, thread_id: str, run_ids: Iterable[str]) -> int:
        """`delete_runs`, awaitable."""
        return await _on_a_worker(self.delete_runs, thread_id, run_ids)

    async def aprune(
        self,
        thread_ids: Iterable[str] | None = None,
        keep_last: int = 1,
        older_than: float | None = None,
    ) -> int:
        """`prune`, awaitable."""
        return await _on_a_worker(self.prune, thread_ids, keep_last, older_than)


async def _on_a_worker(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    from beamweaver.runtime.aio import on_a_worker  # noqa: PLC0415 - asyncio is loaded here

    return await on_a_worker(call, *args, **kwargs)


def _pruned(core: Core, thread_id: str, keep_last: int, older_than: float | None) -> int:
    """Prune one thread, a transaction a message, so that commits are not held up."""
    chunks: list[Iterator[int]] = []

    def step(store: Checkpointer, epoch: int) -> int | None:
        if not chunks:
            chunks.append(
                store.prune(epoch, [thread_id], keep_last=keep_last, older_than=older_than)
            )
        return next(chunks[0], None)

    removed = 0
    while (count := _apply(core, step)) is not None:
        removed += count
    return removed


def _apply(core: Core, fn: Callable[[Any, int], Any], *, changes: str | None = None) -> Any:
    """Have the checkpoint writer do something, and wait for it."""
    hub = core.hub
    edit = Apply(fn, core.system.future(), changes)
    hub.edits.add(edit)
    try:
        assert hub.writer is not None, "a core that takes calls has a writer"
        hub.writer.put(edit)
        return edit.done.get()
    finally:
        hub.edits.drop(edit)


def _row_if_whole(hub: Hub, store: Checkpointer, thread_id: str) -> ThreadRow | None:
    """The thread's row; None also for one so damaged that nobody can run it, for it may be deleted."""
    try:
        return row_of(store, thread_id)
    except CorruptRecord:
        if hub.bodies.get(thread_id):
            raise
        return None


def _check_rests(hub: Hub, row: ThreadRow | None, epoch: int, what: str) -> None:
    if row is None or row.status not in _EXECUTING or row.thread_id in hub.quarantined:
        return
    if max(row.run.claimed_epoch, row.run.taken_up_epoch) == epoch:
        raise ThreadBusy(
            f"thread {row.thread_id!r} runs (run {row.run.names[0]!r}), so it cannot be {what}; wait "
            "for the run, or cancel it first",
            thread_id=row.thread_id,
            run_id=row.run.names[0],
        )


def _check_graph(row: ThreadRow | None, only: str | None) -> None:
    if row is not None and only is not None and row.graph != only:
        raise wrong_graph(row.thread_id, row.graph, only)


def _check_rule(keep_last: object, older_than: object) -> None:
    """Judge the arguments even where there is nothing to prune."""
    if not isinstance(keep_last, int) or keep_last < 0:
        raise InvalidCall(f"keep_last is {keep_last!r}; give a number from 0")
    if older_than is not None and (not isinstance(older_than, int | float) or not older_than >= 0):
        raise InvalidCall(f"older_than is {older_than!r}; give seconds from 0, or None")


def _texts(name: str, given: Iterable[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if isinstance(given, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidCall(f"{name} is {given!r}; give a list of ids")
    return texts


def _all_ids(store: Checkpointer, only: str | None) -> Iterator[str]:
    """The ids of all threads (of a graph), a page at a time."""
    for status in get_args(StatusName):
        after = ""
        while page := list(store.threads(statuses=(status,), after=after, limit=_PAGE)):
            yield from (line.thread_id for line in page if only in (None, line.graph))
            after = page[-1].thread_id
