"""Faults of pykka's own actors that must not exist here, each by its number.

What pykka does was established by running it; each test is named for what we do instead.
"""

from __future__ import annotations

import gc
import threading
import weakref

import pykka
import pytest

from supervisors import (
    KILLED,
    NORMAL,
    ActorExit,
    ActorSystem,
    AlreadySet,
    CallTimeout,
    Crashed,
    Future,
    Killed,
    NoProc,
    Refuse,
    StartError,
    TaskActor,
    TaskFailed,
)
from supervisors.testing import eventually, exit_reason
from tests.supervisors.world import Boom, Puppet, World, crash


def raises(error: BaseException):
    def do(_actor: Puppet) -> None:
        raise error

    return do


class TestPykkaFaults:
    def test_fault_1_a_failing_start_is_told_to_who_starts_and_ends_the_actor(self, world: World):
        with pytest.raises(StartError) as caught:
            world.system.start(Puppet, "a", fail=raises(ValueError("no")), name="a")

        assert isinstance(caught.value.__cause__, ValueError)
        assert world.system.whereis("a") is None

    def test_fault_1_asks_sent_before_a_failing_start_are_answered(self, world: World):
        cell = world.system.make(Puppet, (), {"fail": raises(ValueError("no"))})
        asked = cell.ref.ask(lambda _: 1, block=False)
        world.system.launch(cell)

        with pytest.raises(ActorExit) as caught:
            asked.get(timeout=5)
        assert caught.value.reason == Crashed(caught.value.__cause__)

    def test_fault_2_system_exit_in_on_start_leaves_no_zombie(self, world: World):
        with pytest.raises(StartError):
            world.system.start(Puppet, fail=raises(SystemExit(3)), register=True)

        assert world.system.roots() == []
        assert pykka.ActorRegistry.get_all() == []

    def test_fault_3_a_handler_that_raises_in_an_ask_ends_its_actor(self, world: World):
        ref = world.system.start(Puppet)

        with pytest.raises(ActorExit) as caught:
            ref.ask(crash, timeout=5)
        assert isinstance(caught.value.__cause__, Boom)
        assert not ref.is_alive()

    def test_fault_3_refuse_answers_with_an_error_and_the_actor_lives(self, world: World):
        ref = world.system.start(Puppet)

        with pytest.raises(KeyError):
            ref.ask(raises(Refuse(KeyError("k"))), timeout=5)
        assert ref.ask(lambda _: "alive", timeout=5) == "alive"

    def test_fault_4_a_tell_that_raises_answers_the_asks_behind_it_with_the_reason(self, world):
        cell = world.system.make(Puppet, (), {})
        cell.put(crash)
        queued = [cell.ref.ask(lambda _: 1, block=False) for _ in range(3)]
        world.system.launch(cell)

        for future in queued:
            with pytest.raises(ActorExit) as caught:
                future.get(timeout=5)
            assert isinstance(caught.value.reason, Crashed)

    def test_fault_5_the_dead_refuse_tells_and_asks_and_have_nothing_to_stop(self, world: World):
        ref = world.system.start(Puppet)
        ref.stop(timeout=5)

        with pytest.raises(pykka.ActorDeadError):
            ref.tell("late")
        with pytest.raises(NoProc):
            ref.ask("late", timeout=5)
        assert ref.stop(timeout=5) is False

    @pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
    def test_fault_6_a_base_exception_ends_only_its_actor_and_answers_the_asker(self, world, error):
        """Supervision C139."""
        bystander = world.system.start(Puppet)
        ref = world.system.start(Puppet)

        with pytest.raises(ActorExit):
            ref.ask(raises(error), timeout=5)
        assert bystander.ask(lambda _: "here", timeout=5) == "here"

    def test_fault_7_every_stop_waits_for_the_whole_end(self, pool: World):
        entered, leave = threading.Event(), threading.Event()

        def slowly(_actor: Puppet) -> None:
            entered.set()
            assert leave.wait(10)

        ref = pool.system.start(Puppet, stopping=slowly)
        first = ref.stop(block=False)
        assert entered.wait(10)
        second = ref.stop(block=False)

        assert not first.done()
        assert not second.done()
        leave.set()
        assert first.get(timeout=5) is True
        assert second.get(timeout=5) is True

    def test_fault_8_a_stop_goes_before_the_messages_that_wait(self, world: World):
        """Supervision C129."""
        ran: list[int] = []
        cell = world.system.make(Puppet, (), {})
        asks = [cell.ref.ask(lambda _, n=n: ran.append(n), block=False) for n in range(10)]
        world.system.launch(cell)
        cell.ref.stop(timeout=5)

        assert len(ran) <= 2 or not world.simulated
        for future in asks[len(ran) :]:
            with pytest.raises(ActorExit) as caught:
                future.get(timeout=5)
            assert caught.value.reason == NORMAL

    def test_fault_9_an_ask_racing_with_death_is_always_answered(self, pool: World):
        """Supervision C138, on a scale for every run; the slow one has its 10**5 tries."""
        _race(pool.system, 120)

    @pytest.mark.slow
    @pytest.mark.timeout(120)
    def test_fault_9_an_ask_racing_with_death_is_always_answered_in_100_000_tries(self, pool):
        """Supervision C138."""
        _race(pool.system, 10_000)

    def test_fault_10_without_a_worker_thread_no_actor_is_left_behind(self, monkeypatch):
        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        system = ActorSystem()
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            cell = system.spawn(Puppet)
        assert system.statistics().workers == 0
        assert cell.ref.ask(lambda _: "runs later", timeout=5) == "runs later"
        assert system.shutdown()

    def test_fault_11_a_request_that_timed_out_before_its_turn_is_dropped(self, pool: World):
        ran: list[str] = []
        gate = threading.Event()
        ref = pool.system.start(Puppet)
        ref.tell(lambda _: gate.wait(10))

        with pytest.raises(CallTimeout):
            ref.ask(lambda _: ran.append("timed out"), timeout=0.01)
        gate.set()
        ref.ask(lambda _: ran.append("later"), timeout=5)
        assert ran == ["later"]

    def test_fault_12_a_list_of_futures_is_awaited_with_a_deadline_each_caller_can_see(self, world):
        futures = [world.system.future() for _ in range(3)]
        futures[0].set(0)

        with pytest.raises(pykka.Timeout):
            pykka.get_all(futures, timeout=0.01)

    def test_fault_13_readers_of_a_mapped_future_do_not_wait_for_each_other(self, pool: World):
        source: Future[int] = pool.system.future()
        mapped = source.map(lambda n: n + 1)
        patient = threading.Thread(target=lambda: mapped.get(timeout=10))
        patient.start()
        eventually(lambda: source._waiters)

        with pytest.raises(CallTimeout):
            mapped.get(timeout=0.001)
        source.set(1)
        patient.join(10)
        assert mapped.get() == 2

    def test_fault_14_an_interrupted_handler_ends_its_actor_and_answers_the_asker(self, pool):
        """Supervision C130."""
        entered = threading.Event()

        class Spinner(Puppet):
            interruptible = True

        def spin(_actor: Puppet) -> None:
            entered.set()
            while True:
                pass

        log: list[object] = []
        ref = pool.system.start(Spinner, "s", log)
        asked = ref.ask(spin, block=False)
        assert entered.wait(10)
        pool.system.exit(ref, KILLED)

        with pytest.raises(ActorExit) as caught:
            asked.get(timeout=10)
        assert caught.value.reason == KILLED
        assert ("stop", "s", KILLED) not in log

    def test_fault_15_code_that_cannot_be_interrupted_is_abandoned_after_the_grace(self, pool):
        """Supervision C75, first half."""
        entered, leave = threading.Event(), threading.Event()

        def hang(_actor: Puppet) -> None:
            entered.set()
            leave.wait()

        ref = pool.system.start(Puppet)
        reason = pool.system.monitor_from_outside(ref)
        asked = ref.ask(hang, block=False)
        assert entered.wait(10)
        pool.system.exit(ref, KILLED)
        pool.clock.advance(10)

        assert reason.get(timeout=10) == KILLED
        with pytest.raises(ActorExit):
            asked.get(timeout=10)
        assert pool.system.start(Puppet).ask(lambda _: "runs", timeout=10) == "runs"
        assert pool.system.statistics().abandoned == 1
        leave.set()
        eventually(lambda: pool.system.statistics().abandoned == 0)

    def test_fault_16_a_kill_of_an_idle_actor_harms_no_worker(self, world: World):
        ref = world.system.start(Puppet)
        reason = world.system.monitor_from_outside(ref)
        world.system.exit(ref, KILLED)

        assert reason.get(timeout=5) == KILLED
        assert world.system.start(Puppet).ask(lambda _: "runs", timeout=5) == "runs"

    def test_fault_17_and_18_a_body_that_swallows_everything_cannot_change_that_it_was_killed(
        self, pool: World
    ):
        caught = threading.Event()
        entered = threading.Event()

        class Stubborn(TaskActor):
            def run(self) -> str:
                try:
                    entered.set()
                    while True:
                        pass
                except BaseException:
                    caught.set()
                return "I go on"

        recorder, seen, signals = pool.recorder()
        task = pool.system.spawn_task(Stubborn, owner=recorder.cell, token="t")
        assert entered.wait(10)
        assert task.kill()
        assert caught.wait(10)
        eventually(lambda: seen)

        assert [signal.reason for signal in signals] == [KILLED]
        assert [type(message).__name__ for message in seen] == ["TaskEnded"]
        assert not issubclass(Killed, Exception)

    def test_fault_19_an_idle_actor_keeps_no_message_alive(self, world: World):
        class Load:
            pass

        load = Load()
        gone = weakref.ref(load)
        ref = world.system.start(Puppet)
        ref.ask(lambda _, load=load: load, timeout=5)
        del load
        world.settle()
        gc.collect()

        assert gone() is None

    def test_fault_20_the_error_of_an_ask_keeps_no_dead_actor_alive(self, world: World):
        class Heavy(Puppet):
            pass

        made: list[weakref.ref[Puppet]] = []
        ref = world.system.start(Heavy)
        ref.ask(lambda actor: made.append(weakref.ref(actor)), timeout=5)
        with pytest.raises(ActorExit) as caught:
            ref.ask(crash, timeout=5)
        world.settle()
        gc.collect()

        assert caught.value.__cause__.__traceback__ is not None
        assert eventually(lambda: gc.collect() is not None and made[0]() is None)


