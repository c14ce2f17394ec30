"""Exit signals, links, monitors, calls, timers: what one actor is to another."""

from __future__ import annotations

import contextvars
import threading

import pytest

from supervisors import (
    KILLED,
    NO_PROC,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    ActorExit,
    AlreadyStarted,
    CallingSelf,
    CallTimeout,
    Crashed,
    Down,
    NoProc,
    Shutdown,
    is_quiet,
)
from supervisors.testing import exit_reason
from tests.supervisors.world import Boom, Puppet, World, crash


def trapping(world: World) -> tuple[object, list[object]]:
    ref = world.system.start(Puppet, trap=True)
    return ref, ref.ask(lambda actor: actor.signals, timeout=5)


class TestExitSignals:
    def test_normal_from_another_is_ignored(self, world: World):
        """Supervision C110."""
        ref = world.system.start(Puppet)
        world.system.exit(ref, NORMAL)

        assert ref.ask(lambda _: "alive", timeout=5) == "alive"

    def test_normal_from_another_is_a_message_to_one_that_traps(self, world: World):
        """Supervision C110."""
        ref, signals = trapping(world)
        world.system.exit(ref, NORMAL)
        world.settle()

        assert [signal.reason for signal in signals] == [NORMAL]

    def test_normal_from_itself_ends_an_actor(self, world: World):
        """Supervision C111."""
        ref = world.system.start(Puppet)
        reason = world.system.monitor_from_outside(ref)
        ref.tell(lambda actor: actor.system.exit(actor.ref, NORMAL))

        assert reason.get(timeout=5) == NORMAL

    def test_exit_ends_an_actor_after_its_reply(self, world: World):
        ref = world.system.start(Puppet)
        reason = world.system.monitor_from_outside(ref)

        assert ref.ask(lambda actor: actor.exit(Abnormal("done")) or "bye", timeout=5) == "bye"
        assert reason.get(timeout=5) == Abnormal("done")

    def test_a_crash_is_an_exit_with_the_error_to_one_that_traps(self, world: World):
        """Supervision C113."""
        ref, signals = trapping(world)
        peer = world.system.start(Puppet, "peer", link=ref)
        peer.tell(crash)
        world.settle()

        assert signals[0].sender is peer.cell
        assert isinstance(signals[0].reason.error, Boom)

    def test_a_chain_of_links_ends_with_one_reason(self, world: World):
        """Supervision C114."""
        a = world.system.start(Puppet)
        b = world.system.start(Puppet, link=a)
        c = world.system.start(Puppet, link=b)
        ends = [world.system.monitor_from_outside(ref) for ref in (a, b, c)]
        b.tell(crash)
        reasons = [end.get(timeout=5) for end in ends]

        assert isinstance(reasons[0], Crashed)
        assert reasons == [reasons[0]] * 3

    def test_a_link_to_the_dead_signals_that_there_is_no_such_actor(self, world: World):
        """Supervision C115."""
        dead = world.system.start(Puppet)
        dead.stop(timeout=5)
        ref, signals = trapping(world)
        plain = world.system.start(Puppet)
        end = world.system.monitor_from_outside(plain)
        for one in (ref, plain):
            one.tell(lambda actor: actor.link(dead))
        world.settle()

        assert [signal.reason for signal in signals] == [NO_PROC]
        assert end.get(timeout=5) == NO_PROC

    def test_a_kill_cannot_be_trapped_and_its_links_may_trap_it(self, world: World):
        """Supervision C137, the kill."""
        victim = world.system.start(Puppet, trap=True)
        ref, signals = trapping(world)
        victim.ask(lambda actor: actor.link(ref), timeout=5)
        end = world.system.monitor_from_outside(victim)
        world.system.exit(victim, KILLED)
        world.settle()

        assert end.get(timeout=5) == KILLED
        assert [signal.reason for signal in signals] == [KILLED]

    def test_links_are_idempotent_and_one_unlink_removes_them(self, world: World):
        """Supervision C121."""
        peer = world.system.start(Puppet)
        ref, signals = trapping(world)
        ref.tell(lambda actor: (actor.link(peer), actor.link(peer), actor.unlink(peer)))
        world.settle()
        peer.tell(crash)
        world.settle()

        assert signals == []

    def test_an_exit_that_is_queued_when_the_link_is_untied_is_not_seen(self, world: World):
        ref, signals = trapping(world)
        peer = world.system.start(Puppet, link=ref)

        def wait_then_unlink(actor: Puppet) -> None:
            peer.stop(timeout=5)
            actor.unlink(peer)

        ref.ask(wait_then_unlink, timeout=5)
        world.settle()

        assert signals == []

    @pytest.mark.parametrize(
        ("reason", "quiet"),
        [(NORMAL, True), (SHUTDOWN, True), (Shutdown("x"), True), (KILLED, False),
         (NO_PROC, False), (Abnormal(1), False), (Crashed(Boom()), False)],
    )  # fmt: skip
    def test_quiet_reasons_are_normal_and_shutdowns(self, reason, quiet):
        assert is_quiet(reason) is quiet


