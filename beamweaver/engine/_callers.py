"""Graphs that functions call: the machines of `ctx.call()` inside of the machine in whose task it is called.

A called graph is run by a `Child`, as one that is a node. Its end is not that of the task: it is remembered
as the result of a sub-step, and the function that waits for it is told. While it waits it takes no place.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.entries import Memo
from beamweaver.engine._children import Children
from beamweaver.engine._core import Stop
from beamweaver.engine._inside import bring_unstored, start_task
from beamweaver.engine.calling import changed_call
from beamweaver.engine.effects import CancelAttempt, Noted
from beamweaver.engine.kept import packed
from beamweaver.engine.left import left_by_call
from beamweaver.engine.merge import with_initial
from beamweaver.engine.state import InnerState, OpenStep
from beamweaver.engine.unread import read
from beamweaver.errors import BeamWeaverError, InvalidCall

if TYPE_CHECKING:
    from beamweaver.engine._child import Child
    from beamweaver.engine.calling import Calling
    from beamweaver.engine.effects import Attempt
    from beamweaver.engine.state import Task

__all__ = ["Callers"]


class _Open:
    """The calls of an attempt that have not ended, and those whose caller is to park when they all have."""

    __slots__ = ("children", "lost", "parked")

    def __init__(self) -> None:
        self.children: dict[str, Child] = {}
        self.parked: list[Calling] = []
        self.lost = False
        """Whether its body has ended, and what it called has not."""


class Callers(Children):
    """The side of a machine whose functions may call graphs."""

    callers: dict[Attempt, _Open] | None = None
    held: dict[int, int] | None = None
    """Of the outermost machine: how many workers are held by functions that wait, by depth of calls."""

    # Events -------------------------------------------------------------------------------------

    def called(self, attempt: Attempt, calling: Calling) -> bool:
        """The function of an attempt calls a graph; the effect `Noted(calling)` tells what it came to.

        Returns:
            False if the attempt was given up: what it still does counts for nothing.
        """
        if self.running.get(attempt.position) is not attempt:
            return False
        if self.stop is not None:  # nothing begins; the next run of the function calls again
            self._effects.append(CancelAttempt(attempt, wait=True))
            return True
        if not self.family:
            self._have_family()
        fails = False
        try:
            state, fails = self._state_of(attempt, calling)
        except BeamWeaverError as error:
            calling.end = error
            self._effects.append(Noted(calling))
            return True
        root = self.root()
        root.births += 1
        child = self.child_class(self, attempt, state, root.births, calling)
        self._waits(attempt, child)
        if fails:
            child.begin_again()
        child.begin()
        self.relay(child)
        return True

    def _have_family(self) -> None:
        """From now on graphs run inside of its tasks."""
        self.family = self.sorts = True
        for attempt in self.running.values():
            self.count(attempt, 1)

    def _state_of(self, attempt: Attempt, calling: Calling) -> tuple[InnerState, bool]:
        """The state of a called graph, as it is known or at its beginning, and whether it has failed.

        Raises:
            StepChanged: It began with another input.
            InvalidCall: Calls are nested too deep.
            DeserializationError: What is stored of it cannot be read back.
        """
        task, graph, place = attempt.task, calling.graph, calling.place
        known = (task.inner or {}).get(place)
        if known is None:
            self._check_depth(attempt, calling)
            state = InnerState(self.state, task, place, graph, self.graph)
            state.digest, state.start = calling.digest, calling.start
            state.values = with_initial(graph, dict(calling.start))
            state.step = OpenStep(0, [start_task()])
            task.inner = {**(task.inner or {}), place: state}
            return state, False
        if known.digest != calling.digest:
            raise changed_call(attempt.node.name, graph.name, place)
        if known.unread:
            read(known, graph, self.env.inside(graph))
        known.graph = graph
        bring_unstored(known, calling.start)
        return known, known.has_failed

    def _check_depth(self, attempt: Attempt, calling: Calling) -> None:
        most = self.env.limits.call_depth
        if self.call_depth >= most:
            raise InvalidCall(
                f"node {attempt.node.name!r} calls graph {calling.graph.name!r} inside of {most} calls, "
                "which is limits.call_depth: let it loop instead of calling itself, or raise the limit",
                node=attempt.node.name,
            )

    def fired(self, key: tuple[Any, ...]) -> None:
        """A timer is due; those of called graphs are wrapped as those of children."""
        called = self._called_born(key[2]) if key[0] == "in" else None
        if called is None:
            super().fired(key)
        else:
            called.fired(key[3])
            called.touch()

    def _called_born(self, birth: int) -> Child | None:
        return next((child for child in self._called() if child.birth == birth), None)

    def _called(self) -> list[Child]:
        return [child for each in (self.callers or {}).values() for child in each.children.values()]

    def lost(self, attempt: Attempt) -> None:
        """The body of an attempt ended without a result that counts; all that it called is to end first."""
        calls = None if self.callers is None else self.callers.get(attempt)
        if calls is None or not calls.children:
            super().lost(attempt)
            return
        calls.lost = True

    # The end of a call --------------------------------------------------------------------------

    def child_ended(self, child: Child, status: str) -> None:
        """A child stopped: so does its attempt, or its caller is told."""
        calling, attempt = child.calling, child.attempt
        if calling is None:
            super().child_ended(child, status)
            return
        assert self.callers is not None, "who is called has a caller"
        calls = self.callers[attempt]
        del calls.children[calling.place]
        if status == "complete":
            calling.end = self._remembered(child, calling)
        elif status == "failed":
            calling.end = child.error()
        elif status == "sleeping":
            calling.end = child.first_sleep()
        elif status != "waiting":
            self._cut_short(attempt, calls)
            return
        self._call_ended(attempt, calls, calling)

    def _call_ended(self, attempt: Attempt, calls: _Open, calling: Calling) -> None:
        """Tell the caller; that it is to park only when nothing that it called runs any more."""
        if calling.parks:
            calls.parked.append(calling)
        else:
            self._tell(calling)
        if calls.children:
            return
        self._waits_no_more(attempt)
        if calls.lost:
            self.lost(attempt)
            return
        parked, calls.parked = calls.parked, []
        waits = any(each.end is None for each in parked)
        for each in parked:
            each.end = None if waits else each.end
            self._tell(each)

    def _cut_short(self, attempt: Attempt, calls: _Open) -> None:
        """What was called stopped because all is to stop; so does its caller."""
        if calls.children:
            return
        self._waits_no_more(attempt)
        if calls.lost:
            self.lost(attempt)
        else:
            self._effects.append(CancelAttempt(attempt, wait=True))

    def _tell(self, calling: Calling) -> None:
        """Wake the caller, when what it is told is durable."""
        if self.dirty:
            self._unsaved.append(Noted(calling))
        else:
            self._effects.append(Noted(calling))

    def _remembered(self, child: Child, calling: Calling) -> Memo | BeamWeaverError:
        """The result of a call, as one of a sub-step of its task."""
        graph, task, limits = child.graph, child.attempt.task, self.env.limits
        shown = child.state.values if graph.output_shape.whole else graph.output_shape.keys
        values = {k: v for k, v in child.state.values.items() if k in shown}
        try:
            data = packed(values, partial(child.env.encode_result, task.node))
            size = sum(len(memo.value) for memo in (task.memos or {}).values()) + len(data)
            if size > limits.memo_bytes_a_task:
                raise InvalidCall(
                    f"node {task.node!r}, call of graph {graph.name!r}: the results of the task's steps and "
                    f"calls would have {size} bytes, and limits.memo_bytes_a_task is "
                    f"{limits.memo_bytes_a_task}; split the node, or give the graph a smaller output_schema",
                    node=task.node,
                )
        except BeamWeaverError as error:
            assert task.inner is not None, "what has run is known"
            del task.inner[calling.place]
            return error
        memo = Memo(task.position, calling.name, calling.ordinal, calling.key, calling.digest, data)
        if self.looks_back:
            self.dirty.extend(left_by_call(child, task.position, values.keys()))
        task.remember(memo)
        self.dirty.append(memo)
        return memo

    # Room ---------------------------------------------------------------------------------------

    def is_counted(self, attempt: Attempt) -> bool:
        """Whether an attempt is a function that runs; one that waits for what it called does not."""
        calls = None if self.callers is None else self.callers.get(attempt)
        return super().is_counted(attempt) and (calls is None or not calls.children)

    def has_room(self, task: Task) -> bool:
        """Whether a task may start now; only so many workers may be held by functions that wait."""
        node = self.graph.nodes[task.node]
        if node.subgraph is None and not node.is_async and self._root_caller().held is not None:
            held = (self._root_caller().held or {}).get(self.call_depth, 0)
            if held >= self.env.limits.sync_nodes_a_thread:
                return False
        return super().has_room(task)

    def _root_caller(self) -> Callers:
        root = self.root()
        assert isinstance(root, Callers), "each machine may have callers"
        return root

    def _waits(self, attempt: Attempt, child: Child) -> None:
        """The function waits for one graph more that it called."""
        self.callers = self.callers or {}
        calls = self.callers.setdefault(attempt, _Open())
        if not calls.children:
            self.count(attempt, -1)
            self._hold(attempt, 1)
        assert child.calling is not None, "it is called"
        calls.children[child.calling.place] = child
        self.room_again()

    def _waits_no_more(self, attempt: Attempt) -> None:
        self.count(attempt, 1)
        self._hold(attempt, -1)

    def _hold(self, attempt: Attempt, change: int) -> None:
        if not attempt.node.is_async:
            root = self._root_caller()
            root.held = root.held or {}
            root.held[self.call_depth] = root.held.get(self.call_depth, 0) + change

    # Stopping and going on ----------------------------------------------------------------------

    def living(self) -> list[Child]:
        """The children that run, those included that functions called."""
        return [*super().living(), *self._called()]

    def give_up_on(self, attempt: Attempt, *, wait: bool) -> None:
        """Stop what runs of an attempt, and all that it called."""
        calls = None if self.callers is None else self.callers.get(attempt)
        for child in () if calls is None else tuple(calls.children.values()):
            if wait:
                child.halt(Stop("cancelled"), wait=True)
                child.touch()
            else:
                child.cut_off()
                self.pass_on(child)
        super().give_up_on(attempt, wait=wait)

    def ended_in_family(self, attempt: Attempt) -> None:
        """An attempt ended: what it called and did not wait for is given up."""
        calls = None if self.callers is None else self.callers.get(attempt)
        if calls is not None:
            self._forget(attempt, calls)
        super().ended_in_family(attempt)

    def cleared_in_family(self) -> None:
        """All that ran here was given up."""
        for attempt, calls in tuple((self.callers or {}).items()):
            self._forget(attempt, calls)
        super().cleared_in_family()

    def _forget(self, attempt: Attempt, calls: _Open) -> None:
        """Nobody waits for the calls of an attempt any more."""
        over = [*calls.parked, *(c.calling for c in calls.children.values() if c.calling)]
        for child in calls.children.values():
            if child.alive:
                child.cut_off()
                self.pass_on(child)
        if calls.children:
            self._waits_no_more(attempt)
        assert self.callers is not None, "they were just found"
        del self.callers[attempt]
        for calling in over:
            calling.given_up = True
            self._effects.append(Noted(calling))
