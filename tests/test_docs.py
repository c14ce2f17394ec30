"""Every page of the documentation is executed: its Python blocks from top to bottom, in one namespace.

A block of `text` after a Python block is what that block prints. In a table whose second column is headed
`BeamWeaver`, every piece of code in that column is executed after the blocks.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from beamweaver import App

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.glob("*.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


def _blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, text and first line of each block."""
    text = page.read_text()
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in _BLOCK.finditer(text)]


def _tables(page: Path) -> Iterator[tuple[str, int]]:
    """Each piece of code in a column headed BeamWeaver, and its line."""
    ours = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            ours = False
        elif cells[-1] == "BeamWeaver":
            ours = True
        elif ours and not line.startswith("|---"):
            yield from ((code, number) for code in _CODE.findall(cells[-1]))


def _run(page: Path, names: dict[str, object]) -> None:
    printed = None
    for language, text, line in _blocks(page):
        if language == "python":
            code = _compiled(page, text, line)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, names)
            printed = out.getvalue()
        elif language == "text" and printed is not None:
            assert printed == text, f"{page.name}:{line}"
            printed = None


def _compiled(page: Path, text: str, line: int) -> CodeType:
    """Code whose tracebacks name the page and the line; this file's future imports are not its own."""
    return compile("\n" * (line - 1) + text, str(page), "exec", dont_inherit=True)


def _run_code(page: Path, code: str, line: int, names: dict[str, object]) -> None:
    if "…" in code or code.startswith("#"):
        return
    with contextlib.redirect_stdout(io.StringIO()):
        exec(_compiled(page, code, line), names)


@pytest.fixture
def names(monkeypatch):
    """The namespace of a page, as that of a module; what it leaves open is closed."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    found = vars(module)
    yield found
    for value in list(found.values()):
        if isinstance(value, App):
            value.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_print_what_is_shown(page, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    _run(page, names)


TABLES = [page for page in PAGES if any(_tables(page))]


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.name)
def test_the_code_in_tables_of_a_page_runs(page, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _run(page, names)

    for code, line in _tables(page):
        _run_code(page, code, line, names)


def test_there_are_pages_and_tables():
    assert {"graphs.md", "coming-from-langgraph.md"} <= {page.name for page in PAGES}
    assert sum(1 for _ in _tables(DOCS / "coming-from-langgraph.md")) >= 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_another_page_leads_to_one(page):
    for target in re.findall(r"\]\(([^)#:]+\.md)", page.read_text()):
        assert (page.parent / target).exists(), target
