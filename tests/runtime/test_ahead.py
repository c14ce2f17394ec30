"""`durability="async"` from outside: what is on its way, what is durable, what becomes of failed commits."""

from __future__ import annotations

import threading

import pytest

from beamweaver import Invoke, Runtime, interrupt
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import (
    NodeFailed,
    OwnershipLost,
    RuntimeFailed,
    RuntimeStopped,
    StoreBroken,
    StoreError,
    StoreFull,
)
from beamweaver.events import StepCommitted
from beamweaver.limits import Limits
from supervisors import KILLED
from supervisors.testing import eventually
from tests.runtime.kit import (
    NESTED,
    PATIENCE,
    SIX,
    Boom,
    Caller,
    Counted,
    Events,
    Oracle,
    failing_at,
    line,
    nested,
    refusing,
    simulated,
    six,
    wrote,
)

NAMES = [f"n{i:02}" for i in range(20)]


def long(**nodes):
    """Twenty nodes one after the other."""
    return line("long", **{name: nodes.get(name) or wrote(name) for name in NAMES}).compile()


class Held:
    """A fault that holds the writer back, before its groups, from `hold()` until `let_go()`."""

    def __init__(self):
        self.held = threading.Event()
        self.free = threading.Event()

    def __call__(self, point, _thread=""):
        if point == "writer.group" and self.held.is_set():
            assert self.free.wait(PATIENCE), "the writer was never let go"

    def hold(self, name):
        """A node that holds it."""

        def node(_state):
            self.held.set()
            return {"log": [name]}

        return node

    def let_go(self):
        self.free.set()


@pytest.fixture(params=["process-kill", "power-loss"])
def store(request, tmp_path):
    """A store of each class."""
    opened = LMDBCheckpointer(tmp_path / "state.lmdb", survives=request.param)
    yield opened
    opened.close()


def test_outcome_and_history_are_those_of_sync(store):
    with six().compile(checkpointer=store) as app:
        for mode in ("sync", "async"):
            outcome = app.invoke({"n": 1}, thread_id=mode, durability=mode)
            assert outcome.state == {"n": 1, "log": SIX}
            assert app.get_state(mode).values == outcome.state
        shown = [
            [(s.step, s.metadata["source"], s.values, s.next) for s in app.get_state_history(mode)]
            for mode in ("sync", "async")
        ]
        assert shown[0] == shown[1]


def test_graphs_as_nodes_end_as_under_sync(store):
    with nested().compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t", durability="async").state["log"] == NESTED


def test_the_history_of_graphs_as_nodes_is_that_of_sync(store):
    with nested().compile(checkpointer=store) as app:
        for mode in ("sync", "async"):
            app.invoke({"n": 1}, thread_id=mode, durability=mode)
        for namespace in (("middle",), ("middle", "worker")):
            shown = [
                [
                    (s.step, s.values, s.next)
                    for s in app.get_state_history(mode, namespace=namespace)
                ]
                for mode in ("sync", "async")
            ]
            assert shown[0] == shown[1] != []


def test_without_a_store_it_changes_nothing():
    with six().compile() as app:
        assert app.invoke({"n": 1}, durability="async").state["log"] == SIX


def test_while_the_writer_is_held_a_thread_goes_on_as_far_as_its_window(place):
    """`peers 11`: what is on its way has a bound, and is gone when it is written."""
    held, ran = Held(), []

    def noted(name):
        return lambda _state: ran.append(name) or {"log": [name]}

    app = long(n00=held.hold("n00"), **{name: noted(name) for name in NAMES[1:]})
    store = place.open()
    limits = Limits(ahead_commits=5)
    with Runtime(store, graphs=[app], fault=held, limits=limits) as runtime:
        call = Caller(lambda: runtime.thread("t").ask(Invoke({}, durability="async")))
        eventually(lambda: len(ran) == 5)
        assert not call.done
        assert runtime.get_state("t").next == ("n00",)
        held.let_go()
        assert call.join().state["log"] == NAMES
        assert runtime._core.hub.ahead.total == 0


def test_a_step_is_told_when_it_is_over_and_when_it_is_durable(place):
    with Runtime(place.open(), graphs=[line("g", a=wrote("a"), b=wrote("b")).compile()]) as runtime:
        events = Events(runtime)
        outcome = runtime.thread("t").ask(Invoke({}, durability="async"))
        events.wait(StepCommitted, step=2)
        told = [(e.step, e.durable, bool(e.checkpoint_id)) for e in events.of(StepCommitted)]
        assert told == [(1, False, False), (1, True, True), (2, True, True)]
        assert events.of(StepCommitted)[-1].checkpoint_id == outcome.checkpoint_id


