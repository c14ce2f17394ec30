"""Pictures of graphs: mermaid text and SVG, both made without network."""

from __future__ import annotations

import datetime as dt
import textwrap
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.graph import Graph
from beamweaver.graph.picture import draw_svg
from beamweaver.types import END, START, TaskView, ThreadState

pytestmark = pytest.mark.usefixtures("everything")


def nothing(state):
    return None


def approved(state):
    return True


def route(state):
    return "good"


def mermaid(graph, **options):
    return graph.compile(allow_unreachable=True).draw_mermaid(**options)


def text(block):
    return textwrap.dedent(block).strip()


def nodes(*names, **options):
    graph = Graph(name="g")
    for name in names:
        graph.add_node(name, nothing, **options)
    return graph.add_edge(START, names[0])


def state(status="failed", **tasks):
    views = tuple(TaskView(id=node, node=node, state=how) for node, how in tasks.items())
    return ThreadState(
        values={},
        next=tuple(node for node, how in tasks.items() if how != "finished"),
        tasks=views,
        interrupts=(),
        pending_writes=(),
        metadata={},
        created_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        config={},
        parent_config=None,
        step=1,
        status=status,
    )


class TestMermaid:
    def test_static_edges_are_solid_and_a_run_ends_where_nothing_follows(self):
        assert mermaid(nodes("load", "save").add_edge("load", "save")) == text("""
            flowchart TD
                n0(["START"])
                n1["load"]
                n2["save"]
                n3(["END"])
                n0 --> n1
                n1 --> n2
                n2 --> n3
        """)

    def test_an_edge_to_end_beside_others_is_drawn(self):
        drawn = mermaid(nodes("a", "b").add_edge("a", "b").add_edge("a", END))

        assert "n1 --> n3" in drawn

    def test_a_join_is_a_box_of_its_own(self):
        drawn = mermaid(nodes("a", "b", "c").add_edge(["a", "b"], "c"))

        assert 'n4{{"all of"}}' in drawn
        assert "n1 --> n4\n    n2 --> n4\n    n4 --> n3" in drawn

    def test_conditional_edges_are_dashed_with_their_values(self):
        targets = {"good": "b", True: "b", "b": "b", "bad": END}
        drawn = mermaid(nodes("a", "b").add_conditional_edges("a", route, targets))

        assert 'n1 -. "good, True" .-> n2' in drawn
        assert 'n1 -. "bad" .-> n3' in drawn

    def test_a_value_that_is_the_nodes_name_is_no_label(self):
        assert "n1 -.-> n2" in mermaid(nodes("a", "b").add_conditional_edges("a", route, ["b"]))

    def test_a_router_without_targets_leads_to_any_node(self):
        drawn = mermaid(nodes("a", "b").add_conditional_edges("a", route))

        assert 'n3(("any node"))' in drawn
        assert 'n1 -. "route" .-> n3' in drawn

    def test_guards_have_name_budget_and_else(self):
        graph = nodes("a", "b").add_edge("a", "b", when=approved, max_runs=3)
        drawn = mermaid(graph.add_edge("a", END, default=True))

        assert 'n1 -. "approved, at most 3" .-> n2' in drawn
        assert 'n1 -. "else" .-> n3' in drawn

    def test_destinations_are_dashed(self):
        graph = Graph(name="g").add_node("a", nothing, destinations=["b"]).add_node("b", nothing)

        assert 'n1 -. "goto" .-> n2' in mermaid(graph.add_edge(START, "a"))

    def test_a_deferred_node_says_so(self):
        assert 'n1["a<br/>(deferred)"]' in mermaid(nodes("a", defer=True))

    def test_a_subgraph_has_its_nodes_inside(self):
        inner = nodes("x", "y").add_edge("x", "y").compile()
        drawn = mermaid(nodes("a").add_node("in", inner).add_edge("a", "in"))

        assert text("""
            subgraph n2["in"]
                n2_0(["START"])
                n2_1["x"]
                n2_2["y"]
                n2_3(["END"])
                n2_0 --> n2_1
                n2_1 --> n2_2
                n2_2 --> n2_3
            end
        """) in textwrap.dedent("\n".join(line[4:] for line in drawn.splitlines()))

    def test_names_are_quoted(self):
        drawn = mermaid(nodes('say "hi" <b> #1\nend'))

        assert 'n1["say #quot;hi#quot; #lt;b#gt; #35;1 end"]' in drawn

    def test_it_may_run_from_left_to_right(self):
        assert mermaid(nodes("a"), direction="LR").startswith("flowchart LR\n")
        with pytest.raises(ValueError, match="direction is 'up'; give 'TD' or 'LR'"):
            mermaid(nodes("a"), direction="up")


