"""How a thread of an older version of its graph becomes one of the version that is here.

All that the head of a thread has is taken over: values, the tasks of its open step with what is pending of
them, joins, and the messages that wait. It becomes one commit of source `"migrate"`, on top of the
checkpoint that was the head. The step's tasks are planned again, one number higher, and keep their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.entries import Continued, Edited, Paused, SendRow, TaskRow
from beamweaver.checkpoint.records import Record, decode_call, encode_call
from beamweaver.engine._changing import Changing, Names
from beamweaver.engine._editing import last_nodes
from beamweaver.engine.breakpoints import ALL
from beamweaver.engine.fitting import (
    check_version,
    entries_of,
    finished_tasks,
    graph_changed,
    outlives_step,
    version_of,
    why_unfit,
)
from beamweaver.engine.fold import fold, raw_entries
from beamweaver.engine.ids import task_id
from beamweaver.engine.rows import input_data, sends_of, writes_of
from beamweaver.errors import DeserializationError
from beamweaver.types import END, START

if TYPE_CHECKING:
    from collections.abc import Iterable

    from beamweaver.checkpoint.entries import Entry
    from beamweaver.checkpoint.records import Checkpoint, InboxMessage, RunOptions, ThreadImage
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import RunState
    from beamweaver.errors import GraphChanged
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["Migrated", "Opened", "open_image"]


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration makes of a thread, and what its commit has.

    Attributes:
        stored: The version before.
        checkpoint: The thread in its new version.
        entries: What is pending in its open step.
        inbox: The messages that wait and that changed.
        replaces: The numbers of the records that the checkpoint supersedes.
    """

    stored: int
    checkpoint: Checkpoint
    entries: tuple[Entry, ...]
    inbox: tuple[InboxMessage, ...]
    replaces: tuple[int, ...]


class Opened(msgspec.Struct, frozen=True):
    """A thread under the graph that is here.

    Attributes:
        image: Its head, as it is or as the migration makes it.
        state: The head, decoded.
        migrated: What must be committed before anything else, or None.
        unfit: Why the open step cannot go on, though a new run in its place can; or None.
    """

    image: ThreadImage
    state: RunState
    migrated: Migrated | None = None
    unfit: GraphChanged | None = None


def open_image(image: ThreadImage, graph: CompiledGraph, env: Env) -> Opened:
    """The head of a thread under the graph that is here; of an older version, migrated.

    Raises:
        GraphTooOld: The thread is of a newer version.
        GraphChanged: The graph has lost what the thread needs, whatever happens to its open step.
        MigrationFailed: A migration raised, or what it made does not fit.
        DeserializationError: A value is damaged.
    """
    check_version(image, graph)
    stored, migrated, opened = version_of(image), None, image
    if stored < graph.version:
        migrated, opened = _migrate(image, graph, env, stored)
    unfit = why_unfit(opened, graph, stored)
    if unfit is not None and (migrated is not None or not outlives_step(opened, graph)):
        raise unfit
    try:
        state = fold(opened, env)
    except DeserializationError as error:
        if migrated is None and image.row.fingerprint == graph.fingerprint:
            raise
        raise graph_changed(image, graph, stored, (f"the stored value {error.message}",)) from error
    if migrated is not None:
        state.entry_seqs = list(migrated.replaces)
        opened = _with_status(opened, state)
    return Opened(opened, state, migrated, unfit)


