"""P6, P7: what is stored of a value that grows, and of a large one that nobody writes."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from benchmarks import langgraph_side, our_side
from benchmarks.command import main
from benchmarks.comparison import Comparison, Facts, Json, Options, Side, Size, Workload
from benchmarks.shapes import (
    KIB,
    Log,
    appender,
    grown_expected,
    grown_result,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COMPARISONS", "counted", "grow", "late"]

_MOST = 3
"""How many times its bytes a value that was appended may take in the store (P6)."""
_ROOM = 1_000_000
"""Bytes that may be stored beside a large value (P7), and above which a ratio of sizes means something."""
_PATIENCE = 170.0
_MODULE = "benchmarks.growth"
"""Where a side's process finds it, whatever this one is called."""


class _Pace:
    """Lets a node take so many steps at a time, so that they are timed without a call's beginning and end."""

    def __init__(self, first: int, then: int) -> None:
        self._at, self._then = first, then
        self._go = threading.Semaphore(0)
        self._there = threading.Semaphore(0)
        self._over = False

    def step(self, n: int) -> bool:
        """Called by the node before step `n`; whether it is to end."""
        if n == self._at:
            self._at += self._then
            self._there.release()
            self._go.acquire()
        return self._over

    def await_there(self) -> None:
        """Wait until the steps are done that were allowed."""
        if not self._there.acquire(timeout=_PATIENCE):
            raise TimeoutError("the run does not go on")

    def advance(self) -> Json:
        """Let the node go on, and wait until it has done its steps."""
        self._go.release()
        self.await_there()
        return "as expected"

    def end(self) -> None:
        """Let the run end."""
        self._over = True
        self._go.release()


def _app(schema: type, body: Any, folder: str, store: str, **state: Any) -> Any:
    """A graph of one node that goes on until its body says otherwise."""
    from beamweaver import END, START, Graph  # noqa: PLC0415  # a peer's process has it not

    graph = Graph(schema, name="grow")
    graph.add_node("grow", body, destinations=("grow", END)).add_edge(START, "grow")
    return graph.compile(checkpointer=our_side.checkpointer(store, folder), **state)


def _stored(folder: str) -> int:
    return (Path(folder) / "state.lmdb" / "data.mdb").stat().st_size


@contextmanager
def grow(facts: Facts, folder: str, *, store: str, steps: int) -> Iterator[Workload]:
    """A node that appends 1 KiB a step; each run is a new thread."""
    from beamweaver import END, Command  # noqa: PLC0415  # a peer's process has it not

    runs = 0
    with _app(Log, appender(Command, END), folder, store, recursion_limit=steps + 10) as app:

        def work() -> Json:
            nonlocal runs
            runs += 1
            found = app.invoke({"log": [], "n": 0, "stop": steps}, thread_id=f"thread-{runs}")
            return grown_result(found.state["log"])

        yield Workload(work, steps)
    facts["stored / payload"] = _stored(folder) / (max(runs, 1) * steps * KIB)


@contextmanager
def late(
    facts: Facts, folder: str, *, store: str, which: str, early: int, late: int, steps: int
) -> Iterator[Workload]:
    """One run that has taken many steps of 1 KiB, or few; a repetition is some more of them."""
    from beamweaver import END, Command  # noqa: PLC0415  # a peer's process has it not

    pace = _Pace({"early": early, "late": late}[which], steps)
    append = appender(Command, END)

    def body(state: Log) -> Any:
        if pace.step(state["n"]):
            return Command(goto=END)
        return append(state)

    outcomes: list[Any] = []
    endless = {"log": [], "n": 0, "stop": 1 << 60}
    with _app(Log, body, folder, store, recursion_limit=1 << 40) as app:
        caller = threading.Thread(
            target=lambda: outcomes.append(app.invoke(endless, thread_id="t")), daemon=True
        )
        caller.start()
        pace.await_there()
        yield Workload(pace.advance, steps)
        pace.end()
        caller.join(_PATIENCE)
    _check(facts, outcomes[0].state, _stored(folder))


