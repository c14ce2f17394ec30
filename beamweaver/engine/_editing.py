"""Edits by callers: new checkpoints made of a thread's state, through its channels and edges.

An edit works on a draft, which the store's image of the thread was folded to; so one that fails has changed
nothing. Where routers must choose the next tasks, it asks for them and waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.records import Record, RunRow, ThreadRow
from beamweaver.engine._inner_edits import inner_edit
from beamweaver.engine.effects import Transition
from beamweaver.engine.failures import error_of
from beamweaver.engine.fitting import check_origin, entries_of
from beamweaver.engine.fold import fold, fold_entries, parked_status, raw_entries
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.merge import Merged, merge, with_initial
from beamweaver.engine.plan import Next, exits_of, must_ask, plan, unasked
from beamweaver.engine.refusals import no_checkpoint
from beamweaver.engine.rows import apply_entry, edited_row
from beamweaver.engine.state import Edit, OpenStep, Result, RunState, Task
from beamweaver.errors import AmbiguousUpdate, InvalidCall
from beamweaver.types import END, START, Failure

if TYPE_CHECKING:
    from collections.abc import Generator

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import Checkpoint
    from beamweaver.engine._steps import Steps
    from beamweaver.engine.calls import Call
    from beamweaver.engine.env import Env
    from beamweaver.engine.plan import Routes
    from beamweaver.graph.compiled import CompiledGraph

    Asking = Generator[Transition, Routes | Failure, None]

__all__ = ["Editing", "last_nodes", "origin_of"]

_UPDATED = "updated"


def origin_of(
    env: Env, graph: CompiledGraph, thread_id: str, checkpoint: str | None
) -> tuple[tuple[Entry, ...], RunState]:
    """A checkpoint by itself, raw, and the entries that are its own; None is the head's.

    Raises:
        InvalidCall: There is no such checkpoint.
        GraphTooOld, GraphChanged: Nothing can go on from it under this graph.
    """
    seq = None if checkpoint is None else int(checkpoint.rpartition("-")[2])
    image = env.load(seq)
    if image is None:
        raise no_checkpoint(thread_id, checkpoint)
    check_origin(image, graph)
    state = fold(image, env, raw=True)
    if checkpoint not in (None, checkpoint_id(state.branch, state.checkpoint_seq)):
        raise no_checkpoint(thread_id, checkpoint)
    return raw_entries(image.checkpoint), state


class Editing:
    """One call of `update_state` on its way.

    Attributes:
        call: The call.
        draft: The thread as it will stand.
        records: The records that make it so.
        row: The thread's new row, or None if it stays.
        asked: The routers that it waits for.
        answer: What these chose, or how they failed.
        clears: The entry records that the first record supersedes.
        timer: The key of the timer that ends the wait for the routers.
    """

    def __init__(self, machine: Steps, call: Call) -> None:
        self._machine = machine
        self._graph = machine.graph
        self._env = machine.env
        self.call = call
        state = machine.state
        self.records: list[Record] = []
        self.clears: tuple[int, ...] = ()
        self.row: ThreadRow | None = None
        self.asked: Transition | None = None
        self.answer: Routes | Failure | None = None
        self.timer: tuple[Any, ...] | None = None
        self._old = state.row
        self._entries: tuple[Entry, ...] = ()
        self._new_run = state.row is None
        self._begun: RunRow | None = None
        self._parent_branch = ""
        self.draft = self._begin(state)
        self._steps = self._all()

    def advance(self) -> Transition | None:
        """Go on as far as it goes; the routers to ask, or None when it is done.

        Raises:
            CallRefused, RunFailed: The edit cannot be made.
        """
        answer, self.answer = self.answer, None
        try:
            self.asked = next(self._steps) if answer is None else self._steps.send(answer)
        except StopIteration:
            self.asked = None
        return self.asked

    # The draft ----------------------------------------------------------------------------------

    def _begin(self, state: RunState) -> RunState:
        """What is edited: a new thread, an older checkpoint, or the head with what its step has."""
        checkpoint = self.call.checkpoint
        if state.row is None:
            draft = RunState(state.thread_id)
            draft.branch = self._env.new_id()
            return draft
        at_head = checkpoint in (None, checkpoint_id(state.branch, state.checkpoint_seq))
        if at_head and state.tip and not self.call.fork:
            image = self._env.load(None)
            assert image is not None, "a thread with a row has a head"
            draft = fold(image, self._env)
            self._entries = entries_of(image)
            self.clears = tuple(draft.entry_seqs)
            live = self._graph.unstored & state.values.keys()
            draft.values.update({key: state.values[key] for key in live})
        else:
            place = None if at_head else checkpoint
            self._entries, draft = origin_of(self._env, self._graph, state.thread_id, place)
            self._fork(draft)
        draft.values = with_initial(self._graph, draft.values)
        draft.seq, draft.tip = state.seq, True
        return draft

    def _fork(self, draft: RunState) -> None:
        """What is edited begins a branch, and a run: its tasks are others than those it came from."""
        self._parent_branch, draft.branch = draft.branch, self._env.new_id()
        for task in draft.step.tasks:
            task.id = None  # the id follows from the branch
        self._new_run = True
        draft.executed = 0
        if not self.records:
            self.clears = ()  # the open step stays as it is, at the end of the branch that is left

    # Supersteps ---------------------------------------------------------------------------------

    def _all(self) -> Asking:
        for edits in self.call.updates:
            yield from self._superstep(edits)
        self._finish()

    def _superstep(self, edits: tuple[Edit, ...]) -> Asking:
        draft = self.draft
        tasks = draft.step.tasks
        if edits[0].namespace:
            self._inside(edits[0])
            return
        if not tasks:
            nodes = [edit.as_node or self._source() for edit in edits]
            self._new_run = True
            yield from self._as_nodes(list(zip(nodes, edits, strict=True)))
            return
        if any(edit.as_node is None for edit in edits):
            self._amend(edits[0])
            return
        found = [self._task_of(draft, edit) for edit in edits]
        if None in found:
            merged = merge(self._graph, draft.values, draft.step, draft.step.era + 1)
            draft.values = merged.values
            self._pending = merged
            self._fork(draft)
            yield from self._as_nodes([(str(edit.as_node), edit) for edit in edits])
            return
        for task, edit in zip(found, edits, strict=True):
            assert task is not None, "each edit has its task"
            self._add(-1 if task.result is not None else task.position, edit)
        if all(task.result is not None for task in tasks):
            yield from self._merge_step(tuple(dict.fromkeys(task.node for task in tasks)))
        else:
            self._put_off()

    def _source(self) -> str:
        """The node that ran last."""
        if self.draft.checkpoint_seq < 0:
            return START
        nodes = last_nodes(self._env, self.draft.checkpoint_seq)
        if len(nodes) == 1:
            return nodes[0]
        thread_id = self.draft.thread_id
        if nodes:
            raise AmbiguousUpdate(
                f"the last step of thread {thread_id!r} ran {', '.join(nodes)}, so it is not clear as which "
                "of them the values count; say as_node=",
                thread_id=thread_id,
                candidates=nodes,
            )
        raise AmbiguousUpdate(
            f"the checkpoint before the last one of thread {thread_id!r} was removed, so it is not known "
            "which node ran last; say as_node=",
            thread_id=thread_id,
            candidates=tuple(self._graph.nodes),
        )

    def _task_of(self, draft: RunState, edit: Edit) -> Task | None:
        """The task of the open step that an edit stands for; None if it is of another node."""
        wanted = edit.as_node
        tasks = draft.step.tasks
        for task in tasks:
            if draft.id_of(task) == wanted:
                return task
        of_node = [task for task in tasks if task.node == wanted]
        if not of_node:
            if edit.namespace or wanted in (START, END) or wanted in self._graph.nodes:
                return None
            raise InvalidCall(
                f"as_node is {wanted!r}, which is no node of graph {self._graph.name!r} and no task of the "
                f"open step of thread {draft.thread_id!r}",
                thread_id=draft.thread_id,
            )
        open_ = [task for task in of_node if task.result is None] or of_node
        if len(open_) > 1:
            ids = tuple(draft.id_of(task) for task in open_)
            raise AmbiguousUpdate(
                f"{len(open_)} tasks of node {wanted!r} are open in thread {draft.thread_id!r}; give the id "
                f"of one as as_node=: {', '.join(ids)}",
                thread_id=draft.thread_id,
                candidates=ids,
            )
        return open_[0]

    # The open step stays ------------------------------------------------------------------------

    def _inside(self, edit: Edit) -> None:
        """An edit of a graph inside of a task: one entry more of the open step."""
        entry = inner_edit(self.draft, edit, self._env, self._task_of)
        fold_entries(self.draft, (entry,), self._env)
        self._entries = (*self._entries, entry)
        self._put_off()

    def _amend(self, edit: Edit) -> None:
        if not edit.prepared.empty:
            self._add(-1, edit)
        step = self.draft.step
        if any(task.result is None for task in step.tasks):
            merge(self._graph, self.draft.values, step, step.era)  # what these will see
        self._put_off()

    def _add(self, position: int, edit: Edit) -> None:
        """An edit of the open step, beside what it has."""
        prepared = edit.prepared
        entry = edited_row(position, Result(prepared.writes, prepared.goto, prepared.sends))
        apply_entry(self.draft, entry, self._env)
        step = self.draft.step
        made = step.amendments[-1] if position < 0 else step.tasks[position].result
        assert made is not None, "an edit is an amendment or a result"
        made.writes, made.sends = prepared.writes, prepared.sends  # with what no store keeps
        self._entries = (*self._entries, entry)

    def _put_off(self) -> None:
        """A checkpoint of the same values, with all that the open step has; its tasks keep their ids."""
        draft = self.draft
        step = draft.step
        ids = [draft.id_of(task) for task in step.tasks]
        following = Next(step.tasks, draft.joins, draft.deferred, draft.spent)
        checkpoint = self._move(Merged(draft.values, {}), {}, following)
        rows = zip(checkpoint.tasks, ids, strict=True)
        tasks = tuple([msgspec.structs.replace(row, id=id_) for row, id_ in rows])
        self._put(msgspec.structs.replace(checkpoint, tasks=tasks), self._entries)
        step.number += 1
        draft.step = step

    # Through the edges --------------------------------------------------------------------------

    def _as_nodes(self, edits: list[tuple[str, Edit]]) -> Asking:
        """The values count as written by these nodes in one step, whose edges lead on."""
        draft = self.draft
        for node, _edit in edits:
            if node not in (START, END) and node not in self._graph.nodes:
                raise InvalidCall(
                    f"as_node is {node!r}, which is no node of graph {self._graph.name!r}",
                    thread_id=draft.thread_id,
                )
        order = {name: spec.index for name, spec in self._graph.nodes.items()}
        edits.sort(key=lambda pair: order.get(pair[0], -1))
        tasks = []
        for node, edit in edits:
            prepared = edit.prepared
            goto = () if node == END else prepared.goto
            tasks.append(Task(node, result=Result(prepared.writes, goto, prepared.sends)))
        draft.step = OpenStep(draft.step.number, tasks)
        yield from self._merge_step(tuple(dict.fromkeys(node for node, _edit in edits)))

    _pending: Merged | None = None
    """The results of a step that is left, to be stored with the edit that leaves it."""

    def _merge_step(self, nodes: tuple[str, ...]) -> Asking:
        draft, graph = self.draft, self._graph
        merged = merge(graph, draft.values, draft.step)
        if START in nodes and graph.required:
            graph.check_complete(merged.values)
        graph.check_state(merged.values)
        if self._pending is not None:
            merged.changed = {**self._pending.changed, **merged.changed}
            for name in self._pending.changed:  # its value before is in no record
                (merged.added or {}).pop(name, None)
            self._pending = None
        routes = yield from self._routes(merged)
        if END in nodes:
            draft.deferred = ()
        following = plan(graph, draft, routes)
        self._machine.check_size(following, merged.values)
        writes = self._machine.encoded(merged, draft)
        if self._machine.family:
            self._machine.keep(writes, draft)
        self._entries = ()
        self._put(msgspec.structs.replace(self._move(merged, writes, following), nodes=nodes))

    def _routes(self, merged: Merged) -> Generator[Transition, Routes | Failure, Routes | None]:
        """What the routers and guards of the step choose; None where there are none."""
        draft, graph = self.draft, self._graph
        exits = exits_of(graph, draft.step)
        if not exits:
            return None
        if not must_ask(exits, draft.spent):
            return unasked(exits, draft.spent)
        view = merged.values
        if graph.managed:
            view = {**view, **graph.managed_values(graph.recursion_limit - draft.executed)}
        number, limit = draft.step.number, graph.step_timeout
        owner: Any = self._machine
        chosen = yield Transition(
            exits, draft.branch, number, view, limit, owner, spent=draft.spent
        )
        if isinstance(chosen, Failure):
            run_id = self._run().names[0]
            raise error_of([], chosen, thread_id=draft.thread_id, run_id=run_id)
        return chosen

    # Records ------------------------------------------------------------------------------------

    def _move(self, merged: Merged, writes: dict[str, bytes], following: Next) -> Checkpoint:
        """Move the draft over its step, as the machine does with its state; the stored form."""
        machine, draft = self._machine, self.draft
        number, state, machine.state = draft.step.number, machine.state, draft
        try:
            machine.apply_step(merged, writes, following, draft.executed)
            return machine.checkpoint("update", number, writes, merged.growth, self._run())
        finally:
            machine.state = state

    def _put(self, checkpoint: Checkpoint, entries: tuple[Entry, ...] = ()) -> None:
        """One more record of the draft."""
        draft, env = self.draft, self._env
        checkpoint = msgspec.structs.replace(checkpoint, parent_branch=self._parent_branch)
        self._parent_branch = ""
        draft.entry_seqs = []
        self.records.append(Record(draft.seq, env.epoch, env.now_us(), checkpoint, entries))
        draft.seq += 1

    def _run(self) -> RunRow:
        """The run of the next record: the thread's own, or one that begins with this edit."""
        if self._begun is None:
            old, now = self._old, self._env.now_us()
            if old is not None and not self._new_run:
                return old.run
            number = 1 if old is None else old.last_run + 1
            self._begun = RunRow(number, (self.call.run_id,), b"", self._env.epoch, started_us=now)
        return self._begun

    def _finish(self) -> None:
        """The thread's row as it is now."""
        draft, env, graph, old = self.draft, self._env, self._graph, self._old
        status = parked_status(draft, "cancelled" if self._new_run or old is None else old.status)
        if old is not None and not self._new_run and status == old.status:
            draft.row = old
            return
        self.row = draft.row = ThreadRow(
            thread_id=draft.thread_id,
            graph=graph.name,
            version=graph.version,
            fingerprint=graph.fingerprint,
            branch=draft.branch,
            status=status,
            run=self._run(),
            created_us=env.now_us() if old is None else old.created_us,
            rejected=() if old is None else old.rejected,
            reason=_UPDATED if status == "cancelled" else "",
        )


def last_nodes(env: Env, seq: int) -> tuple[str, ...]:
    """The nodes whose results made a checkpoint; none if that cannot be told any more."""
    while (image := env.load(seq)) is not None:
        checkpoint = image.checkpoint.checkpoint
        assert checkpoint is not None, "an image begins at a checkpoint"
        if checkpoint.nodes:
            return checkpoint.nodes
        if checkpoint.source in ("input", "restart"):
            return (START,)
        before = env.load(checkpoint.parent) if checkpoint.parent >= 0 else None
        if checkpoint.source == "loop":
            parent = None if before is None else before.checkpoint.checkpoint
            return () if parent is None else tuple(dict.fromkeys(t.node for t in parent.tasks))
        seq = checkpoint.parent
    return ()
