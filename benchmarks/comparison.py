"""What one benchmark compares: two sides that do the same work, its sizes, and what it aims at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["Comparison", "Facts", "Json", "Open", "Options", "Side", "Size", "Workload"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Facts: TypeAlias = dict[str, Json]
Options: TypeAlias = dict[str, Json]
Size: TypeAlias = Literal["full", "quick", "tiny"]


@dataclass(frozen=True, slots=True)
class Workload:
    """One side, ready to be timed.

    Args:
        work: One repetition; returns what it computed, as JSON, to be compared with the other side.
        units: How many units (steps, tasks, calls) a repetition holds; the time is told per unit.
        before: What makes ready for each repetition; it is not timed.
    """

    work: Callable[[], Json]
    units: int
    before: Callable[[], object] = lambda: None


Open: TypeAlias = Callable[..., AbstractContextManager[Workload]]
"""`open(facts, folder, **options)`: prepares a side, yields its workload, notes facts."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison; it runs in a process of its own.

    Args:
        label: Who it is, with store and durability class.
        target: `module:function` of its `Open`; imported in the side's process only.
        options: What the function is given beside the sizes of the comparison.
        needs: Distributions it cannot do without; their versions are reported.
    """

    label: str
    target: str
    options: Mapping[str, Json] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, the work they share, and the ratio that is wanted.

    Args:
        id: The row of the performance targets ("P1").
        name: What is measured.
        unit: What the times are per ("step").
        ours: Our side.
        peer: The other one.
        sizes: The options of each size; "tiny" is for tests.
        expected: What a repetition must return for the options of a size.
        runs: Timed repetitions a side, for each size.
        needed: The least ratio (peer's time to ours), or None.
        aim: The ratio that the design aims at, or None.
        note: What a reader must know to judge the ratio.
    """

    id: str
    name: str
    unit: str
    ours: Side
    peer: Side
    sizes: Mapping[Size, Options]
    expected: Callable[[Options], Json]
    runs: Mapping[Size, int] = field(default_factory=lambda: {"full": 7, "quick": 5, "tiny": 1})
    needed: float | None = None
    aim: float | None = None
    note: str = ""
