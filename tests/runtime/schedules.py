"""A runtime in a simulation, clients that drive it, and kills and crashes at random moments.

Everything is drawn from one seed: the order of turns, what the clients call and when, which actors are
killed, where a fault is raised, and when the process dies. What a node returns depends on its input
alone, so each thread must end as it would in a run that nothing disturbs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from beamweaver import (
    END,
    START,
    Cancel,
    Completed,
    Continue,
    Graph,
    Interrupted,
    Invoke,
    Resume,
    Runtime,
    Send,
    interrupt,
)
from beamweaver.checkpoint import MemoryCheckpointer
from beamweaver.errors import BeamWeaverError, CallRefused
from beamweaver.limits import Limits
from beamweaver.runtime import places
from beamweaver.types import RetryPolicy
from supervisors import KILLED, ActorSystem, TaskActor
from supervisors.family import Family
from supervisors.testing import DeterministicScheduler, leaks
from tests.runtime.kit import Boom, Log, Oracle

__all__ = ["World", "log_of"]

POINTS = (
    "writer.group",
    "writer.synced",
    "writer.acknowledged",
    "thread.load",
    "thread.start",
    "thread.acknowledged",
    "thread.admitted",
    "recovery.batch",
)
MOST_TURNS = 40_000


class Flaky(Exception):
    """A failure that passes."""


class Died(Exception):
    """Thrown into a client whose process died."""


class Moods:
    """How the nodes of a world behave: each task fails or asks as its node's mood says, once."""

    def __init__(self, rng: random.Random) -> None:
        self.of = {
            name: rng.choice(["fine", "fine", "fails", "retried", "asks"]) for name in "abcdwe"
        }
        self.tried: set[str] = set()

    def node(self, name: str) -> Callable[[Any, Any], Any]:
        mood = self.of[name]

        def body(state: Any, ctx: Any) -> Any:
            if mood in ("fails", "retried") and ctx.task_id not in self.tried:
                self.tried.add(ctx.task_id)
                raise Flaky(name)
            answer = f"={interrupt(name)}" if mood == "asks" else ""
            item = state.get("item", "") if name == "w" else ""
            return {"log": [f"{name}{item}{state['n']}{answer}"]}

        return body

    def graph(self) -> Any:
        graph = Graph(Log, name="g")
        for name, mood in self.of.items():
            retry = (
                RetryPolicy(max_attempts=9, retry_on="any", initial_delay=1.0)
                if mood == "retried"
                else None
            )
            graph.add_node(name, self.node(name), retry=retry)
        graph.add_edge(START, "a").add_edge("a", "b").add_edge("a", "c").add_edge(["b", "c"], "d")
        graph.add_conditional_edges("d", lambda _state: [Send("w", {"item": i}) for i in range(2)])
        return graph.add_edge("w", "e").add_edge("e", END).compile()

    def log(self, n: int) -> list[str]:
        """What one run on input `n` writes."""
        names = [("a", ""), ("b", ""), ("c", ""), ("d", ""), ("w", "0"), ("w", "1"), ("e", "")]
        asks = {name: "=yes" if mood == "asks" else "" for name, mood in self.of.items()}
        return [f"in{n}", *(f"{name}{item}{n}{asks[name]}" for name, item in names)]


def log_of(moods: Moods, runs: int) -> list[str]:
    """The log of a thread on which `runs` runs ended."""
    return [entry for n in range(runs) for entry in moods.log(n)]


