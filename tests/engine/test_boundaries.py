"""What is durable before it takes effect, with all that precedes it, under each `durability=`."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Memo
from beamweaver.checkpoint.records import RunOptions
from beamweaver.engine import CallKind
from beamweaver.engine.fold import fold
from beamweaver.types import RetryPolicy
from tests.engine.driver import HANGS, Driver
from tests.engine.graphs import asks, fails, graph

BEFORE = ["a", "b", "c"]


def after_three(**last):
    """Three nodes, then the one that is given, with its options."""
    ((name, given),) = last.items()
    fn, options = given if isinstance(given, tuple) else (given, {})
    return graph(f"^>a a>b b>c c>{name}", options=options, a=None, b=None, c=None, **{name: fn})


def naps(_state, ctx):
    ctx.sleep(60)
    return {"log": ["nap"]}


RETRY = {"bad": {"retry": RetryPolicy(max_attempts=3, initial_delay=5, jitter=False)}}


def timers(driver, kind):
    return [key for key in driver.timers if key[0] == kind]


def hanging(driver):
    return next(a for a in driver.machine.running.values() if a.task.node == "hangs")


def note(driver):
    attempt = hanging(driver)
    driver.machine.noted(attempt, Memo(attempt.position, "s", 0, None, b"d", b"1"), "token")


def cancel(driver):
    driver.send(CallKind.CANCEL)


def drain(driver):
    driver.machine.drain()
    driver.machine.cut()


def tell(driver):
    driver.tell({"n": 1})


def replied(driver):
    return bool(driver.replies)


BOUNDARIES = {
    "a question": (lambda: after_three(ask=asks()), None, replied),
    "a sleep": (lambda: after_three(nap=naps), None, lambda d: timers(d, "sleep")),
    "the due time of a retry": (
        lambda: after_three(bad=(fails(1), RETRY)),
        None,
        lambda d: timers(d, "retry"),
    ),
    "a failure": (lambda: after_three(bad=fails(1)), None, replied),
    "the end": (lambda: after_three(d=None), None, replied),
    "a sub-step": (lambda: after_three(hangs=lambda _s: HANGS), note, lambda d: d.noted),
    "a cancellation": (lambda: after_three(hangs=lambda _s: HANGS), cancel, replied),
    "a drain": (lambda: after_three(hangs=lambda _s: HANGS), drain, replied),
    "a message": (
        lambda: after_three(hangs=lambda _s: HANGS),
        tell,
        lambda d: len(d.admitted) > 1,
    ),
}


def go_without_writes(driver):
    """Carry out all that there is but commits, which wait."""
    while True:
        driver.advance()
        others = [action for action in driver.actions if action[0] != "write"]
        if not others:
            return
        driver.actions = [action for action in driver.actions if action[0] == "write"]
        for what, token in others:
            getattr(driver, f"_do_{what}")(token)


def logged(driver):
    """The log, as the store has it."""
    return fold(driver.store.load("t"), driver.env).values["log"]


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_it_takes_effect_when_it_is_durable_with_all_before_it(boundary, mode):
    make, act, visible = BOUNDARIES[boundary]
    driver = Driver(make())
    driver.send_invoke({"x": 1}, options=RunOptions(durability=mode))
    go_without_writes(driver)
    while len(driver.log) < 4:  # after the admission, and under sync after each step
        driver.step()
        go_without_writes(driver)
    assert len(driver.commits) == (4 if mode == "sync" else 1)
    if act is not None:
        act(driver)
        go_without_writes(driver)
    assert not visible(driver)
    while not visible(driver):
        assert driver.actions, "it never takes effect"
        driver.step()
        go_without_writes(driver)
    assert logged(driver)[:3] == BEFORE


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_an_input_is_durable_before_anything_starts(mode):
    driver = Driver(after_three(d=None))
    driver.send_invoke({"x": 1}, options=RunOptions(durability=mode))
    go_without_writes(driver)
    assert (driver.started, driver.admitted) == ([], [])
    driver.step()
    go_without_writes(driver)
    assert driver.runs("a") == 1


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize("what", ["an answer", "an amendment"])
def test_what_a_caller_brings_is_durable_before_anything_goes_on(what, mode):
    options = RunOptions(durability=mode)
    node = asks() if what == "an answer" else fails(1)
    driver = Driver(after_three(last=node))
    driver.send_invoke({"x": 1}, options=options)
    driver.run()
    before = driver.runs("last")
    if what == "an answer":
        driver.send(CallKind.RESUME, answer="yes", options=options)
    else:
        driver.send_invoke({"x": 2}, options=options)
    go_without_writes(driver)
    assert driver.runs("last") == before
    driver.run()
    assert driver.runs("last") == before + 1
    assert driver.status == "complete"
