"""Drawings of threads as they stand, from the states that a runtime gives."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.errors import InvalidCall, NodeFailed
from tests.runtime.kit import Caller, Gate, star, wrote


def asks(_state, ctx):
    return {"note": ctx.interrupt("?")}


def fails(_state):
    raise ValueError("no")


def labels(picture):
    root = ET.fromstring(picture)
    return {each.text for each in root.iter("{http://www.w3.org/2000/svg}text")}


@pytest.fixture
def app(memory):
    graph = star("g", done=wrote("done"), asks=asks, fails=fails)
    with graph.compile(checkpointer=memory) as app:
        with pytest.raises(NodeFailed):
            app.invoke({}, thread_id="t")
        yield app


def test_the_tasks_of_a_thread_are_coloured_and_labelled(app):
    drawn = app.draw_mermaid(thread_id="t", direction="LR")

    for name, how in (("done", "finished"), ("asks", "waiting"), ("fails", "failed")):
        assert f'["{name}<br/>({how})"]' in drawn
        assert f"classDef {how} fill:#" in drawn
    assert drawn.startswith("flowchart LR")
    assert drawn == app.draw_mermaid(state=app.get_state("t"), direction="LR")


def test_a_notebook_shows_a_picture_of_the_thread(app):
    picture = app.draw_svg(thread_id="t")

    assert picture._repr_svg_() == str(picture)
    assert {"(finished)", "(waiting)", "(failed)"} <= labels(picture)
    assert "(finished)" not in labels(app.draw_svg())


def test_older_checkpoints_are_drawn_as_they_were(app):
    (state,) = app.get_state_history("t")

    assert {"(pending)"} == {text for text in labels(app.draw_svg(state=state)) if "(" in text}


def test_a_graph_inside_shows_how_its_tasks_stand(memory):
    inner = star("inner", done=wrote("done"), asks=asks).compile()
    with star("g", inside=inner).compile(checkpointer=memory) as app:
        app.invoke({}, thread_id="t")
        drawn = app.draw_mermaid(thread_id="t")

    assert 'subgraph n1["inside<br/>(waiting)"]' in drawn
    assert 'n1_1["done<br/>(finished)"]' in drawn
    assert 'n1_2["asks<br/>(waiting)"]' in drawn
    assert "class n1,n1_2 waiting" in drawn


def test_a_complete_thread_is_at_its_end(memory):
    with star("g", a=wrote("a")).compile(checkpointer=memory) as app:
        app.invoke({}, thread_id="t")
        assert '(["END<br/>(finished)"])' in app.draw_mermaid(thread_id="t")


def test_a_thread_that_runs_is_drawn_from_another_runtimes_side(place):
    gate = Gate()
    app = star("g", a=gate).compile()
    with Runtime(place.open(), graphs=[app]) as runtime:
        caller = Caller(runtime.thread("t").ask, Invoke({}))
        gate.wait()
        drawn = app.draw_mermaid(state=runtime.get_state("t"))
        gate.open()
        caller.join()

    assert 'n1["a<br/>(pending)"]' in drawn


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"thread_id": "nobody"}, "no thread 'nobody'"),
        ({"thread_id": "t", "state": 1}, "one of them"),
    ],
    ids=["no thread", "both"],
)
def test_a_wrong_use_is_said(app, given, words):
    for draw in (app.draw_mermaid, app.draw_svg):
        with pytest.raises(InvalidCall, match=words):
            draw(**given)
