"""Deliberate faults in the product, each of which some history must find.

`MUTANTS` maps a fault to what brings it about. `python -m tests.soak simulation_mutants` looks for the first
seed that finds each; the seeds are kept in `mutants.txt`, and CI replays them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from beamweaver.checkpoint import _retention
from beamweaver.checkpoint._meta import fence_of
from beamweaver.checkpoint.deltas import join
from beamweaver.checkpoint.entries import Finished
from beamweaver.checkpoint.records import DeltaRow
from beamweaver.checkpoint.store import RecordWriter
from beamweaver.engine import (
    _branches,
    _continuing,
    _inside,
    calls,
    effects,
    growth,
    merge,
    migrate,
    plan,
    rows,
    state,
)
from beamweaver.engine._admission import Admissions
from beamweaver.engine._attempts import Attempts
from beamweaver.engine._callers import Callers
from beamweaver.engine._children import Children
from beamweaver.engine._core import Core
from beamweaver.engine._steps import Steps
from beamweaver.engine.effects import Admitted, SetTimer
from beamweaver.engine.machine import Machine
from beamweaver.engine.plan import Routes
from beamweaver.runtime import keeping
from beamweaver.runtime.pauses import Pauses
from beamweaver.runtime.recovery import Recovery
from beamweaver.runtime.routing import Routing
from beamweaver.runtime.substeps import SubSteps
from beamweaver.runtime.waiters import Waiters
from beamweaver.runtime.writer import CheckpointWriter
from tests.mutants import Mutant, read_found
from tests.mutants import around as _around
from tests.mutants import instead as _instead
from tests.simulation.config import Config
from tests.simulation.disk import SimKv
from tests.simulation.shrink import failure_of
from tests.simulation.store import SimCheckpointer

__all__ = ["FOUND", "MUTANTS", "fails", "found"]

FOUND = Path(__file__).with_name("mutants.txt")


def _commit(**changes: Any) -> Mutant:
    """Each commit without some of what it should write."""

    def change(original: Any, self: Any, then: Any, **options: Any) -> Any:
        return original(
            self, then, **{**options, **{k: v for k, v in changes.items() if k in options}}
        )

    return _around(Core, "commit", change)


def _checkpoint(**changes: Any) -> Mutant:
    def change(original: Any, *args: Any, **options: Any) -> Any:
        made = original(*args, **options)
        return made if made.step == 0 else msgspec.structs.replace(made, **changes)

    return _around(Steps, "checkpoint", change)


def _checkpoint_of(source: str, **changes: Any) -> Mutant:
    """The checkpoints of one source, changed."""

    def change(original: Any, *args: Any, **options: Any) -> Any:
        made = original(*args, **options)
        return msgspec.structs.replace(made, **changes) if made.source == source else made

    return _around(Steps, "checkpoint", change)


def _after_load(forget: Callable[[Any], None]) -> Mutant:
    """What a thread's state lacks after it was read from the store."""

    def change(original: Any, *args: Any) -> Any:
        loaded = original(*args)
        forget(loaded)
        return loaded

    return _around(migrate, "fold", change)


def _without_joins(loaded: Any) -> None:
    loaded.joins = {}


def _without_amendments(loaded: Any) -> None:
    loaded.step.amendments = []


def _without_gotos(loaded: Any) -> None:
    for task in loaded.step.tasks:
        if task.result is not None:
            task.result.goto = None


def _without_sends(loaded: Any) -> None:
    for task in loaded.step.tasks:
        if task.result is not None:
            task.result.sends = ()


def _without_due_times(loaded: Any) -> None:
    for task in loaded.step.tasks:
        task.due_us = 0


def _without_answers(loaded: Any) -> None:
    for task in loaded.step.tasks:
        for question in task.questions or ():
            question.answer = None


def _without_sleeps(loaded: Any) -> None:
    for task in loaded.step.tasks:
        task.sleeps = None


def _without_memos(loaded: Any) -> None:
    for task in loaded.step.tasks:
        task.memos = None


