"""What the tests of `supervisors` share: actor systems that are watched, and puppets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supervisors import Actor, ActorRef, ActorSystem, ExitReason
from supervisors.events import Event
from supervisors.testing import (
    DeterministicScheduler,
    Recorder,
    VirtualClock,
    eventually,
    leaks,
)


class World:
    """An actor system, and what it has reported."""

    def __init__(self, scheduler: Any) -> None:
        self.events: list[Event] = []
        self.letters: list[tuple[str, object, ExitReason]] = []
        self.scheduler = scheduler
        self.clock = VirtualClock()
        self.system = ActorSystem(
            scheduler,
            clock=self.clock,
            on_event=self.events.append,
            on_dead_letter=lambda *letter: self.letters.append(letter),
        )

    @property
    def simulated(self) -> bool:
        return isinstance(self.scheduler, DeterministicScheduler)

    def settle(self) -> None:
        """Run until nobody has anything to do."""
        if self.simulated:
            self.scheduler.settle()
        else:
            eventually(self._quiet)

    def _quiet(self) -> bool:
        now = self.scheduler.statistics()
        return now.active == 0 and now.runnable == 0

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if self.simulated:
            self.scheduler.run_for(seconds)
            return
        self.settle()
        end = self.clock.monotonic() + seconds
        while (due := self.scheduler.timers.next_deadline()) is not None and due <= end:
            self.clock.move_to(due)
            eventually(lambda: self.scheduler.timers.next_deadline() != due)
            self.settle()
        self.clock.move_to(end)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def recorder(self) -> tuple[ActorRef[Any], list[Any], list[Any]]:
        seen: list[Any] = []
        signals: list[Any] = []
        return self.system.start(Recorder, seen, signals), seen, signals


class Puppet(Actor):
    """Does what it is told: messages are functions of the actor. Notes its starts and stops."""

    def __init__(self, name: object = None, log: list[Any] | None = None, **flags: Any) -> None:
        self.id = name
        self.log = [] if log is None else log
        self.flags = flags
        self.trap_exit = flags.get("trap", False)
        self.signals: list[Any] = []

    def on_start(self) -> None:
        fail = self.flags.get("fail")
        if fail is not None:
            fail(self)
        self.log.append(("start", self.id))

    def on_receive(self, do: Any) -> Any:
        return do(self)

    def on_signal(self, signal: Any) -> None:
        self.signals.append(signal)

    def on_continue(self, term: Any) -> None:
        self.log.append(("continue", term))

    def on_stop(self, reason: ExitReason) -> None:
        self.log.append(("stop", self.id, reason))
        stopping = self.flags.get("stopping")
        if stopping is not None:
            stopping(self)


class Boom(Exception):
    """The crash of the tests."""


def crash(actor: Puppet) -> None:
    raise Boom(actor.id)


def starts(log: list[Any]) -> list[Any]:
    return [entry[1] for entry in log if entry[0] == "start"]


def stops(log: list[Any]) -> list[Any]:
    return [entry[1] for entry in log if entry[0] == "stop"]


def worlds(scheduler: Any) -> Iterator[World]:
    world = World(scheduler)
    yield world
    if world.simulated:
        world.system.shutdown()
    else:
        world.settle()
        world.clock.advance(1000)  # whatever still waits for its time
        assert world.system.shutdown()
    assert leaks(world.system) == []
    assert "hook_failed" not in world.kinds()
