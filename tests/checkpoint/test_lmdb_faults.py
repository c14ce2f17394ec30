"""Kills between system calls, calls that fail, and power cuts, on real files; larger counts by the soak."""

from __future__ import annotations

import errno
import random

import pytest

from beamweaver.checkpoint import LMDBCheckpointer, _retention
from beamweaver.checkpoint._lmdb_kv import LmdbKv
from beamweaver.checkpoint.deltas import appended, join
from beamweaver.checkpoint.records import DeltaRow
from beamweaver.checkpoint.verify import verify
from beamweaver.errors import StoreBroken
from tests.checkpoint.cuts import MAP, cut_off, failed, killed, recorded
from tests.checkpoint.damage import Pairs, judge_forgery, judge_mutation
from tests.checkpoint.full_store import full, pairs_of
from tests.checkpoint.kit import begun, step

WRITES, SYNCS, TRUNCATIONS, MAPS = 1 << 1, 1 << 2, 1 << 3, 1 << MAP


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
def test_a_kill_between_system_calls_or_at_a_point_leaves_what_was_acknowledged(bench, seed):
    history, chance = bench.history(seed), random.Random(seed)
    wrong = [killed(bench, seed, history, chance) for _ in range(25)]

    assert not [text for text in wrong if text]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_leaves_what_was_acknowledged(bench, seed):
    """Semantics 12: acknowledged after the disk has it."""
    recording, chance = recorded(bench, seed), random.Random(seed)
    wrong = [cut_off(bench, recording, chance) for _ in range(50)]

    assert not [f"seed {seed}: {text}" for text in wrong if text]


@pytest.mark.slow
def test_a_power_cut_is_seen_to_harm_a_store_that_does_not_wait_for_the_disk(bench):
    """What `survives="process-kill"` says of itself; and what judges the images can tell."""
    recording, chance = recorded(bench, 1, survives="process-kill"), random.Random(1)
    wrong = [text for text in (cut_off(bench, recording, chance) for _ in range(50)) if text]

    assert any("damaged" in text for text in wrong)
    assert any("acknowledged" in text for text in wrong)


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("for_ever", [0, 1])
@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (errno.EIO, WRITES),
        (errno.EIO, SYNCS),
        (errno.ENOSPC, WRITES | SYNCS | TRUNCATIONS),
        (errno.EDQUOT, WRITES),
    ],
)
def test_a_call_that_fails_loses_nothing_that_was_acknowledged(bench, error, kinds, for_ever):
    """Peers 2: each write and sync of a history fails in its turn, once or from then on."""
    history = bench.history(5)
    wrong = [
        failed(bench, 5, history, nth, error=error, for_ever=for_ever, kinds=kinds)
        for nth in range(1 + for_ever, history.calls + 1, 3)
    ]

    assert not [text for text in wrong if text]


@pytest.mark.slow
def test_a_map_that_cannot_be_made_is_an_error(bench):
    bench.place()
    answer = bench.ask(1, fail=1, error=errno.ENOMEM, for_ever=1, kinds=MAPS)

    assert (answer["code"], answer["errors"]) == (3, ["store_unavailable"])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return pairs_of(full(tmp_path_factory.mktemp("pairs") / "s"))


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_value_is_an_error_or_the_right_value(pairs, seed):
    chance, txn, expected = random.Random(seed), Pairs(pairs), {}
    wrong = [judge_mutation(txn, chance, expected) for _ in range(5_000)]

    assert not [f"seed {seed}: {text}" for text in wrong if text]


@pytest.mark.slow
def test_a_forged_value_is_an_answer_or_an_error(pairs):
    """Behind a right checksum anything may stand; nothing breaks on it."""
    chance, txn = random.Random(1), Pairs(pairs)
    wrong = [judge_forgery(txn, chance) for _ in range(1_000)]

    assert not [text for text in wrong if text]


def test_a_thread_whose_deletion_was_cut_off_can_be_made_again(tmp_path, monkeypatch):
    """By its own owner, who need not acquire the store anew."""
    store = LMDBCheckpointer(tmp_path / "s", survives="process-kill")
    epoch = begun(store, "t")
    added = join([appended(b"\x91\x01")])
    for seq in range(1, 600):
        one = step("t", seq, writes={}, deltas={"n": DeltaRow(seq - 1, added)})
        assert store.commit(epoch, [one]) == [None]
    monkeypatch.setattr(_retention, "_remove_rest", _cut_off)
    with pytest.raises(InterruptedError):
        store.delete_thread(epoch, "t")
    monkeypatch.undo()
    assert verify(tmp_path / "s").sound  # what is left of it is no damage
    assert store.load("t") is None
    assert store.commit(epoch, [step("t", 0, branch="new")]) == [None]
    assert [image.checkpoint.seq for image in store.history("t")] == [0]
    store.close()
    assert verify(tmp_path / "s").sound


def _cut_off(*_args):
    raise InterruptedError


@pytest.mark.parametrize("survives", ["power-loss", "process-kill"])
def test_a_store_whose_disk_failed_as_it_was_taken_is_not_taken_again(
    tmp_path, monkeypatch, survives
):
    """Semantics 13: a failed sync is never made again; who opens the store anew may take it."""
    store = LMDBCheckpointer(tmp_path / "s", survives=survives)

    def broken(kv):
        raise kv.broken(OSError(errno.EIO, "no disk"))

    with monkeypatch.context() as patch:
        patch.setattr(LmdbKv, "sync", broken)
        with pytest.raises(StoreBroken):
            store.acquire()
    with pytest.raises(StoreBroken, match="no disk"):
        store.acquire()
    store.close()
    assert store.acquire() == 2
    store.close()
