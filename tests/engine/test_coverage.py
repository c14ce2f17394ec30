"""The engine is tested exhaustively: each rule has a test of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_each_line_and_branch_of_the_engine_is_taken_by_a_test_of_its_own():
    ran = subprocess.run(
        [sys.executable, "-m", "tests.soak", "engine_coverage"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-1_000:]
