"""How a step's results become the next state.

The order is that of the tasks, never that of completion: pulls in declaration order, then Sends by source
task and index. Amendments of a continued step stand where they came: results finished before the first
one, that amendment, results finished before the next, and so on. An amendment never conflicts, and wins
over the results before it.

A key that lasts for one step (a topic, an ephemeral one) is cleared by the step's whole merge. What a
continued task sees, and people in between, is merged without that: the step is not over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from beamweaver.errors import InvalidUpdate, ReducerFailed
from beamweaver.graph.channels import MISSING
from beamweaver.types import START

if TYPE_CHECKING:
    from beamweaver.engine.growth import Growth
    from beamweaver.engine.state import OpenStep, Task, Write
    from beamweaver.graph.channels import Channel
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["GONE", "UNSTORED", "Merged", "head_values", "merge", "with_initial", "with_lost"]

GONE: Final = b""
"""The encoding of no value: the key is absent from here on."""
UNSTORED: Final = b""
"""The encoding of a value that no store keeps."""

_CURES: Final = {
    "value": (
        "a key without a reducer takes one a step: return one, or give the key a reducer (Annotated[T, fn])",
        (
            "a key without a reducer takes one value a step: give it a reducer (Annotated[T, fn] or "
            "add_reducer({name!r}, fn))"
        ),
    ),
    "Overwrite": (
        "a key takes one Overwrite a step: return one",
        "a key takes one Overwrite a step: return plain updates",
    ),
}
"""What to do about too many of a kind: in one return, and in one step."""


class Merged(msgspec.Struct, eq=False):
    """A merged state: all values, and the encoding of each that changed (None: not encoded yet).

    Keys that no store keeps are in `changed` too.

    Attributes:
        values: All values.
        changed: Key -> its encoding, or None.
        added: Key with a reducer -> the writes that were folded onto its value before; a key that an
            `Overwrite` wrote, or whose value before did not count, is not among them.
        growth: What of the changes is stored as deltas, worked out with the encoding.
    """

    values: dict[str, Any]
    changed: dict[str, bytes | None]
    added: dict[str, list[Write]] | None = None
    growth: Growth | None = None


class _Item(msgspec.Struct, eq=False):
    """A write with who made it; `node` is None for an amendment."""

    write: Write
    node: str | None
    position: int


def merge(
    graph: CompiledGraph, base: dict[str, Any], step: OpenStep, before_era: int | None = None
) -> Merged:
    """The state after the finished results and amendments of a step.

    Args:
        graph: Whose channels say how.
        base: The committed state; never changed.
        step: The open step.
        before_era: Only results that finished before this continuation (what a continued task sees); None
            for the whole merge, which ends the step.

    Raises:
        InvalidUpdate: Two tasks wrote one last-value channel, or one task wrote it twice.
        ReducerFailed: A reducer raised.
    """
    if before_era is None and not step.amendments and len(step.tasks) == 1:
        merged = _merge_one(graph, base, step.tasks[0])
        if merged is not None:
            return merged
    values = dict(base)
    changed: dict[str, bytes | None] = {}
    added: dict[str, list[Write]] = {}
    for name, items in _by_channel(_ordered(step, before_era)).items():
        channel = _reducing(graph, name)
        if channel is None:
            write = _last_value(name, items)
            values[name] = write.value
            changed[name] = write.data
        else:
            clears = channel.clears and before_era is None
            current = MISSING if clears else values.get(name, MISSING)
            values[name], writes = _reduce(channel, current, items)
            changed[name] = None
            if writes and not clears:
                added[name] = writes
    if graph.clearing and before_era is None:
        _clear(graph, base, values, changed)
    return Merged(values, changed, added or None)


def with_initial(graph: CompiledGraph, values: dict[str, Any]) -> dict[str, Any]:
    """The values, beside them the empty value of each reducer's channel that nothing has written yet.

    Such a value is stored only when a write has changed it.
    """
    initial = {
        name: channel.initial()
        for name, channel in graph.channels.items()
        if channel.reducer is not None and name not in values
    }
    found = {name: value for name, value in initial.items() if value is not MISSING}
    return {**found, **values} if found else values


def with_lost(
    graph: CompiledGraph, values: dict[str, Any], writes: tuple[Write, ...]
) -> dict[str, Any]:
    """The values, and for each key that no store keeps and that has no value (any more) what a call brings.

    Args:
        graph: Whose channels say how.
        values: The values; never changed.
        writes: Those of the call's input, which is the one that the run has.

    Raises:
        ReducerFailed: A reducer raised.
    """
    found = dict(values)
    for write in writes:
        name = write.channel
        if name not in graph.unstored:
            continue
        channel = graph.channels[name]
        if name in values and not channel.is_empty(values[name]):
            continue
        if channel.reducer is None:
            found[name] = write.value
        else:
            found[name], _ = _reduce(channel, MISSING, [_Item(write, None, -1)])
    return found


def head_values(
    graph: CompiledGraph, base: dict[str, Any], step: OpenStep
) -> tuple[dict[str, Any], str | None]:
    """The state with all that is finished applied, for people to see.

    Returns:
        The values and None, or the committed values and why the results do not merge.
    """
    base = with_initial(graph, base)
    if not step.amendments and all(task.result is None for task in step.tasks):
        return base, None
    try:
        return merge(graph, base, step, step.era + 1).values, None
    except (InvalidUpdate, ReducerFailed) as error:
        return base, error.message


def _merge_one(graph: CompiledGraph, base: dict[str, Any], task: Task) -> Merged | None:
    """The same for the only task of a step without amendments, if it wrote each channel at most once."""
    assert task.result is not None, f"task {task.node!r} has no result to merge"
    values = dict(base)
    changed: dict[str, bytes | None] = {}
    channels = graph.channels
    added: dict[str, list[Write]] | None = None
    for write in task.result.writes:
        name = write.channel
        if name in changed or write.overwrite:
            return None
        channel = channels.get(name)
        if channel is None and not graph.open:
            graph.channel(name)  # raises
        if channel is None or channel.reducer is None:
            values[name] = write.value
            changed[name] = write.data
        else:
            item = _Item(write, task.node, 0)
            current = MISSING if channel.clears else values.get(name, MISSING)
            values[name], writes = _reduce(channel, current, [item])
            changed[name] = None
            if writes and not channel.clears:
                added = added or {}
                added[name] = writes
    if graph.clearing:
        _clear(graph, base, values, changed)
    return Merged(values, changed, added)


def _clear(
    graph: CompiledGraph,
    base: dict[str, Any],
    values: dict[str, Any],
    changed: dict[str, bytes | None],
) -> None:
    """Keys that last for one step and that this one did not write are empty, or gone."""
    for name, value in graph.cleared(base, changed).items():
        if value is MISSING:
            del values[name]
            changed[name] = GONE
        else:
            values[name] = value
            changed[name] = None


def _reducing(graph: CompiledGraph, name: str) -> Channel | None:
    """The channel of a key, if it has a reducer.

    Raises:
        UnknownChannel: The graph has lost the key since the write was stored.
    """
    channel = graph.channels.get(name)
    if channel is not None:
        return channel if channel.reducer is not None else None
    return None if graph.open else graph.channel(name)


def _ordered(step: OpenStep, before_era: int | None) -> list[_Item]:
    """All writes of the step in merge order."""
    limit = step.era + 1 if before_era is None else before_era
    done = [t for t in step.tasks if t.result is not None and t.result.era < limit]
    items: list[_Item] = []
    lower = 0
    for amendment in step.amendments:
        items.extend(_of_tasks(done, lower, amendment.era))
        items.extend(_Item(write, None, -1) for write in amendment.writes)
        lower = amendment.era
    items.extend(_of_tasks(done, lower, limit))
    return items


def _of_tasks(done: list[Task], low: int, high: int) -> list[_Item]:
    return [
        _Item(write, task.node, task.position)
        for task in done
        if task.result is not None and low <= task.result.era < high
        for write in task.result.writes
    ]


def _by_channel(items: list[_Item]) -> dict[str, list[_Item]]:
    groups: dict[str, list[_Item]] = {}
    for item in items:
        groups.setdefault(item.write.channel, []).append(item)
    return groups


def _last_value(name: str, items: list[_Item]) -> Write:
    """The write that stands; tasks may not compete for it."""
    items = _after_amended_overwrite(items)
    by_tasks = [item for item in items if item.node is not None]
    forced = [item for item in by_tasks if item.write.overwrite]
    _at_most_one(name, forced, "Overwrite")
    if not forced:
        _at_most_one(name, by_tasks, "value")
    standing = [item for item in items if item.node is None or not forced or item.write.overwrite]
    return standing[-1].write


def _reduce(channel: Channel, current: Any, items: list[_Item]) -> tuple[Any, list[Write] | None]:
    """The reducer over the current value and the writes, in order.

    Returns:
        The new value, and the writes that were folded onto the current one; None after an `Overwrite`.
    """
    items = _after_amended_overwrite(items)
    forced = [item for item in items if item.write.overwrite and item.node is not None]
    _at_most_one(channel.name, forced, "Overwrite")
    if forced:
        items = [item for item in items if item.node is None or item.write.overwrite]
    writes: list[Write] = []
    whole = False
    for item in items:
        if item.write.overwrite:
            current, writes, whole = item.write.value, [], True
        else:
            writes.append(item.write)
    if not writes:
        return current, None
    try:
        value = channel.fold(current, [write.value for write in writes])
    except Exception as error:  # a reducer is user code
        nodes = sorted({item.node for item in items if item.node not in (None, START)})
        kept = "; their results are kept, continue the thread when the reducer is mended"
        raise ReducerFailed(
            f"the reducer of {channel.name!r} raised {type(error).__name__}: {error} while the "
            f"updates of {', '.join(nodes) or 'the input'} were merged{kept if nodes else ''}",
            channel=channel.name,
            nodes=tuple(nodes),
        ) from error
    return value, None if whole else writes


def _after_amended_overwrite(items: list[_Item]) -> list[_Item]:
    """An amendment's Overwrite replaces all that came before it."""
    for index in range(len(items) - 1, -1, -1):
        if items[index].node is None and items[index].write.overwrite:
            return items[index:]
    return items


def _at_most_one(name: str, items: list[_Item], what: str) -> None:
    if len(items) < 2:
        return
    nodes = [str(item.node) for item in items]
    if items[0].position == items[1].position:
        who = "the input" if nodes[0] == START else f"node {nodes[0]!r}"
        fault = f"{who} gave two {what}s for {name!r} in one return; {_CURES[what][0]}"
        raise InvalidUpdate(fault, channel=name, nodes=tuple(nodes))
    who = " and ".join(repr(node) for node in dict.fromkeys(nodes))
    if len(set(nodes)) == 1:
        who = f"{len(items)} tasks of {nodes[0]!r}"
    cure = _CURES[what][1].format(name=name)
    raise InvalidUpdate(
        f"{who} wrote {name!r} in one step; {cure}, or let one of them write it",
        channel=name,
        nodes=tuple(dict.fromkeys(nodes)),
    )
