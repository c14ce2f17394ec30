"""Fixtures of the stores' tests."""

from __future__ import annotations

import pytest

from tests.checkpoint.cuts import Bench
from tests.checkpoint.kit import KINDS, place_of


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    """A place of each kind."""
    found = place_of(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
def disk(request, tmp_path):
    """A place of each kind that is on a disk."""
    found = place_of(request.param, tmp_path)
    yield found
    found.close()


@pytest.fixture
def store(place):
    """A store of each kind."""
    return place.open()


@pytest.fixture(scope="session")
def bench():
    """A process that forks one for each fault."""
    found = Bench()
    if not found.available:
        found.close()
        pytest.skip("there is no C compiler to build the shim that records system calls")
    yield found
    found.close()
