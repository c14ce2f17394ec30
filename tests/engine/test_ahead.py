"""`durability="async"`: a step begins when the commit of the one before is on its way."""

from __future__ import annotations

import random

import msgspec
import pytest

from beamweaver.checkpoint.entries import (
    Answered,
    Asked,
    Edited,
    FailureRow,
    Finished,
    Inner,
    Left,
    Memo,
    SendRow,
    TaskFailed,
    TaskRow,
    UpRow,
)
from beamweaver.checkpoint.records import (
    Checkpoint,
    Commit,
    DeltaRow,
    InboxMessage,
    Record,
    RunOptions,
)
from beamweaver.engine._ahead import size_of
from beamweaver.events import StepCommitted, TaskAcknowledged
from beamweaver.limits import Limits
from beamweaver.types import Send
from tests.engine.driver import Driver
from tests.engine.generator import plan_of, run_plan
from tests.engine.graphs import fails, graph, line
from tests.engine.modelled import run_model
from tests.engine.modes import ASYNC, MODES, asking, finish, plain, run

GRAPHS = pytest.mark.parametrize("make", MODES.values(), ids=MODES)
LONG = [f"n{i}" for i in range(12)]


def held(graph, drivers=None, **limits):
    """A run whose admission is durable, and whose other commits are held back; it goes as far as it can."""
    driver = Driver(graph, limits=Limits(**limits))
    if drivers is not None:
        drivers.append(driver)
    driver.send_invoke({"x": 1}, options=ASYNC)
    driver.run(until=lambda: driver.commits)
    while True:
        driver.advance()
        others = [action for action in driver.actions if action[0] != "write"]
        if not others:
            return driver
        driver.actions = [action for action in driver.actions if action[0] == "write"]
        for what, token in others:
            getattr(driver, f"_do_{what}")(token)


@GRAPHS
@pytest.mark.parametrize("order", [None, 1, 2, 3, 4, 5])
def test_the_outcome_is_that_of_sync(make, order):
    log, driver = run(make, ASYNC, order=order)
    other = Driver(make())
    other.send_invoke({"x": 1})
    other.run()
    assert log == finish(other, None)
    assert driver.faults == []


@GRAPHS
@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("order", [None, 7], ids=["in order", "drawn"])
def test_a_run_that_dies_at_any_commit_ends_as_the_clean_one(make, written, order):
    clean, driver = run(make, ASYNC)
    for at in range(len(driver.commits)):
        log, crashed = run(make, ASYNC, at, written, order)
        assert (log, crashed.faults) == (clean, []), at


def test_each_step_has_a_checkpoint_as_under_sync():
    _log, driver = run(plain, ASYNC)
    _log, other = run(plain, None)
    shape = [
        [(c.record.checkpoint.source, c.record.checkpoint.step) for c in d.commits]
        for d in (driver, other)
    ]
    assert shape[0] == shape[1]


def test_steps_go_on_while_their_commits_are_held():
    driver = held(line(*LONG))
    assert driver.log == LONG
    assert len(driver.machine.window) == len(LONG) - 1


def test_the_end_of_a_run_waits_for_all_before_it():
    driver = held(line(*LONG))
    assert driver.replies == {}
    while driver.actions:
        assert driver.replies == {}, "told before all was durable"
        driver.step()
        driver.advance()
    assert [reply.error for reply in driver.replies.values()] == [None]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_window_that_is_full_holds_the_steps_back(most):
    driver = held(line(*LONG), ahead_commits=most)
    assert driver.log == LONG[: most + 1]
    driver.step()
    driver.advance()
    assert driver.log == LONG[: most + 2], "one that is durable makes room for one"
    driver.run()
    assert driver.machine.state.values["log"] == LONG


def test_a_window_has_a_bound_in_bytes():
    big = {name: (lambda _s: {"x": "y" * 1000}) for name in LONG}
    edges = " ".join(f"{a}>{b}" for a, b in zip(("^", *LONG), (*LONG, "$"), strict=True))
    driver = held(graph(edges, **big), ahead_bytes=3500)
    assert driver.log == LONG[:4]
    assert 3000 < driver.ahead < 3500


def test_what_sends_bring_counts_in_it():
    follows = zip(LONG, (*LONG[1:], "end"), strict=True)
    big = {a: lambda _s, b=b: Send(b, {"x": "y" * 1000}) for a, b in follows}
    driver = held(graph("^>n0", end=None, **big), ahead_bytes=3500)
    assert driver.log == LONG[:4]
    assert 3000 < driver.ahead < 3500


DATA = b"x" * 1000
WRITES, SENDS = (("x", DATA, False),), (SendRow("n", {"x": DATA}),)
STEP = Checkpoint(1, "loop", "", 0, {}, None, (), 2, {}, 0, "")
SIZED = {
    "value": (STEP, {"writes": {"x": DATA}}),
    "delta": (STEP, {"deltas": {"x": DeltaRow(0, DATA)}}),
    "planned Send": (STEP, {"tasks": (TaskRow("a"), TaskRow("n", "a", 0, {"x": DATA}))}),
    "deferred Send": (STEP, {"deferred": (TaskRow("n", "a", 0, {"x": DATA}),)}),
    "metadata": (STEP, {"metadata": {"x": DATA}}),
    "result": (Finished(0), {"writes": WRITES}),
    "result's Send": (Finished(0), {"sends": SENDS}),
    "what a subgraph keeps": (Finished(0), {"kept": {"x": DATA}}),
    "value for the graph around": (Finished(0), {"up": UpRow(WRITES)}),
    "Send of the graph around": (Finished(0), {"up": UpRow((), None, SENDS)}),
    "edit": (Edited(0), {"writes": WRITES}),
    "Send of an edit": (Edited(0), {"sends": SENDS}),
    "inner record": (Inner(0, b""), {"data": DATA}),
    "last step": (Left(0, 1, {}), {"own": {"x": DATA}}),
    "what came back": (Left(0, 1, {}), {"back": WRITES}),
    "first record of a last step": (Left(0, 1, {}), {"opening": DATA}),
    "last step inside": (Left(0, 1, {}), {"inside": (Left(0, 1, {"x": DATA}),)}),
    "sub-step": (Memo(0, "s", 0, None, b"", b""), {"value": DATA}),
    "question": (Asked(0, 0, None, b"", "q"), {"value": DATA}),
    "schema": (Asked(0, 0, None, b"", "q"), {"schema": DATA}),
    "answer": (Answered(0, 0, None, b"", "q"), {"value": DATA}),
}


