"""What can be declared, and is refused by `compile()` because nothing acts on it yet.

A row goes when the engine and the runtime act on the option; with the last row this module goes too. A row
is `feature -> (what it is called, what to do until then)`; `features` finds which of them a graph has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beamweaver.graph._declared import Declared, DeclaredNode

__all__ = ["NOT_YET", "not_supported_yet", "not_yet_faults"]

NOT_YET: Final[dict[str, tuple[str, str]]] = {
    "isolation": ("isolation=", "start the process inside of the node"),
    "cache": ("cache=", "keep results in a key of the state, or in a cache of your own"),
}


def not_supported_yet() -> dict[str, str]:
    """What `compile()` refuses because nothing acts on it yet: what it is called, and what to do instead."""
    return dict(NOT_YET.values())


def not_yet_faults(declared: Declared, options: dict[str, Any]) -> Iterator[str]:
    """A fault for each thing in the graph that nothing acts on yet."""
    for feature, where in _features(declared, options):
        row = NOT_YET.get(feature)
        if row is not None:
            yield f"{where}{row[0]} is not supported yet; {row[1]}"


def _features(declared: Declared, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for node in declared.nodes:
        for feature in _node_features(node):
            yield feature, f"node {node.name!r} at {node.place}: "
    yield from _option_features(declared, options)


def _node_features(node: DeclaredNode) -> Iterator[str]:
    found = {
        "subgraph": node.subgraph is not None,
        "isolation": node.isolation is not None,
        "cache": node.cache is not None,
    }
    yield from (feature for feature, given in found.items() if given)


def _option_features(declared: Declared, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if declared.cache is not None:
        yield "cache", "set_node_defaults: "
    if options.get("cache") is not None:
        yield "cache", ""
