"""What the store's soak counted, by part; counts of several ranges add up.

python -m tests.soak._store_counts first.json second.json
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from tests.totals import joined

_TOLD = 5


@dataclasses.dataclass
class Part:
    """One part of the soak.

    Attributes:
        ranges: The cases that were done, as `(first, last)` of each range, both of it.
        asked: How many were to be done.
        done: How many were.
        wrong: In how many something did not hold.
        first: What was wrong in the first of them.
        seconds: How long it took, all ranges one after the other.
        figures: What else was measured.
    """

    ranges: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    asked: int = 0
    done: int = 0
    wrong: int = 0
    first: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    figures: dict[str, object] = dataclasses.field(default_factory=dict)

    def did(self, first: int, stop: int) -> None:
        """Count the cases from `first` to `stop`, without that."""
        self.done += stop - first
        if self.ranges and self.ranges[-1][1] == first - 1:
            first = self.ranges.pop()[0]
        self.ranges.append((first, stop - 1))

    def found(self, text: str) -> None:
        """Count a case in which something did not hold."""
        self.wrong += 1
        self.first = [*self.first, text][:_TOLD]

    def add(self, other: Part) -> None:
        """Take in what was counted elsewhere."""
        self.ranges = joined([*self.ranges, *other.ranges])
        for name in ("asked", "done", "wrong", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first = [*self.first, *other.first][:_TOLD]
        self.figures |= other.figures

    def line(self, name: str) -> str:
        """All of it, to be read."""
        cases = ", ".join(f"{first}..{last + 1}" for first, last in self.ranges)
        short = "" if self.done >= self.asked else f" of {self.asked} (the time was over)"
        text = f"{name}: {self.done}{short}, {self.wrong} wrong, {self.seconds:.0f} s"
        text += f", cases {cases}" if cases else ""
        text += f", {self.done / self.seconds:.1f} a second" if cases and self.seconds else ""
        told = "".join(f"\n  {key}: {value}" for key, value in self.figures.items())
        return text + told + "".join(f"\n  WRONG {first}" for first in self.first)


def write(parts: dict[str, Part], path: Path) -> None:
    """Keep counts as JSON."""
    kept = {name: dataclasses.asdict(part) for name, part in parts.items()}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def read(path: Path) -> dict[str, Part]:
    """What `write` kept."""
    parts = {name: Part(**kept) for name, kept in json.loads(path.read_text()).items()}
    for part in parts.values():
        part.ranges = [(first, last) for first, last in part.ranges]
    return parts


def main(paths: list[str]) -> int:
    """Print what these files add up to; 1 if something did not hold."""
    parts: dict[str, Part] = {}
    for path in paths:
        for name, part in read(Path(path)).items():
            parts.setdefault(name, Part()).add(part)
    for name, part in parts.items():
        print(part.line(name))
    return 1 if any(part.wrong for part in parts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
