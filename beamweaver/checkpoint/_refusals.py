"""Why a commit alone is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.errors import InvalidCall, StoreConflict, StoreError
from beamweaver.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import Commit

__all__ = ["check_names", "conflict", "first_record", "lost_parent", "no_target", "unencodable"]


def check_names(commit: Commit) -> None:
    """See that a commit's run ids, and its idempotency key, can be keys of a store.

    Raises:
        ValueError: One is empty, too long, or not text.
    """
    if commit.key is not None:
        size, most = len(commit.key.row.key.encode()), DEFAULT_LIMITS.message_key_bytes
        if not 0 < size <= most:
            raise ValueError(f"an idempotency key has {size} bytes; give 1 to {most}")
    for name, _ in commit.run_names:
        size = len(name.encode())
        if not 0 < size <= DEFAULT_LIMITS.run_id_bytes:
            raise ValueError(
                f"run id {name!r} has {size} bytes; give 1 to {DEFAULT_LIMITS.run_id_bytes}"
            )


def unencodable(commit: Commit, error: Exception) -> StoreError:
    """The error of a commit that has no bytes."""
    return StoreError(
        f"record {commit.record.seq} of thread {commit.thread_id!r} cannot be encoded: {error}",
        thread_id=commit.thread_id,
        seq=commit.record.seq,
    )


def conflict(commit: Commit, next_seq: int) -> StoreConflict:
    """The error of a record that is not the next one."""
    return StoreConflict(
        f"record {commit.record.seq} of thread {commit.thread_id!r} is not the next one, which is "
        f"{next_seq}; it was not written. Load the thread again",
        thread_id=commit.thread_id,
        seq=commit.record.seq,
        next_seq=next_seq,
    )


def first_record(commit: Commit) -> StoreError:
    """The error of a first record that brings no row or no checkpoint."""
    return StoreError(
        f"the first record of thread {commit.thread_id!r} must bring the thread's row and a checkpoint",
        thread_id=commit.thread_id,
        seq=0,
    )


def lost_parent(commit: Commit, parent: int) -> StoreConflict:
    """The error of a checkpoint that follows one that is not there."""
    seq = commit.record.seq
    return StoreConflict(
        f"record {seq} of thread {commit.thread_id!r} follows checkpoint {parent}, which does not exist "
        "or was pruned; it was not written. Load the thread again",
        thread_id=commit.thread_id,
        seq=seq,
        parent=parent,
    )


def no_target(target: str, reason: str) -> InvalidCall:
    """The error of a copy that cannot be made."""
    return InvalidCall(
        f"a thread cannot be copied to {target!r}: {reason}. Give another id", thread_id=target
    )
