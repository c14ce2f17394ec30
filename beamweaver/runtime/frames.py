"""What the attempts of a run share, and how their bodies end that wait for something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from beamweaver.engine.state import Question
    from beamweaver.graph.compiled import CompiledGraph, NodeSpec
    from beamweaver.runtime.env import GraphCodec
    from beamweaver.runtime.hub import Hub

__all__ = ["Asks", "Body", "Frame", "Naps", "Waits"]


class Body(Protocol):
    """What runs an attempt."""

    @property
    def live(self) -> bool:
        """Whether its outcome is still open."""

    def tell(self, message: object) -> None:
        """Send a message to the actor of the thread."""

    def shield(self) -> AbstractContextManager[None]:
        """Keep a kill away from a block."""


class Frame(msgspec.Struct, eq=False):
    """What all attempts of one run share."""

    hub: Hub
    graph: CompiledGraph
    codec: GraphCodec
    thread_id: str
    run_id: str
    strict: bool = False
    """Whether changes inside of values are looked for too."""
    context: Any = None
    """What a caller, or the runtime, gave to the nodes of the run."""
    plain: bool = False
    """Whether nodes without a schema of their own see a dict that is watched at its top level only."""
    namespace: tuple[str, ...] = ()
    outer: tuple[CompiledGraph, NodeSpec, GraphCodec] | None = None
    """Of a subgraph: the graph around, the node that it is there, and how that graph's values are encoded."""


class Asks(BaseException):
    """Control flow: the node asked a question that has no answer yet. User code must not catch it."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"question {question.id} waits for an answer")
        self.question = question


class Naps(Asks):
    """Control flow: the node sleeps. User code must not catch it."""

    def __init__(self) -> None:
        BaseException.__init__(self, "the node sleeps")


class Waits(Asks):
    """Control flow: a graph that the node called waits. User code must not catch it."""

    def __init__(self) -> None:
        BaseException.__init__(self, "a graph that the node called waits")
