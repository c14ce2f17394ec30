"""Async nodes that return without having awaited what they were given to await."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from beamweaver.errors import InvalidUpdate
from beamweaver.types import RetryPolicy
from tests.runtime.kit import Counted, line, wrote

CHILD = line("child", a=wrote("a")).compile()
MADE = {
    "call": (lambda ctx: ctx.call(CHILD), r"ctx\.call\('child', …\)"),
    "step": (lambda ctx: ctx.step("pay", dict), r"ctx\.step\('pay', …\)"),
    "sleep": (lambda ctx: ctx.sleep(0.5), r"ctx\.sleep\(\)"),
}
made = pytest.mark.parametrize(("make", "spelled"), MADE.values(), ids=MADE.keys())


def run(node, store):
    with line("top", n=node).compile(checkpointer=store) as app:
        return app.invoke({}, thread_id="t")


@made
@pytest.mark.filterwarnings("error")
def test_without_await_the_attempt_fails(memory, make, spelled):
    async def node(_state, ctx):
        make(ctx)

    with pytest.raises(InvalidUpdate, match=rf"'n' called {spelled} without await.*write await"):
        run(node, memory)


@made
def test_returned_in_place_of_its_result_it_is_told(memory, make, spelled):
    async def node(_state, ctx):
        return make(ctx)

    with pytest.raises(InvalidUpdate, match=spelled):
        run(node, memory)


@made
def test_a_task_that_nobody_awaits_fails_the_attempt(memory, make, spelled):
    kept = []

    async def node(_state, ctx):
        kept.append(asyncio.create_task(make(ctx)))

    with pytest.raises(InvalidUpdate, match=rf"returned while {spelled} had not ended"):
        run(node, memory)


@made
def test_one_of_two_that_is_awaited_makes_not_up_for_the_other(memory, make, spelled):
    async def node(_state, ctx):
        await ctx.step("other", dict)
        make(ctx)

    with pytest.raises(InvalidUpdate, match=spelled):
        run(node, memory)


@made
@pytest.mark.parametrize("turns", [0, 1])
def test_a_task_that_was_cancelled_is_no_fault(memory, make, spelled, turns):
    del spelled

    async def node(_state, ctx):
        task = asyncio.create_task(make(ctx))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        return {"log": ["n"]}

    assert run(node, memory).state["log"] == ["n"]


@made
def test_what_was_closed_is_no_fault(memory, make, spelled):
    del spelled

    async def node(_state, ctx):
        make(ctx).close()

    assert run(node, memory).state["log"] == []


def test_many_that_were_awaited_are_no_fault(memory):
    async def node(_state, ctx):
        for n in range(20):
            await ctx.step("some", dict)
            with suppress(ZeroDivisionError):
                await ctx.step("bad", lambda: 1 / 0, key=str(n))
        await asyncio.gather(*(ctx.step("more", dict, key=str(n)) for n in range(20)))
        return {"log": ["n"]}

    assert run(node, memory).state["log"] == ["n"]


def test_the_attempt_is_not_tried_again(memory):
    async def node(_state, ctx):
        ctx.call(CHILD)

    counted = []

    async def counting(state, ctx):
        counted.append(1)
        await node(state, ctx)

    with line("top", n=(counting, {"retry": RetryPolicy(max_attempts=3)})).compile() as app:
        with pytest.raises(InvalidUpdate):
            app.invoke({})
    assert len(counted) == 1


def test_awaited_the_next_time_it_runs(memory):
    child = Counted(wrote("a"))
    graph = line("child", a=child).compile()
    awaits = []

    async def node(_state, ctx):
        calling = ctx.call(graph)
        if awaits:
            return {"log": (await calling)["log"]}
        return None

    with line("top", n=node).compile(checkpointer=memory) as app:
        with pytest.raises(InvalidUpdate):
            app.invoke({}, thread_id="t")
        awaits.append(True)
        assert app.invoke(None, thread_id="t").state["log"] == ["a"]
    assert child.runs == 1
