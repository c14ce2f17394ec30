"""Steps and calls of an async node that are cut off, as by `asyncio.timeout`, and made again."""

from __future__ import annotations

import asyncio
import threading

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.errors import NodeFailed, StepChanged
from beamweaver.types import RetryPolicy
from tests.runtime.kit import PATIENCE, Boom, Gate, line


async def cut_off(call, moment):
    """Make a call and give it up at a moment."""
    task = asyncio.ensure_future(call)
    await asyncio.to_thread(moment)
    task.cancel()
    await asyncio.wait([task])


class TestCalls:
    @pytest.fixture
    def gate(self):
        return Gate({"log": ["in"]})

    def ask(self, store, node):
        with Runtime(store, graphs=[line("g", a=node).compile()]) as runtime:
            return runtime.thread("t").ask(Invoke({"n": 1}), timeout=PATIENCE)

    def test_the_same_call_waits_for_the_graph_that_runs(self, store, gate):
        inner = line("inner", a=gate).compile()

        async def node(_state, ctx):
            await cut_off(ctx.call(inner, {"n": 1}), gate.wait)
            again = asyncio.ensure_future(ctx.call(inner, {"n": 1}))
            await asyncio.sleep(0)
            gate.open()
            return {"log": (await again)["log"]}

        assert self.ask(store, node).state["log"] == ["in"]
        assert gate.runs == 1

    def test_another_input_is_another_call_and_needs_a_key(self, store, gate):
        inner = line("inner", a=gate).compile()

        async def node(_state, ctx):
            await cut_off(ctx.call(inner, {"n": 1}), gate.wait)
            await ctx.call(inner, {"n": 2})

        with pytest.raises(NodeFailed) as caught:
            self.ask(store, node)
        assert isinstance(caught.value.__cause__, StepChanged)


class TestSteps:
    """Cut off while their result is being kept."""

    @pytest.fixture
    def run(self, store):
        """Runs a node that has `ctx` and the moment in which results are being kept."""

        def run_(node, **options):
            holds, held, goes_on = (threading.Event() for _ in range(3))

            def fault(point, _thread=""):
                if point == "writer.group" and holds.is_set():
                    holds.clear()
                    held.set()
                    goes_on.wait(PATIENCE)

            async def a(_state, ctx):
                def moment():
                    assert held.wait(PATIENCE)

                async def first(call):
                    if not held.is_set():
                        holds.set()
                    await cut_off(call, moment)
                    goes_on.set()

                return await node(ctx, first)

            app = line("g", a=(a, options)).compile()
            with Runtime(store, graphs=[app], fault=fault) as runtime:
                return runtime.thread("t").ask(Invoke({"n": 1}), timeout=PATIENCE).state["log"]

        return run_

    def test_the_same_step_has_its_result(self, run):
        ran = []

        async def node(ctx, first):
            await first(ctx.step("x", ran.append, 1))
            await ctx.step("x", ran.append, 1)
            return {"log": ran}

        assert run(node) == [1]

    def test_another_one_comes_after_it_here_and_when_the_node_runs_again(self, run):
        ran = []

        async def node(ctx, first):
            if ctx.attempt == 1:
                await first(ctx.step("x", ran.append, 1))
            else:
                await ctx.step("x", ran.append, 1)
            await ctx.step("x", ran.append, 2)
            if ctx.attempt == 1:
                raise Boom
            return {"log": ran}

        assert run(node, retry=RetryPolicy(initial_delay=0)) == [1, 2]

    def test_another_one_of_its_key_has_changed(self, run):
        async def node(ctx, first):
            await first(ctx.step("x", abs, 1, key="k"))
            await ctx.step("x", abs, 2, key="k")

        with pytest.raises(NodeFailed) as caught:
            run(node)
        assert isinstance(caught.value.__cause__, StepChanged)
