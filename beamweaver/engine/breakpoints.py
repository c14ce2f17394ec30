"""Static breakpoints: nodes before or after which a run stops once, until somebody lets it go on.

A run stops between two steps, in the commit that plans the next one: before the step that has a task of a
node of `interrupt_before`, and after the one that had a task of a node of `interrupt_after`, if anything
follows it. Where it stops is an entry of that commit; the call that passes it records so, before anything
runs. Nothing is compared to find out whether a breakpoint was passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beamweaver.checkpoint.entries import Paused
from beamweaver.types import Breakpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from beamweaver.checkpoint.records import RunOptions
    from beamweaver.engine.state import OpenStep, Task
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["ALL", "PASSED", "Breaks", "breakpoints_of", "breaks_of", "pause"]

PASSED: Final = Paused()
"""The entry of a run that stands at no breakpoint any more."""
ALL: Final = ("*",)
"""The breakpoints of a call at every node."""


class Breaks:
    """The breakpoints of a run: the graph's own, or those of its last call."""

    __slots__ = ("after", "before")

    def __init__(self, before: frozenset[str], after: frozenset[str]) -> None:
        self.before = before
        self.after = after


def breaks_of(graph: CompiledGraph, options: RunOptions | None) -> Breaks | None:
    """The breakpoints of a run with these options; None if it has none."""
    before, after = graph.interrupt_before, graph.interrupt_after
    if options is not None:
        before = _given(options.interrupt_before, graph.nodes, before)
        after = _given(options.interrupt_after, graph.nodes, after)
    return Breaks(before, after) if before or after else None


def _given(
    names: tuple[str, ...] | None, nodes: Mapping[str, object], own: frozenset[str]
) -> frozenset[str]:
    if names is None:
        return own
    return frozenset(nodes if names == ALL else names)


def pause(breaks: Breaks | None, done: Iterable[Task], planned: list[Task]) -> Paused | None:
    """Where the run stops between two steps; None if it goes on.

    Args:
        breaks: The run's breakpoints.
        done: The tasks of the step that ended.
        planned: Those of the next one; without any the run is complete, and nothing is left to stop.
    """
    if breaks is None or not planned:
        return None
    before = dict.fromkeys(task.node for task in planned if task.node in breaks.before)
    after = dict.fromkeys(task.node for task in done if task.node in breaks.after)
    return Paused(tuple(before), tuple(after)) if before or after else None


def breakpoints_of(step: OpenStep) -> tuple[Breakpoint, ...]:
    """Where the run stands, as people see it."""
    found: list[Breakpoint] = []
    if step.paused is not None:
        found.extend(Breakpoint(node=node, when="after") for node in step.paused.after)
        found.extend(Breakpoint(node=node, when="before") for node in step.paused.before)
    for task in step.tasks:
        for inner in (task.inner or {}).values() if task.result is None else ():
            found.extend(
                each if each.namespace else msgspec.structs.replace(each, namespace=inner.names)
                for each in breakpoints_of(inner.step)
            )
    return tuple(found)
