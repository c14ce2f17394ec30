"""Durable sub-steps: what ran once and is kept runs once, whatever happens to the node."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from beamweaver import START, Command, Graph, Invoke, RetryPolicy, Runtime, Send, interrupt
from beamweaver.errors import (
    InvalidCall,
    KeyRequired,
    NodeFailed,
    NodeTimeout,
    RouterFailed,
    SerializationError,
    StepChanged,
)
from beamweaver.limits import Limits
from tests.runtime.kit import Boom, Caller, Gate, line, simulated

AGAIN = RetryPolicy(max_attempts=9, initial_delay=0, jitter=False)


class Work:
    """A function that counts its calls."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.runs = 0

    def __call__(self, *args: Any) -> Any:
        self.runs += 1
        return self.fn(*args)


def one(node: Any, **options: Any) -> Any:
    return Graph(name="g").add_node("a", node, **options).add_edge(START, "a")


def failing(times: int) -> Any:
    """Raises that many times."""
    left = [times]

    def fail() -> None:
        if left[0]:
            left[0] -= 1
            raise Boom("not yet")

    return fail


class TestOnce:
    def test_a_step_runs_once_over_attempts_peers_39(self, store):
        fetch, fail = Work(lambda url: f"page {url}"), failing(3)

        def node(state, ctx):
            page = ctx.step("fetch", fetch, state["url"])
            fail()
            return {"page": page}

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            assert app.invoke({"url": "u"}, thread_id="t").state["page"] == "page u"
        assert fetch.runs == 1

    def test_steps_of_one_name_are_told_apart_by_their_order(self, store):
        add, fail = Work(lambda n: n + 1), failing(2)

        def node(state, ctx):
            n = 0
            for _ in range(4):
                n = ctx.step("add", add, n)
            fail()
            return {"n": n}

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["n"] == 4
        assert add.runs == 4

    def test_steps_of_different_names_come_in_any_order(self, store):
        work, fail = Work(lambda name: name), failing(1)
        orders = iter(["ab", "ba"])

        def node(state, ctx):
            found = {name: ctx.step(name, work, name) for name in next(orders)}
            fail()
            return found

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state == {"a": "a", "b": "b"}
        assert work.runs == 2

    def test_an_async_node_awaits_sync_and_async_steps(self, store):
        sync, fail = Work(lambda n: n * 2), failing(1)
        slept = []

        async def double(n):
            await asyncio.sleep(0)
            slept.append(n)
            return n * 2

        async def node(state, ctx):
            n = await ctx.step("sync", sync, 1)
            n = await ctx.step("async", double, n)
            fail()
            return {"n": n}

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["n"] == 4
        assert (sync.runs, slept) == (1, [2])

    def test_keys_tell_steps_apart_that_run_at_once(self, store):
        ran, fail = [], failing(1)

        async def work(n):
            await asyncio.sleep(0)
            ran.append(n)
            return n

        async def node(state, ctx):
            done = await asyncio.gather(*(ctx.step("w", work, n, key=f"{n}") for n in range(30)))
            fail()
            return {"done": done}

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["done"] == list(range(30))
        assert sorted(ran) == list(range(30))

    def test_a_key_is_one_step_however_often_it_is_called(self, store):
        work = Work(lambda: 7)
        node = lambda state, ctx: {"n": [ctx.step("w", work, key="k") for _ in range(3)]}
        with one(node).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["n"] == [7, 7, 7]
        assert work.runs == 1

    def test_falsy_results_are_kept_langgraph_127(self, store):
        work, fail = Work(lambda n: [None, False, 0, "", []][n]), failing(1)

        def node(state, ctx):
            found = [ctx.step("w", work, n) for n in range(5)]
            fail()
            return {"found": found}

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["found"] == [None, False, 0, "", []]
        assert work.runs == 5

    def test_the_first_result_is_read_back_like_a_later_one(self, store):
        seen, made, fail = [], {"list": [1, (2, 3)]}, failing(1)

        def node(state, ctx):
            seen.append(ctx.step("w", lambda: made))
            fail()
            return {}

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert seen == [made, made]
        assert seen[0] is not made
        assert seen[0]["list"] is not made["list"]

    def test_steps_before_a_question_run_once_over_the_answers_peers_14(self, store):
        draft = Work(lambda n: f"draft {n}")

        def node(state, ctx):
            n, answer = 0, "no"
            while answer != "yes":
                answer = ctx.interrupt(ctx.step("draft", draft, n))
                n += 1
            return {"drafts": n}

        with one(node).compile(checkpointer=store) as app:
            outcome = app.invoke({}, thread_id="t")
            for answer in ("no", "no", "no", "no", "yes"):
                outcome = app.resume(answer, thread_id="t")
            assert outcome.state["drafts"] == 5
        assert draft.runs == 5

    def test_each_task_has_its_own(self, store):
        work = Work(lambda: None)
        graph = Graph(name="g").add_node("w", lambda state, ctx: ctx.step("w", work))
        graph.add_conditional_edges(
            START, lambda state: [Send("w", {"i": i}) for i in range(3)], ["w"]
        )
        with graph.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert work.runs == 3

    def test_they_go_with_the_task(self, store):
        work = Work(lambda: {"n": 1})
        node = lambda state, ctx: ctx.step("w", work)
        with line("g", a=node, b=node).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
            app.invoke({}, thread_id="t")
        assert work.runs == 4

    def test_a_restart_of_the_run_begins_without(self, store):
        work, fail = Work(lambda: None), failing(1)

        def node(state, ctx):
            ctx.step("w", work)
            fail()

        with one(node).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1}, thread_id="t")
            app.invoke({"n": 2}, thread_id="t", on_unfinished="restart")
        assert work.runs == 2

    def test_a_branch_from_an_older_checkpoint_begins_without(self, store):
        work, fail = Work(lambda: None), failing(1)

        def node(state, ctx):
            ctx.step("w", work)
            fail()

        with line("g", first=lambda state: {"n": 1}, a=node).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
            before = app.get_state("t").config["configurable"]["checkpoint_id"]
            app.invoke(None, thread_id="t", checkpoint_id=before, fork=True)
        assert work.runs == 2

    def test_a_task_whose_result_is_dropped_begins_without(self, store):
        work, fail = Work(lambda: {"n": 1}), failing(1)
        graph = one(lambda state, ctx: ctx.step("w", work))
        graph.add_node("b", lambda state: fail()).add_edge(START, "b")
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
            app.invoke(None, thread_id="t", rerun=["a"])
        assert work.runs == 2

    def test_an_error_handler_has_its_own(self, store):
        charge, refund, fail = Work(lambda: "paid"), Work(lambda: "back"), failing(2)

        def node(state, ctx):
            ctx.step("money", charge)
            fail()

        def handler(failure, state, ctx):
            found = ctx.step("money", refund)
            fail()
            return {"money": found}

        with one(node, error_handler=handler).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
            assert app.invoke(None, thread_id="t").state["money"] == "back"
        assert (charge.runs, refund.runs) == (1, 1)

    @pytest.mark.parametrize("call", [lambda ctx: ctx.step("x", int), lambda ctx: ctx.sleep(9)])
    def test_who_is_told_of_a_failed_run_has_none(self, store, call):
        seen = []

        def tell(failures, ctx):
            try:
                call(ctx)
            except InvalidCall as error:
                seen.append(str(error))

        def node(state):
            raise Boom

        with one(node).compile(checkpointer=store, on_failure=tell) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
        assert len(seen) == 1
        assert "only a node" in seen[0]

    def test_without_a_store_they_last_as_long_as_the_call_peers_22(self):
        work, fail = Work(lambda: 1), failing(2)

        def node(state, ctx):
            n = ctx.step("w", work)
            fail()
            return {"n": n}

        with one(node, retry=AGAIN).compile() as app:
            assert app.invoke({}).state["n"] == 1
            assert app.invoke({}).state["n"] == 1
        assert work.runs == 2

    @pytest.mark.parametrize("seed", range(5))
    def test_they_are_kept_in_any_order_of_things(self, memory, seed):
        ran = []

        def node(state, ctx):
            for n in range(3):
                ctx.step("w", ran.append, (ctx.node, n))
            raise Boom

        graph = Graph(name="g")
        for name in "abc":
            graph.add_node(name, node, retry=RetryPolicy(max_attempts=3, initial_delay=5)).add_edge(
                START, name
            )
        app = graph.compile()
        with simulated(memory, seed, graphs=[app]) as runtime:
            failed = runtime.thread("t").ask(Invoke({}), timeout=1_000, raises=False)
        assert len(failed.error.failures) == 3
        assert sorted(ran) == [(name, n) for name in "abc" for n in range(3)]


