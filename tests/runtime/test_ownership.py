"""Who owns a store: one runtime of one process, said at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import pytest

from beamweaver import Invoke, Runtime
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import (
    BeamWeaverError,
    InvalidCall,
    RuntimeStopped,
    StoreOptionsDiffer,
    StoreOwned,
    UnknownGraph,
    WrongGraph,
)
from beamweaver.events import ThreadTakenUp
from tests.runtime.children import answer, child, killed, leave, own, try_to_own
from tests.runtime.kit import Caller, Counted, Events, Gate, line, wrote


class TestTwoOwners:
    def test_a_second_runtime_of_the_process_is_refused(self, store):
        with Runtime(store), pytest.raises(StoreOwned) as caught:
            Runtime(store).start()
        assert (caught.value.pid, caught.value.host) == (os.getpid(), socket.gethostname())

    def test_the_refused_one_leaves_the_owner_alone(self, store):
        app = line("g", a=wrote("a")).compile()
        with Runtime(store, graphs=[app]) as runtime:
            with pytest.raises(StoreOwned):
                Runtime(store).start()
            assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a"]

    def test_a_process_that_owns_is_named_at_once(self, disk):
        began = time.time()
        with child(own, disk.path) as (_process, pipe):
            pid = pipe.recv()
            with pytest.raises(StoreOwned) as caught:
                Runtime(disk.open()).start()
        assert (caught.value.pid, caught.value.host) == (pid, socket.gethostname())
        assert began <= caught.value.since <= time.time()

    def test_an_apps_call_is_refused_too(self, disk):
        app = line("g", a=wrote("a")).compile(checkpointer=disk.open())
        with child(own, disk.path) as (_process, pipe):
            pipe.recv()
            with pytest.raises(StoreOwned):
                app.invoke({"n": 1}, thread_id="t")

    def test_this_process_is_named_in_another(self, disk):
        with Runtime(disk.open()):
            error = answer(try_to_own, disk.path)
        assert (error.pid, error.host) == (os.getpid(), socket.gethostname())

    def test_an_app_that_has_run_owns_its_store(self, disk):
        with line("g", a=wrote("a")).compile(checkpointer=disk.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert answer(try_to_own, disk.path).pid == os.getpid()

    def test_the_store_is_free_after_the_end(self, disk):
        with Runtime(disk.open()):
            pass
        assert answer(try_to_own, disk.path) == "owner"

    def test_the_store_is_free_after_an_error_in_the_body(self, disk):
        with pytest.raises(ZeroDivisionError), Runtime(disk.open()):
            _ = 1 / 0
        assert answer(try_to_own, disk.path) == "owner"

    @pytest.mark.parametrize("step", ["drain", "_stop_tree"])
    def test_the_store_is_free_after_a_ctrl_c_in_the_end(self, disk, monkeypatch, step):
        runtime = Runtime(disk.open()).start()
        ending = getattr(runtime._core, step)

        def interrupted(*given):
            ending(*given)
            raise KeyboardInterrupt

        monkeypatch.setattr(runtime._core, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            runtime.close()
        Runtime(disk.open()).start().close()

    def test_other_options_for_an_open_store_differ(self, disk):
        with Runtime(disk.open()), pytest.raises(StoreOptionsDiffer):
            LMDBCheckpointer(disk.path, survives="power-loss").acquire()


class TestGraphsAndThreads:
    @pytest.fixture
    def begun(self, place):
        """A place with thread t of graph g."""
        with line("g", a=wrote("a")).compile(checkpointer=place.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        return place

    def test_a_thread_of_another_graph_is_the_wrong_graph(self, begun):
        g, h = line("g", a=wrote("a")).compile(), line("h", a=wrote("a")).compile()
        with Runtime(begun.open(), graphs=[g, h]) as runtime:
            with pytest.raises(WrongGraph, match="'g'"):
                runtime.thread("t", h).ask(Invoke({"n": 1}))

    def test_it_is_the_wrong_graph_even_if_its_own_is_not_there(self, begun):
        h = line("h", a=wrote("a")).compile()
        with Runtime(begun.open(), graphs=[h]) as runtime, pytest.raises(WrongGraph, match="'g'"):
            runtime.thread("t", h).ask(Invoke({"n": 1}))

    def test_a_told_message_to_the_wrong_graph_is_refused(self, begun):
        g, h = line("g", a=wrote("a")).compile(), line("h", a=wrote("a")).compile()
        with Runtime(begun.open(), graphs=[g, h]) as runtime, pytest.raises(WrongGraph):
            runtime.thread("t", h).tell(Invoke({"n": 1}))

    def test_the_state_for_the_wrong_graph_is_refused(self, begun):
        with line("h", a=wrote("a")).compile(checkpointer=begun.open()) as app:
            with pytest.raises(WrongGraph):
                app.get_state("t")

    def test_an_unknown_graph_is_named_with_those_that_are_known(self, memory):
        with Runtime(memory, graphs=[line("g", a=wrote("a")).compile()]) as runtime:
            with pytest.raises(UnknownGraph, match=r"'h'.*it has: g"):
                runtime.thread("t", "h")

    def test_without_a_name_several_graphs_are_ambiguous(self, memory):
        g, h = line("g", a=wrote("a")).compile(), line("h", a=wrote("a")).compile()
        with (
            Runtime(memory, graphs=[g, h]) as runtime,
            pytest.raises(InvalidCall, match="'g', 'h'"),
        ):
            runtime.thread("t")

    def test_a_left_thread_waits_until_its_graph_is_registered(self, disk):
        killed(leave, disk.path, ["t"])
        app = line("g", a=wrote("a"), b=wrote("b")).compile()
        with Runtime(disk.open()) as runtime:
            events = Events(runtime)
            with pytest.raises(UnknownGraph):
                runtime.get_state("t")
            runtime.register(app)
            events.wait(ThreadTakenUp, thread_id="t")
            assert runtime.thread("t").ask(Invoke({"n": 1})).state["log"] == ["a", "b"]

    def test_a_new_registration_of_a_name_is_the_code_of_the_next_run(self, memory):
        with Runtime(memory, graphs=[line("g", a=wrote("old")).compile()]) as runtime:
            runtime.thread("t").ask(Invoke({"n": 1}))
            runtime.register(line("g", a=wrote("new")).compile())
            assert runtime.thread("t").ask(Invoke({"n": 2})).state["log"] == ["old", "new"]

    def test_no_graph_is_no_graph(self, memory):
        with pytest.raises(InvalidCall, match="compile"):
            Runtime(memory, graphs=[line("g", a=wrote("a"))])


class TestCallingSelf:
    @pytest.fixture
    def apps(self, memory):
        """An app whose node calls thread `state["note"]` and tells what came of it."""
        held = []

        def call(state):
            try:
                outcome = held[0].invoke({"n": 1, "note": ""}, thread_id=state["note"])
            except BeamWeaverError as error:
                return {"log": [error.code]}
            return {"log": [outcome.thread_id]}

        def maybe(state):
            return call(state) if state["note"] else {"log": ["leaf"]}

        held.append(line("g", a=maybe).compile(checkpointer=memory))
        with held[0]:
            yield held[0]

    def test_a_node_that_waits_for_its_own_thread_is_told_at_once(self, apps):
        assert apps.invoke({"note": "t"}, thread_id="t").state["log"] == ["calling_self"]

    def test_a_node_may_wait_for_another_thread(self, apps):
        assert apps.invoke({"note": "u"}, thread_id="t").state["log"] == ["u"]

    def test_a_node_may_call_without_a_thread_id(self, apps):
        (made,) = apps.invoke({"note": None} | {"note": "v"}, thread_id="t").state["log"]
        assert made == "v"

    def test_a_node_may_tell_its_own_thread(self, memory):
        held = []

        def tell_once(state):
            if state["n"] == 1:
                held[0].thread("t").tell(Invoke({"n": 2}))
            return {"log": [state["n"]]}

        held.append(line("g", a=tell_once).compile(checkpointer=memory))
        with held[0] as app:
            app.invoke({"n": 1}, thread_id="t")
            assert app.invoke(None, thread_id="t").state["log"][0] == 1

    def test_two_threads_that_wait_for_each_other_are_told(self, memory):
        held = []

        def call(state):
            other = "b" if state["note"] == "a" else "a"
            try:
                held[0].invoke({"note": other}, thread_id=other)
            except BeamWeaverError as error:
                return {"log": [error.code]}
            return {"log": ["called"]}

        held.append(line("g", a=call).compile(checkpointer=memory))
        with held[0] as app:
            assert Caller(app.invoke, {"note": "a"}, thread_id="a").join().state["log"] == [
                "called"
            ]
            assert app.get_state("b").values["log"] == ["calling_self"]


class TestARuntimesLife:
    def test_it_is_not_started_before_the_with_block(self, memory):
        with pytest.raises(InvalidCall, match="not started"):
            Runtime(memory).thread("t")

    def test_it_starts_once(self, memory):
        with Runtime(memory) as runtime, pytest.raises(InvalidCall, match="started before"):
            runtime.start()

    def test_its_end_is_said(self, memory):
        app = line("g", a=wrote("a")).compile()
        with Runtime(memory, graphs=[app]) as runtime:
            thread = runtime.thread("t")
        with pytest.raises(RuntimeStopped):
            runtime.thread("t")
        with pytest.raises(RuntimeStopped):
            thread.tell(Invoke({"n": 1}))

    def test_close_is_idempotent(self, memory):
        with Runtime(memory) as runtime:
            runtime.close()
            runtime.close()

    def test_an_exception_of_the_body_passes(self, memory):
        with pytest.raises(ZeroDivisionError), Runtime(memory):
            _ = 1 / 0

    @pytest.mark.parametrize(
        "options",
        [{"recover": "some"}, {"max_workers": 0}, {"max_workers": "many"}],
        ids=repr,
    )
    def test_an_option_that_is_none_is_refused(self, memory, options):
        with pytest.raises(InvalidCall):
            Runtime(memory, **options)

    def test_a_call_that_waits_when_it_ends_is_answered(self, place):
        gate = Gate()
        app = line("g", a=gate).compile()
        runtime = Runtime(place.open(), graphs=[app]).start()
        waiting = Caller(runtime.thread("t").ask, Invoke({"n": 1}))
        gate.wait()
        closing = Caller(runtime.close)
        outcome = waiting.join()
        gate.open()
        closing.join()
        assert outcome.thread_id == "t"


def in_a_fork(fn):
    """What `fn` gives in a forked child, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(8)
        try:
            text = repr(fn())
        except BaseException as error:
            text = type(error).__name__
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
class TestAfterAFork:
    def test_an_app_without_a_store_runs_in_the_child(self):
        with line("g", a=wrote("a")).compile() as app:
            app.invoke({"n": 1})
            assert in_a_fork(lambda: app.invoke({"n": 1}).state["log"]) == "['a']"

    def test_the_parents_store_is_owned_in_the_child(self, disk):
        with line("g", a=wrote("a")).compile(checkpointer=disk.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert in_a_fork(lambda: app.invoke({"n": 2}, thread_id="t")) == "StoreOwned"

    def test_the_parents_runtime_takes_no_calls_in_the_child(self, disk):
        app = line("g", a=wrote("a")).compile()
        with Runtime(disk.open(), graphs=[app]) as runtime:
            thread = runtime.thread("t")
            assert in_a_fork(lambda: runtime.thread("t")) == "Forked"
            assert in_a_fork(lambda: thread.ask(Invoke({"n": 1}))) == "Forked"

    def test_the_end_of_the_child_leaves_the_parents_runtime_up(self, disk):
        app = line("g", a=wrote("a")).compile()
        with Runtime(disk.open(), graphs=[app]) as runtime:
            runtime.thread("t").ask(Invoke({"n": 1}))
            assert in_a_fork(runtime.close) == "None"
            assert runtime.thread("t").ask(Invoke({"n": 2})).state["n"] == 2

    def test_a_memory_stores_threads_are_the_childs_own(self, memory):
        node = Counted(wrote("a"))
        with line("g", a=node).compile(checkpointer=memory) as app:
            app.invoke({"n": 1}, thread_id="t")
            in_a_fork(lambda: app.invoke({"n": 2}, thread_id="t"))
            assert app.get_state("t").values["n"] == 1


def test_a_second_close_returns_when_the_store_is_free(place):
    gate = Gate({"log": ["a"]})
    app = line("g", a=gate).compile()
    runtime = Runtime(place.open(), graphs=[app]).start()
    runtime.thread("t").tell(Invoke({"n": 1}))
    gate.wait()
    closing = [threading.Thread(target=runtime.close) for _ in range(3)]
    for thread in closing:
        thread.start()
    runtime.close()
    with Runtime(place.open(), graphs=[app]) as following:
        assert following.get_state("t").status != "complete"
        gate.open()
    for thread in closing:
        thread.join()
