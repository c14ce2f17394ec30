"""`Runtime(role="client")`: what it can do, and what it is told."""

from __future__ import annotations

import asyncio

import pytest

from beamweaver import Cancelled, Continue, Interrupted, Invoke, Resume, Runtime, interrupt
from beamweaver.checkpoint import LMDBCheckpointer, MemoryCheckpointer
from beamweaver.errors import (
    AlreadyAnswered,
    AskTimeout,
    CallRefused,
    IdempotencyKeyReused,
    InvalidCall,
    NodeFailed,
    NothingToResume,
    NotOwner,
    Quarantined,
    RuntimeStopped,
    StoreUnavailable,
    UnknownChannel,
    UnknownGraph,
)
from beamweaver.events import TaskStarted
from supervisors.testing import eventually
from tests.runtime.kit import Caller, Events, Gate, failing_at, line, wrote
from tests.runtime.senders import adding


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


def both(made, graph):
    return made("owner", graph.compile()), made("client", graph.compile())


class TestCalls:
    def test_tell_is_durable_before_there_is_an_owner_again(self, made):
        made("owner", adding().compile()).close()
        receipt = made("client", adding().compile()).thread("t").tell(Invoke({"n": 1}))
        owner = made("owner", adding().compile())
        eventually(lambda: owner.thread("t").get_state())
        outcome = owner.thread("t").ask(Continue(), timeout=10)
        assert (outcome.run_id, outcome.state["log"]) == (receipt.run_id, [1])

    def test_ask_gets_the_outcome(self, made):
        _owner, client = both(made, adding())
        outcome = client.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=10)
        assert (outcome.state, outcome.run_id) == ({"n": 1, "log": [1]}, "R")
        assert client.thread("t").ask(Continue(), timeout=10).checkpoint_id == outcome.checkpoint_id

    def test_invoke_and_resume_of_a_bound_graph_go_through_the_client(self, made, disk):
        def ask(state):
            return {"log": [interrupt("ok?"), state["n"]]}

        made("owner", line("g", ask=ask).compile())
        bound = line("g", ask=ask).compile(checkpointer=disk.open())
        made("client", bound)
        asked = bound.invoke({"n": 1}, thread_id="t")
        assert isinstance(asked, Interrupted)
        assert bound.get_state("t").interrupts[0].id == asked.interrupt.id
        assert bound.resume("yes", thread_id="t").state["log"] == ["yes", 1]
        bound.close()

    def test_a_failed_run_is_raised_with_its_node(self, made):
        def fails(_state):
            raise OSError("down")

        _owner, client = both(made, line("g", fails=fails))
        with pytest.raises(NodeFailed, match="down") as caught:
            client.thread("t").ask(Invoke({"n": 1}), timeout=10)
        assert caught.value.node == "fails"
        failed = client.thread("t").ask(Continue(), timeout=10, raises=False)
        assert failed.error.node == "fails"

    def test_an_older_run_has_its_recorded_outcome(self, made):
        owner, client = both(made, adding())
        first = client.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=10)
        owner.thread("t").ask(Invoke({"n": 2}), timeout=10)
        again = client.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=10)
        assert (again.state, again.checkpoint_id) == (first.state, first.checkpoint_id)

    def test_a_cancel_reaches_the_run(self, made):
        gate = Gate()
        _owner, client = both(made, line("g", gate=gate))
        client.thread("t").tell(Invoke({"n": 1}))
        gate.wait()
        assert isinstance(client.thread("t").cancel(), Cancelled)

    def test_who_waited_long_enough_is_told_and_the_run_goes_on(self, made):
        gate = Gate({"note": "done"})
        _owner, client = both(made, line("g", gate=gate))
        with pytest.raises(AskTimeout) as caught:
            client.thread("t").ask(Invoke({"n": 1}), timeout=0.01)
        assert caught.value.receipt.run_id
        gate.open()
        assert client.thread("t").ask(Continue(), timeout=10).state["note"] == "done"

    def test_the_awaitable_twins_work(self, made):
        both(made, adding())

        async def main():
            client = made("client", adding().compile())
            thread = client.thread("t")
            await thread.atell(Invoke({"n": 1}))
            return await thread.aask(Invoke({"n": 2}), timeout=10)

        assert asyncio.run(main()).state["log"] == [1, 2]

    def test_states_and_histories_are_read(self, made):
        _owner, client = both(made, adding())
        client.thread("t").ask(Invoke({"n": 1}), timeout=10)
        assert client.get_state("t").values["log"] == [1]
        assert [state.step for state in client.get_state_history("t")] == [1, 0]


