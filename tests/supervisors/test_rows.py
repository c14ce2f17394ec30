"""Rows of the cases of supervision that no other test covers, and that no row is without one."""

from __future__ import annotations

import contextvars
import itertools

import pykka
import pytest

from supervisors import (
    BRUTAL_KILL,
    KILLED,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    Actor,
    Backoff,
    CallTimeout,
    ChildSpec,
    DynamicSupervisor,
    Ignore,
    InvalidSpec,
    Shutdown,
    StartError,
    Supervisor,
    count_children,
    restart_child,
    start_child,
    suspend,
    terminate_child,
    which_children,
)
from supervisors.testing import exit_reason
from tests.supervisors import rows
from tests.supervisors.test_supervisor_restarts import states, tree
from tests.supervisors.world import Puppet, World, crash, starts


class TestThatEachRowHasATest:
    def test_no_row_is_without_one(self):
        assert rows.uncovered() == []


def test_children_that_are_no_specs_fail_the_start(world: World):
    """Supervision C06."""

    class Junk(Supervisor):
        def children(self):
            return ["junk"]

    with pytest.raises(StartError) as caught:
        world.system.start(Junk, name="top")
    assert isinstance(caught.value.reason.error, InvalidSpec)
    assert world.system.whereis("top") is None


def test_a_child_replaced_during_its_delay_is_not_resurrected(simulated: World):
    """Supervision 6.2.1."""
    log: list[object] = []
    supervisor = simulated.system.start(
        DynamicSupervisor, backoff=Backoff(1.0, cap=1.0), intensity=9
    )
    start_child(supervisor, ChildSpec("a", Puppet, ("old", log)), timeout=1).tell(crash)
    simulated.settle()
    terminate_child(supervisor, "a", timeout=1)
    new = start_child(supervisor, ChildSpec("a", Puppet, ("new", log)), timeout=1)
    simulated.advance(5)

    assert [child.ref for child in which_children(supervisor)] == [new]
    assert starts(log) == ["old", "new"]


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_group_restarts_happen_one_at_a_time(simulated: World, strategy):
    """Supervision 6.2.7."""
    log: list[object] = []
    supervisor = tree(simulated, "abc", log, strategy=strategy, intensity=9)
    for name in "abcab":
        ref = simulated.system.whereis(name)
        if ref is not None:
            simulated.system.exit(ref, Abnormal("batch"))
        simulated.scheduler.step()
    simulated.settle()

    assert states(supervisor) == dict.fromkeys("cba", "running")
    assert starts(log)[-3:] == ["a", "b", "c"]
    for name in "abc":  # never two of one child at once
        lives = [entry[0] for entry in log if entry[1] == name]
        assert all(one != two for one, two in itertools.pairwise(lives))


def test_extra_arguments_are_there_at_each_restart(world: World):
    """Supervision 6.2.8, C93."""
    log: list[object] = []
    supervisor = world.system.start(DynamicSupervisor, extra_args=("extra", log))
    start_child(supervisor, ChildSpec("a", Puppet), timeout=5).tell(crash)
    world.settle()

    assert starts(log) == ["extra", "extra"]


def test_messages_that_a_suspended_actor_holds_are_dead_letters_at_its_end(world: World):
    """Supervision 6.3.2."""
    ref = world.system.start(Puppet)
    suspend(ref)
    ref.tell("held")
    world.system.exit(ref, KILLED)
    exit_reason(world.system, ref)

    assert [letter[1:] for letter in world.letters] == [("held", KILLED)]


def _leave(reason: object):
    return lambda actor: actor.exit(reason)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (_leave(NORMAL), NORMAL),
        (_leave(Shutdown("term")), Shutdown("term")),
        (_leave(Abnormal("own")), Abnormal("own")),
        (lambda actor: actor.system.exit(actor.ref, Abnormal("signal")), Abnormal("signal")),
        (lambda actor: actor.system.exit(actor.ref, KILLED), KILLED),
        (lambda actor: actor.ref.stop(block=False, reason=SHUTDOWN), SHUTDOWN),
    ],
)
def test_each_way_to_end_has_its_own_reason(world: World, end, reason):
    """Supervision 6.3.3."""
    ref = world.system.start(Puppet)
    monitored = world.system.monitor_from_outside(ref)
    ref.tell(end)

    assert monitored.get(timeout=5) == reason


