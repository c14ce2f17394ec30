"""Messages with keys, over deaths at any commit: each has its effect once, in the order of sending."""

from __future__ import annotations

import random

import pytest

from beamweaver.engine import CallKind
from beamweaver.errors import (
    IdempotencyKeyReused,
    NodeFailed,
    NothingToResume,
    UnknownRun,
)
from beamweaver.limits import Limits
from tests.engine.driver import Crashed, Driver, Later
from tests.engine.graphs import fails, fan

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


def keyed(driver, kind, value=None, digest=b"d", **options):
    call = driver.send(kind, value, **options)
    call.key, call.key_digest = "k", digest
    return call


def test_a_key_that_came_with_another_message_is_refused():
    driver = Driver(fan(a=None))
    first = keyed(driver, CallKind.INVOKE, {"x": 1})
    driver.run()
    other = keyed(driver, CallKind.INVOKE, {"x": 2}, b"other")
    driver.run()
    with pytest.raises(IdempotencyKeyReused) as refused:
        driver.answer(other)
    assert (refused.value.key, refused.value.message_id) == ("k", first.id)
    assert driver.values["x"] == 1


def test_one_that_repeats_a_message_that_waits_has_its_turn_after_it():
    driver = Driver(fan(slow=lambda s: Later(2, {"log": [s["x"]]})))
    driver.send_invoke({"x": 1})
    driver.run(seconds=1)
    keyed(driver, CallKind.INVOKE, {"x": 2}, waits=False)
    driver.run(seconds=0.1)
    again = keyed(driver, CallKind.INVOKE, {"x": 2})
    driver.run()
    assert driver.answer(again).state["log"] == [1, 2]
    assert driver.row.run.number == 2


def test_one_that_repeats_a_message_that_is_held_hears_how_the_run_stands():
    """A told start waits behind a run that failed until a caller goes on."""
    driver = Driver(fan(bad=fails(1)))
    driver.send_invoke({"x": 1})
    keyed(driver, CallKind.INVOKE, {"x": 2}, waits=False)
    driver.run()
    assert (driver.status, len(driver.inbox)) == ("failed", 1)
    again = keyed(driver, CallKind.INVOKE, {"x": 2})
    driver.run()
    with pytest.raises(NodeFailed):
        driver.answer(again)


def test_one_that_repeats_a_rejected_message_is_refused_as_it_was():
    driver = Driver(fan(a=None))
    driver.invoke({})
    other = driver.tell(None, CallKind.RESUME, answer="no")
    first = keyed(driver, CallKind.RESUME, answer="yes", waits=False)
    other.lasting = first.lasting = True
    driver.run()
    assert [each.id for each in driver.row.rejected] == [other.id, first.id]
    again = keyed(driver, CallKind.RESUME, answer="yes")
    driver.run()
    with pytest.raises(NothingToResume) as refused:
        driver.answer(again)
    assert refused.value.message == driver.replies[first.id].error.message


def test_one_whose_run_was_deleted_has_no_outcome():
    driver = Driver(fan(a=None))
    keyed(driver, CallKind.INVOKE, {"x": 1}, run_id="R")
    driver.run()
    driver.invoke({"x": 2})
    driver.store.delete_runs(driver.epoch, "t", ["R"])
    again = keyed(driver, CallKind.INVOKE, {"x": 1})
    driver.run()
    with pytest.raises(UnknownRun, match="its run 'R' is not recorded any more"):
        driver.answer(again)


def test_an_input_with_a_key_is_never_taken_for_the_call_of_a_dead_process():
    """It is a message of its own: the run that was left ends first."""
    driver = Driver(fan(slow=lambda s: Later(2, {"log": [s["x"]]})), recover=False)
    driver.send_invoke({"x": 1})
    driver.run(seconds=1)
    driver.crash()
    call = keyed(driver, CallKind.INVOKE, {"x": 1})
    driver.run()
    assert driver.answer(call).state["log"] == [1, 1]
    assert driver.row.run.number == 2
