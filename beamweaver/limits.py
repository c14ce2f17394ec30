"""Everything that can grow, and how far.

A limit that is reached is said: by an error that names it, or by a warning in the log.

Example:
    >>> Limits(abandoned=8).abandoned
    8
"""

from __future__ import annotations

from math import isfinite
from typing import Final

import msgspec

__all__ = ["DEFAULT_LIMITS", "Limits"]


_MAY_BE_ZERO: Final = frozenset(
    {
        "metadata_bytes",
        "owner_deaths",
        "queued_calls",
        "rejected",
        "spool_aside",
        "spool_rejected",
        "threads_idle",
        "value_bytes_whole",
    }
)
"""What is of no use to some; of everything else none at all would hold up a runtime."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one runtime. Counts are numbers of things, sizes are bytes, times are seconds.

    Raises:
        ValueError: A bound is no number, or below 1; a few may be 0.
    """

    thread_id_bytes: int = 256
    """The longest thread id, in UTF-8 bytes."""
    run_id_bytes: int = 128
    """The longest run id, in UTF-8 bytes."""
    metadata_bytes: int = 4_096
    """How much a call's metadata and tags may have; they go into each checkpoint of the run."""
    run_names: int = 64
    """How many run ids one run may be known by; beyond it a call is refused."""
    sync_nodes_a_thread: int = 256
    """How many sync nodes of one thread exist as actors at once; the others wait."""
    queued_calls: int = 1_000
    """How many calls may wait behind a running thread."""
    inbox: int = 1_000
    """How many durable messages a thread keeps."""
    spool_messages: int = 10_000
    """How many messages of other processes may wait for the owner of a store."""
    spool_bytes: int = 256 << 20
    """How many bytes these have together."""
    spool_rejected: int = 1_000
    """How many of them that were rejected, and that no thread remembers, are kept for their senders."""
    spool_aside: int = 1_000
    """How many files that are no messages are kept aside."""
    message_keys: int = 10_000
    """How many idempotency keys a thread keeps; beyond it the oldest are forgotten before their time."""
    message_key_seconds: float = 7 * 86_400.0
    """How long an idempotency key is kept."""
    message_key_bytes: int = 200
    """The longest idempotency key, in UTF-8 bytes."""
    rejected: int = 100
    """How many messages that a thread could not take it remembers; the oldest go first."""
    threads_running: int = 10_000
    """How many thread actors a runtime holds at once with unfinished work; the others wait in the store."""
    threads_idle: int = 10_000
    """How many finished thread actors stay in memory; the oldest go first."""
    tasks_a_step: int = 100_000
    """How many tasks one step may have."""
    memos_a_task: int = 10_000
    """How many results of durable sub-steps one task may have."""
    memo_bytes_a_task: int = 64 << 20
    """How many bytes these take together."""
    call_depth: int = 32
    """How deep calls of graphs by functions may nest."""
    value_bytes_warn: int = 1 << 20
    """A stored value above this size is said once a node."""
    value_bytes: int = 64 << 20
    """A stored value above this size fails the node."""
    value_bytes_whole: int = 512
    """What a reducer made is stored whole in each step up to this size, above it as what was added."""
    value_depth: int = 200
    """How deep a stored value may nest."""
    group_commits: int = 512
    """How many commits one store transaction holds."""
    group_bytes: int = 16 << 20
    """How many bytes one store transaction holds, unless a single commit is larger."""
    ahead_commits: int = 64
    """How many commits of a thread may be on their way under `durability="async"`; then its steps wait."""
    ahead_bytes: int = 16 << 20
    """How many bytes these have, unless a single one is larger."""
    ahead_bytes_in_all: int = 256 << 20
    """How many bytes those of all threads have together; beyond it a thread has one commit on its way."""
    abandoned: int = 64
    """How many workers may be held by killed nodes that never returned."""
    full_versions_every: int = 64
    """After how many commits a checkpoint names the version of each channel again."""
    sleepers_held: int = 100_000
    """How many sleeping threads that are due soon are held in memory; the others stay in the store."""
    recovery_batch: int = 256
    """How many threads Recovery takes up before it looks again at what is due."""
    crashes_without_commit: int = 3
    """After how many crashes of a thread actor without a commit in between it is quarantined."""
    owner_deaths: int = 2
    """After how many deaths of its process without a commit a thread is a suspect."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value, least = getattr(self, name), 0 if name in _MAY_BE_ZERO else 1
            if name == "message_key_seconds":
                if type(value) not in (int, float) or not isfinite(value) or value <= 0:
                    raise ValueError(f"Limits {name} is {value!r}; give more than 0 seconds")
            elif type(value) is not int or value < least:
                raise ValueError(f"Limits {name} is {value!r}; give a whole number from {least} on")


DEFAULT_LIMITS = Limits()