class World:
    """One simulated history.

    Args:
        seed: Everything is drawn from it.
        kills: How many actors are killed at most, and faults raised.
        deaths: How many times the process dies.
    """

    def __init__(self, seed: int, *, kills: int = 8, deaths: int = 0) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.kills = kills
        self.deaths = deaths
        self.moods = Moods(self.rng)
        self.app = self.moods.graph()
        self.store = MemoryCheckpointer()
        self.oracle = Oracle()
        self.runs = self.rng.randint(1, 2)
        self.threads = [f"t{i}" for i in range(self.rng.randint(1, 4))]
        self.clients = {t: Client(self, t, self.rng) for t in self.threads}
        self.noise: list[Any] = []
        self.limits = Limits(
            crashes_without_commit=1_000_000,
            owner_deaths=1_000_000,
            threads_idle=self.rng.choice([0, 1, 2, 100]),
            threads_running=self.rng.choice([1, 2, 100]),
            recovery_batch=self.rng.choice([1, 2, 256]),
        )
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        """A process begins."""
        self.scheduler = DeterministicScheduler(self.seed * 31 + self.lives)
        self.lives += 1
        self.system = ActorSystem(self.scheduler, on_event=lambda _event: None)
        self.runtime = Runtime(
            self.store,
            graphs=[self.app],
            limits=self.limits,
            max_restarts=1_000_000,
            system=self.system,
            seed=self.seed,
            fault=self.fault,
        )
        self.runtime.start()
        self.core = self.runtime._core
        self.hub = self.core.hub
        self.runtime.subscribe(self.oracle)

    def die(self) -> None:
        """The process dies: nothing of it goes on; the next one begins."""
        del places._places[self.store.identity]
        self.core._closed = True
        self.store.release()
        self.noise.clear()
        self.begin()
        for client in self.clients.values():
            client.died()

    # Disturbances -------------------------------------------------------------------------------

    def fault(self, point: str, _thread: str) -> None:
        if self.kills > 0 and point in POINTS and self.rng.random() < 0.02:
            self.kills -= 1
            raise Boom(point)

    def disturb(self) -> None:
        draw = self.rng.random()
        if draw < 0.01 and self.kills > 0:
            victims = self.cells()
            if victims:
                self.kills -= 1
                self.kill(self.rng.choice(victims))
        elif draw < 0.02:
            self.make_noise(self.rng.choice(self.threads))
        elif draw < 0.023 and self.deaths:
            self.deaths -= 1
            self.die()

    def kill(self, victim: Any) -> None:
        if isinstance(victim, TaskActor):
            victim.kill()
        else:
            self.system.exit(victim, KILLED)

    def cells(self) -> list[Any]:
        """Every actor and node that may be killed, those that are starting too."""
        parts = cells_of(self.core._root.cell)
        threads = [cell for part in parts for cell in cells_of(part)]
        nodes = [task for bodies in self.hub.bodies.values() for task in bodies.running.values()]
        return [*parts, *threads, *nodes]

    def make_noise(self, thread_id: str) -> None:
        """A call of somebody else that changes nothing of how the thread must end."""
        message = self.rng.choice([Cancel(), Continue(), Resume("yes")])
        try:
            self.noise.append(self.submit(thread_id, message, waits=self.rng.random() < 0.5))
        except CallRefused:
            return

    def submit(self, thread_id: str, message: Any, *, waits: bool) -> Any:
        return self.core.submit(self.app, thread_id, message, waits=waits)

    # Running ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until all clients have what they want, then until nothing is left to do."""
        while not self.turn_clients():
            assert self.scheduler.steps < MOST_TURNS, f"seed {self.seed}: no end"
            self.disturb()
            if not self.scheduler.step() and not self.scheduler.jump():
                raise AssertionError(f"seed {self.seed}: stuck; {self.describe()}")
        self.kills = 0
        self.settle(lambda: len(self.hub.waiters) == 0, "calls without an answer")
        self.scheduler.settle()

    def settle(self, over: Callable[[], bool], what: str) -> None:
        turns = 0
        while not over():
            turns += 1
            busy = turns < MOST_TURNS and (self.scheduler.step() or self.scheduler.jump())
            assert busy, f"seed {self.seed}: {what}; {self.describe()}"

    def turn_clients(self) -> bool:
        turned = [client.turn() for client in self.clients.values()]
        return all(turned)

    def describe(self) -> str:
        return "; ".join(
            f"{t}: {self.clients[t]}, {getattr(self.runtime.get_state(t), 'status', None)}"
            for t in self.threads
        )

    def judge(self) -> None:
        """The invariants of every history."""
        seed = f"seed {self.seed}"
        wanted = log_of(self.moods, self.runs)
        for thread_id in self.threads:
            state = self.runtime.get_state(thread_id)
            assert state is not None, seed
            assert state.status == "complete", f"{seed}: {thread_id} is {state.status}"
            assert state.values["log"] == wanted, f"{seed}: {thread_id}"
        assert self.oracle.reruns == [], seed
        assert self.runtime.failure is None, seed
        assert all(getattr(w, "done", w).done() or not w.call.waits for w in self.noise), seed
        assert [t for t, b in self.hub.bodies.items() if b] == [], f"{seed}: bodies are left"

    def close(self) -> None:
        self.kills = self.deaths = 0
        self.runtime.close()

    def run_for_a_while(self, turns: int) -> None:
        """Run that many turns of a disturbed history."""
        for _turn in range(turns):
            if self.turn_clients():
                return
            self.disturb()
            if not self.scheduler.step() and not self.scheduler.jump():
                return

    def drain(self) -> None:
        """Drain and close in the middle of everything; then the next process makes it end."""
        waiting = [c.waiting for c in self.clients.values() if not c.done and c.waiting is not None]
        assert self.runtime.drain(60.0), f"seed {self.seed}: the drain was not in time"
        for one in waiting:
            assert (one.done if one.call.waits else one.receipt).done(), f"seed {self.seed}"
        self.runtime.close()
        for thread_id in self.threads:
            image = self.store.load(thread_id)
            status = None if image is None else image.row.status
            assert status not in ("accepted", "running"), f"seed {self.seed}: {thread_id} {status}"
        assert leaks(self.system) == [], f"seed {self.seed}"
        self.noise.clear()
        self.begin()
        for client in self.clients.values():
            client.died()


