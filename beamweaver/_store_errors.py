"""The errors of stores; users find them in `beamweaver.errors`."""

from __future__ import annotations

from beamweaver._error_base import BeamWeaverError

__all__ = [
    "CorruptRecord",
    "NotAStore",
    "OwnershipLost",
    "StoreBroken",
    "StoreConflict",
    "StoreDiffers",
    "StoreError",
    "StoreFull",
    "StoreOptionsDiffer",
    "StoreOwned",
    "StoreTooNew",
    "StoreUnavailable",
    "TakeoverBlocked",
]


class StoreError(BeamWeaverError):
    """The store could not do what was asked."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The path cannot be opened or written."""

    code = "store_unavailable"


class NotAStore(StoreError):
    """The path holds something that BeamWeaver did not write."""

    code = "not_a_store"


class StoreTooNew(StoreError):
    """The store was written by a newer version of BeamWeaver."""

    code = "store_too_new"


class StoreOwned(StoreError):
    """Another process or runtime owns the store: `.pid`, `.host`, `.since` (UTC seconds)."""

    code = "store_owned"
    pid: int
    host: str
    since: float


class TakeoverBlocked(StoreError):
    """A forced takeover waits for a write of the old owner, which stands still: `.pid`, `.host`."""

    code = "takeover_blocked"
    pid: int
    host: str


class OwnershipLost(StoreError):
    """Another owner took the store or thread; this write was refused as a whole."""

    code = "ownership_lost"


class StoreConflict(StoreError):
    """A record's sequence number is not the thread's next one; nothing was written."""

    code = "store_conflict"


class StoreDiffers(StoreError):
    """A graph bound to one store was given to a runtime of another."""

    code = "store_differs"


class StoreOptionsDiffer(StoreError):
    """One path was opened with two different sets of options in one process."""

    code = "store_options_differ"


class StoreFull(StoreError):
    """The disk or the store's own limit is full."""

    code = "store_full"


class StoreBroken(StoreError):
    """What is on the disk is unknown, as a sync failed, or a full disk refused the page that names the newest
    commit. The runtime ends; it is never retried.
    """

    code = "store_broken"


class CorruptRecord(StoreError):
    """A stored record fails its checksum or cannot be decoded; `.key` names it."""

    code = "corrupt_record"
