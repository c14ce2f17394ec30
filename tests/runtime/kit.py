"""What the runtime's tests share: stores, recorders, gates, and graphs."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from beamweaver import END, START, Graph, Runtime, Send
from beamweaver.checkpoint import Checkpointer, LMDBCheckpointer, MemoryCheckpointer
from beamweaver.errors import StoreError
from beamweaver.events import TaskAcknowledged, TaskStarted
from supervisors import ActorSystem
from supervisors.testing import DeterministicScheduler

PATIENCE = 10.0
"""Seconds that a test waits for what must come at once."""


class Place:
    """A place where threads are kept, opened as often as a test likes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "state.lmdb"
        self._memory = MemoryCheckpointer()
        self._opened: list[Checkpointer] = []

    def open(self) -> Checkpointer:
        if self.kind == "memory":
            return self._memory
        store = LMDBCheckpointer(self.path, survives="process-kill")
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in (self._memory, *self._opened):
            store.close()


class Events:
    """Keeps every event of a runtime; a test waits for the one that it needs."""

    def __init__(self, runtime: Any = None) -> None:
        self.seen: list[Any] = []
        self._changed = threading.Condition()
        if runtime is not None:
            runtime.subscribe(self)

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def of(self, kind: type, **fields: Any) -> list[Any]:
        with self._changed:
            return [event for event in self.seen if _matches(event, kind, fields)]

    def wait(self, kind: type, *, count: int = 1, **fields: Any) -> Any:
        """The `count`-th event of that kind, once it is there."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: [e for e in self.seen if _matches(e, kind, fields)][count - 1 :], PATIENCE
            )
            assert found, f"no {kind.__name__} {fields} number {count} in {self.seen}"
            return found[0]


def _matches(event: Any, kind: type, fields: dict[str, Any]) -> bool:
    return type(event) is kind and all(getattr(event, k) == v for k, v in fields.items())


class Oracle(Events):
    """Sees whether a task starts again after its result was acknowledged."""

    def __init__(self, runtime: Any = None) -> None:
        self.acknowledged: set[tuple[str, str]] = set()
        self.reruns: list[Any] = []
        super().__init__(runtime)

    def __call__(self, event: Any) -> None:
        if type(event) is TaskAcknowledged:
            self.acknowledged.add((event.thread_id, event.task_id))
        elif type(event) is TaskStarted and (event.thread_id, event.task_id) in self.acknowledged:
            self.reruns.append(event)
        super().__call__(event)


class Gate:
    """A node that waits at a gate: it tells that it came, and goes on when it is opened.

    One that is `hard` waits where a kill cannot reach it, as in foreign code.
    """

    def __init__(self, update: Any = None, *, hard: bool = False) -> None:
        self.hard = hard
        self.came = threading.Event()
        self.opened = threading.Event()
        self.update = update
        self.runs = 0

    def __call__(self, state: Any) -> Any:
        self.runs += 1
        self.came.set()
        self.pass_through()
        return self.update

    def pass_through(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.opened.is_set():
            if self.hard:
                self.opened.wait(PATIENCE)
            else:
                threading.Event().wait(0.005)  # a kill in a wait may leave that event's lock locked
            assert time.monotonic() < deadline, "the gate was never opened"

    def wait(self) -> None:
        assert self.came.wait(PATIENCE), "nobody came to the gate"

    def open(self) -> None:
        self.opened.set()


class Caller:
    """A call on a worker of its own."""

    def __init__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(fn, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        try:
            self.value = fn(*args, **kwargs)
        except BaseException as error:
            self.error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> Any:
        """What it returned; what it raised is raised."""
        self._thread.join(PATIENCE)
        assert self.done, "the call did not end"
        if self.error is not None:
            raise self.error
        return self.value


class Counted:
    """A node that counts its runs."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn
        self.runs = 0

    def __call__(self, state: Any) -> Any:
        self.runs += 1
        return self.fn(state)


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]
    n: int
    item: int
    note: str
    ready: bool


