"""What is stored: the structs of a thread's records.

A thread is one ordered stream of records, numbered by `seq` from 0. A record either carries a
**checkpoint** (a committed step: what changed, and which tasks come next) or only **entries** (what
happened since, in the step that is not finished: results, failures, retries, questions, answers,
continuations), or both. Loading a thread is: find the newest record with a checkpoint, then fold the
records after it. A checkpoint supersedes the entry records before it; the commit that brings it
removes them. The structs of entries are in `entries`.

Beside the stream stands one `ThreadRow` (graph, status, the current run), rewritten only when a call
is admitted, when a run parks or ends, and when an owner takes the thread up.

All structs are arrays in msgpack, so a field is never removed or moved; new ones are appended with a
default. Values of channels are encoded by the codec before they come here; this module never looks
into them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from beamweaver.checkpoint.entries import Entry, SendRow, TaskRow, WriteRow  # noqa: TC001 - msgspec reads annotations

__all__ = [
    "CallRow",
    "Chain",
    "Checkpoint",
    "Commit",
    "DeltaRow",
    "HeadRow",
    "InboxMessage",
    "KeyPut",
    "MessageKey",
    "Move",
    "Record",
    "RejectedRow",
    "RunOptions",
    "RunRow",
    "ThreadImage",
    "ThreadRow",
    "ThreadSummary",
    "decode_call",
    "decode_record",
    "decode_thread",
    "encode_call",
    "encode_record",
    "encode_thread",
]


class DeltaRow(msgspec.Struct, array_like=True, frozen=True):
    """What a step added to a channel: `data` (see `beamweaver.checkpoint.deltas`) goes on top of the value
    of the record `base`, which is an older one.
    """

    base: int
    data: bytes


class Chain(msgspec.Struct, frozen=True):
    """How a channel's value is stored: its last snapshot and the deltas on it.

    A writer asks it whether the next change may be a delta, so that a load never reads much more than
    the value. A snapshot is due when the deltas exceed twice the bytes of the last one, or when they are
    more than 256 and more than two for each KiB of it: then all snapshots of an append-only channel are
    about 1.5 times its bytes at most, and one step of small deltas pays at most 512 bytes for them.

    Attributes:
        snapshot: Bytes of the last snapshot.
        deltas: Bytes of the deltas since.
        count: Number of the deltas since.

    Example:
        >>> chain = Chain(1_000)
        >>> chain.takes(900), chain.with_delta(900).with_delta(900).takes(900)
        (True, False)
    """

    snapshot: int
    deltas: int = 0
    count: int = 0

    def takes(self, size: int) -> bool:
        """Whether a delta of `size` bytes may follow; if not, a snapshot is due."""
        return self.deltas + size <= 2 * self.snapshot and (
            self.count < 256 or self.count < self.snapshot >> 9
        )

    def with_delta(self, size: int) -> Chain:
        """The chain with one more delta of `size` bytes."""
        return Chain(self.snapshot, self.deltas + size, self.count + 1)


class Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    """A committed step.

    Attributes:
        step: Its number; never used twice in a branch.
        source: `"input"` for an admission, `"restart"` for one in place of an unfinished run, `"loop"` for a
            step, `"update"` for a caller's edit, `"fork"` for the first checkpoint of a branch that changes
            nothing, `"migrate"` where another version of the graph took the thread over, with what is pending
            as entries of the same record; `"pruned"` for the rest of a checkpoint that was removed (it is
            no checkpoint any more): values that others need, or only that it followed one that stays.
        branch: The branch's id. The first checkpoint of a fork has a new one, and an older `parent`.
        parent: The `seq` of the checkpoint before it, or -1. That one may have been pruned since.
        writes: Each channel that changed and its encoded value.
        versions: Channel -> `seq` of the record that holds its value, for all channels; None means: as
            in the checkpoint `parent`, with the channels of `writes` and `deltas` at this `seq`.
        tasks: The tasks of the next step; empty when the run is complete.
        next_step: The number of the next step.
        joins: Join -> sources that arrived.
        executed: Steps executed since the last caller's call.
        run_id: The first name of the run that it belongs to.
        deltas: Each channel of which only the change is stored. No channel is in `writes` and `deltas`.
        spent: Guarded edge -> how often the run took it, for each that has a budget.
        deferred: Tasks that wait until the plan has no others.
        warnings: What was noted when the run ended with this checkpoint.
        metadata: What the run's callers noted, each value encoded.
        parent_branch: The branch of `parent`, where it is another one.
        nodes: As which nodes a caller edited, or which ran before a migration; for a step, its nodes are the
            tasks of its parent.
        version: The version of the graph that wrote it and what follows it; 0: that of the thread's row.
    """

    step: int
    source: str
    branch: str
    parent: int
    writes: dict[str, bytes]
    versions: dict[str, int] | None
    tasks: tuple[TaskRow, ...]
    next_step: int
    joins: dict[str, tuple[str, ...]]
    executed: int
    run_id: str
    deltas: dict[str, DeltaRow] = {}
    spent: dict[str, int] = {}
    deferred: tuple[TaskRow, ...] = ()
    warnings: tuple[str, ...] = ()
    metadata: dict[str, bytes] = {}
    parent_branch: str = ""
    nodes: tuple[str, ...] = ()
    version: int = 0


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One record of a thread's stream; `at_us` is UTC in microseconds, for people, never for order."""

    seq: int
    epoch: int
    at_us: int
    checkpoint: Checkpoint | None = None
    entries: tuple[Entry, ...] = ()


