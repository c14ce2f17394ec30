"""The command prints a table, writes rows, and fails when a side fails."""

import json

import pytest

from benchmarks import command
from benchmarks.command import main
from benchmarks.harness import measure
from benchmarks.session import InlineSession
from tests.benchmarks.sides import comparison, side

KEYS = {"id", "name", "ours_us", "peer_us", "ratio", "peer", "runs"}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    def inline(*args, **options):
        return measure(*args, launch=InlineSession, **options)

    monkeypatch.setattr(command, "measure", inline)


def test_the_json_file_holds_a_list_of_rows(tmp_path):
    file = tmp_path / "rows.json"
    assert main([comparison(), comparison()], ["--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    assert len(rows) == 2
    assert all(row.keys() >= KEYS for row in rows)


def test_the_table_names_both_sides_and_the_machine(capsys):
    assert main([comparison(needed=1e9)], []) == 0
    printed = capsys.readouterr().out
    assert "needed 1e+09x MISSED" in printed
    assert "peer: the answering side" in printed
    assert "machine: " in printed


def test_a_missing_peer_is_a_line_and_no_failure(capsys):
    assert main([comparison(peer=side(needs=["no-such-distribution-for-a-test"]))], []) == 0
    assert "peer missing: the answering side (no-such-distribution" in capsys.readouterr().out


def test_quick_takes_the_quick_size(tmp_path):
    file = tmp_path / "rows.json"
    main([comparison()], ["--quick", "--json", str(file)])
    assert json.loads(file.read_text())[0]["size"] == "quick"


def test_a_wrong_result_fails_the_command_and_gives_no_row(tmp_path, capsys):
    file = tmp_path / "rows.json"
    wrong = comparison(expected=lambda options: 6)
    assert main([wrong, comparison()], ["--json", str(file)]) == 1
    assert len(json.loads(file.read_text())) == 1
    assert "P0 nothing: FAILED" in capsys.readouterr().out


def test_only_runs_the_rows_that_are_named(tmp_path):
    file = tmp_path / "rows.json"
    main([comparison(id="P1"), comparison(id="P2")], ["--only", "p2", "--json", str(file)])
    assert [row["id"] for row in json.loads(file.read_text())] == ["P2"]


def test_the_report_file_holds_what_was_printed(tmp_path, capsys):
    file = tmp_path / "report.txt"
    main([comparison()], ["--report", str(file)])
    assert file.read_text() == capsys.readouterr().out
