"""Graphs and runs that the tests of `durability=` share."""

from __future__ import annotations

from beamweaver.checkpoint.records import RunOptions
from beamweaver.engine import CallKind
from beamweaver.types import RetryPolicy, Send
from tests.engine.driver import Crashed, Driver
from tests.engine.graphs import asks, fails, graph, line

ASYNC = RunOptions(durability="async")
EXIT = RunOptions(durability="exit")


def plain():
    return line("a", "b", "c", "d")


def asking():
    return graph("^>a a>ask ask>b b>c", a=None, ask=asks("ask", "one", "two"), b=None, c=None)


def forked():
    """A fan-out, a join, Sends by a router, a retry."""
    retry = {"retry": RetryPolicy(max_attempts=3, initial_delay=5, jitter=False)}
    return graph(
        "^>a a>b a>c",
        joins=[("b c", "d")],
        routers=[("d", lambda _s: [Send("w", {"x": i}) for i in range(3)])],
        options={"c": retry},
        a=None,
        b=None,
        c=fails(1, "c"),
        d=None,
        w=lambda s: {"log": [f"w{s['x']}"]},
    )


def failing():
    return graph("^>a a>bad bad>b", a=None, bad=fails(1), b=None)


def nested():
    """A graph in a graph in a graph: a line, one that asks, one that fails once, two at once."""
    deep = line("x", "y", "z")
    mid = graph("^>m m>deep deep>ask", m=None, deep=deep, ask=asks("ask", "one"))
    other = graph("^>o o>p p>q", o=None, p=fails(1, "p"), q=None)
    return graph(
        "^>a a>mid a>other", joins=[("mid other", "end")], a=None, mid=mid, other=other, end=None
    )


MODES = {"plain": plain, "asking": asking, "forked": forked, "failing": failing, "nested": nested}


def finish(driver, options):
    """Answer and go on until the run is complete."""
    for _ in range(9):
        if driver.status == "waiting":
            driver.resume("yes", options=options)
        elif driver.status != "complete":
            driver.call(CallKind.CONTINUE, options=options)
        else:
            return driver.machine.state.values["log"]
    raise AssertionError(f"the run does not end: {driver.status}")


def run(make, options, crash_at=None, written=True, order=None):
    """A run to its end, with a crash at that commit; its log and the driver."""
    driver = Driver(make(), crash_at=crash_at, written=written, seed=order)
    driver.checks = True
    try:
        driver.send_invoke({"x": 1}, options=options)
        driver.run()
    except Crashed:
        driver.crash()
        driver.run()
        if driver.status is None:  # the input was not durable yet
            driver.send_invoke({"x": 1}, options=options)
            driver.run()
    try:
        finish(driver, options)
    except Crashed:
        driver.crash()
        driver.run()
    return finish(driver, options), driver
