"""Uses of the public names of `beamweaver` in a typed program: they run, and mypy and pyright pass."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict, assert_type

from beamweaver import (
    END,
    START,
    App,
    CallOptions,
    Command,
    Completed,
    Continue,
    Graph,
    Interrupted,
    Invoke,
    Outcome,
    Receipt,
    Resume,
    RetryPolicy,
    Runtime,
    Send,
    ThreadHandle,
    ThreadState,
    interrupt,
)
from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer


class State(TypedDict, total=False):
    """What the graph keeps."""

    topics: list[str]
    topic: str
    found: Annotated[list[str], operator.add]
    approved: bool


def plan(state: State) -> dict[str, Any]:
    return {"topics": [topic.lower() for topic in state.get("topics", [])]}


def fan_out(state: State) -> list[Send]:
    return [Send("look_up", {"topic": topic}) for topic in state.get("topics", [])]


def look_up(task: dict[str, Any]) -> dict[str, Any]:
    return {"found": [str(task["topic"])]}


async def review(state: State) -> Command:
    await asyncio.sleep(0)
    return Command(update={"approved": bool(interrupt(len(state.get("found", []))))}, goto=END)


def build() -> Graph:
    return (
        Graph(State, name="typed")
        .add_node("plan", plan)
        .add_node("look_up", look_up, retry=RetryPolicy(max_attempts=2))
        .add_node("review", review)
        .add_edge(START, "plan")
        .add_conditional_edges("plan", fan_out)
        .add_edge("look_up", "review")
    )


def test_an_app() -> None:
    with assert_type(build().compile(checkpointer=MemoryCheckpointer()), App) as app:
        outcome = assert_type(app.invoke({"topics": ["A", "B"]}, thread_id="t"), Outcome)
        assert isinstance(outcome, Interrupted)
        assert outcome.interrupts[0].value == 2
        done = app.resume(answer=True, thread_id="t")
        assert isinstance(done, Completed)
        assert done.state["found"] == ["a", "b"]
        assert_type(app.get_state("t"), ThreadState | None)


def thin(state: State) -> bool:
    return len(state.get("found", [])) < 2


async def thin_async(state: State) -> bool:
    return thin(state)


def test_options_guards_and_deferred_nodes() -> None:
    graph = (
        Graph(State, name="guarded")
        .add_node("look_up", look_up)
        .add_node("plan", plan, defer=True)
        .add_edge(START, "look_up")
        .add_edge("look_up", "look_up", when=thin, max_runs=1)
        .add_edge("look_up", END, when=thin_async)
        .add_edge("look_up", "plan", default=True)
    )
    options: CallOptions = {"run_timeout": 10, "failure_policy": "panic", "tags": ["nightly"]}
    with graph.compile(checkpointer=MemoryCheckpointer()) as app:
        outcome = app.invoke({"topic": "a"}, thread_id="t", **options)
        assert outcome.state["found"] == ["a", "a"]
        assert_type(outcome.warnings, tuple[str, ...])
        app.invoke(Command(update={"topic": "b"}), thread_id="t", metadata={"user": "ann"})


def test_a_runtime(tmp_path: Path) -> None:
    app = build().compile()
    with Runtime(LMDBCheckpointer(tmp_path / "store"), graphs=[app]) as runtime:
        thread = assert_type(runtime.thread("t", graph=app), ThreadHandle)
        assert_type(thread.tell(Invoke({"topics": ["A"]})), Receipt)
        assert isinstance(thread.ask(Continue(), timeout=10), Interrupted)
        assert isinstance(thread.ask(Resume(True), timeout=10), Completed)
        assert assert_type(runtime.drain(timeout=10), bool)
