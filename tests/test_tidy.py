"""The repository is as tidy as its rules say."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

HERE = Path(__file__)
ROOT = HERE.parents[1]
PACKAGES = ("beamweaver", "supervisors")
FOLDERS = (*PACKAGES, "tests", "benchmarks", "docs", ".ci")
FILE_LINES = 500
TEST_LINES = 600
FUNCTION_LINES = 70

MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/\w")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
ISSUES = re.compile(
    r"\b(?:issue|ticket|GH-?)\s?#?\d{2,}|(?<![\w&\"'])#\d{2,5}\b(?!;)", re.IGNORECASE
)
SLEEPS = re.compile(r"(?<![\w.])(?<!def )(?:time\.)?sleep\((?!0\))")
GIVES = re.compile(r"^__all__|\A\s*(?:\"\"\"[^\"]*\"\"\"\s*)?\Z", re.MULTILINE)
SAYS = re.compile(r"\A(?:#!.*\n)?r?\"\"\"")


@functools.cache
def files(*suffixes: str) -> tuple[Path, ...]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    top = [path for path in ROOT.iterdir() if path.is_file()]
    return tuple(
        sorted(p for p in (*found, *top) if p.suffix in suffixes and "__pycache__" not in p.parts)
    )


@functools.cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def found(pattern: re.Pattern[str], path: Path) -> list[str]:
    return [
        f"{name(path)}:{number}: {line.strip()}"
        for number, line in enumerate(text(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_is_too_long():
    def limit(path: Path) -> int:
        return FILE_LINES if path.relative_to(ROOT).parts[0] in PACKAGES else TEST_LINES

    long = {name(p): len(text(p).splitlines()) for p in files(".py")}
    assert {p: n for p, n in long.items() if n > limit(ROOT / p)} == {}


@pytest.mark.slow
def test_no_function_is_too_long():
    long = []
    for path in files(".py"):
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                begin = node.body[0].lineno  # the signature and the docstring are the manual
                if isinstance(node.body[0], ast.Expr) and len(node.body) > 1:
                    begin = node.body[1].lineno
                lines = (node.end_lineno or begin) - begin + 1
                if lines > FUNCTION_LINES:
                    long.append(f"{name(path)}:{node.lineno} {node.name}: {lines}")
    assert long == []


def test_every_public_module_says_what_it_gives():
    lacking = []
    for path in files(".py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        hidden = any(part.startswith("_") and part != "__init__" for part in parts)
        if parts[0] in PACKAGES and not hidden and not GIVES.search(text(path)):
            lacking.append(name(path))
    assert lacking == []


def test_every_module_says_what_it_is():
    lacking = [name(p) for p in files(".py") if text(p).strip() and not SAYS.match(text(p))]
    assert lacking == []


def test_tests_do_not_sleep():
    tests = [path for path in files(".py") if path.relative_to(ROOT).parts[0] == "tests"]
    assert [line for path in tests if path != HERE for line in found(SLEEPS, path)] == []


@pytest.mark.parametrize(
    "pattern", [MACHINE, UNFINISHED, ISSUES], ids=["machine paths", "unfinished", "issue numbers"]
)
def test_the_repository_speaks_of_the_project_alone(pattern):
    lines = []
    for path in files(".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cfg"):
        if path != HERE:
            lines += found(pattern, path)
    assert lines == []
