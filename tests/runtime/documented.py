"""The five programs of the user's document on durable execution, and their calls, one process each."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from beamweaver import END, START, Graph, RetryPolicy, Send, interrupt
from beamweaver.errors import NodeError, NodeFailed
from beamweaver.types import Completed, Interrupted
from tests.runtime.children import die, store_at

__all__ = ["CALLS", "PROGRAMS", "call_and_die", "compiled"]

TRANSIENT = RetryPolicy(max_attempts=3, retry_on="transient", initial_delay=0.001)


def config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}}


def durable_example(_did: Any) -> Any:
    return (
        Graph(name="DurableExample")
        .add_node("load", lambda state: {"loaded_url": state["url"]})
        .add_node("summarize", lambda state: {"summary": f"Fetched {state['loaded_url']}"})
        .add_edge("load", "summarize")
        .add_edge(START, "load")
        .add_edge("summarize", END)
    )


def order_processing(did: Any) -> Any:
    def create_invoice(state: Any, ctx: Any) -> Any:
        did(f"invoice {ctx.idempotency_key}", fails=2)
        return {"invoice_id": f"invoice:{state['order_id']}"}

    def send_receipt(state: Any) -> Any:
        did("receipt")
        return {"receipt_id": f"receipt:{state['invoice_id']}"}

    return (
        Graph(name="OrderProcessing")
        .add_node("create_invoice", create_invoice, retry=TRANSIENT, timeout=30)
        .add_node("send_receipt", send_receipt, retry=TRANSIENT, timeout=30)
        .add_edge("create_invoice", "send_receipt")
        .add_edge(START, "create_invoice")
        .add_edge("send_receipt", END)
    )


def recoverable_fanout(did: Any) -> Any:
    def record_invoice(state: Any) -> Any:
        did("record")
        return {"recorded_invoice_id": state["invoice_id"]}

    def notify_customer(state: Any) -> Any:
        if state.get("notification_ready?"):
            return {"notification": f"sent on attempt {state['attempt']}"}
        raise NodeError("notification_unavailable", "notification service unavailable")

    return (
        Graph(name="RecoverableFanout")
        .add_node(
            "fanout",
            lambda _state: [
                Send("record_invoice", {"invoice_id": "inv_123"}),
                Send("notify_customer", {"attempt": 1}),
            ],
        )
        .add_node("record_invoice", record_invoice)
        .add_node("notify_customer", notify_customer)
        .add_edge(START, "fanout")
        .add_edge("record_invoice", END)
        .add_edge("notify_customer", END)
    )


def review_flow(_did: Any) -> Any:
    def review(state: Any) -> Any:
        decision = interrupt({"action": "approve_send", "draft": state["draft"]})
        return {"review_decision": decision}

    graph = Graph(name="ReviewFlow").add_node("review", review)
    return graph.add_edge(START, "review").add_edge("review", END)


def with_budgets(did: Any) -> Any:
    def call_provider(_state: Any) -> Any:
        did("provider", fails=1)
        return {"answer": "42"}

    graph = Graph(name="Budgets")
    graph.add_node("call_provider", call_provider, retry=TRANSIENT, timeout=30)
    return graph.add_edge(START, "call_provider").add_edge("call_provider", END)


PROGRAMS = {
    "durable": durable_example,
    "order": order_processing,
    "fanout": recoverable_fanout,
    "review": review_flow,
    "budgets": with_budgets,
}
OPTIONS = {
    "order": {"step_timeout": 60, "run_timeout": 300},
    "budgets": {"failure_policy": "proceed", "step_timeout": 60, "run_timeout": 300},
}


def compiled(name: str, store: Any, did: Any) -> Any:
    """A program on a store; `did` hears of its effects, and lets the first ones of a kind fail."""
    return PROGRAMS[name](did).compile(checkpointer=store, **OPTIONS.get(name, {}))


# The calls of each program: of the app and of what the call before it gave ------------------------


def shown(outcome: Any) -> Any:
    assert type(outcome) is Completed
    return outcome.state


def fails(app: Any, _given: Any) -> Any:
    try:
        app.invoke({}, config=config("fanout-1"))
    except NodeFailed as error:
        return error.code, error.node
    raise AssertionError("the customer was notified")


def snapshot(app: Any, _given: Any) -> Any:
    found = app.get_state(config=config("fanout-1"))
    pending = [(channel, value) for _task, channel, value in found.pending_writes]
    return found.values["recorded_invoice_id"], pending, found.next, found.status


def asks(app: Any, _given: Any) -> Any:
    outcome = app.invoke({"draft": "Send this response?"}, config=config("review-1"))
    assert type(outcome) is Interrupted
    return outcome.interrupt.id, outcome.interrupt.value


def still_asks(app: Any, given: Any) -> Any:
    found = app.get_state(config=config("review-1"))
    assert ((found.interrupts[0].id, found.interrupts[0].value), found.status) == (given, "waiting")
    return given


CALLS: dict[str, list[Any]] = {
    "durable": [
        lambda app, _: shown(
            app.invoke({"url": "https://example.com"}, config=config("durable-run-1"))
        ),
        lambda app, _: app.get_state(config=config("durable-run-1")).values,
    ],
    "order": [
        lambda app, _: shown(app.invoke({"order_id": 7}, config=config("order-7"))),
        lambda app, _: app.get_state(config=config("order-7")).values,
    ],
    "fanout": [
        fails,
        snapshot,
        lambda app, _: shown(app.invoke({"notification_ready?": True}, config=config("fanout-1"))),
        lambda app, _: app.get_state(config=config("fanout-1")).values,
    ],
    "review": [
        asks,
        still_asks,
        lambda app, asked: shown(app.resume({asked[0]: "approved"}, config=config("review-1"))),
        lambda app, _: app.get_state(config=config("review-1")).values,
    ],
    "budgets": [
        lambda app, _: shown(app.invoke({"question": "?"}, config=config("b"), recursion_limit=50)),
        lambda app, _: app.get_state(config=config("b")).values,
    ],
}


def call_and_die(pipe: Any, folder: str, name: str, number: int, given: Any) -> None:
    """Make one call of a program in this process, tell what it gave, and be killed at once."""
    effects = Path(folder) / "effects"

    def did(what: str, *, fails: int = 0) -> None:
        with effects.open("a") as file:
            file.write(f"{what}\n")
        if effects.read_text().count(what) <= fails:
            raise ConnectionError(what)

    app = compiled(name, store_at(f"{folder}/state.lmdb"), did)
    with contextlib.suppress(BrokenPipeError):
        pipe.send(CALLS[name][number](app, given))
    die()
