"""Moving the head of a thread: what its row says from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beamweaver.checkpoint.records import RunRow
from beamweaver.engine.fold import fold, parked_status
from beamweaver.engine.refusals import no_checkpoint, quarantined
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.reading import ReadEnv, is_checkpoint, seq_of

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import ThreadImage, ThreadRow
    from beamweaver.engine.state import RunState
    from beamweaver.runtime.hub import Hub

__all__ = ["move_head"]


def move_head(hub: Hub, store: Checkpointer, epoch: int, row: ThreadRow, checkpoint: str) -> bool:
    """Move the head; called by the checkpoint writer.

    Raises:
        InvalidCall: There is no such checkpoint.
        Quarantined: The thread is set aside.
        UnknownGraph: The runtime lacks its graph.
    """
    thread_id = row.thread_id
    reason = hub.quarantined.get(thread_id)
    if row.status == "quarantined" or reason is not None:
        raise quarantined(thread_id, reason or row.reason)
    seq = seq_of(checkpoint)
    image = store.load(thread_id, seq, entries=True)
    if seq is None or image is None or not is_checkpoint(image, checkpoint):
        raise no_checkpoint(thread_id, checkpoint)
    head = store.load(thread_id)
    if head is not None and head.checkpoint.seq == seq:
        return True
    graph = hub.graph(row.graph)
    tip = image.tip
    state = fold(image, ReadEnv(hub.codec, GraphCodec(hub.codec, graph), old=True), raw=not tip)
    status = parked_status(state, "cancelled")
    moved = msgspec.structs.replace(
        row,
        branch=state.branch,
        status=status,
        reason="moved" if status == "cancelled" else "",
        run=_run_of(store, image, state, row, epoch) if tip else _nobodys_run(hub, image, epoch),
        runs=row.last_run,
    )
    return store.set_head(epoch, thread_id, seq, moved)


def _run_of(
    store: Checkpointer, image: ThreadImage, state: RunState, row: ThreadRow, epoch: int
) -> RunRow:
    """The run that ends at the last checkpoint of a branch."""
    checkpoint = image.checkpoint.checkpoint
    assert checkpoint is not None, "an image begins at a checkpoint"
    if checkpoint.run_id in row.run.names:
        return row.run
    asked = [
        q.id for task in state.step.tasks for q in task.questions or () if q.answer is not None
    ]
    return RunRow(
        number=store.run_number(row.thread_id, checkpoint.run_id) or 0,
        names=(checkpoint.run_id,),
        digest=b"",
        claimed_epoch=epoch,
        started_us=image.checkpoint.at_us,
        answered=tuple(asked),
    )


def _nobodys_run(hub: Hub, image: ThreadImage, epoch: int) -> RunRow:
    """Amid a branch: its run went on from there, and what that run's id names stays as it is."""
    return RunRow(0, (hub.new_id(),), b"", epoch, started_us=image.checkpoint.at_us)
