"""Random graphs that die at every commit, and random histories; 1,000 seeds by default."""

from __future__ import annotations

import time
import traceback

from tests.engine.test_crashes import crash
from tests.engine.test_histories import check

_SEEDS = 1_000


def run(minutes: float, seed: int, count: int | None) -> int:
    ends = time.monotonic() + minutes * 60
    failures = done = 0
    for number in range(seed, seed + (count or _SEEDS)):
        if time.monotonic() > ends:
            print(f"time is over before seed {number}")
            break
        failures += _fails(number)
        done += 1
    print(
        f"engine: {done} seeds from {seed}, each one graph that dies at every commit and one history"
    )
    return failures


def _fails(number: int) -> bool:
    try:
        crash(number, points=1_000_000)
        check(number)
    except Exception:
        print(f"seed {number}:")
        traceback.print_exc()
        return True
    return False
