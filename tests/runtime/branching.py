"""What the child processes of `test_branch_kills` do: one call on a prepared thread, killed at a point."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from beamweaver import Resume, Runtime, StateUpdate, interrupt
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint.store import RecordWriter
from tests.runtime.children import die
from tests.runtime.kit import line, wrote


def ask(_state: Any) -> Any:
    return {"log": [interrupt("ok?")]}


def letter() -> Any:
    return line("letter", a=wrote("a"), ask=ask, b=wrote("b")).compile()


def history(runtime: Any) -> list[str]:
    states = runtime.get_state_history("t")
    return [state.config["configurable"]["checkpoint_id"] for state in states]


def edit(runtime: Any, _ids: list[str]) -> Any:
    return runtime.update_state("t", {"n": 7})


def leave(runtime: Any, _ids: list[str]) -> Any:
    return runtime.update_state("t", {"n": 7}, as_node="b")


def bulk(runtime: Any, ids: list[str]) -> Any:
    steps = [[update("a")], [update("ask")], [update("b")]]
    return runtime.bulk_update_state("t", steps, ids[-1])


def update(node: str) -> Any:
    return StateUpdate({"log": [f"{node} edited"]}, node)


def branch(runtime: Any, ids: list[str]) -> Any:
    """The oldest checkpoint is that of the input."""
    outcome = runtime.thread("t").ask(Resume("yes", checkpoint_id=ids[-1], run_id="F"))
    return outcome.state["log"]


def move(runtime: Any, ids: list[str]) -> Any:
    return runtime.set_head("t", ids[-1])


CALLS = {call.__name__: call for call in (edit, leave, bulk, branch, move)}


def call_to_point(pipe: Any, path: str, survives: str, name: str, ids: list[str], nth: int) -> None:
    """Make a call; die at the `nth` point that store and runtime reach on the way."""
    store = LMDBCheckpointer(path, survives=survives)  # type: ignore[arg-type] # a test gives a right one
    points = itertools.count(1)
    armed = []

    def reached(*_point: str) -> None:
        if armed and next(points) == nth:
            die()

    _watch_transactions(reached)
    with Runtime(store, graphs=[letter()], recover="none", fault=reached) as runtime:
        store.faults = reached
        armed.append(True)
        made = CALLS[name](runtime, ids)
        armed.clear()
        pipe.send(made)
    store.close()


def _watch_transactions(reached: Callable[[], None]) -> None:
    """Edits of a store beside commits have no points of their own: before, within, and after them."""
    transact = RecordWriter.transact

    def watched(
        self: RecordWriter, epoch: int, change: Callable[[Any], Any], **options: Any
    ) -> Any:
        def between(txn: Any) -> Any:
            reached()
            found = change(txn)
            reached()
            return found

        found = transact(self, epoch, between, **options)
        reached()
        return found

    RecordWriter.transact = watched  # type: ignore[assignment] # it is a child process of its own