class TestFailures:
    def test_an_exception_is_not_kept(self, store):
        fail = failing(2)
        work = Work(lambda _n: fail())
        node = lambda state, ctx: {"x": ctx.step("w", work, 1)}
        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert work.runs == 3

    def test_a_loop_that_tries_again_finds_its_result(self, store):
        fail_first, fail_node = failing(1), failing(1)
        charge = Work(lambda _amount: fail_first())

        def node(state, ctx):
            for _ in range(3):
                try:
                    ctx.step("charge", charge, 5)
                    break
                except Boom:
                    continue
            fail_node()

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert charge.runs == 2, "it failed once and was charged once"

    def test_other_arguments_are_an_error(self, store):
        work, fail = Work(lambda n: n), failing(1)

        def node(state, ctx):
            ctx.step("w", work, state["n"])
            fail()

        with one(node).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({"n": 1}, thread_id="t")
            with pytest.raises(
                NodeFailed, match=r"'a' calls step 'w' \(number 1\) with other"
            ) as caught:
                app.invoke({"n": 2}, thread_id="t")
        assert caught.value.code == StepChanged.code
        assert work.runs == 1

    @pytest.mark.parametrize(
        "arguments", [({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1, 2, 9}, {9, 2, 1})]
    )
    def test_equal_arguments_are_equal_in_any_order(self, memory, arguments):
        given, fail = iter(arguments), failing(1)

        def node(state, ctx):
            ctx.step("w", len, next(given))
            fail()

        with one(node, retry=AGAIN).compile(checkpointer=memory) as app:
            app.invoke({}, thread_id="t")

    @pytest.mark.parametrize("key", [None, "k"])
    def test_two_at_once_without_keys_are_an_error(self, store, key):
        async def work():
            await asyncio.sleep(0)

        async def node(state, ctx):
            await asyncio.gather(ctx.step("w", work, key=key), ctx.step("w", work, key=key))

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed, match="two steps 'w'") as caught:
                app.invoke({}, thread_id="t")
        assert (caught.value.code, caught.value.attempt) == (KeyRequired.code, 1)

    @pytest.mark.parametrize(
        ("call", "error", "match"),
        [
            (lambda ctx: ctx.step("", int), InvalidCall, "name of a step is ''"),
            (lambda ctx: ctx.step(int, int), InvalidCall, "name of a step"),
            (lambda ctx: ctx.step(None, int), InvalidCall, "name of a step"),
            (lambda ctx: ctx.step("x", int, key=7), InvalidCall, "the key of step 'x' is 7;"),
            (lambda ctx: ctx.step("x" * 257, int), InvalidCall, "1 to 256"),
            (lambda ctx: ctx.step("\ud800", int), InvalidCall, "surrogate"),
            (lambda ctx: ctx.step("x", object), SerializationError, "'a', step x.*object"),
            (
                lambda ctx: ctx.step("x", id, object()),
                SerializationError,
                r"'a', step 'x': args\[0\].*partial",
            ),
            (lambda ctx: ctx.step("x", asyncio.sleep, 0), InvalidCall, "nobody awaits it"),
            (
                lambda ctx: ctx.step("x", functools.partial(asyncio.sleep, 0)),
                InvalidCall,
                "nobody awaits it",
            ),
            (lambda ctx: ctx.step("x", lambda: asyncio.sleep(0)), InvalidCall, "nobody awaits it"),
            (
                lambda ctx: ctx.step("x", lambda: ctx.step("y", int)),
                InvalidCall,
                "inside of step 'x'",
            ),
            (lambda ctx: ctx.step("x", lambda: interrupt("?")), InvalidCall, "inside of step 'x'"),
        ],
    )
    def test_wrong_uses_are_refused_with_a_cure(self, memory, call, error, match):
        with one(lambda state, ctx: call(ctx)).compile(checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match=match) as caught:
                app.invoke({}, thread_id="t")
        assert isinstance(caught.value.__cause__, error)

    def test_with_keys_steps_nest(self, store):
        inner, outer, fail = Work(lambda: 1), [], failing(1)

        def node(state, ctx):
            outer.append(ctx.step("out", lambda: ctx.step("in", inner, key="k") + 1))
            fail()

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert (inner.runs, outer) == (1, [2, 2])

    def test_a_router_has_no_steps(self, memory):
        graph = one(lambda state: {})
        graph.add_conditional_edges("a", lambda state, ctx: ctx.step("x", int), ["a"])
        with (
            graph.compile(checkpointer=memory) as app,
            pytest.raises(RouterFailed, match="only a node"),
        ):
            app.invoke({}, thread_id="t")

    @pytest.mark.parametrize(
        ("limits", "match"),
        [
            (Limits(memos_a_task=3), r"limits\.memos_a_task"),
            (Limits(memo_bytes_a_task=300), r"limits\.memo_bytes_a_task"),
            (Limits(value_bytes=50, value_bytes_warn=50), r"step w takes 102 bytes"),
        ],
    )
    def test_they_are_bounded(self, memory, limits, match):
        node = lambda state, ctx: [ctx.step("w", lambda: "x" * 100) for _ in range(4)]
        app = one(node).compile()
        with Runtime(memory, graphs=[app], limits=limits) as runtime:
            with pytest.raises(NodeFailed, match=match):
                runtime.thread("t").ask(Invoke({}))


