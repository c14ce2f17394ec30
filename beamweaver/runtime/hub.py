"""What the actors of one runtime share: the store, the graphs, the clock, and where each of them is."""

from __future__ import annotations

import itertools
import os
import random
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from beamweaver.errors import (
    BeamWeaverError,
    GraphChanged,
    GraphTooOld,
    MigrationFailed,
    RuntimeStopped,
    UnknownGraph,
)
from beamweaver.events import ThreadSetAside
from beamweaver.runtime.edits import Apply, Edits
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.large import LargeValues
from beamweaver.runtime.log import logger
from beamweaver.runtime.offsets import Offsets
from beamweaver.runtime.table import ThreadTable
from beamweaver.runtime.waiters import Waiters
from beamweaver.runtime.windows import Windows
from supervisors import SHUTDOWN, ChildSpec
from supervisors.requests import StartChild

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, MutableMapping

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.codec import Codec
    from beamweaver.errors import StoreFull
    from beamweaver.events import Event
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits
    from beamweaver.runtime.bodies import Bodies
    from beamweaver.runtime.loop import LoopWorker
    from supervisors import Actor, ActorSystem, Future
    from supervisors.mailbox import Cell

__all__ = ["SET_ASIDE", "Hub"]

SET_ASIDE: Final = (GraphTooOld, GraphChanged, MigrationFailed, UnknownGraph)
"""Errors of a thread that has nothing wrong: it goes on when the right code is there."""


