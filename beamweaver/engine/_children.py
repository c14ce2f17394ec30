"""Graphs as nodes: the machines that run inside of a machine's tasks.

A task whose node is a graph is run by a machine of its own, a `Child`, inside of its parent's. What a child
asks of the world is asked by the outermost machine: attempts and timers pass up as they are, a record of
the child is an entry of its parent's stream, and how the child ends is how the task ends. So a run has one
stream of commits, whatever its depth, and what is folded from it goes on inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from beamweaver.checkpoint.entries import Inner
from beamweaver.engine._ahead import Loose
from beamweaver.engine._core import Stop
from beamweaver.engine._inside import begun, end_of
from beamweaver.engine._line import Line
from beamweaver.engine.effects import DropTimer, SetTimer
from beamweaver.engine.failures import describe
from beamweaver.engine.kept import part_of, place_of, stored
from beamweaver.engine.left import left_by
from beamweaver.engine.nested import cause_of
from beamweaver.engine.rereading import reread_inner
from beamweaver.errors import BeamWeaverError, ConcurrentSubgraph
from beamweaver.graph._text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from beamweaver.engine._child import Child
    from beamweaver.engine.effects import Attempt, Effect
    from beamweaver.engine.plan import Next
    from beamweaver.engine.state import RunState, Task
    from beamweaver.graph.specs import NodeSpec

__all__ = ["Children", "Handed"]

Handed: TypeAlias = "tuple[Child, Callable[[], None], list[Handed]]"
"""A child whose record waits to be durable, what it does then, and the same of its own children."""


class Children(Line):
    """The side of a machine whose tasks may be graphs."""

    child_class: ClassVar[type[Child]]
    outer: Children | None = None
    around: Attempt | None = None
    """The attempt that it is, where it runs inside of another machine."""
    place: tuple[int | str, ...] = ()
    call_depth = 0
    """How many calls by functions are around it."""
    touched: dict[int, Child] | None = None
    """Children that were told something and have not gone on since."""
    starved: dict[Children, None] | None = None
    """Of the outermost machine: those that have tasks to start and no room."""
    leaves = 0
    """How many functions run inside of it, at all depths."""
    sync_leaves = 0
    births = 0

    # Events from below and above ----------------------------------------------------------------

    def touch(self) -> None:
        """It was told something: its owner lets it advance."""

    def fired(self, key: tuple[Any, ...]) -> None:
        """A timer is due; those of children are wrapped."""
        if key[0] != "in":
            super().fired(key)
            return
        attempt = self.running.get(key[1])
        child = None if attempt is None else attempt.child
        if child is not None and child.birth == key[2]:
            child.fired(key[3])
            child.touch()

    def outer_key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key under which the outermost machine asks for one of its timers."""
        return key

    def advance_children(self) -> bool:
        """Let the children go on that were told something."""
        touched, self.touched = self.touched, None
        for child in (touched or {}).values():
            self.relay(child)
        return True

    def relay(self, child: Child) -> None:
        """Let a child go on, and pass on what it asks of the world."""
        child.go()
        self.pass_on(child)

    def pass_on(self, child: Child) -> None:
        """What a child asked of the world is asked of it here."""
        for effect in child.asked_for():
            if isinstance(effect, SetTimer):
                self._effects.append(SetTimer(child.wrapped(effect.key), effect.delay))
            elif isinstance(effect, DropTimer):
                self._effects.append(DropTimer(child.wrapped(effect.key)))
            else:
                self._effects.append(effect)

    def pass_event(self, effect: Effect) -> None:
        """What became of a child that is no more is told all the same."""
        self._effects.append(effect)

    def gather_early(self) -> None:
        """Bring along what graphs in tasks have left out, in a form that is stored."""
        if self.runs_ahead:
            super().gather_early()
        else:
            self.gather_all()

    def gather_all(self) -> None:
        """Bring along all that happened in graphs in tasks and is in no commit."""
        for child in self.living():
            child.hand_late()
        super().gather_early()

    @property
    def left_out(self) -> bool:
        """Whether steps of it, or of a graph in its tasks, are in no commit."""
        return (
            self.late is not None
            or any(type(item) is Inner or type(item) is Loose for item in self.dirty)
            or any(child.left_out for child in self.living())
        )

    def bring_up(self) -> None:
        """What the children asked of the world is asked of it here; nobody goes on."""
        for child in self.living():
            child.bring_up()
            self.pass_on(child)

    def living(self) -> list[Child]:
        """The children that run."""
        if not self.family:
            return []
        return [a.child for a in self.running.values() if a.child is not None]

    def acknowledge_inside(self) -> None:
        """The records of children that the commit held, or overtook, are durable."""
        acking, self.acking = self.acking, None
        for child, then, deeper in acking or ():
            child.confirm(then, deeper)

    # Starting and ending ------------------------------------------------------------------------

    def start_in_family(self) -> None:
        """Start as many tasks as may run at once, here and in all of the thread."""
        most = self.most
        for queue in (self.ready_async, self.ready):
            while queue and len(self.running) < most and self.has_room(queue[0]):
                self._start(queue.popleft())
        root = self.root()
        if (self.ready or self.ready_async) and len(self.running) < most and root is not self:
            root.starved = root.starved or {}
            root.starved[self] = None

    def has_room(self, task: Task) -> bool:
        """Whether a task may start now, by all limits around it."""
        node = self.graph.nodes[task.node]
        if node.subgraph is not None:
            return True
        machine: Children | None = self
        while machine is not None:
            if machine.leaves >= machine.most:
                return False
            machine = machine.outer
        return node.is_async or self.root().sync_leaves < self.env.limits.sync_nodes_a_thread

    @property
    def most(self) -> int:
        """How many tasks of a step run at once, by the options of the run or of the graph."""
        return self._most

    @property
    def panics(self) -> bool:
        """Whether the first failure stops all others."""
        return self._panics

    def root(self) -> Children:
        """The outermost machine."""
        machine = self
        while machine.outer is not None:
            machine = machine.outer
        return machine

    def started_in_family(self, attempt: Attempt) -> None:
        """An attempt began: of a graph, its machine begins; else it is counted."""
        if attempt.node.subgraph is None:
            self.count(attempt, 1)
        else:
            self._start_child(attempt)

    def ended_in_family(self, attempt: Attempt) -> None:
        """An attempt ended: there may be room for another one."""
        if self.is_counted(attempt):
            self.count(attempt, -1)
            self.room_again()

    def is_counted(self, attempt: Attempt) -> bool:
        """Whether an attempt is a function that runs, and takes a place."""
        return attempt.child is None

    def room_again(self) -> None:
        """There may be room for another task: one of those that wait for it goes on."""
        starved, over = self.root().starved or {}, []
        for machine in starved:
            waiting = machine.ready_async or machine.ready
            if not waiting:
                over.append(machine)  # it was stopped meanwhile
            elif machine.has_room(waiting[0]):
                over.append(machine)
                machine.touch()
                break
        for machine in over:
            del starved[machine]

    def cleared_in_family(self) -> None:
        """All that ran here was given up."""
        for attempt in self.running.values():
            if self.is_counted(attempt):
                self.count(attempt, -1)
                self.room_again()

    def count(self, attempt: Attempt, change: int) -> None:
        """A function runs more, or less, here and in all that is around."""
        machine: Children | None = self
        while machine is not None:
            machine.leaves += change
            machine.sync_leaves += 0 if attempt.node.is_async else change
            machine = machine.outer

    def _start_child(self, attempt: Attempt) -> None:
        node = attempt.node
        assert node.subgraph is not None, "only a graph is run by a machine"
        env = self.env.inside(node.subgraph)
        try:
            state = begun(self.state, attempt, self.graph, env)
        except Exception as error:  # noqa: BLE001 - key= of a persistent graph is user code
            failure = describe(error, node.name, attempt.task_id, attempt.number)
            self.failed(attempt, failure)
            return
        root = self.root()
        root.births += 1
        child = attempt.child = self.child_class(self, attempt, state, root.births)
        child.begin()
        self.relay(child)

    def child_ended(self, child: Child, status: str) -> None:
        """A child stopped: so does its attempt."""
        attempt = child.attempt
        if status == "complete":
            try:
                result, back = end_of(child.state, attempt, self.graph, self.env, child.commands)
            except BeamWeaverError as error:
                task_id, number = attempt.task_id, attempt.number
                self.failed(attempt, describe(error, attempt.node.name, task_id, number))
                return
            if self.looks_back and self.running.get(attempt.position) is attempt:
                self.dirty.extend(left_by(child, attempt.position, back, self.graph))
            self.succeeded(attempt, result)
        elif status == "failed":
            self.failed(attempt, cause_of(child.state))
        elif status == "sleeping":
            self.slept(attempt, child.first_sleep())
        else:
            self._ended(attempt)

    @property
    def looks_back(self) -> bool:
        """Whether the last steps of graphs in tasks are kept: where steps are left out, theirs are too."""
        return self.env.keeps and (self.runs_ahead or not self.early)

    # Stopping and going on ----------------------------------------------------------------------

    def give_up_on(self, attempt: Attempt, *, wait: bool) -> None:
        """Stop what runs of an attempt; a graph at all its depths."""
        child = attempt.child
        if child is None:
            super().give_up_on(attempt, wait=wait)
        elif wait:
            child.halt(Stop("cancelled"), wait=True)
            child.touch()
        else:
            child.cut_off()
            self.pass_on(child)

    def drain(self) -> None:
        """Start nothing more: when what runs has ended, the run stops as drained."""
        if self.active and self.stop is None:
            self.stop = Stop("drained")
            self.start_nothing()
            for child in self.living():
                child.drain()
                child.touch()

    def pause(self) -> None:
        """The step is about to be another one, for a caller amends it: nothing starts meanwhile."""
        self.drop_transition()
        self.start_nothing()
        for child in self.living():
            child.pause()
            child.touch()

    def resume_step(self) -> None:
        """The other step is durable: what is not finished of it goes on."""
        self._view = None
        for child in self.living():
            child.adopt_run()
            child.adopt_options()
            child.resume_step()
            child.touch()
        if self.stop is None and self.in_flight is None:
            busy = self.running.keys() | self.sleeping.keys()
            tasks = [t for t in self.state.step.tasks if not t.settled and not t.asleep]
            self.make_ready([task for task in tasks if task.position not in busy])
            self.lie_down()

    # What persistent subgraphs keep ---------------------------------------------------------------

    def check_size(self, following: Next, values: Mapping[str, Any]) -> None:
        """Judge the tasks of the next step together.

        Args:
            following: The step.
            values: The state before it.

        Raises:
            InvalidUpdate: There are more than the limit.
            ConcurrentSubgraph: Two would run in one persistent subgraph.
        """
        super().check_size(following, values)
        if not self.family:
            return
        places: set[str] = set()
        for task in following.tasks:
            node = self.graph.nodes[task.node]
            place = self._place_of(task, node, values) if node.persistent else None
            if place in places:
                raise _concurrent(node)
            if place is not None:
                places.add(place)

    def _place_of(self, task: Task, node: NodeSpec, values: Mapping[str, Any]) -> str | None:
        """Where a task of the next step will keep its state; None if that fails it when it starts."""
        view = values if task.update is None else {**values, **task.update}
        try:
            part = part_of(node, self.graph, view)
        except Exception:  # noqa: BLE001 - key= is user code; what it raises fails the task
            return None
        return place_of(task.node, part)

    def keep(self, writes: dict[str, bytes], state: RunState) -> None:
        """Let the step that is about to be committed bring what its subgraphs keep.

        Raises:
            ConcurrentSubgraph: Two tasks ran in one persistent subgraph.
        """
        found: dict[str, bytes] = {}
        for task in state.step.tasks:
            for place, data in ((task.result and task.result.kept) or {}).items():
                if place in found:
                    raise _concurrent(self.graph.nodes[task.node])
                found[place] = data
        if found:
            state.kept = {**(state.kept or {}), **found}
            writes.update(stored(found))

    # Values that an abandoned body may have changed -----------------------------------------------

    def reread_inside(self, state: RunState) -> None:
        """Take the values of what runs inside from the state as the store has it."""
        for task, kept in zip(self.state.step.tasks, state.step.tasks, strict=True):
            for key, inner in (task.inner or {}).items():
                stored = (kept.inner or {}).get(key)
                reread_inner(inner, stored, self.env.inside(inner.graph))
        for child in self.living():
            child.forget_view()


def _concurrent(node: NodeSpec) -> ConcurrentSubgraph:
    cure = (
        "give add_node(…, key=…) what tells their states apart"
        if node.key is None
        else f"their key= is the same ({shown(node.key)})"
    )
    return ConcurrentSubgraph(
        f"two tasks of {node.name!r} run in one persistent subgraph at once, so what one of them keeps would "
        f"be lost: {cure}, or send to it in steps that follow one another, or let it not be persistent",
        node=node.name,
    )
