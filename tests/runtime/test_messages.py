"""`tell` and `ask`: what is durable when, and what becomes of messages that wait."""

from __future__ import annotations

import pytest

from beamweaver import Cancel, Continue, Interrupted, Invoke, Receipt, Resume, Runtime, interrupt
from beamweaver.errors import (
    AskTimeout,
    CallRefused,
    InvalidCall,
    InvalidUpdate,
    NodeFailed,
    NothingToContinue,
    NothingToResume,
    SerializationError,
    ThreadBusy,
    UnknownChannel,
)
from beamweaver.events import RunEnded
from beamweaver.limits import Limits
from supervisors.testing import eventually
from tests.runtime.children import (
    answer_and_die,
    ask_and_die,
    killed,
    reviewed,
    tell_and_die,
    tell_behind_and_die,
)
from tests.runtime.kit import Caller, Counted, Events, Gate, line, wrote


def plain(name="g"):
    return line(name, a=wrote("a"), b=wrote("b")).compile()


class TestTellIsDurable:
    def test_a_run_goes_on_whose_process_died_right_after_tell(self, disk):
        killed(tell_and_die, disk.path, "t", 7)
        with Runtime(disk.open(), graphs=[plain()]) as runtime:
            outcome = runtime.thread("t").ask(Continue(), timeout=10)
        assert outcome.state == {"n": 7, "log": ["a", "b"]}

    def test_it_has_the_run_id_that_it_was_given(self, disk):
        killed(tell_and_die, disk.path, "t", 7)
        with Runtime(disk.open(), graphs=[plain()]) as runtime:
            outcome = runtime.thread("t").ask(Invoke({"n": 7}, run_id="run-7"), timeout=10)
        assert outcome.run_id == "run-7"
        assert outcome.state["log"] == ["a", "b"]

    def test_messages_behind_a_run_survive_the_process(self, disk):
        receipts = killed(tell_behind_and_die, disk.path, 3)
        app = line("g", a=lambda s: {"log": [s["n"]]}, b=lambda _s: None).compile()
        with Runtime(disk.open(), graphs=[app]) as runtime:
            thread = runtime.thread("t")
            eventually(lambda: thread.get_state().values.get("log") == [0, 1, 2, 3])
        assert all(isinstance(receipt, Receipt) for receipt in receipts)
        assert len({receipt.id for receipt in receipts}) == 3

    def test_an_answer_that_was_told_survives_the_process(self, disk):
        killed(ask_and_die, disk.path, "t")
        killed(answer_and_die, disk.path, "t")
        with Runtime(disk.open(), graphs=[reviewed()]) as runtime:
            outcome = runtime.thread("t").ask(Continue(), timeout=10)
        assert outcome.state["log"] == ["yes", "b"]

    def test_an_answer_goes_on_after_a_restart_of_the_process(self, disk):
        killed(ask_and_die, disk.path, "t")
        with Runtime(disk.open(), graphs=[reviewed()]) as runtime:
            thread = runtime.thread("t")
            assert thread.get_state().status == "waiting"
            thread.tell(Resume("yes"))
            assert thread.ask(Continue(), timeout=10).state["log"] == ["yes", "b"]


