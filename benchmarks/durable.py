"""P2, P3: 100 nodes in a line, each step on disk before the next begins."""

from __future__ import annotations

import sys

from benchmarks import langgraph_side, our_side
from benchmarks.command import main
from benchmarks.comparison import Comparison
from benchmarks.sequential import SIZES
from benchmarks.shapes import line_expected

__all__ = ["COMPARISONS"]

COMPARISONS = (
    Comparison(
        id="P2",
        name="100 nodes in a line, process-kill vs SQLite FULL",
        unit="step",
        ours=our_side.side("line", "process-kill"),
        peer=langgraph_side.side("line", "sqlite"),
        sizes=SIZES,
        expected=line_expected,
        needed=25,
        aim=50,
        note="unequal classes: the peer's store survives power loss, ours here a process kill",
    ),
    Comparison(
        id="P2",
        name="100 nodes in a line, process-kill vs SQLite OFF",
        unit="step",
        ours=our_side.side("line", "process-kill"),
        peer=langgraph_side.side("line", "sqlite-off"),
        sizes=SIZES,
        expected=line_expected,
        aim=25,
        note="equal classes: both survive a process kill, neither power loss",
    ),
    Comparison(
        id="P3",
        name="100 nodes in a line, power-loss vs SQLite FULL",
        unit="step",
        ours=our_side.side("line", "power-loss"),
        peer=langgraph_side.side("line", "sqlite"),
        sizes=SIZES,
        expected=line_expected,
        aim=2.5,
        note=(
            "equal classes; at most 1.1 transactions a step; an LMDB transaction is two flushes, "
            "so the disk sets this ratio"
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(COMPARISONS))
