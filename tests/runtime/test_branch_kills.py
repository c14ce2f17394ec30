"""SIGKILL at every point of an edit, a branch and a move of the head: there is all of it, or nothing."""

from __future__ import annotations

import signal

import pytest

from beamweaver import Continue, Invoke, Resume, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.checkpoint.verify import verify
from tests.runtime.branching import CALLS, call_to_point, history, letter
from tests.runtime.children import PATIENCE, child, received

CLASSES = ("power-loss", "process-kill")


def prepared(path, survives):
    """A thread that waits for an answer; the ids of its checkpoints, the newest first."""
    store = LMDBCheckpointer(path, survives=survives)
    with Runtime(store, graphs=[letter()]) as runtime:
        runtime.thread("t").ask(Invoke({"n": 1}))
        ids = history(runtime)
    store.close()
    return ids


def run_child(path, survives, name, ids, nth):
    """What the call gave, and whether the child was killed before it told."""
    with child(call_to_point, str(path), survives, name, ids, nth) as (process, pipe):
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), f"point {nth}: {process.exitcode}"
        return received(pipe), process.exitcode != 0


def judge(folder, survives, name, nth):
    """Kill a call at its point, and judge what is there; False if it ended before."""
    path = folder / f"{name}-{nth}.lmdb"
    ids = prepared(path, survives)
    told, was_killed = run_child(path, survives, name, ids, nth)
    store = LMDBCheckpointer(path, survives=survives)
    try:
        with Runtime(store, graphs=[letter()], recover="none") as runtime:
            JUDGES[name](runtime, ids, told)
    finally:
        store.close()
    assert verify(path).sound, f"point {nth}"
    return was_killed


def after_edit(runtime, ids, told):
    state = runtime.get_state("t")
    edited = state.values["n"] == 7
    assert history(runtime)[len(history(runtime)) - 2 :] == ids
    assert (len(history(runtime)) == 3) is edited
    assert edited or not told
    assert (state.status, state.next) == ("waiting", ("ask",))
    outcome = runtime.thread("t").ask(Resume("yes"))
    assert outcome.state == {"log": ["a", "yes", "b"], "n": 7 if edited else 1}


def after_leave(runtime, ids, told):
    state = runtime.get_state("t")
    left = state.values["n"] == 7
    assert left or not told
    assert state.status == ("complete" if left else "waiting")
    if left:
        runtime.set_head("t", ids[0])
    assert runtime.thread("t").ask(Resume("yes")).state["log"] == ["a", "yes", "b"]


def after_bulk(runtime, ids, told):
    edited = ["a edited", "ask edited", "b edited"]
    assert (len(history(runtime)), runtime.get_state("t").values["log"]) in (
        (len(ids), ["a"]),
        (len(ids) + 3, edited),
    )
    assert not told or runtime.get_state("t").values["log"] == edited


def after_branch(runtime, ids, told):
    again = Resume("yes", checkpoint_id=ids[-1], run_id="F")
    assert runtime.thread("t").ask(again).state["log"] == ["a", "yes", "b"]
    sources = [state.metadata["source"] for state in runtime.get_state_history("t")]
    assert sources.count("fork") == 1
    assert all(log == ["a", "yes", "b"] for log in told)
    runtime.set_head("t", ids[0])
    assert runtime.thread("t").ask(Resume("no")).state["log"] == ["a", "no", "b"]


def after_move(runtime, ids, told):
    state = runtime.get_state("t")
    (head,) = [state.config["configurable"]["checkpoint_id"]]
    assert head in ids
    assert head == ids[-1] or not told
    assert history(runtime) == ids
    outcome = runtime.thread("t").ask(Continue())
    assert outcome.interrupt.value == "ok?"


JUDGES = {
    "edit": after_edit,
    "leave": after_leave,
    "bulk": after_bulk,
    "branch": after_branch,
    "move": after_move,
}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("survives", CLASSES)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_killed_at_any_point_is_there_or_not(tmp_path, name, survives):
    nth = 1
    while judge(tmp_path, survives, name, nth):
        nth += 1
    assert nth > 3, "the points of a call were reached"


@pytest.mark.parametrize(("name", "nth"), [("edit", 3), ("branch", 9), ("bulk", 5)])
def test_a_call_that_is_killed_at_a_point_is_there_or_not(tmp_path, name, nth):
    assert judge(tmp_path, "process-kill", name, nth)
