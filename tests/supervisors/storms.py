"""Storms: trees of ours in which much dies at once, at moments drawn from a seed.

Children that are slow to start and to end are killed meanwhile, supervisors die while their children
start, siblings die together, names are raced for, and the tree is shut down in the midst of it. What must
hold: everybody ends, each end is told exactly once to each who asked, no incarnation starts before the
last one under the same supervisor has ended, and nothing is left.
"""

from __future__ import annotations

import random
from typing import Any

from supervisors import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    AlreadyStarted,
    Backoff,
    ChildSpec,
    DeleteChild,
    DynamicSupervisor,
    RestartChild,
    StartChild,
    Supervisor,
    TerminateChild,
)
from supervisors.elsewhere import Answered, Begun, Deputy, Gone
from supervisors.inbox import ENDED, Inbox
from supervisors.testing import DeterministicScheduler, leaks
from tests.supervisors.world import Boom, Puppet, World, crash

NAMES = "pqrs"


class _Post:
    """A timer's target: news for a deputy."""

    def __init__(self, deputy: Deputy) -> None:
        self.deputy = deputy

    def put(self, news: Any) -> None:
        self.deputy.post(news)


class Slow(Deputy):
    """Takes its time to start, to answer and to end, and holds nobody up."""

    def __init__(self, seed: int, notes: Notes, key: object) -> None:
        self.random = random.Random(seed)
        self.notes = notes
        self.key = key

    def later(self, news: Any) -> None:
        delay = self.random.choice([0.0, 0.01, 1.0, 30.0])
        timers = self.system.scheduler.timers
        timers.add(delay, _Post(self), news, owners=self.cell.timer_set())

    def begin(self) -> None:
        self.notes.started(self, self.key)
        self.later(Begun())

    def deliver(self, message: Any) -> None:
        self.later(Gone(Abnormal("told")) if callable(message) else Answered(message))

    def wind_up(self, reason: Any) -> None:
        self.later(Gone(reason))

    def let_go(self) -> None:
        """Nothing is held."""


class Quick(Puppet):
    """Starts at once, or fails."""

    def __init__(self, seed: int, notes: Notes, key: object) -> None:
        super().__init__(key)
        self.random = random.Random(seed)
        self.notes = notes

    def on_start(self) -> None:
        self.notes.started(self, self.id)
        if not 1 < self.notes.seen[self.id] < 200:
            return  # sound at last: else a tree whose budgets allow it restarts for ever
        if self.random.random() < 0.2:
            raise Boom
        if self.random.random() < 0.1:
            self.handle_continue()

    def on_continue(self, term: object) -> None:
        self.exit(Abnormal("at once"))


