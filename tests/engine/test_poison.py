"""Runs over which processes die."""

from __future__ import annotations

import msgspec
import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import Quarantined
from beamweaver.events import ThreadQuarantined, ThreadTakenUp
from beamweaver.limits import Limits
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fan, graph


def dies(one=None, times=1, **options):
    """A run over which that many processes died."""
    driver = Driver(one or fan(slow=lambda _s: Later(1)), **options)
    driver.send_invoke({"n": 1})
    driver.run(seconds=0.5)
    for _death in range(times):
        driver.crash()
        driver.run(seconds=0.1)
    return driver


@pytest.mark.parametrize("deaths", [1, 2])
def test_deaths_are_counted_when_the_run_is_taken_up(deaths):
    driver = dies(times=deaths)
    assert driver.row.run.deaths == deaths
    assert driver.told_events(ThreadTakenUp)[-1].deaths == deaths


def test_a_third_death_without_a_commit_quarantines():
    driver = dies(times=3)
    assert driver.stored_status == "quarantined"
    assert driver.row.reason == "the process died 3 times in step 1 (nodes slow) without a commit"
    assert len(driver.told_events(ThreadQuarantined)) == 1


def test_the_limit_of_deaths_can_be_set():
    assert dies(times=1, limits=Limits(owner_deaths=0)).stored_status == "quarantined"


def test_a_quarantined_thread_starts_nothing():
    driver = dies(times=3)
    driver.crash()
    driver.run()
    assert driver.runs("slow") == 3


def test_a_caller_that_takes_a_run_up_counts_the_death_too():
    driver = dies(times=2)
    driver.recover = False
    driver.crash()
    with pytest.raises(Quarantined, match="died 3 times"):
        driver.go_on()
    assert driver.stored_status == "quarantined"


@pytest.mark.parametrize("how", ["answer", "amendment"])
def test_whatever_a_caller_wants_a_third_death_quarantines(how):
    driver = Driver(fan(slow=lambda _s: Later(1), ask=asks()))
    driver.send_invoke({})
    driver.run(seconds=0.5)
    for _death in range(2):
        driver.crash()
        driver.run(seconds=0.1)
    driver.recover = False
    driver.crash()
    with pytest.raises(Quarantined):
        driver.resume("yes") if how == "answer" else driver.invoke({"x": 1})


def test_a_commit_forgets_the_deaths_before_it():
    one = graph("^>a a>b", a=lambda _s: Later(1), b=lambda _s: Later(1))
    driver = dies(one, times=2)
    driver.run(seconds=1.5)
    assert driver.runs("b") == 1
    driver.crash()
    driver.run(seconds=0.1)
    assert driver.row.run.deaths == 1


def test_a_run_that_got_to_a_stop_is_no_suspect_any_more():
    ends = [Later(1), Later(1), Later(1, ValueError("boom")), Later(1), Later(1)]
    driver = dies(fan(slow=lambda _s: ends.pop(0)), times=2)
    driver.run()
    assert (driver.stored_status, driver.row.run.deaths) == ("failed", 0)
    driver.send(CallKind.CONTINUE)
    driver.run(seconds=0.1)
    driver.crash()
    driver.run(seconds=0.1)
    assert driver.row.run.deaths == 1


def test_a_restart_forgets_the_deaths():
    driver = dies(times=2)
    driver.recover = False
    driver.crash()
    driver.send_invoke({}, on_unfinished="restart")
    driver.run(seconds=0.1)
    assert driver.row.run.deaths == 0


def test_a_process_that_dies_while_a_thread_waits_counts_for_nothing():
    driver = Driver(fan(ask=asks()))
    driver.invoke({})
    for _death in range(5):
        driver.crash()
        driver.run()
    assert driver.resume("yes").state["log"] == ["ask:yes"]


def test_a_release_of_a_complete_thread_that_was_set_aside_completes_it():
    driver = Driver(fan(a=None))
    driver.invoke({})
    driver.machine.state.row = msgspec.structs.replace(driver.row, status="quarantined", reason="x")
    assert type(driver.call(CallKind.RELEASE)).__name__ == "Completed"
    assert driver.stored_status == "complete"


def test_a_drained_run_keeps_its_count():
    driver = dies(times=2)
    driver.machine.cut()
    driver.run()
    assert (driver.stored_status, driver.row.run.deaths) == ("drained", 2)


def test_a_thread_is_set_aside_where_nobody_listens():
    driver = dies(times=3, publishing=False)
    assert (driver.stored_status, driver.events) == ("quarantined", [])
