"""P11: starting, stopping, asking, telling and restarting supervised actors."""

from __future__ import annotations

import sys

from benchmarks import pykka_side, supervisors_side
from benchmarks.command import main
from benchmarks.comparison import Comparison, Json, Options, Size

__all__ = ["COMPARISONS"]


def _sizes(name: str, full: int, quick: int, **fixed: int) -> dict[Size, Options]:
    return {
        "full": {name: full, **fixed},
        "quick": {name: quick, **fixed},
        "tiny": {name: 2, **dict.fromkeys(fixed, 1)},
    }


def _comparison(
    work: str, name: str, unit: str, size: tuple[str, dict[Size, Options]], **wanted: float
) -> Comparison:
    counted, sizes = size

    def expected(options: Options) -> Json:
        return options[counted]

    return Comparison(
        id="P11",
        name=name,
        unit=unit,
        ours=supervisors_side.side(work),
        peer=pykka_side.side(work),
        sizes=sizes,
        expected=expected,
        needed=wanted.get("needed"),
        aim=wanted.get("aim"),
        note="Pykka has no supervisor: an actor starts, stops and replaces its children",
    )


COMPARISONS = (
    _comparison(
        "start_stop",
        "start and stop under a supervisor, pipelined",
        "child",
        ("children", _sizes("children", 2_000, 500, batch=100)),
        needed=10,
        aim=20,
    ),
    _comparison(
        "ask", "ask from outside", "call", ("messages", _sizes("messages", 5_000, 1_000)), aim=1
    ),
    _comparison(
        "tell",
        "tell from outside",
        "message",
        ("messages", _sizes("messages", 50_000, 10_000)),
        aim=5,
    ),
    _comparison(
        "restarts",
        "crash and restart of a child",
        "restart",
        ("crashes", _sizes("crashes", 1_000, 200)),
    ),
)

if __name__ == "__main__":
    sys.exit(main(COMPARISONS))
