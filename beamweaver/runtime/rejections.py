"""Messages that were durable and could not be taken."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING

from beamweaver.runtime.letters import NoLetter, Refusal, open_refusal
from beamweaver.runtime.lookup import row_of
from beamweaver.runtime.spool import Spool
from beamweaver.types import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import RejectedRow
    from beamweaver.limits import Limits

__all__ = ["read_rejected", "rejected_rows"]


def read_rejected(store: Checkpointer, thread_id: str, limits: Limits) -> tuple[Rejected, ...]:
    """What a thread could not take, the oldest first; of a thread that does not exist, what other processes
    sent to it.
    """
    refused = list(_refused(store, thread_id, limits))  # first: it may be the thread's next
    kept = rejected_rows(store, thread_id)
    known = {row.id for row in kept}
    rows = [*kept, *(row for row in refused if row.id not in known)]
    return tuple(
        Rejected(
            id=row.id,
            kind=row.kind,
            run_id=row.run_id,
            code=row.code,
            message=row.message,
            at=dt.datetime.fromtimestamp(row.at_us / 1_000_000, dt.UTC),
        )
        for row in sorted(rows, key=lambda row: row.at_us)
    )


def rejected_rows(store: Checkpointer, thread_id: str) -> tuple[RejectedRow, ...]:
    """What the thread itself remembers."""
    row = row_of(store, thread_id)
    return () if row is None else row.rejected


def _refused(store: Checkpointer, thread_id: str, limits: Limits) -> Iterator[RejectedRow]:
    if store.spool is None:
        return
    spool = Spool(store.spool, limits, sync=False, reached=lambda _point: None)
    for data in spool.refusals():
        with suppress(NoLetter):
            refusal: Refusal = open_refusal(data)
            if refusal.thread_id == thread_id:
                yield refusal.row