def _migrate(
    image: ThreadImage, graph: CompiledGraph, env: Env, stored: int
) -> tuple[Migrated, ThreadImage]:
    changing = Changing(image.row.thread_id, graph, env, stored)
    old = image.checkpoint.checkpoint
    assert old is not None, "an image begins at a checkpoint"
    values, writes = changing.values(image.values)
    seq = image.next_seq
    versions = {name: seq if name in writes else image.versions[name] for name in values}
    pending = entries_of(image) if image.tip else raw_entries(image.checkpoint)
    entries = _entries(changing, old, pending)
    checkpoint = msgspec.structs.replace(
        old,
        step=old.next_step,
        source="migrate",
        branch=old.branch if image.tip else env.new_id(),
        parent=image.checkpoint.seq,
        writes=writes,
        deltas={},
        versions=versions,
        parent_branch="" if image.tip else old.branch,
        nodes=_nodes(changing.names, last_nodes(env, image.checkpoint.seq)),
        tasks=tuple(
            _task(changing, row, _id_of(row, old) if image.tip else None) for row in old.tasks
        ),
        next_step=old.next_step + 1,
        joins=_joins(changing.names, graph, old.joins),
        spent=_spent(changing.names, old.spent),
        deferred=tuple(
            _task(changing, row, row.id)  # the id of others follows from the step in which they run
            for row in old.deferred
            if changing.names.node(row.node) is not None
        ),
        version=graph.version,
    )
    inbox = tuple(_message(changing, env, message) for message in image.inbox)
    run = image.row.run
    row = msgspec.structs.replace(
        image.row,
        version=graph.version,
        fingerprint=graph.fingerprint,
        branch=checkpoint.branch,
        run=msgspec.structs.replace(run, options=_options(changing.names, run.options)),
    )
    made = msgspec.structs.replace(
        image,
        row=row,
        checkpoint=Record(seq, env.epoch, env.now_us(), checkpoint, entries),
        values=values,
        versions=versions,
        since_full=0,
        entries=(),
        inbox=inbox,
        chains={},
        tip=True,
    )
    changed = tuple(
        new for new, before in zip(inbox, image.inbox, strict=True) if new is not before
    )
    replaces = tuple(record.seq for record in image.entries)
    return Migrated(
        stored=stored, checkpoint=checkpoint, entries=entries, inbox=changed, replaces=replaces
    ), made


def _options(names: Names, options: RunOptions | None) -> RunOptions | None:
    """What a call gave in place of the graph's own: its breakpoints under the new names of their nodes."""
    if options is None or not (options.interrupt_before or options.interrupt_after):
        return options
    return msgspec.structs.replace(
        options,
        interrupt_before=_breakpoints(names, options.interrupt_before),
        interrupt_after=_breakpoints(names, options.interrupt_after),
    )


