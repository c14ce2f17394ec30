"""Callers that go away: what they cancel, and what they leave."""

from __future__ import annotations

import asyncio
import threading

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.types import Continue
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Gate, line


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