def wrote(name: str) -> Callable[[Any], Any]:
    """A node that writes its name to the log."""
    return lambda _state: {"log": [name]}


def line(name: str, **nodes: Any) -> Graph:
    """A graph whose nodes follow one another; each is a function, or a pair with its options."""
    graph = Graph(Log, name=name)
    before = START
    for node, given in nodes.items():
        fn, options = given if isinstance(given, tuple) else (given, {})
        graph.add_node(node, fn, **options).add_edge(before, node)
        before = node
    return graph.add_edge(before, END)


def star(name: str, **nodes: Any) -> Graph:
    """A graph whose nodes all run in its first step."""
    graph = Graph(Log, name=name)
    for node, given in nodes.items():
        fn, options = given if isinstance(given, tuple) else (given, {})
        graph.add_node(node, fn, **options).add_edge(START, node)
    return graph


def six(wrap: Callable[[str, Any], Any] = lambda _name, fn: fn, **options: Any) -> Graph:
    """Six nodes with a fan-out, a join and Sends; `SIX` is its log."""
    graph = Graph(Log, name="six")
    for name in "abcde":
        graph.add_node(name, wrap(name, wrote(name)), **(options if name == "b" else {}))
    graph.add_node("w", wrap("w", lambda state: {"log": [f"w{state['item']}"]}))
    graph.add_edge(START, "a").add_edge("a", "b").add_edge("a", "c").add_edge(["b", "c"], "d")
    graph.add_conditional_edges("d", lambda _state: [Send("w", {"item": i}) for i in range(3)])
    return graph.add_edge("w", "e").add_edge("e", END)


SIX = ["a", "b", "c", "d", "w0", "w1", "w2", "e"]


def nested() -> Graph:
    """Three levels: nodes at once, a graph among them, and Sends to a graph; `NESTED` is its log."""
    worker = line("worker", v=lambda state: {"log": [f"v{state['item']}"]}, w=wrote("w"))
    middle = star("middle", b=wrote("b"), c=wrote("c"))
    middle.add_node("worker", worker.compile()).add_node("d", wrote("d"))
    middle.add_edge(["b", "c"], "d").add_edge("worker", END)
    middle.add_conditional_edges(
        "d", lambda _state: [Send("worker", {"item": i}) for i in range(3)]
    )
    return line("nested", a=wrote("a"), middle=middle.compile(allow_unreachable=True), e=wrote("e"))


NESTED = ["a", "b", "c", "d", "v0", "w", "v1", "w", "v2", "w", "e"]


def simulated(store: Checkpointer, seed: int, **options: Any) -> Runtime:
    """A runtime in a simulation: its order is drawn from the seed, its clock is virtual."""
    return Runtime(store, system=ActorSystem(DeterministicScheduler(seed)), seed=seed, **options)


def failing_at(point: str, times: int = 1, thread_id: str | None = None) -> Callable[..., None]:
    """A fault that raises at the first times that a point is reached, perhaps by one thread only."""
    left = [times]

    def fault(reached: str, thread: str = "") -> None:
        if reached == point and left[0] and thread_id in (None, thread):
            left[0] -= 1
            raise Boom(f"{point} {thread}")

    return fault


class Boom(Exception):
    """What faults and nodes of these tests raise."""


def refusing(store: Checkpointer, seq: int, error: StoreError, times: int = 1) -> None:
    """A store that refuses record `seq` of thread `t`, and with it those that follow it."""
    commit, left = store.commit, [times]

    def other(epoch: int, commits: Any) -> Any:
        for at, one in enumerate(commits):
            if one.thread_id == "t" and one.record.seq == seq and left[0]:
                left[0] -= 1
                rest = commit(epoch, commits[at + 1 :]) if commits[at + 1 :] else []
                return [*(commit(epoch, commits[:at]) if at else []), error, *rest]
        return commit(epoch, commits)

    store.commit = other  # type: ignore[method-assign]
