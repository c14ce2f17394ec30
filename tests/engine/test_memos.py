"""Memos of sub-steps: which are taken, when they are durable, and how long they are kept."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Memo
from beamweaver.types import RetryPolicy
from tests.engine.driver import HANGS, Crashed, Driver
from tests.engine.graphs import asks, fails, fan, wrote


def memo(attempt, name="s", value=b"\x01"):
    return Memo(attempt.position, name, 0, None, b"digest", value)


def running(**nodes):
    """A driver whose node `a` runs and does not end."""
    driver = Driver(fan(a=lambda _s: HANGS, **nodes))
    driver.send_invoke({})
    driver.run(until=lambda: driver.started)
    return driver, next(each for each in driver.started if each.task.node == "a")


def kept(driver):
    """The names of the memos that the store has."""
    image = driver.store.load("t")
    return [e.name for record in image.entries for e in record.entries if type(e) is Memo]


def test_a_note_is_told_when_its_memo_is_durable():
    driver, attempt = running()
    assert driver.machine.noted(attempt, memo(attempt), "token")
    driver.advance()
    assert (driver.noted, kept(driver)) == ([], [])
    driver.run(until=lambda: driver.noted)
    assert (driver.noted, kept(driver)) == (["token"], ["s"])


def test_notes_that_come_together_share_a_commit():
    driver, attempt = running()
    before = len(driver.commits)
    for name in "abc":
        driver.machine.noted(attempt, memo(attempt, name), name)
    driver.run(until=lambda: len(driver.noted) == 3)
    assert len(driver.commits) == before + 1


def test_notes_wait_for_the_commit_on_its_way():
    driver, attempt = running()
    driver.machine.noted(attempt, memo(attempt, "first"), 1)
    driver.advance()
    driver.machine.noted(attempt, memo(attempt, "second"), 2)
    driver.run(until=lambda: driver.noted)
    assert (driver.noted, kept(driver)) == ([1], ["first"])
    driver.run(until=lambda: len(driver.noted) == 2)
    assert kept(driver) == ["first", "second"]


def test_a_note_of_an_attempt_that_ended_is_refused():
    driver = Driver(fan(a=wrote("a"), b=lambda _s: HANGS))
    driver.send_invoke({})
    driver.run(until=lambda: driver.finished)
    attempt = next(each for each in driver.started if each.task.node == "a")
    assert not driver.machine.noted(attempt, memo(attempt), "late")


@pytest.mark.parametrize("written", [True, False])
def test_after_a_crash_the_task_has_what_was_written(written):
    driver, attempt = running()
    driver.crash_at, driver.written = len(driver.commits), written
    driver.machine.noted(attempt, memo(attempt), "token")
    with pytest.raises(Crashed):
        driver.run(until=lambda: driver.noted)
    driver.crash()
    (task,) = driver.machine.state.step.tasks
    assert bool(task.memos) is written
    assert driver.noted == []


def test_a_memo_is_progress_so_that_no_death_counts():
    driver, attempt = running()
    for _ in range(6):
        driver.crash()
        driver.run(until=lambda: driver.machine.running)
        (attempt,) = driver.machine.running.values()
        driver.machine.noted(attempt, memo(attempt, f"s{len(driver.noted)}"), "token")
        driver.run(until=lambda: not driver.machine.dirty and not driver.machine.in_flight)
    assert driver.status == "running"
    assert len(kept(driver)) == 6


def test_they_go_with_the_commit_of_the_task():
    driver = Driver(fan(a=asks()))
    driver.send_invoke({})
    driver.run(until=lambda: driver.machine.running)
    (attempt,) = driver.machine.running.values()
    driver.machine.noted(attempt, memo(attempt), "token")
    driver.run()
    assert kept(driver) == ["s"]
    driver.resume("yes")
    assert (driver.status, kept(driver)) == ("complete", [])


def test_a_failed_attempt_leaves_them_to_the_next():
    policy = RetryPolicy(max_attempts=2, initial_delay=1, jitter=False)
    driver = Driver(fan(a=fails(1), options={"a": {"retry": policy}}))
    driver.send_invoke({})
    driver.run(until=lambda: driver.machine.running)
    (attempt,) = driver.machine.running.values()
    driver.machine.noted(attempt, memo(attempt), "token")
    driver.run(until=lambda: len(driver.started) == 2)
    assert list(driver.started[1].task.memos) == [("s", 0, None)]


def test_a_restart_of_the_run_begins_without():
    driver, attempt = running()
    driver.machine.noted(attempt, memo(attempt), "token")
    driver.run(until=lambda: driver.noted)
    driver.machine.cut()
    driver.run()
    driver.send_invoke({"log": ["new"]}, on_unfinished="restart")
    driver.run(until=lambda: len(driver.started) == 2)
    assert kept(driver) == []
    assert driver.started[1].task.memos is None


def test_memos_of_a_step_are_kept_while_the_run_is_cancelled():
    driver, attempt = running()
    driver.machine.noted(attempt, memo(attempt), "token")
    driver.machine.cut()
    driver.run()
    assert kept(driver) == ["s"]
    assert driver.noted == ["token"]
