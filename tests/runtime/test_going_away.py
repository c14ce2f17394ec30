"""Callers that go away: what they cancel, and what they leave."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.runtime.aio import entered
from beamweaver.types import Continue
from supervisors.testing import eventually
from tests.runtime.kit import PATIENCE, Caller, Gate, line


async def gone(call):
    """A task that had begun to wait, and was cancelled."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)  # it has been sent
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_one_whose_call_waits_behind_a_run_leaves_that_run(store):
    gate = Gate({"log": ["a"]})
    app = line("g", a=gate).compile()

    async def main():
        async with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            await thread.atell(Invoke({"n": 1}))
            await asyncio.to_thread(gate.wait)
            await gone(thread.aask(Invoke({"n": 2})))
            await thread.atell(Continue())  # behind a cancel, had there been one
            gate.open()
            status = lambda: thread.get_state().status
            await asyncio.to_thread(eventually, lambda: status() != "running")
            return status()

    assert asyncio.run(main()) == "complete"


def test_what_one_cancels_is_cancelled_though_it_goes_away(store):
    gate, admitted, told = Gate(), threading.Event(), threading.Event()
    app = line("g", a=gate).compile()

    def fault(point, _thread=""):
        if point == "thread.admitted":  # so long the thread takes no other call
            admitted.set()
            told.wait()

    async def main():
        async with Runtime(store, graphs=[app], fault=fault) as runtime:
            thread = runtime.thread("t")
            call = Caller(thread.ask, Invoke({"n": 1}))
            await asyncio.to_thread(admitted.wait)
            await gone(thread.acancel())
            told.set()
            status = lambda: thread.get_state().status
            await asyncio.to_thread(eventually, lambda: status() == "cancelled")
            call.join()

    asyncio.run(main())


def join_aside():
    """Wait until what goes on beside the loop has ended."""
    for thread in threading.enumerate():
        if thread.name == "beamweaver-aside":
            thread.join(PATIENCE)


class TestEntering:
    def test_a_runtime_that_waits_for_a_store_gives_up_with_who_enters(self, disk):
        tried, again = threading.Event(), threading.Event()
        store = disk.open()
        store.pause = lambda _seconds: (tried.set(), again.wait(PATIENCE))
        owner = Runtime(disk.open()).start()

        async def main():
            task = asyncio.create_task(Runtime(store, wait=PATIENCE).__aenter__())
            await asyncio.to_thread(tried.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        owner.close()
        again.set()
        join_aside()
        Runtime(disk.open()).start().close()

    def test_what_has_started_for_one_who_went_away_meanwhile_is_left(self):
        begun, gone, left = threading.Event(), threading.Event(), []

        def start():
            begun.set()
            gone.wait(PATIENCE)

        async def main():
            task = asyncio.create_task(entered(start, lambda: left.append(1)))
            await asyncio.to_thread(begun.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gone.set()
            join_aside()

        asyncio.run(main())
        assert left == [1]

    def test_what_started_in_that_very_moment_is_left_too(self):
        left = []

        async def main():
            task = asyncio.create_task(entered(lambda: None, lambda: left.append(1)))
            await asyncio.sleep(0)
            join_aside()  # it has started, and the loop has not heard of it
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert left == [1]


def test_nodes_that_hold_all_workers_of_their_loop_hold_up_no_drain(memory):
    gate, came = Gate(hard=True), asyncio.Event()

    async def node(state):
        came.set()
        await asyncio.to_thread(gate, state)

    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
        async with Runtime(memory, graphs=[line("g", a=node).compile()]) as runtime:
            await runtime.thread("t").atell(Invoke({"n": 1}))
            await came.wait()
            try:
                return await asyncio.wait_for(runtime.adrain(0), PATIENCE / 2)
            finally:
                gate.open()

    assert asyncio.run(main()) is False
