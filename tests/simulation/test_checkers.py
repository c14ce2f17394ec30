"""What the checkers say of violations that no deliberate fault of the product brings about."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from beamweaver import Invoke
from tests.simulation.config import Config
from tests.simulation.world import World

EDITED = Config(seed=2, weights={"edits": 1.0}, faults=0, sync=True, threads=1, runs=2)


@pytest.fixture
def editor():
    """One who has edited a thread, and has found nothing wrong."""
    world = World(EDITED)
    (editor,) = world.editors
    world.run()
    yield editor
    world.close()


def blamed(editor):
    return editor.world.checkers.wrong


def given(made):
    """A call of an editor that gives this."""

    def call(_call):
        return made
        yield

    return call


def run(calls):
    for _waiting in calls:
        pass


def test_a_thread_that_is_not_complete_between_two_edits_is_wrong(editor):
    editor._state = lambda: SimpleNamespace(status="failed", values=editor.head.values)
    editor._look()
    assert blamed(editor) == ["edited: it is failed"]


def test_an_end_that_is_not_there_is_wrong(editor):
    editor.ends[-1].id = "1-1-1"
    editor._look()
    assert blamed(editor) == ["edited: checkpoint 1-1-1 is lost"]


def test_a_checkpoint_that_has_other_values_than_before_is_wrong(editor):
    id_ = editor.ends[-1].id
    editor.seen[id_] = {}
    editor._look()
    assert [each.split(" had ")[0] for each in blamed(editor)] == [f"edited: checkpoint {id_}"]


def test_an_edit_that_made_another_checkpoint_than_the_head_is_wrong(editor):
    editor._do = given("1-1-1")
    run(editor._edit())
    assert "made 1-1-1, and the head is" in blamed(editor)[-1]


def test_an_edit_of_which_nobody_knows_and_that_is_not_there_is_none(editor):
    editor._do, before = given(None), list(editor.ends)
    run(editor._edit())
    assert editor.ends == before
    assert blamed(editor) == []


def test_a_head_of_which_nobody_knows_that_it_moved_and_that_did_not_stays(editor):
    before = editor.head
    editor._do, editor._some_end = given(None), lambda: SimpleNamespace(id="1-1-1")
    run(editor._move())
    assert editor.head is before


def test_a_kept_message_that_neither_waits_nor_took_effect_is_lost(editor):
    client = editor.world.clients["t0"]
    client.kept = ["nobody has this"]
    client._look_for_kept()
    assert blamed(editor) == ["the message 'nobody has this', which was kept, is lost"]


def test_a_run_whose_names_are_forgotten_is_over_when_its_thread_is_complete(editor):
    client = editor.world.clients["t0"]
    client.kept = [client.labels[0]]
    client._names = lambda _outcome: ()
    assert client._is_over(Invoke({}, run_id=client.labels[0]), None)


def test_an_answer_that_is_not_the_one_before_is_wrong(editor):
    bodies = editor.world.checkers.bodies
    ctx = SimpleNamespace(thread_id="t0", task_id="a", node="n")
    bodies.answered(ctx, 0, "yes to n0")
    bodies.answered(ctx, 0, "no")
    assert len(blamed(editor)) == 2
