"""A random history of calls has the same answers from LMDB as from the memory store, and as a plain model
says: each checkpoint that is left has the values that were committed, on every branch, after any pruning.
"""

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
from beamweaver.checkpoint.deltas import in_parts
from beamweaver.checkpoint.records import DeltaRow, KeyPut, MessageKey, StatusName
from beamweaver.errors import CallRefused, StoreError
from tests.checkpoint.kit import Boom, codes, entry, failing_at, message, run_row, step, thread_row

THREADS = ("a", "ab", "é\x01")
STATUSES = get_args(StatusName)
names = st.sampled_from(THREADS)


class Model:
    """What is known of one thread."""

    def __init__(self):
        self.next_seq = 0
        self.head = -1
        self.tip = True
        """Whether records without a checkpoint may follow the head: amid a branch a checkpoint must."""
        self.parts: dict[int, dict[str, list[bytes]]] = {}
        self.versions: dict[int, dict[str, int]] = {}
        self.entries: dict[int, list[int]] = {}

    def copy(self):
        other = Model()
        other.next_seq, other.head, other.tip = self.next_seq, self.head, self.tip
        other.parts, other.versions = dict(self.parts), dict(self.versions)
        other.entries = {base: list(seqs) for base, seqs in self.entries.items()}
        return other

    def take(self, commit):
        record = commit.record
        self.next_seq = record.seq + 1
        if record.checkpoint is None:
            self.entries[self.head].append(record.seq)
            return
        checkpoint, seq = record.checkpoint, record.seq
        parts = dict(self.parts.get(checkpoint.parent, {}))
        versions = dict(self.versions.get(checkpoint.parent, {}))
        for name, data in checkpoint.writes.items():
            parts[name], versions[name] = [data], seq
        for name, delta in checkpoint.deltas.items():
            parts[name], versions[name] = [*parts[name], delta.data], seq
        self.parts[seq], self.versions[seq], self.entries[seq] = parts, versions, []
        for own in self.entries.values():
            own[:] = [number for number in own if number not in commit.clears]
        self.head, self.tip = seq, True

    def values(self, seq):
        return {name: in_parts(first, rest) for name, (first, *rest) in self.parts[seq].items()}

    def keep(self, seqs):
        for known in (self.parts, self.versions, self.entries):
            for seq in [seq for seq in known if seq not in seqs]:
                del known[seq]


