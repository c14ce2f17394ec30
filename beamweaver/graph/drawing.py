"""Graphs as text of mermaid flowcharts.

Example:
    >>> from beamweaver.graph import Graph
    >>> from beamweaver.types import START
    >>> graph = Graph(name="one").add_node("load", lambda state: None).add_edge(START, "load").compile()
    >>> print(draw_mermaid(graph))
    flowchart TD
        n0(["START"])
        n1["load"]
        n2(["END"])
        n0 --> n1
        n1 --> n2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from beamweaver.graph._sketch import sketch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.graph._sketch import Box, Sketch
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import ThreadState

__all__ = ["COLOURS", "draw_mermaid"]

COLOURS: Final = {
    "finished": "#cfe8cf",
    "pending": "#e4e4e4",
    "retrying": "#fbe3b5",
    "handling": "#f3d3b0",
    "sleeping": "#d9d2ec",
    "waiting": "#cfe0f7",
    "failed": "#f6c9c5",
}
"""The fill of a node by how its task stands; the picture says it in words too."""

_BRACKETS: Final = {
    "node": ("[", "]"),
    "end": ("([", "])"),
    "join": ("{{", "}}"),
    "any": ("((", "))"),
}


def draw_mermaid(
    graph: CompiledGraph, *, state: ThreadState | None = None, direction: str = "TD"
) -> str:
    """A graph as text of a mermaid flowchart.

    Solid arrows are always taken, dashed ones may be. A join is a box of its own, a subgraph has its nodes
    inside of it.

    Args:
        graph: The graph.
        state: A thread's state; its tasks are coloured and labelled by how they stand.
        direction: `"TD"` (top down) or `"LR"` (left to right).

    Raises:
        ValueError: It is another direction.
    """
    if direction not in ("TD", "LR"):
        raise ValueError(f"direction is {direction!r}; give 'TD' or 'LR'")
    sketch = sketch_of(graph, state)
    lines = [f"flowchart {direction}", *("    " + line for line in _lines(sketch, "n"))]
    marked = list(_marked(sketch, "n"))
    for status in sorted({status for _id, status in marked}):
        ids = ",".join(id_ for id_, how in marked if how == status)
        lines.append(f"    classDef {status} fill:{COLOURS.get(status, '#ffffff')}")
        lines.append(f"    class {ids} {status}")
    return "\n".join(lines)


def _marked(sketch: Sketch, prefix: str) -> Iterator[tuple[str, str]]:
    """The id and status of each box that stands somehow, at any depth."""
    for index, box in enumerate(sketch.boxes):
        if box.status:
            yield f"{prefix}{index}", box.status
        if box.inside is not None:
            yield from _marked(box.inside, f"{prefix}{index}_")


def _lines(sketch: Sketch, prefix: str) -> Iterator[str]:
    ids = {box.name: f"{prefix}{index}" for index, box in enumerate(sketch.boxes)}
    for box in sketch.boxes:
        yield from _box_lines(box, ids[box.name])
    for link in sketch.links:
        source, target = ids[link.source], ids[link.target]
        if link.label and link.dashed:
            yield f"{source} -. {_quoted(link.label)} .-> {target}"
        else:
            yield f"{source} {'-.->' if link.dashed else '-->'} {target}"


def _box_lines(box: Box, id_: str) -> Iterator[str]:
    label = _quoted("<br/>".join(_label_parts(box)), raw_breaks=True)
    if box.inside is None:
        opening, closing = _BRACKETS[box.kind]
        yield f"{id_}{opening}{label}{closing}"
        return
    yield f"subgraph {id_}[{label}]"
    yield from ("    " + line for line in _lines(box.inside, f"{id_}_"))
    yield "end"


def _label_parts(box: Box) -> Iterator[str]:
    yield _escaped(box.label)
    if box.deferred:
        yield "(deferred)"
    if box.status:
        yield f"({box.status})"


def _escaped(text: str) -> str:
    for char, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("\n", " ")):
        text = text.replace(char, code)
    return text


def _quoted(text: str, *, raw_breaks: bool = False) -> str:
    return f'"{text if raw_breaks else _escaped(text)}"'
