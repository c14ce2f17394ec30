"""`on_failure`: told once that a run has failed, before it stops; told again after a kill."""

from __future__ import annotations

from typing import Annotated, TypedDict

import pytest

from beamweaver.checkpoint.entries import Failing
from beamweaver.engine import CallKind
from beamweaver.errors import NodeFailed, RecursionLimit, ReducerFailed, RouterFailed, StepTimeout
from beamweaver.types import Cancelled, Completed, Drained, Interrupted
from tests.engine.driver import HANGS, Crashed, Driver, Later
from tests.engine.graphs import asks, fails, fails_once, graph, line


def _no_reducer(_old, _new):
    raise ValueError("no")


class Bad(TypedDict, total=False):
    """A state whose reducer raises."""

    log: Annotated[list, _no_reducer]


class Told:
    """An `on_failure` that notes what it is told."""

    def __init__(self, *gives):
        self.gives = list(gives)
        self.failures = []
        self.keys = []

    def __call__(self, failures, ctx):
        self.failures.append([(f.node, f.code) for f in failures])
        self.keys.append(ctx.idempotency_key)
        given = self.gives.pop(0) if self.gives else None
        if isinstance(given, BaseException):
            raise given
        return given


def boom(_state):
    raise ValueError("boom")


def told_of(told, edges="", **nodes):
    options = {"on_failure": told, **nodes.pop("options", {})}
    edges = edges or " ".join(f"^>{name}" for name in nodes)
    return Driver(graph(edges, options=options, **nodes))


def test_who_may_hear_of_a_failed_run_is_said_with_its_failure():
    driver = Driver(graph("^>a", a=boom))
    error = driver.fails({})
    assert [str(failed) for failed in driver.failed] == [str(error)]


def test_it_is_told_all_failures_before_the_caller():
    told = Told()
    driver = told_of(told, a=boom, b=None, c=fails_once("c", KeyError))
    error = driver.fails({})
    assert isinstance(error, NodeFailed)
    assert told.failures == [[("a", "node_failed"), ("c", "node_failed")]]
    assert [failure.node for failure in error.failures] == ["a", "c"]
    assert (driver.status, len(driver.entries(Failing))) == ("failed", 1)


def test_a_run_that_ends_well_is_none_of_its_business():
    told = Told()
    driver = told_of(told, a=None)
    assert type(driver.invoke({})) is Completed
    assert (told.failures, driver.entries(Failing)) == ([], [])


def test_nor_is_one_that_waits_or_is_cancelled():
    told = Told()
    driver = told_of(told, ask=asks())
    assert type(driver.invoke({})) is Interrupted
    driver = told_of(told, a=lambda _s: HANGS)
    driver.send_invoke({})
    driver.run(until=lambda: driver.runs("a"))
    assert type(driver.call(CallKind.CANCEL)) is Cancelled
    assert told.failures == []


WAYS = {
    "node_failed": (NodeFailed, {"a": boom}, {}),
    "step_timeout": (StepTimeout, {"a": lambda _s: Later(9)}, {"step_timeout": 1}),
    "recursion_limit": (RecursionLimit, {"a": None, "b": None}, {"recursion_limit": 1}),
    "reducer_failed": (ReducerFailed, {"a": lambda _s: {"log": [1]}}, {}),
    "router_failed": (RouterFailed, {"a": None}, {}),
}


@pytest.mark.parametrize("code", WAYS)
def test_however_the_run_failed(code):
    cls, nodes, options = WAYS[code]
    told = Told()
    names = list(nodes)
    edges = " ".join(f"{a}>{b}" for a, b in zip(("^", *names), names, strict=False))
    routers = [("a", boom)] if code == "router_failed" else ()
    compiled = graph(edges, options={"on_failure": told, **options}, routers=routers, **nodes)
    if code == "reducer_failed":
        compiled = graph(edges, schema=Bad, options={"on_failure": told}, **nodes)
    driver = Driver(compiled)
    driver.checks = True
    error = driver.fails({})
    assert isinstance(error, cls)
    assert [[code for _n, code in each] for each in told.failures] == [[code]]
    assert driver.stored_status == "failed"
    assert (driver.machine.running, driver.timers) == ({}, {})


def test_a_run_that_is_continued_and_fails_again_is_another_failure():
    told = Told()
    driver = told_of(told, a=fails(2, "a"))
    driver.fails({})
    driver.fails(None)
    assert type(driver.go_on()) is Completed
    assert len(told.failures) == 2
    assert told.keys[0] != told.keys[1]


def test_a_handled_failure_is_none():
    told = Told()
    driver = told_of(told, a=boom, options={"a": {"error_handler": lambda f: None}})
    assert type(driver.invoke({})) is Completed
    assert told.failures == []


def test_open_questions_stay_open_beside_a_failure():
    told = Told()
    driver = told_of(told, a=fails_once("a"), ask=asks())
    error = driver.fails({})
    assert [question.node for question in error.interrupts] == ["ask"]
    assert driver.resume("yes").state["log"] == ["a", "ask:yes"]
    assert len(told.failures) == 1


