"""A whole runtime on one OS thread: processes that live and die over one disk, clients, and what goes wrong.

Everything is drawn from one seed: the graph, the configuration, the order of turns, the calls, the faults.
The store's code, the engine, the actors and their supervisors are those of production; the clock, the
scheduler and the disk are simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from beamweaver import Cancel, Continue, Resume, Runtime
from beamweaver.errors import BeamWeaverError
from beamweaver.limits import Limits
from beamweaver.runtime import places
from supervisors import KILLED, ActorSystem, TaskActor
from supervisors.testing import DeterministicScheduler, VirtualClock, leaks
from tests.runtime.kit import Boom
from tests.runtime.schedules import POINTS, cells_of
from tests.simulation.checkers import Checkers
from tests.simulation.clients import Client
from tests.simulation.config import Config
from tests.simulation.disk import Disk, Ends
from tests.simulation.plan import SimPlan
from tests.simulation.store import SimCheckpointer
from tests.simulation.trace import Trace

__all__ = ["Process", "World", "simulate"]

MOST_TURNS = 60_000
PATIENCE_TURNS = 10_000
"""So many turns after the last fault no thread may be stuck."""
OLD_TURNS = 60
"""So many turns an owner goes on that has lost its store and does not know it."""


class _SteppedClock(VirtualClock):
    """A virtual clock whose time of day somebody sets."""

    def __init__(self, start: float) -> None:
        super().__init__(start)
        self.step = 0.0

    def time(self) -> float:
        return super().time() + self.step


class ProcessDied(BaseException):
    """Raised out of a turn of a process that died in it, through whatever waits on this stack."""


class _Scheduler(DeterministicScheduler):
    """A scheduler whose process may die in a turn, and does soon after its runtime knows that it must end."""

    process: Process
    left = 20

    def step(self) -> bool:
        stepped = super().step()
        self.process.world.tick()
        hub = getattr(self.process, "hub", None)
        if hub is not None and hub.fatal is not None:
            self.left -= 1
            self.process.ends.dying = self.process.ends.dying or self.left < 0
        if self.process.ends.dying:
            raise ProcessDied
        return stepped


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
        self.store = SimCheckpointer(world.disk, self.ends, self.clock, sync=config.sync)
        self.left = OLD_TURNS
        self.runtime = Runtime(
            self.store,
            graphs=[world.app],
            limits=Limits(
                crashes_without_commit=1_000_000, owner_deaths=1_000_000, **config.limits
            ),
            max_restarts=1_000_000,
            takeover="force" if force else None,
            system=self.system,
            seed=config.seed,
            fault=world.fault,
        )
        self.runtime.start()
        self.core = self.runtime._core
        self.hub = self.core.hub
        self.runtime.subscribe(world.checkers.listener(self))

    @property
    def over(self) -> bool:
        """Whether nothing comes of it any more."""
        return self.ends.dying or self.core._closed or self.runtime.failure is not None

    def bury(self) -> None:
        """Nothing of it goes on."""
        self.ends.dying = True
        places._places.pop(self.store.identity, None)
        self.core._closed = True
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
        self.config = config
        self.rng = random.Random(config.seed)
        self.trace = Trace(keep=keep)
        self.trace.note(None, config)
        self.plan = SimPlan(config.seed)
        self.faults = config.faults
        self.struck: dict[str, int] = {}
        self.points: dict[str, int] = {}
        self.disk = Disk(self._disk_fault)
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
        self.noise: list[Any] = []
        self.olds: list[Process] = []
        self.lives = 0
        self.turns = 0
        self.full_for = 0
        self.process: Process = self._begin(1_700_000_000.0, force=False)

    # Processes ----------------------------------------------------------------------------------

    def _begin(self, now: float, *, force: bool) -> Process:
        self.lives += 1
        self.disk.full, self.full_for = False, 0  # who begins sees to it that there is room
        try:
            return Process(self, self.lives, now, force=force)
        except (
            BeamWeaverError,
            ProcessDied,
        ) as error:  # it died, or was told of a fault, in its first moments
            self.trace.note(None, f"process {self.lives} did not begin: {type(error).__name__}")
            return self._begin(now, force=True)

    def die(self) -> None:
        """The process dies; the next one begins."""
        self.trace.note(self.process, "the process dies")
        now = self.process.clock.time()
        self.process.bury()
        self._next(now, force=False)

    def _next(self, now: float, *, force: bool) -> None:
        self.noise.clear()
        self.process = self._begin(now, force=force)
        for client in self.clients.values():
            client.died()

    def submit(self, thread_id: str, message: Any, *, waits: bool) -> Any:
        """Call the runtime without waiting on this stack."""
        return self.process.core.submit(self.app, thread_id, message, waits=waits)

    # Faults -------------------------------------------------------------------------------------

    def _strikes(self, kind: str, chance: float) -> bool:
        weight = self.config.weights.get(kind, 0.0)
        if self.faults <= 0 or not weight or self.rng.random() >= chance * weight:
            return False
        self.faults -= 1
        self.struck[kind] = self.struck.get(kind, 0) + 1
        self.trace.note(self.process if hasattr(self, "process") else None, f"fault: {kind}")
        return True

    def fault(self, point: str, _thread: str) -> None:
        """A named point of the runtime was reached."""
        self.points[point] = self.points.get(point, 0) + 1
        if point in POINTS and self._strikes("crash point", 0.01):
            raise Boom(point)

    def _disk_fault(self, operation: str) -> str:
        if not hasattr(self, "process") or self.process.ends.dying:
            return ""
        if operation == "put":
            return "refused" if self._strikes("put refused", 0.004) else ""
        if self.disk.full:
            return "full"
        for kind in ("dies before commit", "dies after commit"):
            if self._strikes(kind, 0.02):
                return kind.removesuffix(" commit")
        if self._strikes("broken sync", 0.01):
            return self.rng.choice(["broken before", "broken after"])
        return ""

    def disturb(self) -> None:
        """Perhaps something goes wrong now."""
        self._disturb_process()
        self._disturb_actors()
        self._disturb_calls()

    def tick(self) -> None:
        """A turn passed, perhaps while a node waits in another one: in time the disk has room again."""
        if self.full_for:
            self.full_for -= 1
            self.disk.full = self.full_for > 0

    def _disturb_process(self) -> None:
        if self._strikes("process kill", 0.003):
            self.die()
        if self.config.sync and self._strikes("power cut", 0.003):
            self.process.bury()
            self.disk.cut()
            self._next(self.process.clock.time(), force=False)
        if self._strikes("second owner", 0.002):
            self.olds.append(self.process)
            places._places.pop(self.process.store.identity, None)
            self._next(self.process.clock.time(), force=True)
        if self._strikes("clock step", 0.003):
            self.process.clock.step += self.rng.choice([-3600.0, -5.0, 5.0, 3600.0])
        if self._strikes("drain", 0.001):
            self._drain()

    def _disturb_actors(self) -> None:
        if self._strikes("actor kill", 0.01):
            victims = self.cells()
            if victims:
                victim = self.rng.choice(victims)
                if isinstance(victim, TaskActor):
                    victim.kill()
                else:
                    self.process.system.exit(victim, KILLED)
        if self._strikes("disk full", 0.003):
            self.disk.full, self.full_for = True, self.rng.randint(1, 60)

    def _disturb_calls(self) -> None:
        rng = self.rng
        if self._strikes("cancel", 0.005):
            self._noise(Cancel())
        if "noise" in self.config.weights and rng.random() < 0.01:
            self._noise(rng.choice([Continue(), Resume(answers={"int_nobody_asked": 1})]))
        if self._strikes("prune", 0.003):
            self._edit(lambda runtime, thread: runtime.prune([thread], keep_last=rng.randint(1, 3)))
        if self._strikes("copy", 0.003):
            target = f"copy {self.process.scheduler.steps}"
            self._edit(lambda runtime, thread: runtime.copy_thread(thread, target))

    def _noise(self, message: Any) -> None:
        """A call of somebody else that changes nothing of how the thread must end."""
        try:
            waits = self.rng.random() < 0.5
            self.noise.append(self.submit(self.rng.choice(self.threads), message, waits=waits))
        except BeamWeaverError:
            return

    def _edit(self, edit: Callable[[Any, str], Any]) -> None:
        try:
            edit(self.process.runtime, self.rng.choice(self.threads))
        except (BeamWeaverError, ProcessDied) as error:
            self.trace.note(self.process, f"refused: {type(error).__name__}")

    def _drain(self) -> None:
        """Drain and close in the middle of everything; the next process makes it end."""
        process = self.process
        try:
            process.runtime.drain(60.0)
            process.runtime.close()
        except (BeamWeaverError, ProcessDied) as error:
            self.trace.note(process, f"the drain failed: {type(error).__name__}")
        else:
            if not process.over or process.core.failure is None:
                left = leaks(process.system)
                assert left == [] or process.ends.dying, f"{self.config.seed=}: {left}"
        now = process.clock.time()
        process.bury()
        self._next(now, force=False)

    def cells(self) -> list[Any]:
        """Every actor and node that may be killed, those that are starting too."""
        hub = self.process.core.hub
        parts = cells_of(self.process.core._root.cell)
        threads = [cell for part in parts for cell in cells_of(part)]
        nodes = [task for bodies in hub.bodies.values() for task in bodies.running.values()]
        return [*parts, *threads, *nodes]

    # Running ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until all clients have what they want and nothing is left to do; check all along."""
        quiet = stalled = 0
        while True:
            if self.process.over:
                self.die()  # before anybody hears what it said in its last turn
            if self._turn_clients():
                break
            self.turns += 1
            quiet = 0 if self.faults else quiet + 1
            assert self.turns < MOST_TURNS, f"{self.config.seed=}: no end; {self.describe()}"
            assert quiet < PATIENCE_TURNS, f"{self.config.seed=}: stuck; {self.describe()}"
            self.disturb()
            self._turn_olds()
            went = self.process.over or self.process.turn()
            stalled = 0 if went or self.full_for else stalled + 1
            assert stalled < 2, f"{self.config.seed=}: nothing can go on; {self.describe()}"
            self.checkers.check()
        self.calm()
        self._settle()
        self.checkers.check_end()

    def calm(self) -> None:
        """From now on nothing goes wrong."""
        self.faults = self.full_for = 0
        self.disk.full = False

    def _settle(self) -> None:
        turns = 0
        while len(self.process.core.hub.waiters) or self._unfinished():
            turns += 1
            busy = turns < PATIENCE_TURNS and self.process.turn()
            assert busy, f"{self.config.seed=}: calls without an answer; {self.describe()}"
        self.process.scheduler.settle()

    def _unfinished(self) -> bool:
        """Whether a message waits in a thread's inbox."""
        images = [self.process.store.load(thread_id) for thread_id in self.threads]
        return any(image is not None and image.inbox for image in images)

    def _turn_clients(self) -> bool:
        return False not in [client.turn() for client in self.clients.values()]

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
        self.calm()
        for old in self.olds:
            old.bury()
        if not self.process.over:
            self.process.runtime.close()
        self.process.bury()


def simulate(seed: int, *, keep: bool = False, durability: str = "sync") -> World:
    """One whole history of a seed, with calls of that durability.

    Raises:
        AssertionError: Something does not hold; the message has the seed.
    """
    config = Config.drawn(seed)
    world = World(config if durability == "sync" else config.within(durability), keep=keep)
    try:
        world.run()
    finally:
        world.close()
    return world
