"""P5: a fan-out of Sends in one step, and whether a task costs the same at 10,000."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks import langgraph_side, our_side
from benchmarks.command import main
from benchmarks.comparison import Comparison, Facts, Json, Options, Side, Size, Workload
from benchmarks.shapes import fan_expected

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COMPARISONS", "grown"]

_SIZES: dict[Size, Options] = {
    "full": {"sends": 1_000},
    "quick": {"sends": 500},
    "tiny": {"sends": 5},
}
_GROWTH: dict[Size, Options] = {
    "full": {"small": 1_000, "large": 10_000},
    "quick": {"small": 500, "large": 5_000},
    "tiny": {"small": 2, "large": 20},
}


@contextmanager
def grown(
    facts: Facts, folder: str, *, store: str, which: str, small: int, large: int
) -> Iterator[Workload]:
    """Our fan-out at one of two sizes; both sides answer whether their own result is right."""
    sends = {"small": small, "large": large}[which]
    expected = fan_expected({"sends": sends})
    with our_side.fan(facts, folder, store=store, sends=sends) as workload:

        def work() -> Json:
            result = workload.work()
            return "as expected" if result == expected else result

        yield Workload(work, workload.units)


def _grown(store: str, which: str) -> Side:
    side = our_side.side("fan", store, which=which)
    return replace(side, label=f"{side.label}, {which}", target="benchmarks.fanout:grown")


def _growth(store: str) -> Comparison:
    return Comparison(
        id="P5",
        name=f"fan-out, {store}, 10 times the Sends",
        unit="task",
        ours=_grown(store, "large"),
        peer=_grown(store, "small"),
        sizes=_GROWTH,
        expected=lambda _: "as expected",
        aim=round(1 / 1.3, 2),
        note="ours against ours: a task at the larger size within 1.3 of one at the smaller",
    )


COMPARISONS = (
    Comparison(
        id="P5",
        name="fan-out of Sends, memory store",
        unit="task",
        ours=our_side.side("fan", "memory"),
        peer=langgraph_side.side("fan", "memory"),
        sizes=_SIZES,
        expected=fan_expected,
        needed=15,
        aim=30,
    ),
    Comparison(
        id="P5",
        name="fan-out of Sends, power-loss vs SQLite FULL",
        unit="task",
        ours=our_side.side("fan", "power-loss"),
        peer=langgraph_side.side("fan", "sqlite"),
        sizes=_SIZES,
        expected=fan_expected,
        needed=15,
        aim=50,
        note="equal classes: both survive power loss",
    ),
    _growth("memory"),
    _growth("power-loss"),
)

if __name__ == "__main__":
    sys.exit(main(COMPARISONS))
