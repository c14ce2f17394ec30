"""What the engine may ask of the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import MessageKey, ThreadImage
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.limits import Limits

__all__ = ["Decoder", "Env"]


class Decoder(Protocol):
    """What reads the values of channels."""

    def decode(self, channel: str, data: bytes) -> Any:
        """A channel's value from its bytes."""


class Env(Decoder, Protocol):
    """Clock, chance, ids, encoding and older checkpoints, injected."""

    epoch: int
    """The store epoch of this owner."""
    incarnation: int
    """Of the thread's actor."""
    limits: Limits
    keeps: bool
    """Whether the thread outlives its call (a checkpointer was given)."""

    @property
    def publishing(self) -> object:
        """True in a test while anyone listens to events; without listeners none are made."""

    graph: CompiledGraph
    """The graph whose channels it encodes."""
    around: Env
    """The env of the graph around this one; itself, where there is none."""

    def inside(self, graph: CompiledGraph) -> Env:
        """The env of a graph that runs inside of a task."""

    def called(self, node: str, key: str) -> tuple[CompiledGraph, Any]:
        """The graph that a function of a node calls under a key, and what reads its values in folding.

        Where it is not known before the function calls it again, that is an `Unread`.
        """

    def now_us(self) -> int:
        """UTC in microseconds."""

    def rest_of(self, due_us: int, delay: float) -> float:
        """Seconds until a wait of `delay` seconds is over, which is due then: from 0 to `delay`."""

    def clock(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""

    def random(self) -> float:
        """A number in [0, 1)."""

    def new_id(self) -> str:
        """A new unique id."""

    def encode(self, channel: str, value: Any) -> bytes:
        """A channel's value as bytes; `SerializationError` with the path when it cannot be kept."""

    def encode_result(self, node: str, channel: str, value: Any) -> bytes:
        """As `encode`, of what a graph leaves to the function of a node that called it."""

    def tell_large(self, channel: str, size: int) -> None:
        """A channel's value has so many bytes, though it was not encoded as a whole."""

    def decode_sent(self, node: str, key: str, data: bytes) -> Any:
        """From its bytes a value that a `Send` brings to a node, which may have types of its own."""

    def copy(self, value: Any) -> Any:
        """What a store would give back for a value; `SerializationError` when it cannot be kept."""

    def encode_sent(self, node: str, key: str, value: Any) -> bytes:
        """As bytes a value that a `Send` brings to a node."""

    def decode_old(self, channel: str, data: bytes, node: str = "") -> Any:
        """A value that was stored when the channel may have had another type, or was one.

        With a node it is one that a `Send` brings.
        Of the channel's type if the bytes stand for such a value and nothing is lost; else plain data.
        """

    def digest(self, value: Any) -> bytes:
        """A digest that is equal for equal values."""

    def encode_any(self, value: Any, what: str = "$") -> bytes:
        """Any value (a question, an answer) as bytes; messages call it `what`."""

    def decode_any(self, data: bytes) -> Any:
        """Any value from its bytes."""

    def ahead(self, size: int) -> bool:
        """From now on the thread has commits of `size` bytes in its window.

        Returns:
            Whether there is room for more in those of all threads together.
        """

    def load(self, seq: int | None) -> ThreadImage | None:
        """The thread's head as it is kept, or its checkpoint of record `seq`, raw; None if there is none.

        For calls that go back to an older checkpoint, at the moment when they have their turn.
        """

    def message_key(self, key: str) -> MessageKey | None:
        """What the thread keeps of an idempotency key, for a message that has its turn."""

    def run_number(self, run_id: str) -> int | None:
        """The number of the thread's run that was once admitted under this name, or None."""
