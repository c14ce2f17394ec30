"""Do the schemas of a graph, and those of graphs inside of it, fit each other?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.graph._text import listed, nearest
from beamweaver.graph._typecheck import type_name
from beamweaver.graph.channels import MISSING
from beamweaver.graph.kinds import Ephemeral, Untracked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from beamweaver.graph._declared import Declared, DeclaredNode
    from beamweaver.graph.channels import Channel
    from beamweaver.graph.shapes import Shape

__all__ = ["schema_faults", "subgraph_faults"]


def schema_faults(declared: Declared) -> Iterator[str]:
    """What does not fit in `schema`, `input_schema` and `output_schema`."""
    for what, shape in (
        ("input_schema", declared.input_shape),
        ("output_schema", declared.output_shape),
    ):
        if shape is not None and not declared.open:
            yield from _unknown_keys(f"{what} {shape.name}", shape, declared)
    for key, channel in (declared.inputs or {}).items():
        own = declared.channels.get(key)
        if channel.managed or (own is not None and own.managed):
            yield f"input_schema: the key {key!r} is computed for each step; leave it out"
    for node in declared.nodes:
        for key, channel in (node.inputs or {}).items():
            own = declared.channels.get(key)
            if channel.managed and (own is None or own.kind != channel.kind):
                kind = type(channel.kind).__name__
                yield (
                    f"input_schema of node {node.name!r} at {node.place}: the key {key!r} is {kind}, and in "
                    f"{declared.shape.name} it is not; declare it there as "
                    f"Annotated[{channel.type_text}, {kind}]"
                )
    yield from _defaults(declared)


def _unknown_keys(what: str, shape: Shape, declared: Declared) -> Iterator[str]:
    for key in shape.keys:
        if key not in declared.channels:
            yield (
                f"{what} has the key {key!r}, which {declared.shape.name} lacks."
                f"{nearest(key, declared.channels)} Its keys: {listed(declared.channels)}. Add it there, "
                "or leave it out"
            )


def _defaults(declared: Declared) -> Iterator[str]:
    """Fields of classes that may have no value when an instance is made."""
    initial = {n for n, channel in declared.channels.items() if channel.initial() is not MISSING}
    passing = {name for name, channel in declared.channels.items() if _passes(channel)}
    sure = (declared.required | initial) - (passing - initial)
    shape, output = declared.shape, declared.output_shape
    for key in shape.keys:
        channel = declared.channels[key]
        if not shape.is_dict and key in shape.required and (channel.managed or key not in sure):
            if key in passing:
                kind = type(channel.kind).__name__
                yield f"{shape.name}.{key} is {kind}, so it has no value at times; give it a default"
                continue
            cure = "give it a default"
            if not channel.managed and declared.input_shape is not None:
                cure += f", or require it in {declared.input_shape.name}"
            yield f"{shape.name}.{key} has no default, and no input has to bring it; {cure}"
    for key in output.keys if output is not None and not output.is_dict else ():
        if output is not None and key in output.required - sure:
            yield (
                f"output_schema: {output.name}.{key} has no default, and nothing is sure to write it; give "
                "it a default"
            )


def _passes(channel: Channel) -> bool:
    """Whether a value that was written may be gone later."""
    return isinstance(channel.kind, (Ephemeral, Untracked))


def subgraph_faults(declared: Declared) -> Iterator[str]:
    """What does not fit between a graph and the graphs that are its nodes."""
    for node in declared.nodes:
        if node.subgraph is not None and not declared.open and not node.subgraph.open:
            yield from _subgraph(node, declared)


def _subgraph(node: DeclaredNode, declared: Declared) -> Iterator[str]:
    child = node.subgraph
    assert child is not None, "only nodes that are graphs are looked at"
    what = f"node {node.name!r} at {node.place}: graph {child.name!r}"
    into = child.channels if child.inputs is None else child.inputs
    keys = dict.fromkeys((*into, *child.output_shape.keys))
    shared = [key for key in keys if key in declared.channels]
    if not shared:
        yield (
            f"{what} and {declared.shape.name} have no key in common, so nothing goes in and nothing comes "
            f"back. Its keys: {listed(keys)}; give one of them to both, or call it "
            "inside of a node: ctx.call(graph, input)"
        )
    if isinstance(node.key, str) and node.key not in {*declared.channels, *into}:
        yield (
            f"{what} is persistent by the key {node.key!r}, which {declared.shape.name} lacks."
            f"{nearest(node.key, declared.channels)} Add it, or give key= a function of the state"
        )
    for key in sorted(child.required):
        if key not in declared.channels:
            yield (
                f"{what} requires the key {key!r}, which {declared.shape.name} lacks."
                f"{nearest(key, declared.channels)} Add it, or give it a default in the graph"
            )
    yield from _types(what, shared, child.channels, declared.channels)


def _types(
    what: str, shared: list[str], inner: Mapping[str, Channel], outer: Mapping[str, Channel]
) -> Iterator[str]:
    for key in shared:
        if key in inner and _type(inner[key]) != _type(outer[key]):
            yield (
                f"{what} has {inner[key].type_text} for the key {key!r}, and here it is "
                f"{outer[key].type_text}; make them the same, or rename one"
            )


def _type(channel: Channel) -> str:
    return "Any" if channel.type is None else type_name(channel.type, qualified=True)
