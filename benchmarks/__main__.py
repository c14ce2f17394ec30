"""Runs all benchmarks: `python -m benchmarks [--quick] [--json FILE] [--report FILE]`."""

from __future__ import annotations

import sys

from benchmarks import actors, durable, fanout, growth, sequential
from benchmarks.command import main

if __name__ == "__main__":
    sys.exit(
        main(
            (
                *sequential.COMPARISONS,
                *durable.COMPARISONS,
                *fanout.COMPARISONS,
                *growth.COMPARISONS,
                *actors.COMPARISONS,
            )
        )
    )
