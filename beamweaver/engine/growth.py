"""What a step adds to channels with reducers, as it is stored: deltas where they are exact and worth it.

A delta is made of what the channel's type and reducer tell of a change (`graph.changes`); no reducer is
called to read it back. Everything else is stored as a whole value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.checkpoint.deltas import appended, join, keys_removed, keys_set, replaced
from beamweaver.checkpoint.records import Chain, DeltaRow
from beamweaver.graph.changes import Appended, KeysRemoved, Replaced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.checkpoint.deltas import Operation
    from beamweaver.engine.env import Env
    from beamweaver.engine.merge import Merged
    from beamweaver.engine.state import RunState, Write
    from beamweaver.graph.changes import Change
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["Growth", "chains_of", "encode_reduced"]


class Growth(msgspec.Struct, eq=False):
    """How a step stores its channels with reducers.

    Attributes:
        deltas: Channel -> what is stored in place of its value.
        chains: Channel -> how it is stored from this step on.
    """

    deltas: dict[str, DeltaRow]
    chains: dict[str, Chain]


def chains_of(chains: Mapping[str, Chain], graph: CompiledGraph) -> dict[str, Chain]:
    """Of what a store tells of a thread's channels, those with reducers: only they have deltas."""
    known = graph.channels
    return {
        name: chain
        for name, chain in chains.items()
        if name in known and known[name].reducer is not None
    }


def encode_reduced(name: str, merged: Merged, state: RunState, env: Env, *, grows: bool) -> None:
    """Encode what the reducer of a channel made: the whole value, or what was added to that of `state`.

    Args:
        name: The channel.
        merged: The state after the step. It gets the encoding or the delta, and the channel's chain.
        state: The state before it.
        env: Encodes.
        grows: Whether the step may have deltas.

    Raises:
        SerializationError: The value cannot be stored.
    """
    growth = merged.growth
    if growth is None:
        growth = merged.growth = Growth({}, {})
    chain = state.chains.get(name)
    added = None if merged.added is None else merged.added.get(name)
    if grows and added and chain is not None and _is_worth_it(chain, env):
        delta = _delta(name, added, state.values[name], merged.values[name], env)
        if delta is not None and _takes(chain, len(delta), env):
            growth.deltas[name] = DeltaRow(state.versions[name], delta)
            growth.chains[name] = chain = chain.with_delta(len(delta))
            env.tell_large(name, chain.snapshot + chain.deltas)
            return
    data = merged.changed[name] = env.encode(name, merged.values[name])
    growth.chains[name] = Chain(len(data))


def _is_worth_it(chain: Chain, env: Env) -> bool:
    """Whether a value is so large that a delta is much smaller; it costs more to make and to read."""
    return chain.snapshot + chain.deltas > env.limits.value_bytes_whole


def _takes(chain: Chain, size: int, env: Env) -> bool:
    """Whether a delta may follow; encoding the whole refuses a value that is too large."""
    whole = chain.snapshot + chain.deltas + size
    return chain.takes(size) and whole <= env.limits.value_bytes


def _delta(name: str, added: list[Write], before: Any, after: Any, env: Env) -> bytes | None:
    """The delta between two values, or None if only the whole value says what changed."""
    channel = env.graph.channels[name]
    changes = channel.changes(before, after, [write.value for write in added])
    if changes is None:
        return None
    known = added[0] if len(added) == len(changes) == 1 else None
    return join([_operation(name, change, known, env) for change in changes])


def _operation(name: str, change: Change, known: Write | None, env: Env) -> Operation:
    """The stored form of a change; `known` is the one write that made it, whose bytes may serve again."""
    if isinstance(change, KeysRemoved):
        return keys_removed(env.encode_any(change.keys))
    if isinstance(change, Replaced):
        return replaced(change.indexes, env.encode(name, change.items))
    items = change.items
    if known is not None and type(known.value) is type(items) and len(known.value) == len(items):
        data = known.data
    else:
        data = env.encode(name, items)
    return appended(data) if isinstance(change, Appended) else keys_set(data)
