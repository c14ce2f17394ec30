"""What one of our steps costs: microseconds, messages, allocations, calls, LMDB operations.

`python -m benchmarks.budget` prints it for a line of nodes on each store, and for the tasks of a
fan-out. Calls are counted by a profiler that the first and the last of the nodes looked at switch
on and off on their worker, so they show what runs there between the two; its times are inflated
and tell shares only. `--durability async` shows the same in that mode. `--allocations` counts
allocator calls too (a C compiler is needed).
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import itertools
import pstats
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import allocations, our_side, report, shapes

__all__ = ["main"]

_STORES = ("memory", "process-kill", "power-loss")
_TRIES = 20
_ROOT = str(Path(__file__).resolve().parent.parent)
_Key: TypeAlias = tuple[str, int, str]
_Table: TypeAlias = dict[_Key, tuple[int, int, float, float, Any]]


@dataclass
class Probe:
    """Readings on the worker between two nodes, the first of `begin` and the first of `end`."""

    profile: cProfile.Profile | None = None
    count: Callable[[], int] | None = None
    seconds: float = 0.0
    blocks: int = 0
    allocated: int = 0
    worker: int = 0
    moved: bool = False
    """Whether the last node ran on another worker than the first: the profile is worthless then."""

    def begin(self) -> None:
        self.worker = threading.get_ident()
        self.blocks = sys.getallocatedblocks()
        self.allocated = self.count() if self.count else 0
        self.seconds = time.perf_counter()
        if self.profile:
            self.profile.enable()

    def end(self) -> None:
        if self.profile:
            self.profile.disable()
        self.moved = threading.get_ident() != self.worker
        self.seconds = time.perf_counter() - self.seconds
        self.allocated = (self.count() if self.count else 0) - self.allocated
        self.blocks = sys.getallocatedblocks() - self.blocks


Runner: TypeAlias = Callable[[Probe], None]


@contextmanager
def _line(store: str, nodes: int, skip: int, durability: str) -> Iterator[tuple[Runner, int]]:
    """A line; its nodes `skip` and `nodes - skip` hold the probe. Yields runner and steps."""
    box: list[Probe] = []

    def first(state: shapes.Line) -> dict[str, int]:
        box[-1].begin()
        return shapes.increment(state)

    def last(state: shapes.Line) -> dict[str, int]:
        box[-1].end()
        return shapes.increment(state)

    bodies: list[Callable[[shapes.Line], dict[str, int]]] = [shapes.increment] * nodes
    bodies[skip], bodies[nodes - skip] = first, last
    with _app(our_side.line_graph(bodies), store, nodes, durability) as call:

        def run(probe: Probe) -> None:
            box.append(probe)
            assert call({"n": 0})["n"] == nodes

        yield run, nodes - 2 * skip


@contextmanager
def _fan(store: str, sends: int, durability: str) -> Iterator[tuple[Runner, int]]:
    """A fan-out between two nodes that hold the probe; yields runner and tasks."""
    from beamweaver import END, START, Graph, Send  # noqa: PLC0415  # as the sides do

    box: list[Probe] = []

    def before(state: shapes.Fan) -> dict[str, int]:
        box[-1].begin()
        return shapes.plan(state)

    def after(state: shapes.Fan) -> dict[str, int]:
        box[-1].end()
        return shapes.plan(state)

    graph = Graph(shapes.Fan, name="fan")
    graph.add_node("plan", before).add_node("square", shapes.square).add_node("after", after)
    graph.add_edge(START, "plan").add_edge("square", "after").add_edge("after", END)
    graph.add_conditional_edges("plan", shapes.fan_router(Send), ["square"])
    with _app(graph, store, 3, durability) as call:

        def run(probe: Probe) -> None:
            box.append(probe)
            assert len(call({"count": sends, "item": 0, "squares": []})["squares"]) == sends

        yield run, sends


@contextmanager
def _app(
    graph: Any, store: str, depth: int, durability: str
) -> Iterator[Callable[[dict[str, Any]], Any]]:
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        app = graph.compile(checkpointer=our_side.checkpointer(store, folder))

        def call(values: dict[str, Any]) -> Any:
            thread_id = f"thread-{next(numbers)}"
            limit = depth + 10
            return app.invoke(
                values, thread_id=thread_id, recursion_limit=limit, durability=durability
            ).state

        with app:
            yield call


def _show(name: str, run: Runner, units: int, unit: str, top: int) -> None:
    run(Probe())
    gc.collect()
    gc.freeze()
    probes = [Probe() for _ in range(15)]
    for probe in probes:
        run(probe)
    gc.unfreeze()
    times = [probe.seconds * 1e6 / units for probe in probes]
    blocks = statistics.median(probe.blocks / units for probe in probes)
    print(f"\n{name}: {statistics.median(times):.1f} µs a {unit} (min {min(times):.1f})")
    print(f"   memory blocks kept {blocks:.1f} a {unit}")
    profile = _profile(run)
    if profile is None:
        print(f"   calls not counted: the worker changed in each of {_TRIES} runs")
    else:
        _calls(pstats.Stats(profile), units, unit, top)


def _profile(run: Runner) -> cProfile.Profile | None:
    """The profile of a run that began and ended on one worker."""
    for _ in range(_TRIES):
        profile = cProfile.Profile()
        probe = Probe(profile=profile)
        run(probe)
        if not probe.moved:
            return profile
    return None


def _count(name: str, run: Runner, units: int, unit: str) -> None:
    run(Probe())
    counted = Probe(count=allocations.counter())
    run(counted)
    print(f"{name}: allocator calls {counted.allocated / units:.1f} a {unit}")


def _calls(stats: pstats.Stats, units: int, unit: str, top: int) -> None:
    table: _Table = stats.stats  # type: ignore[attr-defined]  # pstats types no table
    whole = sum(own for _, _, own, _, _ in table.values())
    groups: Counter[str] = Counter()
    layers: dict[str, float] = {}
    bodies = 0
    for key, (_, calls, own, _, _) in table.items():
        layers[_layer(key)] = layers.get(_layer(key), 0.0) + own
        bodies += calls if key[2] in ("increment", "square") else 0
        for group in _groups(key):
            groups[group] += calls
    print(f"   bodies seen by the profiler: {bodies / units:.0%} (the rest ran on other workers)")
    for group, calls in sorted(groups.items()):
        print(f"   {group} {calls / units:.2f} a {unit}")
    parts = sorted(layers.items(), key=lambda item: -item[1])[:12]
    print(f"   profiled time by module: {', '.join(f'{p} {own / whole:.0%}' for p, own in parts)}")
    costly = sorted(table.items(), key=lambda item: -item[1][2])[:top]
    for key, (_, calls, own, inside, _) in costly:
        share = f"own {own / whole:5.1%}  with callees {inside / whole:6.1%}"
        print(f"      {share}  {calls / units:6.2f} calls  {_where(key)}")


def _groups(key: _Key) -> Iterator[str]:
    """The lines of the budget that a function counts for."""
    path, _, function = key
    if path == "~":
        yield "calls: built in"
        for library, word in (("LMDB", "lmdb"), ("LMDB", "'Transaction'"), ("LMDB", "'Cursor'")):
            if word in function:
                yield f"{library}: {function}"
                return
        if "encode" in function or "decode" in function:
            yield f"codec: {function}"
        elif "acquire" in function or "__enter__" in function or "release" in function:
            yield f"locks: {function}"
        return
    yield "calls: Python functions"
    if path.endswith("supervisors/inbox.py") and function.startswith("put"):
        yield f"messages: {function}"
    elif function == "__init__":
        yield "objects made by a Python __init__"


def _layer(key: _Key) -> str:
    path, _, function = key
    if path == "~":
        return "lmdb" if "lmdb" in function or "'Transaction'" in function else "built in"
    if path.startswith(_ROOT):
        return ".".join(Path(path[len(_ROOT) + 1 :]).with_suffix("").parts)
    return Path(path).name


def _where(key: _Key) -> str:
    path, line, function = key
    return function if path == "~" else f"{_layer(key)}:{line} {function}"


def main(argv: list[str]) -> int:
    """Print the budgets; the exit code is 0."""
    parser = argparse.ArgumentParser(description="What a step of ours costs.")
    parser.add_argument("--allocations", action="store_true", help="count allocator calls too")
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--top", type=int, default=25, help="functions listed a budget")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--sends", type=int, default=1_000)
    parser.add_argument("--durability", choices=("sync", "async", "exit"), default="sync")
    options = parser.parse_args(argv)
    if options.count:
        for name, run, units, unit in _shapes(options):
            _count(name, run, units, unit)
        return 0
    print(report.machine(tempfile.gettempdir()))
    for name, run, units, unit in _shapes(options):
        _show(name, run, units, unit, options.top)
    if options.allocations:
        print(flush=True)
        sizes = ["--nodes", str(options.nodes), "--sends", str(options.sends)]
        sizes += ["--durability", options.durability]
        if allocations.restart_counted("benchmarks.budget", ["--count", *sizes]) is None:
            print("no C compiler: allocator calls are not counted")
    return 0


def _shapes(options: argparse.Namespace) -> Iterator[tuple[str, Runner, int, str]]:
    nodes, mode = options.nodes, options.durability
    for store in _STORES:
        with _line(store, nodes, nodes // 10, mode) as (run, steps):
            yield f"line, {store}", run, steps, "step"
    for store in ("memory", "power-loss"):
        with _fan(store, options.sends, mode) as (run, tasks):
            yield f"fan-out, {store}", run, tasks, "task"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
