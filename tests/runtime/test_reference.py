"""Where the original fails and this must not; each test names its row of the list."""

from __future__ import annotations

import pytest

from beamweaver import (
    END,
    START,
    Command,
    Completed,
    Continue,
    Graph,
    Invoke,
    Runtime,
    Send,
    interrupt,
)
from beamweaver.errors import (
    NodeFailed,
    NothingToResume,
    RecursionLimit,
    ReducerFailed,
    RouterFailed,
    UnknownTarget,
)
from beamweaver.events import TaskStarted
from tests.runtime.kit import Boom, Caller, Counted, Events, Gate, Log, line, star, wrote


class Once:
    """A node that fails the first time."""

    def __init__(self, update=None):
        self.update = update or {"log": ["once"]}
        self.runs = 0

    def __call__(self, _state):
        self.runs += 1
        if self.runs == 1:
            raise Boom("once")
        return self.update


def fails_once(app, message, **options):
    with pytest.raises(NodeFailed, match="once"):
        app.invoke(message, thread_id="t", **options)


def test_a_an_edge_of_a_finished_sibling_is_taken_after_recovery(store):
    graph = star("g", ok=wrote("ok"), bad=Once()).add_node("after_ok", wrote("after"))
    with graph.add_edge("ok", "after_ok").compile(checkpointer=store) as app:
        fails_once(app, {"n": 1})
        assert app.invoke(None, thread_id="t").state["log"] == ["ok", "once", "after"]


def test_a2_a_goto_of_a_finished_sibling_is_taken_after_recovery(store):
    graph = star("g", ok=lambda _s: Command(update={"log": ["ok"]}, goto="x"), bad=Once())
    graph.add_node("x", wrote("x")).add_edge("x", END)
    with graph.compile(checkpointer=store) as app:
        fails_once(app, {"n": 1})
        assert app.invoke(None, thread_id="t").state["log"] == ["ok", "once", "x"]


def test_a3_an_edge_is_taken_after_a_siblings_question(store):
    graph = star("g", ok=wrote("ok"), asks=lambda _s: {"log": [interrupt("?")]})
    graph.add_node("after_ok", wrote("after")).add_edge("ok", "after_ok")
    with graph.compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t")
        assert app.resume("yes", thread_id="t").state["log"] == ["ok", "yes", "after"]


def test_y_sends_of_a_finished_sibling_run_after_recovery(store):
    def fan(_state):
        return [{"log": ["fan"]}, Send("w", {"item": 1}), Send("w", {"item": 2})]

    graph = star("g", fan=fan, bad=Once()).add_node("w", lambda s: {"log": [s["item"]]})
    with graph.add_edge("w", END).compile(checkpointer=store) as app:
        fails_once(app, {"n": 1})
        assert app.invoke(None, thread_id="t").state["log"] == ["fan", "once", 1, 2]


@pytest.mark.parametrize(
    "nothing", [{}, None, Command(goto=END)], ids=["empty", "none", "command only"]
)
def test_ap_a_finished_sibling_without_an_update_does_not_rerun(store, nothing):
    quiet = Counted(lambda _s: nothing)
    with star("g", quiet=quiet, bad=Once()).compile(checkpointer=store) as app:
        fails_once(app, {"n": 1})
        assert app.invoke(None, thread_id="t").state["log"] == ["once"]
    assert quiet.runs == 1


def test_aj_every_input_of_a_failing_thread_is_kept(store):
    def node(state):
        if "note" not in state or "n" not in state or not state.get("ready"):
            raise Boom("once")
        return {"log": ["done"]}

    with line("g", a=node).compile(checkpointer=store) as app:
        fails_once(app, {})
        fails_once(app, {"n": 1, "log": ["in1"]})
        fails_once(app, {"note": "b", "log": ["in2"]})
        outcome = app.invoke({"ready": True, "log": ["in3"]}, thread_id="t")
    assert outcome.state == {
        "n": 1,
        "note": "b",
        "ready": True,
        "log": ["in1", "in2", "in3", "done"],
    }


def test_aj2_an_input_on_a_waiting_thread_is_kept(store):
    graph = line("g", a=lambda s: {"log": [interrupt("?"), s.get("note")]})
    with graph.compile(checkpointer=store) as app:
        asked = app.invoke({"n": 1}, thread_id="t").interrupt
        assert app.invoke({"note": "kept"}, thread_id="t").interrupt == asked
        assert app.resume("yes", thread_id="t").state["log"] == ["yes", "kept"]


def join():
    graph = Graph(Log, name="g")
    for name in ("a", "b1", "b2", "c"):
        graph.add_node(name, wrote(name))
    graph.add_edge(START, "a").add_edge(START, "b1").add_edge("b1", "b2")
    return graph.add_edge(["a", "b2"], "c").add_edge("c", END)


