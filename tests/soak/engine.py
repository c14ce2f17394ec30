"""Random graphs that die at their commits, and random histories; 100,000 seeds by default, on all cores.

Of twenty seeds seventeen draw a flat graph, two one in which graphs are nodes, one a deeper one or one whose
functions call graphs. Each is run clean, with deaths all along its commits, and with two single deaths; each
64th of a kind with one at every place where it can die. Each eighth seed also draws a history of calls, stops
and deaths. `--json FILE` keeps the counts; `python -m tests.totals FILE...` adds those of several ranges up.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from pathlib import Path

from beamweaver.limits import DEFAULT_LIMITS, Limits
from tests.engine.crashing import ALL, crash_plan
from tests.engine.generator import plan_of
from tests.engine.test_histories import check
from tests.soak._blocks import count_blocks
from tests.totals import Totals

_SEEDS = 100_000
_BLOCK = 500
_DELTAS = Limits(value_bytes_whole=0)


def run(
    minutes: float,
    seed: int,
    count: int | None,
    json: Path | None = None,
    jobs: int | None = None,
) -> int:
    seeds = range(seed, seed + (count or _SEEDS))
    totals = count_blocks(
        _block, Totals(), seeds, minutes=minutes, size=_BLOCK, jobs=jobs, json=json
    )
    print("\n".join(totals.lines()))
    return len(totals.failing)


def _block(first: int, last: int, ends: float) -> Totals:
    totals = Totals()
    for seed in range(first, last):
        if time.monotonic() > ends:
            break
        try:
            totals.count(seed, _counted(seed))
        except Exception:
            print(f"seed {seed}:\n{traceback.format_exc()}", flush=True)
            totals.count(seed, None)
    return totals


def _counted(seed: int) -> Counter[str]:
    """Check the graph and the history of a seed."""
    turn, kind = divmod(seed, 20)
    nested = kind >= 17
    calls = kind == 19 and turn % 2 == 0
    depth = 0 if not nested else 2 if kind == 19 and turn % 4 == 1 else 1
    every = turn % 64 == kind
    plan = plan_of(seed, depth=depth, calls=calls)
    plan.stay_awake()
    counts = crash_plan(
        plan,
        points=ALL if every else 2,
        limits=_DELTAS if turn % 4 == 1 else DEFAULT_LIMITS,
        thorough=every,
    )
    counts["graphs that died at each place"] = every
    if seed % 8 == 0:
        check(seed)
        counts["histories"] = 1
    return counts
