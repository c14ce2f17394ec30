"""The durable graph of the demo: one thread a file.

```
START → read → parse ══Send══▶ measure (one task a kind) → record → END
```
`record` writes a line into the ledger: an outside effect that happens once although its task may run
more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

from beamweaver.demo.index import KINDS, entry, measure, parse, read_source
from beamweaver.graph import Graph, append
from beamweaver.types import END, START, Send

if TYPE_CHECKING:
    from pathlib import Path

    from beamweaver.demo.ledger import Ledger

__all__ = ["TASKS_A_FILE", "FileState", "declare"]

TASKS_A_FILE: Final = 3 + len(KINDS)
"""read, parse, one measure a kind, record."""


class FileState(TypedDict, total=False):
    """What a thread knows of its file. `kind` is only seen by the measures: a Send lays it over."""

    path: str
    text: str
    parsed: dict[str, Any]
    kind: str
    measures: Annotated[list[dict[str, Any]], append]
    entry: dict[str, Any]


def declare(graph: Graph, root: Path, ledger: Ledger) -> Graph:
    """Add the demo's nodes and edges to a builder.

    Args:
        graph: A builder with the schema `FileState`.
        root: The folder that the paths are relative to.
        ledger: Where finished files are written down.

    Returns:
        The builder.
    """

    def read(state: FileState) -> dict[str, Any]:
        return {"text": read_source(root, state["path"])}

    def parse_text(state: FileState) -> list[Any]:
        sends = [Send("measure", {"kind": kind}) for kind in KINDS]
        return [{"parsed": parse(state["text"])}, *sends]

    def measure_kind(state: FileState) -> dict[str, Any]:
        return {"measures": measure(state["kind"], state["text"])}

    def record(state: FileState, ctx: Any) -> dict[str, Any]:
        found = entry(state["path"], state["text"], state["parsed"], state["measures"])
        ledger.append(ctx.idempotency_key, {"path": found["path"], "digest": found["digest"]})
        return {"entry": found}

    return (
        graph.add_node("read", read)
        .add_node("parse", parse_text, destinations=["measure"])
        .add_node("measure", measure_kind)
        .add_node("record", record)
        .add_edge(START, "read")
        .add_edge("read", "parse")
        .add_edge("measure", "record")
        .add_edge("record", END)
    )
