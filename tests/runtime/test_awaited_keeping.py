"""The awaitable twins of what moves, copies and removes threads."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.errors import InvalidCall
from tests.runtime.kit import line


def adding(**options):
    return line("g", add=lambda s: {"log": [s["n"]]}).compile(**options)


def on_both(check, store):
    """Run a check on an app and on a runtime."""

    async def main():
        async with Runtime(store, graphs=[adding()]) as runtime:
            thread = runtime.thread("t")
            for n in (1, 2, 3):
                await thread.aask(Invoke({"n": n}, run_id=f"R{n}"), timeout=10)
            await check(runtime)
        with adding(checkpointer=store) as app:
            for n in (1, 2, 3):
                await app.ainvoke({"n": n}, thread_id="u", run_id=f"R{n}")
            await check(app, "u")

    asyncio.run(main())


def test_a_head_is_moved(store):
    async def check(of, thread_id="t"):
        older = next(s for s in of.get_state_history(thread_id) if s.values["log"] == [1])
        assert await of.aset_head(thread_id, older.config["configurable"]["checkpoint_id"])
        assert of.get_state(thread_id).values["log"] == [1]
        with pytest.raises(InvalidCall):
            await of.aset_head(thread_id, "nothing")

    on_both(check, store)


def test_a_thread_is_copied_and_deleted(store):
    async def check(of, thread_id="t"):
        assert await of.acopy_thread(thread_id, f"copy of {thread_id}")
        assert await of.adelete_thread(thread_id)
        assert not await of.adelete_thread(thread_id)
        assert of.get_state(thread_id) is None
        assert of.get_state(f"copy of {thread_id}").values["log"] == [1, 2, 3]

    on_both(check, store)


def test_runs_and_old_checkpoints_are_removed(store):
    async def check(of, thread_id="t"):
        before = len(list(of.get_state_history(thread_id)))
        assert await of.adelete_runs(thread_id, ["R1"]) == 2
        assert await of.aprune([thread_id], keep_last=1) == before - 3
        assert of.get_state(thread_id).values["log"] == [1, 2, 3]

    on_both(check, store)