def cells_of(supervisor: Any) -> list[Any]:
    """The children of a supervisor that have not ended; none of what is no supervisor."""
    actor = supervisor.actor  # it may end meanwhile
    if not isinstance(actor, Family):
        return []
    runs = [child.run for child in actor.snapshot()]
    cells = [run.cell for run in runs if run is not None and run.ended is None]
    return [cell for cell in cells if cell is not None]


class Client:
    """Wants a number of runs on one thread; makes each of them end, whatever happens."""

    def __init__(self, world: World, thread_id: str, rng: random.Random) -> None:
        self.world = world
        self.thread_id = thread_id
        self.rng = rng
        self.waiting: Any = None
        self.done = False
        self.at = ""
        self.calls = self._calls()
        self._go(None)

    def __str__(self) -> str:
        return "done" if self.done else f"waits for {self.at}"

    def turn(self) -> bool:
        """Go on if the answer is there; whether it has all that it wants."""
        if not self.done and (self.waiting is None or self._future().done()):
            self._go(None)
        return self.done

    def died(self) -> None:
        if not self.done:
            self._go(Died())

    def _future(self) -> Any:
        waiting = self.waiting
        return waiting.done if waiting.call.waits else waiting.receipt

    def _go(self, error: Exception | None) -> None:
        try:
            self.waiting = next(self.calls) if error is None else self.calls.throw(error)
        except StopIteration:
            self.done = True

    def _calls(self) -> Iterator[Any]:
        yield None  # the world is not there yet
        for n in range(self.world.runs):
            yield from self._run(n)

    def _run(self, n: int) -> Iterator[Any]:
        run_id = f"{self.thread_id}-{n}"
        start = Invoke({"n": n, "log": [f"in{n}"]}, run_id=run_id)
        message: Any = start
        while True:
            told = message is not start or self.rng.random() < 0.3
            try:
                outcome = yield from self._call(message, waits=not told or message is not start)
            except Died:
                message = start
                continue
            if type(outcome) is Completed and outcome.run_id == run_id:
                return
            message = self._next(outcome, start)

    def _next(self, outcome: Any, start: Any) -> Any:
        if type(outcome) is Interrupted:
            return Resume(answers={i.id: "yes" for i in outcome.interrupts})
        return self.rng.choice([start, Continue(), Invoke(None), start])

    def _call(self, message: Any, *, waits: bool) -> Iterator[Any]:
        """The outcome of a call; None for a told one; an error is an outcome too."""
        self.at = f"{message!r}, {waits=}"
        try:
            waiting = self.world.submit(self.thread_id, message, waits=waits)
        except CallRefused as error:
            yield None
            return error
        yield waiting
        if not waits:
            try:
                waiting.receipt.get()
            except BeamWeaverError as error:
                return error
            return None
        answer = waiting.done.get()
        return answer.outcome if answer.error is None else answer.error
