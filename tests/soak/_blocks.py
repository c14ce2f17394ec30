"""Cases by seed on several processes: each takes a block of seeds and gives back what it counted."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from tests.totals import Totals

__all__ = ["Block", "count_blocks", "quiet"]

Block: TypeAlias = "Callable[[int, int, float], Totals]"
"""Given the first seed, the one after the last, and when to end; nothing of it outlives its process."""


def count_blocks(
    block: Block,
    totals: Totals,
    seeds: range,
    *,
    minutes: float,
    size: int,
    jobs: int | None = None,
    json: Path | None = None,
) -> Totals:
    """Add up what is counted of all blocks; print it, and keep it.

    Args:
        block: Counts so many seeds.
        totals: What it is added to.
        seeds: All of them.
        minutes: After which no seed is begun.
        size: How many a process takes before another one follows it, so that its memory has a bound.
        jobs: How many processes there are at once; None for as many as there are cores.
        json: Where it is kept.
    """
    # Only tracebacks are the poorer for it, and cheaper by far.
    os.environ["PYTHONNODEBUGRANGES"] = "1"
    began = time.monotonic()
    ends = began + minutes * 60
    blocks = [(block, at, min(at + size, seeds.stop), ends) for at in seeds[::size]]
    context = get_context("forkserver")
    context.set_forkserver_preload([block.__module__])
    with context.Pool(jobs or os.cpu_count(), _begin, maxtasksperchild=1) as pool:
        for done in pool.imap(_count, blocks):
            totals.add(done)
    totals.seconds = time.monotonic() - began
    if json is not None:
        totals.write(json)
    return totals


def _count(job: tuple[Block, int, int, float]) -> Any:
    block, *given = job
    return block(*given)


def _begin() -> None:
    quiet()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def quiet() -> None:
    """Nothing is logged but what ends a process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
