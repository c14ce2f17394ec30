"""A random history of calls has the same answers from LMDB as from the memory store."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.checkpoint.records import StatusName
from beamweaver.errors import StoreError
from tests.checkpoint.kit import Boom, codes, entry, failing_at, message, run_row, step, thread_row

THREADS = ("a", "ab", "b\x01", "é" * 10)
STATUSES = get_args(StatusName)
names = st.sampled_from(THREADS)


class Stores(RuleBasedStateMachine):
    """Two stores, driven alike. The model of what is next in each thread steers the commits."""

    @initialize(survives=st.sampled_from(["process-kill", "process-kill", "power-loss"]))
    def open_both(self, survives):
        self.folder = Path(tempfile.mkdtemp())
        self.disk = LMDBCheckpointer(self.folder / "s", survives=survives)
        self.memory = MemoryCheckpointer()
        self.survives = survives
        self.epoch = self.disk.acquire()
        assert self.memory.acquire() == self.epoch
        self.known: dict[str, tuple[int, int]] = {}  # thread: its next seq and its last checkpoint

    def both(self, call):
        """The answer of both stores to a call, or the code of the error that both raise."""
        answers = []
        for store in (self.disk, self.memory):
            try:
                answers.append(call(store))
            except StoreError as error:
                answers.append(error.code)
        assert answers[0] == answers[1]
        return answers[0]

    def one(self, data, name):
        """A commit of a thread that is right, or has one thing wrong."""
        next_seq, parent = self.known.get(name, (0, -1))
        seq = next_seq + data.draw(
            st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]), label="seq is off by"
        )
        seq = max(seq, 0)
        extra = {}
        if data.draw(st.booleans(), label="row"):
            status = data.draw(st.sampled_from(STATUSES), label="status")
            extra["thread"] = thread_row(name, status, run=run_row(seq + 1))
        if data.draw(st.integers(0, 3), label="names") == 0:
            extra["run_names"] = ((data.draw(st.sampled_from(["r", "s", ""])), seq),)
        if data.draw(st.integers(0, 3), label="ended") == 0:
            extra["run_ended"] = (data.draw(st.integers(0, 3)), seq)
        if data.draw(st.integers(0, 2), label="inbox") == 0:
            extra["inbox_put"] = (message(data.draw(st.integers(0, 5)), b"%d" % seq),)
            extra["inbox_drop"] = (data.draw(st.integers(0, 5)),)
        if next_seq and data.draw(st.booleans(), label="entry"):
            return entry(name, seq, **extra), parent
        writes = dict.fromkeys(
            data.draw(st.sets(st.sampled_from("xyz")), label="writes"), b"%d" % seq
        )
        clears = tuple(range(parent + 1, next_seq))
        return step(name, seq, parent=parent, writes=writes, clears=clears, **extra), seq

    @rule(data=st.data(), group=st.lists(names, max_size=4), stale=st.integers(0, 9))
    def commit(self, data, group, stale):
        commits, after = [], dict(self.known)
        before, self.known = self.known, after
        for name in group:
            made, parent = self.one(data, name)
            commits.append(made)
            if made.record.seq == after.get(name, (0, -1))[0] and "" not in dict(made.run_names):
                after[name] = (made.record.seq + 1, parent)
        epoch = self.epoch - (stale == 0)
        results = self.both(lambda store: codes(store.commit(epoch, commits)))
        if not isinstance(results, list):
            self.known = before

    @rule(data=st.data(), group=st.lists(names, min_size=1, max_size=3, unique=True))
    def fail(self, data, group):
        point = data.draw(st.sampled_from(["put.before", "put.after", "sync.before"]))
        commits = [self.one(data, name)[0] for name in group]
        outcomes = []
        for store in (self.disk, self.memory):
            store.faults = failing_at(point)
            try:
                outcomes.append(codes(store.commit(self.epoch, commits)))
            except Boom:
                outcomes.append("boom")
            finally:
                store.faults = lambda _point: None
        assert outcomes[0] == outcomes[1]
        assert outcomes[0] == "boom" or None not in outcomes[0]

    @rule(name=names)
    def delete(self, name):
        self.both(lambda store: store.delete_thread(self.epoch, name))
        self.known.pop(name, None)

    @rule(closing=st.booleans())
    def change_owner(self, closing):
        for store in (self.disk, self.memory):
            store.close() if closing else store.release()
        self.epoch = self.both(lambda store: store.acquire())

    @rule(name=names, seq=st.integers(-1, 12), run=st.integers(0, 3))
    def look(self, name, seq, run):
        self.both(lambda store: store.load(name, seq))
        self.both(lambda store: store.run_end(name, run))
        for run_id in ("r", "s", ""):
            self.both(lambda store, run_id=run_id: store.run_number(name, run_id))

    @rule(
        statuses=st.sets(st.sampled_from(STATUSES)),
        limit=st.integers(0, 5),
        after=st.sampled_from(["", *THREADS]),
    )
    def page(self, statuses, limit, after):
        after = after if len(statuses) == 1 else ""
        self.both(lambda store: list(store.threads(statuses=statuses, after=after, limit=limit)))

    @invariant()
    def heads_are_equal(self):
        if not hasattr(self, "disk"):
            return
        for name in THREADS:
            image = self.both(lambda store, name=name: store.load(name))
            assert (0 if image is None else image.next_seq) == self.known.get(name, (0, -1))[0]
        self.both(lambda store: list(store.threads()))

    def teardown(self):
        with contextlib.suppress(AttributeError):
            self.disk.close()
            shutil.rmtree(self.folder)


Stores.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
TestStores = pytest.mark.slow(Stores.TestCase)
