"""Which lines and branches of the engine are taken by no test of their own; there are to be none.

The fast tests of `tests/engine` are run, but for those of drawn histories: these take nearly every branch
sooner or later, and would hide which of them no other test looks at. What is missing is printed by file.
"""

from __future__ import annotations

from pathlib import Path

import coverage
import pytest

from tests.soak._coverage import branches_of, files_of

_ROOT = Path(__file__).parents[2]
_TESTS = _ROOT / "tests" / "engine"
_ENGINE = _ROOT / "beamweaver" / "engine"
_DRAWN = ("crashes", "nested_crashes", "exit", "histories", "mutants")
_OPTIONS = ("-q", "-m", "not slow", "-k", "not generated and not drawn")
_WITHOUT = ("cacheprovider", "randomly", "xdist")


def run(minutes: float, seed: int, count: int | None) -> int:
    del minutes, seed, count  # the tests are those that there are
    measured = coverage.Coverage(
        branch=True, data_file=None, config_file=False, source=[str(_ENGINE)]
    )
    measured.exclude("if TYPE_CHECKING:")  # never true
    plugins = [part for name in _WITHOUT for part in ("-p", f"no:{name}")]
    left_out = [f"--ignore={_TESTS / f'test_{name}.py'}" for name in _DRAWN]
    with measured.collect():
        ended = pytest.main([str(_TESTS), *_OPTIONS, *plugins, *left_out])
    if ended != 0:
        print(f"  the tests ended with {ended!r}")
        return 1
    return _report(measured)


def _report(measured: coverage.Coverage) -> int:
    """Print what was taken of no line and no branch, and how much there is; how many lacked a test."""
    lines = branches = missing = 0
    for name, file in files_of(measured).items():
        lines += file["summary"]["num_statements"]
        branches += file["summary"]["num_branches"]
        if file["missing_lines"] or file["missing_branches"]:
            missing += len(file["missing_lines"]) + len(file["missing_branches"])
            never = ", ".join(map(str, file["missing_lines"])) or "none"
            print(f"  {name}: lines never run: {never}; branches never taken: {branches_of(file)}")
    print(f"  {missing} of {lines} lines and {branches} branches have no test of their own")
    return missing
