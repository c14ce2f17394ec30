"""The demo as a whole: a real child process, killed by real signals."""

from __future__ import annotations

import json
import tempfile

import pytest

from beamweaver.demo import DemoFailed, Options, run_demo
from beamweaver.demo.graph import TASKS_A_FILE


@pytest.fixture(autouse=True)
def _temporary(tmp_path_factory, monkeypatch):
    """What the demo leaves behind goes where pytest cleans up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("left")))


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
def test_sixty_files_are_indexed_as_if_nothing_had_been_killed(seed, tmp_path):
    report = tmp_path / "report.json"
    verdict = run_demo(Options(kills=3, seed=seed, files=60, report=report))

    assert verdict.faults == [], f"seed {seed}"
    assert verdict.ok
    assert (verdict.files, verdict.indexed, verdict.ledger_lines) == (60, 60, 60)
    assert len(verdict.kills) == 3
    assert verdict.tasks == 60 * TASKS_A_FILE
    assert json.loads(report.read_text())["files"] == 60


@pytest.mark.slow
def test_a_child_that_fails_by_itself_is_told_with_its_last_words(tmp_path):
    (tmp_path / "broken.py").write_text("def (:\n")

    with pytest.raises(DemoFailed, match=r"the child ended with code 1:(.|\n)*SyntaxError"):
        run_demo(Options(kills=0, root=tmp_path))


def test_a_store_that_exists_is_refused(tmp_path):
    with pytest.raises(DemoFailed, match="exists; give a new path, or remove it"):
        run_demo(Options(store=tmp_path))


def test_a_folder_without_sources_is_refused(tmp_path):
    with pytest.raises(DemoFailed, match="there are no Python source files under"):
        run_demo(Options(root=tmp_path))


def test_more_kills_than_tasks_are_refused(tmp_path):
    (tmp_path / "m.py").write_text("")

    with pytest.raises(DemoFailed, match="kills is 6, and 6 tasks allow 5"):
        run_demo(Options(root=tmp_path, kills=6))
