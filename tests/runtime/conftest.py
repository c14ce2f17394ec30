"""Fixtures of the runtime's tests: places, and a check that nothing is left behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamweaver.checkpoint import Checkpointer
from beamweaver.runtime import places
from beamweaver.runtime.core import Core
from supervisors.testing import eventually
from tests.runtime.kit import Place


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test: no open core, no place of one, and no worker."""
    cores: list[Core] = []
    made = Core.__init__

    def remember(self: Core, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)  # type: ignore[arg-type] # it passes on what it is given
        cores.append(self)

    monkeypatch.setattr(Core, "__init__", remember)
    logging.disable(logging.CRITICAL)
    before = set(threading.enumerate())
    yield
    logging.disable(logging.NOTSET)
    assert [core for core in cores if not core._closed] == [], "a core was left open"
    assert places._places == {}, "a place was left open"
    assert places._clients == {}, "a client was left open"
    eventually(lambda: not (set(threading.enumerate()) - before), timeout=5)


@pytest.fixture(params=["memory", "lmdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place of each kind."""
    found = Place(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Place]:
    """A place on a disk."""
    found = Place("lmdb", tmp_path)
    yield found
    found.close()


@pytest.fixture
def store(place: Place) -> Checkpointer:
    """A store of each kind."""
    return place.open()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Checkpointer]:
    """A store in memory."""
    found = Place("memory", tmp_path)
    yield found.open()
    found.close()
