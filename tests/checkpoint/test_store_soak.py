"""The soak of the store: cases have numbers, so ranges of them add up."""

from __future__ import annotations

import pytest

from tests.soak import _store_counts, store

pytestmark = pytest.mark.slow


def test_counts_of_two_ranges_add_up(tmp_path, capsys):
    for first, file in ((0, "a"), (60, "b")):
        assert store.run(1.0, first, 60, tmp_path / file, ["values", "forged"]) == 0
    capsys.readouterr()

    assert _store_counts.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    told = capsys.readouterr().out
    assert "values: 120, 0 wrong" in told
    assert "cases 0..120" in told


def test_a_case_that_is_counted_twice_is_refused(tmp_path):
    part = _store_counts.Part()
    part.did(0, 10)
    other = _store_counts.Part()
    other.did(9, 12)
    with pytest.raises(ValueError, match="the seed 9 is counted twice"):
        part.add(other)


def test_what_does_not_hold_is_told_with_its_number(tmp_path, monkeypatch, capsys):
    def judged(_pairs, chance, _expected):
        return "another value" if chance.random() < 0.2 else ""

    monkeypatch.setattr(store, "judge_mutation", judged)
    failures = store.run(1.0, 5, 50, tmp_path / "a", ["values"])

    assert 0 < failures < 50
    assert f"values: 50, {failures} wrong" in capsys.readouterr().out
    assert _store_counts.read(tmp_path / "a")["values"].first[0].startswith("case ")


def test_an_unknown_part_is_named():
    assert store.run(1.0, 0, 1, None, ["value"]) == 1
