"""Simulated histories of the whole runtime, by seed, on all cores; a failing one is made smaller."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import structlog

from tests.simulation.config import KINDS, Config
from tests.simulation.shrink import failure_of, shrink
from tests.simulation.world import simulate

_SEEDS = 100_000
_BLOCK = 50


def run(minutes: float, seed: int, count: int | None) -> int:
    ends = time.monotonic() + minutes * 60
    began = time.monotonic()
    blocks = range(seed, seed + (count or _SEEDS), _BLOCK)
    last = seed + (count or _SEEDS)
    totals: Counter[str] = Counter()
    failing: list[int] = []
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        jobs = ((first, min(first + _BLOCK, last), ends) for first in blocks)
        for done, wrong in pool.map(_block, *zip(*jobs, strict=True)):
            totals += done
            failing += wrong
    for number in failing:
        _explain(number)
    _report(totals, seed, time.monotonic() - began)
    return len(failing)


def _block(first: int, last: int, ends: float) -> tuple[Counter[str], list[int]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    totals: Counter[str] = Counter()
    failing = []
    for seed in range(first, last):
        if time.monotonic() > ends:
            break
        totals["schedules"] += 1
        try:
            world = simulate(seed)
        except Exception:
            failing.append(seed)
            continue
        totals["engine steps"] += world.checkers.steps
        totals["scheduler steps"] += world.turns
        totals["processes"] += world.lives
        totals["faults"] += sum(world.struck.values())
        totals.update({f"fault {kind}": count for kind, count in world.struck.items()})
        totals.update({f"point {point}": count for point, count in world.points.items()})
    return totals, failing


def _explain(seed: int) -> None:
    print(f"seed {seed}: {failure_of(Config.drawn(seed))}")
    print(f"  smaller: {shrink(Config.drawn(seed))}")


def _report(totals: Counter[str], seed: int, seconds: float) -> None:
    count = totals["schedules"] or 1
    print(f"simulate: {totals['schedules']} schedules from seed {seed} in {seconds:.0f} s "
          f"({totals['schedules'] / seconds:.1f} a second)")  # fmt: skip
    for what in ("engine steps", "scheduler steps", "processes", "faults"):
        print(f"  {what}: {totals[what]}, {totals[what] / count:.1f} a schedule")
    print("  faults: " + ", ".join(f"{kind} {totals[f'fault {kind}']}" for kind in KINDS))
    points = sorted(name for name in totals if name.startswith("point "))
    print("  points: " + ", ".join(f"{name[6:]} {totals[name]}" for name in points))
