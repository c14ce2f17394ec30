"""The store protocol: what the runtime asks of any place where threads are kept."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import (
        Commit,
        RunRow,
        StatusName,
        ThreadImage,
        ThreadSummary,
    )
    from beamweaver.errors import StoreError

__all__ = ["Checkpointer", "Faults", "no_faults"]

Faults: TypeAlias = Callable[[str], None]
"""Called with the name of a point that was reached; may raise or kill. See `POINTS`."""


def no_faults(_point: str) -> None:
    """The faults of production: none."""


class Checkpointer(abc.ABC):
    """A place where threads are kept.

    One owner at a time: `acquire` raises the store's epoch; every write is checked against it. Reads
    need no ownership and may come from any worker and, for stores on disk, from any process. Only
    the runtime's checkpoint writer calls `commit`, `delete_thread`.

    A store's `commit` is a **group**: all given commits become durable together, but a commit that cannot
    be written (stale sequence, too large) fails alone. Fault points, in order: `"put.before"`,
    `"put.after"` (each commit), `"sync.before"`, `"sync.after"`. A `StoreError` raised before the sync is
    taken for the engine's own; any other exception ends the group and passes through, and nothing of it
    is written. What `"sync.after"` raises passes through after a group that is durable.
    """

    durable: ClassVar[bool]
    """Whether what is kept survives the process."""
    gains_by_groups: bool
    """Whether one group of n commits is much cheaper than n groups of one."""
    blocks: bool
    """Whether `commit` waits for a disk, so that its worker counts as blocked."""
    faults: Faults = staticmethod(no_faults)
    now: Callable[[], float] = staticmethod(time.time)
    """Tells the UTC seconds at which an owner took the store; for people, never for order."""

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """What is equal for two checkpointers of the same place, such as the real path."""

    @abc.abstractmethod
    def acquire(self) -> int:
        """Take ownership, at once or not at all.

        Returns:
            The store's new epoch: one more than that of the owner before.

        Raises:
            StoreOwned: Another process or runtime owns it; carries `pid`, `host`, `since`.
            StoreError: The store cannot be opened or written.
        """

    @abc.abstractmethod
    def release(self) -> None:
        """Give ownership up; the next owner gets it at once. Without ownership it does nothing."""

    @abc.abstractmethod
    def commit(self, epoch: int, commits: Sequence[Commit]) -> list[StoreError | None]:
        """Write a group, durably, in one transaction.

        Args:
            epoch: The epoch that `acquire` returned to the caller.
            commits: In order; several of one thread are allowed.

        Returns:
            For each commit None, or the error with which it alone failed (`StoreConflict`: its `seq` is
            not the thread's next one). What failed left no trace.

        Raises:
            OwnershipLost: The store's epoch is another; nothing was written.
            StoreBroken: A sync failed; never call again.
            StoreFull: There is no room; nothing was written.
        """

    @abc.abstractmethod
    def load(self, thread_id: str, seq: int | None = None) -> ThreadImage | None:
        """The head of a thread, or its checkpoint of record `seq`, raw (no entries, no inbox).

        Returns:
            None if the thread, or that checkpoint of it, does not exist.

        Raises:
            CorruptRecord: A record fails its checksum; carries its key.
        """

    @abc.abstractmethod
    def run_number(self, thread_id: str, run_id: str) -> int | None:
        """The number of the run that was once admitted under this name, or None."""

    @abc.abstractmethod
    def run_end(self, thread_id: str, number: int) -> int | None:
        """The `seq` of the checkpoint that completed run `number`, or None if it is not complete."""

    @abc.abstractmethod
    def threads(
        self, *, statuses: Iterable[StatusName] | None = None, after: str = "", limit: int = 1_000
    ) -> Iterator[ThreadSummary]:
        """Threads of these statuses (all if None), by status and then id, at most `limit`.

        Args:
            statuses: Which ones.
            after: With exactly one status: only thread ids greater than this one, for paging.
            limit: How many at the most.

        Raises:
            InvalidCall: A status is unknown, or `after` is given with other than one status.
        """

    @abc.abstractmethod
    def delete_thread(self, epoch: int, thread_id: str) -> bool:
        """Remove all of a thread, durably; False if it did not exist.

        Raises:
            OwnershipLost: The store's epoch is another.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release ownership and close. A closed checkpointer opens again at its next use."""

    def run_of(self, thread_id: str) -> RunRow | None:
        """The current run of a thread, or None."""
        image = self.load(thread_id)
        return image.row.run if image is not None else None
