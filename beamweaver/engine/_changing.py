"""What the migrations of a graph make of names, values and updates of an older version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from beamweaver.engine.kept import is_kept, kept_of, moved
from beamweaver.engine.kept import stored as kept_channels
from beamweaver.errors import BeamWeaverError, InvalidUpdate, MigrationFailed
from beamweaver.graph._text import described
from beamweaver.graph.migrations import migrations_from
from beamweaver.graph.updates import overlay_channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.checkpoint.entries import WriteRow
    from beamweaver.engine.env import Env
    from beamweaver.graph.channels import Channel
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.graph.migrations import Migration

__all__ = ["Changing", "Names"]


class Names:
    """The names of nodes, over all steps from the stored version to the code's."""

    def __init__(self, steps: tuple[Migration, ...]) -> None:
        self._steps = steps

    def node(self, name: str) -> str | None:
        """The new name of a node; None if it is dropped."""
        found: str | None = name
        for step in self._steps:
            found = None if found is None else step.new_node(found)
        return found


class Changing:
    """Values and updates of a thread in the terms of the graph that is here.

    Args:
        thread_id: The thread.
        graph: The graph that is here.
        env: Encodes and decodes.
        stored: The version of the thread.
    """

    def __init__(self, thread_id: str, graph: CompiledGraph, env: Env, stored: int) -> None:
        self._thread_id = thread_id
        self._graph = graph
        self._env = env
        self._stored = stored
        steps = migrations_from(graph.migrations, stored, graph.version)
        self._steps = [(v, s) for v, s in sorted(graph.migrations.items()) if s in steps]
        self.names = Names(steps)

    # Values -------------------------------------------------------------------------------------

    def values(self, stored: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The encoded values of the new state.

        Returns:
            All of them, and those that changed.
        """
        old = {name: data for name, data in stored.items() if data and not is_kept(name)}
        own = kept_channels(self.places(kept_of(stored) or {}))
        writes = {name: data for name, data in own.items() if name not in stored}
        for name, data in self._changed("state", old).items():
            own[name] = data
            if old.get(name) != data:
                writes[name] = data
        return own, writes

    def places(self, kept: Mapping[str, bytes]) -> dict[str, bytes]:
        """What persistent subgraphs keep, by the new names of the nodes that they are."""
        found: dict[str, bytes] = {}
        for place, data in kept.items():
            new = moved(place, self.names.node)
            if new is not None:
                found[new] = data
        return found

    def update(self, rows: tuple[WriteRow, ...]) -> tuple[WriteRow, ...]:
        """The writes of a result, an amendment or an input; a key may be there several times."""
        made: list[WriteRow] = []
        group: dict[str, bytes] = {}
        over = False
        for name, data, overwrite in rows:
            if group and (name in group or overwrite is not over):
                made += self._group(group, over)
                group = {}
            group[name], over = data, overwrite
        return (*made, *self._group(group, over))

    def overlay(self, node: str, update: Mapping[str, bytes]) -> dict[str, bytes]:
        """The update of a Send to a node of the new graph."""
        return self._changed("update", dict(update), whole=True, node=node)

    def _group(self, group: dict[str, bytes], over: bool) -> list[WriteRow]:
        changed = self._changed("update", group, whole=over)
        return [(name, data, over) for name, data in changed.items()]

    # Calling the user's functions ---------------------------------------------------------------

    def _changed(
        self,
        kind: Literal["state", "update"],
        stored: dict[str, bytes],
        *,
        whole: bool = True,
        node: str = "",
    ) -> dict[str, bytes]:
        """What the functions of that kind make of encoded values.

        Where a function left a value as it was, its bytes stay.
        """
        steps = [(version, getattr(step, kind)) for version, step in self._steps]
        if not any(fn is not None for _version, fn in steps):
            return stored
        encode_any = self._env.encode_any
        decode_old = self._env.decode_old
        values = {name: decode_old(name, data, node) for name, data in stored.items()}
        before = {name: encode_any(value) for name, value in values.items()}
        made: dict[str, Any] = values
        where = ""
        for version, fn in steps:
            if fn is not None:
                where = f"migrations[{version}].{kind}"
                made = self._call(where, fn, made)
        found: dict[str, bytes] = {}
        for name, value in made.items():
            channel = self._channel(name, node)
            same = name in before and self._encoded_any(where, name, value) == before[name]
            if same and self._readable(channel, name, stored[name], node):
                found[name] = stored[name]
            else:
                fitted = value if channel is None else self._fitted(where, channel, value, whole)
                found[name] = self._encoded(where, name, fitted, node)
        return found

    def _call(self, where: str, fn: Any, values: dict[str, Any]) -> dict[str, Any]:
        try:
            made = dict(fn(dict(values)))
        except Exception as error:  # a migration is user code
            raise self._failed(f"{where} raised {type(error).__name__}: {error}") from error
        strange = [key for key in made if not isinstance(key, str) or key.startswith("__")]
        if strange:
            raise self._failed(
                f"{where} returned the key {described(strange[0])}; keys are str and do not begin with '__'"
            )
        return made

    def _failed(self, what: str) -> MigrationFailed:
        return MigrationFailed(
            f"thread {self._thread_id!r} of version {self._stored} of graph {self._graph.name!r} could not "
            f"be migrated to version {self._graph.version}: {what}. The thread is untouched",
            thread_id=self._thread_id,
            graph=self._graph.name,
            stored=self._stored,
            version=self._graph.version,
        )

    # Judging what they return -------------------------------------------------------------------

    def _channel(self, name: str, node: str) -> Channel | None:
        """What judges a key; None where nothing does, or the graph lacks it, which is told later."""
        if node in self._graph.nodes:
            return overlay_channel(self._graph, self._graph.nodes[node], name)
        return self._graph.channels.get(name)

    def _readable(self, channel: Channel | None, name: str, data: bytes, node: str) -> bool:
        """Whether bytes can stay as they are, now that the key may have another type."""
        try:
            if node:
                self._env.decode_sent(node, name, data)
            else:
                self._env.decode(name, data)
        except BeamWeaverError:
            return channel is None
        return True

    def _encoded_any(self, where: str, name: str, value: object) -> bytes:
        try:
            return self._env.encode_any(value)
        except BeamWeaverError as error:
            raise self._failed(
                f"{where} returned for {name!r} what cannot be stored: {error}"
            ) from error

    def _encoded(self, where: str, name: str, value: object, node: str) -> bytes:
        try:
            if node:
                return self._env.encode_sent(node, name, value)
            return self._env.encode(name, value)
        except BeamWeaverError as error:
            raise self._failed(
                f"{where} returned for {name!r} what cannot be stored: {error}"
            ) from error

    def _fitted(self, where: str, channel: Channel, value: object, whole: bool) -> Any:
        """The value, in the key's type: plain data is made into it."""
        judge = channel.check_value if whole else channel.check
        try:
            judge(value)
        except InvalidUpdate as error:
            for declared in (channel.type, *get_args(channel.type)[:1]):
                try:
                    made = msgspec.convert(value, declared)
                    judge(made)
                except (msgspec.ValidationError, TypeError, InvalidUpdate):
                    continue
                return made
            fault = error.message.removeprefix("the input has ")
            raise self._failed(f"{where} returned {fault}") from error
        return value