StatusName: TypeAlias = Literal[
    "accepted",
    "running",
    "sleeping",
    "waiting",
    "failed",
    "cancelled",
    "drained",
    "quarantined",
    "complete",
]


class RunOptions(msgspec.Struct, array_like=True, frozen=True):
    """What a call gives in place of the graph's own, beside `recursion_limit`.

    Attributes:
        run_timeout: Seconds for the run, or None for the graph's own.
        step_timeout: Seconds for a step, or None for the graph's own.
        failure_policy: `"proceed"`, `"panic"`, or `""` for the graph's own.
        max_concurrency: Tasks of a step at once, or 0 for the graph's own.
        metadata: What the caller notes, each value encoded.
        interrupt_before: Nodes before which the run stops, `("*",)` for all; None for the graph's own.
        interrupt_after: The same for nodes after which it stops.
        durability: `"sync"`, `"async"`, `"exit"`, or `""` for `"sync"`.
    """

    run_timeout: float | None = None
    step_timeout: float | None = None
    failure_policy: str = ""
    max_concurrency: int = 0
    metadata: dict[str, bytes] = {}
    interrupt_before: tuple[str, ...] | None = None
    interrupt_after: tuple[str, ...] | None = None
    durability: str = ""


class RunRow(msgspec.Struct, array_like=True, frozen=True):
    """The current run of a thread.

    Attributes:
        number: Counts the thread's runs from 1.
        names: Every run id that was admitted to it, the first one first.
        digest: Digest of the canonical encoding of its last input.
        claimed_epoch: Store epoch in which a caller last admitted, joined or continued it.
        taken_up_epoch: Store epoch of the last take-up of the run by an owner that did not admit it.
        deaths: How many owners died over it without a commit in between.
        deaths_seq: The `seq` at which `deaths` was counted; a later checkpoint makes it 0.
        recursion_limit: The limit that the last call gave, or 0 for the graph's own.
        started_us: When it was admitted (UTC microseconds).
        answered: Ids of questions answered in this run.
        options: What the last call gave; None if nothing.
        due_us: While it sleeps: when the first of its tasks is due (UTC microseconds).
        delay: How long that task sleeps in all, in seconds.
        used_us: How long it had executed since the caller's last call when it last fell asleep.
        place: Digest of the last call that named a checkpoint: where it began, and what it asked.
        promised: The encoded answer to the one question that this run is going to ask.
    """

    number: int
    names: tuple[str, ...]
    digest: bytes
    claimed_epoch: int
    taken_up_epoch: int = 0
    deaths: int = 0
    deaths_seq: int = -1
    recursion_limit: int = 0
    started_us: int = 0
    answered: tuple[str, ...] = ()
    options: RunOptions | None = None
    due_us: int = 0
    delay: float = 0.0
    used_us: int = 0
    place: bytes = b""
    promised: bytes | None = None


class RejectedRow(msgspec.Struct, array_like=True, frozen=True):
    """A durable message that the thread could not take when its turn came; `at_us` is UTC in microseconds."""

    id: str
    kind: str
    run_id: str
    code: str
    message: str
    at_us: int


class ThreadRow(msgspec.Struct, array_like=True, frozen=True):
    """The row of a thread: who began it, how it stands, its current run.

    `runs` is the highest number of its runs, where that is not the current one's. `rejected` are the last
    messages that it could not take, the oldest first.
    """

    thread_id: str
    graph: str
    version: int
    fingerprint: str
    branch: str
    status: StatusName
    run: RunRow
    created_us: int
    reason: str = ""
    runs: int = 0
    rejected: tuple[RejectedRow, ...] = ()

    @property
    def last_run(self) -> int:
        """The highest number of its runs."""
        return max(self.runs, self.run.number)


class Move(msgspec.Struct, array_like=True, frozen=True):
    """The head was moved: records from `at` on follow the checkpoint `target`, up to the next checkpoint.

    `tip` tells whether `target` was the last checkpoint of its branch.
    """

    at: int
    target: int
    tip: bool


class HeadRow(msgspec.Struct, array_like=True, frozen=True):
    """What the records of a thread do not tell of its head; most threads have none.

    Attributes:
        moves: Where the head was moved, the oldest first; those whose entries are gone are left out.
        floor: The next `seq` is at least this, though newer records were pruned.
    """

    moves: tuple[Move, ...] = ()
    floor: int = 0


