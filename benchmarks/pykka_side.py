"""Pykka's side: `ThreadingActor`s, and an actor in a supervisor's place, which Pykka lacks."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pykka

from benchmarks.comparison import Facts, Json, Side, Workload
from benchmarks.memory import resident

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ask", "restarts", "side", "start_all", "start_stop", "tell"]


def side(work: str) -> Side:
    """A Pykka side; `work` is the name of a function here."""
    return Side("pykka.ThreadingActor", f"{__name__}:{work}", {}, ("pykka",))


class _Child(pykka.ThreadingActor):
    def on_receive(self, message: object) -> object:
        return message


class _Parent(pykka.ThreadingActor):
    """Starts children, stops them without waiting for each, and counts how many had been alive."""

    def on_receive(self, batch: int) -> int:
        children = [_Child.start() for _ in range(batch)]
        stopping = [child.stop(block=False) for child in children]
        return sum(bool(one.get()) for one in stopping)


class _Counter(pykka.ThreadingActor):
    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def on_receive(self, message: int) -> int:
        self._count += message
        return self._count


class _Restarter(pykka.ThreadingActor):
    """Starts a child, and another whenever it is told that one has crashed."""

    def __init__(self, crash: Callable[[], bool]) -> None:
        super().__init__()
        self._crash = crash

    def on_receive(self, _message: object) -> None:
        _Crashing.start(self.actor_ref, self._crash)


class _Crashing(pykka.ThreadingActor):
    def __init__(self, parent: pykka.ActorRef[_Restarter], crash: Callable[[], bool]) -> None:
        super().__init__()
        self._parent = parent
        self._crash = crash

    def on_start(self) -> None:
        if self._crash():
            self.actor_ref.tell("crash")
        else:
            self.stop()

    def on_receive(self, _message: object) -> None:
        raise RuntimeError("crash")

    def on_failure(self, *_: object) -> None:
        self._parent.tell("restart")


@contextmanager
def _quiet() -> Iterator[None]:
    """Nobody reads the logs here, on either side."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        pykka.ActorRegistry.stop_all()
        logging.disable(logging.NOTSET)


@contextmanager
def start_stop(_facts: Facts, _folder: str, *, children: int, batch: int) -> Iterator[Workload]:
    """Children started and stopped by a parent, a batch at a time."""
    with _quiet():
        parent = _Parent.start()

        def work() -> Json:
            stopped: int = sum(parent.ask(batch, block=True) for _ in range(children // batch))
            return stopped

        yield Workload(work, children)


@contextmanager
def ask(_facts: Facts, _folder: str, *, messages: int) -> Iterator[Workload]:
    """Asks from outside, each answered before the next."""
    with _quiet():

        def work() -> Json:
            counter = _Counter.start()
            last: Json = 0
            for _ in range(messages):
                last = counter.ask(1, block=True)
            counter.stop()
            return last

        yield Workload(work, messages)


@contextmanager
def tell(_facts: Facts, _folder: str, *, messages: int) -> Iterator[Workload]:
    """Tells from outside, and one ask that waits until all are handled."""
    with _quiet():

        def work() -> Json:
            counter = _Counter.start()
            for _ in range(messages):
                counter.tell(1)
            last: Json = counter.ask(0, block=True)
            counter.stop()
            return last

        yield Workload(work, messages)


@contextmanager
def restarts(_facts: Facts, _folder: str, *, crashes: int) -> Iterator[Workload]:
    """A child that crashes on a message to itself, and is replaced each time."""
    with _quiet():

        def work() -> Json:
            ended = threading.Event()
            starts = 0

            def crash() -> bool:
                nonlocal starts
                starts += 1
                if starts > crashes:
                    ended.set()
                return starts <= crashes

            parent = _Restarter.start(crash)
            parent.tell("start")
            ended.wait(60)
            parent.stop()
            return starts - 1

        yield Workload(work, crashes)


@contextmanager
def start_all(facts: Facts, _folder: str, *, children: int) -> Iterator[Workload]:
    """Many actors that stay; each has an OS thread."""
    empty = resident()
    with _quiet():

        def work() -> Json:
            return len([_Child.start() for _ in range(children)])

        def before() -> None:
            if pykka.ActorRegistry.get_all():
                facts.setdefault("bytes an actor", round((resident() - empty) / children))
            pykka.ActorRegistry.stop_all()

        yield Workload(work, children, before)
