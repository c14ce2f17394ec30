"""A small store with at least one of every kind of record: it is damaged, and kept as data."""

from __future__ import annotations

from beamweaver.checkpoint import Codec, LMDBCheckpointer
from beamweaver.checkpoint._layout import FORMAT_VERSION
from beamweaver.checkpoint._pages import Node, PageFile, Walk
from beamweaver.checkpoint.conformance._values import EVERY
from beamweaver.checkpoint.deltas import appended, join
from beamweaver.checkpoint.entries import (
    Answered,
    Asked,
    Continued,
    Edited,
    Failing,
    FailureRow,
    Finished,
    Handled,
    Inner,
    Left,
    Memo,
    MergeFailed,
    Paused,
    Retrying,
    SendRow,
    Slept,
    StepFailed,
    TaskFailed,
    TaskRow,
)
from beamweaver.checkpoint.records import DeltaRow, KeyPut, MessageKey, Record, encode_record
from tests.checkpoint.kit import Commit, entry, message, run_row, step, thread_row

CODEC = Codec()
FAILURE = FailureRow("node_failed", "ValueError", "no", "Traceback")
ENTRIES = (
    Finished(0, (("n", b"\x01", True),), ("a", "b"), (SendRow("a", {"n": b"\x02"}, 1.5),)),
    TaskFailed(1, 2, FAILURE),
    Retrying(2, 1, 5_000_000, 0.5, FAILURE, 1),
    Asked(3, 0, None, b"\xa1q", "int_1"),
    Answered(3, 0, "key", b"\xa1a", "int_1"),
    Continued("again", (("n", b"\x03", False),), ("a",)),
    MergeFailed(FAILURE, "a"),
    StepFailed(FAILURE, (0, 1)),
)

_INNER = encode_record(step("inside", 0, writes={"n": b"\x05"}).record)
KINDS = (
    *ENTRIES,
    Memo(0, "fetch", 0, None, b"digest", b"\x05"),
    Slept(1, 0, None, 2_000_000_000_000_000, 60.0),
    Inner(2, _INNER, "call", ("n",)),
    Edited(-1, (("n", b"\x06", False),), ("a",)),
    Paused(("a",), ("b",)),
    Handled(0, 3, FAILURE, 7),
    Failing(FAILURE),
    Left(2, 4, {"n": b"\x07"}, (("n", b"\x08", True),), "call", _INNER, True, (Left(0, 1, {}),)),
)
"""An entry of each kind."""


def fill_kinds(store):
    """Write an entry of each kind, and the key of a message, into an empty store; it is left closed."""
    epoch = store.acquire()
    key = KeyPut(MessageKey("told once", "m1", "r", b"digest", 1), 0, 10)
    commits = [
        step("kinds", 0),
        Commit(
            thread_id="kinds", incarnation=1, record=Record(1, epoch, 1, entries=KINDS), key=key
        ),
    ]
    assert store.commit(epoch, commits) == [None, None]
    store.close()


def fill(store, version=FORMAT_VERSION):
    """Write every kind of record that a format has into an empty store; it is left closed."""
    epoch = store.acquire()
    every = {name: CODEC.encode(value) for name, value in EVERY.items()}
    log = [
        step("log", 0, writes={"log": CODEC.encode([0]), "still": CODEC.encode("still")}),
        *[
            step("log", seq, writes={}, deltas={"log": DeltaRow(seq - 1, _added(seq))})
            for seq in range(1, 80)
        ],
        Commit(thread_id="log", incarnation=1, record=Record(80, epoch, 80, entries=ENTRIES)),
        step("log", 81, parent=40, branch="fork", writes={"n": CODEC.encode(81)}),
        entry("log", 82, inbox_put=(message(1), message(300))),
    ]
    tasks = (TaskRow("a", "source", 1, {"n": b"\x04"}, 2.5, "id"), TaskRow("b"))
    commits = [
        step("every", 0, writes=every, run_names=(("r", 1), ("alias", 1)), run_ended=(1, 0)),
        step("every", 1, tasks=tasks, thread=thread_row("every", "waiting", run=run_row(2))),
        step("gone", 0),
        step("large", 0, writes={"text": CODEC.encode("text " * 3_000)}),
        *[step(f"thread {number:03}", 0) for number in range(150)],
        *log,
        *(_since_2() if version >= 2 else ()),
    ]
    assert store.commit(epoch, commits) == [None] * len(commits)
    store.set_head(epoch, "log", 79)
    store.copy_thread(epoch, "log", "pruned")
    list(store.prune(epoch, ["pruned"], keep_last=1))
    store.delete_thread(epoch, "gone")
    store.close()


def _since_2():
    run = run_row(due_us=2_000_000_000_000_000, delay=60.0)
    yield step("asleep", 0, thread=thread_row("asleep", "sleeping", run=run), at_us=1_000_000_000)


def _added(seq):
    return join([appended(CODEC.encode([seq]))])


def full(path, version=FORMAT_VERSION):
    """A store of every kind of record that a format has, closed."""
    store = LMDBCheckpointer(path, survives="process-kill", compress_above=2_000)
    fill(store, version)
    return path


def pairs_of(path):
    """All keys and values of a closed store, as its pages say."""
    return _walked(path)[0]


def used_pages(path):
    """The numbers of the pages that hold the content of a closed store."""
    return _walked(path)[1]


def _walked(path):
    file = PageFile(path / "data.mdb")
    metas = [file.meta(number) for number in (0, 1)]
    newest = max((meta for meta in metas if not isinstance(meta, str)), key=lambda m: m.txnid)
    walk = Walk(file, newest.main, bytes)
    try:
        found = [(item.key, item.value) for item in walk.items() if isinstance(item, Node)]
        return found, sorted(walk.pages)
    finally:
        file.close()
