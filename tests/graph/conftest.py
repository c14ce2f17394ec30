"""What tests of graphs share."""

from __future__ import annotations

import pytest

from beamweaver.graph import _not_yet


@pytest.fixture
def everything(monkeypatch):
    """Compile as if engine and runtime acted on every option."""
    monkeypatch.setattr(_not_yet, "NOT_YET", {})
