"""Clients whose owner is not there, or cannot take what they send; and clients in forked processes."""

from __future__ import annotations

import asyncio
import re

import pytest

from beamweaver import Cancel, Completed, Interrupted, Invoke, Runtime, interrupt
from beamweaver.errors import AskTimeout, Forked, InvalidCall, RuntimeStopped
from beamweaver.events import MessageWaits
from supervisors.testing import eventually
from tests.runtime.kit import Events, Gate, line, wrote
from tests.runtime.senders import adding
from tests.runtime.test_ownership import in_a_fork


@pytest.fixture
def made(disk):
    """Opens owners and clients of one store."""
    opened = []

    def open_(role, *graphs, **options):
        runtime = Runtime(disk.open(), graphs=list(graphs), role=role, **options).start()
        opened.append(runtime)
        return runtime

    yield open_
    for runtime in reversed(opened):
        runtime.close()


@pytest.fixture
def alone(made):
    """A client of a store whose owner has ended, after it completed thread `t`."""
    owner = made("owner", adding().compile())
    owner.thread("t").ask(Invoke({"n": 1}))
    owner.close()
    return made("client", adding().compile())


def timed_out(call, text="no process owns|has not taken"):
    """The error of a call whose time is over, once its message has come so far."""

    def tried():
        with pytest.raises(AskTimeout) as caught:
            call()
        return caught.value if re.search(text, caught.value.message) else None

    return eventually(tried)


def left_in(client):
    return [found.name for found in client._core.spool.waiting()]


class TestCancel:
    def test_of_a_complete_thread_needs_no_owner(self, alone):
        outcome = alone.thread("t").cancel()
        assert isinstance(outcome, Completed)
        assert outcome.state["log"] == [1]
        assert left_in(alone) == []

    def test_of_an_interrupted_thread_needs_no_owner(self, made):
        graph = line("g", ask=lambda _state: {"log": [interrupt("ok?")]})
        owner = made("owner", graph.compile())
        owner.thread("t").ask(Invoke({"n": 1}))
        owner.close()
        outcome = made("client", graph.compile()).thread("t").cancel()
        assert isinstance(outcome, Interrupted)
        assert outcome.interrupt.value == "ok?"

    def test_of_a_thread_for_which_a_message_waits_waits_behind_it(self, alone):
        alone.thread("t").tell(Invoke({"n": 2}))
        with pytest.raises(AskTimeout):
            alone.thread("t").cancel(timeout=0)

    def test_is_not_held_up_by_messages_for_others(self, alone):
        alone.thread("u").tell(Invoke({"n": 2}))
        assert isinstance(alone.thread("t").cancel(timeout=0), Completed)

    def test_of_a_run_that_a_dead_owner_left_says_that_it_waits_for_an_owner(self, made):
        gate = Gate()
        graph = line("g", gate=gate)
        owner = made("owner", graph.compile())
        owner.thread("t").tell(Invoke({"n": 1}))
        gate.wait()
        owner.close()
        client = made("client", graph.compile())
        error = timed_out(lambda: client.thread("t").cancel(timeout=0.05))
        assert "waits for an owner" in error.message
        assert "no process owns the store" in error.message
        gate.open()

    @pytest.mark.parametrize("timeout", [-1, "5", True])
    def test_a_timeout_that_is_none_is_refused_at_once(self, alone, timeout):
        with pytest.raises(InvalidCall, match="timeout is"):
            alone.thread("t").cancel(timeout=timeout)

    def test_of_a_bound_graph_has_a_timeout(self, made, disk):
        bound = adding().compile(checkpointer=disk.open())
        with bound:
            bound.invoke({"n": 1}, thread_id="t")
        client = made("client", adding().compile())
        assert isinstance(bound.cancel("t", timeout=0), Completed)
        client.thread("t").tell(Invoke({"n": 2}))
        with pytest.raises(AskTimeout):
            bound.cancel("t", timeout=0)
        bound.close()

    def test_a_timeout_of_an_owner_says_that_bodies_run(self, made):
        gate = Gate()
        owner = made("owner", line("g", gate=gate).compile())
        owner.thread("t").tell(Invoke({"n": 1}))
        gate.wait()
        with pytest.raises(AskTimeout, match="being cancelled"):
            owner.thread("t").cancel(timeout=0)
        gate.open()


