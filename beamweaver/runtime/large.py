"""Large values are said in the log, once a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.runtime.current import context_here
from beamweaver.runtime.whose import WHOSE

if TYPE_CHECKING:
    from beamweaver.runtime.hub import Hub

__all__ = ["LargeValues"]


class LargeValues:
    """What a codec tells of values above `limits.value_bytes_warn`; a runtime has one.

    An input is one of START. A step's merged value, which no node encodes, is said by its graph and channel,
    once.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._said: set[tuple[str, str, str]] = set()

    def __call__(self, path: str, size: int, *, of: str = "") -> None:
        """A value of `size` bytes was encoded, with the encoding of the graph `of`."""
        context = context_here()
        graph, node = WHOSE.get() or (
            (of, "") if context is None else (context.graph_name, context.node)
        )
        key = (graph, node, "" if node else path)
        if key in self._said:
            return
        self._said.add(key)
        self._hub.log.warning(
            "value_is_large",
            graph=graph,
            node=node,
            path=path,
            bytes=size,
            cure="keep it in a file or object store and its address in the state",
        )
