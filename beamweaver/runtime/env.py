"""The engine's view of the world: clock, chance, ids and the codec, for one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.codec import ChannelCodec
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.runtime.hub import Hub

__all__ = ["GraphCodec", "ThreadEnv"]


class GraphCodec:
    """The encoding of a graph's channels: one plan a channel, made once."""

    __slots__ = ("_any", "_codec", "_encoders", "_plans")

    def __init__(self, codec: Any, graph: CompiledGraph) -> None:
        self._codec = codec
        self._plans: dict[str, ChannelCodec] = {
            name: codec.plan(channel.type) for name, channel in graph.channels.items()
        }
        self._any: Callable[..., bytes] = codec.encode
        self._encoders: dict[str, Callable[..., bytes]] = {
            name: plan.encode for name, plan in self._plans.items()
        }

    def encoder(self, channel: str) -> Callable[[Any], bytes]:
        """What encodes the values of a channel."""
        return self._encoders.get(channel, self._any)

    def encode(self, channel: str, value: Any) -> bytes:
        """A channel's value as bytes; messages call it by the channel's name."""
        return self._encoders.get(channel, self._any)(value, channel)

    def decode(self, channel: str, data: bytes) -> Any:
        """A channel's value from its bytes."""
        plan = self._plans.get(channel)
        return self._codec.decode(data) if plan is None else plan.decode(data)


class ThreadEnv:
    """`beamweaver.engine.Env` for the actor of one thread."""

    __slots__ = (
        "_codec",
        "_hub",
        "_time",
        "decode",
        "encode",
        "epoch",
        "incarnation",
        "keeps",
        "limits",
    )

    def __init__(self, hub: Hub, codec: GraphCodec, incarnation: int) -> None:
        self._hub = hub
        self._codec = hub.codec
        self._time = hub.system.clock.time
        self.epoch = hub.epoch
        self.incarnation = incarnation
        self.limits = hub.limits
        self.keeps = hub.keeps
        self.encode = codec.encode
        self.decode = codec.decode

    @property
    def publishing(self) -> bool:
        """Whether anyone listens."""
        return bool(self._hub.listeners)

    def now_us(self) -> int:
        """UTC in microseconds."""
        return int(self._time() * 1_000_000)

    def random(self) -> float:
        """A number in [0, 1)."""
        return self._hub.rng.random()

    def new_id(self) -> str:
        """A new unique id."""
        return self._hub.new_id()

    def encode_any(self, value: Any) -> bytes:
        """Any value as bytes."""
        return self._codec.encode(value)

    def decode_any(self, data: bytes) -> Any:
        """Any value from its bytes."""
        return self._codec.decode(data)