def _without_graphs_inside(loaded: Any) -> None:
    for task in loaded.step.tasks:
        task.inner = None


def _with_other_parts(loaded: Any) -> None:
    for task in loaded.step.tasks:
        for inner in (task.inner or {}).values():
            inner.part += "'" * bool(inner.part)


def _without_commands(loaded: Any) -> None:
    for task in loaded.step.tasks:
        for inner in (task.inner or {}).values():
            _without_commands(inner)
        if task.result is not None:
            task.result.up = None


def _without_results(loaded: Any) -> None:
    for task in loaded.step.tasks:
        task.result = None


def _eager(original: Any, self: Any, then: Any, **options: Any) -> None:
    """What waits for a record to be durable does not wait."""
    original(self, then, **options)
    pending, self._then = self._then, lambda: None
    self.in_flight = None
    pending()


def _clears_all(original: Any, self: Any, then: Any, **options: Any) -> None:
    before = list(self.state.entry_seqs)
    original(self, then, **options)
    self.in_flight = msgspec.structs.replace(self.in_flight, clears=tuple(before))
    self._effects[-1].commit = self.in_flight


def _lost(original: Any, waiters: Any, thread_id: str, incarnation: int) -> Any:
    return [call for call in original(waiters, thread_id, incarnation) if not call.again]


def _same_epoch(original: Any, self: Any, expected: int) -> bool:
    """Who takes the store writes under its number, and the store's own stays as it is."""
    if expected == 0:
        return bool(original(self, expected))
    self.adopt(expected + 1)
    self._fence = fence_of(expected)
    return True


def _unsynced(kv: Any, disk: Any, process: Any, *, sync: bool) -> None:
    del sync
    _OPEN(kv, disk, process, sync=False)


_OPEN = SimKv.__init__


def _merged_sends(original: Any, graph: Any, source: str, sends: Any) -> Any:
    unique = {send.node: send for send in sends}
    return original(graph, source, list(unique.values()))


def _early(original: Any, self: Any, task: Any) -> None:
    original(self, task)
    effect = self._effects[-1]
    if isinstance(effect, SetTimer):
        effect.delay /= 2


def _out_of_time_early(original: Any, self: Any, task: Any) -> None:
    before = len(self._effects)
    original(self, task)
    for effect in self._effects[before:]:
        if isinstance(effect, SetTimer):
            effect.delay /= 2


def _out_of_time_late(original: Any, self: Any, task: Any) -> None:
    before = len(self._effects)
    original(self, task)
    for effect in self._effects[before:]:
        if isinstance(effect, SetTimer):
            effect.delay *= 2


def _counts_twice(original: Any, self: Any, task: Any, attempt: Any) -> Any:
    """A failure that is followed by another attempt counts as two."""
    task.failures += 1
    return original(self, task, attempt)


def _tells_twice(original: Any, *args: Any) -> None:
    original(*args)
    original(*args)


def _first_of_all(original: Any, self: Any, ident: Any, digest: bytes) -> Any:
    """A sub-step gets the result of the first one of its task."""
    return next(iter(self._known.values()), None) or original(self, ident, digest)


def _takes_again(original: Any, found: Any, call: Any) -> Any:
    """An answer to a question that has one takes its place."""
    asked = {q.id: (t.position, q) for t in found.step.tasks for q in t.questions or ()}
    if call.answers is None or not asked.keys() >= call.answers.keys():
        return original(found, call)
    return [(*asked[id_], answer) for id_, answer in call.answers.items()]


def _calls_anew(original: Any, self: Any, attempt: Any, calling: Any) -> Any:
    """A graph that a function calls again is not known any more."""
    attempt.task.inner = None
    return original(self, attempt, calling)


def _several(*mutants: Mutant) -> Mutant:
    """Several changes that are one fault."""

    @contextlib.contextmanager
    def all_of_them() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for mutant in mutants:
                stack.enter_context(mutant())
            yield

    return all_of_them


def _sleeps_half(original: Any, self: Any, due: float, rest: float, key: Any) -> Any:
    return original(self, due - rest / 2, rest / 2, key)


