"""Told messages that only the thread can judge: consumed, told as events, and kept for who asks."""

from __future__ import annotations

import datetime as dt

import pytest

from beamweaver import Continue, Interrupted, Invoke, Resume, Runtime, interrupt
from beamweaver.errors import AlreadyAnswered, NothingToResume
from beamweaver.events import MessageRejected
from beamweaver.limits import Limits
from tests.runtime.kit import Events, Gate, line, wrote


def asks_behind(gate):
    """A question, then a node that waits at a gate."""
    return line("g", ask=lambda _s: {"log": [interrupt("?")]}, gate=gate).compile()


def test_what_is_judged_at_once_is_raised_and_not_kept(store):
    app = line("g", a=wrote("a")).compile()
    with Runtime(store, graphs=[app]) as runtime:
        thread = runtime.thread("t", graph=app)
        with pytest.raises(NothingToResume):
            thread.tell(Resume("yes"))
        assert thread.rejected() == ()
        thread.ask(Invoke({"n": 1}))
        with pytest.raises(NothingToResume):
            thread.tell(Resume("yes"))
        assert thread.rejected() == ()


def test_an_answer_behind_a_run_whose_question_was_answered_is_rejected(store):
    gate = Gate({"log": ["gate"]})
    app = asks_behind(gate)
    with Runtime(store, graphs=[app]) as runtime:
        events = Events(runtime)
        thread = runtime.thread("t", graph=app)
        question = thread.ask(Invoke({"n": 1})).interrupt
        thread.tell(Resume({question.id: "yes"}))
        gate.wait()
        receipt = thread.tell(Resume({question.id: "again"}))
        assert thread.rejected() == ()
        gate.open()
        event = events.wait(MessageRejected)
        assert (event.message_id, event.code) == (receipt.id, "already_answered")
        (rejected,) = thread.rejected()
        assert (rejected.id, rejected.kind, rejected.code) == (receipt.id, "resume", event.code)
        assert question.id in rejected.message
        assert rejected.at.tzinfo is dt.UTC
        assert thread.ask(Continue()).state["log"] == ["yes", "gate"]
        with pytest.raises(AlreadyAnswered):
            thread.ask(Resume({question.id: "again"}))
        assert len(thread.rejected()) == 1, (
            "a caller who waits hears the error, and nothing is kept"
        )


def test_it_is_kept_over_runs_and_processes(place):
    gate = Gate({"log": ["gate"]})
    app = line("g", gate=gate).compile()
    with Runtime(place.open(), graphs=[app]) as runtime:
        events = Events(runtime)
        thread = runtime.thread("t", graph=app)
        thread.tell(Invoke({"n": 1}))
        gate.wait()
        thread.tell(Resume("to nobody"))
        gate.open()
        events.wait(MessageRejected)
        thread.ask(Invoke({"n": 2}))
        assert [each.code for each in thread.rejected()] == ["nothing_to_resume"]
    with Runtime(place.open(), graphs=[app]) as runtime:
        assert len(runtime.thread("t", graph=app).rejected()) == 1


def test_the_next_process_rejects_what_waited(disk):
    gate = Gate({"log": ["gate"]})
    app = line("g", gate=gate).compile()
    with Runtime(disk.open(), graphs=[app]) as runtime:
        thread = runtime.thread("t", graph=app)
        thread.tell(Invoke({"n": 1}))
        gate.wait()
        thread.tell(Resume("to nobody"))
        runtime.drain(timeout=0.0)
    gate.open()
    with Runtime(disk.open(), graphs=[app], recover="called") as runtime:
        events = Events(runtime)
        thread = runtime.thread("t", graph=app)
        thread.ask(Continue())
        events.wait(MessageRejected)
        assert [each.code for each in thread.rejected()] == ["nothing_to_resume"]


def test_the_last_ones_are_kept(memory):
    gate = Gate({"log": ["gate"]})
    app = line("g", gate=gate).compile()
    with Runtime(memory, graphs=[app], limits=Limits(rejected=2)) as runtime:
        events = Events(runtime)
        thread = runtime.thread("t", graph=app)
        thread.tell(Invoke({"n": 1}))
        gate.wait()
        told = [thread.tell(Resume(n)).id for n in range(3)]
        gate.open()
        events.wait(MessageRejected, count=3)
        assert [each.id for each in thread.rejected()] == told[1:]


def test_the_next_messages_have_their_turn_behind_it(store):
    gate = Gate({"log": ["gate"]})
    app = asks_behind(gate)
    with Runtime(store, graphs=[app]) as runtime:
        thread = runtime.thread("t", graph=app)
        question = thread.ask(Invoke({"n": 1})).interrupt
        thread.tell(Resume({question.id: "yes"}))
        gate.wait()
        thread.tell(Resume({question.id: "again"}))
        thread.tell(Invoke({"n": 2}))
        gate.open()
        outcome = thread.ask(Invoke({"n": 3}))
        assert type(outcome) is Interrupted
        assert outcome.state["n"] in (2, 3)
        assert [each.code for each in thread.rejected()] == ["already_answered"]


def test_a_thread_that_does_not_exist_has_rejected_nothing(store):
    app = line("g", a=wrote("a")).compile()
    with Runtime(store, graphs=[app]) as runtime:
        assert runtime.thread("nobody", graph=app).rejected() == ()