def test_late_replies_are_nowhere(simulated: World):
    """Supervision 6.3.4 and 6.3.5, C122."""
    server = simulated.system.start(Puppet)
    asker, seen, signals = simulated.recorder()
    replies: list[object] = []

    def ask_twice(actor: Actor) -> object:
        with pytest.raises(CallTimeout):
            server.ask(lambda server: replies.append(server.defer()), timeout=1.0)
        second = server.ask(lambda _: "second", block=False)
        replies[0].set("first, late")
        return second.get(timeout=1.0)

    client = simulated.system.start(Puppet)

    assert client.ask(ask_twice, timeout=10) == "second"
    assert (seen, signals, len(client.cell.q), asker.cell.q) == ([], [], 0, asker.cell.q)


def test_children_that_ignore_their_start_leave_nothing_behind(simulated: World):
    """Supervision 6.3.7, C05."""

    class Shy(Actor):
        def on_start(self) -> None:
            raise Ignore

    supervisor = simulated.system.start(DynamicSupervisor)
    family = supervisor.cell.actor
    for _ in range(300):
        assert start_child(supervisor, ChildSpec(None, Shy), timeout=1) is None

    assert (family._children, family._runs, family._starters, family._due) == ({}, {}, {}, {})
    assert supervisor.cell.book.kids == {}


def test_a_child_started_again_by_hand_has_its_name(world: World):
    """Supervision 6.5.4."""
    supervisor = tree(world, "a", [])
    terminate_child(supervisor, "a", timeout=5)
    assert world.system.whereis("a") is None
    new = restart_child(supervisor, "a", timeout=5)

    assert world.system.whereis("a") == new


def test_a_name_leads_to_the_living_one_however_often_it_dies(simulated: World):
    """Supervision 6.5.8."""
    supervisor = tree(simulated, "a", [], intensity=10**6)
    for _ in range(200):
        simulated.system.exit(simulated.system.whereis("a"), KILLED)
        simulated.settle()
        [child] = which_children(supervisor, timeout=1)

        assert simulated.system.whereis("a") == child.ref


def test_a_kill_that_cannot_be_is_refused_in_the_spec():
    """Supervision 6.6.2."""
    with pytest.raises(InvalidSpec, match="cannot be killed"):
        ChildSpec("old", pykka.ThreadingActor, shutdown=BRUTAL_KILL)


def test_each_incarnation_restores_itself_and_owns_what_it_makes(world: World):
    """Supervision 6.7.2 and 6.7.4."""
    log: list[object] = []

    class Restoring(Puppet):
        def on_start(self) -> None:
            self.resource = object()
            log.append(("made", id(self)))
            self.handle_continue("restore")

        def on_stop(self, reason: object) -> None:
            log.append(("released", id(self)))

    world.system.start(Supervisor, [ChildSpec("a", Restoring, ("a", log), name="a")], intensity=9)
    for _ in range(3):
        with pytest.raises(Exception, match="a"):
            world.system.whereis("a").ask(crash, timeout=5)
        world.settle()

    assert [entry[0] for entry in log] == ["made", "continue", "released"] * 3 + [
        "made",
        "continue",
    ]


_transaction = contextvars.ContextVar("transaction", default="none")


def test_context_variables_of_a_sender_do_not_reach_a_receiver(world: World):
    """Supervision 6.7.3."""
    receiver = world.system.start(Puppet)
    token = _transaction.set("the sender's")
    try:
        assert receiver.ask(lambda _: _transaction.get(), timeout=5) == "none"
    finally:
        _transaction.reset(token)


@pytest.mark.slow
def test_ten_thousand_that_ignore_their_start_cost_no_memory(pool: World):
    """Supervision 6.3.7."""

    class Shy(Actor):
        def on_start(self) -> None:
            raise Ignore

    supervisor = pool.system.start(DynamicSupervisor)
    for _ in range(10_000):
        start_child(supervisor, ChildSpec(None, Shy), timeout=5)

    assert count_children(supervisor, timeout=5).specs == 0
    assert len(pool.system.scheduler.timers) <= 1
