"""How many seeds find each deliberate fault of the simulation's mutants: by default of the first 20.

A failure is a seed that finds something without a fault.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.simulation import mutants
from tests.soak._search import finds, quiet

_SEEDS = 20
_SECONDS = 4


def run(minutes: float, seed: int, count: int | None, parts: list[str] | None = None) -> int:
    ends = time.monotonic() + minutes * 60
    seeds = range(seed, seed + (count or _SEEDS))
    names = [name for name in mutants.MUTANTS if parts is None or name in parts]
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), initializer=quiet
    ) as pool:
        sound = [
            s for s, fails in zip(seeds, pool.map(mutants.fails, seeds), strict=True) if not fails
        ]
        for name, hits in zip(names, pool.map(partial(_hits, sound, ends), names), strict=True):
            found = "not looked for in time" if hits is None else f"{hits} of {len(sound)}"
            print(f"{name}: {found}", flush=True)
    return len(seeds) - len(sound)


def _hits(seeds: list[int], ends: float, name: str) -> int | None:
    """How many of the seeds find a fault; None if the time was over before all had a try."""
    hits = 0
    for seed in seeds:
        if time.monotonic() > ends:
            return None
        hits += finds(mutants, name, seed, _SECONDS)
    return hits
