"""Everything that the README shows is executed, and what it promises names a test that is there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def _rows() -> list[tuple[str, str]]:
    table = README.partition("## Guarantees")[2].partition("\n\nWhat it does not")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [(row[0], row[-1]) for row in rows[1:]]


def test_the_programs_print_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed, shown = io.StringIO(), ""
    for language, text in _BLOCK.findall(README):
        if language == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(text, "README.md", "exec"), names)
        elif language == "text":
            shown += text
    names["app"].close()

    assert printed.getvalue() == shown


def test_the_second_program_completes_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, text in _BLOCK.findall(README)[:3]:
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(text, "README.md", "exec"), names)

    assert names["outcome"].state["summary"] == "Fetched https://example.com"


def test_both_commands_are_one_line_that_makes_its_own_environment():
    commands = [text.strip() for language, text in _BLOCK.findall(README) if language == "sh"]

    assert [c.startswith("python3 -m venv .venv && ") and "\n" not in c for c in commands] == [
        True,
        True,
    ]


@pytest.mark.parametrize(("guarantee", "where"), _rows())
def test_a_guarantee_names_a_test_that_exists(guarantee, where):
    path, _, name = where.strip("` ").partition("::")

    text = (ROOT / path).read_text()

    assert re.search(rf"\b{name.split('[')[0]}\b", text), f"{guarantee}: no {name} in {path}"


def test_there_are_guarantees():
    assert len(_rows()) >= 8
