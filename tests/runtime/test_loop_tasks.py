"""One coroutine on the node loop: what is left of it when it was killed."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from types import SimpleNamespace

import pytest

from beamweaver.runtime.loop import LoopWorker
from supervisors import KILLED, TaskEnded
from supervisors.signals import Down
from supervisors.testing import DeterministicScheduler

GRACE = 1.0


class Owner:
    def __init__(self):
        self.heard = []
        self.heard_both = asyncio.Event()

    def put(self, message):
        self.heard.append(message)
        if len(self.heard) == 2:
            self.heard_both.set()

    put_system = put


@pytest.fixture
def scheduler():
    return DeterministicScheduler()


def kill_one(scheduler, *, turns):
    """Kill a coroutine after so many turns of the loop, or in the one that begins it; whether it began."""
    begun, owner = [], Owner()

    async def body(_task):
        begun.append(1)
        await asyncio.sleep(60)

    async def main():
        system = SimpleNamespace(scheduler=scheduler, clock=scheduler.clock)
        worker = LoopWorker(SimpleNamespace(system=system), asyncio.get_running_loop())
        task = worker._start("n", body, owner=owner, token="a", context=copy_context())
        for _turn in range(turns):
            await asyncio.sleep(0)
        worker.post(lambda _loop: task.kill(GRACE))
        await owner.heard_both.wait()

    asyncio.run(main())
    assert sorted(owner.heard, key=str) == [Down("a", KILLED), TaskEnded("a", False)]
    return bool(begun)


@pytest.mark.parametrize("turns", [0, 4])
def test_one_that_was_killed_leaves_no_timer(scheduler, turns):
    assert kill_one(scheduler, turns=turns) == bool(turns)
    assert scheduler.timers.next_deadline() is None


def test_one_that_was_killed_before_its_first_step_leaves_no_warning(scheduler, recwarn):
    assert not kill_one(scheduler, turns=0)
    assert [str(each.message) for each in recwarn] == []
