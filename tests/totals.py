"""What many random cases had in them, counted; counts of several ranges of seeds add up.

    python -m tests.totals first.json second.json

The files are those of one soak (`python -m tests.soak NAME --json FILE`).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Self

__all__ = ["Totals", "joined", "read"]


class Totals:
    """Counts of cases, a seed each.

    Attributes:
        ranges: The seeds, as `(first, last)` of each range, both of it.
        seconds: How long it took, all ranges one after the other.
        counts: What there was, by name.
        failing: The seeds of cases in which something did not hold.
    """

    of: ClassVar = "seeds"
    """What is counted: the name under which the cases themselves are."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.seconds = 0.0
        self.counts: Counter[str] = Counter()
        self.failing: list[int] = []

    def count(self, seed: int, counts: Counter[str] | None) -> None:
        """Count one case; None for one in which something did not hold."""
        self.ranges = joined([*self.ranges, (seed, seed)])
        self.counts[self.of] += 1
        if counts is None:
            self.failing.append(seed)
        else:
            self.counts.update(counts)

    def add(self, other: Totals) -> None:
        """Take in what was counted elsewhere."""
        self.ranges = joined([*self.ranges, *other.ranges])
        self.seconds += other.seconds
        self.failing += other.failing
        for name, value in vars(self).items():
            if isinstance(value, Counter):
                value.update(getattr(other, name))

    def lines(self) -> list[str]:
        """All of it, to be read."""
        return [*self.head(), *self.each(), self.foot()]

    def head(self) -> list[str]:
        """How many cases there were, and how fast."""
        count = self.counts[self.of]
        speed = count / self.seconds if self.seconds else 0.0
        seeds = ", ".join(f"{first}..{last + 1}" for first, last in self.ranges)
        return [f"{count} {self.of} of {seeds} in {self.seconds:.0f} s ({speed:.1f} a second)"]

    def each(self, names: Any = None) -> list[str]:
        """What was counted under these names, or under all."""
        cases = self.counts[self.of] or 1
        return [
            f"  {name}: {self.counts[name]}, {self.counts[name] / cases:.1f} each"
            for name in names or (name for name in self.counts if name != self.of)
        ]

    def foot(self) -> str:
        """Which seeds failed."""
        return f"  failing: {self.failing or 'none'}"

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        path.write_text(json.dumps({"of": self.of, **vars(self)}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """What `write` kept."""
        found: dict[str, Any] = json.loads(path.read_text())
        if found.pop("of") != cls.of:
            raise ValueError(f"{path} does not count {cls.of}; give files of one soak")
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


def read(path: Path) -> Totals:
    """The totals of a file, of whichever soak it is."""
    from tests.simulation import totals as simulated

    kinds: tuple[type[Totals], ...] = (Totals, simulated.Totals)
    of = json.loads(path.read_text())["of"]
    return next(kind for kind in kinds if kind.of == of).read(path)


def main(paths: list[str]) -> int:
    """Print what these files add up to; 1 if a case failed."""
    totals, *others = [read(Path(path)) for path in paths]
    for other in others:
        totals.add(other)
    print("\n".join(totals.lines()))
    return 1 if totals.failing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
