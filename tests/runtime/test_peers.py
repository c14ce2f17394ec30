"""What goes wrong in the field, with other systems: each test names its row of the list."""

from __future__ import annotations

import threading

import pytest

from beamweaver import (
    START,
    Continue,
    Graph,
    Interrupted,
    Invoke,
    Resume,
    Runtime,
    Send,
    interrupt,
)
from beamweaver.errors import (
    AlreadyAnswered,
    AmbiguousResume,
    InvalidUpdate,
    NothingToResume,
    RouterFailed,
    StoreError,
    StoreUnavailable,
    UnknownInterrupt,
)
from beamweaver.events import StepCommitted, TaskAcknowledged, TaskStarted
from supervisors.testing import eventually
from tests.runtime.kit import Boom, Caller, Counted, Events, Log, line, star, wrote


def asks(*names):
    return star("g", **{n: (lambda _s, n=n: {"log": [interrupt(n)]}) for n in names})


class TestCrashConsistency:
    def test_1_a_result_is_acknowledged_before_the_next_node_starts(self, store):
        app = line("g", **{f"n{i}": wrote(i) for i in range(5)}).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            runtime.thread("t").ask(Invoke({"n": 1}))
        order = [
            (type(event).__name__, event.node)
            for event in events.seen
            if isinstance(event, TaskStarted | TaskAcknowledged)
        ]
        expected = []
        for i in range(5):
            expected += [("TaskStarted", f"n{i}"), ("TaskAcknowledged", f"n{i}")]
        assert order == expected

    @pytest.mark.parametrize("nth", range(1, 9))
    @pytest.mark.parametrize("point", ["put.before", "put.after", "sync.before"])
    def test_2_a_step_whose_write_fails_shows_all_or_nothing(self, place, nth, point):
        reached = [0]

        def faults(name):
            reached[0] += name == point
            if name == point and reached[0] == nth:
                raise Boom(point)

        store = place.open()
        app = star("g", a=wrote("a"), b=wrote("b")).add_node("c", wrote("c"))
        app = app.add_edge("a", "c").compile()
        runtime = Runtime(store, graphs=[app], max_restarts=100)
        with runtime:
            store.faults = faults
            outcome = runtime.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=10)
            store.faults = lambda _point: None
        assert outcome.state["log"] == ["a", "b", "c"]

    def test_3_the_input_is_durable_before_the_first_line_of_user_code(self, place):
        seen = []

        def node(state):
            seen.append(store.load("t").row.status)
            return {"log": [state["n"]]}

        store = place.open()
        with line("g", a=node).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
        assert seen == ["running"]

    def test_5_a_router_that_failed_is_asked_again(self, store):
        calls = []

        def router(_state):
            calls.append(1)
            if len(calls) == 1:
                raise Boom("once")
            return "sink"

        node = Counted(wrote("a"))
        graph = Graph(Log, name="g").add_node("a", node).add_node("sink", wrote("sink"))
        graph.add_edge(START, "a").add_conditional_edges("a", router, ["sink"])
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(RouterFailed):
                app.invoke({"n": 1}, thread_id="t")
            assert app.invoke(None, thread_id="t").state["log"] == ["a", "sink"]
        assert (node.runs, len(calls)) == (1, 2)

    def test_10_what_an_event_says_is_in_the_store(self, store):
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        checks = []

        with Runtime(store, graphs=[app]) as runtime:

            def listen(event):
                if isinstance(event, StepCommitted):
                    checks.append(runtime.get_state("t", event.checkpoint_id).step == event.step)

            runtime.subscribe(listen)
            runtime.thread("t").ask(Invoke({"n": 1}))
        assert checks == [True, True]


class TestQuestions:
    def test_15_only_tasks_with_an_answer_run_again(self, store):
        runs = []

        def node(state):
            runs.append(state["item"])
            return {"log": [interrupt(state["item"])]}

        graph = Graph(Log, name="g").add_node("w", node)
        graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": i}) for i in range(3)])
        with graph.compile(checkpointer=store) as app:
            asked = app.invoke({"n": 1}, thread_id="t").interrupts
            app.resume({asked[1].id: "x"}, thread_id="t")
        assert sorted(runs) == [0, 1, 1, 2]

    def test_18_next_names_a_node_that_asks_twice(self, store):
        graph = line("g", ask_twice=lambda _s: {"log": [interrupt("1"), interrupt("2")]})
        with graph.compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            app.resume("one", thread_id="t")
            state = app.get_state("t")
            assert state.next == ("ask_twice",)
            assert [i.value for i in state.interrupts] == ["2"]
            assert app.resume("two", thread_id="t").state["log"] == ["one", "two"]

    def test_19_an_answered_question_is_gone_at_once(self, store):
        with asks("a", "b").compile(checkpointer=store) as app:
            first, second = app.invoke({"n": 1}, thread_id="t").interrupts
            outcome = app.resume({first.id: "x"}, thread_id="t")
            assert outcome.interrupts == (second,)
            assert app.get_state("t").interrupts == (second,)

    def test_27_an_answer_to_a_finished_thread_is_refused(self, store):
        with asks("a").compile(checkpointer=store) as app:
            asked = app.invoke({"n": 1}, thread_id="t").interrupt
            app.resume("yes", thread_id="t")
            with pytest.raises(NothingToResume):
                app.resume("yes", thread_id="t")
            with pytest.raises(AlreadyAnswered, match=asked.id):
                app.resume({asked.id: "yes"}, thread_id="t")

    def test_27_an_unknown_id_is_refused_with_the_open_ones(self, store):
        with asks("a").compile(checkpointer=store) as app:
            asked = app.invoke({"n": 1}, thread_id="t").interrupt
            with pytest.raises(UnknownInterrupt, match=asked.id):
                app.resume({"int_0": "x"}, thread_id="t")
            assert app.get_state("t").interrupts == (asked,)

    def test_27_none_is_an_answer(self, store):
        with asks("a").compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert app.resume(None, thread_id="t").state["log"] == [None]

    def test_27_of_two_answers_at_once_one_counts(self, store):
        runs = []

        def node(_state):
            answer = interrupt("?")
            runs.append(answer)
            return {"log": [answer]}

        with line("g", a=node).compile(checkpointer=store) as app:
            asked = app.invoke({"n": 1}, thread_id="t").interrupt
            barrier = threading.Barrier(2)

            def answer(text):
                barrier.wait(5)
                try:
                    return app.resume({asked.id: text}, thread_id="t").state["log"]
                except (AlreadyAnswered, NothingToResume) as error:
                    return error.code

            calls = [Caller(answer, "one"), Caller(answer, "two")]
            results = [call.join() for call in calls]
        assert len(runs) == 1
        assert sorted(map(str, results)) == sorted(map(str, [runs, "already_answered"]))

    def test_langgraph_78_one_answer_for_two_questions_is_ambiguous(self, store):
        with asks("a", "b").compile(checkpointer=store) as app:
            asked = app.invoke({"n": 1}, thread_id="t").interrupts
            with pytest.raises(AmbiguousResume, match=asked[0].id):
                app.resume("x", thread_id="t")
            done = app.resume({i.id: i.value for i in asked}, thread_id="t")
        assert done.state["log"] == ["a", "b"]