class TestItsOwnFailure:
    def test_is_a_note_of_the_error_and_the_last_of_its_failures(self):
        driver = told_of(Told(RuntimeError("no mail")), a=boom)
        error = driver.fails({})
        assert isinstance(error, NodeFailed)
        assert error.__notes__ == ["on_failure failed too: RuntimeError: no mail"]
        assert [failure.node for failure in error.failures] == ["a", "on_failure"]
        driver.crash()
        assert driver.machine.error().__notes__ == error.__notes__

    def test_goes_with_the_next_call(self):
        driver = told_of(Told(RuntimeError("no mail")), a=fails_once("a"))
        driver.fails({})
        assert type(driver.go_on()) is Completed

    @pytest.mark.parametrize("given", [{"x": 1}, {"nobody": 1}])
    def test_a_return_is_one_for_nobody_takes_it(self, given):
        error = told_of(Told(given), a=boom).fails({})
        assert "on_failure failed too" in error.__notes__[0]

    def test_and_so_is_a_question(self):
        error = told_of(lambda failures, ctx: ctx.interrupt("?"), a=boom).fails({})
        assert "changes nothing" in error.__notes__[0]

    def test_the_step_timeout_is_its_own(self):
        error = told_of(lambda failures: HANGS, a=boom, options={"step_timeout": 3}).fails({})
        assert "timeout of 3 s" in error.__notes__[0]


class TestKills:
    def hanging(self, **nodes):
        told = Told(HANGS)
        driver = told_of(told, **(nodes or {"a": boom}))
        self.call = driver.send_invoke({})
        driver.run(until=lambda: told.keys)
        return driver, told

    def test_a_kill_meanwhile_leaves_it_to_the_next_process_with_the_same_key(self):
        driver, told = self.hanging()
        assert driver.stored_status == "running"
        driver.crash()
        driver.run()
        assert driver.status == "failed"
        assert told.keys[0] == told.keys[1]
        assert told.failures[0] == told.failures[1]
        assert driver.runs("a") == 1

    def test_tasks_that_were_cut_do_not_run_again_meanwhile(self):
        told = Told(HANGS)
        driver = told_of(told, a=boom, b=lambda _s: Later(9), options={"failure_policy": "panic"})
        driver.send_invoke({})
        driver.run(until=lambda: told.keys)
        driver.crash()
        driver.run()
        assert (driver.status, driver.runs("b")) == ("failed", 1)

    def test_an_actor_that_dies_meanwhile_answers_its_caller_in_its_next_life(self):
        driver, told = self.hanging()
        driver.restart_actor()
        driver.run()
        with pytest.raises(NodeFailed):
            driver.answer(self.call)
        assert len(told.keys) == 2

    def test_a_drain_waits_for_it_and_else_leaves_it(self):
        driver, told = self.hanging()
        driver.machine.drain()
        driver.run()
        driver.machine.cut()
        driver.run()
        assert type(driver.answer(self.call)) is Drained
        driver.crash()
        driver.run()
        assert (driver.status, len(told.keys)) == ("failed", 2)

    def test_a_cancel_ends_it(self):
        driver, told = self.hanging(a=fails_once("a"))
        assert type(driver.call(CallKind.CANCEL)) is Cancelled
        assert type(driver.go_on()) is Completed
        assert len(told.keys) == 1

    def test_a_call_meanwhile_waits_behind(self):
        driver, _told = self.hanging()
        second = driver.send_invoke({"x": 1})
        driver.run()
        driver.restart_actor()
        driver.run()
        with pytest.raises(NodeFailed):
            driver.answer(second)

    def test_code_that_lost_it_fails_the_run(self):
        driver, told = self.hanging()
        driver.graph = graph("^>a", a=boom)
        driver.crash()
        driver.run()
        assert (driver.status, len(told.keys)) == ("failed", 1)

    def test_a_death_at_any_commit_tells_of_the_same_failure(self):
        def build(told):
            return graph("^>a a>b", a=None, b=boom, options={"on_failure": told})

        clean = Driver(build(Told()))
        clean.checks = True
        clean.fails({})
        for number in range(len(clean.commits)):
            for written in (False, True):
                told = Told()
                driver = Driver(build(told), crash_at=number, written=written)
                where = f"crash {'after' if written else 'before'} commit {number}"
                try:
                    driver.fails({})
                except Crashed:
                    driver.crash()
                    driver.run()
                    if driver.status is None:
                        driver.fails({})
                assert driver.status == "failed", where
                assert len(set(told.keys)) == 1, where
                assert len(told.keys) in (1, 2), where


def test_an_async_one():
    seen = []

    async def told(failures, ctx):
        seen.extend(failures)

    told_of(told, a=boom).fails({})
    assert [failure.node for failure in seen] == ["a"]


def test_a_line_that_ends_well_costs_no_commit_more():
    commits = [
        len(driver.commits)
        for driver in (Driver(line("a", "b")), Driver(line("a", "b", on_failure=Told())))
        if driver.invoke({})
    ]
    assert commits[0] == commits[1]


def test_side_by_side_with_handlers_that_fail():
    told = Told()
    driver = told_of(
        told,
        a=boom,
        b=boom,
        options={"a": {"error_handler": boom}, "b": {"error_handler": lambda f: None}},
    )
    driver.fails({})
    assert told.failures == [[("a", "error_handler_failed")]]
