"""What the actors of one runtime share: the store, the graphs, the clock, and where each of them is."""

from __future__ import annotations

import itertools
import os
import random
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from beamweaver.errors import UnknownGraph
from beamweaver.runtime.edits import Edits
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.log import logger
from beamweaver.runtime.loop import LoopWorker
from beamweaver.runtime.messages import RECOVER, RETIRE, WAKE
from beamweaver.runtime.waiters import Waiters
from supervisors import ChildSpec
from supervisors.requests import StartChild

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.codec import Codec
    from beamweaver.events import Event
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits
    from beamweaver.runtime.bodies import Bodies
    from supervisors import Actor, ActorSystem, Future
    from supervisors.mailbox import Cell

__all__ = ["Hub"]


class Hub:
    """The shared context of a runtime. It is no actor: what it holds survives the restart of any actor.

    Attributes:
        writer: The cell of the present checkpoint writer.
        timers: The cell of the present timer actor.
        threads: The cell of the present thread supervisor.
        actors: thread id -> cell of its actor; the registry's table, new with each registry.
        quarantined: Threads that could not even be marked in the store: id -> reason.
        draining: Whether new calls are refused.
    """

    def __init__(
        self,
        system: ActorSystem,
        store: Checkpointer,
        codec: Codec,
        *,
        epoch: int,
        limits: Limits,
        recover: str,
        keeps: bool,
        thread_class: type[Actor],
        seed: int | None = None,
    ) -> None:
        self.system = system
        self.store = store
        self.codec = codec
        self.epoch = epoch
        self.limits = limits
        self.recover = recover
        self.keeps = keeps
        self.thread_class = thread_class
        self.waiters = Waiters()
        self.edits = Edits()
        """The changes of the store that somebody waits for."""
        self.graphs: dict[str, CompiledGraph] = {}
        self.listeners: tuple[Callable[[Event], None], ...] = ()
        self._log: Any = None
        self.rng = random.Random(seed)  # noqa: S311 - for jitter, not for secrets
        self.writer: Cell | None = None
        self.timers: Cell | None = None
        self.threads: Cell | None = None
        self.recovery: Cell | None = None
        self.loop: LoopWorker | None = None
        self.user_loop: asyncio.AbstractEventLoop | None = None
        """The loop of `async with Runtime`, where there is one."""
        self.actors: dict[str, Cell] = {}
        self.bodies: dict[str, Bodies] = {}
        """What the last incarnation of each thread's actor has running; it outlives that actor."""
        self.quarantined: dict[str, str] = {}
        self.draining = False
        self.fault: Callable[[str, str], None] | None = None
        """For tests: called with the name of each point that is reached, and the thread if one reached it."""
        self.fatal: BaseException | None = None
        self._incarnations = itertools.count(1)
        self._ids = itertools.count(1)
        self._id_prefix = f"{epoch:x}-" if seed is not None else ""
        self._lock = threading.Lock()
        self._blockers: set[str] = set()
        self._starting: set[str] = set()
        self._plans: WeakKeyDictionary[CompiledGraph, GraphCodec] = WeakKeyDictionary()

    @property
    def log(self) -> Any:
        """The runtime's logger."""
        if self._log is None:
            self._log = logger("beamweaver")
        return self._log

    # Ids and time -------------------------------------------------------------------------------

    def next_incarnation(self) -> int:
        """A number that no actor of this runtime had before."""
        return next(self._incarnations)

    def new_id(self) -> str:
        """A UUIDv7 as 32 hexadecimal digits, on the system's clock; under a seed, a counter."""
        if self._id_prefix:
            return f"{self._id_prefix}{next(self._ids):x}"
        now_ms = int(self.system.clock.time() * 1_000)
        rest = int.from_bytes(os.urandom(10))
        value = (now_ms << 80) | (0x7 << 76) | (rest & ((1 << 76) - 1))
        value = (value & ~(0x3 << 62)) | (0x2 << 62)
        return f"{value:032x}"

    # Graphs -------------------------------------------------------------------------------------

    def register(self, graph: CompiledGraph) -> None:
        """Know a graph by its name; the newest registration counts."""
        with self._lock:
            self.graphs[graph.name] = graph

    def graph(self, name: str) -> CompiledGraph:
        """The graph of that name.

        Raises:
            UnknownGraph: There is none.
        """
        graph = self.graphs.get(name)
        if graph is None:
            known = ", ".join(sorted(self.graphs)) or "none"
            raise UnknownGraph(
                f"this runtime has no graph {name!r} (it has: {known}); pass it in graphs=[…]",
                graph=name,
            )
        return graph

    # Events -------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with each event, on the worker where it happens; returns how to stop."""
        with self._lock:
            self.listeners = (*self.listeners, listener)

        def unsubscribe() -> None:
            with self._lock:
                self.listeners = tuple(x for x in self.listeners if x is not listener)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Tell everyone; a listener that raises is logged and goes on listening."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a listener is user code
                self.log.warning("listener_failed", listener=repr(listener), error=repr(error))

    def reached(self, point: str, thread_id: str = "") -> None:
        """A named point was reached. In hot paths the caller tests `fault` first: that is all it costs."""
        if self.fault is not None:
            self.fault(point, thread_id)

    # The node loop --------------------------------------------------------------------------------

    def node_loop(self) -> LoopWorker:
        """The loop of the async nodes; made at its first use."""
        with self._lock:
            if self.loop is None:
                self.loop = LoopWorker(self.user_loop)
            return self.loop

    def blocked_loop(self, node: str, seconds: float) -> None:
        """A node held the loop; it is named once."""
        if node not in self._blockers:
            self._blockers.add(node)
            self.log.warning(
                "node_blocks_the_loop",
                node=node,
                seconds=round(seconds, 3),
                cure="await what waits, or make it a sync node, which runs on a worker",
            )

    # Threads ------------------------------------------------------------------------------------

    def ensure(self, thread_id: str, *, recover: bool = False) -> None:
        """Wake the thread's actor, or have one started. Its calls wait in `waiters` meanwhile."""
        supervisor = None
        with self._lock:
            cell = self.actors.get(thread_id)
            if cell is None and thread_id not in self._starting:
                self._starting.add(thread_id)
                supervisor = self.threads
        if cell is not None:
            cell.put(RECOVER if recover else WAKE)
        elif supervisor is not None:
            # One that has ended meanwhile loses this; then Recovery finds the call in `waiters`.
            supervisor.put(self._start_request(thread_id, recover=recover))

    def _start_request(self, thread_id: str, *, recover: bool) -> StartChild:
        # An id a start: an actor that is about to leave may still be there under its own.
        child_id = (thread_id, next(self._ids))
        return StartChild(
            ChildSpec(
                child_id,
                self.thread_class,
                args=(self, thread_id),
                kwargs={"recover": recover},
                restart="transient",
            )
        )

    def quarantine_kept(self, thread_id: str, done: Future[Any]) -> None:
        """The store knows of a quarantine, so it need not be kept here (unless it could not be told)."""
        try:
            kept = done.get()
        except Exception as error:
            self.log.exception("quarantine_not_stored", thread_id=thread_id, error=repr(error))
            return
        if kept:
            self.quarantined.pop(thread_id, None)

    def enter(self, thread_id: str, cell: Cell) -> None:
        """The thread's new actor is there."""
        with self._lock:
            self.actors.pop(thread_id, None)
            self.actors[thread_id] = cell
            self._starting.discard(thread_id)
            oldest = self._surplus()
        for other in oldest:
            other.put(RETIRE)

    def _surplus(self) -> list[Cell]:
        """The actors that were entered first, where more than the limit are in memory."""
        surplus = len(self.actors) - self.limits.threads_idle
        if surplus <= 0:
            return []
        return list(itertools.islice(self.actors.values(), min(surplus + 15, 64)))

    def leave(self, thread_id: str, cell: Cell) -> bool:
        """The thread's actor wants to leave; False if calls wait for it."""
        with self._lock:
            if self.actors.get(thread_id) is not cell:
                return True
            if self.waiters.has(thread_id):
                return False
            del self.actors[thread_id]
            self.bodies.pop(thread_id, None)
            return True

    def gone(self, thread_id: str) -> None:
        """The thread has no actor and none is on its way."""
        with self._lock:
            self.actors.pop(thread_id, None)
            self.bodies.pop(thread_id, None)
            self._starting.discard(thread_id)

    def forget_threads(self) -> None:
        """A new registry: the table begins empty."""
        with self._lock:
            self.actors = {}
            self._starting = set()

    def new_threads(self, supervisor: Cell) -> None:
        """A new thread supervisor: no actor of the one before is left."""
        with self._lock:
            self.threads = supervisor
            self.actors = {}
            self._starting = set()

    def codec_of(self, graph: CompiledGraph) -> GraphCodec:
        """The encoding of a graph's channels."""
        plans = self._plans.get(graph)
        if plans is None:
            plans = self._plans[graph] = GraphCodec(self.codec, graph)
        return plans