class Notes:
    """What the children of a storm note."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.last: dict[object, Inbox] = {}
        self.seen: dict[object, int] = {}

    def started(self, actor: Any, key: object) -> None:
        before = self.last.get(key)
        self.last[key] = actor.cell
        self.seen[key] = self.seen.get(key, 0) + 1
        if before is not None and before.parent is actor.cell.parent:
            assert before.phase == ENDED, f"{self.where}: two {key} at once"


class Storm:
    """One storm."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.where = f"storm {seed}"
        self.world = World(DeterministicScheduler(seed, step_cost=0.001, max_steps=500_000))
        self.system = self.world.system
        self.notes = Notes(self.where)
        self.numbers = 0
        self.watched: dict[Inbox, Any] = {}
        self.recorder, _, self.signals = self.world.recorder()
        self.top = self._start()

    def _start(self) -> Inbox:
        rng = self.random
        specs = [self.spec(2) for _ in range(rng.randrange(1, 4))]
        specs.append(self._supervisor("c0", 2, {}))
        strategy = rng.choice(["one_for_one", "one_for_all", "rest_for_one"])
        return self.system.spawn(Supervisor, specs, strategy=strategy, intensity=40)

    def spec(self, depth: int, *, named: bool = False) -> ChildSpec:
        rng = self.random
        self.numbers += 1
        flags: Any = {"restart": rng.choice(["permanent", "permanent", "transient", "temporary"])}
        flags["shutdown"] = rng.choice([None, 0.0, 0.5, "brutal_kill"])
        key = f"c{self.numbers}"
        if depth and rng.random() < 0.35:
            flags["shutdown"] = None
            return self._supervisor(key, depth, flags)
        if named and rng.random() < 0.5:
            flags["name"] = rng.choice(NAMES)
        kind = rng.choice([Quick, Quick, Slow])
        return ChildSpec(key, kind, (rng.randrange(10**6), self.notes, key), **flags)

    def _supervisor(self, key: str, depth: int, flags: Any) -> ChildSpec:
        rng = self.random
        backoff = rng.choice([None, None, Backoff(0.1, cap=1.0)])
        kwargs = {"intensity": rng.choice([1, 5, 15]), "period": 5.0, "backoff": backoff}
        if rng.random() < 0.3:
            return ChildSpec(key, DynamicSupervisor, (), kwargs, **flags)
        kwargs["strategy"] = rng.choice(["one_for_one", "one_for_all", "rest_for_one"])
        specs = [self.spec(depth - 1) for _ in range(rng.randrange(1, 4))]
        return ChildSpec(key, Supervisor, (specs,), kwargs, **flags)

    def cells(self) -> list[Inbox]:
        """Return the living cells of the tree, starting ones included."""
        found: list[Inbox] = [self.top]
        for cell in found:
            book = cell.book
            found.extend(kid for kid in list(book.kids if book else ()) if isinstance(kid, Inbox))
        return found

    def watch(self) -> None:
        """Monitor whom nobody monitors yet."""
        for cell in self.cells():
            if cell not in self.watched:
                self.watched[cell] = self.recorder.cell.actor.monitor(cell, cell)

    def act(self) -> None:
        rng = self.random
        cell = rng.choice(self.cells())
        kind = rng.randrange(10)
        if kind < 3:
            self.system.exit(cell, rng.choice([KILLED, KILLED, SHUTDOWN, Abnormal("x"), NORMAL]))
        elif kind == 3:
            for kid in [c for c in self.cells() if c.parent is cell]:  # siblings together
                self.system.exit(kid, rng.choice([KILLED, Abnormal("together")]))
        elif kind == 4:
            cell.put(crash)
        elif kind == 5:
            self._take_a_name()
        elif kind < 9 and cell.actor_class in {Supervisor, DynamicSupervisor}:
            cell.put(self._request(cell))
        else:
            self.world.scheduler.run_for(rng.choice([0.0, 0.02, 1.5, 40.0]))

    def _request(self, cell: Inbox) -> Any:
        kids = [c for c in self.cells() if c.parent is cell]
        rng = self.random
        kind = rng.choice([StartChild, TerminateChild, RestartChild, DeleteChild])
        if kind is StartChild:
            return StartChild(self.spec(1, named=True))
        dynamic = cell.actor_class is DynamicSupervisor
        if dynamic and kids and kind is TerminateChild:
            return TerminateChild(rng.choice(kids).ref)
        return kind(f"c{rng.randrange(1, self.numbers + 1)}")

    def _take_a_name(self) -> None:
        try:
            stranger = self.system.spawn(Puppet, name=self.random.choice(NAMES))
        except AlreadyStarted:
            return
        self.system.send_after(self.random.choice([0.0, 0.5]), stranger, crash)

    def run(self) -> None:
        rng = self.random
        for _ in range(rng.randrange(5, 40)):
            self.watch()
            self.act()
            for _ in range(rng.choice([0, 1, 2, 5, 50])):
                self.world.scheduler.step()
        stopping = rng.random() < 0.5
        if stopping:
            self.top.ref.stop(block=False)
            for _ in range(rng.randrange(8)):
                self.watch()
                self.act()
                self.world.scheduler.step()
        self.finish()

    def finish(self) -> None:
        self.watch()
        self.top.ref.stop(block=False)
        self.world.scheduler.run_for(1000.0)
        assert self.top.phase == ENDED, f"{self.where}: {self.top} is not ended"
        self._check_downs()
        self.system.shutdown()
        assert leaks(self.system) == [], self.where
        assert all(cell.phase == ENDED for cell in self.watched), self.where

    def _check_downs(self) -> None:
        told = [signal.token for signal in self.signals]
        twice = (
            {cell for cell in told if told.count(cell) > 1} if len(set(told)) < len(told) else ()
        )
        missing = self.watched.keys() - set(told)
        assert not twice, f"{self.where}: told twice of {twice}"
        assert not missing, f"{self.where}: not told of {missing}"


def storm(seed: int) -> None:
    """Let one storm pass."""
    Storm(seed).run()
