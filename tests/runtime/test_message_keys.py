"""`idempotency_key=`: a message is taken once, however often it comes."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import Cancel, Command, Continue, Invoke, Resume, Runtime, interrupt
from beamweaver.errors import (
    AlreadyAnswered,
    CallRefused,
    IdempotencyKeyReused,
    InboxFull,
    InvalidCall,
    NodeFailed,
    NothingToResume,
    UnknownRun,
)
from beamweaver.events import MessageRejected, RunAdmitted, RunEnded
from beamweaver.limits import Limits
from beamweaver.runtime import hub
from supervisors import ActorSystem
from supervisors.testing import DeterministicScheduler, eventually
from tests.runtime.children import child, killed, tell_and_die, tell_keyed_and_die
from tests.runtime.kit import Caller, Events, Gate, line, wrote


def plain():
    return line("g", a=wrote("a")).compile()


def counts():
    """A graph that adds one to what it has."""
    return line("g", add=lambda s: {"n": s.get("n", 0) + 1}).compile()


class TestTell:
    def test_a_repeated_key_returns_the_first_receipt_and_runs_nothing(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            first = thread.tell(Invoke({"n": 1}), idempotency_key="k")
            thread.ask(Continue(), timeout=10)
            assert thread.tell(Invoke({"n": 1}), idempotency_key="k") == first
            assert thread.ask(Continue(), timeout=10).run_id == first.run_id
            assert len(events.of(RunAdmitted)) == 1

    def test_without_a_key_each_message_is_one_of_its_own(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            first = thread.tell(Invoke({"n": 1}), idempotency_key="k")
            thread.ask(Continue(), timeout=10)
            assert thread.tell(Invoke({"n": 1})) != first

    def test_it_holds_when_other_runs_came_between(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            first = thread.tell(Invoke({"n": 1}), idempotency_key="k")
            for n in (2, 3):
                thread.ask(Invoke({"n": n}), timeout=10)
            assert thread.tell(Invoke({"n": 1}), idempotency_key="k") == first
            assert thread.get_state().values["n"] == 3

    def test_it_holds_for_a_message_that_waits_behind_a_run(self, store):
        gate = Gate({"log": ["gate"]})
        with Runtime(store, graphs=[line("g", gate=gate).compile()]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 1}))
            gate.wait()
            first = thread.tell(Invoke({"n": 2}), idempotency_key="k")
            assert thread.tell(Invoke({"n": 2}), idempotency_key="k") == first
            asked = Caller(thread.ask, Invoke({"n": 2}), idempotency_key="k", timeout=10)
            gate.open()
            assert asked.join().state == {"n": 2, "log": ["gate", "gate"]}
            assert asked.value.run_id == first.run_id
            assert len(events.of(RunAdmitted)) == 2

    def test_keys_belong_to_their_thread(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            one = runtime.thread("t").tell(Invoke({"n": 1}), idempotency_key="k")
            other = runtime.thread("u").tell(Invoke({"n": 1}), idempotency_key="k")
            assert one.id != other.id
            assert runtime.thread("u").ask(Continue(), timeout=10).run_id == other.run_id

    def test_it_holds_after_a_restart(self, disk):
        with Runtime(disk.open(), graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            first = thread.tell(Invoke({"n": 1}), idempotency_key="k")
            thread.ask(Continue(), timeout=10)
        with Runtime(disk.open(), graphs=[plain()]) as runtime:
            events = Events(runtime)
            assert runtime.thread("t").tell(Invoke({"n": 1}), idempotency_key="k") == first
            assert events.of(RunAdmitted) == []

    def test_another_message_under_the_key_is_refused(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            first = thread.tell(Invoke({"n": 1}), idempotency_key="k")
            with pytest.raises(IdempotencyKeyReused, match="'k'") as caught:
                thread.tell(Invoke({"n": 2}), idempotency_key="k")
            assert (caught.value.key, caught.value.message_id) == ("k", first.id)
            with pytest.raises(IdempotencyKeyReused):
                thread.ask(Continue(), idempotency_key="k")
            assert thread.tell(Invoke({"n": 1}), idempotency_key="k") == first

    def test_limits_and_notes_of_a_call_do_not_make_it_another_message(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            first = thread.tell(Invoke({"n": 1}, tags=["one"]), idempotency_key="k")
            again = Invoke({"n": 1}, tags=["two"], run_timeout=5, on_busy="reject")
            assert thread.tell(again, idempotency_key="k") == first

    def test_the_key_of_a_message_that_was_refused_is_free(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            with pytest.raises(NothingToResume):
                thread.tell(Resume("yes"), idempotency_key="k")
            thread.ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
            with pytest.raises(NothingToResume):
                thread.tell(Resume("yes"), idempotency_key="l")
            assert thread.tell(Invoke({"n": 2}), idempotency_key="l").run_id

    def test_a_message_that_joins_a_run_keeps_its_key_too(self, store):
        gate = Gate()
        with Runtime(store, graphs=[line("g", gate=gate).compile()]) as runtime:
            thread = runtime.thread("t")
            run = thread.tell(Invoke({"n": 1})).run_id
            gate.wait()
            joined = thread.tell(Continue(), idempotency_key="k")
            gate.open()
            thread.ask(Invoke({"n": 2}), timeout=10)
            assert joined.run_id == run
            assert thread.tell(Continue(), idempotency_key="k") == joined


class TestAnswers:
    def test_an_answer_that_comes_twice_is_given_to_one_question(self, store):
        def two(_state):
            return {"log": [interrupt("first?", key="1"), interrupt("second?", key="2")]}

        with Runtime(store, graphs=[line("g", two=two).compile()]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Invoke({"n": 1}), timeout=10)
            asked = thread.ask(Resume("one"), idempotency_key="k", timeout=10)
            again = thread.ask(Resume("one"), idempotency_key="k", timeout=10)
            assert asked.interrupt.value == again.interrupt.value == "second?"
            assert thread.ask(Resume("two"), timeout=10).state["log"] == ["one", "two"]

    def test_a_rejected_message_is_rejected_again(self, store):
        gate = Gate()
        app = line("g", ask=lambda _s: {"log": [interrupt("?")]}, gate=gate).compile()
        with Runtime(store, graphs=[app]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            question = thread.ask(Invoke({"n": 1}), timeout=10).interrupt
            thread.tell(Resume({question.id: "yes"}))
            gate.wait()
            first = thread.tell(Resume({question.id: "again"}), idempotency_key="k")
            gate.open()
            events.wait(MessageRejected)
            with pytest.raises(AlreadyAnswered, match=question.id):
                thread.ask(Resume({question.id: "again"}), idempotency_key="k")
            assert thread.tell(Resume({question.id: "again"}), idempotency_key="k") == first
            assert len(thread.rejected()) == 1

    def test_a_command_that_answers_and_amends_has_one_key(self, store):
        app = line("g", ask=lambda s: {"log": [interrupt("?"), s["note"]]}).compile()
        with Runtime(store, graphs=[app]) as runtime:
            thread = runtime.thread("t")
            thread.ask(Invoke({"note": "old"}), timeout=10)
            both = Invoke(Command(update={"note": "new"}, resume="yes"))
            done = thread.ask(both, idempotency_key="k", timeout=10)
            assert done.state["log"] == ["yes", "new"]
            assert thread.ask(both, idempotency_key="k", timeout=10).state == done.state


class TestAsk:
    def test_a_repeated_key_gets_the_outcome_of_the_first_run(self, store):
        with Runtime(store, graphs=[counts()]) as runtime:
            thread = runtime.thread("t")
            first = thread.ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
            thread.ask(Invoke({"n": 7}), timeout=10)
            again = thread.ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
            assert (again.state, again.run_id) == (first.state, first.run_id)
            assert again.state["n"] == 2

    def test_two_at_once_are_one(self, store):
        gate = Gate({"note": "done"})
        with Runtime(store, graphs=[line("g", gate=gate).compile()]) as runtime:
            thread = runtime.thread("t")
            both = [
                Caller(thread.ask, Invoke({"n": 1}), idempotency_key="k", timeout=10)
                for _ in range(2)
            ]
            gate.wait()
            gate.open()
            assert {caller.join().run_id for caller in both} == {both[0].value.run_id}
            assert gate.runs == 1

    def test_a_failed_run_is_told_and_not_tried_again(self, store):
        runs = []

        def fails(_state):
            runs.append(1)
            raise OSError("down")

        with Runtime(store, graphs=[line("g", fails=fails).compile()]) as runtime:
            thread = runtime.thread("t")
            for _ in range(2):
                with pytest.raises(NodeFailed, match="down"):
                    thread.ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
            assert len(runs) == 1

    def test_a_run_that_was_forgotten_is_said(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t")
            run = thread.ask(Invoke({"n": 1}), idempotency_key="k", timeout=10).run_id
            thread.ask(Invoke({"n": 2}), timeout=10)
            runtime.delete_runs("t", [run])
            with pytest.raises(UnknownRun, match=run):
                thread.ask(Invoke({"n": 1}), idempotency_key="k")
            assert thread.tell(Invoke({"n": 1}), idempotency_key="k").run_id == run

    def test_a_run_of_a_dead_process_goes_on_for_the_same_message(self, disk):
        (first,) = killed(tell_keyed_and_die, disk.path, "", 1)
        with Runtime(disk.open(), graphs=[plain()], recover="called") as runtime:
            events = Events(runtime)
            outcome = runtime.thread("t").ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
            assert outcome.state == {"n": 1, "log": ["a"]}
            assert outcome.run_id == first.run_id
            assert events.of(RunAdmitted) == []


class TestRunsOfDeadProcesses:
    """A message with a key is never taken for the call of a dead process, made again."""

    def gated(self, gate):
        return line("g", a=gate, b=lambda s: {"log": [s["n"]]}).compile()

    @pytest.mark.parametrize("n", [7, 8])
    def test_it_waits_behind_a_run_that_was_taken_up(self, disk, n):
        killed(tell_and_die, disk.path, "t", 7)
        gate = Gate()
        with Runtime(disk.open(), graphs=[self.gated(gate)]) as runtime:
            gate.wait()
            thread = runtime.thread("t")
            receipt = thread.tell(Invoke({"n": n}), idempotency_key="k")
            gate.open()
            done = thread.ask(Invoke({"n": n}), idempotency_key="k", timeout=10)
            assert (done.run_id, done.state["log"]) == (receipt.run_id, [7, n])

    @pytest.mark.parametrize("n", [7, 8])
    def test_so_it_does_behind_one_that_nobody_took_up(self, disk, n):
        killed(tell_and_die, disk.path, "t", 7)
        gate = Gate()
        gate.open()
        with Runtime(disk.open(), graphs=[self.gated(gate)], recover="called") as runtime:
            thread = runtime.thread("t")
            done = thread.ask(Invoke({"n": n}), idempotency_key="k", timeout=10)
            assert done.state["log"] == [7, n]
            assert done.run_id != "run-7"

    def test_so_it_does_when_that_run_is_complete(self, disk):
        killed(tell_and_die, disk.path, "t", 7)
        gate = Gate()
        gate.open()
        with Runtime(disk.open(), graphs=[self.gated(gate)]) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            eventually(lambda: thread.get_state().status == "complete")
            thread.tell(Invoke({"n": 7}), idempotency_key="k")
            events.wait(RunAdmitted)
            assert thread.ask(Continue(), timeout=10).state["log"] == [7, 7]


class TestAsync:
    def test_the_awaitable_twins_take_keys(self, store):
        async def main():
            async with Runtime(store, graphs=[plain()]) as runtime:
                thread = runtime.thread("t")
                first = await thread.atell(Invoke({"n": 1}), idempotency_key="k")
                done = await thread.aask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
                assert done.run_id == first.run_id
                assert await thread.atell(Invoke({"n": 1}), idempotency_key="k") == first

        asyncio.run(main())


class TestBounds:
    @pytest.mark.parametrize("key", ["", 7, "a\0b", "\ud800", "k" * 201])
    def test_an_unfit_key_is_refused_at_once(self, memory, key):
        with Runtime(memory, graphs=[plain()]) as runtime:
            with pytest.raises(InvalidCall, match="idempotency_key"):
                runtime.thread("t").tell(Invoke({"n": 1}), idempotency_key=key)

    def test_a_cancel_takes_none(self, memory):
        with Runtime(memory, graphs=[plain()]) as runtime:
            with pytest.raises(InvalidCall, match="a cancel takes none"):
                runtime.thread("t").tell(Cancel(), idempotency_key="k")

    def test_the_longest_thread_id_takes_the_longest_key(self, store):
        with Runtime(store, graphs=[plain()]) as runtime:
            thread = runtime.thread("t" * 256)
            first = thread.tell(Invoke({"n": 1}), idempotency_key="é" * 100)
            assert thread.tell(Invoke({"n": 1}), idempotency_key="é" * 100) == first

    def test_a_key_is_kept_for_seven_days(self, memory):
        scheduler = DeterministicScheduler(seed=1)
        system = ActorSystem(scheduler)
        with Runtime(memory, graphs=[counts()], system=system, seed=1) as runtime:
            thread = runtime.thread("t")
            days = []
            for _day in range(16):
                days.append(thread.ask(Invoke({"n": 0}), idempotency_key="k").run_id)
                scheduler.run_for(86_400)
        first = days[0]
        assert [day == first for day in days[:8]] == [True] * 8
        assert days[8] != first
        assert len(set(days)) == 2

    def test_beyond_their_number_the_oldest_are_forgotten_and_that_is_said_once(
        self, memory, monkeypatch
    ):
        said = []
        monkeypatch.setattr(hub, "logger", lambda _name: Log(said))
        with Runtime(memory, graphs=[plain()], limits=Limits(message_keys=3)) as runtime:
            thread = runtime.thread("t")
            receipts = [thread.tell(Invoke({"n": n}), idempotency_key=f"k{n}") for n in range(1, 6)]
            thread.ask(Continue(), timeout=10)
            again = [thread.tell(Invoke({"n": n}), idempotency_key=f"k{n}") for n in (3, 4, 5)]
            assert again == receipts[2:]
            assert thread.tell(Invoke({"n": 1}), idempotency_key="k1") != receipts[0]
        assert [name for name, _ in said] == ["idempotency_keys_full"]
        assert said[0][1]["thread_id"] == "t"

    def test_messages_beyond_the_inbox_are_refused(self, memory):
        gate = Gate()
        with Runtime(
            memory, graphs=[line("g", gate=gate).compile()], limits=Limits(inbox=2)
        ) as runtime:
            events = Events(runtime)
            thread = runtime.thread("t")
            thread.tell(Invoke({"n": 0}))
            gate.wait()
            first = thread.tell(Invoke({"n": 1}), idempotency_key="k")
            thread.tell(Invoke({"n": 2}))
            with pytest.raises(InboxFull, match=r"limits\.inbox"):
                thread.tell(Invoke({"n": 3}), idempotency_key="l")
            assert issubclass(InboxFull, CallRefused)
            assert thread.tell(Invoke({"n": 1}), idempotency_key="k") == first
            gate.open()
            events.wait(RunEnded, count=3)
            assert thread.tell(Invoke({"n": 3}), idempotency_key="l").run_id


class Log:
    def __init__(self, said):
        self.said = said

    def warning(self, name, **fields):
        self.said.append((name, fields))


@pytest.mark.parametrize("point", ["writer.group", "writer.synced", "writer.acknowledged", ""])
def test_a_kill_between_message_and_receipt_leaves_one_message(disk, point):
    told = killed(tell_keyed_and_die, disk.path, point, 1)
    with Runtime(disk.open(), graphs=[plain()]) as runtime:
        thread = runtime.thread("t")
        receipt = thread.tell(Invoke({"n": 1}), idempotency_key="k")
        done = thread.ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
        assert done.state == {"n": 1, "log": ["a"]}, point
        assert done.run_id == receipt.run_id
        if told:
            assert told == [receipt]
        runs = {state.metadata["run_id"] for state in runtime.get_state_history("t")}
        assert runs == {receipt.run_id}, f"the message was taken twice at {point!r}"


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(1, 7))
def test_a_message_behind_a_run_is_taken_once_over_a_kill(disk, nth):
    with child(tell_behind_keyed, disk.path, nth) as (process, _pipe):
        process.join(15)
    app = line("g", a=wrote("a")).compile()
    with Runtime(disk.open(), graphs=[app]) as runtime:
        thread = runtime.thread("t")
        thread.ask(Invoke({"n": 1}), idempotency_key="one", timeout=10)
        done = thread.ask(Invoke({"n": 2}), idempotency_key="two", timeout=10)
        assert done.state == {"n": 2, "log": ["a", "a"]}, f"point {nth}"


def tell_behind_keyed(pipe, path, nth):
    from tests.runtime.children import kill_at, store_at

    app = line("g", a=wrote("a")).compile()
    runtime = Runtime(store_at(path), graphs=[app], fault=kill_at("writer.synced", nth)).start()
    thread = runtime.thread("t")
    thread.tell(Invoke({"n": 1}), idempotency_key="one")
    thread.tell(Invoke({"n": 2}), idempotency_key="two")
    thread.ask(Continue(), timeout=10)
    runtime.close()