class TestACallOfABoundGraph:
    @pytest.fixture
    def bound(self, made, disk):
        """A graph whose calls go to an owner that has ended."""
        with adding().compile(checkpointer=disk.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        made("client", adding().compile())
        return app

    @pytest.mark.parametrize("call", ["invoke", "resume"])
    def test_waits_no_longer_than_it_may_and_says_for_what(self, bound, call):
        call = getattr(bound, call)
        error = timed_out(lambda: call({"n": 2}, thread_id="t", timeout=0.05))
        assert "no process owns the store" in error.message

    @pytest.mark.parametrize("call", ["ainvoke", "aresume"])
    def test_so_does_its_awaitable_twin(self, bound, call):
        call = getattr(bound, call)
        error = timed_out(lambda: asyncio.run(call({"n": 2}, thread_id="t", timeout=0.05)))
        assert "no process owns the store" in error.message

    def test_judges_its_timeout_at_once(self, bound):
        with pytest.raises(InvalidCall, match="timeout is"):
            bound.invoke({"n": 1}, thread_id="t", timeout=-1)


class TestWhatIsWaitedFor:
    def test_an_ask_without_an_owner_does_not_claim_that_a_run_goes_on(self, alone):
        error = timed_out(lambda: alone.thread("t").ask(Invoke({"n": 2}), timeout=0.05))
        assert "no process owns the store" in error.message
        assert "goes on" not in error.message

    def test_an_ask_that_a_living_owner_cannot_take_says_where_to_look(self, made):
        made("owner", line("other", a=wrote("a")).compile())
        client = made("client", adding().compile())
        error = timed_out(lambda: client.thread("t").ask(Invoke({"n": 2}), timeout=0.05))
        assert "has not taken it: its log, and waits in its health" in error.message

    @pytest.mark.slow
    def test_an_ask_whose_run_executes_says_that_it_goes_on(self, made):
        gate = Gate()
        graph = line("g", gate=gate)
        made("owner", graph.compile())
        client = made("client", graph.compile())
        client.thread("t").tell(Invoke({"n": 1}, run_id="R"))
        gate.wait()
        error = timed_out(
            lambda: client.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=0.3), "has taken"
        )
        assert "the owner of the store has taken the message: run 'R' goes on" in error.message
        assert error.receipt.run_id == "R"
        gate.open()


class TestHealth:
    def test_of_a_client_says_that_no_owner_lives(self, alone):
        health = alone.health()
        assert not health.ready
        assert "no process owns the store" in health.reasons[0]

    def test_of_a_client_is_ready_while_an_owner_lives(self, made):
        made("owner", adding().compile())
        assert made("client", adding().compile()).health().ready

    @pytest.mark.slow
    def test_of_an_owner_counts_threads_whose_messages_wait_for_a_graph(self, made):
        owner = made("owner", line("other", a=wrote("a")).compile())
        client = made("client", adding().compile())
        for thread_id in ("t", "t", "u"):
            client.thread(thread_id).tell(Invoke({"n": 1}))
        eventually(lambda: owner.health().waits.get("messages") == 2)
        assert owner.health().ready

        owner.register(adding().compile())
        eventually(lambda: not owner.health().waits)
        assert client.thread("t").ask(Invoke({"n": 2}), timeout=10).state["log"] == [1, 1, 2]


def test_the_owner_says_once_a_graph_that_messages_wait_for_it(made):
    owner = made("owner", line("other", a=wrote("a")).compile())
    events = Events(owner)
    client = made("client", adding().compile(), line("second", a=wrote("a")).compile())
    for graph in ("g", "second"):
        for thread_id in ("t", "u"):
            client.thread(f"{graph}-{thread_id}", graph=graph).tell(Invoke({"n": 1}))
    eventually(lambda: owner.health().waits.get("messages") == 4)
    said = events.of(MessageWaits)
    assert len({event.graph for event in said}) == len(said) == 2
    assert all("register()" in event.reason for event in said)


class TestStores:
    def test_a_store_tells_whether_it_is_owned(self, disk):
        store, other = disk.open(), disk.open()
        assert other.owner_lives() is False
        store.acquire()
        assert (store.owner_lives(), other.owner_lives()) == (True, True)
        store.release()
        assert other.owner_lives() is False

    def test_to_ask_takes_nothing_from_the_next_owner(self, disk):
        store, other = disk.open(), disk.open()
        store.acquire()
        assert in_a_fork(other.owner_lives) == "True"
        store.release()
        assert in_a_fork(other.owner_lives) == "False"
        assert other.acquire() == 2


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
class TestForks:
    @pytest.mark.parametrize("role", ["owner", "client"])
    @pytest.mark.parametrize(
        "call",
        [
            lambda runtime, _thread: runtime.thread("t"),
            lambda runtime, _thread: runtime.get_state("t"),
            lambda _runtime, thread: thread.tell(Invoke({"n": 1})),
            lambda _runtime, thread: thread.cancel(),
        ],
    )
    def test_a_runtime_in_a_forked_child_says_so(self, made, role, call):
        made("owner", adding().compile()).close()
        runtime = made(role, adding().compile())
        thread = runtime.thread("t")

        def told():
            try:
                call(runtime, thread)
            except RuntimeStopped as error:
                return type(error), error.code, "open one in each worker" in error.message

        assert in_a_fork(told) == repr((Forked, "forked", True))

    def test_its_health_says_so(self, alone):
        told = in_a_fork(lambda: alone.health().reasons)
        assert "forked from the one that opened the runtime" in told

    def test_a_client_of_the_childs_own_works(self, made, disk):
        owner = made("owner", adding().compile())
        made("client", adding().compile())

        def own():
            with Runtime(disk.open(), graphs=[adding().compile()], role="client") as client:
                return client.thread("t").tell(Invoke({"n": 1})).run_id

        run_id = in_a_fork(own)
        eventually(lambda: owner.get_state("t") is not None)
        assert owner.thread("t").ask(Cancel()).run_id == run_id.strip("'")
