"""Deliberate faults in the engine, each of which some random graph must find.

`MUTANTS` maps a fault to what brings it about. `python -m tests.soak engine_mutants` looks for the first seed
that finds each; the seeds are kept in `mutants.txt`, and CI replays them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from beamweaver.engine import _continuing, _steps, fold, merge, migrate, plan, rows
from beamweaver.engine._attempts import Attempts
from beamweaver.engine.state import Task
from tests.engine import test_crashes, test_histories
from tests.engine.crashing import crash_plan
from tests.engine.generator import plan_of, run_plan
from tests.mutants import Mutant, around, instead, read_found

__all__ = ["FOUND", "MUTANTS", "fails", "found"]

FOUND = Path(__file__).with_name("mutants.txt")


def _after_load(forget: Any) -> Mutant:
    """What a thread's state lacks after it was read from the store."""

    def change(original: Any, *args: Any, **options: Any) -> Any:
        loaded = original(*args, **options)
        forget(loaded)
        return loaded

    return around(migrate, "fold", change)


def _without_results(loaded: Any) -> None:
    for task in loaded.step.tasks:
        task.result = None


def _without_questions(loaded: Any) -> None:
    for task in loaded.step.tasks:
        task.questions = None


def _without_kept(loaded: Any) -> None:
    loaded.kept = None


def _without_written(loaded: Any) -> None:
    for task in loaded.step.tasks:
        for inner in (task.inner or {}).values():
            inner.written = set()


class _by_completion:
    """Results merge in the order in which they came."""

    def __enter__(self) -> None:
        came: dict[int, tuple[int, Any]] = {}
        numbers = itertools.count(1)
        succeeded, of_tasks = Attempts.succeeded, merge._of_tasks

        def note(machine: Any, attempt: Any, result: Any) -> None:
            came[id(result)] = next(numbers), result
            succeeded(machine, attempt, result)

        def ordered(done: Any, low: int, high: int) -> Any:
            return of_tasks(sorted(done, key=lambda t: came.get(id(t.result), (0,))[0]), low, high)

        self._patches = [
            patch.object(Attempts, "succeeded", note),
            patch.object(merge, "_of_tasks", ordered),
        ]
        for each in self._patches:
            each.start()

    def __exit__(self, *_error: object) -> None:
        for each in self._patches:
            each.stop()


def _goto_lost(original: Any, graph: Any, state: Any, routes: Any) -> Any:
    """A goto leads nowhere."""
    for task in state.step.tasks:
        if task.result is not None and task.result.goto:
            task.result.goto = ()
    return original(graph, state, routes)


def _goto_beside(original: Any, graph: Any, state: Any, routes: Any) -> Any:
    """A goto does not replace the edges of its node."""
    found = original(graph, state, routes)
    for task in state.step.tasks:
        if task.result is not None and task.result.goto:
            known = {each.node for each in found.tasks}
            edges = graph.edges.get(task.node, ())
            found.tasks.extend(Task(name) for name in edges if name not in known)
    return found


def _merged_sends(original: Any, graph: Any, source: str, sends: Any) -> Any:
    unique = {send.node: send for send in sends}
    return original(graph, source, list(unique.values()))


def _without_overlays(original: Any, graph: Any, source: str, sends: Any) -> Any:
    bare = [msgspec.structs.replace(send, update={}, data={}) for send in sends]
    return original(graph, source, bare)


def _never_full(_original: Any, graph: Any, node: str, joins: Any, pulled: Any) -> Any:
    """A join that fired is not empty again."""
    for join in graph.joins.get(node, ()):
        arrived = {*joins.get(join.key, ()), node}
        joins = {**joins, join.key: tuple(sorted(arrived))}
        if len(arrived) == len(join.sources):
            pulled.add(join.target)
    return joins


def _any_answer(original: Any, state: Any, call: Any) -> Any:
    """An answer goes to the last question that is open, whichever was meant."""
    given = original(state, call)
    open_ = [(t.position, q) for t in state.step.tasks for q in t.open_questions]
    return [(*open_[-1], answer) for _position, _question, answer in given]


def _undeferred(_original: Any, _graph: Any, waiting: Any, tasks: Any, joins: Any) -> Any:
    return [*waiting, *tasks], joins, ()


def _all_at_once(_original: Any, machine: Any, step: Any) -> Any:
    """A continued task sees the step as it began."""
    del step
    return machine.state.values


MUTANTS: dict[str, Mutant] = {
    "a goto is lost": around(_steps, "plan", _goto_lost),
    "a goto is taken beside the edges": around(_steps, "plan", _goto_beside),
    "joins are reset with each step": around(
        plan, "_arrive", lambda f, graph, node, _joins, pulled: f(graph, node, {}, pulled)
    ),
    "a join is never empty again": around(plan, "_arrive", _never_full),
    "Sends to one node become one": around(plan, "_send_tasks", _merged_sends),
    "a Send brings nothing": around(plan, "_send_tasks", _without_overlays),
    "results merge in the order in which they came": _by_completion,
    "an amendment is dropped": instead(_continuing, "amendment_of", lambda _prepared: None),
    "an answer goes to another task": around(_continuing, "answers_for", _any_answer),
    "a deferred node does not wait": around(plan, "_set_aside", _undeferred),
    "budgets of guarded edges are not counted": around(
        plan, "choose", lambda f, guards, answers, _spent: f(guards, answers, {})
    ),
    "keys of one step are kept": instead(merge, "_clear", lambda *_: None),
    "a continued task sees nothing of its step": around(Attempts, "view_of", _all_at_once),
    "results are lost on load": _after_load(_without_results),
    "questions are lost on load": _after_load(_without_questions),
    "steps of graphs inside are lost on load": instead(fold, "_apply_inner", lambda *_: None),
    "what a persistent graph keeps is lost on load": _after_load(_without_kept),
    "what a graph inside wrote is lost on load": _after_load(_without_written),
    "an amendment is lost on load": instead(rows, "_amendment", lambda *_: None),
}


def fails(seed: int) -> bool:
    """Whether anything is wrong with the random graphs of a seed: one, one in which graphs are, a history."""
    try:
        test_crashes.crash(seed, points=4)
        flat = plan_of(seed)
        for order in range(2):
            assert run_plan(flat, order=order).values == run_plan(flat).values
        nested = plan_of(seed, depth=1)
        nested.stay_awake()
        crash_plan(nested, points=2)
        test_histories.check(seed)
    except Exception:
        return True
    return False


def found() -> dict[str, int]:
    """The seed that finds each mutant, as far as it is known."""
    return read_found(FOUND)