class TestGivenUp:
    def test_a_late_step_of_a_timed_out_attempt_is_refused(self, store):
        gate, ran = Gate(hard=True), []

        def work():
            gate({})
            return "late"

        def node(state, ctx):
            if not gate.runs:
                return {"x": ctx.step("w", work)}
            return {"x": ctx.step("w", lambda: ran.append(1) or "again")}

        with one(node, timeout=0.05).compile(checkpointer=store) as app:
            with pytest.raises(NodeTimeout):
                app.invoke({}, thread_id="t")
            gate.open()
            assert app.invoke(None, thread_id="t").state["x"] == "again"
        assert ran == [1]

    def test_what_was_kept_before_a_cancel_is_kept(self, store):
        gate, work = Gate(), Work(lambda: 1)

        def node(state, ctx):
            ctx.step("w", work)
            gate(state)

        with one(node).compile(checkpointer=store) as app:
            calling = Caller(app.invoke, {}, thread_id="t")
            gate.wait()
            app.cancel("t")
            calling.join()
            gate.open()
            app.invoke(None, thread_id="t")
        assert (work.runs, gate.runs) == (1, 2)

    def test_a_step_of_a_worker_that_the_node_made_is_kept(self, store):
        """The node's own threads may have steps, while the node waits for them."""
        work, fail = Work(lambda n: n), failing(1)

        def node(state, ctx):
            done = []
            threads = [
                threading.Thread(target=lambda n=n: done.append(ctx.step("w", work, n, key=f"{n}")))
                for n in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            fail()
            return {"done": sorted(done)}

        with one(node, retry=AGAIN).compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state["done"] == [0, 1, 2, 3]
        assert work.runs == 4

    def test_a_command_with_steps_goes_where_it_says(self, store):
        graph = one(
            lambda state, ctx: Command(update=ctx.step("w", lambda: {"n": 1}), goto="b"),
            destinations=["b"],
        )
        graph.add_node("b", lambda state: {"b": True})
        with graph.compile(checkpointer=store) as app:
            assert app.invoke({}, thread_id="t").state == {"n": 1, "b": True}