def _breakpoints(names: Names, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return given if given is None or given == ALL else _nodes(names, given)


def _nodes(names: Names, old: Iterable[str]) -> tuple[str, ...]:
    found = [name if name == START else names.node(name) for name in old]
    return tuple(name for name in found if name is not None)


def _id_of(row: TaskRow, old: Checkpoint) -> str:
    """The id of a task of the open step, which it keeps: so do its questions and its idempotency key."""
    path = row.node if row.source is None else f"{row.source}:{row.index}:{row.node}"
    return row.id or task_id(old.branch, "", old.next_step, path)


def _task(changing: Changing, row: TaskRow, id_: str | None) -> TaskRow:
    """A planned task in the new names; one of a node that is dropped keeps its own, and never runs."""
    if row.node == START:
        return msgspec.structs.replace(row, id=id_)
    node = changing.names.node(row.node)
    if node is None:
        return TaskRow(row.node, row.source, row.index, None, row.timeout, id_)
    update = None if row.update is None else changing.overlay(node, row.update)
    return msgspec.structs.replace(row, node=node, update=update, id=id_)


def _entries(changing: Changing, old: Checkpoint, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """What is pending in the open step.

    A task of a node that is dropped is finished by an edit, which belongs to the checkpoint itself. What it
    gave stays, and leads nowhere but where it said itself; if it had not finished, it gave nothing.
    """
    finished = finished_tasks(entries)
    dropped = {
        position
        for position, row in enumerate(old.tasks)
        if row.node != START and changing.names.node(row.node) is None
    }
    found: list[Entry] = []
    for entry in entries:
        position = getattr(entry, "task", -1)
        if position not in dropped:
            found.append(_entry(changing, entry, dropped))
        elif finished.get(position) is entry:
            new: Any = _entry(changing, entry, dropped)
            goto = new.goto if new.goto is not None else ()
            found.append(Edited(position, new.writes, goto, new.sends))
    found += [Edited(position, (), ()) for position in sorted(dropped - finished.keys())]
    return tuple(found)


def _entry(changing: Changing, entry: Any, dropped: set[int]) -> Entry:
    changes = _changes(changing, entry)
    if isinstance(entry, Paused):
        changes = {
            "before": _nodes(changing.names, entry.before),
            "after": _nodes(changing.names, entry.after),
        }
    if isinstance(entry, Continued):
        changes["rerun"] = tuple(p for p in entry.rerun if p not in dropped)
    if "node" in type(entry).__struct_fields__ and entry.node:
        changes["node"] = changing.names.node(entry.node) or entry.node
    new: Entry = msgspec.structs.replace(entry, **changes)
    return new


def _changes(changing: Changing, row: Any) -> dict[str, Any]:
    """The new updates, gotos and Sends of an entry or a call."""
    changes: dict[str, Any] = {}
    if getattr(row, "writes", ()):
        changes["writes"] = changing.update(row.writes)
    if getattr(row, "goto", None):
        changes["goto"] = _nodes(changing.names, row.goto)
    if getattr(row, "kept", None):
        changes["kept"] = changing.places(row.kept)
    if getattr(row, "sends", ()):
        sends = [(changing.names.node(send.node), send) for send in row.sends]
        changes["sends"] = tuple(
            SendRow(node, changing.overlay(node, send.update), send.timeout)
            for node, send in sends
            if node is not None
        )
    return changes


def _joins(
    names: Names, graph: CompiledGraph, joins: dict[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Who arrived where. A join is found again by its nodes, or else by its target and those who arrived."""
    known = {join.key: join for found in graph.joins.values() for join in found}
    found: dict[str, tuple[str, ...]] = {}
    for key, arrived in joins.items():
        sources, _, target = key.partition(":")
        new_target = names.node(target)
        new_sources = [names.node(source) for source in sources.split("|")]
        came = tuple(n for n in map(names.node, arrived) if n is not None)
        if new_target is None or not came:
            continue
        kept = sorted(source for source in new_sources if source is not None)
        new_key = f"{'|'.join(kept)}:{new_target}"
        alike = [
            join.key
            for join in known.values()
            if join.target == new_target and set(came) < set(join.sources)
        ]
        if new_key not in known and len(alike) == 1:
            new_key = alike[0]
        if new_key in known or None not in new_sources:
            found[new_key] = came
    return found


def _spent(names: Names, spent: dict[str, int]) -> dict[str, int]:
    """How often guarded edges were taken, by their keys: source, target, and which of the edges between."""
    found: dict[str, int] = {}
    for key, times in spent.items():
        source, target, index = key.split(":")
        new = [name if name in (START, END) else names.node(name) for name in (source, target)]
        if None not in new:
            found[f"{new[0]}:{new[1]}:{index}"] = times
    return found


def _message(changing: Changing, env: Env, message: InboxMessage) -> InboxMessage:
    """A message that waits, with its input in the new form."""
    row = decode_call(message.payload)
    new = msgspec.structs.replace(
        row,
        rerun=_nodes(changing.names, row.rerun),
        options=_options(changing.names, row.options),
        **_changes(changing, row),
    )
    if new == row:
        return message
    data = input_data(writes_of(new.writes, env), new.goto, sends_of(new.sends, env))
    new = msgspec.structs.replace(new, digest=env.digest(data))
    return msgspec.structs.replace(message, payload=encode_call(new))


def _with_status(image: ThreadImage, state: RunState) -> ThreadImage:
    """A run that waited, slept, or had failed at nodes that are dropped goes on by itself."""
    row, tasks = image.row, state.step.tasks
    match row.status:
        case "waiting":
            goes_on = not state.step.asks and state.step.paused is None
        case "failed":
            failed = state.step.failure is not None
            goes_on = not failed and not any(task.failure is not None for task in tasks)
        case "sleeping":
            goes_on = all(task.result is not None for task in tasks)
        case _:
            goes_on = False
    if not goes_on:
        return image
    state.row = msgspec.structs.replace(row, status="drained")
    return msgspec.structs.replace(image, row=state.row)