class TestOrder:
    def test_messages_of_a_sender_keep_their_order(self, made):
        made("owner", adding().compile()).close()
        client = made("client", adding().compile())
        for n in range(40):
            client.thread("t").tell(Invoke({"n": n}))
        owner = made("owner", adding().compile())
        done = eventually(lambda: len(log(owner, "t")) == 40 and log(owner, "t"))
        assert done == list(range(40))

    @pytest.mark.slow
    def test_a_message_for_which_there_is_no_place_waits_with_those_behind_it(self, made):
        from beamweaver.limits import Limits

        gate = Gate()

        def add(state):
            if state["n"] == 0:
                gate(state)
            return {"log": [state["n"]]}

        owner = made("owner", line("g", add=add).compile(), limits=Limits(inbox=1))
        client = made("client", adding().compile())
        client.thread("t").tell(Invoke({"n": 0}))
        gate.wait()
        for n in range(1, 6):
            client.thread("t").tell(Invoke({"n": n}))
        assert client.thread("u").ask(Invoke({"n": 9}), timeout=10).state["log"] == [9]
        gate.open()
        done = eventually(lambda: len(log(owner, "t")) == 6 and log(owner, "t"))
        assert done == list(range(6))
        assert owner.thread("t").rejected() == ()


def log(runtime, thread_id):
    state = runtime.thread(thread_id, "g").get_state()
    return [] if state is None else state.values.get("log", [])


class TestRefusals:
    def test_what_only_the_thread_can_judge_is_rejected_and_told(self, made):
        def ask(_state):
            return {"log": [interrupt("?")]}

        owner, client = both(made, line("g", ask=ask))
        thread = client.thread("t")
        question = thread.ask(Invoke({"n": 1}), timeout=10).interrupt
        thread.ask(Resume({question.id: "yes"}), timeout=10)
        receipt = thread.tell(Resume({question.id: "no"}))
        (rejected,) = eventually(thread.rejected)
        assert (rejected.id, rejected.code) == (receipt.id, "already_answered")
        assert owner.thread("t").rejected() == (rejected,)
        with pytest.raises(AlreadyAnswered):
            thread.ask(Resume({question.id: "no"}), timeout=10)

    def test_so_is_a_message_to_a_thread_that_does_not_exist(self, made):
        _owner, client = both(made, adding())
        with pytest.raises(NothingToResume, match="'new'"):
            client.thread("new").ask(Resume("yes"), timeout=10)
        assert [each.kind for each in client.thread("new").rejected()] == ["resume"]
        assert client.thread("other").rejected() == ()

    def test_what_needs_no_thread_is_refused_at_once(self, made):
        _owner, client = both(made, adding())
        with pytest.raises(UnknownChannel):
            client.thread("t").tell(Invoke({"what": 1}))
        with pytest.raises(InvalidCall, match="context"):
            client.thread("t").tell(Invoke({"n": 1}, context={"user": "ann"}))

    def test_changes_of_the_store_are_the_owners(self, made):
        _owner, client = both(made, adding())
        client.thread("t").ask(Invoke({"n": 1}), timeout=10)
        for change in (
            lambda: client.update_state("t", {"n": 2}),
            lambda: client.thread("t").update_state({"n": 2}),
            lambda: client.delete_thread("t"),
            lambda: client.copy_thread("t", "u"),
            client.prune,
        ):
            with pytest.raises(NotOwner, match="the process that owns the store"):
                change()

    def test_a_graph_that_the_client_lacks_is_said(self, made):
        made("owner", adding().compile())
        with pytest.raises(UnknownGraph):
            made("client", adding().compile()).thread("t", "other")


class TestKeys:
    def test_two_clients_with_one_key_are_one_message(self, made):
        made("owner", adding().compile()).close()
        clients = [made("client", adding().compile()) for _ in range(2)]
        receipts = {
            client.thread("t").tell(Invoke({"n": 1}), idempotency_key="k") for client in clients
        }
        assert len(receipts) == 1
        owner = made("owner", adding().compile())
        eventually(lambda: log(owner, "t") == [1])
        receipts.add(owner.thread("t").tell(Invoke({"n": 1}), idempotency_key="k"))
        receipts.add(clients[0].thread("t").tell(Invoke({"n": 1}), idempotency_key="k"))
        assert len(receipts) == 1
        assert log(owner, "t") == [1]

    def test_all_who_wait_in_one_client_for_one_message_get_its_outcome(self, made):
        made("owner", adding().compile()).close()
        client = made("client", adding().compile())
        ask = client.thread("t").ask
        callers = [Caller(ask, Invoke({"n": 1}), idempotency_key="k", timeout=10) for _ in range(2)]
        eventually(lambda: [sent.durable for sent in client._core.sent.values()] == [True, True])
        made("owner", adding().compile())
        assert [caller.join().state["log"] for caller in callers] == [[1], [1]]

    def test_another_message_under_a_key_that_waits_is_refused(self, made):
        made("owner", adding().compile()).close()
        client = made("client", adding().compile())
        client.thread("t").tell(Invoke({"n": 1}), idempotency_key="k")
        with pytest.raises(IdempotencyKeyReused):
            client.thread("t").tell(Invoke({"n": 2}), idempotency_key="k")
        owner = made("owner", adding().compile())
        eventually(lambda: log(owner, "t") == [1])
        with pytest.raises(IdempotencyKeyReused):
            client.thread("t").ask(Invoke({"n": 2}), idempotency_key="k", timeout=10)
        same = client.thread("t").ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
        assert same.state["log"] == [1]

    def test_a_key_of_the_owners_is_known_to_clients(self, made):
        owner, client = both(made, adding())
        first = owner.thread("t").tell(Invoke({"n": 1}), idempotency_key="k")
        assert client.thread("t").tell(Invoke({"n": 1}), idempotency_key="k") == first
        outcome = client.thread("t").ask(Invoke({"n": 1}), idempotency_key="k", timeout=10)
        assert (outcome.run_id, outcome.state["log"]) == (first.run_id, [1])