class CallRow(msgspec.Struct, array_like=True, frozen=True):
    """A told call, as the inbox keeps it: what `payload` of an `InboxMessage` decodes to.

    `answers` is a map from question id to encoded answer; the key `""` is an answer without an id.
    """

    kind: str
    run_id: str
    named: bool
    recursion_limit: int
    has_input: bool
    digest: bytes
    writes: tuple[WriteRow, ...] = ()
    goto: tuple[str, ...] | None = None
    sends: tuple[SendRow, ...] = ()
    answers: dict[str, bytes] | None = None
    on_unfinished: str = "continue"
    on_busy: str = "queue"
    options: RunOptions | None = None
    rerun: tuple[str, ...] = ()
    checkpoint: str | None = None
    fork: bool = False
    place: bytes = b""


class InboxMessage(msgspec.Struct, array_like=True, frozen=True):
    """A durable message that waits for its turn: `number` is its place in the order of arrival."""

    number: int
    id: str
    kind: str
    run_id: str
    payload: bytes


class MessageKey(msgspec.Struct, array_like=True, frozen=True):
    """An idempotency key that a thread has seen, with the receipt of the message that brought it first.

    `digest` is of what that message asked; `at_us` is UTC in microseconds.
    """

    key: str
    id: str
    run_id: str
    digest: bytes
    at_us: int


class KeyPut(msgspec.Struct, frozen=True):
    """A key to keep, and which older ones of its thread may go.

    Attributes:
        row: The key; it takes the place of one of the same name.
        before_us: Those kept before this (UTC microseconds) go.
        most: How many stay; the oldest go.
    """

    row: MessageKey
    before_us: int
    most: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One atomic write of one thread: what the engine hands to the store.

    Attributes:
        thread_id: The thread.
        incarnation: Of the actor that wrote it; an older one than the writer knows is stale.
        record: The record, numbered with the thread's next `seq`.
        clears: The `seq`s of entry records that the record's checkpoint supersedes.
        thread: The thread's new row, where it changed.
        run_names: Run ids to index: name -> run number.
        run_ended: `(run number, seq of its last checkpoint)` when the run is complete.
        inbox_put: Messages to keep.
        inbox_drop: Numbers of messages that this record consumes.
        key: The idempotency key of the message that it is about.
    """

    thread_id: str
    incarnation: int
    record: Record
    clears: tuple[int, ...] = ()
    thread: ThreadRow | None = None
    run_names: tuple[tuple[str, int], ...] = ()
    run_ended: tuple[int, int] | None = None
    inbox_put: tuple[InboxMessage, ...] = ()
    inbox_drop: tuple[int, ...] = ()
    key: KeyPut | None = None


class ThreadImage(msgspec.Struct, frozen=True, kw_only=True):
    """All that a store has of the head of a thread, ready to be folded.

    Attributes:
        row: The thread's row.
        checkpoint: The record that holds the newest checkpoint.
        values: Channel -> encoded value at that checkpoint.
        versions: Channel -> `seq` of the record that holds it.
        since_full: How many checkpoints follow the last one with a full `versions`.
        entries: The entry records after the checkpoint, oldest first.
        next_seq: The number of the thread's next record.
        inbox: The messages that wait, oldest first.
        chains: Channel -> how it is stored, for each channel; its next change may be a delta if the
            chain takes it.
        tip: Whether this is the last checkpoint of its branch; if not, what goes on from here must begin a
            new branch.
    """

    row: ThreadRow
    checkpoint: Record
    values: dict[str, bytes]
    versions: dict[str, int]
    since_full: int
    entries: tuple[Record, ...]
    next_seq: int
    inbox: tuple[InboxMessage, ...] = ()
    chains: dict[str, Chain] = {}
    tip: bool = True


class ThreadSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a listing."""

    thread_id: str
    graph: str
    status: StatusName
    run: RunRow


_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(Record)
_thread_decoder = msgspec.msgpack.Decoder(ThreadRow)
_call_decoder = msgspec.msgpack.Decoder(CallRow)


def encode_record(record: Record) -> bytes:
    """A record as msgpack bytes.

    Example:
        >>> record = Record(seq=0, epoch=1, at_us=0)
        >>> decode_record(encode_record(record)) == record
        True
    """
    return _encoder.encode(record)


def decode_record(data: bytes | memoryview) -> Record:
    """A record from its bytes.

    Raises:
        msgspec.DecodeError: They are no record.
    """
    return _record_decoder.decode(data)


def encode_thread(row: ThreadRow) -> bytes:
    """A thread's row as msgpack bytes."""
    return _encoder.encode(row)


def decode_thread(data: bytes | memoryview) -> ThreadRow:
    """A thread's row from its bytes.

    Raises:
        msgspec.DecodeError: They are no row.
    """
    return _thread_decoder.decode(data)


def encode_call(row: CallRow) -> bytes:
    """A told call as msgpack bytes."""
    return _encoder.encode(row)


def decode_call(data: bytes | memoryview) -> CallRow:
    """A told call from its bytes.

    Raises:
        msgspec.DecodeError: They are none.
    """
    return _call_decoder.decode(data)
