"""`put_inline`: a message that is handled at once, inside of the sender's slice, where nothing else waits."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from supervisors import Actor, Crashed, Refuse
from tests.supervisors.world import Boom, Puppet, World, crash


class Inner(Puppet):
    """As the checkpoint writer is: it waits until nothing else is runnable, and has no context."""

    lane = "idle"
    isolated = False


class Guarded(Inner):
    """Its handlers may be interrupted."""

    interruptible = True


@pytest.fixture
def outer(world: World) -> Any:
    return world.system.start(Puppet)


def send(world: World, outer: Any, inner: Any, *messages: Any) -> bool:
    """Have `outer` send each inline; whether all of them were handled before it went on."""
    log: list[bool] = []

    def nest(_actor: Puppet) -> None:
        for message in messages:
            seen = False

            def noting(actor: Any, message: Any = message) -> Any:
                nonlocal seen
                seen = True
                return message(actor)

            inner.cell.put_inline(noting)
            log.append(seen)

    outer.ask(nest, timeout=5)
    world.settle()
    return all(log)


@pytest.mark.parametrize("kind", [Inner, Guarded])
def test_a_message_is_handled_whether_at_once_or_not(world: World, outer: Any, kind: type[Puppet]):
    log: list[int] = []
    inner = world.system.start(kind)
    send(world, outer, inner, *[lambda _actor, n=n: log.append(n) for n in range(5)])

    assert log == [0, 1, 2, 3, 4]


def test_what_is_sent_to_it_meanwhile_follows(world: World, outer: Any):
    log: list[str] = []
    inner = world.system.start(Inner)

    def first(actor: Puppet) -> None:
        actor.cell.put(lambda _actor: log.append("second"))
        log.append("first")

    send(world, outer, inner, first)

    assert log == ["first", "second"]


def test_a_crash_is_its_own(world: World, outer: Any):
    inner = world.system.start(Inner)
    reason = world.system.monitor_from_outside(inner)
    send(world, outer, inner, crash)

    ended = reason.get(timeout=5)
    assert isinstance(ended, Crashed)
    assert isinstance(ended.error, Boom)
    assert outer.is_alive()


@pytest.mark.parametrize("kind", [Inner, Guarded])
def test_the_reason_of_its_crash_does_not_keep_it(world: World, outer: Any, kind: type[Puppet]):
    inner = world.system.start(kind)
    reason = world.system.monitor_from_outside(inner)
    actor = weakref.ref(inner.cell.actor)
    send(world, outer, inner, crash)

    assert isinstance(reason.get(timeout=5), Crashed)
    assert actor() is None


def test_messages_behind_a_crash_go_to_the_dead_letters(world: World, outer: Any):
    log: list[str] = []
    inner = world.system.start(Inner)

    def last(actor: Puppet) -> None:
        actor.cell.put(lambda _actor: log.append("handled"))
        crash(actor)

    send(world, outer, inner, last)

    assert log == []
    assert not inner.is_alive()


def test_a_refusal_that_nobody_asked_for_does_no_harm(world: World, outer: Any):
    def refuse(_actor: Puppet) -> None:
        raise Refuse(Boom("no"))

    inner = world.system.start(Inner)
    send(world, outer, inner, refuse)

    assert inner.is_alive()


def test_an_exit_is_carried_out(world: World, outer: Any):
    inner = world.system.start(Inner)
    send(world, outer, inner, lambda actor: actor.exit())

    assert not inner.is_alive()


def test_what_is_left_for_after_the_handler_is_done(world: World, outer: Any):
    log: list[Any] = []
    inner = world.system.start(Inner, "inner", log)
    send(world, outer, inner, lambda actor: actor.handle_continue("later"))

    assert ("continue", "later") in log


def test_its_worker_is_the_senders_again(world: World):
    seen: list[bool] = []
    inner = world.system.start(Inner)

    class Outer(Actor):
        def on_receive(self, _message: object) -> None:
            inner.cell.put_inline(lambda _actor: None)
            holder = self.cell.holder
            seen.append(holder is not None and holder.cell is self.cell and not holder.nest)

    world.system.start(Outer).tell("go")
    world.settle()

    assert seen == [True]


def test_a_suspended_actor_takes_nothing(world: World, outer: Any):
    log: list[str] = []
    inner = world.system.start(Inner)
    inner.cell.hold()
    send(world, outer, inner, lambda _actor: log.append("handled"))

    assert log == []


def test_where_nothing_else_waits_it_is_handled_before_the_sender_goes_on(pool: World):
    outer, inner = pool.system.start(Puppet), pool.system.start(Inner)

    assert any(send(pool, outer, inner, lambda _actor: None) for _ in range(100))
