"""What is asked of a run at all its depths: questions, failures, and how a caller goes on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from beamweaver.engine.state import Amendment, InnerState, Write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.engine.state import OpenStep, Question, RunState, Task
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import Failure

__all__ = [
    "amend_inside",
    "cause_of",
    "failures_of",
    "passed_on",
    "question_of",
    "reopen",
]


def question_of(task: Task, id_: str) -> Question | None:
    """The question of that id in a task or inside of it."""
    for question in task.questions or ():
        if question.id == id_:
            return question
    for inner in (task.inner or {}).values():
        for deeper in inner.step.tasks:
            found = question_of(deeper, id_)
            if found is not None:
                return found
    return None


def failures_of(state: RunState) -> list[Failure]:
    """The failures of a run's tasks, in task order; of a graph in a task those inside of it."""
    found: list[Failure] = []
    for task in state.step.tasks:
        if task.failure is not None:
            deep = _inside(task)
            if deep and _same(deep[0], task.failure):
                found.extend(deep)
            else:
                found.append(_named(task.failure, state))
    return found


def cause_of(state: InnerState) -> Failure:
    """Why a graph inside of a task failed: the failure of its step, else that of its first task."""
    return next(_failures_inside(state))


def _inside(task: Task) -> list[Failure]:
    inner = (task.inner or {}).get("")
    return [] if inner is None else list(_failures_inside(inner))


def _failures_inside(state: InnerState) -> Iterator[Failure]:
    if state.step.failure is not None:
        yield _named(state.step.failure, state)
    yield from failures_of(state)


def _same(one: Failure, other: Failure) -> bool:
    return (one.code, one.type_name, one.message) == (other.code, other.type_name, other.message)


def _named(failure: Failure, state: RunState) -> Failure:
    if failure.namespace or not state.names:
        return failure
    return msgspec.structs.replace(failure, namespace=state.names)


def reopen(task: Task) -> None:
    """Another attempt of a task follows: what failed inside of it may run again, with fresh counts."""
    for state in (task.inner or {}).values():
        state.step.failure = state.step.unheard = None
        state.step.failing = False
        for deeper in state.step.tasks:
            if deeper.result is None:
                deeper.clear_failure()
                reopen(deeper)


def amend_inside(step: OpenStep, amendment: Amendment) -> None:
    """An edit amends a step: it reaches the graphs that have begun in its unfinished tasks."""
    for task in step.tasks:
        inner = None if task.result is not None else (task.inner or {}).get("")
        own = None if inner is None else passed_on(inner, amendment)
        if inner is not None and own is not None:
            inner.step.era += 1
            own.era = inner.step.era
            inner.step.amendments.append(own)
            amend_inside(inner.step, own)


def passed_on(state: InnerState, amendment: Amendment | None) -> Amendment | None:
    """What an amendment to the graph around is to a graph that has begun inside of it.

    The keys that both keep by their last value: what is added to other keys comes to them with the next run.
    """
    if amendment is None:
        return None
    graph, outer = state.graph, state.outer
    writes = tuple(
        [
            Write(write.channel, write.value, None, overwrite=True)  # type: ignore[arg-type]  # encoded with the step
            for write in amendment.writes
            if _takes(graph, write.channel) and _is_plain(outer, write.channel)
        ]
    )
    return Amendment(writes) if writes else None


def _takes(graph: CompiledGraph, key: str) -> bool:
    known = graph.channels if graph.inputs is None else graph.inputs
    return (key in known or (graph.open and graph.inputs is None)) and _is_plain(graph, key)


def _is_plain(graph: CompiledGraph, key: str) -> bool:
    channel = graph.channels.get(key)
    return graph.open if channel is None else channel.reducer is None and not channel.managed
