"""Child processes and graphs of the tests about people in the loop and handlers."""

from __future__ import annotations

from typing import Any

from beamweaver.checkpoint import LMDBCheckpointer
from tests.runtime.children import die
from tests.runtime.kit import line, wrote


def store_at(path: Any) -> LMDBCheckpointer:
    return LMDBCheckpointer(path, survives="process-kill")


def guarded(b: Any = None) -> Any:
    """Three nodes, and a breakpoint before the second one."""
    return line("guarded", a=wrote("a"), b=b or wrote("b"), c=wrote("c"))


def stop_and_die(pipe, path):
    """Run up to the breakpoint, and die."""
    app = guarded().compile(checkpointer=store_at(path), interrupt_before=["b"])
    pipe.send([each.node for each in app.invoke({"n": 1}, thread_id="t").breakpoints])
    die()


def pass_and_die(pipe, path):
    """Pass the breakpoint, and die in the node behind it."""
    app = guarded(die).compile(checkpointer=store_at(path), interrupt_before=["b"])
    app.invoke(None, thread_id="t")


def stop_by_call_and_die(_pipe, path):
    """A run whose call wants it to stop, and that dies before it does."""
    app = line("guarded", a=die, b=wrote("b"), c=wrote("c")).compile(checkpointer=store_at(path))
    app.invoke({"n": 1}, thread_id="t", interrupt_before=["c"])


def boom(_state: Any) -> Any:
    raise ValueError("boom")


def handled(handler: Any, **options: Any) -> Any:
    """A node that fails, its handler, and a node behind it."""
    return line("handled", a=(boom, {"error_handler": handler, **options}), b=wrote("b"))


def die_in_handler(pipe, path):
    """Fail, and die in the error handler; tell its key."""

    def handler(failure, state, ctx):
        pipe.send((failure.message, ctx.idempotency_key))
        die()

    handled(handler).compile(checkpointer=store_at(path)).invoke({"n": 1}, thread_id="t")


def die_in_on_failure(pipe, path):
    """Fail, and die in `on_failure`; tell what it was told and its key."""

    def told(failures, ctx):
        pipe.send(([failure.node for failure in failures], ctx.idempotency_key))
        die()

    app = line("g", a=wrote("a"), b=boom).compile(checkpointer=store_at(path), on_failure=told)
    app.invoke({"n": 1}, thread_id="t")
