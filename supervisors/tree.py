"""Supervision trees as data, as text, and as a mermaid diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from supervisors.family import Family
from supervisors.inbox import CLOSING, ENDED, RUNNING, STARTING, Inbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from supervisors.system import ActorSystem

__all__ = ["Node", "tree"]

_PHASES = {STARTING: "starting", RUNNING: "running", CLOSING: "terminating", ENDED: "ended"}


class Node(msgspec.Struct, frozen=True):
    """An actor, or a child that is not running, with what it supervises.

    Attributes:
        id: its id with its supervisor, or its name; None for neither
        kind: the name of its class
        number: its number in the system; 0 while it does not run
        state: `starting`, `running`, `restarting`, `terminating`, `undefined` or `ended`
        restarts: how many times its supervisor has restarted it
        queued: how many messages wait for it
        tasks: how many tasks it owns
        children: its children, in the order of their starts
    """

    id: object
    kind: str
    number: int
    state: str
    restarts: int = 0
    queued: int = 0
    tasks: int = 0
    children: tuple[Node, ...] = ()

    def walk(self) -> Iterator[tuple[int, Node]]:
        """Yield each node below and this one, with its depth, from the top."""
        waiting: list[tuple[int, Node]] = [(0, self)]
        while waiting:
            depth, node = waiting.pop()
            yield depth, node
            waiting.extend((depth + 1, child) for child in reversed(node.children))

    @property
    def label(self) -> str:
        """What to call it in a picture."""
        name = "" if self.id is None else f" {self.id!r}"
        return f"{self.kind}{name}"

    def text(self) -> str:
        """Return the tree as indented lines."""
        return "\n".join(f"{'  ' * depth}{node.line}" for depth, node in self.walk())

    @property
    def line(self) -> str:
        """What `text` says of this node."""
        extras = [] if self.state == "running" else [self.state]
        for word in ("restarts", "queued", "tasks"):
            count = getattr(self, word)
            if count:
                extras.append(f"{word}={count}")
        number = f" #{self.number}" if self.number else ""
        return f"{self.label}{number}" + (f" ({', '.join(extras)})" if extras else "")

    def mermaid(self) -> str:
        """Return the tree as a mermaid flowchart."""
        lines = ["flowchart TD"]
        above: list[int] = []
        for index, (depth, node) in enumerate(self.walk()):
            del above[depth:]
            label = node.label.replace('"', "'")
            lines.append(f'  n{index}["{label}"]')
            if above:
                lines.append(f"  n{above[-1]} --> n{index}")
            above.append(index)
        return "\n".join(lines)


def tree(system: ActorSystem) -> Node:
    """Return all actors of `system` below a node of its own. A snapshot, taken without stopping it."""
    roots = tuple(_node(ref.cell, None, 0) for ref in system.roots())
    return Node(None, "ActorSystem", 0, "running", children=roots)


def _node(cell: Inbox, child_id: object, restarts: int) -> Node:
    actor = cell.actor
    book = cell.book
    kids = [] if book is None else list(book.kids)
    if isinstance(actor, Family):
        children = _children(actor)
    else:
        children = [_node(kid, None, 0) for kid in kids if isinstance(kid, Inbox)]
    return Node(
        child_id if child_id is not None else cell.name,
        cell.actor_class.__name__,
        cell.number,
        _PHASES[cell.phase],
        restarts,
        len(cell.q),
        sum(not isinstance(kid, Inbox) for kid in kids),
        tuple(children),
    )


def _children(family: Family) -> list[Node]:
    nodes = []
    for child in family.snapshot():
        run = child.run
        if run is not None and run.cell is not None and run.ended is None:
            nodes.append(_node(run.cell, child.id, child.restarts))
        else:
            kind = child.spec.actor.__name__
            nodes.append(Node(child.id, kind, 0, child.state, child.restarts))
    return nodes
