"""LangGraph's side: the same shapes on its memory saver or its SQLite saver."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.comparison import Facts, Json, Side, Workload
from benchmarks.shapes import (
    KIB,
    Fan,
    Line,
    Log,
    appender,
    fan_result,
    fan_router,
    grown_result,
    increment,
    line_names,
    plan,
    square,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

__all__ = ["fan", "grow", "line", "side"]

_LABELS = {
    "none": "LangGraph without a saver",
    "memory": 'LangGraph InMemorySaver, durability="sync" (survives nothing)',
    "sqlite": (
        'LangGraph SqliteSaver, durability="sync", WAL, synchronous=FULL (survives power loss)'
    ),
    "sqlite-off": (
        'LangGraph SqliteSaver, durability="sync", WAL, synchronous=OFF (survives a process kill)'
    ),
}


def side(shape: str, store: str) -> Side:
    """A side: `shape` is "line", "fan" or "grow", `store` none, memory, sqlite or sqlite-off."""
    needs = ["langgraph", "langgraph-checkpoint"]
    if store.startswith("sqlite"):
        needs.append("langgraph-checkpoint-sqlite")
    return Side(_LABELS[store], f"{__name__}:{shape}", {"store": store}, tuple(needs))


@contextmanager
def line(facts: Facts, folder: str, *, store: str, nodes: int, invokes: int) -> Iterator[Workload]:
    """A line of nodes; each run is a new thread."""
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415  # in its own process only

    names = line_names(nodes)
    builder = StateGraph(Line)
    for name in names:
        builder.add_node(name, increment)
    for source, target in itertools.pairwise([START, *names, END]):
        builder.add_edge(source, target)
    with _saver(facts, folder, store) as saver:
        call = _caller(builder.compile(checkpointer=saver), store, nodes)

        def work() -> Json:
            return [call({"n": 0})["n"] for _ in range(invokes)]

        yield Workload(work, nodes * invokes)


@contextmanager
def fan(facts: Facts, folder: str, *, store: str, sends: int) -> Iterator[Workload]:
    """One node, then a task a Send in one step, then the end."""
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415  # in its own process only
    from langgraph.types import Send  # noqa: PLC0415  # in its own process only

    builder = StateGraph(Fan)
    builder.add_node("plan", plan)
    builder.add_node("square", square)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", fan_router(Send), ["square"])
    builder.add_edge("square", END)
    with _saver(facts, folder, store) as saver:
        call = _caller(builder.compile(checkpointer=saver), store, 2)

        def work() -> Json:
            return fan_result(call({"count": sends, "item": 0, "squares": []})["squares"])

        yield Workload(work, sends)


@contextmanager
def grow(facts: Facts, folder: str, *, store: str, steps: int) -> Iterator[Workload]:
    """A node that appends 1 KiB a step; each run is a new thread."""
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415  # in its own process only
    from langgraph.types import Command  # noqa: PLC0415  # in its own process only

    builder = StateGraph(Log)
    builder.add_node("grow", appender(Command, END), destinations=("grow", END))
    builder.add_edge(START, "grow")
    runs = 0
    with _saver(facts, folder, store) as saver:
        call = _caller(builder.compile(checkpointer=saver), store, steps)

        def work() -> Json:
            nonlocal runs
            runs += 1
            return grown_result(call({"log": [], "n": 0, "stop": steps})["log"])

        yield Workload(work, steps)
    stored = sum(file.stat().st_size for file in Path(folder).iterdir())
    facts["stored / payload"] = stored / (max(runs, 1) * steps * KIB)


def _caller(app: Any, store: str, steps: int) -> Any:
    numbers = itertools.count()
    options = {} if store == "none" else {"durability": "sync"}

    def call(values: dict[str, Any]) -> Any:
        thread = {"thread_id": f"thread-{next(numbers)}"}
        config = {"configurable": thread, "recursion_limit": steps + 10}
        return app.invoke(values, config, **options)

    return call


@contextmanager
def _saver(facts: Facts, folder: str, store: str) -> Iterator[Any]:
    if store == "none":
        yield None
    elif store == "memory":
        from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415  # its own process

        yield InMemorySaver()
    else:
        with _sqlite(facts, folder, off=store == "sqlite-off") as saver:
            yield saver


@contextmanager
def _sqlite(facts: Facts, folder: str, *, off: bool) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # its own process

    path = Path(folder) / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
        if off:
            saver.conn.execute("PRAGMA synchronous=OFF")
        facts["journal_mode"] = _pragma(saver.conn, "journal_mode")
        facts["synchronous"] = _pragma(saver.conn, "synchronous")
        yield saver


def _pragma(connection: sqlite3.Connection, name: str) -> Json:
    value: Json = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
