"""A whole runtime on one OS thread: processes that live and die over one disk, clients, and what goes wrong.

Everything is drawn from one seed: the graph, the configuration, the order of turns, the calls, the faults.
The store's code, the engine, the actors and their supervisors are those of production; the clock, the
scheduler and the disk are simulated.
"""

from __future__ import annotations

import contextlib
import contextvars
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from beamweaver import Runtime
from beamweaver.errors import BeamWeaverError
from beamweaver.limits import Limits
from beamweaver.runtime import places
from supervisors import ActorSystem
from supervisors.scheduler import here
from supervisors.testing import DeterministicScheduler, VirtualClock
from tests.simulation.checkers import Checkers
from tests.simulation.clients import Client
from tests.simulation.config import Config
from tests.simulation.disk import Disk, Ends
from tests.simulation.editors import Editor
from tests.simulation.faults import Faults, cells_of
from tests.simulation.loop import SimLoop
from tests.simulation.plan import SimPlan
from tests.simulation.store import SimCheckpointer
from tests.simulation.trace import Trace

__all__ = ["Process", "World", "simulate"]

MOST_TURNS = 60_000
PATIENCE_TURNS = 10_000
"""In so many turns after the last fault at least one step is committed, until all is done."""
OLD_TURNS = 60
"""So many turns an owner goes on that has lost its store and does not know it."""


class _SteppedClock(VirtualClock):
    """A virtual clock whose time of day somebody sets."""

    def __init__(self, start: float) -> None:
        super().__init__(start)
        self.step = 0.0

    def time(self) -> float:
        return super().time() + self.step

    def steady(self) -> float:
        """The time of day without what somebody set."""
        return super().time()


class ProcessDied(BaseException):
    """Raised out of a turn of a process that died in it, through whatever waits on this stack."""


class _Scheduler(DeterministicScheduler):
    """A scheduler whose process may die in a turn, and does soon after its runtime knows that it must end."""

    process: Process
    left = 20
    depth = 0
    """How many turns are on the stack: in all but the last one a node waits."""

    def step(self) -> bool:
        process = self.process
        self.depth += 1
        try:
            stepped = super().step()
        finally:
            self.depth -= 1
        process.world.tick(process, within=self.depth > 0)
        hub = getattr(process, "hub", None)
        if hub is not None and hub.fatal is not None:
            self.left -= 1
            process.ends.dying = process.ends.dying or self.left < 0
        if process.ends.dying:
            raise ProcessDied
        return stepped


class _Runtime(Runtime):
    """A runtime whose process hears its events from the first one on."""

    process: Process

    def _new_core(self, last: bool) -> Any:
        core = super()._new_core(last)
        self.process.core, self.process.hub = core, core.hub
        core.hub.user_loop = self.process.loop
        core.hub.subscribe(self.process.world.checkers.listener(self.process))
        return core


class Process:
    """One process: a scheduler, a runtime, and the disk as it has it open."""

    def __init__(self, world: World, number: int, now: float, *, force: bool) -> None:
        config = world.config
        self.world = world
        self.ends = Ends(number)
        self.clock = _SteppedClock(now)
        self.scheduler = _Scheduler(
            config.seed * 31 + number, clock=self.clock, max_steps=MOST_TURNS
        )
        self.scheduler.process = self
        self.system = ActorSystem(self.scheduler, clock=self.clock, on_event=lambda _event: None)
        self.loop = SimLoop(self.scheduler, world.checkers.wrong)
        self.store = SimCheckpointer(world.disk, self.ends, self.clock, sync=config.sync)
        self.left = OLD_TURNS
        self.runtime = _Runtime(
            self.store,
            graphs=[world.app],
            limits=Limits(
                crashes_without_commit=1_000_000, owner_deaths=1_000_000, **config.limits
            ),
            max_restarts=1_000_000,
            takeover="force" if force else None,
            system=self.system,
            seed=config.seed,
            fault=world.faults.at_point,
        )
        self.runtime.process = self
        world.begins = self
        self.runtime.start()

    @property
    def over(self) -> bool:
        """Whether nothing comes of it any more."""
        return self.ends.dying or self.core._closed or self.runtime.failure is not None

    def bury(self) -> None:
        """Nothing of it goes on."""
        self.ends.dying = True
        places._places.pop(self.store.identity, None)
        self.core._closed = True
        self.loop.bury()
        self.store.close()

    def turn(self) -> bool:
        """One turn of its scheduler; False if nothing can go on."""
        try:
            return self.scheduler.step() or self.scheduler.jump()
        except ProcessDied:
            return True


