"""What many histories had in them, counted; counts of several ranges of seeds add up.

python -m tests.simulation.totals first.json second.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.config import KINDS
from tests.simulation.faults import POINTS

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Totals", "joined"]

_KINDS = ("engine steps", "turns", "processes", "faults")


class Totals:
    """Counts of histories.

    Attributes:
        ranges: The seeds, as `(first, last)` of each range, both of it.
        seconds: How long it took, all ranges one after the other.
        counts: What there was, by name.
        faults: Kind of fault -> how often it struck.
        reached: Named point of the runtime -> how often it was reached.
        raised: Named point -> how often an exception was raised there.
        died: Named point -> how often the process died there.
        failing: The seeds of histories in which something did not hold.
    """

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.seconds = 0.0
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self.died: Counter[str] = Counter()
        self.failing: list[int] = []

    def take(self, seed: int, world: World | None) -> None:
        """Count one history; None for one in which something did not hold."""
        self.ranges = joined([*self.ranges, (seed, seed)])
        self.counts["schedules"] += 1
        if world is None:
            self.failing.append(seed)
            return
        faults = world.faults
        self.counts.update(
            {
                "engine steps": world.checkers.steps,
                "turns": world.turns,
                "processes": world.lives,
                "faults": faults.made,
            }
        )
        self.faults += faults.struck
        self.reached += faults.points
        self.raised += faults.raised
        self.died += faults.died

    def add(self, other: Totals) -> None:
        """Take in what was counted elsewhere."""
        self.ranges = joined([*self.ranges, *other.ranges])
        self.seconds += other.seconds
        self.failing += other.failing
        for name in ("counts", "faults", "reached", "raised", "died"):
            getattr(self, name).update(getattr(other, name))

    def lines(self) -> list[str]:
        """All of it, to be read."""
        count = self.counts["schedules"]
        speed = count / self.seconds if self.seconds else 0.0
        seeds = ", ".join(f"{first}..{last + 1}" for first, last in self.ranges)
        table = [
            f"  {point}: reached {self.reached[point]}, raised {self.raised[point]}, died {self.died[point]}"
            for point in POINTS
        ]
        return [
            f"{count} schedules of the seeds {seeds} in {self.seconds:.0f} s ({speed:.1f} a second)",
            *(
                f"  {name}: {self.counts[name]}, {self.counts[name] / (count or 1):.1f} a schedule"
                for name in _KINDS
            ),
            "  by kind: " + ", ".join(f"{kind} {self.faults[kind]}" for kind in KINDS),
            *table,
            f"  failing: {self.failing or 'none'}",
        ]

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        path.write_text(json.dumps(vars(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Totals:
        """What `write` kept."""
        found: dict[str, Any] = json.loads(path.read_text())
        totals = cls()
        for name, value in found.items():
            known = getattr(totals, name)
            setattr(totals, name, Counter(value) if isinstance(known, Counter) else value)
        totals.ranges = [(first, last) for first, last in found["ranges"]]
        return totals


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in order, those that touch as one; a seed that is there twice is refused."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1]:
            raise ValueError(f"the seed {first} is counted twice; give ranges that do not overlap")
        if joined and first == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def main(paths: list[str]) -> int:
    """Print what these files add up to; 1 if a history failed."""
    totals = Totals()
    for path in paths:
        totals.add(Totals.read(Path(path)))
    print("\n".join(totals.lines()))
    return 1 if totals.failing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