class TestReceipts:
    def test_a_receipt_names_the_run(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            assert thread.tell(Invoke({"n": 1}, run_id="R")).run_id == "R"
            assert thread.ask(Continue(), timeout=10).run_id == "R"

    def test_ask_timeout_carries_a_receipt_and_the_run_goes_on(self, store):
        gate = Gate({"log": ["a"]})
        with Runtime(store, graphs=[line("g", a=gate).compile()]) as runtime:
            thread = runtime.thread("t")
            with pytest.raises(AskTimeout) as caught:
                thread.ask(Invoke({"n": 1}), timeout=0.01)
            gate.open()
            outcome = thread.ask(Continue(), timeout=10)
        assert caught.value.receipt.run_id == outcome.run_id
        assert (outcome.state["log"], gate.runs) == (["a"], 1)

    def test_two_messages_have_two_ids(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            assert thread.tell(Invoke({"n": 1})).id != thread.tell(Invoke({"n": 1})).id


class TestRefusedAtOnce:
    @pytest.fixture
    def thread(self, memory):
        with Runtime(memory, graphs=[plain()]) as runtime:
            yield runtime.thread("t")

    @pytest.mark.parametrize(
        ("message", "error"),
        [
            ({"n": 1}, InvalidCall),
            (Invoke({"m": 1}), UnknownChannel),
            (Invoke({"n": "one"}), InvalidUpdate),
            (Invoke(7), InvalidUpdate),
            (Invoke({"log": [print]}), SerializationError),
            (Invoke({"n": 1}, run_id=""), InvalidCall),
            (Invoke({"n": 1}, run_id="r" * 129), InvalidCall),
            (Invoke({"n": 1}, on_busy="wait"), InvalidCall),
            (Invoke({"n": 1}, on_unfinished="stop"), InvalidCall),
            (Invoke({"n": 1}, recursion_limit=0), InvalidCall),
            (Continue(), NothingToContinue),
            (Resume("yes"), NothingToResume),
        ],
        ids=lambda value: repr(value)[:40],
    )
    @pytest.mark.parametrize("verb", ["tell", "ask"])
    def test_what_is_wrong_with_a_message_is_said_to_its_sender(self, thread, verb, message, error):
        with pytest.raises(error):
            getattr(thread, verb)(message)
        assert thread.get_state() is None

    def test_a_cancel_of_a_thread_that_does_not_exist_is_refused(self, thread):
        with pytest.raises(CallRefused, match="'t' does not exist"):
            thread.ask(Cancel())


class TestBehindARun:
    @pytest.fixture
    def gate(self):
        return Gate()

    @pytest.fixture
    def gated(self, store, gate):
        """A runtime whose thread t waits at the gate when `n` is 0."""

        def node(state):
            if state["n"] == 0:
                gate(state)
            return {"log": [state["n"]]}

        with Runtime(store, graphs=[line("g", a=node).compile()]) as runtime:
            runtime.thread("t").tell(Invoke({"n": 0}))
            gate.wait()
            yield runtime
            gate.open()

    def test_they_run_in_order_of_arrival(self, gated, gate):
        thread = gated.thread("t")
        for n in range(1, 5):
            thread.tell(Invoke({"n": n}))
        last = Caller(thread.ask, Invoke({"n": 5}))
        eventually(lambda: gated.statistics().waiting_calls == 1)
        gate.open()
        assert last.join().state["log"] == [0, 1, 2, 3, 4, 5]

    def test_reject_is_busy(self, gated):
        with pytest.raises(ThreadBusy, match="on_busy='queue'"):
            gated.thread("t").ask(Invoke({"n": 1}, on_busy="reject"))

    def test_an_inbox_that_is_full_refuses(self, memory):
        gate = Gate()
        app = line("g", a=gate).compile()
        with Runtime(memory, graphs=[app], limits=Limits(queued_calls=2)) as runtime:
            thread = runtime.thread("t")
            for n in range(3):
                thread.tell(Invoke({"n": n}))
            with pytest.raises(CallRefused, match=r"limits\.queued_calls"):
                thread.tell(Invoke({"n": 3}))
            gate.open()

    def test_an_answer_behind_a_run_that_asks_is_its_answer(self, store):
        gate = Gate()

        def node(state):
            if not gate.opened.is_set():
                gate(state)
            return {"log": [interrupt("?")]}

        with Runtime(store, graphs=[line("g", a=node).compile()]) as runtime:
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()
            answered = Caller(thread.ask, Resume("yes"))
            eventually(lambda: runtime.statistics().waiting_calls == 1)
            gate.open()
            assert answered.join().state["log"] == ["yes"]

    def test_a_told_message_that_its_turn_refuses_is_gone_for_good(self, place):
        """A stale answer must never meet a later question."""
        gate = Gate()

        def node(state):
            if state["n"] == 0:
                gate(state)
                return {"log": [0]}
            return {"log": [interrupt("?")]}

        app = line("g", a=node).compile()
        with Runtime(place.open(), graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 0}))
            gate.wait()
            thread.tell(Resume("stale"))
            gate.open()
            events.wait(RunEnded, status="complete")
            assert isinstance(thread.ask(Invoke({"n": 1})), Interrupted)
        with Runtime(place.open(), graphs=[app]) as runtime:
            assert isinstance(runtime.thread("t").ask(Continue()), Interrupted)
            assert len(place.open().load("t").inbox) == 0


class TestHeldBehindAFailingRun:
    @pytest.fixture
    def broken(self):
        return [True]

    @pytest.fixture
    def app(self, broken):
        self.gate = Gate()

        def node(state):
            if state["n"] == 0:
                self.gate(state)
                if broken:
                    raise ValueError("broken")
            return {"log": [state["n"]]}

        self.node = Counted(node)
        return line("g", a=self.node).compile()

    def test_told_ones_wait_for_a_continuation(self, store, app, broken):
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 0}))
            self.gate.wait()
            thread.tell(Invoke({"n": 1}))
            self.gate.open()
            events.wait(RunEnded, status="failed")
            assert self.node.runs == 1
            broken.clear()
            thread.ask(Continue())
            eventually(lambda: thread.get_state().values["log"] == [0, 1])

    def test_waiting_ones_get_that_failure(self, store, app, broken):
        with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 0}))
            self.gate.wait()
            waiting = Caller(thread.ask, Invoke({"n": 1}))
            eventually(lambda: runtime.statistics().waiting_calls == 1)
            self.gate.open()
            with pytest.raises(NodeFailed, match="broken"):
                waiting.join()
            broken.clear()
            assert thread.ask(Continue()).state["log"] == [0], "it was withdrawn"

    def test_held_ones_survive_a_restart(self, place, app, broken):
        with Runtime(place.open(), graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 0}))
            self.gate.wait()
            thread.tell(Invoke({"n": 1}))
            self.gate.open()
            events.wait(RunEnded, status="failed")
        broken.clear()
        with Runtime(place.open(), graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Continue())
            eventually(lambda: thread.get_state().values["log"] == [0, 1])
