"""The checkpoint writer: the one actor that writes to the store, in groups."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.engine._ahead import size_of
from beamweaver.errors import CallRefused, OwnershipLost, StoreBroken, StoreFull
from beamweaver.runtime.edits import Apply
from beamweaver.runtime.messages import (
    CHANGED,
    Acknowledged,
    Claim,
    Claimed,
    Left,
    Refused,
    Write,
    WriteAll,
)
from supervisors import Actor

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from beamweaver.checkpoint.records import Commit
    from beamweaver.errors import StoreError
    from beamweaver.runtime.hub import Hub

__all__ = ["CheckpointWriter"]


class CheckpointWriter(Actor):
    """Owns the store's write side.

    Whoever finds it idle runs its slice at once (`Cell.run_inline`), so a lone thread commits without
    a hop; what arrives meanwhile is the next group. In the lane "idle" it waits until nothing else is
    runnable, so that all results of that moment share one sync.

    Stale commits (of an incarnation older than the newest claim) are dropped before they join a group:
    their actor is dead, and its successor has read the store.
    """

    lane: ClassVar[Literal["idle"]] = "idle"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._incarnations: dict[str, int] = {}
        self._fenced: set[str] = set()
        """Threads that were changed behind the back of the incarnation that claimed them last."""
        self._group: list[Write] = []
        self._bytes = 0
        self.groups = 0
        self.commits = 0

    def on_start(self) -> None:
        """Be known to the runtime."""
        self._hub.writer = self.cell
        for edit in self._hub.edits.left():
            self.cell.put(edit)

    def on_receive(self, message: Any) -> None:
        """Gather commits; write them when the mailbox is empty or the group is full."""
        try:
            if type(message) is Write:
                if not self._is_stale(message.commit):
                    if not self._group and not self.cell.q:
                        self._write_one(message)
                        return
                    self._group.append(message)
            else:
                self._write()
                self._other(message)
            if self._group and (not self.cell.q or self._full()):
                self._write()
        except (OwnershipLost, StoreBroken) as error:
            # Nobody here can mend it: the runtime ends, and says why.
            self._hub.fail(error, self)

    def _other(self, message: Any) -> None:
        if type(message) is Claim:
            self._claim(message)
        elif type(message) is Left:
            self._forget(message)
        elif type(message) is Apply:
            self._apply(message)
        elif type(message) is WriteAll:
            self._write_all(message)

    def _claim(self, claim: Claim) -> None:
        if claim.incarnation >= self._incarnations.get(claim.thread_id, 0):
            self._incarnations[claim.thread_id] = claim.incarnation
            self._fenced.discard(claim.thread_id)
            claim.cell.put(Claimed())

    def _apply(self, apply: Apply) -> None:
        if apply.begun:
            return  # it was put to two writers
        apply.begun = True
        hub = self._hub
        try:
            with self._syncing():
                result = apply.fn(hub.store, hub.epoch)
        except CallRefused as error:
            apply.done.offer_error(error)
        except Exception as error:  # it belongs to who asked
            self._fence(apply.changes)
            apply.done.offer_error(error)
            if isinstance(error, (OwnershipLost, StoreBroken)):
                raise
        else:
            self._fence(apply.changes)
            apply.done.offer(result)

    def _fence(self, thread_id: str | None) -> None:
        """A thread was changed: what its actor has on the way is void, and the actor reads it again."""
        if thread_id is None:
            return
        if thread_id in self._incarnations:
            self._fenced.add(thread_id)
        # An actor that is not known yet has entered before it claims, or reads the store after this.
        cell = self._hub.actors.get(thread_id)
        if cell is not None:
            cell.put(CHANGED)

    def _forget(self, left: Left) -> None:
        if self._incarnations.get(left.thread_id) == left.incarnation:
            del self._incarnations[left.thread_id]
            self._fenced.discard(left.thread_id)

    def _is_stale(self, commit: Commit) -> bool:
        newest = self._incarnations.get(commit.thread_id, 0)
        if self._fenced and commit.thread_id in self._fenced:
            newest += 1
        return commit.incarnation < newest

    def _full(self) -> bool:
        """Whether the group takes no more; called once for each commit that does not come alone."""
        limits = self._hub.limits
        self._bytes += size_of(self._group[-1].commit)
        return len(self._group) >= limits.group_commits or self._bytes >= limits.group_bytes

    def _write(self) -> None:
        group, self._group, self._bytes = self._group, [], 0
        if not group:
            return
        if len(group) == 1:
            self._write_one(group[0])
            return
        hub = self._hub
        faults = hub.fault is not None
        if faults:
            hub.reached("writer.group")
        try:
            errors = self._put([write.commit for write in group])
        except StoreFull as error:
            errors = self._put_some(group, error)
        else:
            if hub.full is not None and None in errors:
                hub.full = None
        self.groups += 1
        self.commits += len(group)
        if faults:
            hub.reached("writer.synced")
        for write, failure in zip(group, errors, strict=True):
            if failure is None:
                write.cell.put(Acknowledged(write.commit.record.seq))
            else:
                write.cell.put(Refused(write.commit.record.seq, failure))
        if faults:
            hub.reached("writer.acknowledged")

    def _write_one(self, write: Write) -> None:
        """A group of one."""
        hub, commit = self._hub, write.commit
        faults = hub.fault is not None
        if faults:
            hub.reached("writer.group")
        try:
            failure = self._put([commit])[0]
        except StoreFull as error:
            hub.full = failure = error
        else:
            if hub.full is not None and failure is None:
                hub.full = None
        self.groups += 1
        self.commits += 1
        if faults:
            hub.reached("writer.synced")
        seq = commit.record.seq
        write.cell.put(Acknowledged(seq) if failure is None else Refused(seq, failure))
        if faults:
            hub.reached("writer.acknowledged")

    def _write_all(self, message: WriteAll) -> None:
        """A group of one thread: all of it becomes durable, or none."""
        commits, hub = message.commits, self._hub
        if self._is_stale(commits[-1]):
            return
        if hub.fault is not None:
            hub.reached("writer.group")
        try:
            errors = self._put(commits)
        except StoreFull as error:
            hub.full = error
            errors = [error]
        self.groups += 1
        self.commits += len(commits)
        if hub.fault is not None:
            hub.reached("writer.synced")
        seq = commits[-1].record.seq
        failure = next((error for error in errors if error is not None), None)
        message.cell.put(Acknowledged(seq) if failure is None else Refused(seq, failure))

    def _put(self, commits: list[Commit]) -> list[StoreError | None]:
        hub = self._hub
        store = hub.store
        if store.blocks:
            with self.system.blocking():
                return store.commit(hub.epoch, commits)
        return store.commit(hub.epoch, commits)

    def _put_some(self, group: list[Write], full: StoreFull) -> list[StoreError | None]:
        """There is no room for the whole group: put those for which there is."""
        self._hub.full = full
        errors: list[StoreError | None] = []
        for write in group:
            try:
                errors += self._put([write.commit])
            except StoreFull as error:
                errors.append(error)
        return errors

    def _syncing(self) -> AbstractContextManager[None]:
        return self.system.blocking() if self._hub.store.blocks else nullcontext()