class Hub:
    """The shared context of a runtime. It is no actor: what it holds survives the restart of any actor.

    Attributes:
        writer: The cell of the present checkpoint writer.
        timers: The cell of the present timer actor.
        recovery: The cell of the present Recovery.
        loop_owner: The cell of the present owner of the node loop.
        table: Where each thread is.
        waiters: Who waits for what.
        aside: Threads that cannot go on under the code that is here: id -> why.
        quarantined: Threads that could not even be marked in the store: id -> reason.
        full: Why the store took no more at the last try, or None.
        fatal: What ends the runtime, whatever its restart budget, or None.
        draining: Whether new calls are refused.
        strict: Whether changes inside of values are looked for, in graphs that do not say.
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
        self.table = ThreadTable(limits, self.waiters)
        self.edits = Edits()
        # Where threads end with their call, so does the runtime with its graph.
        self.graphs: MutableMapping[str, CompiledGraph] = {} if keeps else WeakValueDictionary()
        self.listeners: list[Callable[[Event], None]] = []
        """This list for ever, so that whoever holds it sees at once whether anybody listens."""
        self._log: Any = None
        self.rng = random.Random(seed)  # noqa: S311 - for jitter, not for secrets
        self.writer: Cell | None = None
        self.timers: Cell | None = None
        self.loop_owner: Cell | None = None
        self.recovery: Cell | None = None
        self.loop: LoopWorker | None = None
        self.user_loop: asyncio.AbstractEventLoop | None = None
        """The loop of `async with Runtime`, where there is one."""
        self.bodies: dict[str, Bodies] = {}
        """What the last incarnation of each thread's actor has running; it outlives that actor."""
        self.aside: dict[str, str] = {}
        self.quarantined: dict[str, str] = {}
        self.unreached: set[str] = set()
        """Threads for which other processes left messages that cannot be taken now."""
        self.marking: dict[str, Future[Any]] = {}
        """Threads whose quarantine is on its way to the store."""
        self.contexts: dict[str, Any] = {}
        """The context of runs whose callers gave none, by graph."""
        self.due: set[str] = set()
        """Threads whose sleep is over by Recovery's clock, until their actors know."""
        self.draining = False
        self.strict = False
        self.fault: Callable[[str, str], None] | None = None
        """For tests: called with the name of each point that is reached, and the thread if one reached it."""
        self.offsets = Offsets(system.clock)
        self.ahead = Windows(limits.ahead_bytes_in_all)
        self.full: StoreFull | None = None
        self.fatal: BaseException | None = None
        self._incarnations, self._ids = itertools.count(1), itertools.count(1)
        self._id_prefix = f"{epoch:x}-" if seed is not None else ""
        self._lock = threading.Lock()
        self._blockers: set[str] = set()
        self._telling = threading.local()
        self._large = codec.on_large = LargeValues(self)
        self._plans: WeakKeyDictionary[CompiledGraph, GraphCodec] = WeakKeyDictionary()

    @property
    def log(self) -> Any:
        """The runtime's logger."""
        if self._log is None:
            self._log = logger("beamweaver")
        return self._log

    @property
    def actors(self) -> dict[str, Cell]:
        """The cell of each thread's actor."""
        return self.table.actors

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
            raise self.unknown_graph(name)
        return graph

    def unknown_graph(self, name: str) -> UnknownGraph:
        """The refusal of a thread whose graph is not here."""
        known = ", ".join(sorted(self.graphs)) or "none"
        return UnknownGraph(
            f"this runtime has no graph {name!r} (it has: {known}); pass it in graphs=[…]",
            graph=name,
        )

    # Events -------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with each event, on the worker where it happens; returns how to stop."""
        with self._lock:
            self.listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                self.listeners[:] = [each for each in self.listeners if each is not listener]

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Tell everyone; a listener that raises is logged and goes on listening."""
        self._telling.event = event
        for listener in tuple(self.listeners):
            try:
                listener(event)
            except BaseException as error:  # noqa: BLE001 - a listener is user code, and ends nobody
                self.log.warning("listener_failed", listener=repr(listener), error=repr(error))
        self._telling.event = None

    @property
    def telling(self) -> Event | None:
        """The event that the calling worker is telling to the listeners, if it is."""
        return getattr(self._telling, "event", None)

    def reached(self, point: str, thread_id: str = "") -> None:
        """A named point was reached. In hot paths the caller tests `fault` first: that is all it costs."""
        if self.fault is not None:
            self.fault(point, thread_id)

    def fail(self, error: BaseException, actor: Actor) -> None:
        """The runtime cannot go on: say it once, and end with this significant part of the tree."""
        self.fatal = error
        self.log.error("runtime_fails", error=repr(error))
        actor.exit(SHUTDOWN)

    # The node loop --------------------------------------------------------------------------------

    def node_loop(self) -> LoopWorker:
        """The loop of the async nodes; made at its first use."""
        from beamweaver.runtime.loop import LoopWorker  # noqa: PLC0415 - asyncio is loaded here

        with self._lock:
            if self.loop is None:
                self.loop = LoopWorker(self, self.user_loop)
            return self.loop

    def loop_ended(self, worker: LoopWorker) -> None:
        """The loop ended and nobody stopped it: its owner has another one made, or the runtime ends."""
        if not worker.owned and self.fatal is None:
            self.fatal = RuntimeStopped(
                "the event loop of `async with Runtime` has ended, and the runtime with it; leave the "
                "block before the loop ends"
            )
        if self.loop_owner is not None:
            self.loop_owner.put(worker)

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

    def held_loop(self, call: str, twin: str) -> None:
        """A sync call holds an event loop that is not that of the nodes; it is said once."""
        if "" not in self._blockers:
            self._blockers.add("")
            self.log.warning("call_blocks_a_loop", call=call, cure=f"await {twin}()")

    # Threads ------------------------------------------------------------------------------------

    def ensure(self, thread_id: str, *, recover: bool = False) -> None:
        """Wake the thread's actor, or have one started. Its calls wait in `waiters` meanwhile."""
        supervisor = self.table.wake(thread_id, recover=recover)
        if supervisor is not None:
            # One that has ended meanwhile loses this; then Recovery finds the call in `waiters`.
            supervisor.put(self._start_request(thread_id, supervisor))

    def _start_request(self, thread_id: str, supervisor: Cell) -> StartChild:
        # An id a start: an actor that is about to leave may still be there under its own.
        spec = ChildSpec(
            (thread_id, next(self._ids)),
            self.thread_class,
            args=(self, thread_id),
            restart="transient",
        )
        return StartChild(spec, reply_to=(supervisor, spec.id))

    def quarantine(self, thread_id: str, reason: str, mark: Apply) -> None:
        """Set a thread aside here, until `mark` has set it aside in the store; for good, if that fails."""
        self.quarantined[thread_id] = reason
        if len(self.quarantined) > self.limits.threads_running:
            self.quarantined.pop(next(iter(self.quarantined)))
        self.marking[thread_id] = mark.done
        mark.done.add_done_callback(lambda _done: self._marked(thread_id, mark))
        with suppress(RuntimeStopped):
            self.edits.add(mark)
            if self.writer is not None:
                self.writer.put(mark)

    def _marked(self, thread_id: str, mark: Apply) -> None:
        self.edits.drop(mark)
        self.marking.pop(thread_id, None)
        try:
            kept = mark.done.get()
        except Exception as error:  # the store is at fault: it stays set aside here
            self.log.exception("quarantine_not_stored", thread_id=thread_id, error=repr(error))
            return
        if kept:
            self.quarantined.pop(thread_id, None)

    def set_aside(self, thread_id: str, error: BeamWeaverError) -> None:
        """Note that a thread cannot go on under the code that is here; it is untouched."""
        told = self.aside.get(thread_id) == error.message
        self.aside[thread_id] = error.message
        if len(self.aside) > self.limits.threads_running:
            self.aside.pop(next(iter(self.aside)), None)
        if told:
            return
        if not self.waiters.has(thread_id):  # callers hear it
            self.log.warning(
                "thread_set_aside", thread_id=thread_id, code=error.code, reason=error.message
            )
        if self.listeners:
            self.publish(ThreadSetAside(thread_id=thread_id, code=error.code, reason=error.message))

    def gone(self, thread_id: str) -> None:
        """The thread has no actor and none is on its way; what still runs of it is nobody's."""
        self.table.gone(thread_id)
        self.kill_bodies(thread_id)

    def kill_bodies(self, thread_id: str | None = None) -> None:
        """Kill what runs for a thread, or for all: it has no owner any more."""
        threads = list(self.bodies) if thread_id is None else [thread_id]
        for thread in threads:
            bodies = self.bodies.pop(thread, None)
            if bodies is not None:
                bodies.kill_all()

    def codec_of(self, graph: CompiledGraph) -> GraphCodec:
        """The encoding of a graph's channels."""
        plans = self._plans.get(graph)
        if plans is None:
            codec = self.codec.telling(partial(self._large, of=graph.name))
            plans = self._plans[graph] = GraphCodec(codec, graph)
        return plans
