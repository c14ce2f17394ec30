"""The engine is pure: everything of the world comes in with events or through `Env`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import beamweaver.engine

FILES = sorted(Path(beamweaver.engine.__file__).parent.glob("*.py"))
IMPURE = {
    "threading",
    "time",
    "random",
    "os",
    "asyncio",
    "socket",
    "datetime",
    "uuid",
    "secrets",
    "io",
}
STORES = "beamweaver.checkpoint"
OTHERS = ("beamweaver.runtime", "supervisors", "beamweaver.cli", "beamweaver.testing")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_module_imports_clocks_chance_workers_or_files(path):
    assert {name.partition(".")[0] for name in imported(path)}.isdisjoint(IMPURE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_module_knows_more_of_stores_than_their_records(path):
    of_stores = {name for name in imported(path) if name.startswith(STORES)}
    assert of_stores <= {f"{STORES}.{name}" for name in ("deltas", "entries", "records")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_module_imports_a_layer_above(path):
    assert not [name for name in imported(path) if name.startswith(OTHERS)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_module_is_longer_than_it_may_be(path):
    assert len(path.read_text().splitlines()) <= 500
