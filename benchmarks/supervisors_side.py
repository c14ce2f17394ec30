"""Our side of the actors: `supervisors`, with its dynamic supervisor."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.comparison import Facts, Json, Side, Workload
from supervisors import (
    Actor,
    ActorRef,
    ActorSystem,
    ChildReply,
    ChildSpec,
    DynamicSupervisor,
    Reply,
    StartChild,
    TerminateChild,
    start_child,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ask", "restarts", "side", "start_stop", "tell"]


def side(work: str) -> Side:
    """A side of ours; `work` is the name of a function here."""
    label = "supervisors, under a DynamicSupervisor"
    return Side(label, f"{__name__}:{work}", {}, ("pykka", "msgspec"))


class _Child(Actor):
    def on_receive(self, message: object) -> object:
        return message


class _Driver(Actor):
    """Has a supervisor start children and end them, without waiting for each; counts the ended."""

    def __init__(self, supervisor: ActorRef[Any]) -> None:
        self._supervisor = supervisor
        self._reply: Reply
        self._batch = 0
        self._started: list[object] = []
        self._ended = 0

    def on_receive(self, message: object) -> None:
        if isinstance(message, ChildReply):
            self._hear(message)
        elif isinstance(message, int):
            self._reply = self.defer()
            self._batch = message
            spec = ChildSpec(None, _Child, restart="temporary")
            request = StartChild(spec, (self.cell, "started"))
            for _ in range(message):
                self._supervisor.tell(request)

    def _hear(self, answer: ChildReply) -> None:
        assert answer.error is None
        if answer.token == "ended":
            self._ended += 1
            if self._ended == self._batch:
                self._reply.set(self._ended)
                self._ended = 0
            return
        self._started.append(answer.value)
        if len(self._started) == self._batch:
            children, self._started = self._started, []
            for child in children:
                self._supervisor.tell(TerminateChild(child, (self.cell, "ended")))


class _Counter(Actor):
    def __init__(self) -> None:
        self._count = 0

    def on_receive(self, message: int) -> int:
        self._count += message
        return self._count


class _Crashing(Actor):
    def __init__(self, crash: Callable[[], bool]) -> None:
        self._crash = crash

    def on_start(self) -> None:
        if self._crash():
            self.ref.tell("crash")

    def on_receive(self, _message: object) -> None:
        raise RuntimeError("crash")


@contextmanager
def _system() -> Iterator[ActorSystem]:
    """Nobody reads the logs here, on either side."""
    logging.disable(logging.CRITICAL)
    try:
        with ActorSystem() as system:
            yield system
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def start_stop(_facts: Facts, _folder: str, *, children: int, batch: int) -> Iterator[Workload]:
    """Children started and stopped under a supervisor, a batch at a time."""
    with _system() as system:
        driver = system.start(_Driver, system.start(DynamicSupervisor))

        def work() -> Json:
            stopped: int = sum(driver.ask(batch, timeout=60) for _ in range(children // batch))
            return stopped

        yield Workload(work, children)


@contextmanager
def ask(_facts: Facts, _folder: str, *, messages: int) -> Iterator[Workload]:
    """Asks from outside, each answered before the next."""
    with _system() as system:
        supervisor = system.start(DynamicSupervisor)

        def work() -> Json:
            counter = _counter(supervisor)
            last: Json = 0
            for _ in range(messages):
                last = counter.ask(1)
            counter.stop()
            return last

        yield Workload(work, messages)


@contextmanager
def tell(_facts: Facts, _folder: str, *, messages: int) -> Iterator[Workload]:
    """Tells from outside, and one ask that waits until all are handled."""
    with _system() as system:
        supervisor = system.start(DynamicSupervisor)

        def work() -> Json:
            counter = _counter(supervisor)
            for _ in range(messages):
                counter.tell(1)
            last: Json = counter.ask(0)
            counter.stop()
            return last

        yield Workload(work, messages)


def _counter(supervisor: ActorRef[Any]) -> ActorRef[Any]:
    counter = start_child(supervisor, ChildSpec(None, _Counter, restart="temporary"))
    assert counter is not None
    return counter


@contextmanager
def restarts(_facts: Facts, _folder: str, *, crashes: int) -> Iterator[Workload]:
    """A child that crashes on a message to itself, and is restarted by its supervisor."""
    with _system() as system:

        def work() -> Json:
            ended = threading.Event()
            starts = 0

            def crash() -> bool:
                nonlocal starts
                starts += 1
                if starts > crashes:
                    ended.set()
                return starts <= crashes

            supervisor = system.start(DynamicSupervisor, intensity=crashes + 1, period=60.0)
            start_child(supervisor, ChildSpec("crashing", _Crashing, (crash,)))
            ended.wait(60)
            supervisor.stop()
            return starts - 1

        yield Workload(work, crashes)
