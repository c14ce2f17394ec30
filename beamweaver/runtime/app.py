"""Graphs that can be called: the builder whose `compile()` gives an `App`, and the `App`."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from beamweaver.checkpoint.base import Checkpointer
from beamweaver.checkpoint.codec import Codec
from beamweaver.checkpoint.memory import MemoryCheckpointer
from beamweaver.engine.refusals import wrong_graph
from beamweaver.errors import InvalidCall, NoCheckpointer
from beamweaver.graph.builder import Graph as GraphBuilder
from beamweaver.limits import DEFAULT_LIMITS
from beamweaver.runtime import places
from beamweaver.runtime.answers import await_outcome, check_on_disconnect
from beamweaver.runtime.blocking import refuse_blocking, refuse_in_node
from beamweaver.runtime.core import Core
from beamweaver.runtime.drawn import DrawnThreads
from beamweaver.runtime.handle import ThreadHandle
from beamweaver.runtime.keeping import KeptThreads, Source
from beamweaver.runtime.lookup import read_state
from beamweaver.runtime.options import CallOptions, check_options, waiting_time
from beamweaver.runtime.requests import check_thread_id, merge_place, message_name, place_of
from beamweaver.types import Invoke, Resume

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from beamweaver.graph.compiled import CompiledGraph, FailurePolicy
    from beamweaver.runtime.requests import Message
    from beamweaver.runtime.waiters import Waiting
    from beamweaver.types import Duration, Outcome, ThreadState

__all__ = ["App", "Graph"]

_EPHEMERAL_WORKERS = 128


class App(DrawnThreads, KeptThreads):
    """A compiled graph that can be called.

    The first call starts a private runtime, one a store, which takes up only threads that are called; it
    ends with `close()`, at the end of `with app:`, or at the process's exit. While a `Runtime` owns the
    graph's store, calls go through that one.

    Without a checkpointer each call is a new thread that ends with the call.

    Example:
        >>> from beamweaver import END, START, Graph
        >>> app = (
        ...     Graph(name="double")
        ...     .add_node("double", lambda state: {"n": state["n"] * 2})
        ...     .add_edge(START, "double").add_edge("double", END)
        ...     .compile()
        ... )
        >>> with app:
        ...     app.invoke({"n": 21}).state["n"]
        42
    """

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._lock = threading.Lock()
        self._core: Core | None = None
        self._codec: Codec | None = None
        store = self.checkpointer
        if store is not None and not isinstance(store, Checkpointer):
            raise InvalidCall(
                f"checkpointer is {store!r}; give LMDBCheckpointer(path) or MemoryCheckpointer()"
            )

    # Calls --------------------------------------------------------------------------------------

    def invoke(
        self,
        input: Any,  # noqa: A002 - the field's name
        *,
        thread_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        on_unfinished: str = "continue",
        raises: bool = True,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        """Run the graph on a thread: start, join, amend or continue, by how the thread stands.

        Args:
            input: An update of the state, or a `Command`: on an unfinished thread its `update` is an
                amendment, its `goto` more tasks, its `resume` answers. None continues what is unfinished.
            thread_id: The thread; without one a new thread is made, its id is in the outcome.
            config: LangGraph's form: `{"configurable": {"thread_id": …, "checkpoint_id": …}}`.
            on_unfinished: `"continue"`, `"reject"`, or `"restart"` in place of an unfinished run.
            raises: Whether a failed run raises its error; else `Failed` is returned.
            timeout: Seconds to wait for the outcome; None waits for ever. The run goes on when they are over
                (`run_timeout` ends it).
            **options: `run_id`, `recursion_limit`, `run_timeout`, `step_timeout`, `failure_policy`,
                `max_concurrency`, `on_busy`, `metadata`, `tags`, `rerun`, `context`, `durability`,
                `checkpoint_id`, `fork`: see `beamweaver.CallOptions`.

        Returns:
            `Completed`, `Interrupted`, `Drained`, `Cancelled` or `Failed`; all have `.state`.

        Raises:
            CallRefused: The call cannot be taken; nothing was changed.
            InvalidUpdate: The input does not fit the graph.
            RunFailed: The run failed (with `raises`); the same call goes on from what is done.
            AskTimeout: The time is over; says what is waited for, such as an owner of the store.
            StoreError: The store cannot be opened, is owned by another process, or refused a write.
            TypeError: There is no such option.
        """
        check_options(options, "invoke")
        thread_id = merge_place(options, thread_id, config)
        return self._call(
            Invoke(input, on_unfinished=on_unfinished, **options),
            thread_id,
            raises=raises,
            timeout=timeout,
        )

    def resume(
        self,
        answer: Any = msgspec.UNSET,
        *,
        answers: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        raises: bool = True,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        """Answer open questions and go on. Without an answer it is `invoke(None)`.

        With an older `checkpoint_id` (or `fork=True`) the branch that starts there runs until its one
        question is asked, and the answer is given to that.

        Args:
            answer: The answer to the one open question (None is one), or a map from question id to answer.
            answers: Such a map, explicitly.
            thread_id: The thread.
            config: LangGraph's form of it.
            raises: Whether a failed run raises.
            timeout: Seconds to wait, as in `invoke`.
            **options: Those of `invoke`.

        Raises:
            NothingToResume: No question is open.
            AmbiguousResume: One answer, several questions.
            UnknownInterrupt: No open question has that id.
            AlreadyAnswered: The question was answered before.
            InvalidAnswer: The question's schema refuses the answer; the question stays open.
        """
        check_options(options, "resume")
        thread_id = merge_place(options, thread_id, config)
        return self._call(
            Resume(answer, answers, **options),
            self._kept_thread(thread_id, "resume"),
            raises=raises,
            timeout=timeout,
        )

    async def ainvoke(
        self,
        input: Any,  # noqa: A002 - the field's name
        *,
        thread_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        on_unfinished: str = "continue",
        on_disconnect: str = "cancel",
        raises: bool = True,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        """`invoke`, awaitable; the arguments are those of `invoke`, and `on_disconnect`.

        When the awaiting task is cancelled, `on_disconnect="cancel"` cancels the run, which stays
        resumable (unless others wait for it); `"continue"` lets it go on.
        """
        check_options(options, "ainvoke")
        thread_id = merge_place(options, thread_id, config)
        return await self._acall(
            Invoke(input, on_unfinished=on_unfinished, **options),
            thread_id,
            raises=raises,
            timeout=timeout,
            on_disconnect=on_disconnect,
        )

    async def aresume(
        self,
        answer: Any = msgspec.UNSET,
        *,
        answers: Mapping[str, Any] | None = None,
        thread_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        on_disconnect: str = "cancel",
        raises: bool = True,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Outcome:
        """`resume`, awaitable; `on_disconnect` is that of `ainvoke`."""
        check_options(options, "aresume")
        thread_id = merge_place(options, thread_id, config)
        return await self._acall(
            Resume(answer, answers, **options),
            self._kept_thread(thread_id, "aresume"),
            raises=raises,
            timeout=timeout,
            on_disconnect=on_disconnect,
        )

    async def aget_state(
        self,
        thread_id: str | None = None,
        checkpoint_id: str | None = None,
        *,
        subgraphs: bool = False,
        namespace: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> ThreadState | None:
        """`get_state`, awaitable: the store is read on another worker."""
        from beamweaver.runtime.aio import on_a_worker  # noqa: PLC0415 - asyncio is loaded here

        return await on_a_worker(
            self.get_state,
            thread_id,
            checkpoint_id,
            subgraphs=subgraphs,
            namespace=namespace,
            config=config,
        )

    def cancel(self, thread_id: str, *, timeout: float | None = None) -> Outcome:
        """Cancel the thread's running run; it can be continued. See `ThreadHandle.cancel`."""
        self._kept_thread(thread_id, "cancel")
        return self.thread(thread_id).cancel(timeout=timeout)

    async def acancel(self, thread_id: str, *, timeout: float | None = None) -> Outcome:
        """`cancel`, awaitable."""
        self._kept_thread(thread_id, "acancel")
        await self._aopen()
        return await self.thread(thread_id).acancel(timeout=timeout)

    def get_state(
        self,
        thread_id: str | None = None,
        checkpoint_id: str | None = None,
        *,
        subgraphs: bool = False,
        namespace: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> ThreadState | None:
        """A thread as the store has it; None if it does not exist.

        Args:
            thread_id: The thread.
            checkpoint_id: A checkpoint of it, raw; the head if None, with what is finished applied.
            subgraphs: Whether each task shows in `subgraph` how the graph stands that its node is, and in
                `calls` those that its function calls.
            namespace: The nodes that lead to a graph inside of this one, the outermost first: its state in
                place of the thread's. None if it has not begun in the open step and kept nothing. A call of
                a graph is named as in the `namespace` of its questions.
            config: LangGraph's form of thread and checkpoint, as in `ThreadState.parent_config`.
        """
        given, checkpoint_id = place_of(thread_id, config, checkpoint_id)
        thread_id = self._kept_thread(given, "get_state")
        check_thread_id(thread_id, DEFAULT_LIMITS)
        if self._codec is None:
            self._codec = Codec()
        # Reading needs no ownership: it works while another process runs the store's threads.
        return read_state(
            self.checkpointer,
            self._codec,
            self,
            thread_id,
            checkpoint_id,
            subgraphs=subgraphs,
            namespace=namespace,
        )

    def _source(self) -> Source:
        self._check_keeps("get_state_history")
        if self._codec is None:
            self._codec = Codec()
        return Source(self.checkpointer, self._codec, self._own)

    def _own(self, thread_id: str, graph: str) -> CompiledGraph:
        if graph != self.name:
            raise wrong_graph(thread_id, graph, self.name)
        return self

    def _editor(self) -> tuple[Core, str]:
        self._check_keeps("a change of threads")
        core = self._open()
        core.check_owner("a change of threads")
        return core, self.name

    def _place_of_edit(self, _thread_id: str) -> tuple[Core, CompiledGraph]:
        self._check_keeps("update_state")
        return self._open(), self

    def _drawn_state(self, thread_id: str) -> ThreadState | None:
        return self.get_state(thread_id, subgraphs=True)

    def thread(self, thread_id: str) -> ThreadHandle:
        """A handle on a thread, for `tell` and `ask`."""
        core = self._open()
        self._kept_thread(thread_id, "thread")
        return ThreadHandle(core, self, check_thread_id(thread_id, core.hub.limits))

    def _call(
        self,
        message: Message,
        thread_id: str | None,
        *,
        raises: bool,
        timeout: float | None,
    ) -> Outcome:
        timeout = waiting_time(timeout)
        core = self._open()
        name = message_name(message)
        refuse_blocking(core, name, f"a{name}")
        thread_id, waiting = self._submit(core, message, thread_id)
        return await_outcome(core.hub.waiters, waiting, thread_id, timeout=timeout, raises=raises)

    async def _acall(
        self,
        message: Message,
        thread_id: str | None,
        *,
        raises: bool,
        timeout: float | None,
        on_disconnect: str,
    ) -> Outcome:
        from beamweaver.runtime.aio import outcome_of  # noqa: PLC0415 - asyncio is loaded here

        check_on_disconnect(on_disconnect)
        timeout = waiting_time(timeout)
        core = await self._aopen()
        thread_id, waiting = self._submit(core, message, thread_id)
        return await outcome_of(
            core,
            self,
            thread_id,
            waiting,
            timeout=timeout,
            raises=raises,
            on_disconnect=on_disconnect,
        )

    def _submit(self, core: Core, message: Message, thread_id: str | None) -> tuple[str, Waiting]:
        if thread_id is None:
            thread_id = core.hub.new_id()
        else:
            self._kept_thread(thread_id, "invoke")
            check_thread_id(thread_id, core.hub.limits)
        return thread_id, core.submit(self, thread_id, message, waits=True)

    def _check_keeps(self, call: str) -> None:
        if self.checkpointer is None:
            raise NoCheckpointer(
                f"graph {self.name!r} has no checkpointer, so it keeps no threads and {call} with a "
                "thread_id means nothing; compile(checkpointer=LMDBCheckpointer(path))",
                graph=self.name,
            )

    def _kept_thread(self, thread_id: str | None, call: str) -> str:
        self._check_keeps(call)
        if thread_id is None:
            raise InvalidCall(f"{call} needs thread_id=; it is in the outcome of every call")
        return thread_id

    # The runtime behind the calls ---------------------------------------------------------------

    def _open(self) -> Core:
        core = self._core
        if core is None or core.closed:
            with self._lock:
                core = self._core
                if core is None or core.closed:
                    core = self._core = self._new_core()
        if core.hub.graphs.get(self.name) is not self:
            core.hub.register(self)
        return core

    async def _aopen(self) -> Core:
        from beamweaver.runtime.aio import on_a_worker  # noqa: PLC0415 - asyncio is loaded here

        core = self._core
        if core is None or core.closed:
            return await on_a_worker(self._open)  # it opens files
        return self._open()

    def _new_core(self) -> Core:
        if self.checkpointer is not None:
            return places.open_private(self.checkpointer, self)
        core = Core(
            MemoryCheckpointer(),
            limits=DEFAULT_LIMITS,
            recover="none",
            keeps=False,
            max_workers=_EPHEMERAL_WORKERS,
        )
        core.start()
        # A graph that is forgotten takes its runtime with it.
        weakref.finalize(self, core.close_soon).atexit = False
        return core

    def close(self) -> None:
        """End this graph's use of its private runtime; the last user ends it. Idempotent.

        Raises:
            CallingSelf: A node of the runtime calls.
        """
        with self._lock:
            core = self._core
            if core is not None:
                refuse_in_node(core, "close")
            self._core = None
        if core is not None:
            places.leave(core, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Graph(GraphBuilder):
    """Builds a graph; `compile()` makes it an `App`. See `beamweaver.graph.Graph` for each method."""

    def compile(
        self,
        *,
        checkpointer: Checkpointer | None = None,
        failure_policy: FailurePolicy = "proceed",
        step_timeout: Duration | None = None,
        run_timeout: Duration | None = None,
        max_concurrency: int | None = None,
        recursion_limit: int = 100,
        allow_unreachable: bool = False,
        **options: Any,
    ) -> App:
        """Judge the graph as a whole and make it callable; arguments as in `beamweaver.graph.Graph.compile`.

        Raises:
            InvalidGraph: One error with all faults.
        """
        return self._build(
            App,
            checkpointer=checkpointer,
            failure_policy=failure_policy,
            step_timeout=step_timeout,
            run_timeout=run_timeout,
            max_concurrency=max_concurrency,
            recursion_limit=recursion_limit,
            allow_unreachable=allow_unreachable,
            **options,
        )
