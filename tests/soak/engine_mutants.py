"""For each deliberate fault of the engine's mutants: the first random graph that finds it."""

from __future__ import annotations

from tests.soak._search import search

_SEEDS = 2_000
_SECONDS = 20


def run(minutes: float, seed: int, count: int | None) -> int:
    return search("tests.engine.mutants", minutes, seed, count or _SEEDS, seconds=_SECONDS)
