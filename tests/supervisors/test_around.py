"""What surrounds actors: pykka's own actors and registry, forks, slow handlers, dumps on a signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pykka
import pytest

from supervisors import (
    KILLED,
    Actor,
    ActorExit,
    ActorSystem,
    ChildSpec,
    Crashed,
    DynamicSupervisor,
    Forked,
    Hosted,
    Limits,
    StartError,
    Supervisor,
    ThreadScheduler,
    dump_on_signal,
    start_child,
    which_children,
)
from supervisors.events import Event
from supervisors.testing import DeterministicScheduler, eventually, exit_reason
from tests.supervisors.world import Boom, Puppet, crash


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def system(events: list[Event]) -> Iterator[ActorSystem]:
    with ActorSystem(on_event=events.append) as made:
        yield made
    assert pykka.ActorRegistry.get_all() == []


class Old(pykka.ThreadingActor):
    def __init__(self, log: list[object], fail: str = "") -> None:
        super().__init__()
        self.log = log
        self.fail = fail
        self.value = 5

    def on_start(self) -> None:
        self.log.append("start")
        if self.fail == "on_start":
            raise Boom
        if self.fail == "exit":
            raise SystemExit(3)

    def on_receive(self, message: object) -> object:
        if message == "crash":
            raise Boom
        if message == "exit":
            raise SystemExit(3)
        return message

    def double(self, n: int) -> int:
        return 2 * n

    def on_stop(self) -> None:
        self.log.append("stop")
        if self.fail == "on_stop":
            raise Boom


def supervised(system: ActorSystem, log: list[object], **more: object) -> pykka.ActorRef:
    system.start(Supervisor, [ChildSpec("old", Old, (log,), more, name="old")])
    return system.whereis("old")


class TestPykkasActorsInATree:
    def test_they_answer(self, system: ActorSystem):
        ref = supervised(system, [])

        assert ref.ask("hello", timeout=5) == "hello"
        assert ref.ask("hello", block=False).get(timeout=5) == "hello"

    def test_their_proxies_work(self, system: ActorSystem):
        proxy = supervised(system, []).proxy()
        proxy.value = 7

        assert proxy.double(4).get(timeout=5) == 8
        assert proxy.value.get(timeout=5) == 7

    @pytest.mark.parametrize("message", ["crash", "exit"])
    def test_a_crash_restarts_only_the_one_that_crashed(self, system: ActorSystem, message):
        log: list[object] = []
        bystander = Old.start([])
        ref = supervised(system, log)
        ref.tell(message)
        reason = exit_reason(system, ref)
        eventually(lambda: log == ["start", "start"])

        assert type(reason.error) is (Boom if message == "crash" else SystemExit)
        assert eventually(lambda: system.whereis("old")).ask("hello", timeout=5) == "hello"
        assert bystander.stop()

    def test_an_error_in_an_ask_is_an_answer_as_pykka_has_it(self, system: ActorSystem):
        ref = supervised(system, [])
        with pytest.raises(Boom):
            ref.ask("crash", timeout=5)

        assert ref.ask("alive", timeout=5) == "alive"

    @pytest.mark.parametrize("fail", ["on_start", "exit"])
    def test_a_failed_start_fails_the_supervisor(self, system: ActorSystem, fail):
        with pytest.raises(StartError):
            supervised(system, [], fail=fail)

    def test_a_start_that_is_no_start_fails(self, system: ActorSystem):
        with pytest.raises(StartError):
            system.start(Supervisor, [ChildSpec("old", Old, ())])

    def test_a_stop_runs_on_stop_and_an_error_there_is_a_crash(self, system: ActorSystem):
        log: list[object] = []
        ref = system.start(Hosted, Old, log, "on_stop")
        with pytest.raises(ActorExit) as caught:
            ref.stop(timeout=5)

        assert log == ["start", "stop"]
        assert isinstance(caught.value.reason, Crashed)

    def test_who_stops_by_itself_ends_normally(self, system: ActorSystem):
        supervisor = system.start(DynamicSupervisor)
        ref = start_child(supervisor, ChildSpec("old", Old, ([],), restart="transient"), timeout=5)
        end = system.monitor_from_outside(ref)
        ref.cell.actor.hosted.stop()

        assert repr(end.get(timeout=5)) == "NORMAL"
        eventually(lambda: which_children(supervisor) == [])

    def test_a_kill_gives_it_up_and_says_so(self, system: ActorSystem, events: list[Event]):
        gate, began = threading.Event(), threading.Event()

        class Stuck(pykka.ThreadingActor):
            def on_receive(self, message: object) -> None:
                began.set()
                gate.wait(10)

        ref = system.start(Hosted, Stuck)
        answer = ref.ask("hang", block=False)
        began.wait(5)
        system.exit(ref, KILLED)

        with pytest.raises(ActorExit, match="KILLED"):
            answer.get(timeout=5)
        assert "abandoned" in [event.kind for event in events]
        gate.set()

    def test_asks_that_race_with_its_end_are_answered(self, system: ActorSystem):
        """Pykka fault 9."""
        for _ in range(50):
            ref = system.start(Hosted, Old, [])
            answers = [ref.ask(n, block=False) for n in range(3)]
            ref.stop(block=False)
            answers += [ref.ask(n, block=False) for n in range(3)]
            for answer in answers:
                try:
                    answer.get(timeout=5)
                except ActorExit:
                    continue


class TestPykkasRegistry:
    def test_stop_all_takes_a_tree_down_in_order(self, system: ActorSystem):
        log: list[object] = []
        specs = [ChildSpec(name, Puppet, (name, log)) for name in "abc"]
        specs.append(ChildSpec("old", Old, (log,)))
        system.start(Supervisor, specs, register=True)
        pykka.ActorRegistry.stop_all(timeout=5)

        assert log[4:] == ["stop", *[("stop", name, log[-1][2]) for name in "cba"]]
        assert system.roots() == []

    def test_an_error_at_an_end_does_not_keep_stop_all_from_the_others(self, system: ActorSystem):
        first = system.start(Puppet, register=True)
        system.start(Puppet, register=True, stopping=crash)
        pykka.ActorRegistry.stop_all(timeout=5)

        assert not first.is_alive()


def in_a_fork(do: object) -> int:
    """Return 0 if `do()` returned true in a forked process."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if do() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process")  # it is what these tests are about
