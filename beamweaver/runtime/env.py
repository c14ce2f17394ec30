"""The engine's view of the world: clock, chance, ids and the codec, for one thread."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from beamweaver.engine.merge import UNSTORED
from beamweaver.engine.unread import Unread
from beamweaver.runtime.whose import WHOSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.codec import ChannelCodec, Codec
    from beamweaver.checkpoint.records import MessageKey, ThreadImage
    from beamweaver.engine.env import Env
    from beamweaver.graph.compiled import CompiledGraph, NodeSpec
    from beamweaver.runtime.hub import Hub

__all__ = ["GraphCodec", "ThreadEnv"]


class GraphCodec:
    """The encoding of a graph's channels: one plan a channel, made once.

    Values that no store keeps are encoded as nothing.
    """

    __slots__ = (
        "_codec",
        "_graph",
        "_nodes",
        "_plans",
        "copy",
        "encode_any",
        "encoders",
        "tell_large",
    )

    def __init__(self, codec: Codec, graph: CompiledGraph, node: NodeSpec | None = None) -> None:
        """Of a graph; with a node, of what is sent to that one, whose own schema has types for it."""
        channels = graph.channels if node is None else {**graph.channels, **(node.inputs or {})}
        nodes = graph.nodes.values() if node is None else ()
        self._nodes = {n.name: GraphCodec(codec, graph, n) for n in nodes if n.inputs is not None}
        self._codec = codec
        self._graph = weakref.ref(graph)  # it is kept beside its graph, by that graph
        self.copy = codec.copy
        self.tell_large = codec.tell_large
        self._plans: dict[str, ChannelCodec] = {
            name: codec.plan(channel.type) for name, channel in channels.items() if channel.stored
        }
        self.encode_any: Callable[..., bytes] = codec.encode
        self.encoders: dict[str, Callable[..., bytes]] = {
            name: plan.encode for name, plan in self._plans.items()
        }
        """What encodes the values of a channel; those of any other `encode_any` does."""
        for name, channel in channels.items():
            if not channel.stored:
                self.encoders[name] = _as_nothing

    @property
    def graph(self) -> CompiledGraph:
        """The graph; whoever encodes for it has it."""
        graph = self._graph()
        assert graph is not None, "a graph outlives the use of its encoding"
        return graph

    def to(self, node: str) -> GraphCodec:
        """The encoding of what a `Send` brings to a node."""
        return self._nodes.get(node, self)

    def encode(self, channel: str, value: Any) -> bytes:
        """A channel's value as bytes; messages call it by the channel's name."""
        return self.encoders.get(channel, self.encode_any)(value, channel)

    def decode(self, channel: str, data: bytes) -> Any:
        """A channel's value from its bytes."""
        plan = self._plans.get(channel)
        return self._codec.decode(data, channel) if plan is None else plan.decode(data, channel)

    def encode_sent(self, node: str, key: str, value: Any) -> bytes:
        """As bytes a value that a `Send` brings to a node."""
        return self.to(node).encode(key, value)

    def decode_old(self, channel: str, data: bytes, node: str = "") -> Any:
        """A value that may have been stored when the channel had another type, or was one.

        With a node it is one that a `Send` brings.
        """
        if node in self._nodes:
            return self._nodes[node].decode_old(channel, data)
        plan = self._plans.get(channel)
        if plan is None:
            return self._codec.decode_plain(data, channel)
        return plan.decode_old(data, channel)

    def decode_sent(self, node: str, key: str, data: bytes) -> Any:
        """From its bytes a value that a `Send` brings to a node."""
        return self.to(node).decode(key, data)


def _as_nothing(_value: object, _path: str = "") -> bytes:
    return UNSTORED