def test_a_question_is_durable_with_all_before_it(place):
    first = Counted(wrote("a"))
    graph = line("g", a=first, ask=lambda _s: {"log": [interrupt("?")]}, b=wrote("b"))
    with graph.compile(checkpointer=place.open()) as app:
        app.invoke({}, thread_id="t", durability="async")
    with graph.compile(checkpointer=place.open()) as app:
        assert app.get_state("t").status == "waiting"
        assert app.resume("yes", thread_id="t", durability="async").state["log"] == [
            "a",
            "yes",
            "b",
        ]
        assert first.runs == 1


def test_a_branch_and_an_edit_are_as_under_sync(place):
    with line("g", a=wrote("a"), b=wrote("b"), c=wrote("c")).compile(
        checkpointer=place.open()
    ) as app:
        app.invoke({}, thread_id="t", durability="async")
        older = next(s for s in app.get_state_history("t") if s.next == ("b",))
        id_ = older.config["configurable"]["checkpoint_id"]
        app.update_state("t", {"log": ["edit"]}, checkpoint_id=id_, as_node="a")
        outcome = app.invoke(None, thread_id="t", durability="async")
        assert outcome.state["log"] == ["a", "edit", "b", "c"]
        branch = app.invoke(None, thread_id="t", checkpoint_id=id_, durability="async")
        assert branch.state["log"] == ["a", "b", "c"]


# Commits that fail --------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [1, 3, 7, 15])
def test_a_refused_commit_takes_those_that_follow_it_with_it(place, seq):
    """The caller hears why; the next call goes on from what the store has."""
    store = place.open()
    app = long()
    with Runtime(store, graphs=[app]) as runtime:
        refusing(store, seq, StoreError("a page is bad"))
        with pytest.raises(StoreError, match="a page is bad"):
            runtime.thread("t").ask(Invoke({"n": 1}, run_id="R", durability="async"))
        state = runtime.get_state("t")
        assert (state.values.get("log", []), state.next) == (NAMES[: seq - 1], (NAMES[seq - 1],))
        outcome = runtime.thread("t").ask(Invoke({"n": 1}, run_id="R", durability="async"))
        assert outcome.state["log"] == NAMES


@pytest.mark.parametrize("seed", range(20))
def test_a_refused_commit_leaves_no_trace_in_any_order(memory, seed):
    app = long()
    with simulated(memory, seed, graphs=[app]) as runtime:
        commit = memory.commit
        refusing(memory, 2 + seed % 11, StoreError("a page is bad"))
        with pytest.raises(StoreError, match="a page is bad"):
            runtime.thread("t").ask(Invoke({"n": 1}, run_id="R", durability="async"))
        outcome = runtime.thread("t").ask(Invoke({"n": 1}, run_id="R", durability="async"))
        assert outcome.state["log"] == NAMES, f"seed {seed}"
        memory.commit = commit


@pytest.mark.parametrize("seed", range(20))
def test_in_a_full_store_a_run_waits_with_all_that_is_on_its_way(memory, seed):
    full = []

    def faults(point):
        if full and point == "put.before":
            raise StoreFull("the disk is full")

    memory.faults = faults
    app = long(n07=lambda _s: full.append(True) or {"log": ["n07"]})
    with simulated(memory, seed, graphs=[app], limits=Limits(ahead_commits=4)) as runtime:
        oracle = Oracle(runtime)
        call = runtime._core.submit(app, "t", Invoke({"n": 1}, durability="async"), waits=True)
        runtime._core.system.scheduler.run_for(10.0)
        assert not call.done.done()
        assert not runtime.health().ready
        full.clear()
        assert call.done.get().outcome.state["log"] == NAMES, f"seed {seed}"
        assert oracle.reruns == []
        assert runtime.health().ready
        assert runtime._core.hub.ahead.total == 0


@pytest.mark.parametrize("error", [StoreBroken, OwnershipLost])
def test_a_store_that_cannot_be_mended_ends_the_runtime(place, error):
    def faults(point):
        if point == "sync.before" and armed:
            raise error("the disk is gone")

    armed = []
    store = place.open()
    app = long(n05=lambda _s: armed.append(True) or {"log": ["n05"]})
    with pytest.raises(RuntimeFailed, match="the disk is gone"):
        with Runtime(store, graphs=[app]) as runtime:
            store.faults = faults
            with pytest.raises(RuntimeStopped, match="'R'"):
                runtime.thread("t").ask(Invoke({"n": 1}, run_id="R", durability="async"))
            eventually(lambda: runtime.failure)
    store.faults = lambda _point: None


