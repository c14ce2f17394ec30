"""`durability="exit"`: steps without a record of their own, and every record that must be durable."""

from __future__ import annotations

import random

import pytest

from beamweaver.events import StepCommitted
from tests.engine.driver import Driver
from tests.engine.generator import plan_of, run_plan
from tests.engine.graphs import fails, graph
from tests.engine.modelled import run_model
from tests.engine.modes import EXIT, MODES, asking, finish, plain
from tests.engine.modes import run as run_mode


def run(make, crash_at=None, written=True):
    return run_mode(make, EXIT, crash_at, written)


GRAPHS = pytest.mark.parametrize("make", MODES.values(), ids=MODES)


@GRAPHS
def test_the_outcome_is_that_of_sync(make):
    log, driver = run(make)
    other = Driver(make())
    other.send_invoke({"x": 1})
    other.run()
    assert log == finish(other, None)
    assert len(driver.commits) < len(other.commits)


@GRAPHS
@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
def test_a_run_that_dies_at_any_commit_ends_as_the_clean_one(make, written):
    clean, driver = run(make)
    for at in range(len(driver.commits)):
        assert run(make, at, written)[0] == clean, at


def test_only_the_admission_and_the_end_are_written():
    _log, driver = run(plain)
    assert [c.record.checkpoint.source for c in driver.commits] == ["input", "loop"]
    assert driver.commits[-1].record.checkpoint.step == 4
    assert set(driver.commits[-1].record.checkpoint.writes) == {"log"}


def test_values_that_changed_in_steps_that_were_left_out_are_kept():
    driver = Driver(
        graph(
            "^>a a>b b>c", a=lambda _s: {"x": "a"}, b=lambda _s: {"y": "b"}, c=lambda _s: {"n": 1}
        )
    )
    driver.checks = True
    driver.invoke({"x": 0}, options=EXIT)
    driver.crash()
    assert {k: driver.machine.state.values[k] for k in "xyn"} == {"x": "a", "y": "b", "n": 1}


def test_a_question_brings_the_steps_before_it_along():
    driver = Driver(asking())
    driver.checks = True
    driver.invoke({"x": 1}, options=EXIT)
    record = driver.commits[-1].record
    assert (record.checkpoint.step, record.checkpoint.tasks[0].node) == (1, "ask")
    driver.crash()
    driver.run()
    assert driver.runs("a") == 1
    assert driver.resume("yes").interrupt.value == "two"


def test_results_of_a_step_are_written_only_if_something_else_is():
    driver = Driver(graph("^>a ^>b a>c b>c", a=None, b=None, c=None))
    driver.invoke({"x": 1}, options=EXIT)
    assert len(driver.commits) == 2


def test_a_failure_keeps_the_results_beside_it():
    driver = Driver(graph("^>z z>ok z>bad", z=None, ok=None, bad=fails(1)))
    driver.fails({"x": 1}, options=EXIT)
    driver.crash()
    driver.run()
    assert driver.go_on(options=EXIT).state["log"] == ["z", "ok", "bad"]
    assert (driver.runs("z"), driver.runs("ok")) == (1, 1)


def test_a_process_that_dies_loses_what_has_no_record():
    driver = Driver(plain())
    driver.send_invoke({"x": 1}, options=EXIT)
    driver.run(until=lambda: driver.runs("c"))
    driver.crash()
    driver.run()
    assert driver.machine.state.values["log"] == ["a", "b", "c", "d"]
    assert driver.runs("a") == 2


def test_the_next_call_without_the_option_is_sync_again():
    driver = Driver(asking())
    driver.invoke({"x": 1}, options=EXIT)
    before = len(driver.commits)
    driver.resume("yes")
    driver.resume("yes")
    assert len(driver.commits) - before == 2 + 1 + 3  # answers, the second question, three steps


def test_full_maps_of_versions_come_as_often_as_without_it():
    """Steps that were left out do not count, whenever a full map was due among them."""
    for most in (1, 2, 3, 4):
        driver = Driver(asking(), limits=Driver(plain()).limits.__class__(full_versions_every=most))
        driver.checks = True
        for _ in range(4):
            driver.send_invoke({"x": 1}, options=EXIT)
            driver.run()
            finish(driver, EXIT)


def test_steps_are_told_as_not_durable():
    _log, driver = run(plain)
    told = [(e.step, e.durable, bool(e.checkpoint_id)) for e in driver.told_events(StepCommitted)]
    assert told == [(1, False, False), (2, False, False), (3, False, False), (4, True, True)]


@pytest.mark.parametrize("seed", range(60))
def test_a_generated_run_ends_as_the_model_says_wherever_it_dies(seed):
    plan = plan_of(seed)
    sync, clean = run_plan(plan), run_plan(plan, options=EXIT)
    assert clean.machine.state.values == run_model(plan).values, f"seed {seed}"
    assert len(clean.commits) <= len(sync.commits)
    rng = random.Random(seed)
    for _time in range(3):
        at, written, order = (
            rng.randrange(len(clean.commits)),
            rng.random() < 0.5,
            rng.randrange(99),
        )
        crashed = run_plan(plan, crash_at=at, written=written, order=order, options=EXIT)
        assert crashed.values == clean.values, (seed, at, written, order)
        assert crashed.faults == [], (seed, at, written, order)