class TestMonitors:
    def test_each_monitor_has_its_own_down(self, world: World):
        """Supervision C117."""
        peer = world.system.start(Puppet)
        ref, signals = trapping(world)
        tokens = ref.ask(lambda actor: [actor.monitor(peer), actor.monitor(peer)], timeout=5)
        peer.stop(timeout=5)
        world.settle()

        assert [signal.token for signal in signals] == tokens
        assert {signal.reason for signal in signals} == {NORMAL}

    def test_a_monitor_of_the_dead_is_told_so(self, world: World):
        """Supervision C118."""
        peer = world.system.start(Puppet)
        peer.stop(timeout=5)
        ref, signals = trapping(world)
        ref.ask(lambda actor: actor.monitor(peer, "token"), timeout=5)
        world.settle()

        assert signals == [Down("token", NO_PROC)]

    def test_a_cancelled_monitor_has_no_down_even_if_it_was_queued(self, world: World):
        """Supervision C118, akka-core."""
        peer = world.system.start(Puppet)
        ref, signals = trapping(world)

        def watch(actor: Puppet) -> bool:
            monitor = actor.monitor(peer)
            peer.stop(timeout=5)
            return monitor.cancel()

        assert ref.ask(watch, timeout=5) is False
        world.settle()
        assert signals == []

    def test_a_child_that_dies_at_once_is_seen_with_its_true_reason(self, world: World):
        """Supervision C119, elle."""
        ref, _, signals = world.recorder()
        for number in range(20):
            world.system.spawn(Puppet, fail=crash, monitor=(ref.cell, number))
        world.settle()

        assert sorted(signal.token for signal in signals) == list(range(20))
        assert all(isinstance(signal.reason, Crashed) for signal in signals)

    def test_downs_go_before_ordinary_messages(self, simulated: World):
        order: list[object] = []
        ref = simulated.system.start(Puppet)
        peer = simulated.system.start(Puppet)
        ref.ask(lambda actor: actor.monitor(peer, "down"), timeout=5)
        cell = ref.cell

        def note(actor: Puppet) -> None:
            peer.stop(timeout=5)
            cell.put(lambda actor: order.append([s.token for s in actor.signals]))

        ref.ask(note, timeout=5)
        simulated.settle()

        assert order == [["down"]]