def _race(system: ActorSystem, rounds: int) -> None:
    """Ask from threads while the actor is killed, stopped, or crashes; every ask ends."""
    unanswered: list[object] = []

    def asker(ref, barrier: threading.Barrier) -> None:
        barrier.wait(10)
        for _ in range(3):
            try:
                ref.ask(lambda _: 1, timeout=10)
            except pykka.ActorDeadError:
                pass
            except CallTimeout as error:
                unanswered.append(error)

    for number in range(rounds):
        ref = system.start(Puppet)
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=asker, args=(ref, barrier)) for _ in range(3)]
        for thread in threads:
            thread.start()
        barrier.wait(10)
        if number % 3 == 0:
            ref.stop(block=False)
        elif number % 3 == 1:
            system.exit(ref, KILLED)
        else:
            ref.cell.put(crash)
        for thread in threads:
            thread.join(30)
        assert unanswered == []


def test_a_future_is_set_once(world: World):
    future = world.system.future()
    future.set(1)

    with pytest.raises(AlreadySet):
        future.set(2)
    with pytest.raises(AlreadySet):
        future.set_exception(ValueError())
    assert future.get() == 1


def test_a_task_body_that_raises_system_exit_ends_only_the_task(world: World):
    class Leaver(TaskActor):
        def run(self) -> None:
            raise SystemExit(2)

    recorder, seen, _ = world.recorder()
    world.system.spawn_task(Leaver, owner=recorder.cell, token=1)
    world.settle()

    assert [type(message) for message in seen] == [TaskFailed]
    assert isinstance(seen[0].error, SystemExit)


def test_the_reason_of_an_end_is_seen_from_outside(world: World):
    ref = world.system.start(Puppet)
    ref.tell(crash)

    reason = exit_reason(world.system, ref) if ref.is_alive() else ref.cell.reason
    assert isinstance(reason, Crashed) or reason.name == "no_proc"