class TestStores:
    def test_33_two_writers_of_a_key_do_not_poison_the_thread(self, store):
        graph = star("g", a=lambda _s: {"n": 1}, b=lambda _s: {"n": 2})
        with graph.compile(checkpointer=store) as app:
            with pytest.raises(InvalidUpdate, match="'a'.*'b'"):
                app.invoke({"n": 0}, thread_id="t")
            state = app.get_state("t")
            assert (state.status, state.values["n"]) == ("failed", 0)
            assert "n" in state.merge_error
        with star("g", a=lambda _s: {"n": 1}).compile(checkpointer=store) as app:
            outcome = app.invoke({"n": 5}, thread_id="t", on_unfinished="restart")
            assert outcome.state["n"] == 1

    def test_34_a_store_that_refuses_stops_the_run_at_once(self, place):
        store = place.open()
        commits = [0]
        ran = []

        def faults(point):
            commits[0] += point == "put.before"
            if point == "put.before" and commits[0] == 4:
                raise StoreUnavailable("the disk is away")

        nodes = {f"n{i}": (lambda _s, i=i: ran.append(i)) for i in range(6)}
        app = line("g", **nodes).compile(checkpointer=store)
        with app:
            app.invoke({}, thread_id="first", recursion_limit=100)
            ran.clear()
            store.faults = faults
            with pytest.raises(StoreError):
                app.invoke({"n": 1}, thread_id="t")
            assert ran == [0, 1, 2], "no node starts after a commit that failed"
            store.faults = lambda _point: None
            app.invoke({"n": 1}, thread_id="t")
            assert ran[-1] == 5

    def test_61_an_error_of_the_store_while_recovery_reads_is_retried(self, disk):
        app = line("g", a=wrote("a")).compile()
        broken = [2]
        store = disk.open()
        threads = store.threads

        def failing(**kwargs):
            if broken[0]:
                broken[0] -= 1
                raise StoreError("the store is away")
            return threads(**kwargs)

        store.threads = failing
        with Runtime(store, graphs=[app]) as runtime:
            eventually(lambda: not broken[0])
            assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a"]
            assert runtime.failure is None


class TestConcurrency:
    def test_langgraph_30_one_graph_serves_many_callers(self, store):
        with line("g", a=lambda s: {"log": [s["n"]]}).compile(checkpointer=store) as app:
            callers = [Caller(app.invoke, {"n": i}, thread_id=f"t{i}") for i in range(20)]
            assert [c.join().state["log"] for c in callers] == [[i] for i in range(20)]

    def test_langgraph_54_parallel_nodes_overlap(self, store):
        barrier = threading.Barrier(4)

        def node(_state):
            barrier.wait(5)

        with star("g", a=node, b=node, c=node, d=node).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")

    @pytest.mark.parametrize("most", [1, 3])
    def test_langgraph_46_no_more_than_max_concurrency_run_at_once(self, store, most):
        lock = threading.Lock()
        now, highest = [0], [0]

        def node(_state):
            with lock:
                now[0] += 1
                highest[0] = max(highest[0], now[0])
            with lock:
                now[0] -= 1

        graph = Graph(Log, name="g").add_node("w", node)
        graph.add_conditional_edges(START, lambda _s: [Send("w", {"item": i}) for i in range(30)])
        with graph.compile(checkpointer=store, max_concurrency=most) as app:
            app.invoke({"n": 1}, thread_id="t")
        assert highest[0] <= most

    def test_langgraph_59_a_question_cancels_no_sibling(self, store):
        graph = star("g", ask=lambda _s: {"log": [interrupt("?")]}, work=Counted(wrote("work")))
        with graph.compile(checkpointer=store) as app:
            outcome = app.invoke({"n": 1}, thread_id="t")
            assert isinstance(outcome, Interrupted)
            assert outcome.state["log"] == ["work"]
            assert app.resume("yes", thread_id="t").state["log"] == ["yes", "work"]

    def test_an_answer_that_waits_for_a_running_thread_is_taken_in_its_turn(self, store):
        app = asks("a").compile()
        with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            thread.tell(Resume("yes"))
            eventually(lambda: thread.get_state().status == "complete")
            assert thread.ask(Continue()).state["log"] == ["yes"]
