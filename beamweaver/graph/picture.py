"""Graphs as SVG, made without network: a plain layered layout, the entry at the top.

A node stands one layer below the farthest of those that lead to it; arrows that lead back up are bent
around. Good for the graphs that people draw by hand; for larger ones give `draw_mermaid()` to a renderer.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from beamweaver.graph._sketch import sketch_of
from beamweaver.graph.drawing import COLOURS
from beamweaver.types import START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.graph._sketch import Box, Link, Sketch
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import ThreadState

__all__ = ["Picture", "draw_svg"]

_CHAR: Final = 7.5
_HEIGHT: Final = 34
_GAP: Final = 36
_LAYER: Final = 84
_MARGIN: Final = 24
_ARROW: Final = (
    '<defs><marker id="bw-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
    'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>'
)
_ROUND: Final = {"end": 17, "join": 4, "any": 17, "node": 4, "graph": 4}


class Picture(str):
    """An SVG document, which a notebook shows."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


class Spot(NamedTuple):
    """Where a box is: the middle of it, and its width, in pixels."""

    x: float
    y: float
    width: float


def draw_svg(graph: CompiledGraph, *, state: ThreadState | None = None) -> Picture:
    """A graph as an SVG document.

    Args:
        graph: The graph; a subgraph is one box with a double border.
        state: A thread's state; its tasks are coloured and labelled by how they stand.
    """
    sketch = sketch_of(graph, state)
    spots, width, height = _layout(sketch)
    size = f"{width:.0f} {height:.0f}"
    drawn = [_link(link, spots, width) for link in sketch.links]
    drawn += [part for box in sketch.boxes for part in _box(box, spots[box.name])]
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {size}" font-family="sans-serif" font-size="13">'
        f"<title>{escape(graph.name)}</title>{_ARROW}"
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>{"".join(drawn)}</svg>'
    )


def _layout(sketch: Sketch) -> tuple[dict[str, Spot], float, float]:
    rows: dict[int, list[Box]] = {}
    layers = _layers(sketch)
    for box in sketch.boxes:
        rows.setdefault(layers[box.name], []).append(box)
    widths = {box.name: max(64.0, max(map(len, _texts(box))) * _CHAR + 24) for box in sketch.boxes}
    spans = {
        row: sum(widths[box.name] for box in boxes) + _GAP * (len(boxes) - 1)
        for row, boxes in rows.items()
    }
    total = max(spans.values()) + 2 * (_MARGIN + _GAP)
    spots: dict[str, Spot] = {}
    for row, boxes in rows.items():
        x = (total - spans[row]) / 2
        for box in boxes:
            width = widths[box.name]
            spots[box.name] = Spot(x + width / 2, _MARGIN + _HEIGHT / 2 + row * _LAYER, width)
            x += width + _GAP
    return spots, total, 2 * _MARGIN + _HEIGHT + max(rows) * _LAYER


def _layers(sketch: Sketch) -> dict[str, int]:
    """The longest way from the entry to each box, without the arrows that close a loop."""
    targets: dict[str, list[str]] = {box.name: [] for box in sketch.boxes}
    for link in sketch.links:
        targets[link.source].append(link.target)
    order = _order(targets)
    place = {name: index for index, name in enumerate(order)}
    layers = dict.fromkeys(order, 0)
    for name in order:
        for target in targets[name]:
            if place[target] > place[name]:
                layers[target] = max(layers[target], layers[name] + 1)
    end = sketch.boxes[-1].name
    layers[end] = max(layers[end], 1, *(layer for name, layer in layers.items() if name != end))
    return layers


def _order(targets: dict[str, list[str]]) -> list[str]:
    """Each box before those that it leads to, except where an arrow closes a loop."""
    done: dict[str, None] = {}
    seen: set[str] = set()
    for root in (START, *targets):
        stack = [(root, iter(targets[root]))] if root not in seen else []
        seen.add(root)
        while stack:
            name, rest = stack[-1]
            following = next((target for target in rest if target not in seen), None)
            if following is None:
                done[name] = None
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(targets[following])))
    return list(reversed(done))


def _texts(box: Box) -> list[str]:
    notes = [text for text in ("deferred" if box.deferred else "", box.status) if text]
    return [box.label, f"({', '.join(notes)})"] if notes else [box.label]


def _box(box: Box, spot: Spot) -> Iterator[str]:
    left, top = spot.x - spot.width / 2, spot.y - _HEIGHT / 2
    fill = COLOURS.get(box.status, "#f4f4f4" if box.kind == "end" else "#fdfdfd")
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{spot.width:.1f}" height="{_HEIGHT}" '
        f'rx="{_ROUND[box.kind]}" fill="{fill}" stroke="#555"/>'
    )
    if box.kind == "graph":
        yield (
            f'<rect x="{left + 3:.1f}" y="{top + 3:.1f}" width="{spot.width - 6:.1f}" '
            f'height="{_HEIGHT - 6}" rx="3" fill="none" stroke="#555"/>'
        )
    texts = _texts(box)
    for index, text in enumerate(texts):
        y = spot.y + 4.5 + (index - (len(texts) - 1) / 2) * 13
        yield (
            f'<text x="{spot.x:.1f}" y="{y:.1f}" text-anchor="middle" fill="#222">{escape(text)}</text>'
        )


def _link(link: Link, spots: dict[str, Spot], width: float) -> str:
    a, b = spots[link.source], spots[link.target]
    if b.y > a.y:
        top, bottom = a.y + _HEIGHT / 2, b.y - _HEIGHT / 2
        middle = (top + bottom) / 2
        path = f"M{a.x:.1f} {top:.1f}C{a.x:.1f} {middle:.1f} {b.x:.1f} {middle:.1f} {b.x:.1f} {bottom:.1f}"
        at = ((a.x + b.x) / 2, middle)
    elif a is b:  # a loop at its own box
        x, far = a.x + a.width / 2, min(width - 8, a.x + a.width / 2 + _GAP - 8)
        up, down = a.y - 14, a.y + 14
        path = (
            f"M{x:.1f} {up + 5:.1f}C{far:.1f} {up:.1f} {far:.1f} {down:.1f} {x:.1f} {down - 5:.1f}"
        )
        at = (far - 8, a.y)
    else:  # back up, or beside: around the right side
        far = min(width - 8, max(a.x + a.width / 2, b.x + b.width / 2) + _GAP)
        path = (
            f"M{a.x + a.width / 2:.1f} {a.y:.1f}C{far:.1f} {a.y:.1f} {far:.1f} {b.y:.1f} "
            f"{b.x + b.width / 2:.1f} {b.y:.1f}"
        )
        at = (far - 8, (a.y + b.y) / 2)
    dash = ' stroke-dasharray="5 4"' if link.dashed else ""
    drawn = f'<path d="{path}" fill="none" stroke="#555"{dash} marker-end="url(#bw-arrow)"/>'
    if not link.label:
        return drawn
    return drawn + (
        f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="middle" font-size="11" fill="#555" '
        f'stroke="#fff" stroke-width="3" paint-order="stroke">{escape(link.label)}</text>'
    )
