"""Our side: the same shapes on the memory store or LMDB, run by a private runtime."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.comparison import Facts, Json, Side, Workload
from benchmarks.shapes import (
    Fan,
    Line,
    fan_result,
    fan_router,
    increment,
    line_names,
    plan,
    square,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["checkpointer", "fan", "line", "line_graph", "side", "transactions"]

_NEEDS = ("pykka", "msgspec", "lmdb")
_LABELS = {
    "none": "BeamWeaver without a store",
    "memory": "BeamWeaver MemoryCheckpointer, sync (survives nothing)",
    "process-kill": 'BeamWeaver LMDBCheckpointer(survives="process-kill"), sync',
    "power-loss": 'BeamWeaver LMDBCheckpointer(survives="power-loss"), sync',
}


def side(shape: str, store: str, **options: Json) -> Side:
    """A side: `shape` is "line" or "fan", `store` none, memory, process-kill or power-loss."""
    return Side(_LABELS[store], f"{__name__}:{shape}", {"store": store, **options}, _NEEDS)


def checkpointer(store: str, folder: str) -> Any:
    """The checkpointer that a store's name stands for, with its files in the folder."""
    from beamweaver.checkpoint import (  # noqa: PLC0415  # a peer's process has it not
        LMDBCheckpointer,
        MemoryCheckpointer,
    )

    if store == "none":
        return None
    if store == "memory":
        return MemoryCheckpointer()
    survives: Any = store
    return LMDBCheckpointer(_path(folder), survives=survives)


def line_graph(bodies: list[Callable[[Line], dict[str, int]]]) -> Any:
    """A graph builder: one node a body, in a line."""
    from beamweaver import END, START, Graph  # noqa: PLC0415  # a peer's process has it not

    names = line_names(len(bodies))
    graph = Graph(Line, name="line")
    for name, body in zip(names, bodies, strict=True):
        graph.add_node(name, body)
    for source, target in itertools.pairwise([START, *names, END]):
        graph.add_edge(source, target)
    return graph


@contextmanager
def line(facts: Facts, folder: str, *, store: str, nodes: int, invokes: int) -> Iterator[Workload]:
    """A line of nodes; each run is a new thread."""
    graph = line_graph([increment] * nodes)
    with _opened(graph, facts, folder, store, nodes) as call:

        def work() -> Json:
            return [call({"n": 0})["n"] for _ in range(invokes)]

        yield Workload(work, nodes * invokes)


@contextmanager
def fan(facts: Facts, folder: str, *, store: str, sends: int) -> Iterator[Workload]:
    """One node, then a task a Send in one step, then the end."""
    from beamweaver import END, START, Graph, Send  # noqa: PLC0415  # a peer's process has it not

    graph = Graph(Fan, name="fan")
    graph.add_node("plan", plan)
    graph.add_node("square", square)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", fan_router(Send), ["square"])
    graph.add_edge("square", END)
    with _opened(graph, facts, folder, store, 2) as call:

        def work() -> Json:
            return fan_result(call({"count": sends, "item": 0, "squares": []})["squares"])

        yield Workload(work, sends)


@contextmanager
def _opened(
    graph: Any, facts: Facts, folder: str, store: str, depth: int
) -> Iterator[Callable[[dict[str, Any]], Any]]:
    """The graph, compiled on a store; at the end the transactions a step are noted as a fact."""
    numbers = itertools.count()
    keeper = checkpointer(store, folder)
    app = graph.compile(checkpointer=keeper)
    options = {"recursion_limit": depth + 10}
    calls = 0

    def call(values: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        if store == "none":
            return app.invoke(values, **options).state
        return app.invoke(values, thread_id=f"thread-{next(numbers)}", **options).state

    with app:
        yield call
    if keeper is not None:
        keeper.close()
    if calls and store in ("process-kill", "power-loss"):
        facts["transactions a step"] = transactions(folder) / (calls * depth)


def _path(folder: str) -> str:
    return str(Path(folder) / "state.lmdb")


def transactions(folder: str) -> int:
    """How many write transactions a closed LMDB store has seen."""
    import lmdb  # noqa: PLC0415  # a peer's process has it not

    path = Path(_path(folder))
    with lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False) as environment:
        found: int = environment.info()["last_txnid"]
        return found
