"""What goes wrong in a history: when it strikes, and how often each kind did."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from beamweaver import Cancel, Continue, Resume
from beamweaver.runtime.loop import LoopTask
from supervisors import KILLED, TaskActor
from supervisors.family import Family
from tests.runtime.kit import Boom

if TYPE_CHECKING:
    from tests.simulation.config import Config
    from tests.simulation.world import World

__all__ = ["POINTS", "Faults", "cells_of"]

POINTS = (
    "writer.group",
    "writer.synced",
    "writer.acknowledged",
    "thread.load",
    "thread.start",
    "thread.acknowledged",
    "thread.admitted",
    "recovery.batch",
    "step.ran",
    "step.kept",
)
"""The named points of the runtime; a test compares them with those that its code names."""
_WITHIN = ("actor kill", "process kill", "cancel", "noise", "duplicate", "disk full")
"""What may strike also while a node waits inside of a turn."""
_DEATHS = ("process kill", "dies at point", "dies before commit", "dies after commit")
_MOST_BETWEEN = 2
"""How often the process dies between two runs, faults being left or not."""
_GRACE = 1.0
"""Seconds for which a node that is killed may go on."""
_HARMLESS = ("noise", "duplicate")
"""What is no fault, and not limited."""
_CHANCES = {
    "process kill": 0.004,
    "power cut": 0.004,
    "second owner": 0.003,
    "clock step": 0.004,
    "drain": 0.002,
    "actor kill": 0.01,
    "disk full": 0.004,
    "cancel": 0.006,
    "noise": 0.01,
    "duplicate": 0.01,
    "prune": 0.004,
    "copy": 0.004,
}
"""How likely each is in a turn, if its weight is one."""


class _Lot:
    """Draws at most one of some kinds, with one number."""

    def __init__(self, chances: dict[str, float], weights: dict[str, float]) -> None:
        self.kinds = [kind for kind in chances if weights.get(kind)]
        self.bounds = list(accumulate(chances[kind] * weights[kind] for kind in self.kinds))
        self.total = self.bounds[-1] if self.bounds else 0.0

    def at(self, drawn: float) -> str:
        return self.kinds[bisect_right(self.bounds, drawn)]


class Faults:
    """Says what goes wrong, and does it.

    Attributes:
        left: How many faults may still strike.
        made: How many did.
        struck: Kind -> how often it did.
        points: Named point -> how often it was reached.
        raised: Named point -> how often an exception was raised there.
        died: Named point -> how often the process died there.
    """

    def __init__(self, world: World, config: Config, rng: random.Random) -> None:
        self.world = world
        self.weights = config.weights
        self.rng = rng
        self.left = config.faults
        self.made = 0
        self.struck: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self.died: Counter[str] = Counter()
        self.full_for = 0
        self.between_runs = 0
        chances = {k: c for k, c in _CHANCES.items() if k != "power cut" or config.sync}
        self._lot = _Lot(chances, config.weights)
        self._within = _Lot({k: chances[k] for k in _WITHIN}, config.weights)
        self._do: dict[str, Callable[[], None]] = {
            "process kill": self._process_kill,
            "power cut": self._power_cut,
            "second owner": world.take_by_force,
            "clock step": self._clock_step,
            "drain": world.drain,
            "actor kill": self._actor_kill,
            "disk full": self._disk_full,
            "cancel": lambda: self._noise(Cancel()),
            "noise": self._nonsense,
            "duplicate": self._duplicate,
            "prune": self._prune,
            "copy": self._copy,
        }

    def calm(self) -> None:
        """From now on nothing goes wrong."""
        self.left = 0
        self.room()

    def room(self) -> None:
        """The disk has room again."""
        self.full_for = 0
        self.world.disk.full = False

    def strikes(self, kind: str, chance: float) -> bool:
        """Whether a fault of a kind strikes now, if its chance is that at the weight of one."""
        weight = self.weights.get(kind)
        if weight is None or self.left <= 0 or self.rng.random() >= chance * weight:
            return False
        self._count(kind)
        return True

    def kill_between_runs(self) -> bool:
        """Whether the process dies now that only an inbox has the next run; perhaps as the last fault."""
        kind = next((kind for kind in _DEATHS if kind in self.weights), None)
        if kind is None or self.between_runs >= _MOST_BETWEEN:
            return False
        self.between_runs += 1
        self._count(kind)
        self.world.doomed = True
        return True

    def _count(self, kind: str) -> None:
        self.left = max(self.left - 1, 0)
        self.made += 1
        self.struck[kind] += 1
        self.world.note(f"fault: {kind}")

    # Where it strikes ---------------------------------------------------------------------------

    def at_point(self, point: str, _thread: str) -> None:
        """A named point of the runtime was reached."""
        self.points[point] += 1
        if self.left <= 0 or self.world.is_dead:
            return
        if self.strikes("dies at point", 0.005):
            self.died[point] += 1
            self.world.process.ends.dying = True
        elif self.strikes("crash point", 0.01):
            self.raised[point] += 1
            raise Boom(point)

    def of_disk(self, operation: str) -> str:
        """What goes wrong with an operation of the disk."""
        if self.world.is_dead:
            return ""
        if operation == "put":
            return "refused" if self.strikes("put refused", 0.004) else ""
        if self.world.disk.full:
            return "full"
        for kind in ("dies before commit", "dies after commit"):
            if self.strikes(kind, 0.02):
                return kind.removesuffix(" commit")
        if self.strikes("broken sync", 0.01):
            return self.rng.choice(["broken before", "broken after"])
        return ""

    def tick(self) -> None:
        """A turn passed, perhaps while a node waits in another one: in time the disk has room again."""
        if self.full_for:
            self.full_for -= 1
            self.world.disk.full = self.full_for > 0

    def disturb(self, *, within: bool = False) -> None:
        """Perhaps something goes wrong now, between two turns, or within one in which a node waits."""
        lot = self._within if within else self._lot
        drawn = self.rng.random()
        if drawn >= lot.total or self.left <= 0:
            return
        kind = lot.at(drawn)
        if kind in _HARMLESS:
            self.struck[kind] += 1
        else:
            self._count(kind)
        if within and kind == "process kill":
            self.world.process.ends.dying = True
        else:
            self._do[kind]()

    # What it does -------------------------------------------------------------------------------

    def _process_kill(self) -> None:
        self.world.die()

    def _power_cut(self) -> None:
        self.world.die(cut=True)

    def _clock_step(self) -> None:
        self.world.process.clock.step += self.rng.choice([-3600.0, -5.0, 5.0, 3600.0])

    def _disk_full(self) -> None:
        self.world.disk.full, self.full_for = True, self.rng.randint(1, 60)

    def _actor_kill(self) -> None:
        victims = self.world.cells()
        if not victims:
            return
        victim = self.rng.choice(victims)
        if isinstance(victim, TaskActor | LoopTask):
            victim.kill(_GRACE)
        else:
            self.world.process.system.exit(victim, KILLED)

    def _nonsense(self) -> None:
        self._noise(self.rng.choice([Continue(), Resume(answers={"int_nobody_asked": 1})]))

    def _duplicate(self) -> None:
        """Somebody makes a call again that a client made, now or long ago."""
        client = self.world.clients[self.rng.choice(self.world.threads)]
        if client.calls:
            message = self.rng.choice(client.calls)
            self.world.bother(client.thread_id, message, waits=self.rng.random() < 0.5)

    def _noise(self, message: Any) -> None:
        """A call of somebody else that changes nothing of how the thread must end."""
        thread_id = self.rng.choice(self.world.threads)
        self.world.bother(thread_id, message, waits=self.rng.random() < 0.5)

    def _prune(self) -> None:
        last, thread_id = self.rng.randint(1, 3), self.rng.choice(self.world.threads)
        self.world.edit(lambda runtime: runtime.prune([thread_id], keep_last=last))

    def _copy(self) -> None:
        """Copy a thread, or delete the copy that was made last."""
        made, deletes = divmod(self.struck["copy"] - 1, 2)
        target = f"copy {made}"
        if deletes:
            self.world.edit(lambda runtime: runtime.delete_thread(target))
        else:
            source = self.rng.choice(self.world.threads)
            self.world.edit(lambda runtime: runtime.copy_thread(source, target))


def cells_of(supervisor: Any) -> list[Any]:
    """The children of a supervisor that have not ended; none of what is no supervisor."""
    actor = supervisor.actor  # it may end meanwhile
    if not isinstance(actor, Family):
        return []
    runs = [child.run for child in actor.snapshot()]
    cells = [run.cell for run in runs if run is not None and run.ended is None]
    return [cell for cell in cells if cell is not None]