class TestRoles:
    def test_auto_is_the_owner_when_nobody_is_and_else_a_client(self, made):
        first = made("auto", adding().compile())
        second = made("auto", adding().compile())
        assert (first.role, second.role) == ("owner", "client")
        assert second.thread("t").ask(Invoke({"n": 1}), timeout=10).state["log"] == [1]
        second.close()
        first.close()
        assert made("auto", adding().compile()).role == "owner"

    @pytest.mark.parametrize("role", ["client", "auto"])
    def test_a_store_in_memory_has_no_roles(self, role):
        with pytest.raises(InvalidCall, match="reached by its own process only"):
            Runtime(MemoryCheckpointer(), role=role).start()

    def test_a_client_needs_a_store_that_was_made(self, disk):
        runtime = Runtime(disk.open(), role="client", wait=0.01)
        with pytest.raises(StoreUnavailable, match="there is no store"):
            runtime.start()

    def test_a_client_may_wait_for_it(self, disk):
        store = disk.open()
        seen = []

        def pause(_seconds):
            if not seen:
                seen.append(1)
                Runtime(disk.open()).start().close()

        store.pause = pause
        with Runtime(store, role="client", wait=10) as client:
            assert client.role == "client"
        assert seen

    def test_a_network_file_system_is_refused_as_ever(self, disk, monkeypatch):
        Runtime(disk.open()).start().close()
        disk.close()
        monkeypatch.setattr("beamweaver.checkpoint._place._file_system", lambda _path: "nfs4")
        with pytest.raises(StoreUnavailable, match="network file system"):
            Runtime(LMDBCheckpointer(disk.path), role="client").start()

    @pytest.mark.parametrize(
        "options", [{"role": "boss"}, {"role": "client", "takeover": "force"}, {"role": None}]
    )
    def test_a_wrong_role_is_refused_at_once(self, options):
        with pytest.raises(InvalidCall, match="role is"):
            Runtime(MemoryCheckpointer(), **options)

    def test_a_client_that_is_closed_tells_who_waits(self, made):
        gate = Gate()
        owner, client = both(made, line("g", gate=gate))
        caller = Caller(client.thread("t").ask, Invoke({"n": 1}))
        gate.wait()
        client.close()
        with pytest.raises(RuntimeStopped, match="the runtime was closed"):
            caller.join()
        gate.open()
        assert owner.thread("t").ask(Continue(), timeout=10).state["n"] == 1


def test_a_message_for_a_graph_that_is_not_here_waits_for_it(made):
    owner = made("owner", line("other", a=wrote("a")).compile())
    client = made("client", adding().compile(), line("other", a=wrote("a")).compile())
    client.thread("t", "g").tell(Invoke({"n": 1}))
    assert client.thread("u", "other").ask(Invoke({"n": 2}), timeout=10).state["log"] == ["a"]
    events = Events(owner)
    owner.register(adding().compile())
    events.wait(TaskStarted, thread_id="t")
    eventually(lambda: log(owner, "t") == [1])


def test_an_input_that_the_owner_cannot_merge_is_rejected(made):
    def picky(_old, _new):
        raise ValueError("not today")

    made("owner", line("g", add=wrote("x")).add_reducer("n", picky).compile())
    client = made("client", adding().compile())
    client.thread("t").tell(Invoke({"n": 1}))
    with pytest.raises(CallRefused, match="not today"):
        client.thread("t").ask(Invoke({"n": 1}), timeout=10)
    assert [each.code for each in client.thread("t").rejected()] == ["reducer_failed"] * 2


def test_messages_to_a_thread_that_is_set_aside_wait_and_callers_hear_it(made):
    owner = made("owner", adding().compile(), fault=failing_at("thread.admitted", 3))
    client = made("client", adding().compile())
    client.thread("t").tell(Invoke({"n": 0}))
    eventually(lambda: (state := client.get_state("t")) and state.status == "quarantined")
    client.thread("t").tell(Invoke({"n": 1}))
    with pytest.raises(Quarantined):
        client.thread("t").ask(Invoke({"n": 2}), idempotency_key="k", timeout=10)
    owner.thread("t").release()
    assert eventually(lambda: len(log(owner, "t")) == 2 and log(owner, "t")) == [0, 1]
    again = client.thread("t").ask(Invoke({"n": 2}), idempotency_key="k", timeout=10)
    assert again.state["log"] == [0, 1, 2]
