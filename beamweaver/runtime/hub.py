"""What the actors of one runtime share: the store, the graphs, the clock, and where each of them is."""

from __future__ import annotations

import itertools
import os
import random
import threading
from typing import TYPE_CHECKING, Any

import structlog

from beamweaver.errors import UnknownGraph
from beamweaver.runtime.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.codec import Codec
    from beamweaver.events import Event
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits
    from supervisors import ActorSystem
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
        seed: int | None = None,
    ) -> None:
        self.system = system
        self.store = store
        self.codec = codec
        self.epoch = epoch
        self.limits = limits
        self.recover = recover
        self.keeps = keeps
        self.waiters = Waiters()
        self.graphs: dict[str, CompiledGraph] = {}
        self.listeners: tuple[Callable[[Event], None], ...] = ()
        self.log = structlog.get_logger("beamweaver")
        self.rng = random.Random(seed)  # noqa: S311 - for jitter, not for secrets
        self.writer: Cell | None = None
        self.timers: Cell | None = None
        self.threads: Cell | None = None
        self.actors: dict[str, Cell] = {}
        self.quarantined: dict[str, str] = {}
        self.draining = False
        self.fault: Callable[[str], None] | None = None
        """For tests: called with the name of each point that is reached."""
        self.fatal: BaseException | None = None
        self._incarnations = itertools.count(1)
        self._ids = itertools.count(1)
        self._id_prefix = f"{epoch:x}-" if seed is not None else ""
        self._lock = threading.Lock()

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

    def reached(self, point: str) -> None:
        """A named point was reached; costs one test where no fault is planned."""
        if self.fault is not None:
            self.fault(point)

    def wake(self, thread_id: str, message: Any) -> bool:
        """Put a message to the thread's actor, if there is one."""
        cell = self.actors.get(thread_id)
        if cell is None:
            return False
        cell.put(message)
        return True
