"""Graphs drawn with how a thread of theirs stands."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from beamweaver.errors import InvalidCall
from beamweaver.graph.compiled import CompiledGraph

if TYPE_CHECKING:
    from beamweaver.graph.picture import Picture
    from beamweaver.types import ThreadState

__all__ = ["DrawnThreads"]


class DrawnThreads(CompiledGraph):
    """The drawings of an `App`."""

    @abc.abstractmethod
    def _drawn_state(self, thread_id: str) -> ThreadState | None:
        """A thread as the store has it, with the graphs inside of its tasks."""

    def draw_mermaid(
        self,
        *,
        state: ThreadState | None = None,
        direction: str = "TD",
        thread_id: str | None = None,
    ) -> str:
        """The graph as text of a mermaid flowchart, with how a thread stands; needs no network.

        Args:
            state: A thread's state, such as one of `get_state_history`: its tasks are coloured and labelled.
            direction: `"TD"` (top down) or `"LR"` (left to right).
            thread_id: A thread whose state is read now, in place of `state`.

        Raises:
            InvalidCall: Both are given, or there is no such thread.

        Example:
            >>> from beamweaver import START, Graph
            >>> from beamweaver.checkpoint import MemoryCheckpointer
            >>> graph = Graph(name="ask").add_node("ask", lambda state, ctx: {"ok": ctx.interrupt("ok?")})
            >>> with graph.add_edge(START, "ask").compile(checkpointer=MemoryCheckpointer()) as app:
            ...     _ = app.invoke({}, thread_id="t")
            ...     "ask<br/>(waiting)" in app.draw_mermaid(thread_id="t")
            True
        """
        shown = self._shown_state(state, thread_id)
        return super().draw_mermaid(state=shown, direction=direction)

    def draw_svg(
        self, *, state: ThreadState | None = None, thread_id: str | None = None
    ) -> Picture:
        """The same as an SVG document, which a notebook shows as a picture; see `draw_mermaid`."""
        return super().draw_svg(state=self._shown_state(state, thread_id))

    def _shown_state(self, state: ThreadState | None, thread_id: str | None) -> ThreadState | None:
        if thread_id is None:
            return state
        if state is not None:
            raise InvalidCall("state and thread_id are given; give one of them")
        found = self._drawn_state(thread_id)
        if found is None:
            raise InvalidCall(f"there is no thread {thread_id!r} to draw", thread_id=thread_id)
        return found
