"""Simulated histories of the whole runtime, by seed, on all cores; a failing one is made smaller.

The first seed is 0, unless it is given; each 16th is run twice, and gives the same trace. `--json FILE` keeps
the counts; `python -m tests.totals FILE...` adds those of several ranges up.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.simulation.config import Config
from tests.simulation.shrink import failure_of, shrink
from tests.simulation.totals import Totals
from tests.simulation.world import simulate
from tests.soak._blocks import count_blocks, quiet

_SEEDS = 100_000
_BLOCK = 500
_REPLAYED = 16
"""Of so many seeds one is run twice."""


def run(
    minutes: float,
    seed: int,
    count: int | None,
    json: Path | None = None,
    jobs: int | None = None,
) -> int:
    seeds = range(seed, seed + (count or _SEEDS))
    totals = Totals()
    count_blocks(_block, totals, seeds, minutes=minutes, size=_BLOCK, jobs=jobs, json=json)
    for number in totals.failing:
        _explain(number)
    print("\n".join(totals.lines()))
    return len(totals.failing)


def _block(first: int, last: int, ends: float) -> Totals:
    totals = Totals()
    for seed in range(first, last):
        if time.monotonic() > ends:
            break
        try:
            world = simulate(seed)
            again = seed % _REPLAYED == 0
            if again:
                other = simulate(seed).trace.digest
                assert other == world.trace.digest, f"{seed=}: another trace than before"
        except Exception as error:
            print(f"seed {seed}: {error!r}", flush=True)
            totals.take(seed, None)
        else:
            totals.take(seed, world, replayed=again)
    return totals


def _explain(seed: int) -> None:
    quiet()
    config = Config.drawn(seed)
    print(f"seed {seed}: {failure_of(config)}")
    print(f"  smaller: {shrink(config)}")
