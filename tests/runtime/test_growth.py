"""Channels that grow: whatever is done to a thread amid a chain of deltas, each value is whole."""

from __future__ import annotations

import operator
import random
from typing import Annotated, Any, TypedDict

import pytest

from beamweaver import END, START, Graph
from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.checkpoint.verify import verify
from beamweaver.graph import Migration, merge

FILL = "x" * 700


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    facts: Annotated[dict[str, Any], merge]
    n: int


def grow(state):
    n = state.get("n", 0)
    return {"log": [n, (n,)], "facts": {f"k{n % 5}": {n}, "n": n}, "n": n + 1}


def graph(**options):
    return (
        Graph(State, name="g", **options)
        .add_node("grow", grow)
        .add_edge(START, "grow")
        .add_edge("grow", END)
    )


def expected(n):
    """The state after so many runs on the first input."""
    facts: dict[str, Any] = {"first": FILL}
    for each in range(n):
        facts.update({f"k{each % 5}": {each}, "n": each})
    return {
        "log": [FILL, *[i for each in range(n) for i in (each, (each,))]],
        "facts": facts,
        "n": n,
    }


def chain_of(store, thread_id="t"):
    """How many deltas the value at the head is made of."""
    return store.load(thread_id).chains["log"].count


@pytest.fixture
def app(store):
    with graph().compile(checkpointer=store) as app:
        app.invoke({"log": [FILL], "facts": {"first": FILL}}, thread_id="t")
        for _ in range(9):
            app.invoke({}, thread_id="t")
        assert chain_of(store) > 5
        yield app


def check_all(app, thread_id="t"):
    """Every checkpoint that is left has its whole value; how many there are."""
    found = list(app.get_state_history(thread_id))
    for state in found:
        n = state.values.get("n", 0)
        assert state.values == {k: v for k, v in expected(n).items() if n or k != "n"}
    return len(found)


def test_each_checkpoint_of_a_chain_has_its_whole_value(app):
    assert check_all(app) == 20


def test_a_chain_goes_on_in_another_process(disk):
    with graph().compile(checkpointer=disk.open()) as app:
        app.invoke({"log": [FILL], "facts": {"first": FILL}}, thread_id="t")
    for _ in range(4):
        store = disk.open()
        with graph().compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t")
        assert chain_of(store) > 0
        store.close()
    with graph().compile(checkpointer=disk.open()) as app:
        assert app.get_state("t").values == expected(5)
    disk.close()
    assert verify(disk.path).sound


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_a_chain_survives_pruning_and_goes_on(app, store, keep):
    app.prune(keep_last=keep)
    assert check_all(app) == keep
    app.invoke({}, thread_id="t")
    assert app.get_state("t").values == expected(11)
    assert chain_of(store) > 5


def test_a_copy_has_the_chain_and_goes_on_apart(app):
    app.copy_thread("t", "copy")
    app.invoke({}, thread_id="copy")
    app.delete_thread("t")
    assert app.get_state("copy").values == expected(11)
    assert check_all(app, "copy") == 22


def test_branches_grow_apart_from_one_chain(app):
    older = list(app.get_state_history("t"))[8].config["configurable"]["checkpoint_id"]
    head = app.get_state("t").config["configurable"]["checkpoint_id"]
    n = app.get_state("t", older).values["n"]
    app.invoke({}, thread_id="t", checkpoint_id=older)
    assert app.get_state("t").values == expected(n + 1)
    app.set_head("t", head)
    app.invoke({}, thread_id="t")
    assert app.get_state("t").values == expected(11)
    app.prune(keep_last=1)
    assert check_all(app) == 2


def test_an_edit_amid_a_chain_is_whole(app):
    app.update_state("t", {"log": ["edited"]}, as_node="grow")
    app.invoke({}, thread_id="t")
    assert app.get_state("t").values["log"] == [*expected(10)["log"], "edited", 10, (10,)]


def test_runs_can_be_deleted_amid_a_chain(store):
    with graph().compile(checkpointer=store) as app:
        app.invoke({"log": [FILL], "facts": {"first": FILL}}, thread_id="t", run_id="r0")
        for n in range(1, 6):
            app.invoke({}, thread_id="t", run_id=f"r{n}")
        app.delete_runs("t", ["r1", "r3"])
        assert check_all(app) == 8
        app.invoke({}, thread_id="t")
        assert app.get_state("t").values == expected(7)


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_a_shallow_store_keeps_whole_values(tmp_path, kind):
    store = MemoryCheckpointer(shallow=True)
    if kind == "lmdb":
        store = LMDBCheckpointer(tmp_path / "s", survives="process-kill", shallow=True)
    with graph().compile(checkpointer=store) as app:
        app.invoke({"log": [FILL], "facts": {"first": FILL}}, thread_id="t")
        for n in range(2, 12):
            app.invoke({}, thread_id="t")
            assert app.get_state("t").values == expected(n)
            assert check_all(app) == 1
    store.close()


def test_a_migration_takes_a_chain_over(store):
    with graph().compile(checkpointer=store) as app:
        app.invoke({"log": [FILL], "facts": {"first": FILL}}, thread_id="t")
        for _ in range(4):
            app.invoke({}, thread_id="t")

    def with_one_more(state):
        return {**state, "log": [*state["log"], "migrated"]}

    newer = graph(version=2).compile(
        checkpointer=store, migrations={1: Migration(state=with_one_more)}
    )
    with newer as app:
        for _ in range(2):
            app.invoke({}, thread_id="t")
        values = app.get_state("t").values
        assert values["log"] == [*expected(5)["log"], "migrated", 5, (5,), 6, (6,)]
        assert values["facts"] == expected(7)["facts"]
        assert chain_of(store) > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_thread_that_is_pruned_forked_and_copied_at_will_keeps_its_values(disk, seed):
    rng = random.Random(seed)
    store = disk.open()
    with graph().compile(checkpointer=store) as app:
        app.invoke({"log": [FILL], "facts": {"first": FILL}}, thread_id="t")
        here, n = "t", 1
        for number in range(25):
            where = f"seed {seed}, move {number}"
            move = rng.choice(["run", "run", "run", "prune", "fork", "copy", "edit"])
            if move == "run":
                app.invoke({}, thread_id=here)
                n += 1
            elif move == "prune":
                app.prune(thread_ids=[here], keep_last=rng.randint(1, 4))
            elif move == "fork":
                chosen = rng.choice(list(app.get_state_history(here, limit=6)))
                complete = not chosen.next and "n" in chosen.values
                if complete:
                    place = chosen.config["configurable"]["checkpoint_id"]
                    app.invoke({}, thread_id=here, checkpoint_id=place)
                    n = chosen.values["n"] + 1
            elif move == "copy":
                app.copy_thread(here, f"t{number}")
                here = f"t{number}"
            else:
                app.update_state(here, {"n": n}, as_node="grow")
            assert app.get_state(here).values == expected(n), where
            check_all(app, here)
    disk.close()
    assert verify(disk.path).sound