class TestCalls:
    def test_a_call_that_times_out_leaves_the_server_alive(self, pool: World):
        """Supervision C122, elle."""
        gate = threading.Event()
        ref = pool.system.start(Puppet)
        with pytest.raises(CallTimeout):
            ref.ask(lambda _: gate.wait(10) and "late", timeout=0.01)
        gate.set()

        assert ref.ask(lambda _: "own answer", timeout=5) == "own answer"

    @pytest.mark.parametrize("served", [True, False])
    def test_a_call_gets_the_reason_for_which_its_server_ends(self, simulated: World, served):
        """Supervision C123."""
        ref = simulated.system.start(Puppet)
        first = ref.ask(lambda actor: (actor.defer(), actor.exit(Abnormal("x"))), block=False)
        second = ref.ask(lambda _: 1, block=False)

        with pytest.raises(ActorExit) as caught:
            (first if served else second).get(timeout=5)
        assert caught.value.reason == Abnormal("x")

    def test_calling_itself_is_an_error_at_once(self, world: World):
        """Supervision C124."""
        ref = world.system.start(Puppet)

        with pytest.raises(ActorExit) as caught:
            ref.ask(lambda actor: actor.ref.ask(lambda _: 1), timeout=5)
        assert isinstance(caught.value.__cause__, CallingSelf)

    def test_stopping_itself_and_waiting_is_an_error_in_on_start_too(self, world: World):
        """Supervision C124, pykka."""
        with pytest.raises(Exception, match="cannot wait for its own end"):
            world.system.start(Puppet, fail=lambda actor: actor.ref.stop())

    def test_stop_waits_and_gives_its_reason(self, world: World):
        """Supervision C125."""
        log: list[object] = []
        ref = world.system.start(Puppet, "a", log)

        assert ref.stop(timeout=5, reason=Abnormal("why")) is True
        assert log[-1] == ("stop", "a", Abnormal("why"))
        assert ref.stop(timeout=5) is False

    def test_a_stop_that_takes_too_long_times_out_and_stands(self, pool: World):
        """Supervision C125."""
        gate = threading.Event()
        ref = pool.system.start(Puppet, stopping=lambda _: gate.wait(10))
        end = pool.system.monitor_from_outside(ref)
        with pytest.raises(CallTimeout):
            ref.stop(timeout=0.01)
        gate.set()

        assert end.get(timeout=5) == NORMAL

    def test_what_handle_continue_leaves_runs_before_every_message(self, world: World):
        """Supervision C126."""
        log: list[object] = []

        def begin(actor: Puppet) -> None:
            actor.handle_continue("first")

        cell = world.system.make(Puppet, ("a", log), {"fail": begin})
        for number in range(100):
            cell.put(lambda _, n=number: log.append(n))
        world.system.launch(cell)
        world.settle()

        assert log == [("start", "a"), ("continue", "first"), *range(100)]

    @pytest.mark.parametrize("how", ["ask", "tell", "signal", "continue"])
    def test_an_error_in_any_handler_runs_on_stop_and_ends_the_actor(self, world: World, how):
        """Supervision C127."""
        log: list[object] = []
        watcher, signals = trapping(world)

        class Fragile(Puppet):
            def on_signal(self, signal: object) -> None:
                raise Boom("signal")

            def on_continue(self, term: object) -> None:
                raise Boom("continue")

        ref = world.system.start(Fragile, "a", log, trap=True, link=watcher)
        if how == "ask":
            asked = ref.ask(crash, block=False)
            with pytest.raises(ActorExit):
                asked.get(timeout=5)
        elif how == "tell":
            ref.tell(crash)
        elif how == "signal":
            world.system.exit(ref, SHUTDOWN)
        else:
            ref.tell(lambda actor: actor.handle_continue())
        world.settle()

        assert isinstance(log[-1][2].error, Boom)
        assert signals[0].reason == log[-1][2]

    def test_a_deferred_reply_comes_later_and_from_elsewhere(self, world: World):
        ref = world.system.start(Puppet)
        kept: list[object] = []
        asked = ref.ask(lambda actor: kept.append(actor.defer()), block=False)
        world.settle()

        assert not asked.done()
        assert kept[0].set("later") is True
        assert asked.get(timeout=5) == "later"
        assert kept[0].set("again") is False

    def test_an_actor_that_ends_waits_for_its_handler_and_drops_what_waits(self, pool: World):
        """Supervision C73."""
        gate, entered = threading.Event(), threading.Event()
        log: list[object] = []
        ref = pool.system.start(Puppet, "a", log)

        def work(_actor: Puppet) -> None:
            entered.set()
            gate.wait(10)
            log.append("worked")

        ref.tell(work)
        assert entered.wait(10)
        ref.tell("cast")
        called = ref.ask(lambda _: 1, block=False)
        stopped = ref.stop(block=False)
        gate.set()

        assert stopped.get(timeout=5)
        assert log == [("start", "a"), "worked", ("stop", "a", NORMAL)]
        with pytest.raises(ActorExit):
            called.get(timeout=5)
        assert [letter[1] for letter in pool.letters] == ["cast"]


class TestNames:
    def test_a_name_finds_its_actor_and_is_taken(self, world: World):
        ref = world.system.start(Puppet, name="n")

        assert world.system.whereis("n") == ref
        with pytest.raises(AlreadyStarted) as caught:
            world.system.start(Puppet, name="n")
        assert caught.value.ref == ref

    def test_a_failed_start_leaves_its_name_free(self, world: World):
        """Supervision C17, ractor."""
        for _ in range(3):
            with pytest.raises(Exception, match="failed to start"):
                world.system.start(Puppet, name="n", fail=crash)
        world.system.start(Puppet, name="n")

        assert world.system.whereis("n") is not None

    def test_a_name_is_free_for_whoever_hears_of_the_end(self, world: World):
        """Supervision C141, akka.net."""
        clashes: list[object] = []

        class Successor(Puppet):
            def on_signal(self, signal: Down) -> None:
                try:
                    self.next(signal.token)
                except AlreadyStarted as error:
                    clashes.append(error)

            def next(self, number: int) -> None:
                if number:
                    cell = self.system.spawn(Puppet, name="n", monitor=(self.cell, number - 1))
                    cell.put(crash)

        ref = world.system.start(Successor)
        ref.tell(lambda actor: actor.next(100))
        world.settle()

        assert clashes == []
        assert world.kinds().count("actor_crashed") == 100

    def test_a_message_to_a_name_whose_actor_starts_is_handled_after_the_start(self, world: World):
        """Hollywood."""
        log: list[object] = []
        cell = world.system.make(Puppet, ("a", log), {}, name="n")
        world.system.whereis("n").tell(lambda _: log.append("handled"))
        world.system.launch(cell)
        world.settle()

        assert log == [("start", "a"), "handled"]


