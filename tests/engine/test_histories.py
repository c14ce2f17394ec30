"""Anything at any time: calls of every kind, stops, deaths of actors and processes, in a drawn order.

Whatever happens, the machine never raises, each call is answered at most once and none hangs, an
acknowledged result is never worked out again, the state is what the store folds to, and what was told takes
effect exactly once.
"""

from __future__ import annotations

import random

import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import Quarantined
from beamweaver.limits import Limits
from tests.engine.driver import Crashed, Driver
from tests.engine.driver_parts import check_fold
from tests.engine.generator import finish, plan_of

FAST, SLOW = 200, 1_200
KINDS = [
    "invoke",
    "equal",
    "named",
    "tell",
    "continue",
    "resume",
    "answers",
    "cancel",
    "restart",
    "reject",
]


def label(driver):
    """A text that no other input has."""
    driver.labels.append(f"label {len(driver.labels)}")
    return driver.labels[-1]


def send(driver, rng, kind):
    """One call of a kind."""
    match kind:
        case "invoke":
            on_busy = rng.choice(["queue", "queue", "reject", "cancel"])
            driver.send_invoke({"log": [label(driver)]}, on_busy=on_busy)
        case "equal":
            driver.send_invoke({"log": ["in"]})
        case "named":
            driver.send_invoke({"log": ["named"]}, run_id=f"R{rng.randrange(3)}")
        case "tell":
            text = label(driver)
            driver.told[
                driver.tell({"log": [text]}, on_busy=rng.choice(["queue", "cancel"])).id
            ] = text
        case "continue":
            driver.send(CallKind.CONTINUE, waits=rng.random() < 0.7)
        case "resume":
            driver.send(CallKind.RESUME, answer="scalar", waits=rng.random() < 0.7)
        case "answers":
            ids = [i.id for i in driver.machine.open_interrupts()]
            ids += ["int_unknown"] if rng.random() < 0.1 else []
            picked = [id_ for id_ in ids if rng.random() < 0.7]
            driver.send(CallKind.RESUME, answers=dict.fromkeys(picked, "mapped"))
        case "cancel":
            driver.send(CallKind.CANCEL, waits=rng.random() < 0.7)
        case "restart" | "reject":
            driver.restarts = driver.restarts or kind == "restart"
            driver.send_invoke({"log": [label(driver)]}, on_unfinished=kind)


def disturb(driver, rng):
    """Something that is no call."""
    what = rng.random()
    if what < 0.25:
        driver.machine.drain()
    elif what < 0.4:
        driver.machine.cut()
    elif what < 0.7:
        driver.recover = rng.random() < 0.7
        driver.crash()
    else:
        driver.restart_actor()


def history(seed):
    """One history, checked all along."""
    rng = random.Random(seed)
    limits = Limits(queued_calls=5, run_names=6, owner_deaths=rng.choice([2, 50]))
    policy, most = rng.choice(["proceed", "panic"]), rng.choice([None, 1, 2])
    graph = plan_of(seed).compile(failure_policy=policy, max_concurrency=most, run_timeout=1_000)
    driver = Driver(graph, seed=seed, limits=limits)
    driver.checks = True
    driver.labels, driver.told, driver.restarts = [], {}, False
    for _turn in range(rng.randrange(10, 60)):
        what = rng.random()
        if what < 0.2:
            send(driver, rng, rng.choice(KINDS))
        elif what < 0.24:
            disturb(driver, rng)
        elif what < 0.28:
            driver.crash_at, driver.written = len(driver.commits) + 1, rng.random() < 0.5
        else:
            go(driver, rng.randrange(1, 8))
    settle(driver)
    return driver


def go(driver, steps):
    """Carry out a few actions."""
    left = [steps]

    def done():
        left[0] -= 1
        return left[0] < 0

    try:
        driver.run(until=done)
    except Crashed:
        driver.crash()


def settle(driver):
    """Let everything come to rest: no call may hang."""
    driver.crash_at = None
    driver.run()
    assert driver.calls == [], [(call.id, call.kind, call.waits) for call in driver.calls]
    assert driver.machine.idle
    assert set(driver.reply_counts.values()) <= {1}
    assert driver.faults == []
    assert driver.timers == {}
    if driver.stored_status == "quarantined":
        driver.send(CallKind.RELEASE)
        driver.run()
    elif driver.status is not None:
        check_fold(driver)


def complete(driver):
    """Bring the thread and all that was told to it to the end, whatever became of it."""
    for _run in range(50):
        try:
            finish(driver)
            driver.run()
        except Quarantined:
            driver.send(CallKind.RELEASE)
            driver.run()
        if driver.status == "complete" and driver.inbox == ():
            judge(driver)
            return
    raise AssertionError("the thread cannot be brought to its end")


def judge(driver):
    """No input took effect twice; one that was told took effect, unless a restart may have dropped it."""
    log = driver.machine.state.values["log"]
    assert all(log.count(text) <= 1 for text in driver.labels)
    if not driver.restarts:
        admitted = {call for call, _run in driver.admitted}
        assert all(log.count(text) == 1 for call, text in driver.told.items() if call in admitted)


@pytest.mark.parametrize("seed", range(FAST))
def test_whatever_happens_every_call_is_answered_and_nothing_is_lost(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(FAST, SLOW, 250))
def test_whatever_happens_every_call_is_answered_and_nothing_is_lost_for_many_seeds(block):
    for seed in range(block, block + 250):
        check(seed)


def check(seed):
    try:
        complete(history(seed))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
