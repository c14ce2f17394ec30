"""What many histories had in them, counted (`tests.totals`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from tests import totals
from tests.simulation.config import KINDS
from tests.simulation.faults import POINTS

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Totals"]

_KINDS = ("engine steps", "turns", "processes", "faults", "replayed")


class Totals(totals.Totals):
    """Counts of histories.

    Attributes:
        faults: Kind of fault -> how often it struck.
        reached: Named point of the runtime -> how often it was reached.
        raised: Named point -> how often an exception was raised there.
        died: Named point -> how often the process died there.
    """

    of: ClassVar = "schedules"

    def __init__(self) -> None:
        super().__init__()
        self.faults: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self.died: Counter[str] = Counter()

    def take(self, seed: int, world: World | None, *, replayed: bool = False) -> None:
        """Count one history; None for one in which something did not hold."""
        if world is None:
            self.count(seed, None)
            return
        faults = world.faults
        counts = {
            "engine steps": world.checkers.steps,
            "turns": world.turns,
            "processes": world.lives,
            "faults": faults.made,
            "replayed": int(replayed),
        }
        self.count(seed, Counter(counts))
        self.faults += faults.struck
        self.reached += faults.points
        self.raised += faults.raised
        self.died += faults.died

    def lines(self) -> list[str]:
        """All of it, to be read."""
        table = [
            f"  {point}: reached {self.reached[point]}, raised {self.raised[point]}, died {self.died[point]}"
            for point in POINTS
        ]
        return [
            *self.head(),
            *self.each(_KINDS),
            "  by kind: " + ", ".join(f"{kind} {self.faults[kind]}" for kind in KINDS),
            *table,
            self.foot(),
        ]
