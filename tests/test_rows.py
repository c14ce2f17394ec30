"""The command that tells which row of the lists of cases has a test."""

from __future__ import annotations

import re

import pytest

from tests import rows
from tests.row_tables import DIFFERENT, NAMED_TESTS, WAITS

LISTS = {
    "graph.md": "| # | x |\n|---|---|\n| 2 C | limit |\n| 38 C | cache |\n| 32 | triggers |\n",
    "reference-defects.md": "| ID | Scenario |\n| A2 | goto |\n| **AU** | x |\n| AF/AG | x |\n| TS | x |\n",
    "peers.md": "## 5.1\n1. **order**\n999. **nobody covers this**\n",
    "mistakes.md": "| mistake | x |\n|---|---|\n| node returns 5 | good |\n| no `thread_id` | good |\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in LISTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_it_tells_how_each_list_stands(folder, capsys):
    assert rows.main([str(folder)]) == 1
    said = capsys.readouterr().out

    assert "graph: 3 rows, 1 with a test\n  waits for caches of nodes: 38\n  differs: 32: " in said
    assert "reference: 5 rows, 4 with a test\n  waits for traces: TS\n" in said
    assert "peers: 2 rows, 1 with a test" in said
    assert "  without a test: 999" in said
    assert "mistakes: 2 rows, 2 with a test" in said
    assert "langgraph: no file langgraph-behaviours.md" in said


def test_a_table_that_names_what_a_list_lacks_is_a_fault():
    assert "38" in rows.strangers("graph", ["1", "2"])
    assert rows.strangers("mistakes", []) != []


def test_without_a_folder_it_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.delenv("BEAMWEAVER_CASES", raising=False)

    assert rows.main([]) == 2
    assert "BEAMWEAVER_CASES" in capsys.readouterr().out


def test_every_test_that_a_table_names_is_there():
    names = {name for _path, text in rows.sources() for name in re.findall(r"def (test_\w+)", text)}

    assert [
        test for tests in NAMED_TESTS.values() for test in tests.values() if test not in names
    ] == []


def test_no_row_waits_and_differs():
    for name, waits in WAITS.items():
        waiting = [row for which in waits.values() for row in which]
        assert len(waiting) == len(set(waiting))
        assert not set(waiting) & DIFFERENT.get(name, {}).keys()