class TestForks:
    @pytest.mark.parametrize("threads", [False, True], ids=["pool", "threads"])
    def test_a_forked_process_is_told(self, threads):
        with ActorSystem(ThreadScheduler() if threads else None) as system:
            ref = system.start(Puppet)

            def refuses() -> bool:
                with pytest.raises(Forked, match="make a new ActorSystem"):
                    system.start(Puppet)
                for _ in range(2):
                    with pytest.raises(Forked):
                        ref.ask(lambda _: 1, timeout=1)
                    with pytest.raises(Forked):
                        ref.tell(lambda _: 1)
                return system.shutdown()

            assert in_a_fork(refuses) == 0
            assert ref.ask(lambda _: 1, timeout=5) == 1

    def test_a_forked_process_may_make_a_system_of_its_own(self):
        with ActorSystem() as system:
            system.start(Puppet)

            def works() -> bool:
                with ActorSystem() as fresh:
                    return fresh.start(Puppet).ask(lambda _: True, timeout=5)

            assert in_a_fork(works) == 0

    def test_a_simulation_goes_on_in_both(self):
        with ActorSystem(DeterministicScheduler(seed=1)) as system:
            ref = system.start(Puppet)

            assert in_a_fork(lambda: ref.ask(lambda _: True)) == 0
            assert ref.ask(lambda _: True)


class TestTheWatchdog:
    def test_a_handler_that_holds_a_worker_is_reported_once_with_its_stack(self):
        events: list[Event] = []
        gate = threading.Event()
        limits = Limits(slow_handler=0.02)
        with ActorSystem(on_event=events.append, limits=limits) as system:

            def hold_on(actor: Puppet) -> None:
                gate.wait(10)

            ref = system.start(Puppet)
            ref.tell(hold_on)
            slow = eventually(lambda: [e for e in events if e.kind == "slow_handler"])
            gate.set()
            ref.stop(timeout=5)

            assert [event.actor for event in slow] == [repr(ref.cell)]
            assert "hold_on" in slow[0].detail["stack"]
            assert [e.kind for e in events].count("slow_handler") == 1

    def test_declared_waits_and_short_handlers_are_not_reported(self):
        events: list[Event] = []
        gate = threading.Event()
        with ActorSystem(on_event=events.append, limits=Limits(slow_handler=0.02)) as system:

            class Waiting(Actor):
                def on_receive(self, message: object) -> None:
                    with self.system.blocking():
                        gate.wait(0.1)

            system.start(Waiting).ask("wait", timeout=5)

        assert "slow_handler" not in [event.kind for event in events]


def test_a_signal_dumps_the_system(system: ActorSystem):
    written: list[str] = []
    system.start(Puppet, name="seen")
    undo = dump_on_signal(system, signal.SIGUSR1, written.append)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        eventually(lambda: written)
    finally:
        undo()

    assert "Puppet 'seen'" in written[0]
    assert "MainThread" in written[0]
