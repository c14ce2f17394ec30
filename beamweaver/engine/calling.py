"""A call of a graph by a function of a node, as the machine and the function tell each other of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from beamweaver.engine.ids import inner_key
from beamweaver.engine.kept import unpacked
from beamweaver.engine.merge import merge, with_initial
from beamweaver.engine.state import OpenStep, Result, Sleep, Task
from beamweaver.errors import StepChanged
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beamweaver.checkpoint.entries import Memo
    from beamweaver.engine.calls import Prepared
    from beamweaver.engine.env import Decoder
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["Calling", "CallsEnd", "changed_call", "output_of", "start_of"]

CallsEnd: TypeAlias = "Memo | Exception | Sleep | None"
"""What a call came to: its result; its failure; that it sleeps, or waits (None), so that its caller parks."""


class Calling:
    """One call.

    Attributes:
        graph: The graph that is called.
        name: Its name, as the call is remembered.
        ordinal: See `call_ordinal`.
        key: Tells calls of one graph apart; None if their order does.
        digest: Of the input.
        start: The values that the graph begins with.
        end: What it came to, when its caller is told.
        given_up: Whether its caller is to end: the attempt is over.
    """

    __slots__ = ("digest", "end", "given_up", "graph", "key", "name", "ordinal", "start")

    def __init__(
        self,
        graph: CompiledGraph,
        ident: tuple[str, int, str | None],
        digest: bytes,
        start: Mapping[str, Any],
    ) -> None:
        self.graph = graph
        self.name, self.ordinal, self.key = ident
        self.digest = digest
        self.start = start
        self.end: CallsEnd = None
        self.given_up = False

    @property
    def place(self) -> str:
        """What tells it from other calls of its task."""
        return inner_key(self.name, self.ordinal, self.key)

    @property
    def parks(self) -> bool:
        """Whether its caller is to park until it goes on."""
        return self.end is None or type(self.end) is Sleep


def start_of(graph: CompiledGraph, given: Prepared) -> dict[str, Any]:
    """The values that a called graph begins with.

    Args:
        graph: The graph.
        given: The input.

    Raises:
        ReducerFailed: A reducer raised.
        InvalidUpdate: The input lacks a key that the graph requires.
    """
    task = Task(START)
    task.result = Result(given.writes)
    values = merge(graph, with_initial(graph, {}), OpenStep(0, [task])).values
    graph.check_complete(values)
    return values


def output_of(graph: CompiledGraph, data: bytes, env: Decoder) -> Any:
    """What a call returns, from its result as it is stored.

    Raises:
        InvalidUpdate: The class of the output schema refuses the state.
        DeserializationError: A value cannot be read back.
    """
    return graph.output(with_initial(graph, unpacked(data, env)))


def changed_call(node: str, graph: str, place: str) -> StepChanged:
    """The error of a call that has another input than when it began."""
    return StepChanged(
        f"node {node!r} calls graph {graph!r} (call {place!r} of the task) with another input than that with "
        "which it began. The input must follow from the state; where the code has changed, give the call "
        "another key=, or begin the run anew (on_unfinished='restart')",
        node=node,
        step_name=graph,
    )
