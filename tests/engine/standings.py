"""Threads as they may stand when a call comes: one function for each row of the table of calls."""

from __future__ import annotations

from beamweaver.engine import CallKind
from tests.engine.driver import Driver, Later
from tests.engine.graphs import asks, fails, fan, graph, line

INPUT = {"n": 1}
OTHER = {"n": 10}


def slow(name="slow"):
    """A node that takes a second."""
    return lambda _s: Later(1, {"log": [name]})


def new():
    return Driver(line("a"))


def complete():
    driver = new()
    driver.invoke(INPUT, run_id="R")
    return driver


def failed(times=1):
    driver = Driver(fan(ok=None, bad=fails(times)))
    driver.fails(INPUT, run_id="R")
    return driver


def waiting():
    driver = Driver(fan(ok=None, ask=asks()))
    driver.invoke(INPUT, run_id="R")
    return driver


def running():
    driver = Driver(fan(slow=slow()))
    driver.first = driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    return driver


def cancelled(node=None):
    driver = Driver(fan(ok=None, slow=node or slow()))
    driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    driver.call(CallKind.CANCEL)
    return driver


def drained():
    driver = Driver(graph("^>slow slow>b", slow=slow(), b=None))
    driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    driver.machine.drain()
    driver.run()
    driver.recover = False
    driver.crash()
    return driver


def left(*, recover, until_end=False, **nodes):
    """A thread that a dead process left."""
    driver = Driver(fan(**(nodes or {"ok": None, "slow": slow()})))
    driver.send_invoke(INPUT)
    driver.run(seconds=0.5)
    driver.recover = recover
    driver.crash()
    if recover:
        driver.run(seconds=None if until_end else 0.5)
    return driver


def quarantined():
    driver = Driver(fan(slow=slow()))
    driver.send_invoke(INPUT, run_id="R")
    driver.run(seconds=0.5)
    for _death in range(3):
        driver.crash()
        driver.run(seconds=0.1)
    assert driver.stored_status == "quarantined"
    return driver
