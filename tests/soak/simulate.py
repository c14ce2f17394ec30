"""Simulated histories of the whole runtime, by seed, on all cores; a failing one is made smaller.

The first seed is 0, unless it is given; `--json FILE` keeps the counts, and
`python -m tests.simulation.totals FILE...` adds those of several ranges up.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import structlog

from tests.simulation.config import Config
from tests.simulation.shrink import failure_of, shrink
from tests.simulation.totals import Totals
from tests.simulation.world import simulate

_SEEDS = 100_000
_BLOCK = 50


def run(minutes: float, seed: int, count: int | None, json: Path | None = None) -> int:
    began = time.monotonic()
    ends = began + minutes * 60
    last = seed + (count or _SEEDS)
    totals = Totals()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        jobs = [(first, min(first + _BLOCK, last), ends) for first in range(seed, last, _BLOCK)]
        for done in pool.map(_block, *zip(*jobs, strict=True)):
            totals.add(done)
    totals.seconds = time.monotonic() - began
    for number in totals.failing:
        _explain(number)
    print("\n".join(totals.lines()))
    if json is not None:
        totals.write(json)
    return len(totals.failing)


def _block(first: int, last: int, ends: float) -> Totals:
    _quiet()
    totals = Totals()
    for seed in range(first, last):
        if time.monotonic() > ends:
            break
        try:
            totals.take(seed, simulate(seed))
        except Exception:
            totals.take(seed, None)
    return totals


def _explain(seed: int) -> None:
    _quiet()
    print(f"seed {seed}: {failure_of(Config.drawn(seed))}")
    print(f"  smaller: {shrink(Config.drawn(seed))}")


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
