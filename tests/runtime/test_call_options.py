"""Options of calls: judged at once, in force for the run, in other processes too."""

from __future__ import annotations

import datetime as dt
import threading

import pytest

from beamweaver import (
    Cancelled,
    Command,
    Completed,
    Continue,
    Interrupted,
    Invoke,
    Resume,
    Runtime,
    Send,
    interrupt,
)
from beamweaver.errors import (
    InvalidCall,
    NodeFailed,
    RunTimeout,
    SerializationError,
    StepTimeout,
    ThreadBusy,
)
from beamweaver.limits import Limits
from tests.runtime.children import killed, options_and_die
from tests.runtime.kit import Boom, Caller, Counted, Gate, line, star, wrote


def failing(_state):
    raise Boom("no")


class TestRefusals:
    """Whatever is wrong with an option is said by the call, and nothing is stored."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"run_timeout": 0}, "run_timeout is 0"),
            ({"step_timeout": "1"}, "step_timeout is '1'"),
            ({"failure_policy": "stop"}, "failure_policy is 'stop'; give 'proceed' or 'panic'"),
            ({"max_concurrency": 0}, "max_concurrency is 0"),
            ({"max_concurrency": True}, "max_concurrency is True"),
            ({"recursion_limit": 0}, "recursion_limit is 0"),
            ({"on_busy": "wait"}, "on_busy is 'wait'; give 'queue' or 'reject' or 'cancel'"),
            ({"metadata": [1]}, r"metadata is \[1\]"),
            ({"metadata": {1: 2}}, "metadata has the key 1"),
            ({"metadata": {"step": 2}}, "metadata has the key 'step'; give texts other than"),
            ({"metadata": {"tags": []}}, "metadata has the key 'tags'"),
            ({"metadata": {"a": "x" * 5_000}}, "limits.metadata_bytes is 4096"),
            ({"tags": "nightly"}, "tags is 'nightly'; give a list"),
            ({"tags": [1]}, r"tags is \[1\]"),
            ({"rerun": "a"}, "rerun is 'a'; give a list of nodes"),
            ({"rerun": ["a"], "on_unfinished": "restart"}, "nothing to rerun"),
            ({"rerun": ["b"]}, "rerun names 'b'"),
        ],
        ids=lambda value: repr(value)[:40],
    )
    def test_an_unfit_option_is_refused(self, memory, options, words):
        with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
            with pytest.raises(InvalidCall, match=words):
                app.invoke({"n": 1}, thread_id="t", **options)
            assert app.get_state("t") is None

    def test_metadata_that_cannot_be_stored_is_refused(self, memory):
        with (
            line("g", a=wrote("a")).compile(checkpointer=memory) as app,
            pytest.raises(SerializationError, match=r"metadata\['lock'\] is of type _thread.lock"),
        ):
            app.invoke({"n": 1}, thread_id="t", metadata={"lock": threading.Lock()})

    def test_an_unknown_option_names_the_nearest(self, memory):
        with line("g", a=wrote("a")).compile(checkpointer=memory) as app:
            for call in (app.invoke, app.resume):
                with pytest.raises(TypeError, match=r"no option 'run_timout'\. Did you mean"):
                    call({"n": 1}, thread_id="t", run_timout=3)

    def test_a_restart_answers_nothing(self, memory):
        with (
            line("g", a=wrote("a")).compile(checkpointer=memory) as app,
            pytest.raises(InvalidCall, match="nothing to resume"),
        ):
            app.invoke(Command(resume=1), thread_id="t", on_unfinished="restart")

    def test_messages_are_judged_like_calls(self, memory):
        with Runtime(memory, graphs=[line("g", a=wrote("a")).compile()]) as runtime:
            thread = runtime.thread("t")
            for message in (Continue(run_timeout=-1), Resume(1, tags="x"), Invoke({}, rerun="a")):
                with pytest.raises(InvalidCall):
                    thread.tell(message)


class TestInForce:
    def test_a_policy_of_a_call_holds_for_its_run(self, store):
        gate = Gate()
        app = star("g", slow=gate, bad=failing).compile(checkpointer=store)
        with app, pytest.raises(NodeFailed):
            app.invoke({"n": 1}, thread_id="t", failure_policy="panic")
        assert not gate.opened.is_set()

    def test_so_does_the_number_of_tasks_at_once(self, store):
        """langgraph 46."""
        lock, now, most = threading.Lock(), [0], [0]

        def work(state):
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            with lock:
                now[0] -= 1
            return {"log": [state["item"]]}

        graph = star("g", w=work).add_conditional_edges(
            "w", lambda s: [Send("w", {"item": i}) for i in range(30)] if len(s["log"]) == 1 else []
        )
        with graph.compile(checkpointer=store) as app:
            outcome = app.invoke({"item": -1}, thread_id="t", max_concurrency=1)
        assert outcome.state["log"] == list(range(-1, 30))
        assert most == [1]

    @pytest.mark.parametrize(
        ("option", "error"), [("run_timeout", RunTimeout), ("step_timeout", StepTimeout)]
    )
    def test_timeouts_of_a_call_end_its_run_and_the_next_call_has_the_graphs_own(
        self, store, option, error
    ):
        gate = Gate({"log": ["a"]})
        with line("g", a=gate).compile(checkpointer=store) as app:
            with pytest.raises(error):
                app.invoke({"n": 1}, thread_id="t", **{option: dt.timedelta(milliseconds=50)})
            gate.open()
            assert app.invoke(None, thread_id="t").state["log"] == ["a"]

    def test_options_hold_in_the_process_that_takes_the_run_up(self, disk):
        """The dead caller said two seconds and one task at once; nobody has to say it again."""
        killed(options_and_die, disk.path)
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        with Runtime(disk.open(), graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Continue(), timeout=10)
            machine = runtime._core.hub.store.load("t").row.run.options  # type: ignore[union-attr] # it is started
            state = thread.get_state()
        assert (machine.run_timeout, machine.max_concurrency) == (120.0, 1)
        assert (state.metadata["user"], state.metadata["tags"]) == ("ann", ["nightly"])

    def test_a_limit_in_force_ends_a_run_that_was_taken_up(self, disk):
        killed(options_and_die, disk.path, 0.2)
        gate = Gate()
        app = line("g", a=gate, b=wrote("b")).compile()
        with Runtime(disk.open(), graphs=[app]) as runtime, pytest.raises(RunTimeout):
            runtime.thread("t").ask(Continue(), timeout=10)


class TestMetadata:
    def test_it_is_in_every_checkpoint_of_the_run_and_found_by_a_filter(self, store):
        """graph 154, langgraph 66."""
        with line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", metadata={"user": "ann", "n": 3}, tags=["x", "y"])
            app.invoke({}, thread_id="t", metadata={"user": "bob"})
            app.invoke({}, thread_id="t")
            for wanted, count in [
                ({"user": "ann"}, 3),
                ({"user": "bob"}, 3),
                ({"tags": ["y"]}, 3),
                ({"tags": ["x", "z"]}, 0),
                ({"user": "ann", "source": "loop"}, 2),
            ]:
                found = list(app.get_state_history("t", filter=wanted))
                assert len(found) == count, wanted
            with pytest.raises(
                InvalidCall, match="'colour', which no checkpoint of the thread has"
            ):
                list(app.get_state_history("t", filter={"colour": 1}))
            assert "user" not in app.get_state("t").metadata

    def test_a_later_call_of_the_run_adds_to_it(self, store):
        app = line("g", a=lambda _s: {"note": interrupt("?")}, b=wrote("b"))
        with app.compile(checkpointer=store) as app:
            app.invoke({}, thread_id="t", metadata={"user": "ann", "k": 1}, tags=["x"])
            app.resume("yes", thread_id="t", metadata={"k": 2})
            metadata = app.get_state("t").metadata
        assert (metadata["user"], metadata["k"], metadata["tags"]) == ("ann", 2, ["x"])

    def test_its_bound_is_a_limit_of_the_runtime(self, memory):
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app], limits=Limits(metadata_bytes=10)) as runtime:
            thread = runtime.thread("t")
            thread.ask(Invoke({}, metadata={"a": 1}))
            with pytest.raises(InvalidCall, match="metadata_bytes is 10"):
                thread.ask(Invoke({}, metadata={"a": "x" * 10}))


class TestOnBusyCancel:
    def test_the_run_is_cancelled_and_the_call_has_its_turn(self, store):
        gate, quick = Gate({"log": ["gate"]}), Counted(wrote("quick"))
        with star("g", slow=gate, quick=quick).compile(checkpointer=store) as app:
            first = Caller(app.invoke, {"n": 1}, thread_id="t")
            gate.wait()
            second = Caller(app.invoke, {"n": 2}, thread_id="t", on_busy="cancel")
            assert type(first.join()) is Cancelled
            gate.open()
            outcome = second.join()
        assert (type(outcome), outcome.state["n"]) == (Completed, 2)
        assert (gate.runs, quick.runs) == (2, 1)

    def test_with_a_restart_it_begins_a_new_run_which_is_recorded(self, store):
        """Semantics 5: stop that, do this; the restart is seen in the history."""
        gate = Gate({"log": ["gate"]})
        with star("g", slow=gate).compile(checkpointer=store) as app:
            first = Caller(app.invoke, {"n": 1}, thread_id="t", run_id="one")
            gate.wait()
            options = {"on_busy": "cancel", "on_unfinished": "restart", "run_id": "two"}
            second = Caller(app.invoke, {"n": 2}, thread_id="t", **options)
            assert type(first.join()) is Cancelled
            gate.open()
            assert second.join().run_id == "two"
            restarts = list(app.get_state_history("t", filter={"source": "restart"}))
        assert [state.metadata["run_id"] for state in restarts] == ["two"]

    def test_reject_raises(self, store):
        gate = Gate()
        with star("g", slow=gate).compile(checkpointer=store) as app:
            first = Caller(app.invoke, {}, thread_id="t")
            gate.wait()
            with pytest.raises(ThreadBusy):
                app.resume(1, thread_id="t", on_busy="reject")
            gate.open()
            first.join()


class TestRerunAndCommand:
    def test_named_results_run_again(self, store):
        bad = [Boom("first")]

        def once(_state):
            if bad:
                raise bad.pop()
            return {"log": ["bad"]}

        a, b = Counted(wrote("a")), Counted(wrote("b"))
        with star("g", a=a, b=b, bad=once).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed):
                app.invoke({}, thread_id="t")
            assert app.invoke(None, thread_id="t", rerun=["a"]).state["log"] == ["a", "b", "bad"]
        assert (a.runs, b.runs) == (2, 1)

    def test_a_command_amends_answers_and_goes_in_one(self, store):
        def ask(state):
            answer = interrupt("?")
            return {"log": [f"{answer}{state['n']}"]}

        graph = star("g", ask=ask).add_node("more", wrote("more"))
        with graph.compile(checkpointer=store, allow_unreachable=True) as app:
            assert type(app.invoke({"n": 1}, thread_id="t")) is Interrupted
            command = Command(update={"n": 2}, goto="more", resume="yes")
            outcome = app.invoke(command, thread_id="t")
        assert outcome.state["log"] == ["yes2", "more"]

    def test_a_command_that_only_resumes_is_an_answer(self, store):
        """graph 29, langgraph's `invoke(Command(resume=…))`."""
        app = line("g", a=lambda _s: {"note": interrupt("?")})
        with app.compile(checkpointer=store) as app:
            (asked,) = app.invoke({}, thread_id="t").interrupts
            outcome = app.invoke(Command(resume={asked.id: "yes"}), thread_id="t")
        assert outcome.state["note"] == "yes"
