"""Messages with keys, over deaths at any commit: each has its effect once, in the order of sending."""

from __future__ import annotations

import random

import pytest

from beamweaver.engine import CallKind
from beamweaver.limits import Limits
from tests.engine.driver import Crashed, Driver, Later
from tests.engine.graphs import fan

FAST, SLOW = 150, 2_000


class Sender:
    """Sends messages one after the other, each again and again until it has its receipt."""

    def __init__(self, driver, count, rng):
        self.driver, self.rng = driver, rng
        self.waiting = list(range(count))
        self.receipts = {}
        self.call = None

    def look(self):
        """Take a receipt that came, and send what is next; whether there is nothing more to send."""
        driver = self.driver
        if self.call is not None:
            run = dict(driver.admitted).get(self.call.id)
            if run is not None:
                receipt = (self.call.first_id or self.call.id, run)
                n = self.waiting[0]
                assert self.receipts.setdefault(n, receipt) == receipt, f"two receipts for {n}"
                if self.rng.random() < 0.7:  # else its caller has not heard of it
                    self.waiting.pop(0)
                self.call = None
        if self.call is None and self.waiting:
            n = self.waiting[0]
            self.call = driver.tell({"x": n})
            self.call.key, self.call.key_digest = f"k{n}", b"%d" % n
        return not self.waiting

    def lose(self):
        """The owner died: what was sent may be there or not."""
        self.call = None


def play(seed):
    """A history of a seed: messages, deaths, and messages again; what the thread has in the end."""
    rng = random.Random(seed)
    pace = rng.choice([0, 0, 1])
    node = lambda s: Later(pace, {"log": [s["x"]]}) if pace else {"log": [s["x"]]}
    limits = Limits(owner_deaths=1_000)  # that many deaths are no fault of the thread
    driver = Driver(fan(add=node), seed=seed, limits=limits)
    driver.crash_at, driver.written = rng.randrange(12), rng.random() < 0.5
    sender = Sender(driver, 5, rng)
    for _ in range(400):
        try:
            done = sender.look()
            driver.run(seconds=rng.choice([0, 0.3, 2]))
        except Crashed:
            driver.crash()
            sender.lose()
            if rng.random() < 0.6:
                driver.crash_at = len(driver.commits) + rng.randrange(6)
                driver.written = rng.random() < 0.5
            continue
        if rng.random() < 0.05:
            driver.restart_actor()
        if done:
            break
    driver.crash_at = None
    driver.run()
    return driver, sender


@pytest.mark.parametrize("seed", range(FAST))
def test_each_message_has_its_effect_once_and_in_order(seed):
    driver, sender = play(seed)
    assert driver.values["log"] == [0, 1, 2, 3, 4], f"seed {seed}"
    assert len(set(sender.receipts.values())) == 5, f"seed {seed}"
    assert driver.inbox == (), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(FAST, SLOW, 370))
def test_so_it_has_in_many_histories(block):
    for seed in range(block, block + 370):
        driver, _sender = play(seed)
        assert driver.values["log"] == [0, 1, 2, 3, 4], f"seed {seed}"


def test_a_repeated_call_gets_the_first_outcome():
    driver = Driver(fan(ask=lambda s: {"log": [s["x"]]}))
    first = driver.send_invoke({"x": 1})
    first.key, first.key_digest = "k", b"d"
    driver.run()
    again = driver.send(CallKind.INVOKE, {"x": 1})
    again.key, again.key_digest = "k", b"d"
    driver.run()
    assert driver.answer(again).state == driver.answer(first).state
    assert driver.row.run.number == 1
