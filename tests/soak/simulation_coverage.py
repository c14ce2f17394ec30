"""How many branches of the simulation's checkers are taken, by sound histories and by violations.

Counted together: histories of the product as it is (200 by default), for each deliberate fault the history
that finds it, and the tests that hand a violation to a checker. Branches that are never taken are printed
with their lines.
"""

from __future__ import annotations

import time

import coverage
import pytest
import structlog

from tests.simulation import checkers, clients, editors
from tests.simulation.config import Config
from tests.simulation.mutants import MUTANTS, found
from tests.simulation.shrink import failure_of
from tests.soak._coverage import branches_of, files_of

_SEEDS = 200
_ENOUGH = 95.0
_TESTS = "tests/simulation/test_checkers.py"
_CHECKERS = (checkers, clients, editors)


def run(minutes: float, seed: int, count: int | None) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    ends = time.monotonic() + minutes * 60
    measured = coverage.Coverage(
        branch=True,
        data_file=None,
        config_file=False,
        include=[str(module.__file__) for module in _CHECKERS],
    )
    failing = done = 0
    with measured.collect():
        for number in range(seed, seed + (count or _SEEDS)):
            if time.monotonic() < ends:
                done += 1
                failing += failure_of(Config.drawn(number)) is not None
        for name, number in found().items():
            with MUTANTS[name]():
                failure_of(Config.drawn(number))
        failing += int(pytest.main(["-q", "-p", "no:cacheprovider", _TESTS]))
    print(f"{done} histories from seed {seed}, {len(found())} deliberate faults, {_TESTS}")
    return failing + (_report(measured) < _ENOUGH)


def _report(measured: coverage.Coverage) -> float:
    """Print what was taken of each module; the percentage of all."""
    taken = there = 0
    for name, file in files_of(measured).items():
        summary = file["summary"]
        taken += summary["covered_branches"]
        there += summary["num_branches"]
        counts = f"{summary['covered_branches']} of {summary['num_branches']}"
        print(f"  {name}: {counts}; never: {branches_of(file)}")
    share = 100 * taken / there
    print(f"  {share:.1f} % of {there} branches")
    return share