def _acknowledges_full(_original: Any, self: Any, group: Any, full: Any) -> Any:
    self._hub.full = full
    return [None] * len(group)


def _acknowledges_refused(original: Any, self: Any, epoch: int, items: Any, *rest: Any) -> None:
    original(self, epoch, items, *rest)
    for item in items:
        item.error = None


def _admits_before_its_message(original: Any, self: Any, call: Any, *rest: Any) -> Any:
    """A told message is acknowledged before it is kept."""
    if not call.waits:
        self._effects.append(Admitted(call, call.run_id))
    return original(self, call, *rest)


def _as_nobody(original: Any, state: Any, *args: Any) -> Any:
    """A persistent graph begins with what it kept of another key."""
    part = state.part
    state.part = part and "nobody"
    try:
        return original(state, *args)
    finally:
        state.part = part


async def _choose_nothing(routing: Any, gives_up: Any) -> Any:
    """What routers chose, of which one is async, is lost."""
    routes = await _ASKS(routing, gives_up)
    return Routes(routes.spent) if isinstance(routes, Routes) else routes


_ASKS = Routing.ask_async


def _chose_nothing(_original: Any, self: Any, _error: BaseException) -> Any:
    """A router that failed chose to lead nowhere."""
    return Routes(self._transition.spent)


def _dead_results(self: Any, attempt: Any) -> bool:
    """A result of an attempt that was given up counts."""
    self.running.pop(attempt.position, None)
    return True


def _forgets_one(original: Any, self: Any) -> None:
    """Of those who wait for a run, the last hears nothing."""
    if len(self.attached) > 1:
        self.attached.pop()
    original(self)


def _arrives_alone(original: Any, graph: Any, node: str, joins: Any, pulled: Any) -> Any:
    """A join fires when the first of its sources arrives."""
    pulled.update(join.target for join in graph.joins.get(node, ()))
    return original(graph, node, joins, pulled)


def _nothing_added(original: Any, *args: Any) -> bytes | None:
    return None if original(*args) is None else join([])


def _drops_the_last(original: Any, self: Any) -> None:
    """Of a group of commits the last is neither written nor refused."""
    if len(self._group) > 1:
        self._group.pop()
    original(self)


def _one_step(original: Any, branch: str, namespace: str, _step: int, path: str) -> str:
    """Tasks of one path have one id in all steps."""
    return str(original(branch, namespace, 0, path))


