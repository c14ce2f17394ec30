"""The ledger: a line a key, whatever happens between writing and acknowledging."""

from __future__ import annotations

import os
import threading

from beamweaver.demo.ledger import Ledger, read_ledger


def test_a_key_is_written_once(tmp_path):
    ledger = Ledger(tmp_path / "ledger")

    assert ledger.append("k", {"path": "a"})
    assert not ledger.append("k", {"path": "a"})
    assert read_ledger(tmp_path / "ledger") == [{"key": "k", "path": "a"}]
    ledger.close()


def test_a_key_of_an_earlier_life_is_not_written_again(tmp_path):
    first = Ledger(tmp_path / "ledger")
    first.append("k", {"path": "a"})
    first.close()
    second = Ledger(tmp_path / "ledger")

    assert not second.append("k", {"path": "a"})
    assert second.append("l", {"path": "b"})
    assert [line["key"] for line in read_ledger(tmp_path / "ledger")] == ["k", "l"]
    second.close()


def test_half_a_line_is_cut_off_and_its_task_writes_again(tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(b'{"key":"k","path":"a"}\n{"key":"l","pa')
    ledger = Ledger(path)

    assert ledger.append("l", {"path": "b"})
    assert [line["key"] for line in read_ledger(path)] == ["k", "l"]
    ledger.close()


def test_workers_with_one_key_write_one_line(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    barrier = threading.Barrier(8)
    wrote = []

    def write():
        barrier.wait()
        wrote.append(ledger.append("k", {"path": "a"}))

    workers = [threading.Thread(target=write) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert sorted(wrote) == [False] * 7 + [True]
    assert len(read_ledger(tmp_path / "ledger")) == 1
    ledger.close()


def test_a_line_is_on_the_disk_before_append_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    ledger = Ledger(tmp_path / "ledger")
    ledger.append("k", {})
    ledger.append("k", {})

    assert len(synced) == 1
    ledger.close()


def test_a_ledger_that_is_not_there_has_no_lines(tmp_path):
    assert read_ledger(tmp_path / "none") == []
