"""For each deliberate fault of the simulation's mutants: the first seed that finds it, and how many do."""

from __future__ import annotations

from tests.soak._search import search

_SEEDS = 10_000
_SECONDS = 3


def run(minutes: float, seed: int, count: int | None) -> int:
    module = "tests.simulation.mutants"
    return search(module, minutes, seed, count or _SEEDS, seconds=_SECONDS)
