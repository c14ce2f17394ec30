"""For each deliberate fault of a module's mutants: the first seed that finds it."""

from __future__ import annotations

import importlib
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import structlog

__all__ = ["search"]


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
        seconds: After which a seed that goes round in circles is no find.
        processes: How many look at once.

    Returns:
        How many mutants no seed finds.
    """
    ends = time.monotonic() + minutes * 60
    mutants: Any = importlib.import_module(module)
    known = mutants.found()
    wanted = [name for name in mutants.MUTANTS if name not in known]
    with ProcessPoolExecutor(
        processes or os.cpu_count(), mp_context=get_context("spawn"), initializer=_quiet
    ) as pool:
        searches = {
            pool.submit(_search, module, name, range(first, first + count), ends, seconds): name
            for name in wanted
        }
        for found in as_completed(searches):
            name, (at, tried) = searches[found], found.result()
            print(
                f"{name}: {'not found' if at is None else f'seed {at}'} ({tried} seeds)", flush=True
            )
            if at is not None:
                known[name] = at
                lines = [f"{n} {known[n]}\n" for n in mutants.MUTANTS if n in known]
                mutants.FOUND.write_text("".join(lines))
    return len(mutants.MUTANTS) - len(known)


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def _search(
    module: str, name: str, seeds: range, ends: float, seconds: int
) -> tuple[int | None, int]:
    mutants = importlib.import_module(module)
    for tried, seed in enumerate(seeds, start=1):
        if time.monotonic() > ends:
            return None, tried - 1
        if _finds(mutants, name, seed, seconds) and not mutants.fails(seed):
            return seed, tried
    return None, len(seeds)


def _finds(mutants: Any, name: str, seed: int, seconds: int) -> bool:
    """Whether the seed fails with the fault; one that goes round in circles for too long is no find."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        with mutants.MUTANTS[name]():
            os._exit(mutants.fails(seed))
    _pid, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1
