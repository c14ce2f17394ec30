"""Kills that come too late: the body has ended by itself, and its actor has not heard of it yet."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import Continue, Invoke, Runtime
from beamweaver.runtime.loop import LoopTask
from beamweaver.runtime.node import NodeActor
from beamweaver.types import Cancelled
from supervisors.testing import eventually
from tests.runtime.kit import PATIENCE, Gate, line


@pytest.fixture
def gate(monkeypatch):
    """A gate that a kill opens; it goes on when the body has ended."""
    gate = Gate({"log": ["a"]}, hard=True)

    def too_late(kill):
        def kill_(task, grace=None):
            gate.open()
            eventually(lambda: not task.live)
            return kill(task, grace)

        return kill_

    for task_class in (NodeActor, LoopTask):
        monkeypatch.setattr(task_class, "kill", too_late(task_class.kill))
    return gate


@pytest.fixture(params=["sync", "async"])
def node(request, gate):
    async def node(state):
        return await asyncio.to_thread(gate, state)

    return gate if request.param == "sync" else node


def test_a_cancel_returns_and_the_result_is_kept(memory, gate, node):
    with Runtime(memory, graphs=[line("g", a=node).compile()]) as runtime:
        thread = runtime.thread("t")
        thread.tell(Invoke({"n": 1}))
        gate.wait()
        assert isinstance(thread.cancel(timeout=PATIENCE), Cancelled)
        assert thread.ask(Continue(), timeout=PATIENCE).state["log"] == ["a"]
    assert gate.runs == 1


def test_the_attempt_after_a_timeout_starts(memory, gate, node):
    app = line("g", a=(node, {"timeout": 0.05, "retries": 9})).compile()
    with Runtime(memory, graphs=[app]) as runtime:
        thread = runtime.thread("t")
        assert thread.ask(Invoke({"n": 1}), timeout=PATIENCE).state["log"] == ["a"]
    assert gate.runs > 1