class TestTimers:
    def test_a_message_comes_after_its_delay(self, world: World):
        """Supervision C134."""
        got: list[float] = []
        ref = world.system.start(Puppet)
        world.system.send_after(2.0, ref, lambda actor: got.append(actor.system.clock.monotonic()))
        world.advance(1.9)
        assert got == []
        world.advance(0.2)

        assert got == [2.0]

    def test_a_cancelled_timer_sends_nothing(self, world: World):
        """Supervision C134."""
        got: list[object] = []
        ref = world.system.start(Puppet)
        timer = world.system.send_after(2.0, ref, got.append)

        assert timer.cancel() is True
        assert timer.cancel() is False
        world.advance(3)
        assert got == []
        assert len(world.scheduler.timers) == 0

    def test_a_timer_that_has_fired_cannot_be_cancelled(self, world: World):
        """Supervision C134."""
        ref = world.system.start(Puppet)
        timer = world.system.send_after(1.0, ref, lambda _: None)
        world.advance(1)

        assert timer.cancel() is False

    def test_an_interval_repeats_until_its_target_ends_and_leaves_nothing(self, world: World):
        """Supervision C135."""
        got: list[float] = []
        ref = world.system.start(Puppet)
        world.system.send_every(1.0, ref, lambda actor: got.append(actor.system.clock.monotonic()))
        world.advance(3.5)
        assert got == [1.0, 2.0, 3.0]
        ref.stop(timeout=5)

        assert len(world.scheduler.timers) == 0

    def test_an_interval_does_not_make_up_for_missed_ticks(self, simulated: World):
        got: list[float] = []
        ref = simulated.system.start(Puppet)
        simulated.system.send_every(1.0, ref, lambda _: got.append(1))
        simulated.clock.move_to(10.5)
        simulated.scheduler.timers.fire_due()
        simulated.settle()

        assert got == [1]

    def test_a_timer_for_the_dead_is_none(self, world: World):
        ref = world.system.start(Puppet)
        ref.stop(timeout=5)

        assert not world.system.send_after(1.0, ref, "x").pending

    def test_many_cancelled_timers_leave_no_pile_behind_a_live_one(self, simulated: World):
        ref = simulated.system.start(Puppet)
        timers = simulated.scheduler.timers
        for _ in range(1000):
            simulated.system.send_after(30.0, ref, "timeout").cancel()
        simulated.system.send_after(0.5, ref, lambda _: None)

        assert sum(len(line) for line in timers._queues.values()) <= 3


def test_dead_letters_name_the_actor_the_message_and_the_reason(world: World):
    cell = world.system.make(Puppet, (), {"fail": crash})
    cell.put("undelivered")
    world.system.launch(cell)
    world.settle()

    name, message, reason = world.letters[0]
    assert "Puppet" in name
    assert message == "undelivered"
    assert isinstance(reason, Crashed)


def test_a_reference_equals_another_to_the_same_actor(world: World):
    ref = world.system.start(Puppet, name="n")

    assert ref == world.system.whereis("n")
    assert len({ref, world.system.whereis("n")}) == 1
    with pytest.raises(NoProc):
        ref.stop(timeout=5)
        ref.tell(1)


def test_proxies_of_pykka_work(world: World):
    class Account(Puppet):
        balance = 1

        def pay(self, amount: int) -> int:
            self.balance += amount
            return self.balance

    proxy = world.system.start(Account).proxy()

    assert proxy.pay(4).get(timeout=5) == 5
    assert proxy.balance.get(timeout=5) == 5


def test_handlers_have_a_context_of_their_own(world: World):
    var: contextvars.ContextVar[int] = contextvars.ContextVar("var", default=0)
    a, b = world.system.start(Puppet), world.system.start(Puppet)
    a.ask(lambda _: var.set(1), timeout=5)

    assert a.ask(lambda _: var.get(), timeout=5) == 1
    assert b.ask(lambda _: var.get(), timeout=5) == 0


def test_a_system_that_was_shut_down_starts_nothing(world: World):
    world.system.start(Puppet)
    if not world.simulated:
        world.settle()
    world.system.shutdown()

    with pytest.raises(Exception, match="was shut down"):
        world.system.start(Puppet)


def test_exit_reason_of_a_crash_is_told(world: World):
    ref = world.system.start(Puppet)
    world.system.send_after(1, ref, crash)
    reason = world.system.monitor_from_outside(ref)
    world.advance(1)

    assert isinstance(reason.get(timeout=5), Crashed)
    assert exit_reason(world.system, ref) == NO_PROC
