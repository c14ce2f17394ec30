"""For each deliberate fault of the simulation's mutants: the first seed that finds it, and how many do."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import structlog

from tests.simulation.config import Config
from tests.simulation.mutants import FOUND, MUTANTS, found
from tests.simulation.shrink import failure_of

_SEEDS = 10_000
_SECONDS = 3


def run(minutes: float, seed: int, count: int | None) -> int:
    ends = time.monotonic() + minutes * 60
    known = found()
    wanted = [name for name in MUTANTS if name not in known]
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), initializer=_quiet
    ) as pool:
        searches = {
            pool.submit(_search, name, seed, count or _SEEDS, ends): name for name in wanted
        }
        for search in as_completed(searches):
            name, (at, tried) = searches[search], search.result()
            print(
                f"{name}: {'not found' if at is None else f'seed {at}'} ({tried} seeds)", flush=True
            )
            if at is not None:
                known[name] = at
                FOUND.write_text("".join(f"{n} {known[n]}\n" for n in MUTANTS if n in known))
    return len(MUTANTS) - len(known)


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def _search(name: str, first: int, count: int, ends: float) -> tuple[int | None, int]:
    for seed in range(first, first + count):
        if time.monotonic() > ends:
            return None, seed - first
        if _finds(name, seed) and failure_of(Config.drawn(seed)) is None:
            return seed, seed - first + 1
    return None, count


def _finds(name: str, seed: int) -> bool:
    """Whether the history ends with a failure; one that goes round in circles for too long is no find."""
    child = os.fork()
    if child == 0:
        signal.alarm(_SECONDS)
        with MUTANTS[name]():
            os._exit(failure_of(Config.drawn(seed)) is not None)
    _pid, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1