class World:
    """One simulated history.

    Args:
        config: What it is made of.
        keep: Whether to keep the trace's lines.
    """

    def __init__(self, config: Config, *, keep: bool = False) -> None:
        self.plan = SimPlan(config.seed)
        if self.plan.inner:  # each run takes longer
            config = replace(config, threads=min(config.threads, 2), runs=min(config.runs, 2))
        self.config = config
        self.trace = Trace(keep=keep)
        self.trace.note(None, config)
        self.faults = Faults(self, config, random.Random(config.seed))
        self.disk = Disk(self.faults.of_disk)
        self.checkers = Checkers(self)
        self.app = self.plan.compile(
            self.checkers.bodies,
            failure_policy=config.policy,
            max_concurrency=config.max_concurrency,
        )
        self.threads = [f"t{number}" for number in range(config.threads)]
        self.clients = {
            t: Client(self, t, random.Random(f"{config.seed} {t}")) for t in self.threads
        }
        self.active = list(self.clients.values())
        self.editors: list[Client] = []
        if "edits" in config.weights:
            self.editors.append(Editor(self, "edited", random.Random(f"{config.seed} edited")))
        self.editing = False
        self.doomed = False
        """Whether the process dies when the clients have had their turn."""
        self.noise: list[Any] = []
        self.olds: list[Process] = []
        self.lives = 0
        self.turns = 0
        self.process: Process | None = None
        self.begins: Process | None = None
        """The process that takes the store just now; it may do some work in the meantime."""
        self._begin(1_700_000_000.0, force=False)

    # Processes ----------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        """Whether no process lives now."""
        return self.process is None or self.process.ends.dying

    @property
    def living(self) -> Process:
        """The process that does the work: the one that begins, if one does."""
        living = self.begins or self.process
        assert living is not None, "no process began yet"
        return living

    @property
    def now(self) -> float:
        """Seconds since the epoch, as if nobody had set the clock since the process began."""
        return self.living.clock.steady()

    @property
    def steps_clock(self) -> bool:
        """Whether somebody sets the clock of this history; how long something took is not known then."""
        return "clock step" in self.config.weights

    def note(self, what: str) -> None:
        """A line of the trace."""
        self.trace.note(self.begins or self.process, what)

    def _begin(self, now: float, *, force: bool) -> None:
        began = None
        while began is None:
            self.lives += 1
            self.faults.room()  # who begins sees to it that there is room
            try:
                began = Process(self, self.lives, now, force=force)
            except (BeamWeaverError, ProcessDied) as error:
                # it died, or was told of a fault, in its first moments
                self.note(f"process {self.lives} did not begin: {type(error).__name__}")
                if self.begins is not None:
                    now = self.begins.clock.time()
                force = True
            finally:
                self.begins = None
        self.process = began

    def die(self, *, cut: bool = False) -> None:
        """The process dies, by a power cut perhaps; the next one begins."""
        self.note("the process dies")
        self.process.bury()
        if cut:
            self.disk.cut()
        self._next(force=False)

    def take_by_force(self) -> None:
        """Another process takes the store, while the one that has it goes on for a while."""
        self.olds.append(self.process)
        places._places.pop(self.process.store.identity, None)
        self._next(force=True)

    def _next(self, *, force: bool) -> None:
        self.noise.clear()
        self._begin(self.process.clock.time(), force=force)
        for client in [*self.active, *self.editors]:
            client.died()

    def submit(self, thread_id: str, message: Any, *, waits: bool) -> Any:
        """Call the runtime without waiting on this stack."""
        return self.process.core.submit(self.app, thread_id, message, waits=waits)

    def bother(self, thread_id: str, message: Any, *, waits: bool) -> None:
        """A call of somebody who does not look what becomes of it."""
        try:
            self.noise.append(self.submit(thread_id, message, waits=waits))
        except BeamWeaverError:
            return

    def edit(self, edit: Callable[[Runtime], Any]) -> Any:
        """What a call gives that changes the store and waits for it; None for a refused one."""
        self.editing = True
        try:
            return edit(self.process.runtime)
        except (BeamWeaverError, ProcessDied) as error:
            self.note(f"refused: {type(error).__name__}")
            return None
        finally:
            self.editing = False

    def drain(self) -> None:
        """Drain and close in the middle of everything; the next process makes it end."""
        process = self.process
        waiting = [client for client in self.active if client.waiting is not None]
        before = self.faults.made
        try:
            in_time = process.runtime.drain(60.0)
            process.runtime.close()
        except (BeamWeaverError, ProcessDied) as error:
            self.note(f"the drain failed: {type(error).__name__}")
        else:
            if not process.ends.dying and process.core.failure is None:
                calm = in_time and self.faults.made == before and not self.disk.full
                self.checkers.check_drained(process, waiting if calm else [])
        process.bury()
        self._next(force=False)

    def cells(self) -> list[Any]:
        """Every actor and node that may be killed, those that are starting too."""
        hub = self.process.core.hub
        parts = cells_of(self.process.core._root.cell)
        threads = [cell for part in parts for cell in cells_of(part)]
        nodes = [task for bodies in hub.bodies.values() for task in bodies.running.values()]
        return [*parts, *threads, *nodes, *nodes]  # of these there are few

    # Running ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until all clients have what they want and nothing is left to do; check all along."""
        quiet = stalled = steps = 0
        while True:
            if self.process.over:
                self.die()  # before anybody hears what it said in its last turn
            self._turn_clients()
            if not self.active and not self.editors:
                break
            if self.process.over:
                continue
            self.turns += 1
            goes_on = self.faults.left or steps != self.checkers.steps
            quiet, steps = 0 if goes_on else quiet + 1, self.checkers.steps
            assert self.turns < MOST_TURNS, f"{self.config.seed=}: no end; {self.describe()}"
            assert quiet < PATIENCE_TURNS, f"{self.config.seed=}: stuck; {self.describe()}"
            self.faults.disturb()
            if self.olds:
                self._turn_olds()
            if self.editors and not self.process.over:
                self.editors = [editor for editor in self.editors if not editor.turn()]
            went = self.process.over or self.process.turn()
            went = went or self.faults.full_for > 0 or any(e.waiting is None for e in self.editors)
            stalled = 0 if went else stalled + 1
            assert stalled < 2, f"{self.config.seed=}: nothing can go on; {self.describe()}"
            self.checkers.check()
        self.faults.calm()
        self._settle()
        self.checkers.check_end()

    def tick(self, process: Process, *, within: bool) -> None:
        """A turn passed; if it was `within` another one, in which a node waits, others go on meanwhile."""
        self.faults.tick()
        if (within or self.editing) and process is self.process and not process.over:
            worker, here.worker = here.worker, None
            try:
                contextvars.Context().run(self._go_on_within)
            finally:
                here.worker = worker

    def _go_on_within(self) -> None:
        if not self.process.hub.draining or self.faults.rng.random() < 0.02:
            self._turn_clients()  # while it drains they rarely call: nothing of their haste costs time here
        if not self.process.over:
            self.faults.disturb(within=True)

    def _settle(self) -> None:
        turns = 0
        while True:
            if self.process.over or self.process.hub.fatal is not None:
                self.die()  # it had to end when the last client had all that it wanted
            if not len(self.process.hub.waiters) and not self._unfinished():
                break
            turns += 1
            busy = turns < PATIENCE_TURNS and self.process.turn()
            assert busy, f"{self.config.seed=}: calls without an answer; {self.describe()}"
        self.process.scheduler.settle()

    def _unfinished(self) -> bool:
        """Whether a message waits in a thread's inbox."""
        images = [self.process.store.load(thread_id) for thread_id in self.threads]
        return any(image is not None and image.inbox for image in images)

    def _turn_clients(self) -> None:
        self.active = [c for c in self.active if self.process.over or not c.turn()]
        if self.doomed:
            self.doomed, self.process.ends.dying = False, True

    def _turn_olds(self) -> None:
        for old in list(self.olds):
            old.left -= 1
            if old.left < 0 or old.over:
                old.bury()
                self.olds.remove(old)
            else:
                old.turn()

    def describe(self) -> str:
        """How everybody stands."""
        stands = [
            f"{t}: {client}, {getattr(self.process.runtime.get_state(t), 'status', None)}"
            for t, client in self.clients.items()
        ]
        return "; ".join(stands)

    def close(self) -> None:
        """End."""
        self.faults.calm()
        for old in self.olds:
            old.bury()
        if not self.process.over:
            with contextlib.suppress(ProcessDied):  # it was about to
                self.process.runtime.close()
        self.process.bury()


def simulate(seed: int, *, durability: str = "sync") -> World:
    """One whole history of a seed, with calls of that durability.

    Raises:
        AssertionError: Something does not hold; the message has the seed.
    """
    config = Config.drawn(seed)
    world = World(config if durability == "sync" else config.within(durability))
    try:
        world.run()
    finally:
        world.close()
    return world
