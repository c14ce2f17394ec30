"""P1: 100 nodes in a line, each step saved in memory before the next begins."""

from __future__ import annotations

import sys

from benchmarks import langgraph_side, our_side
from benchmarks.command import main
from benchmarks.comparison import Comparison, Options, Size
from benchmarks.shapes import line_expected

__all__ = ["COMPARISONS", "SIZES"]

SIZES: dict[Size, Options] = {
    "full": {"nodes": 100, "invokes": 10},
    "quick": {"nodes": 100, "invokes": 3},
    "tiny": {"nodes": 5, "invokes": 2},
}

COMPARISONS = (
    Comparison(
        id="P1",
        name="100 nodes in a line, memory store",
        unit="step",
        ours=our_side.side("line", "memory"),
        peer=langgraph_side.side("line", "memory"),
        sizes=SIZES,
        expected=line_expected,
        needed=15,
        aim=30,
    ),
)

if __name__ == "__main__":
    sys.exit(main(COMPARISONS))