class ThreadEnv:
    """`beamweaver.engine.Env` for the actor of one thread."""

    __slots__ = (
        "_codec",
        "_hub",
        "_said",
        "_thread_id",
        "_time",
        "around",
        "clock",
        "copy",
        "decode",
        "decode_old",
        "decode_sent",
        "digest",
        "encode",
        "encode_sent",
        "epoch",
        "graph",
        "incarnation",
        "keeps",
        "limits",
        "publishing",
        "tell_large",
    )

    def __init__(
        self,
        hub: Hub,
        codec: GraphCodec,
        thread_id: str,
        incarnation: int,
        around: Env | None = None,
    ) -> None:
        self._hub = hub
        self._thread_id = thread_id
        self._said = False
        self.graph = codec.graph
        self.around: Env = around or self
        self._codec = hub.codec
        self._time = hub.system.clock.time
        self.clock = hub.system.clock.monotonic
        self.epoch = hub.epoch
        self.incarnation = incarnation
        self.limits = hub.limits
        self.publishing = hub.listeners
        self.keeps = hub.keeps
        self.encode = codec.encode
        self.decode = codec.decode
        self.decode_sent = codec.decode_sent
        self.encode_sent = codec.encode_sent
        self.decode_old = codec.decode_old
        self.digest = hub.codec.digest
        self.copy = codec.copy
        self.tell_large = codec.tell_large

    def inside(self, graph: CompiledGraph) -> ThreadEnv:
        """The view of a graph that runs inside of a task."""
        return ThreadEnv(
            self._hub, self._hub.codec_of(graph), self._thread_id, self.incarnation, self
        )

    def called(self, _node: str, _key: str) -> tuple[CompiledGraph, Unread]:
        """Which graph it is is known when its function calls it again."""
        return self.graph, Unread(self)

    def now_us(self) -> int:
        """UTC in microseconds."""
        return int(self._time() * 1_000_000)

    def rest_of(self, due_us: int, delay: float) -> float:
        """On the monotonic clock, if the wait began in this process; else by the time of day."""
        rest = self._hub.offsets.rest_of(due_us, delay)
        if rest is None:
            rest = min((due_us - self.now_us()) / 1_000_000, delay)
        return max(rest, 0.0)

    def random(self) -> float:
        """A number in [0, 1)."""
        return self._hub.rng.random()

    def new_id(self) -> str:
        """A new unique id."""
        return self._hub.new_id()

    def encode_result(self, node: str, channel: str, value: Any) -> bytes:
        """As `encode`, of what the graph leaves to the node that called it, whose value it is."""
        token = WHOSE.set((self.around.graph.name, node))
        try:
            return self.encode(channel, value)
        finally:
            WHOSE.reset(token)

    def encode_any(self, value: Any, what: str = "$") -> bytes:
        """Any value as bytes; messages call it `what`."""
        return self._codec.encode(value, what)

    def decode_any(self, data: bytes) -> Any:
        """Any value from its bytes."""
        return self._codec.decode(data)

    def ahead(self, size: int) -> bool:
        """The thread has so many bytes in its window; whether there is room for more in all."""
        return self._hub.ahead.note(self._thread_id, size)

    def load(self, seq: int | None) -> ThreadImage | None:
        """The thread's head as the store has it, or an older checkpoint."""
        return self._hub.store.load(self._thread_id, seq)

    def message_key(self, key: str) -> MessageKey | None:
        """What the thread keeps of an idempotency key; that their bound is reached is said once."""
        store, most = self._hub.store, self.limits.message_keys
        if not self._said and store.message_keys(self._thread_id) >= most:
            self._said = True
            self._hub.log.warning(
                "idempotency_keys_full",
                thread_id=self._thread_id,
                kept=most,
                effect="the oldest are forgotten before their time",
                cure="use a thread for each conversation, or raise limits.message_keys",
            )
        return store.message_key(self._thread_id, key)

    def run_number(self, run_id: str) -> int | None:
        """The number of the run of that name, or None."""
        return self._hub.store.run_number(self._thread_id, run_id)
