"""The user's document on durable execution: its programs, with the results that it prints."""

from __future__ import annotations

import pytest

from beamweaver import END, START, Graph, Interrupted, RetryPolicy, Send, interrupt
from beamweaver.errors import NodeError, NodeFailed
from tests.runtime.kit import Counted

CONFIG = {"configurable": {"thread_id": "fanout-1"}}


def notify_customer(state):
    if state.get("notification_ready?"):
        return {"notification": f"sent on attempt {state['attempt']}"}
    raise NodeError("notification_unavailable", "notification service unavailable")


class Fanout:
    """`RecoverableFanout`, and how often its sibling that succeeds ran."""

    def __init__(self, store):
        self.record_invoice = Counted(lambda s: {"recorded_invoice_id": s["invoice_id"]})
        self.app = (
            Graph(name="RecoverableFanout")
            .add_node(
                "fanout",
                lambda _state: [
                    Send("record_invoice", {"invoice_id": "inv_123"}),
                    Send("notify_customer", {"attempt": 1}),
                ],
            )
            .add_node("record_invoice", self.record_invoice)
            .add_node("notify_customer", notify_customer)
            .add_edge(START, "fanout")
            .add_edge("record_invoice", END)
            .add_edge("notify_customer", END)
            .compile(checkpointer=store)
        )


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
    graph = (
        Graph(name="DurableExample")
        .add_node("load", lambda state: {"loaded_url": state["url"]})
        .add_node("summarize", lambda state: {"summary": f"Fetched {state['loaded_url']}"})
        .add_edge("load", "summarize")
        .add_edge(START, "load")
        .add_edge("summarize", END)
    )
    with graph.compile(checkpointer=store) as app:
        config = {"configurable": {"thread_id": "durable-run-1"}}
        outcome = app.invoke({"url": "https://example.com"}, config=config)
        assert outcome.state == {
            "url": "https://example.com",
            "loaded_url": "https://example.com",
            "summary": "Fetched https://example.com",
        }


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
        assert failed.record_invoice.runs == 1

    def test_record_invoice_does_not_rerun_after_a_second_failure(self, failed):
        with pytest.raises(NodeFailed):
            failed.app.invoke({}, config=CONFIG)
        failed.app.invoke({"notification_ready?": True}, config=CONFIG)
        assert failed.record_invoice.runs == 1


REVIEW = {"configurable": {"thread_id": "review-1"}}


class TestReviewFlow:
    @pytest.fixture
    def review(self, store):
        def ask(state):
            return {
                "review_decision": interrupt({"action": "approve_send", "draft": state["draft"]})
            }

        graph = Graph(name="ReviewFlow").add_node("review", ask).add_edge(START, "review")
        with graph.add_edge("review", END).compile(checkpointer=store) as app:
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
    keys = []

    def create_invoice(state, ctx):
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise ConnectionError("billing")
        return {"invoice_id": f"invoice:{state['order_id']}"}

    transient = RetryPolicy(max_attempts=3, retry_on="transient", initial_delay=0.001)
    graph = (
        Graph(name="OrderProcessing")
        .add_node("create_invoice", create_invoice, retry=transient, timeout=30)
        .add_node(
            "send_receipt", lambda s: {"receipt_id": f"receipt:{s['invoice_id']}"}, timeout=30
        )
        .add_edge("create_invoice", "send_receipt")
        .add_edge(START, "create_invoice")
        .add_edge("send_receipt", END)
    )
    with graph.compile(checkpointer=store, step_timeout=60, run_timeout=300) as app:
        outcome = app.invoke({"order_id": 7}, thread_id="order-7", recursion_limit=50)
    assert outcome.state["receipt_id"] == "receipt:invoice:7"
    assert len(keys) == 3
    assert len(set(keys)) == 1, "each attempt has the same idempotency key"
