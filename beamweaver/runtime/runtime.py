"""The runtime that users open: it owns a store, takes up its unfinished threads, and runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import UNSET

from beamweaver.checkpoint.base import Checkpointer
from beamweaver.checkpoint.lmdb import LMDBCheckpointer
from beamweaver.errors import InvalidCall, RuntimeStopped, StoreDiffers, StoreOwned
from beamweaver.graph._text import listed, plural
from beamweaver.graph.compiled import CompiledGraph
from beamweaver.limits import DEFAULT_LIMITS, Limits
from beamweaver.runtime import places
from beamweaver.runtime.blocking import refuse_blocking, refuse_in_node
from beamweaver.runtime.client import Client, await_store, check_shared
from beamweaver.runtime.core import Core
from beamweaver.runtime.given import check_context, check_contexts, refuse_namesakes, several
from beamweaver.runtime.handle import ThreadHandle
from beamweaver.runtime.health import health_of, statistics_of
from beamweaver.runtime.keeping import KeptThreads, Source
from beamweaver.runtime.lookup import read_state, row_of
from beamweaver.runtime.options import drain_time
from beamweaver.runtime.requests import check_thread_id

if TYPE_CHECKING:
    import asyncio
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from beamweaver.events import Event
    from beamweaver.runtime.health import RuntimeHealth, RuntimeStatistics
    from beamweaver.types import ThreadState
    from supervisors import ActorSystem, Node

__all__ = ["Runtime"]

_RECOVER = ("all", "called", "none")
_ROLES = ("owner", "client", "auto")


class Runtime(KeptThreads):
    """Owns a store and runs its threads under a supervision tree.

    Args:
        store: A path for an `LMDBCheckpointer`, or a checkpointer.
        graphs: The graphs whose threads it runs.
        contexts: By the name of a graph, what its nodes find in `ctx.context` where no caller gave a
            `context=`: contexts are not stored, so runs that are taken up have this one.
        recover: What it takes up at its start of what dead processes left: `"all"`, only threads that
            are `"called"`, or `"none"`.
        limits: Its bounds.
        max_workers: Most OS threads of its pool.
        max_restarts: How many restarts of the tree's parts within `max_seconds` it bears before it ends.
        max_seconds: The window of `max_restarts`, in seconds.
        role: What it is to the store. `"owner"` runs its threads. `"client"` leaves messages for the process
            that owns it, or will own it, and waits for outcomes by reading: `tell`, `ask`, `cancel`, states
            and histories work, and `invoke` of graphs bound to the store; what changes the store otherwise is
            `NotOwner`. `"auto"` is the owner if nobody else is, else a client, as long as it is open.
        wait: How long to wait for the owner of the store to give it up, in seconds; for a client, how long
            to wait until there is a store.
        takeover: `"force"` takes the store from a living process when the wait is over: its next write is
            refused as a whole, and what it has acknowledged stays. Its nodes run on until then, and may act
            beside those of this runtime. A runtime of this process is not forced: close it.
        strict: Whether state that a node changed in place is found at any depth (`StateMutated`), in graphs
            that do not say. It costs the more the larger the state is; meant for tests.
        system: An actor system to run in, such as a simulated one; by default one of its own.
        seed: For ids and jitter, in tests.
        fault: For tests: called with the name of each fault point that is reached, and its thread or "".

    Raises:
        StoreOwned: Another process or runtime owns the store; carries `pid`, `host`, `since`.
        TakeoverBlocked: The owner stands still inside a write; carries `pid`. End that process.
        StoreUnavailable: The path cannot be opened or written.
        NotAStore: The path holds something else.
        StoreDiffers: A graph is bound to another store.
        InvalidCall: An argument is wrong, or a role is given for a store in the memory of one process.

    Example:
        >>> import tempfile
        >>> from beamweaver import END, START, Continue, Graph, Invoke, Runtime
        >>> graph = Graph(name="double").add_node("double", lambda state: {"n": state["n"] * 2})
        >>> app = graph.add_edge(START, "double").add_edge("double", END).compile()
        >>> folder = tempfile.TemporaryDirectory()
        >>> with folder as path, Runtime(f"{path}/state.lmdb", graphs=[app]) as runtime:
        ...     thread = runtime.thread("a", graph=app)
        ...     receipt = thread.tell(Invoke({"n": 21}))
        ...     thread.ask(Continue(), timeout=30).state["n"]
        42
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Checkpointer,
        *,
        graphs: Iterable[CompiledGraph] = (),
        contexts: Mapping[str, Any] | None = None,
        recover: str = "all",
        limits: Limits = DEFAULT_LIMITS,
        max_workers: int = 128,
        max_restarts: int = 3,
        max_seconds: float = 5.0,
        role: Literal["owner", "client", "auto"] = "owner",
        wait: float = 0.0,
        takeover: Literal["force"] | None = None,
        strict: bool = False,
        system: ActorSystem | None = None,
        seed: int | None = None,
        fault: Callable[[str, str], None] | None = None,
    ) -> None:
        if recover not in _RECOVER:
            raise InvalidCall(f"recover is {recover!r}; give 'all', 'called' or 'none'")
        if takeover not in (None, "force") or not isinstance(wait, int | float) or not wait >= 0:
            raise InvalidCall(
                f"wait is {wait!r} and takeover {takeover!r}; give seconds from 0, and 'force' or None"
            )
        if role not in _ROLES or (takeover is not None and role != "owner"):
            raise InvalidCall(
                f"role is {role!r} and takeover {takeover!r}; give 'owner', 'client' or 'auto', and take a "
                "store over as its owner"
            )
        if not isinstance(limits, Limits):
            raise InvalidCall(f"limits is {limits!r}; give Limits(...) with the bounds that differ")
        if not isinstance(max_workers, int) or max_workers < 1:
            raise InvalidCall(f"max_workers is {max_workers!r}; give 1 or more")
        if not isinstance(max_restarts, int) or max_restarts < 0:
            raise InvalidCall(f"max_restarts is {max_restarts!r}; give 0 or more")
        if not isinstance(max_seconds, int | float) or not 0 < max_seconds < float("inf"):
            raise InvalidCall(f"max_seconds is {max_seconds!r}; give finite seconds over 0")
        if not isinstance(strict, bool):
            raise InvalidCall(f"strict is {strict!r}; give True or False")
        self._owns_store = not isinstance(store, Checkpointer)
        self._store = store if isinstance(store, Checkpointer) else LMDBCheckpointer(store)
        self._graphs = several(graphs)
        for graph in self._graphs:
            self._check_graph(graph)
        refuse_namesakes(self._graphs)
        self._contexts = check_contexts(self._graphs, contexts or {})
        self._recover = recover
        self._role = role
        self._wait = wait
        self._takeover = takeover
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone = False
        """Whether who was to enter it has gone."""
        self._core: Core | None = None
        self._early: list[Callable[[Event], None]] = []
        """Who listens from the first event on."""
        self._options: dict[str, Any] = {
            "limits": limits,
            "max_workers": max_workers,
            "max_restarts": max_restarts,
            "max_seconds": max_seconds,
            "strict": strict,
            "system": system,
            "seed": seed,
            "fault": fault,
        }

    # Life ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Take the store, start the tree, and begin to take up unfinished threads; `with` does it for you.

        Raises:
            StoreOwned: Another process or runtime owns the store.
            StoreUnavailable: The store cannot be opened, or a client finds none.
        """
        if self._core is not None:
            raise InvalidCall("this runtime was started before; make a new one")
        if self._role != "owner":
            check_shared(self._store)
        if self._role == "client":
            return self._start_client(self._wait)
        try:
            return self._start_owner()
        except StoreOwned:
            if self._role == "owner":
                raise
        return self._start_client(0.0)

    def _start_client(self, wait: float) -> Self:
        await_store(self._store, wait)
        core = Client(self._store, **self._options)
        core.start()
        self._core = core
        core.hub.listeners += self._early
        places.enter_client(core)
        for graph in self._graphs:
            core.hub.register(graph)
        return self

    def _start_owner(self) -> Self:
        core, taken_over = places.open_public(self._store, self._new_core, wait=self._wait)
        if self._loop is not None:
            core.hub.user_loop = self._loop
        self._core = core
        core.hub.listeners += self._early
        core.hub.contexts.update(self._contexts)
        for graph in self._graphs:
            core.hub.register(graph)
        if taken_over:
            options = self._options
            core.take_over(self._recover, options["limits"], strict=options["strict"])
        else:
            try:
                core.start()
            except BaseException:  # whatever it is: give back what was taken, and let it pass
                places.leave(core)
                raise
        return self

    def _new_core(self, last: bool) -> Core:
        if self._gone:
            raise RuntimeStopped("whoever was to enter this runtime has gone")
        takeover = self._takeover if last else None
        return Core(
            self._store, recover=self._recover, keeps=True, takeover=takeover, **self._options
        )

    def close(self) -> None:
        """Stop at once: what runs is cut where it is and goes on in the next runtime. Idempotent.

        Raises:
            CallingSelf: A node of this runtime calls.
        """
        if self._core is not None:
            refuse_in_node(self._core, "close")
            places.leave(self._core)
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        failure = self._core.failure if self._core is not None else None
        if failure is None:
            return
        if error is None:
            raise failure
        error.add_note(f"meanwhile the runtime failed: {failure.message}")

    async def __aenter__(self) -> Self:
        """As `with`; async nodes run on the loop that enters."""
        from beamweaver.runtime.aio import entered, running_loop  # noqa: PLC0415 - asyncio is loaded here

        self._loop = running_loop()
        try:
            await entered(self.start, self.close)
        except BaseException:  # whoever was to enter has gone: nobody waits for the store any more
            self._gone = True
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from beamweaver.runtime.aio import on_its_own  # noqa: PLC0415 - asyncio is loaded here

        # Aside: the loop must go on for the nodes that are being cut.
        await on_its_own(self.__exit__, kind, error, traceback)

    # Threads ------------------------------------------------------------------------------------

    def register(self, graph: CompiledGraph, *, context: Any = UNSET) -> None:
        """Run threads of one more graph.

        Args:
            graph: The graph.
            context: As one of `contexts`.

        Raises:
            InvalidCall: `context` does not fit the graph.
            StoreDiffers: It is bound to another store.
        """
        self._check_graph(graph)
        core = self._running()
        if context is not UNSET:
            core.hub.contexts[graph.name] = check_context(graph, context)
        core.hub.register(graph)
        core.recover_again()

    def thread(self, thread_id: str, graph: CompiledGraph | str | None = None) -> ThreadHandle:
        """A handle on a thread.

        Args:
            thread_id: The thread; it need not exist.
            graph: Its graph or the graph's name. May be left out if the runtime has exactly one; with
                several, for a thread that exists: the store knows whose it is.

        Raises:
            InvalidThreadId: The id is unfit.
            UnknownGraph: The runtime has no such graph.
            InvalidCall: `graph` is left out, the runtime has not exactly one, and the thread does not exist.
            CorruptRecord: `graph` is left out, and the record that names it is damaged.
        """
        core = self._running()
        check_thread_id(thread_id, core.hub.limits)
        return ThreadHandle(core, self._graph_of(core, graph, thread_id), thread_id)

    def _graph_of(
        self, core: Core, graph: CompiledGraph | str | None, thread_id: str
    ) -> CompiledGraph:
        if isinstance(graph, CompiledGraph):
            self._check_graph(graph)
            core.hub.register(graph)
            return graph
        return core.hub.graph(_graph_name(core, thread_id) if graph is None else graph)

    def get_state(
        self,
        thread_id: str,
        checkpoint_id: str | None = None,
        *,
        subgraphs: bool = False,
        namespace: Sequence[str] = (),
        graph: CompiledGraph | str | None = None,
    ) -> ThreadState | None:
        """A thread as the store has it; None if it does not exist. See `App.get_state`."""
        core = self._running()
        check_thread_id(thread_id, core.hub.limits)
        if graph is None:
            row = row_of(core.store, thread_id)
            if row is None:
                return None
            graph = row.graph
        found = self._graph_of(core, graph, thread_id)
        return read_state(
            core.store,
            core.hub.codec,
            found,
            thread_id,
            checkpoint_id,
            subgraphs=subgraphs,
            namespace=namespace,
        )

    def _source(self) -> Source:
        core = self._running()
        hub = core.hub
        return Source(core.store, hub.codec, lambda _thread, name: hub.graph(name), hub.limits)

    def _place_of_edit(self, _thread_id: str) -> tuple[Core, CompiledGraph]:
        core = self._running()
        check_thread_id(_thread_id, core.hub.limits)
        row = row_of(core.store, _thread_id)
        return core, self._graph_of(core, None if row is None else row.graph, _thread_id)

    def _editor(self) -> tuple[Core, None]:
        core = self._running()
        core.check_owner("a change of threads")
        return core, None

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event, on the worker where it happens; it must be quick.

        Before the start it hears all from the first event on: what Recovery takes up begins at once, before
        the start returns.

        Returns:
            A function that ends the subscription.

        Example:
            >>> from beamweaver.checkpoint import MemoryCheckpointer
            >>> runtime, heard = Runtime(MemoryCheckpointer()), []
            >>> stop = runtime.subscribe(heard.append)
            >>> with runtime:
            ...     pass
        """
        if not callable(listener):
            raise InvalidCall(f"listener is {listener!r}; give a function of one event")
        if self._core is not None:
            return self._running().hub.subscribe(listener)
        self._early.append(listener)

        def unsubscribe() -> None:
            if listener in self._early:
                self._early.remove(listener)
            if self._core is not None and listener in self._core.hub.listeners:
                self._core.hub.listeners.remove(listener)

        return unsubscribe

    def drain(self, timeout: float = 30.0) -> bool:
        """End quietly: no new calls are taken, running nodes may end within `timeout` seconds.

        Waiting callers get `Drained` (`Completed` if the last commit completed the run). Threads that
        are not done go on in the next runtime. Messages by `tell` are still kept.

        Returns:
            Whether everything ended in time; what did not was cut.
        """
        core = self._running()
        refuse_blocking(core, "drain", "adrain")
        refuse_in_node(core, "drain")
        return core.drain(drain_time(timeout))

    async def adrain(self, timeout: float = 30.0) -> bool:
        """`drain`, awaitable."""
        from beamweaver.runtime.aio import on_its_own  # noqa: PLC0415 - asyncio is loaded here

        core = self._running()
        refuse_in_node(core, "adrain")
        return await on_its_own(core.drain, drain_time(timeout))

    @property
    def role(self) -> str:
        """`"owner"` or `"client"`: what it is while it is open, and what it is to be before."""
        if self._core is None:
            return self._role
        return "owner" if self._core.owns else "client"

    # Seeing -------------------------------------------------------------------------------------

    def statistics(self) -> RuntimeStatistics:
        """Counts, for people and metrics."""
        return statistics_of(self._running())

    def health(self) -> RuntimeHealth:
        """Whether it is ready, or why not; what waits for which limit. Never raises.

        Example:
            >>> from beamweaver.checkpoint import MemoryCheckpointer
            >>> with Runtime(MemoryCheckpointer()) as runtime:
            ...     runtime.health().ready
            True
        """
        return health_of(self._core)

    def tree(self) -> Node:
        """The supervision tree as it stands: `print(runtime.tree().text())`, or `.mermaid()`.

        Raises:
            RuntimeStopped: The runtime has ended.
        """
        return self._running().tree()

    @property
    def failure(self) -> Exception | None:
        """Why the supervision tree gave up, or None."""
        return self._core.failure if self._core is not None else None

    def _check_graph(self, graph: object) -> None:
        if not isinstance(graph, CompiledGraph):
            raise InvalidCall(f"{graph!r} is no compiled graph; call .compile() on the builder")
        bound = graph.checkpointer
        if bound is not None and bound.identity != self._store.identity:
            raise StoreDiffers(
                f"graph {graph.name!r} is bound to the store {bound.identity}, this runtime to "
                f"{self._store.identity}; compile it with this store, or without a checkpointer",
                graph=graph.name,
            )

    def _running(self) -> Core:
        core = self._core
        if core is None:
            raise InvalidCall("the runtime is not started; use it in a with block, or call start()")
        core.check_process()
        if core.closed:
            error = RuntimeStopped("the runtime has ended")
            error.__cause__ = core.failure
            raise error
        return core


def _graph_name(core: Core, thread_id: str) -> str:
    """The graph of a thread whose caller names none: the only one, or that with which it was begun.

    Raises:
        InvalidCall: There are several or none, and the thread does not exist.
    """
    names = list(core.hub.graphs)
    if len(names) == 1:
        return names[0]
    row = row_of(core.store, thread_id)
    if row is None:
        raise InvalidCall(
            f"thread {thread_id!r} does not exist, and this runtime has {plural(len(names), 'graph')} "
            f"({listed(names)}): say whose it is to be, as in runtime.thread({thread_id!r}, graph=…)",
            thread_id=thread_id,
        )
    return row.graph