def test_b_a_join_of_sources_from_different_steps_fires(store):
    with join().compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["a", "b1", "b2", "c"]


def test_b3_a_join_survives_a_question_between_its_arrivals(place):
    graph = Graph(Log, name="g")
    graph.add_node("a", wrote("a")).add_node("b1", wrote("b1")).add_node("c", wrote("c"))
    graph.add_node("b2", lambda _s: {"log": [interrupt("?")]})
    graph.add_edge(START, "a").add_edge(START, "b1").add_edge("b1", "b2").add_edge(["a", "b2"], "c")
    with graph.compile(checkpointer=place.open()) as app:
        app.invoke({"n": 1}, thread_id="t")
    with graph.compile(checkpointer=place.open()) as app:
        assert app.resume("b2", thread_id="t").state["log"] == ["a", "b1", "b2", "c"]


def test_c_two_equal_sends_are_two_tasks(store):
    graph = Graph(Log, name="g").add_node("w", lambda s: {"log": [s["item"]]})
    graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": 1}), Send("w", {"item": 1})])
    with graph.compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t").state["log"] == [1, 1]


def test_d_panic_cancels_a_running_sibling_at_once(store):
    gate = Gate()

    def bad(_state):
        gate.wait()
        raise Boom("once")

    graph = star("g", slow=gate, bad=bad)
    with graph.compile(checkpointer=store, failure_policy="panic") as app:
        fails_once(app, {"n": 1})
        assert not gate.opened.is_set()
        assert app.get_state("t").next == ("slow", "bad")


def test_d_proceed_lets_siblings_finish(store):
    gate = Gate({"log": ["slow"]})
    app = star("g", bad=Once(), slow=gate).compile()
    with Runtime(store, graphs=[app]) as runtime:
        waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
        gate.wait()
        gate.open()
        with pytest.raises(NodeFailed):
            waiting.join()
        assert runtime.get_state("t").values["log"] == ["slow"]


def test_f_a_reducer_that_raises_is_an_error_and_results_are_kept(store):
    broken = [True]

    def merge(old, new):
        if broken:
            raise Boom("reducer")
        return (old or 0) + new

    node = Counted(lambda _s: {"total": 1})
    graph = Graph(name="g").add_reducer("total", merge).add_node("a", node).add_edge(START, "a")
    with graph.compile(checkpointer=store) as app:
        with pytest.raises(ReducerFailed, match="total"):
            app.invoke({"total": 1}, thread_id="t")
        state = app.get_state("t")
        assert [write[1:] for write in state.pending_writes] == [("total", 1)]
        assert state.merge_error
        broken.clear()
        assert app.invoke(None, thread_id="t").state["total"] == 2
    assert node.runs == 1


def test_g_a_router_that_raises_is_an_error_and_the_result_is_kept(store):
    broken = [True]

    def router(_state):
        if broken:
            raise Boom("router")
        return "sink"

    node = Counted(wrote("a"))
    graph = Graph(Log, name="g").add_node("a", node).add_node("sink", wrote("sink"))
    graph.add_edge(START, "a").add_conditional_edges("a", router, ["sink"])
    with graph.compile(checkpointer=store) as app:
        with pytest.raises(RouterFailed, match="'a'"):
            app.invoke({"n": 1}, thread_id="t")
        assert app.get_state("t").values["log"] == ["a"]
        broken.clear()
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "sink"]
    assert node.runs == 1


@pytest.mark.parametrize(
    "returned", [Command(goto="nowhere"), Send("nowhere", {})], ids=["goto", "send"]
)
def test_af_ag_an_unknown_target_is_an_error(store, returned):
    with line("g", a=lambda _s: returned).compile(checkpointer=store) as app:
        with pytest.raises(UnknownTarget, match="'nowhere'"):
            app.invoke({"n": 1}, thread_id="t")
        assert app.get_state("t").status == "failed"


def test_i_concurrent_invokes_are_serialized(store):
    with line("g", a=lambda s: {"n": s["n"] + 1}).compile(checkpointer=store) as app:
        app.invoke({"n": 0}, thread_id="t")
        callers = [Caller(app.invoke, {}, thread_id="t") for _ in range(10)]
        for caller in callers:
            caller.join()
        assert app.get_state("t").values["n"] == 11


def test_n_a_memory_store_outlives_the_app_that_made_its_threads(memory):
    with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
        app.invoke({"n": 1}, thread_id="t")
    with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
        assert app.get_state("t").values["log"] == ["a"]


@pytest.mark.parametrize("answer", ["x", None, {"int_0": "x"}])
def test_o_an_answer_to_nothing_runs_nothing(store, answer):
    node = Counted(wrote("a"))
    with line("g", a=node).compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t")
        with pytest.raises(NothingToResume):
            app.resume(answer, thread_id="t")
    assert node.runs == 1


