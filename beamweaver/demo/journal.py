"""What the parent learns of tasks over all lives of its child.

The claim that it checks: a task whose result was acknowledged never starts again.

Example:
    >>> journal = Journal()
    >>> for line in (Started("t", "1", "read", 1), Acknowledged("t", "1", "read")):
    ...     journal.take(line)
    >>> journal.begin_life()
    >>> journal.take(Started("t", "1", "read", 1))
    >>> journal.faults
    ["task '1' (node 'read' of thread 't') started in life 2, after life 1 acknowledged its result"]
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from beamweaver.demo.wire import Acknowledged, Started

if TYPE_CHECKING:
    from beamweaver.demo.wire import Line

__all__ = ["Journal"]


class Journal:
    """Folds the lines of all lives.

    Attributes:
        life: Which life of the child it is, from 1.
        faults: What should not have happened, a sentence each.
    """

    def __init__(self) -> None:
        self.life = 1
        self.faults: list[str] = []
        self._starts: Counter[tuple[str, str]] = Counter()
        self._nodes: dict[tuple[str, str], str] = {}
        self._acknowledged: dict[tuple[str, str], int] = {}

    def begin_life(self) -> None:
        """The child was killed, and another one starts."""
        self.life += 1

    def take(self, line: Line) -> None:
        """Fold one line."""
        if isinstance(line, Started):
            self._started(line)
        elif isinstance(line, Acknowledged):
            self._acknowledged.setdefault((line.thread, line.task), self.life)

    def _started(self, line: Started) -> None:
        task = (line.thread, line.task)
        self._starts[task] += 1
        self._nodes[task] = line.node
        life = self._acknowledged.get(task)
        if life is not None:
            self.faults.append(
                f"task {line.task!r} (node {line.node!r} of thread {line.thread!r}) started in life "
                f"{self.life}, after life {life} acknowledged its result"
            )

    @property
    def acknowledged(self) -> int:
        """How many tasks have an acknowledged result."""
        return len(self._acknowledged)

    @property
    def tasks(self) -> int:
        """How many different tasks started."""
        return len(self._starts)

    @property
    def starts(self) -> int:
        """How many attempts began."""
        return self._starts.total()

    @property
    def reran(self) -> dict[str, int]:
        """How many tasks started more than once, by node."""
        again = (self._nodes[task] for task, count in self._starts.items() if count > 1)
        return dict(sorted(Counter(again).items()))
