"""The benchmark of walked values encodes and decodes both kinds."""

from __future__ import annotations

from benchmarks import walk


def test_a_walked_value_is_measured_beside_a_native_one(monkeypatch, capsys):
    monkeypatch.setattr(walk, "_TRIES", 1)

    assert walk.main() == 0
    assert capsys.readouterr().out.count("native") == 3
