"""One coroutine on the node loop: what is left of it when it was killed."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from types import SimpleNamespace

import pytest

from beamweaver.runtime.loop import LoopWorker
from supervisors import KILLED, Future, TaskEnded
from supervisors.signals import Down
from supervisors.testing import DeterministicScheduler
from tests.runtime.kit import PATIENCE

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
        worker = worker_on(scheduler, asyncio.get_running_loop())
        task = worker._start("n", body, owner=owner, token="a", context=copy_context())
        for _turn in range(turns):
            await asyncio.sleep(0)
        worker.post(lambda _loop: task.kill(GRACE))
        await owner.heard_both.wait()

    asyncio.run(main())
    assert sorted(owner.heard, key=str) == [Down("a", KILLED), TaskEnded("a", False)]
    return bool(begun)


def worker_on(scheduler, loop, kind=LoopWorker):
    """A worker on this loop, or one of its own."""
    system = SimpleNamespace(scheduler=scheduler, clock=scheduler.clock, future=Future)
    return kind(SimpleNamespace(system=system), loop)


def test_one_that_ends_in_the_moment_of_its_owners_end_owes_the_next_owner_nothing(scheduler):
    owes, ended = [], asyncio.Event()

    class HandedOver(list):
        def clear(self):  # between the claim of the outcome and the end
            owes.append(task.hand_over(Owner(), GRACE))
            ended.set()
            super().clear()

    async def body(_task):
        task._ended = HandedOver(task._ended)

    async def main():
        nonlocal task
        worker = worker_on(scheduler, asyncio.get_running_loop())
        task = worker._start("n", body, owner=Owner(), token="a", context=copy_context())
        await ended.wait()

    task = None
    asyncio.run(main())
    assert owes == [False]


class TestEnd:
    """The end of the runtime waits for what was killed."""

    def begin(self, scheduler, loop):
        """A worker, and a coroutine on it that was killed and cleans up until the worker ends."""
        begun, winding = threading.Event(), asyncio.Event()
        self.cleaned = []

        class Told(LoopWorker):
            def _wind_up(self, ended):
                winding.set()
                super()._wind_up(ended)

        async def body(_task):
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                await winding.wait()
                self.cleaned.append(1)

        worker = worker_on(scheduler, loop, Told)
        task = worker._start("n", body, owner=Owner(), token="a", context=copy_context())
        return worker, lambda: begun.wait(PATIENCE) and task.kill(GRACE)

    def test_on_the_users_loop(self, scheduler):
        async def main():
            worker, kill = self.begin(scheduler, asyncio.get_running_loop())
            await asyncio.to_thread(kill)
            await asyncio.to_thread(worker.stop)
            return list(self.cleaned)

        assert asyncio.run(main()) == [1]

    def test_those_that_run_end_in_the_order_in_which_they_began(self, scheduler):
        ended = []

        async def main():
            worker = worker_on(scheduler, asyncio.get_running_loop())
            for number in range(30):

                async def body(_task, number=number):
                    try:
                        await asyncio.sleep(60)
                    finally:
                        ended.append(number)

                worker._start("n", body, owner=Owner(), token=number, context=copy_context())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.to_thread(worker.stop)

        asyncio.run(main())
        assert ended == list(range(30))

    def test_on_its_own(self, scheduler):
        worker, kill = self.begin(scheduler, None)
        kill()
        worker.stop()
        assert self.cleaned == [1]


@pytest.mark.parametrize("turns", [0, 4])
def test_one_that_was_killed_leaves_no_timer(scheduler, turns):
    assert kill_one(scheduler, turns=turns) == bool(turns)
    assert scheduler.timers.next_deadline() is None


def test_one_that_was_killed_before_its_first_step_leaves_no_warning(scheduler, recwarn):
    assert not kill_one(scheduler, turns=0)
    assert [str(each.message) for each in recwarn] == []
