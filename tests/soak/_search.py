"""For each deliberate fault of a module's mutants: the first seed that finds it.

Those whose seed is known are passed over; delete the file of seeds to look for all.
"""

from __future__ import annotations

import importlib
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import structlog

__all__ = ["finds", "quiet", "search"]

_CHUNK = 20


def search(
    module: str,
    minutes: float,
    first: int,
    count: int,
    *,
    seconds: int,
    processes: int | None = None,
) -> int:
    """Look for the seeds that are not known, and write them down.

    Args:
        module: Has `MUTANTS`, `FOUND`, `found()` and `fails(seed)`, which tells whether the seed fails.
        minutes: How long.
        first: The first seed.
        count: How many seeds at the most for each mutant.
        seconds: Of the processor, after which a seed that goes round in circles is no find.
        processes: How many look at once.

    Returns:
        How many mutants no seed finds.
    """
    ends = time.monotonic() + minutes * 60
    mutants: Any = importlib.import_module(module)
    known = mutants.found()
    last = first + count
    with ProcessPoolExecutor(
        processes or os.cpu_count(), mp_context=get_context("spawn"), initializer=quiet
    ) as pool:
        for start in range(first, last, _CHUNK):  # so what is found soon does not wait for the rest
            seeds = range(start, min(start + _CHUNK, last))
            searches = {
                pool.submit(_search, module, name, seeds, ends, seconds): name
                for name in mutants.MUTANTS
                if name not in known
            }
            for found in as_completed(searches):
                name, at = searches[found], found.result()
                if at is not None:
                    print(f"{name}: seed {at}", flush=True)
                    known[name] = at
                    lines = [f"{n} {known[n]}\n" for n in mutants.MUTANTS if n in known]
                    mutants.FOUND.write_text("".join(lines))
    left = [name for name in mutants.MUTANTS if name not in known]
    print(f"not found in the seeds {first}..{last}, or not in time: {', '.join(left) or 'none'}")
    return len(left)


def quiet() -> None:
    """Log nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def _search(module: str, name: str, seeds: range, ends: float, seconds: int) -> int | None:
    mutants = importlib.import_module(module)
    for seed in seeds:
        if time.monotonic() > ends:
            return None
        if finds(mutants, name, seed, seconds) and not mutants.fails(seed):
            return seed
    return None


def finds(mutants: Any, name: str, seed: int, seconds: int) -> bool:
    """Whether the seed fails with the fault; one that goes round in circles for too long is no find."""
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of this process: others may be busy
        found = True  # also by an error that nobody catches, which must not go on in this process
        try:
            with mutants.MUTANTS[name]():
                found = mutants.fails(seed)
        finally:
            os._exit(found)
    _pid, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1