@pytest.mark.parametrize(("part", "values"), SIZED.values(), ids=SIZED)
def test_every_value_of_a_commit_counts_for_the_bounds_in_bytes(part, values):
    def sized(made):
        record = Record(1, 1, 0, made) if part is STEP else Record(1, 1, 0, None, (made,))
        return size_of(Commit(thread_id="t", incarnation=1, record=record))

    assert (sized(part), sized(msgspec.structs.replace(part, **values))) == (0, len(DATA))


def test_what_has_a_bound_of_its_own_counts_for_nothing():
    """The texts of failures are cut where they are made."""
    failed = TaskFailed(0, 1, FailureRow("code", "ValueError", "y" * 1000, "y" * 1000))
    record = Record(1, 1, 0, None, (failed,))
    assert size_of(Commit(thread_id="t", incarnation=1, record=record)) == 0


def test_a_told_message_counts_for_the_bounds_in_bytes():
    told = (InboxMessage(1, "m", "invoke", "r", DATA),)
    record = Record(1, 1, 0)
    assert size_of(Commit(thread_id="t", incarnation=1, record=record, inbox_put=told)) == len(DATA)


def test_the_windows_of_all_threads_have_a_bound_together():
    driver = held(line(*LONG), ahead_bytes_in_all=1)
    assert driver.log == LONG[:2], "one commit of a thread is on its way in any case"
    driver.run()
    assert (driver.machine.state.values["log"], driver.ahead) == (LONG, 0)


def test_results_of_a_step_are_on_their_way_before_its_routers_run():
    def route(_state):
        writes = [token for what, token in drivers[0].actions if what == "write"]
        seen.append([len(commit.record.entries) for commit in writes])
        return "d"

    seen, drivers = [], []
    made = graph(
        "^>a a>b a>c",
        joins=[("b c", "j")],
        routers=[("j", route, ["d"])],
        a=None,
        b=None,
        c=None,
        j=None,
        d=None,
    )
    held(made, drivers)
    assert seen == [[0, 0, 1]]  # the steps of a, and of b and c; then the result of j


def test_a_failure_waits_for_all_before_it():
    made = graph("^>a a>b b>bad", a=None, b=None, bad=fails(1))
    driver = held(made)
    assert (driver.replies, driver.stored_status) == ({}, "running")
    driver.run()
    (reply,) = driver.replies.values()
    assert reply.error.node == "bad"
    assert driver.stored_status == "failed"


def test_a_step_is_told_when_it_is_over_and_when_it_is_durable():
    driver = held(plain())
    told = [(e.step, e.durable, bool(e.checkpoint_id)) for e in driver.told_events(StepCommitted)]
    assert told == [(1, False, False), (2, False, False), (3, False, False)]
    assert driver.told_events(TaskAcknowledged) == []
    driver.run()
    told = [(e.step, e.durable, bool(e.checkpoint_id)) for e in driver.told_events(StepCommitted)]
    assert told[3:] == [(1, True, True), (2, True, True), (3, True, True), (4, True, True)]
    assert [e.node for e in driver.told_events(TaskAcknowledged)] == ["a", "b", "c", "d"]


def test_a_process_that_dies_loses_at_most_the_window():
    driver = held(line(*LONG), ahead_commits=4)
    for _ in range(3):
        driver.step()
        driver.advance()
    driver.crash()
    driver.run()
    assert driver.machine.state.values["log"] == LONG
    assert [driver.runs(name) for name in LONG[:3]] == [1, 1, 1]


def test_the_next_call_without_the_option_is_sync_again():
    driver = Driver(asking())
    driver.invoke({"x": 1}, options=ASYNC)
    assert driver.machine.runs_ahead
    driver.resume("yes")
    driver.resume("yes")
    assert not driver.machine.runs_ahead


def test_a_continuation_may_change_the_mode():
    for first, then in (
        (ASYNC, RunOptions(durability="exit")),
        (RunOptions(durability="exit"), ASYNC),
    ):
        driver = Driver(asking())
        driver.checks = True
        driver.invoke({"x": 1}, options=first)
        driver.resume("yes", options=then)
        driver.resume("yes", options=then)
        driver.crash()
        assert driver.machine.state.values["log"] == ["a", "ask:yes,yes", "b", "c"]


@pytest.mark.parametrize("seed", range(60))
def test_a_generated_run_ends_as_the_model_says_wherever_it_dies(seed):
    plan = plan_of(seed)
    clean = run_plan(plan, options=ASYNC)
    assert clean.machine.state.values == run_model(plan).values, f"seed {seed}"
    rng = random.Random(seed)
    for _time in range(3):
        at, written, order = (
            rng.randrange(len(clean.commits)),
            rng.random() < 0.5,
            rng.randrange(99),
        )
        crashed = run_plan(plan, crash_at=at, written=written, order=order, options=ASYNC)
        assert crashed.values == clean.values, (seed, at, written, order)
        assert crashed.faults == [], (seed, at, written, order)
