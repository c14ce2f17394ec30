"""The store protocol: what the runtime asks of any place where threads are kept."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from beamweaver.checkpoint._prune import older_rule
from beamweaver.checkpoint._reads import in_due_order
from beamweaver.errors import InvalidCall, StoreOwned

if TYPE_CHECKING:
    from pathlib import Path

    from beamweaver.checkpoint._prune import Rule
    from beamweaver.checkpoint.records import (
        Commit,
        MessageKey,
        RunRow,
        StatusName,
        ThreadImage,
        ThreadRow,
        ThreadSummary,
    )
    from beamweaver.errors import StoreError

_TRY_SECONDS: Final = 0.05
"""How often somebody who waits for a store looks whether it is free."""

__all__ = ["Checkpointer", "Faults", "no_faults"]

Faults: TypeAlias = Callable[[str], None]
"""Called with the name of a point that was reached; may raise or kill. See `POINTS`."""


def no_faults(_point: str) -> None:
    """The faults of production: none."""


class Checkpointer(abc.ABC):
    """A place where threads are kept.

    One owner at a time: `acquire` raises the store's epoch; every write is checked against it. Reads
    need no ownership and may come from any worker and, for stores on disk, from any process. Only
    the runtime's checkpoint writer calls what takes an epoch. Such a call is about threads that no actor
    holds in memory, or whose actor loads the thread again afterwards.

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
    """Tells the UTC seconds at which an owner took the store, and the age of records that are pruned."""
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Tells how long a wait took, in seconds."""
    pause: Callable[[float], None] = staticmethod(time.sleep)
    """Waits some seconds between two tries to take the store."""

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """What is equal for two checkpointers of the same place, such as the real path."""

    @property
    def exists(self) -> bool:
        """Whether the store was made; one that needs no making always was."""
        return True

    @property
    def spool(self) -> Path | None:
        """The folder in which other processes leave messages for the owner; None if they cannot.

        Its parent is there as long as the store is.
        """
        return None

    def owner_lives(self) -> bool | None:
        """Whether somebody, in whatever process, owns the store now; None if that cannot be told."""
        return None

    def lost(self) -> StoreError | None:
        """Why nobody will find what its owner writes from now on, or None. Cheap: an owner asks often."""
        return None

    @abc.abstractmethod
    def acquire(self, *, wait: float = 0.0, takeover: Literal["force"] | None = None) -> int:
        """Take ownership.

        Args:
            wait: How long to wait for the owner to give it up, in seconds.
            takeover: `"force"` takes the store from a living owner when the wait is over. Its next
                write is refused as a whole (`OwnershipLost`); what it has acknowledged stays. Whoever may
                still act on the state that it holds in memory is your concern.

        Returns:
            The store's new epoch: one more than that of the owner before.

        Raises:
            StoreOwned: Another process or runtime owns it; carries `pid`, `host`, `since`.
            TakeoverBlocked: The owner stands still inside a write; carries `pid`. End that process.
            StoreError: The store cannot be opened or written.
            InvalidCall: An argument is wrong.
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
            not the thread's next one, or its checkpoint's parent does not exist). What failed left no trace.

        Raises:
            OwnershipLost: The store's epoch is another; nothing was written.
            StoreBroken: A sync failed, or it is unknown what the disk holds; never call again.
            StoreFull: There is no room; nothing was written.
        """

    @abc.abstractmethod
    def load(
        self, thread_id: str, seq: int | None = None, *, entries: bool = False
    ) -> ThreadImage | None:
        """The head of a thread, or its checkpoint of record `seq`, raw (no entries, no inbox).

        Args:
            thread_id: The thread.
            seq: The number of a checkpoint's record; None for the head.
            entries: With a `seq`: also the entries of the step that follows that checkpoint, as they
                would be loaded if the head were moved there, and whether it is a tip, as it would be then.

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
    def message_key(self, thread_id: str, key: str) -> MessageKey | None:
        """What the thread keeps of an idempotency key, or None.

        A commit with a `key` keeps it in its own transaction, over one of the same name, and removes some
        of the thread's keys that are too old or too many, the oldest first: a bounded number, and more than
        the one that it brings. `copy_thread` leaves keys behind, `delete_thread` removes them.
        """

    @abc.abstractmethod
    def message_keys(self, thread_id: str) -> int:
        """How many idempotency keys the thread keeps; one that was kept twice may count twice."""

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

    def sleepers(
        self, *, after: tuple[int, str] | None = None, limit: int = 1_000
    ) -> Iterator[ThreadSummary]:
        """The sleeping threads, those that are due first coming first, at most `limit`.

        A store with an index of due times reads no more than it gives; this default reads all that sleep.

        Args:
            after: Only those after this due time (`run.due_us`) and thread id, for paging.
            limit: How many at the most.
        """
        found: list[ThreadSummary] = []
        page = list(self.threads(statuses=["sleeping"]))
        while page:
            found += page
            page = list(self.threads(statuses=["sleeping"], after=page[-1].thread_id))
        return iter(in_due_order(found, after, limit))

    def asleep_us(self) -> int | None:
        """At what time a thread last fell asleep (UTC microseconds), at most 5 minutes too early; 0 if none
        did, None if it is not known. A clock that stands before that was set back.
        """
        return None

    @abc.abstractmethod
    def inbox_threads(self, *, after: str = "", limit: int = 1_000) -> Iterator[str]:
        """The ids of threads with messages in their inbox, in the order of ids.

        Args:
            after: Only ids greater than this one, for paging.
            limit: How many at the most.
        """

    @abc.abstractmethod
    def history(
        self,
        thread_id: str,
        *,
        before: int | None = None,
        limit: int | None = None,
        values: bool = True,
    ) -> Iterator[ThreadImage]:
        """The checkpoints of all branches of a thread, newest first by `seq`, each raw.

        It reads a page at a time, when it is needed: no old page of the store is kept for a reader that
        waits, and what is written or pruned between two pages is seen or missed. It ends where the thread
        is deleted.

        Args:
            thread_id: The thread; an unknown one has no history.
            before: Only checkpoints with a smaller `seq`.
            limit: How many at the most; None for all.
            values: Whether the images carry `values` and `chains`; without them a page is cheaper.

        Raises:
            CorruptRecord: A record of the page is damaged.

        Example:
            >>> from beamweaver.checkpoint import MemoryCheckpointer
            >>> [image.checkpoint.seq for image in MemoryCheckpointer().history("order-17")]
            []
        """

    @abc.abstractmethod
    def set_head(self, epoch: int, thread_id: str, seq: int, row: ThreadRow | None = None) -> bool:
        """Make another checkpoint the head, durably: the next load gives it, with the entries of its own
        open step. The next record still gets the next `seq` of all.

        If the checkpoint is not the last one of its branch, the image's `tip` is false: what goes on from
        there begins a new branch, with a checkpoint, since step numbers are used once a branch; entries that
        are committed before that one are of no open step, and are not given. It is not the last one either
        if those that followed it were removed.

        Args:
            epoch: The epoch that `acquire` returned.
            thread_id: The thread.
            seq: The checkpoint.
            row: The thread's row from now on (its status is that of the new head); None keeps it.

        Returns:
            Whether the thread exists.

        Raises:
            InvalidCall: It has no such checkpoint.
            OwnershipLost: The store's epoch is another.
        """

    @abc.abstractmethod
    def copy_thread(self, epoch: int, source: str, target: str) -> bool:
        """Copy a thread: all its branches and checkpoints, its runs and open steps, without its inbox.

        Branches keep their ids, so questions keep theirs. An unfinished run of the copy has the status
        `cancelled`, for only a caller may have it go on; `waiting`, `failed` and what has ended stays so. The
        copy is there as a whole or not at all.

        Returns:
            Whether the source exists.

        Raises:
            InvalidCall: The target exists, or no thread can have its id.
            OwnershipLost: The store's epoch is another.
        """

    @abc.abstractmethod
    def delete_runs(self, epoch: int, thread_id: str, run_ids: Iterable[str]) -> int:
        """Remove the checkpoints and names of runs, durably. The run at the head stays, whoever asks.

        Args:
            epoch: The epoch that `acquire` returned.
            thread_id: The thread.
            run_ids: Any names of the runs; unknown ones are passed over.

        Returns:
            How many checkpoints were removed.

        Raises:
            OwnershipLost: The store's epoch is another.
        """

    @abc.abstractmethod
    def prune(
        self,
        epoch: int,
        thread_ids: Iterable[str] | None = None,
        *,
        keep_last: int = 1,
        older_than: float | None = None,
    ) -> Iterator[int]:
        """Remove old checkpoints, durably. Nothing happens until the result is iterated: each item is one
        short transaction, and commits may come between two of them.

        The head always stays, with its open step. What a remaining checkpoint needs of a removed one stays
        in the store, but is no checkpoint any more.

        Args:
            epoch: The epoch that `acquire` returned.
            thread_ids: Which threads; None for all. Unknown ones are passed over.
            keep_last: How many of the newest checkpoints of each branch stay. With 0 whole branches may
                go, but for the head.
            older_than: Only those go that were committed more than so many seconds ago.

        Returns:
            For each transaction, how many checkpoints it removed.

        Raises:
            InvalidCall: `keep_last` or `older_than` is negative.
            OwnershipLost: The store's epoch is another.
            CorruptRecord: A thread is damaged; it comes when all others are done.
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

    def _patiently(self, take: Callable[[bool], int], wait: float, takeover: str | None) -> int:
        """Take ownership by tries, until one succeeds or the wait is over; the last one may use force."""
        if takeover not in (None, "force") or not wait >= 0:
            raise InvalidCall(
                f"acquire: wait={wait!r}, takeover={takeover!r}; give seconds from 0, and 'force' or None"
            )
        ends = self.monotonic() + wait
        while True:
            left = ends - self.monotonic()
            try:
                return take(takeover is not None and left <= 0)
            except StoreOwned:
                if left <= 0:
                    raise
            self.pause(min(_TRY_SECONDS, left))

    def _rule(self, keep_last: int, older_than: float | None) -> Rule:
        """The rule of `prune`.

        Raises:
            InvalidCall: One of its arguments is negative.
        """
        if keep_last < 0 or (older_than is not None and not older_than >= 0):
            raise InvalidCall(
                f"prune: keep_last={keep_last}, older_than={older_than}; give numbers from 0"
            )
        before = None if older_than is None else int((self.now() - older_than) * 1_000_000)
        return older_rule(keep_last, before)

    def run_of(self, thread_id: str) -> RunRow | None:
        """The current run of a thread, or None."""
        image = self.load(thread_id)
        return image.row.run if image is not None else None