def _check(facts: Facts, state: Log, stored: int) -> None:
    """Judge the log and what is stored of it.

    Raises:
        ValueError: It is not what was appended, or too much is stored.
    """
    found, expected = grown_result(state["log"]), grown_expected({"steps": state["n"]})
    if found != expected:
        raise ValueError(f"the log is {found}, and it was to be {expected}")
    payload = state["n"] * KIB
    facts["steps"], facts["stored / payload"] = state["n"], stored / payload
    if stored > _MOST * payload + (_ROOM if payload < _ROOM else 0):
        raise ValueError(f"{stored} bytes are stored of {payload}; {_MOST} times that is the limit")


class _Counter(TypedDict, total=False):
    big: bytes
    n: int


@contextmanager
def counted(facts: Facts, folder: str, *, store: str, big: int, steps: int) -> Iterator[Workload]:
    """One run that counts its steps, beside a value of `big` bytes or none."""
    from beamweaver import END, Command  # noqa: PLC0415  # a peer's process has it not

    pace = _Pace(1, steps)

    def body(state: _Counter) -> Any:
        if pace.step(state["n"]):
            return Command(goto=END)
        return Command(update={"n": state["n"] + 1}, goto="grow")

    outcomes: list[Any] = []
    first = {"n": 0, **({"big": bytes(big)} if big else {})}
    with _app(_Counter, body, folder, store, recursion_limit=1 << 40) as app:
        caller = threading.Thread(
            target=lambda: outcomes.append(app.invoke(first, thread_id="t")), daemon=True
        )
        caller.start()
        pace.await_there()
        yield Workload(pace.advance, steps)
        pace.end()
        caller.join(_PATIENCE)
    if outcomes[0].state != {**first, "n": outcomes[0].state["n"]}:
        raise ValueError("the state is another than it was to be")
    facts["steps"], facts["stored MB"] = outcomes[0].state["n"], _stored(folder) / 1e6
    if _stored(folder) > big + _ROOM:
        raise ValueError(f"{_stored(folder)} bytes are stored beside a value of {big}")


def _ours(function: str, store: str, what: str, **options: Json) -> Side:
    side = our_side.side("line", store, **options)
    return replace(side, label=f"{side.label}, {what}", target=f"{_MODULE}:{function}")


_GROW: dict[Size, Options] = {
    "full": {"steps": 200},
    "quick": {"steps": 100},
    "tiny": {"steps": 5},
}
_LATE: dict[Size, Options] = {
    "full": {"early": 100, "late": 10_000, "steps": 50},
    "quick": {"early": 100, "late": 1_000, "steps": 20},
    "tiny": {"early": 2, "late": 6, "steps": 2},
}
_BESIDE: dict[Size, Options] = {
    "full": {"steps": 100},
    "quick": {"steps": 50},
    "tiny": {"steps": 3},
}


def _late(store: str) -> Comparison:
    return Comparison(
        id="P6",
        name=f"1 KiB appended a step, {store}, after 10,000 and after 100",
        unit="step",
        ours=_ours("late", store, "late", which="late"),
        peer=_ours("late", store, "early", which="early"),
        sizes=_LATE,
        expected=lambda _: "as expected",
        aim=round(1 / 1.5, 2) if store == "power-loss" else None,
        note=(
            "ours against ours: a late step within 1.5 of an early one that survives power loss, "
            f"stored at most {_MOST} times the payload; what grows is the copy of the list's references"
        ),
    )


def _beside(store: str, big: int) -> Comparison:
    return Comparison(
        id="P7",
        name=f"a counter beside {big // 1_000_000} MB that nobody writes, {store}",
        unit="step",
        ours=_ours("counted", store, "beside it", big=big),
        peer=_ours("counted", store, "alone", big=0),
        sizes=_BESIDE,
        expected=lambda _: "as expected",
        aim=0.5,
        note="ours against ours: a step within twice one without it, stored at most 1 MB beside it",
    )


COMPARISONS = (
    _late("power-loss"),
    _late("process-kill"),
    Comparison(
        id="P6",
        name="1 KiB appended a step, power-loss vs SQLite FULL",
        unit="step",
        ours=replace(our_side.side("grow", "power-loss"), target=f"{_MODULE}:grow"),
        peer=langgraph_side.side("grow", "sqlite"),
        sizes=_GROW,
        expected=grown_expected,
        note="equal classes: both survive power loss; what each stored stands beside it",
    ),
    _beside("power-loss", 10_000_000),
    _beside("process-kill", 10_000_000),
)

if __name__ == "__main__":
    sys.exit(main(COMPARISONS))