class TestThreadState:
    def test_tasks_are_coloured_and_labelled(self):
        drawn = mermaid(nodes("a", "b", "c"), state=state(a="finished", b="failed"))

        assert 'n1["a<br/>(finished)"]' in drawn
        assert 'n2["b<br/>(failed)"]' in drawn
        assert 'n3["c"]' in drawn
        assert "    classDef failed fill:#f6c9c5\n    class n2 failed" in drawn
        assert "    class n1 finished" in drawn

    def test_of_several_tasks_of_a_node_the_one_that_needs_care_is_shown(self):
        found = state(a="finished")
        more = [TaskView(id=how, node="a", state=how) for how in ("waiting", "failed")]
        shown = msgspec.structs.replace(found, tasks=(*found.tasks, *more))

        assert 'n1["a<br/>(failed)"]' in mermaid(nodes("a"), state=shown)

    def test_a_complete_thread_is_at_its_end(self):
        drawn = mermaid(nodes("a"), state=state(status="complete"))

        assert 'n2(["END<br/>(finished)"])' in drawn

    def test_a_node_that_the_graph_has_lost_is_left_out(self):
        assert "failed" not in mermaid(nodes("a"), state=state(gone="failed"))

    def test_the_svg_shows_it_too(self):
        assert "(waiting)" in draw_svg(nodes("a").compile(), state=state(a="waiting"))


def svg(graph, **options):
    return ET.fromstring(draw_svg(graph.compile(allow_unreachable=True), **options))


def tag(name):
    return f"{{http://www.w3.org/2000/svg}}{name}"


class TestSvg:
    def test_it_has_each_name_and_arrow(self):
        root = svg(nodes("load", "save").add_edge("load", "save"))

        assert [each.text for each in root.iter(tag("text"))] == ["START", "load", "save", "END"]
        assert sum("marker-end" in path.attrib for path in root.iter(tag("path"))) == 3

    def test_names_are_escaped(self):
        root = svg(nodes("a<b>&"))

        assert "a<b>&" in [each.text for each in root.iter(tag("text"))]

    def test_a_subgraph_has_a_double_border(self):
        plain = len(list(svg(nodes("a")).iter(tag("rect"))))
        inner = nodes("x").compile()
        graph = Graph(name="g").add_node("in", inner).add_edge(START, "in")

        assert len(list(svg(graph).iter(tag("rect")))) == plain + 1

    def test_a_notebook_shows_it(self):
        compiled = nodes("a").compile()
        bundle = compiled._repr_mimebundle_(include=None, exclude=None)

        assert bundle["image/svg+xml"].startswith("<svg ")
        assert bundle["text/plain"] == repr(compiled)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14))
    def test_boxes_of_any_graph_do_not_overlap_and_are_inside(self, edges):
        graph = nodes(*"abcdef")
        for source, target in edges:
            graph.add_edge("abcdef"[source], "abcdef"[target])
        root = svg(graph)
        boxes = [
            tuple(float(rect.get(side)) for side in ("x", "y", "width", "height"))
            for rect in root.iter(tag("rect"))
            if rect.get("x")
        ]

        assert len(boxes) == 8
        for x, y, width, height in boxes:
            assert x >= 0
            assert x + width <= float(root.get("width"))
            assert y >= 0
            assert y + height <= float(root.get("height"))
        for index, (x, y, width, _height) in enumerate(boxes):
            for other in boxes[index + 1 :]:
                assert y != other[1] or x + width <= other[0] or other[0] + other[2] <= x

    def test_a_node_is_below_those_that_lead_to_it(self):
        root = svg(nodes("a", "b", "c").add_edge("a", "b").add_edge("b", "c").add_edge("a", "c"))
        heights = {each.text: float(each.get("y")) for each in root.iter(tag("text"))}

        assert heights["START"] < heights["a"] < heights["b"] < heights["c"] < heights["END"]

    def test_a_label_is_written_at_its_arrow(self):
        root = svg(nodes("a", "b").add_conditional_edges("a", route, {"good": "b", "bad": "a"}))

        assert {"good", "bad"} <= {each.text for each in root.iter(tag("text"))}
