"""The user's document on durable execution: its programs, with the results that it prints."""

from __future__ import annotations

from collections import Counter

import pytest

from beamweaver import Interrupted
from beamweaver.errors import NodeError, NodeFailed
from tests.runtime.children import killed
from tests.runtime.documented import CALLS, call_and_die, compiled

CONFIG = {"configurable": {"thread_id": "fanout-1"}}


class Effects:
    """What a program did outside; the first ones of a kind fail, if it says so."""

    def __init__(self):
        self.counts = Counter()

    def __call__(self, what, *, fails=0):
        self.counts[what] += 1
        if self.counts[what] <= fails:
            raise ConnectionError(what)


class Fanout:
    """`RecoverableFanout`, and what it did."""

    def __init__(self, store):
        self.effects = Effects()
        self.app = compiled("fanout", store, self.effects)


@pytest.fixture
def fanout(store):
    made = Fanout(store)
    with made.app:
        yield made


@pytest.fixture
def failed(fanout):
    with pytest.raises(NodeFailed) as caught:
        fanout.app.invoke({}, config=CONFIG)
    fanout.error = caught.value
    return fanout


def test_durable_example_fetches_in_two_steps(store):
    with compiled("durable", store, Effects()) as app:
        config = {"configurable": {"thread_id": "durable-run-1"}}
        outcome = app.invoke({"url": "https://example.com"}, config=config)
        assert outcome.state == FETCHED


class TestRecoverableFanout:
    def test_the_failure_has_the_code_that_the_node_gave(self, failed):
        assert failed.error.code == "notification_unavailable"
        assert failed.error.node == "notify_customer"
        assert isinstance(failed.error.__cause__, NodeError)

    def test_the_snapshot_has_the_value_of_the_sibling_that_succeeded(self, failed):
        snapshot = failed.app.get_state(config=CONFIG)
        assert snapshot.values["recorded_invoice_id"] == "inv_123"

    def test_the_snapshot_has_the_pending_write(self, failed):
        ((_task, channel, value),) = failed.app.get_state(config=CONFIG).pending_writes
        assert (channel, value) == ("recorded_invoice_id", "inv_123")

    def test_the_snapshot_names_what_is_unfinished(self, failed):
        snapshot = failed.app.get_state(config=CONFIG)
        assert (snapshot.next, snapshot.status) == (("notify_customer",), "failed")

    def test_the_continuation_completes_with_the_new_input(self, failed):
        outcome = failed.app.invoke({"notification_ready?": True}, config=CONFIG)
        assert outcome.state == {
            "recorded_invoice_id": "inv_123",
            "notification_ready?": True,
            "notification": "sent on attempt 1",
        }

    def test_record_invoice_does_not_rerun(self, failed):
        failed.app.invoke({"notification_ready?": True}, config=CONFIG)
        assert failed.effects.counts["record"] == 1

    def test_record_invoice_does_not_rerun_after_a_second_failure(self, failed):
        with pytest.raises(NodeFailed):
            failed.app.invoke({}, config=CONFIG)
        failed.app.invoke({"notification_ready?": True}, config=CONFIG)
        assert failed.effects.counts["record"] == 1


REVIEW = {"configurable": {"thread_id": "review-1"}}


class TestReviewFlow:
    @pytest.fixture
    def review(self, store):
        with compiled("review", store, Effects()) as app:
            yield app

    def test_the_question_is_in_the_outcome(self, review):
        outcome = review.invoke({"draft": "Send this response?"}, config=REVIEW)
        assert isinstance(outcome, Interrupted)
        assert outcome.interrupt.value == {
            "action": "approve_send",
            "draft": "Send this response?",
        }

    def test_a_map_from_the_questions_id_resumes(self, review):
        asked = review.invoke({"draft": "Send this response?"}, config=REVIEW).interrupt
        outcome = review.resume({asked.id: "approved"}, config=REVIEW)
        assert outcome.state == {"draft": "Send this response?", "review_decision": "approved"}

    def test_the_question_is_in_the_store(self, review):
        asked = review.invoke({"draft": "d"}, config=REVIEW).interrupt
        state = review.get_state(config=REVIEW)
        assert (state.interrupts, state.status) == ((asked,), "waiting")


def test_an_order_is_billed_and_mailed_in_steps_of_their_own(store):
    effects = Effects()
    with compiled("order", store, effects) as app:
        outcome = app.invoke({"order_id": 7}, thread_id="order-7", recursion_limit=50)
    assert outcome.state == BILLED
    assert sorted(effects.counts.values()) == [1, 3], "each attempt has the same idempotency key"


def test_a_provider_is_called_within_budgets(store):
    with compiled("budgets", store, Effects()) as app:
        outcome = app.invoke({"question": "?"}, thread_id="b", recursion_limit=50)
    assert outcome.state == {"question": "?", "answer": "42"}


FETCHED = {
    "url": "https://example.com",
    "loaded_url": "https://example.com",
    "summary": "Fetched https://example.com",
}
BILLED = {"order_id": 7, "invoice_id": "invoice:7", "receipt_id": "receipt:invoice:7"}
NOTIFIED = {
    "recorded_invoice_id": "inv_123",
    "notification_ready?": True,
    "notification": "sent on attempt 1",
}
ENDS = {
    "durable": (FETCHED, []),
    "order": (BILLED, [1, 3]),
    "fanout": (NOTIFIED, [1]),
    "review": ({"draft": "Send this response?", "review_decision": "approved"}, []),
    "budgets": ({"question": "?", "answer": "42"}, [2]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_with_a_kill_between_every_two_calls_it_prints_the_same(name, tmp_path):
    """A process of its own makes each call, and SIGKILL ends it as soon as it has told the result."""
    given = None
    for number in range(len(CALLS[name])):
        (given,) = killed(call_and_die, str(tmp_path), name, number, given)
        if number == 1 and name == "fanout":
            pending = [("recorded_invoice_id", "inv_123")]
            assert given == ("inv_123", pending, ("notify_customer",), "failed")
    state, effects = ENDS[name]
    assert given == state
    log = tmp_path / "effects"
    done = Counter(log.read_text().splitlines() if log.exists() else [])
    assert sorted(done.values()) == effects
