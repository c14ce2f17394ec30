"""The awaitable twins of what moves, copies, removes, cancels, releases and looks back at threads."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.errors import AskTimeout, CallRefused, InvalidCall, Quarantined, WouldBlock
from beamweaver.limits import Limits
from beamweaver.runtime.aio import read_aside
from beamweaver.types import Cancelled
from tests.runtime.kit import Gate, failing_at, line, wrote


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


def test_a_history_is_read_as_it_is_iterated(store):
    async def check(of, thread_id="t"):
        def both(**options):
            return of.get_state_history(thread_id, **options)

        found = [state async for state in of.aget_state_history(thread_id)]
        assert found == list(both())
        two = [
            state async for state in of.aget_state_history(thread_id, limit=2, before=_id(found[0]))
        ]
        assert two == list(both(limit=2, before=_id(found[0])))
        with pytest.raises(InvalidCall, match="before= and filter="):
            of.aget_state_history(thread_id, namespace=("add",), filter={"step": 1})

    on_both(check, store)


def _id(state):
    return state.config["configurable"]["checkpoint_id"]


def test_a_long_history_has_all_its_checkpoints(memory):
    with line("g", add=lambda _s: None).compile(checkpointer=memory) as app:
        for n in range(20):
            app.invoke({"n": n}, thread_id="t")

        async def steps():
            return [state.step async for state in app.aget_state_history("t")]

        assert asyncio.run(steps()) == [state.step for state in app.get_state_history("t")]
        assert len(list(app.get_state_history("t"))) == 40


def test_what_comes_before_a_damaged_checkpoint_is_given(memory):
    def items():
        yield from range(20)
        raise InvalidCall("the 21st")

    seen = []

    async def main():
        with pytest.raises(InvalidCall, match="the 21st"):
            async for item in read_aside(items()):
                seen.append(item)

    asyncio.run(main())
    assert seen == list(range(20))


@pytest.mark.parametrize("of_app", [True, False])
def test_a_run_is_cancelled(store, of_app):
    gate = Gate()

    async def main():
        with line("g", gate=gate).compile(checkpointer=store) as app:
            thread = app.thread("t")
            call = asyncio.create_task(thread.aask(Invoke({"n": 1}), raises=False))
            await asyncio.to_thread(gate.wait)
            cancelled = await (app.acancel("t") if of_app else thread.acancel())
            assert type(cancelled) is type(await call) is Cancelled

    asyncio.run(main())


def test_a_cancel_waits_no_longer_than_it_may(store):
    gate = Gate(hard=True)

    async def main():
        async with Runtime(store, graphs=[line("g", gate=gate).compile()]) as runtime:
            thread = runtime.thread("t")
            await thread.atell(Invoke({"n": 1}))
            await asyncio.to_thread(gate.wait)
            with pytest.raises(AskTimeout):
                await thread.acancel(timeout=0)
            gate.open()

    asyncio.run(main())


def test_a_thread_that_is_set_aside_is_released(memory):
    app = line("g", a=wrote("a")).compile()
    fault, limits = failing_at("thread.load", times=1), Limits(crashes_without_commit=1)

    async def main():
        async with Runtime(memory, graphs=[app], fault=fault, limits=limits) as runtime:
            thread = runtime.thread("t")
            with pytest.raises(Quarantined):
                await thread.aask(Invoke({"n": 1}), timeout=10)
            await thread.arelease()
            assert (await thread.aask(Invoke({"n": 1}), timeout=10)).state["log"] == ["a"]
            with pytest.raises(CallRefused, match="not quarantined"):
                await thread.arelease()

    asyncio.run(main())


def test_on_the_loop_of_the_nodes_those_that_wait_are_refused_and_name_their_twins(memory):
    async def main():
        async with Runtime(memory, graphs=[adding(), line("h", a=sleeping).compile()]) as runtime:
            await runtime.thread("t", "g").aask(Invoke({"n": 1}), timeout=10)
            await runtime.thread("h", "h").aask(Invoke({"n": 1}), timeout=10)  # there is a loop now
            refused = {
                "adelete_thread": lambda: runtime.delete_thread("t"),
                "aprune": runtime.prune,
                "adelete_runs": lambda: runtime.delete_runs("t", ["R"]),
                "acopy_thread": lambda: runtime.copy_thread("t", "u"),
                "acancel": lambda: runtime.thread("t", "g").cancel(),
                "arelease": lambda: runtime.thread("t", "g").release(),
            }
            for twin, call in refused.items():
                with pytest.raises(WouldBlock, match=f"await {twin}"):
                    call()
            assert await runtime.adelete_thread("t")

    asyncio.run(main())


async def sleeping(_state):
    await asyncio.sleep(0)
