"""Our side of the actors: `supervisors`, with its dynamic supervisor."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.comparison import Facts, Json, Side, Workload
from benchmarks.memory import resident
from supervisors import (
    Actor,
    ActorRef,
    ActorSystem,
    ChildReply,
    ChildSpec,
    DynamicSupervisor,
    Registry,
    Reply,
    StartChild,
    TerminateChild,
    Via,
    start_child,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "ask",
    "ask_inside",
    "restarts",
    "shut_down",
    "side",
    "start_all",
    "start_stop",
    "tell",
    "tell_all",
    "tell_inside",
]


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


class _Caller(Actor):
    """Sends to a counter from inside, as actors do."""

    def __init__(self, counter: ActorRef[Any]) -> None:
        self._counter = counter

    def on_receive(self, message: tuple[str, int]) -> Json:
        how, count = message
        counter = self._counter
        last: Json = 0
        if how == "tell":
            for _ in range(count):
                counter.tell(1)
            return counter.ask(0)
        for _ in range(count):
            last = counter.ask(1)
        return last


class _Idle(Actor):
    """One of many. Tells when it was the last to be told."""

    isolated = False

    def __init__(self, heard: Callable[[], object]) -> None:
        self._heard = heard

    def on_receive(self, _message: object) -> None:
        self._heard()


class _Starter(Actor):
    """Has a supervisor start many children, registered, some hundreds at a time; counts them."""

    def __init__(
        self, supervisor: ActorRef[Any], names: Registry, heard: Callable[[], object]
    ) -> None:
        self._supervisor = supervisor
        self._names = names
        self._heard = heard
        self._reply: Reply
        self._wanted = self._asked = self._started = 0

    def on_receive(self, message: object) -> None:
        if isinstance(message, int):
            self._reply = self.defer()
            self._wanted = message
        elif isinstance(message, ChildReply):
            assert message.error is None
            self._started += 1
            if self._started == self._wanted:
                self._reply.set(self._started)
                return
        while self._asked < min(self._wanted, self._started + 500):
            name = Via(self._names, self._asked)
            spec = ChildSpec(None, _Idle, (self._heard,), restart="temporary", name=name)
            self._supervisor.tell(StartChild(spec, (self.cell, None)))
            self._asked += 1


class _Crowd:
    """Many children of a supervisor, in a system of their own."""

    def __init__(self, children: int) -> None:
        self._children = children
        self._told = itertools.count(1)
        self._all = threading.Event()
        self.system = ActorSystem()
        self.supervisor = self.system.start(DynamicSupervisor)

    def _heard(self) -> None:
        if next(self._told) == self._children:
            self._all.set()

    def start(self) -> Json:
        names = Registry("names")
        names.start(self.system)
        starter = self.system.start(_Starter, self.supervisor, names, self._heard)
        started: Json = starter.ask(self._children, timeout=300)
        return started

    def cells(self) -> list[Any]:
        actor: Any = self.supervisor.cell.actor
        return [child.run.cell for child in actor.snapshot()]

    def tell(self, cells: list[Any]) -> Json:
        self._told = itertools.count(1)
        self._all.clear()
        for cell in cells:
            cell.put(1)
        self._all.wait(300)
        return next(self._told) - 1

    def end(self) -> None:
        self.system.shutdown(300)


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


@contextmanager
def ask_inside(_facts: Facts, _folder: str, *, messages: int) -> Iterator[Workload]:
    """Asks from one actor to another, each answered before the next."""
    yield from _inside("ask", messages)


@contextmanager
def tell_inside(_facts: Facts, _folder: str, *, messages: int) -> Iterator[Workload]:
    """Tells from one actor to another, and one ask that waits until all are handled."""
    yield from _inside("tell", messages)


def _inside(how: str, messages: int) -> Iterator[Workload]:
    with _system() as system:
        supervisor = system.start(DynamicSupervisor)

        def work() -> Json:
            counter = _counter(supervisor)
            caller = system.start(_Caller, counter)
            last: Json = caller.ask((how, messages), timeout=120)
            caller.stop()
            counter.stop()
            return last

        yield Workload(work, messages)


@contextmanager
def _crowds() -> Iterator[list[_Crowd]]:
    """A place for one crowd at a time."""
    logging.disable(logging.CRITICAL)
    kept: list[_Crowd] = []
    try:
        yield kept
    finally:
        _end(kept)
        logging.disable(logging.NOTSET)


def _end(kept: list[_Crowd]) -> None:
    while kept:
        kept.pop().end()


def _fresh(kept: list[_Crowd], children: int) -> None:
    _end(kept)
    kept.append(_Crowd(children))


@contextmanager
def start_all(facts: Facts, _folder: str, *, children: int) -> Iterator[Workload]:
    """Many children, registered, started under one supervisor; they stay."""
    empty = resident()

    def before() -> None:
        if (
            kept and note not in facts
        ):  # of the first crowd: later ones fill the gaps of those before
            gc.collect()
            facts[note] = round((resident() - empty) / children)
        _fresh(kept, children)

    note = "bytes an actor"
    with _crowds() as kept:

        def work() -> Json:
            return kept[0].start()

        yield Workload(work, children, before)


@contextmanager
def tell_all(_facts: Facts, _folder: str, *, children: int) -> Iterator[Workload]:
    """One message to each of many."""
    with _crowds() as kept:
        _fresh(kept, children)
        kept[0].start()
        cells = kept[0].cells()
        yield Workload(lambda: kept[0].tell(cells), children)


@contextmanager
def shut_down(_facts: Facts, _folder: str, *, children: int) -> Iterator[Workload]:
    """The end of a supervisor with many children."""
    with _crowds() as kept:
        cells: list[Any] = []

        def before() -> None:
            _fresh(kept, children)
            kept[0].start()
            cells[:] = kept[0].cells()

        def work() -> Json:
            kept[0].supervisor.stop(timeout=120)
            return sum(not cell.alive for cell in cells)

        yield Workload(work, children, before)