MUTANTS: dict[str, Mutant] = {
    "a pending result is dropped": _around(
        Core, "take_dirty", lambda f, s: tuple(e for e in f(s) if type(e) is not Finished)
    ),
    "a commit goes without its values": _checkpoint(writes={}),
    "a checkpoint follows the wrong one": _checkpoint(parent=0),
    "the epoch is not checked": _instead(RecordWriter, "_check", lambda *_: None),
    "the epoch is not raised": _around(RecordWriter, "raise_epoch", _same_epoch),
    "a refused put is acknowledged": _around(RecordWriter, "_one_by_one", _acknowledges_refused),
    "a full store acknowledges": _around(CheckpointWriter, "_put_some", _acknowledges_full),
    "a group is acknowledged before its sync": _instead(SimKv, "__init__", _unsynced),
    "an outcome is given before its record": _around(Core, "commit", _eager),
    "entries are cleared too early": _around(Core, "commit", _clears_all),
    "a message is not kept": _commit(inbox_put=()),
    "a message is acknowledged too early": _around(Machine, "call", _admits_before_its_message),
    "a run id is not kept": _commit(names=()),
    "calls forget the run that they are of": _instead(
        Admissions, "_remember_names", lambda *_: None
    ),
    "a waiter is lost when its actor restarts": _around(Waiters, "take", _lost),
    "one of several waiters hears nothing": _around(Core, "run_stopped", _forgets_one),
    "an amendment is lost on load": _after_load(_without_amendments),
    "joins are lost on load": _after_load(_without_joins),
    "gotos are lost on load": _after_load(_without_gotos),
    "Sends are lost on load": _after_load(_without_sends),
    "answers are lost on load": _after_load(_without_answers),
    "due times are lost on load": _after_load(_without_due_times),
    "results are lost on load": _after_load(_without_results),
    "graphs inside are lost on load": _after_load(_without_graphs_inside),
    "a graph inside comes back whole": _instead(
        _inside, "leaving", lambda child, parent, start, end, written: {k: end[k] for k in written}
    ),
    "a graph that was called begins anew": _around(Callers, "_state_of", _calls_anew),
    "what persistent graphs keep is lost": _instead(Children, "keep", lambda *_: None),
    "a persistent graph begins with another key's state": _around(
        _inside, "start_values", _as_nobody
    ),
    "keys of persistent graphs are others on load": _after_load(_with_other_parts),
    "commands of graphs inside are lost on load": _after_load(_without_commands),
    "questions are lost on load": _instead(rows, "_ask", lambda *_: None),
    "Sends to one node become one": _around(plan, "_send_tasks", _merged_sends),
    "results merge backwards": _around(
        merge, "_of_tasks", lambda f, done, low, high: f(done[::-1], low, high)
    ),
    "an attempt comes too early": _around(Attempts, "_wake_when_due", _early),
    "a timeout comes too early": _around(Attempts, "_start", _out_of_time_early),
    "a timeout comes too late": _around(Attempts, "_start", _out_of_time_late),
    "a failure counts twice": _around(Attempts, "_retry_later", _counts_twice),
    "a failure is told twice": _around(Attempts, "_tell_failed", _tells_twice),
    "a sub-step gets another one's result": _around(SubSteps, "_recorded", _first_of_all),
    "an answer is taken twice": _several(
        _around(_continuing, "answers_for", _takes_again),
        _instead(calls, "refuse_answered", lambda *_: None),
    ),
    "the first death is one too many": _instead(
        Machine, "one_death_too_many", lambda self: self.ownership().get("deaths", 0) > 0
    ),
    "a sleep is too short": _around(Pauses, "_begin", _sleeps_half),
    "sleeps are lost on load": _after_load(_without_sleeps),
    "results of sub-steps are lost on load": _after_load(_without_memos),
    "an edit is lost": _checkpoint_of("update", writes={}),
    "a head stays where it is": _instead(keeping, "move_head", lambda *_: True),
    "a deleted thread is still there": _instead(SimCheckpointer, "delete_thread", lambda *_: True),
    "removing a run removes them all": _around(
        _retention, "doomed_runs", lambda f, numbers, _ids, kept: f(numbers, numbers.keys(), kept)
    ),
    "a branch has the values of the head": _around(
        _branches,
        "origin_of",
        lambda f, env, graph, thread_id, _place: f(env, graph, thread_id, None),
    ),
    "a result of a killed attempt counts": _instead(Attempts, "_ended", _dead_results),
    "what async routers choose is lost": _instead(Routing, "ask_async", _choose_nothing),
    "a router that fails leads nowhere": _around(Routing, "_failed", _chose_nothing),
    "a join fires too early": _around(plan, "_arrive", _arrives_alone),
    "steps are not counted": _checkpoint(step=1),
    "nodes run in another order": _around(
        plan, "_in_order", lambda f, graph, pulled: f(graph, pulled)[::-1]
    ),
    "a commit of a group is forgotten": _around(CheckpointWriter, "_write", _drops_the_last),
    "task ids repeat": _several(
        _around(state, "task_id", _one_step), _around(effects, "task_id", _one_step)
    ),
    "told messages are not recovered": _instead(Recovery, "_unread_batch", lambda _self: None),
    "what a step added is lost": _around(growth, "_delta", _nothing_added),
    "a delta goes on top of another value": _instead(
        growth, "DeltaRow", lambda base, data: DeltaRow(max(base - 1, 0), data)
    ),
}


def found() -> dict[str, int]:
    """The seed that finds each mutant, as far as it is known."""
    return read_found(FOUND)


def fails(seed: int) -> bool:
    """Whether the history of a seed ends with a failure."""
    return failure_of(Config.drawn(seed)) is not None
