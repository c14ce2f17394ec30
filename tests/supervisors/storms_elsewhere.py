"""Storms over real workers, an event loop and processes: each execution class in one tree, dying in all ways.

Unlike `storms.py` they take real time and real threads, so that a seed fixes what is done, not the order in
which it happens. What must hold in every order: each call is answered, each end is told once, and no process,
worker, name or timer is left.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from typing import Any

import pykka

from supervisors import (
    BRUTAL_KILL,
    KILLED,
    SHUTDOWN,
    Abnormal,
    Actor,
    ActorExit,
    ActorSystem,
    CallTimeout,
    ChildSpec,
    DynamicSupervisor,
    Limits,
    NotFound,
    PoolScheduler,
    RemoteError,
    StartError,
    count_children,
    start_child,
    terminate_child,
)
from supervisors.asynchronous import AsyncActor
from supervisors.process import ProcessActor, ProcessPool
from supervisors.testing import Recorder, eventually, leaks
from tests.supervisors.world import Boom

_COUNTER = "tests.supervisors.elsewhere_targets:Counter"


class Loop(AsyncActor):
    """On the event loop: waits a little, then answers."""

    async def setup(self) -> None:
        await asyncio.sleep(0)

    async def handle(self, message: Any) -> Any:
        await asyncio.sleep(0.001)
        if not isinstance(message, int):
            raise Boom(message)
        return message

    async def teardown(self, reason: object) -> None:
        await asyncio.sleep(0)


class Own(Actor):
    """On a worker of its own."""

    execution = "thread"

    def on_receive(self, message: Any) -> Any:
        if not isinstance(message, int):
            raise Boom(message)
        return message


class Pooled(Own):
    """On the workers of all, and interruptible."""

    execution = "pooled"
    interruptible = True


class Old(pykka.ThreadingActor):
    """In a thread of pykka's."""

    def on_receive(self, message: Any) -> Any:
        if not isinstance(message, int):
            raise Boom(message)
        return message


class Storm:
    """One storm: `steps` things are done to a tree of all execution classes."""

    def __init__(self, seed: int, processes: int) -> None:
        self.random = random.Random(seed)
        self.where = f"storm elsewhere {seed}"
        limits = Limits(kill_grace=20.0, start_timeout=30.0)
        self.system = ActorSystem(PoolScheduler(base=2), on_event=lambda _: None, limits=limits)
        self.pool = ProcessPool(self.system, warm=1)
        self.processes = processes
        self.pids: set[int] = set()
        self.asked: list[Any] = []
        self.seen: list[Any] = []
        self.downs: list[Any] = []
        self.recorder = self.system.start(Recorder, self.seen, self.downs)
        self.watched: dict[Any, Any] = {}
        self.top = self.system.start(DynamicSupervisor, intensity=10**6)

    def cells(self) -> list[Any]:
        actor: Any = self.top.cell.actor
        children = [] if actor is None else actor.snapshot()
        return [child.run.cell for child in children if child.run is not None]

    def watch(self) -> None:
        observer: Any = self.recorder.cell.actor
        for cell in self.cells():
            if cell is not None and cell not in self.watched:
                self.watched[cell] = observer.monitor(cell, cell)
            pid = getattr(cell.actor, "pid", None)
            if pid is not None:
                self.pids.add(pid)

    def spec(self) -> ChildSpec:
        rng = self.random
        kinds: list[Any] = [Loop, Loop, Own, Pooled, Old]
        if self.processes:
            kinds += [ProcessActor, ProcessActor]
        kind = rng.choice(kinds)
        shutdown = rng.choice([None, 1.0] if kind is Old else [None, 1.0, BRUTAL_KILL])
        restart = rng.choice(["permanent", "temporary", "transient"])
        args: tuple[Any, ...] = ()
        if kind is ProcessActor:
            self.processes -= 1
            restart = rng.choice(["temporary", "permanent"]) if self.processes > 2 else "temporary"
            args = (_COUNTER,)
            if rng.random() < 0.5:
                return ChildSpec(
                    None, kind, args, {"pool": self.pool}, restart=restart, shutdown=shutdown
                )
        return ChildSpec(None, kind, args, restart=restart, shutdown=shutdown)

    def act(self) -> None:
        rng = self.random
        cells = self.cells()
        kind = rng.randrange(8)
        if kind < 3 or not cells:
            with suppress(StartError):
                start_child(self.top, self.spec(), timeout=60)
            return
        cell = rng.choice(cells)
        if kind < 5:
            self.asked += [cell.ref.ask(n, block=False) for n in range(rng.randrange(1, 4))]
        elif kind == 5:
            self.asked.append(cell.ref.ask(rng.choice(["crash", ["crash"]]), block=False))
        elif kind == 6:
            self.system.exit(cell, rng.choice([KILLED, SHUTDOWN, Abnormal("told")]))
        elif (pid := getattr(cell.actor, "pid", None)) is not None and rng.random() < 0.5:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        else:
            with suppress(NotFound):
                terminate_child(self.top, cell.ref, timeout=60)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.watch()
            self.act()
        self.watch()
        count_children(self.top, timeout=60)
        assert self.top.stop(timeout=60), self.where
        for future in self.asked:
            with suppress(ActorExit, Boom, RemoteError):
                try:
                    future.get(timeout=60)
                except CallTimeout:
                    raise AssertionError(f"{self.where}: a call was never answered") from None
        eventually(lambda: len(self.downs) >= len(self.watched), 60)
        told = [down.token for down in self.downs]
        assert len(told) == len(set(told)) == len(self.watched), self.where
        assert self.pool.close(60), self.where
        assert self.system.shutdown(60), self.where
        assert leaks(self.system) == [], self.where
        eventually(lambda: not any(_lives(pid) for pid in self.pids), 60)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def storm(seed: int, steps: int = 40, processes: int = 6) -> None:
    """Let one storm pass, with at most so many processes started by hand."""
    Storm(seed, processes).run(steps)
