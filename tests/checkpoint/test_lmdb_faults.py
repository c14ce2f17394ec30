"""Kills between system calls, calls that fail, and power cuts, on real files; larger counts by the soak."""

from __future__ import annotations

import errno
import random

import pytest

from beamweaver.checkpoint import LMDBCheckpointer, _retention
from beamweaver.checkpoint.verify import verify
from tests.checkpoint.cuts import Bench, cut_off, failed, killed, recorded
from tests.checkpoint.damage import Pairs, judge_forgery, judge_mutation
from tests.checkpoint.full_store import full, pairs_of
from tests.checkpoint.kit import begun, step

WRITES, SYNCS, TRUNCATIONS = 1 << 1, 1 << 2, 1 << 3


@pytest.fixture(scope="module")
def bench():
    found = Bench()
    if not found.available:
        found.close()
        pytest.skip("there is no C compiler to build the shim that records system calls")
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(4))
def test_a_kill_between_system_calls_leaves_what_was_acknowledged(bench, seed):
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
        for nth in range(1 + for_ever, history[1] + 1, 7)
    ]

    assert not [text for text in wrong if text]


@pytest.mark.slow
def test_a_map_that_cannot_be_made_is_an_error(bench):
    bench.place()
    answer = bench.ask(1, fail=-1, error=errno.ENOMEM)

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
    for seq in range(1, 600):
        assert store.commit(epoch, [step("t", seq)]) == [None]
    monkeypatch.setattr(_retention, "_remove_rest", _cut_off)
    with pytest.raises(InterruptedError):
        store.delete_thread(epoch, "t")
    monkeypatch.undo()
    assert store.load("t") is None
    assert store.commit(epoch, [step("t", 0, branch="new")]) == [None]
    assert [image.checkpoint.seq for image in store.history("t")] == [0]
    store.close()
    assert verify(tmp_path / "s").sound


def _cut_off(*_args):
    raise InterruptedError