def test_r_a_recursion_limit_counts_from_the_last_call(store):
    nodes = {f"n{i}": wrote(i) for i in range(6)}
    with line("g", **nodes).compile(checkpointer=store) as app:
        with pytest.raises(RecursionLimit, match="4 steps"):
            app.invoke({"n": 1}, thread_id="t", recursion_limit=4)
        assert app.get_state("t").values["log"] == [0, 1, 2, 3]
        assert app.invoke(None, thread_id="t", recursion_limit=4).state["log"] == list(range(6))


def test_aa_recovered_results_merge_in_task_order(store):
    graph = star("g", a=wrote("a"), b=Once({"log": ["b"]}), c=wrote("c"))
    with graph.compile(checkpointer=store) as app:
        fails_once(app, {"n": 1})
        assert app.invoke(None, thread_id="t").state["log"] == ["a", "b", "c"]


def test_aq_a_run_id_is_honoured(store):
    with line("g", a=wrote("a")).compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t", run_id="mine")
        assert app.get_state("t").metadata["run_id"] == "mine"


def test_s_events_come_in_order(store):
    app = line("g", a=wrote("a"), b=wrote("b"), c=wrote("c")).compile()
    with Runtime(store, graphs=[app]) as runtime:
        events = Events(runtime)
        runtime.thread("t").ask(Invoke({"n": 1}))
        assert [event.node for event in events.of(TaskStarted)] == ["a", "b", "c"]


def test_to_a_thousand_sends_complete(store):
    graph = Graph(Log, name="g").add_node("w", lambda s: {"log": [s["item"]]}, timeout=5)
    graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": i}) for i in range(1_000)])
    with graph.compile(checkpointer=store) as app:
        assert app.invoke({"n": 1}, thread_id="t").state["log"] == list(range(1_000))


def test_id_ids_rise_over_restarts(place):
    seen = []
    for _ in range(3):
        with line("g", a=wrote("a")).compile(checkpointer=place.open()) as app:
            seen.append(app.invoke({}, thread_id="t").checkpoint_id)
            assert app.get_state("t").values["log"] == ["a"] * len(seen)
    assert len(set(seen)) == 3


class TestWhatWorksWellInTheOriginal:
    def test_w_an_input_on_a_waiting_thread_reruns_nothing(self, store):
        first = Counted(wrote("a"))
        graph = line("g", a=first, b=lambda _s: {"log": [interrupt("?")]})
        with graph.compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            app.invoke({"note": "x"}, thread_id="t")
        assert first.runs == 1

    def test_t_answers_may_come_one_by_one(self, store):
        runs = {"a": 0, "b": 0, "c": 0}

        def asks(name):
            def node(_state):
                runs[name] += 1
                return {"log": [interrupt(name)]}

            return node

        with star("g", **{n: asks(n) for n in "abc"}).compile(checkpointer=store) as app:
            asked = app.invoke({"n": 1}, thread_id="t").interrupts
            left = app.resume({asked[1].id: "B"}, thread_id="t")
            assert [i.value for i in left.interrupts] == ["a", "c"]
            assert runs == {"a": 1, "b": 2, "c": 1}
            done = app.resume({asked[0].id: "A", asked[2].id: "C"}, thread_id="t")
        assert done.state["log"] == ["A", "B", "C"]
        assert runs == {"a": 2, "b": 2, "c": 2}

    def test_u_a_question_is_not_retried(self, store):
        node = Counted(lambda _s: {"log": [interrupt("?")]})
        with line("g", a=(node, {"retries": 3})).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
        assert node.runs == 1

    def test_ac_a_successor_of_two_nodes_runs_once(self, store):
        graph = star("g", a=wrote("a"), b=wrote("b")).add_node("c", wrote("c"))
        graph.add_edge("a", "c").add_edge("b", "c")
        with graph.compile(checkpointer=store) as app:
            assert app.invoke({"n": 1}, thread_id="t").state["log"] == ["a", "b", "c"]

    def test_ad_a_goto_replaces_the_edges_of_its_own_node_only(self, store):
        graph = star("g", a=lambda _s: Command(update={"log": ["a"]}, goto="x"), b=wrote("b"))
        for name in "xyz":
            graph.add_node(name, wrote(name))
        graph.add_edge("a", "y").add_edge("b", "z").add_edge("x", END)
        with graph.compile(checkpointer=store) as app:
            assert sorted(app.invoke({"n": 1}, thread_id="t").state["log"]) == ["a", "b", "x", "z"]


def test_continue_on_a_complete_thread_runs_nothing(store):
    node = Counted(wrote("a"))
    app = line("g", a=node).compile()
    with Runtime(store, graphs=[app]) as runtime:
        thread = runtime.thread("t")
        first = thread.ask(Invoke({"n": 1}))
        again = thread.ask(Continue())
    assert isinstance(again, Completed)
    assert (again.state, node.runs) == (first.state, 1)
