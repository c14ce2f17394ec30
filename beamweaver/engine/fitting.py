"""Whether a thread can go on under the graph that is here: what it needs of it, and what is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.entries import Continued, Entry, Inner, Left
from beamweaver.checkpoint.records import CallRow, decode_call, decode_record
from beamweaver.errors import GraphChanged, GraphTooOld
from beamweaver.graph.difference import gone
from beamweaver.graph.updates import overlay_channel
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from beamweaver.checkpoint.entries import SendRow, TaskRow
    from beamweaver.checkpoint.records import Checkpoint, Record, ThreadImage
    from beamweaver.graph.compiled import CompiledGraph

__all__ = [
    "check_origin",
    "check_version",
    "entries_of",
    "finished_tasks",
    "graph_changed",
    "outlives_step",
    "version_of",
    "why_unfit",
]


def version_of(image: ThreadImage) -> int:
    """The version of the graph that wrote the checkpoint of an image and what follows it."""
    checkpoint = image.checkpoint.checkpoint
    assert checkpoint is not None, "an image begins at a checkpoint"
    return checkpoint.version or image.row.version


def check_version(image: ThreadImage, graph: CompiledGraph) -> None:
    """Judge the version of a thread.

    Raises:
        GraphTooOld: It is newer than the graph's.
    """
    stored = version_of(image)
    if stored > graph.version:
        raise GraphTooOld(
            f"thread {image.row.thread_id!r} was written by version {stored} of graph {graph.name!r}, and "
            f"the code here is version {graph.version}; run it with version {stored} or newer. The thread "
            "is untouched",
            thread_id=image.row.thread_id,
            graph=graph.name,
            stored=stored,
            version=graph.version,
        )


def why_unfit(image: ThreadImage, graph: CompiledGraph, stored: int) -> GraphChanged | None:
    """What the graph lacks of a head's needs: keys, nodes of its open step, joins; None if it has all.

    Args:
        image: The head.
        graph: The graph that is here.
        stored: The version that the thread has in the store.
    """
    missing = [*_missing_for_good(image, graph), *_missing_of_step(image, graph)]
    lines = tuple(dict.fromkeys(missing))
    return graph_changed(image, graph, stored, lines) if lines else None


def outlives_step(image: ThreadImage, graph: CompiledGraph) -> bool:
    """Whether the graph has all that the thread needs besides its open step, so that a new run may begin."""
    return not any(_missing_for_good(image, graph))


def check_origin(image: ThreadImage, graph: CompiledGraph) -> None:
    """Judge an older checkpoint from which a branch is to begin.

    Raises:
        GraphTooOld: It is of a newer version.
        GraphChanged: It is of an older one, or needs what is gone.
    """
    check_version(image, graph)
    stored = version_of(image)
    if stored < graph.version:
        raise GraphChanged(
            f"the checkpoint of thread {image.row.thread_id!r} is of version {stored} of graph "
            f"{graph.name!r}, and the code here is version {graph.version}: move the head there with "
            "set_head(), which has it migrated, and go on from the head. The thread is untouched",
            thread_id=image.row.thread_id,
            graph=graph.name,
            stored=stored,
            version=graph.version,
        )
    unfit = why_unfit(image, graph, stored)
    if unfit is not None:
        raise unfit


def graph_changed(
    image: ThreadImage, graph: CompiledGraph, stored: int, lines: tuple[str, ...]
) -> GraphChanged:
    """The refusal of a thread that needs what the graph has lost."""
    if stored < graph.version:
        cure = f"say what becomes of it in migrations={{{stored}: Migration(…)}}, or bring it back"
    else:
        cure = (
            f"bring it back, or give the graph version={stored + 1} and "
            f"migrations={{{stored}: Migration(…)}}"
        )
    return GraphChanged(
        f"thread {image.row.thread_id!r} of version {stored} of graph {graph.name!r} cannot go on with the "
        f"code here (version {graph.version}): {'; '.join(lines)}. To go on, {cure}. The thread is untouched",
        thread_id=image.row.thread_id,
        graph=graph.name,
        stored=stored,
        version=graph.version,
        differences=lines,
    )


def entries_of(image: ThreadImage) -> tuple[Entry, ...]:
    """All entries of the open step of a head, oldest first; what is history stays where it is."""
    found = [*image.checkpoint.entries]
    for record in image.entries:
        found.extend(record.entries)
    return tuple([entry for entry in found if type(entry) is not Left])


def finished_tasks(entries: Iterable[Any]) -> dict[int, Any]:
    """What finished the tasks of an open step: position -> the entry that has the result."""
    found: dict[int, Any] = {}
    for entry in entries:
        if isinstance(entry, Continued):
            for position in entry.rerun:
                found.pop(position, None)
        elif {"task", "writes"} <= set(type(entry).__struct_fields__) and entry.task >= 0:
            found[entry.task] = entry
    return found


def _missing_for_good(image: ThreadImage, graph: CompiledGraph) -> Iterator[str]:
    yield from _missing_keys(graph, [name for name, data in image.values.items() if data])
    for message in image.inbox:
        yield from _missing_of(graph, decode_call(message.payload))


def _missing_of_step(image: ThreadImage, graph: CompiledGraph) -> Iterator[str]:
    checkpoint = image.checkpoint.checkpoint
    assert checkpoint is not None, "an image begins at a checkpoint"
    entries = entries_of(image)
    yield from _missing_at(graph, checkpoint, entries)


def _missing_at(
    graph: CompiledGraph, checkpoint: Checkpoint, entries: Sequence[Entry]
) -> Iterator[str]:
    """What the step that follows a checkpoint needs, and what is pending in it."""
    finished = finished_tasks(entries)
    yield from _missing_nodes(graph, checkpoint.tasks, finished)
    yield from _missing_nodes(graph, checkpoint.deferred, {})
    inside: dict[int, list[Record]] = {}
    for entry in entries:
        yield from _missing_of(graph, entry)
        if isinstance(entry, Inner) and entry.task not in finished and not entry.key:
            inside.setdefault(entry.task, []).append(decode_record(entry.data))
    for key, arrived in checkpoint.joins.items():
        yield from _missing_join(graph, key, arrived)
    for position, records in inside.items():
        yield from _missing_inside(graph, checkpoint.tasks[position].node, records)


def _missing_inside(graph: CompiledGraph, name: str, records: Sequence[Record]) -> Iterator[str]:
    """What a graph that runs inside of a task needs; its first record is a checkpoint."""
    node = graph.nodes.get(name)
    if node is None:
        return  # that is told already
    if node.subgraph is None:
        yield f"node {name!r} was a graph and is a function"
        return
    checkpoint = records[0].checkpoint
    entries: list[Entry] = []
    lines: list[str] = []
    for record in records:
        if record.checkpoint is not None:
            checkpoint, entries = record.checkpoint, []
            names = [key for key, data in checkpoint.writes.items() if data]
            lines += _missing_keys(node.subgraph, names)
        entries += record.entries
    assert checkpoint is not None, "the records of a graph begin with a checkpoint"
    lines += _missing_at(node.subgraph, checkpoint, entries)
    yield from (f"in the graph {name!r}: {line}" for line in lines)


def _missing_keys(graph: CompiledGraph, names: Iterable[str]) -> Iterator[str]:
    if not graph.open:
        for name in names:
            if name not in graph.channels and not name.startswith("__"):
                yield gone("the key", name, graph.channels)


def _missing_nodes(
    graph: CompiledGraph, tasks: Iterable[TaskRow], finished: Mapping[int, Any]
) -> Iterator[str]:
    for position, task in enumerate(tasks):
        result = finished.get(position)
        if task.node == START or (result is not None and result.goto is not None):
            continue  # where it goes on is known
        if task.node not in graph.nodes:
            yield gone("node", task.node, graph.nodes)
        elif result is None and task.update is not None:
            yield from _missing_overlay(graph, task.node, task.update)


def _missing_of(graph: CompiledGraph, entry: Any) -> Iterator[str]:
    """What the updates, gotos and Sends of an entry, or of a message that waits, need."""
    yield from _missing_keys(graph, [write[0] for write in getattr(entry, "writes", ())])
    for name in (*(getattr(entry, "goto", None) or ()), *_rerun_names(entry)):
        if name not in graph.nodes:
            yield gone("node", name, graph.nodes)
    sends: tuple[SendRow, ...] = getattr(entry, "sends", ())
    for send in sends:
        if send.node not in graph.nodes:
            yield gone("node", send.node, graph.nodes)
        else:
            yield from _missing_overlay(graph, send.node, send.update)


def _rerun_names(entry: Any) -> tuple[str, ...]:
    """The nodes whose results a message that waits is to drop."""
    return entry.rerun if isinstance(entry, CallRow) else ()


def _missing_overlay(graph: CompiledGraph, node: str, keys: Iterable[str]) -> Iterator[str]:
    spec = graph.nodes[node]
    for key in keys:
        if overlay_channel(graph, spec, key) is None:
            yield gone(f"for a Send to node {node!r}, the key", key, graph.channels)


def _missing_join(graph: CompiledGraph, key: str, arrived: tuple[str, ...]) -> Iterator[str]:
    if not any(join.key == key for joins in graph.joins.values() for join in joins):
        sources, _, target = key.partition(":")
        names = ", ".join(map(repr, sources.split("|")))
        came = ", ".join(map(repr, arrived))
        yield f"the join of {names} -> {target!r} is gone, at which {came} arrived"