# Who dies with commits on the way -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("what", ["thread.start", "writer.group", "writer.synced"])
def test_whoever_crashes_a_run_ends_as_without_it(memory, seed, what):
    fault = failing_at(what, times=1)
    reached = []

    def later(point, thread=""):
        if point == what:
            reached.append(point)
            if len(reached) > 3 + seed % 7:
                fault(point, thread)

    with simulated(memory, seed, graphs=[long()], fault=later) as runtime:
        oracle = Oracle(runtime)
        outcome = runtime.thread("t").ask(Invoke({"n": 1}, durability="async"))
        assert outcome.state["log"] == NAMES, f"seed {seed}"
        assert oracle.reruns == [], f"seed {seed}"
        assert runtime._core.hub.ahead.total == 0


def test_a_thread_that_is_changed_while_commits_are_on_their_way_goes_on(place):
    held = Held()
    app = long(n03=held.hold("n03"))
    store = place.open()
    with Runtime(store, graphs=[app], fault=held) as runtime:
        call = Caller(lambda: runtime.thread("t").ask(Invoke({"n": 1}, durability="async")))
        assert held.held.wait(PATIENCE)
        pruned = Caller(lambda: runtime.prune(["t"], keep_last=1))
        held.let_go()
        pruned.join()
        assert call.join().state["log"] == NAMES


@pytest.mark.parametrize("seed", range(20))
def test_a_drain_makes_all_durable(memory, seed):
    with simulated(memory, seed, graphs=[six().compile()]) as runtime:
        runtime.thread("t").tell(Invoke({"n": 1}, durability="async"))
        assert runtime.drain(5)
        log = runtime.get_state("t").values["log"]
        assert log == SIX[: len(log)], f"seed {seed}"
    with simulated(memory, seed, graphs=[six().compile()]) as runtime:
        assert runtime.thread("t").ask(Invoke(None)).state["log"] == SIX


def test_values_that_a_failed_node_changed_in_place_are_not_seen(store):
    """The store is behind at that moment: what it has is awaited, then read."""

    def bad(state):
        state["log"].append("spoiled")
        raise Boom("boom")

    with line("g", a=wrote("a"), b=wrote("b"), bad=bad).compile(checkpointer=store) as app:
        with pytest.raises(NodeFailed):
            app.invoke({}, thread_id="t", durability="async")
        failed = app.invoke(None, thread_id="t", durability="async", raises=False)
        assert failed.state["log"] == ["a", "b"]


def test_a_killed_writer_loses_at_most_what_was_on_its_way(place):
    store = place.open()
    app = long(n05=lambda _s: kill.pop()() if kill else {"log": ["n05"]})
    kill = []
    with Runtime(store, graphs=[app]) as runtime:
        oracle = Oracle(runtime)

        def strike():
            runtime._core.system.exit(runtime._core.hub.writer, KILLED)
            return {"log": ["n05"]}

        kill.append(strike)
        outcome = runtime.thread("t").ask(Invoke({"n": 1}, durability="async"))
        assert outcome.state["log"] == NAMES
        assert oracle.reruns == []


# Functions that call graphs -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["async", "exit"])
def test_a_function_hears_of_the_graph_that_it_called(place, mode):
    """One called graph ends, one asks, beside a node whose result waits for its record."""
    ends = line("ends", a=wrote("a"), b=wrote("b")).compile()
    asks = line("asks", c=wrote("c"), d=lambda _s: {"log": [interrupt("?")]}).compile()

    def calls(_state, ctx):
        one = ctx.call(ends, {"log": ["1"]}, key="one")["log"]
        return {"log": [*one, *ctx.call(asks, {"log": ["2"]}, key="two")["log"]]}

    graph = line("g", x=wrote("x"), calls=calls, y=wrote("y"))
    graph.add_node("beside", wrote("beside")).add_edge("x", "beside")
    graph.add_edge("beside", "y")
    with graph.compile(checkpointer=place.open()) as app:
        app.invoke({}, thread_id="t", durability=mode)
    with graph.compile(checkpointer=place.open()) as app:
        outcome = app.resume("yes", thread_id="t", durability=mode)
        assert sorted(outcome.state["log"]) == sorted(
            ["x", "1", "a", "b", "2", "c", "yes", "beside", "y"]
        )