class Stores(RuleBasedStateMachine):
    """Two stores, driven alike. The model of each thread steers the commits."""

    @initialize(survives=st.sampled_from(["process-kill", "process-kill", "power-loss"]))
    def open_both(self, survives):
        self.folder = Path(tempfile.mkdtemp())
        self.disk = LMDBCheckpointer(self.folder / "s", survives=survives)
        self.memory = MemoryCheckpointer()
        self.epoch = self.disk.acquire()
        assert self.memory.acquire() == self.epoch
        self.known: dict[str, Model] = {}

    def both(self, call):
        """The answer of both stores to a call, or the code of the error that both raise."""
        answers = []
        for store in (self.disk, self.memory):
            try:
                answers.append(call(store))
            except (StoreError, CallRefused) as error:
                answers.append(error.code)
        assert answers[0] == answers[1]
        return answers[0]

    def one(self, data, name, model):
        """A commit of a thread that is right, or has one thing wrong."""
        seq = model.next_seq + data.draw(
            st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]), label="seq is off by"
        )
        seq = max(seq, 0)
        extra = {}
        if data.draw(st.booleans(), label="row"):
            status = data.draw(st.sampled_from(STATUSES), label="status")
            extra["thread"] = thread_row(name, status, run=run_row(seq + 1))
        if data.draw(st.integers(0, 3), label="names") == 0:
            alias = data.draw(st.sampled_from(["r", "s", ""]), label="alias")
            extra["run_names"] = ((f"run-{seq % 3}", seq % 3), (alias, seq % 3))
        if data.draw(st.integers(0, 3), label="ended") == 0:
            extra["run_ended"] = (data.draw(st.integers(0, 3)), seq)
        if data.draw(st.integers(0, 2), label="inbox") == 0:
            extra["inbox_put"] = (message(data.draw(st.integers(0, 5)), b"%d" % seq),)
            extra["inbox_drop"] = (data.draw(st.integers(0, 5)),)
        if data.draw(st.integers(0, 1), label="key") == 0:
            row = MessageKey(f"k{seq}", f"m{seq}", "r", b"", seq)
            before = data.draw(st.integers(0, 8), label="keys before")
            extra["key"] = KeyPut(row, before, data.draw(st.integers(1, 4), label="most keys"))
        if model.next_seq and model.tip and data.draw(st.booleans(), label="entry"):
            return entry(name, seq, **extra)
        return self.checkpoint(data, name, seq, model, extra)

    def checkpoint(self, data, name, seq, model, extra):
        parent = model.head
        extra["clears"] = tuple(model.entries.get(parent, ()))
        if parent >= 0 and data.draw(st.integers(0, 4), label="fork") == 0:
            parent = data.draw(st.sampled_from(sorted(model.parts)), label="parent")
            extra["branch"], extra["clears"] = f"b{seq}", ()
        changed = data.draw(st.sets(st.sampled_from("xyz")), label="writes")
        versions = model.versions.get(parent, {})
        grown = {c for c in changed if c in versions and data.draw(st.booleans(), label="delta")}
        extra["writes"] = dict.fromkeys(changed - grown, b"%d" % seq)
        extra["deltas"] = {c: DeltaRow(versions[c], b"+%d" % seq) for c in grown}
        if data.draw(st.integers(0, 3), label="full") == 0:
            extra["versions"] = {**versions, **dict.fromkeys(changed, seq)}
        extra["run_id"] = f"run-{seq % 3}"
        return step(name, seq, parent=parent, at_us=seq * 1_000_000, **extra)

    @rule(data=st.data(), group=st.lists(names, max_size=4), stale=st.integers(0, 9))
    def commit(self, data, group, stale):
        commits, models = [], {name: model.copy() for name, model in self.known.items()}
        for name in group:
            model = models.setdefault(name, Model())
            made = self.one(data, name, model)
            commits.append(made)
            right = made.record.seq == model.next_seq and "" not in dict(made.run_names)
            if right and (made.thread is not None or made.record.seq):
                model.take(made)
        results = self.both(lambda store: codes(store.commit(self.epoch - (stale == 0), commits)))
        if isinstance(results, list):
            self.known = {name: model for name, model in models.items() if model.next_seq}

    @rule(data=st.data(), name=names, count=st.integers(2, 6))
    def grow(self, data, name, count):
        """Some commits that are right, so that there is something to fork, move and prune."""
        model = self.known.setdefault(name, Model())
        for _ in range(count):
            seq = model.next_seq
            more = {"run_names": ((f"run-{seq % 3}", seq % 3),)}
            if seq and model.tip and data.draw(st.integers(0, 2), label="entry") == 0:
                made = entry(name, seq, **more)
            else:
                made = self.checkpoint(data, name, seq, model, more)
            assert self.both(lambda store, made=made: store.commit(self.epoch, [made])) == [None]
            model.take(made)

    @rule(data=st.data(), group=st.lists(names, min_size=1, max_size=3, unique=True))
    def fail(self, data, group):
        point = data.draw(st.sampled_from(["put.before", "put.after", "sync.before"]))
        commits = [self.one(data, name, self.known.get(name, Model())) for name in group]
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

    @rule(data=st.data(), name=names, with_row=st.booleans())
    def move_head(self, data, name, with_row):
        model = self.known.get(name, Model())
        seq = data.draw(st.sampled_from([*model.parts, model.next_seq, -1]), label="to")
        row = thread_row(name, "waiting") if with_row else None
        if self.both(lambda store: store.set_head(self.epoch, name, seq, row)) is True:
            model.head = seq
            model.tip = self.memory.load(name).tip

    @rule(data=st.data(), name=names, keep_last=st.integers(0, 3))
    def prune(self, data, name, keep_last):
        younger = data.draw(st.sampled_from([None, 0, 3]), label="older than")
        self.memory.now = self.disk.now = lambda: 8.0
        ids = data.draw(st.sampled_from([None, [name]]), label="threads")
        self.both(
            lambda store: sum(store.prune(self.epoch, ids, keep_last=keep_last, older_than=younger))
        )
        self.look_for_the_rest()

    @rule(name=names, run_ids=st.sets(st.sampled_from(["r", "s", "run-0", "run-1"])))
    def delete_runs(self, name, run_ids):
        self.both(lambda store: store.delete_runs(self.epoch, name, run_ids))
        self.look_for_the_rest()

    def look_for_the_rest(self):
        """What was removed is the store's choice, but never the head; both chose alike."""
        for name, model in self.known.items():
            left = {image.checkpoint.seq for image in self.memory.history(name, values=False)}
            assert model.head in left
            model.keep(left)

    @rule(source=names, to=names)
    def copy(self, source, to):
        if self.both(lambda store: store.copy_thread(self.epoch, source, to)) is True:
            self.known[to] = self.known[source].copy()

    @rule(name=names)
    def delete(self, name):
        self.both(lambda store: store.delete_thread(self.epoch, name))
        self.known.pop(name, None)

    @rule(closing=st.booleans())
    def change_owner(self, closing):
        for store in (self.disk, self.memory):
            store.close() if closing else store.release()
        self.epoch = self.both(lambda store: store.acquire())

    @rule(name=names)
    def be_overtaken(self, name):
        """A second owner comes by force; the first one writes nothing any more."""
        assert self.both(lambda store: store.acquire()) == "store_owned"
        old, self.epoch = self.epoch, self.both(lambda store: store.acquire(takeover="force"))
        assert self.epoch == old + 1
        assert self.both(lambda store: store.delete_thread(old, name)) == "ownership_lost"
        assert self.both(lambda store: store.commit(old, [step(name, 0)])) == "ownership_lost"

    @rule(name=names, seq=st.integers(-1, 12), run=st.integers(0, 3), entries=st.booleans())
    def look(self, name, seq, run, entries):
        self.both(lambda store: store.load(name, seq, entries=entries))
        self.both(lambda store: store.run_end(name, run))
        self.both(lambda store: store.message_keys(name))
        for key in range(13):
            self.both(lambda store, key=key: store.message_key(name, f"k{key}"))
        for run_id in ("r", "s", ""):
            self.both(lambda store, run_id=run_id: store.run_number(name, run_id))

    @rule(
        statuses=st.sets(st.sampled_from(STATUSES)),
        limit=st.integers(0, 5),
        after=st.sampled_from(["", *THREADS]),
    )
    def page(self, statuses, limit, after):
        self.both(lambda store: list(store.inbox_threads(after=after, limit=limit)))
        after = after if len(statuses) == 1 else ""
        self.both(lambda store: list(store.threads(statuses=statuses, after=after, limit=limit)))

    @invariant()
    def heads_are_equal(self):
        if not hasattr(self, "disk"):
            return
        for name in THREADS:
            image = self.both(lambda store, name=name: store.load(name))
            model = self.known.get(name)
            assert (image is None) is (model is None)
            if image is not None:
                assert (image.next_seq, image.checkpoint.seq) == (model.next_seq, model.head)
                assert image.values == model.values(model.head)
                assert [entry.seq for entry in image.entries] == model.entries[model.head]
        self.both(lambda store: list(store.threads()))

    @invariant()
    def histories_are_as_they_were_committed(self):
        if not hasattr(self, "disk"):
            return
        for name, model in self.known.items():
            found = self.both(lambda store, name=name: list(store.history(name)))
            assert [image.checkpoint.seq for image in found] == sorted(model.parts, reverse=True)
            for image in found:
                assert image.values == model.values(image.checkpoint.seq)
                assert image.versions == model.versions[image.checkpoint.seq]

    def teardown(self):
        with contextlib.suppress(AttributeError):
            self.disk.close()
            shutil.rmtree(self.folder)


Stores.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
TestStores = pytest.mark.slow(Stores.TestCase)
