"""How supervisors start, end, and lose their parents: nothing is left behind."""

from __future__ import annotations

import threading

import pytest

from supervisors import (
    INFINITY,
    KILLED,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    Actor,
    ActorExit,
    ActorSystem,
    AlreadyStarted,
    CallingSelf,
    ChildSpec,
    Crashed,
    Down,
    DynamicSupervisor,
    Event,
    Ignore,
    InvalidSpec,
    Limits,
    Shutdown,
    StartError,
    Supervisor,
    count_children,
    delete_child,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from supervisors.errors import NotFound
from supervisors.testing import DeterministicScheduler, eventually
from tests.supervisors.test_supervisor_restarts import end, states, tree
from tests.supervisors.world import Boom, Puppet, World, crash, starts, stops


def ignoring(_actor: Puppet) -> None:
    raise Ignore


class TestStart:
    def test_children_start_in_order_and_are_listed_newest_first(self, world: World):
        log: list[object] = []
        supervisor = tree(world, "abc", log)

        assert starts(log) == ["a", "b", "c"]
        assert [info.id for info in which_children(supervisor, timeout=5)] == ["c", "b", "a"]

    def test_a_supervisor_that_ignores_its_start_is_no_failure(self, world: World):
        """Supervision C02."""

        class Absent(Supervisor):
            def on_start(self) -> None:
                raise Ignore

        watcher = world.system.start(Puppet, trap=True)
        signals = watcher.ask(lambda actor: actor.signals, timeout=5)
        with pytest.raises(Ignore):
            world.system.start(Absent, name="s", link=watcher)
        world.settle()

        assert signals == []
        assert world.system.whereis("s") is None

    def test_a_child_that_ignores_its_start_keeps_its_spec(self, world: World):
        """Supervision C03."""
        specs = [ChildSpec("a", Puppet, (), {"fail": ignoring}), ChildSpec("b", Puppet)]
        supervisor = world.system.start(Supervisor, specs)
        counts = count_children(supervisor, timeout=5)

        assert states(supervisor) == {"a": "undefined", "b": "running"}
        assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (2, 1, 0, 2)

    def test_a_temporary_child_that_ignores_its_start_is_forgotten(self, world: World):
        spec = ChildSpec("a", Puppet, (), {"fail": ignoring}, restart="temporary")
        supervisor = world.system.start(Supervisor, [spec])

        assert count_children(supervisor, timeout=5).specs == 0

    def test_a_dynamic_child_that_ignores_its_start_is_not_kept(self, world: World):
        """Supervision C05, otp."""
        supervisor = world.system.start(DynamicSupervisor)
        for number in range(50):
            spec = ChildSpec(number, Puppet, (), {"fail": ignoring})
            assert start_child(supervisor, spec, timeout=5) is None

        assert count_children(supervisor, timeout=5).specs == 0

    def test_a_child_that_fails_ends_those_before_it_in_reverse(self, world: World):
        """Supervision C07."""
        log: list[object] = []
        watcher = world.system.start(Puppet, trap=True)
        signals = watcher.ask(lambda actor: actor.signals, timeout=5)
        specs = [ChildSpec(n, Puppet, (n, log), name=n) for n in "ab"]
        specs.append(ChildSpec("c", Puppet, ("c", log), {"fail": crash}))
        with pytest.raises(StartError) as caught:
            world.system.start(Supervisor, specs, name="s", link=watcher)

        assert stops(log) == ["b", "a"]
        reason = caught.value.reason
        assert isinstance(reason, Shutdown)
        assert reason.term.child_id == "c"
        assert isinstance(reason.term.reason.error, Boom)
        assert world.system.names() == []
        world.settle()
        assert signals == []

    @pytest.mark.parametrize(
        ("flags", "field"),
        [
            ({"strategy": "one_for_some"}, "strategy"),
            ({"intensity": -1}, "intensity"),
            ({"intensity": 1.5}, "intensity"),
            ({"period": 0}, "period"),
            ({"period": INFINITY}, "period"),
            ({"auto_shutdown": "sometimes"}, "auto_shutdown"),
        ],
    )
    def test_wrong_flags_are_refused_and_nothing_starts(self, world: World, flags, field):
        """Supervision C13."""
        log: list[object] = []
        with pytest.raises(StartError) as caught:
            world.system.start(Supervisor, [ChildSpec("a", Puppet, ("a", log))], **flags)

        assert isinstance(caught.value.__cause__, InvalidSpec)
        assert caught.value.__cause__.field == field
        assert log == []

    def test_an_id_twice_is_refused(self, world: World):
        """Supervision C14."""
        with pytest.raises(StartError) as caught:
            world.system.start(Supervisor, [ChildSpec("a", Puppet), ChildSpec("a", Puppet)])
        assert "taken by an earlier child" in str(caught.value.__cause__)

    def test_a_start_that_takes_too_long_is_killed_and_its_name_free(self, pool: World):
        gate = threading.Event()

        def pass_the_grace() -> None:
            eventually(lambda: pool.scheduler.timers.next_deadline() is not None)
            pool.clock.advance(10)

        helper = threading.Thread(target=pass_the_grace)
        helper.start()
        with pytest.raises(StartError, match="took more than"):
            pool.system.start(Puppet, timeout=0.01, name="n", fail=lambda _: gate.wait(20))

        assert pool.system.whereis("n") is None
        helper.join(10)
        gate.set()
        eventually(lambda: pool.system.statistics().abandoned == 0)

    def test_a_child_whose_start_takes_too_long_fails_the_start(self, simulated: World):
        spec = ChildSpec(
            "a", Puppet, (), {"fail": lambda actor: actor.system.future().get(timeout=100)},
            start_timeout=1,
        )  # fmt: skip
        with pytest.raises(StartError) as caught:
            simulated.system.start(Supervisor, [spec], timeout=50)

        assert caught.value.reason.term.reason == KILLED

    def test_a_start_that_ends_well_after_its_time_is_over_has_failed(self):
        """It was killed for it before; OTP's start is `{error, timeout}` too."""
        over = threading.Event()
        slow = ChildSpec(
            "a", Puppet, (), {"fail": lambda _actor: over.wait(10)}, start_timeout=0.001
        )

        def hear(event: Event) -> None:
            if event.kind == "killed":
                over.set()

        with ActorSystem(limits=Limits(kill_grace=10.0), on_event=hear) as system:
            with pytest.raises(StartError) as caught:
                system.start(Supervisor, [slow])

        assert caught.value.reason.term.reason == KILLED

    def test_a_starter_that_is_killed_leaves_no_child_and_no_name(self, pool: World):
        """Supervision C18."""
        entered, gate = threading.Event(), threading.Event()

        def slow(_actor: Puppet) -> None:
            entered.set()
            gate.wait(10)

        supervisor = pool.system.start(DynamicSupervisor)
        spec = ChildSpec("a", Puppet, (), {"fail": slow}, name="a", start_timeout=INFINITY)

        def ask() -> None:
            with pytest.raises(ActorExit):
                start_child(supervisor, spec)

        asked = threading.Thread(target=ask)
        asked.start()
        assert entered.wait(10)
        pool.system.exit(supervisor, KILLED)
        eventually(lambda: not supervisor.is_alive())
        gate.set()
        asked.join(10)

        eventually(lambda: pool.system.whereis("a") is None)

    def test_a_slow_dynamic_child_delays_no_other(self, pool: World):
        entered, gate = threading.Event(), threading.Event()

        def slow(_actor: Puppet) -> None:
            entered.set()
            gate.wait(10)

        supervisor = pool.system.start(DynamicSupervisor)
        slowly = threading.Thread(
            target=start_child,
            args=(supervisor, ChildSpec("slow", Puppet, (), {"fail": slow})),
        )
        slowly.start()
        assert entered.wait(10)

        assert start_child(supervisor, ChildSpec("quick", Puppet), timeout=10) is not None
        assert states(supervisor) == {"slow": "starting", "quick": "running"}
        gate.set()
        slowly.join(10)

    def test_a_child_that_asks_its_supervisor_in_its_start_is_told_that_it_cannot(self, world):
        """Supervision C95."""
        parent: list[object] = []

        class Parent(Supervisor):
            def on_start(self) -> None:
                parent.append(self.ref)
                super().on_start()

        def ask(_actor: Puppet) -> None:
            start_child(parent[0], ChildSpec("x", Puppet))

        with pytest.raises(StartError) as caught:
            world.system.start(Parent, [ChildSpec("a", Puppet, (), {"fail": ask})])
        assert isinstance(caught.value.reason.term.__cause__, CallingSelf)


class TestEnd:
    @pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
    def test_a_supervisor_ends_with_the_reason_it_is_given(self, world: World, kind):
        """Supervision C01."""
        supervisor = world.system.start(kind)
        reason = world.system.monitor_from_outside(supervisor)
        world.system.exit(supervisor, SHUTDOWN)

        assert reason.get(timeout=5) == SHUTDOWN

    def test_children_end_in_reverse_order(self, world: World):
        """Supervision C68."""
        log: list[object] = []
        tree(world, "abc", log).stop(timeout=5)

        assert stops(log) == ["c", "b", "a"]
        assert {entry[2] for entry in log if entry[0] == "stop"} == {SHUTDOWN}

    def test_the_reason_of_the_parent_is_the_reason_of_the_supervisor(self, world: World):
        """Supervision C71."""
        middle = ChildSpec("sub", Supervisor, ([ChildSpec("a", Puppet)],), name="sub")
        root = world.system.start(Supervisor, [middle])
        sub = world.system.whereis("sub")
        reason = world.system.monitor_from_outside(sub)
        world.system.exit(root, KILLED)

        assert reason.get(timeout=5) == KILLED

    def test_a_signal_from_a_stranger_is_ignored_and_stop_is_not(self, world: World):
        """Supervision 1.9, otplike."""
        middle = ChildSpec("sub", Supervisor, name="sub", restart="temporary")
        world.system.start(Supervisor, [middle])
        sub = world.system.whereis("sub")
        world.system.exit(sub, SHUTDOWN)
        world.settle()

        assert sub.is_alive()
        assert sub.stop(timeout=5) is True

    def test_infinity_waits(self, simulated: World):
        """Supervision C61."""
        spec = ChildSpec(
            "a", Puppet, (), {"stopping": lambda actor: _sleep(actor, 2000)}, shutdown=INFINITY
        )
        supervisor = simulated.system.start(Supervisor, [spec])
        reason = simulated.system.monitor_from_outside(supervisor)
        supervisor.stop(timeout=5000, reason=SHUTDOWN)

        assert reason.get() == SHUTDOWN
        assert simulated.clock.monotonic() == 2000

    @pytest.mark.parametrize("kind", ["static", "dynamic"])
    def test_a_child_that_is_too_slow_is_killed(self, pool: World, kind):
        """Thespian: the default is finite."""
        gate = threading.Event()
        spec = ChildSpec("a", Puppet, (), {"stopping": lambda _: gate.wait(20)}, shutdown=5.0)
        if kind == "static":
            supervisor = pool.system.start(Supervisor, [spec])
        else:
            supervisor = pool.system.start(DynamicSupervisor)
            start_child(supervisor, spec, timeout=5)
        child = which_children(supervisor, timeout=5)[0].ref
        reason = pool.system.monitor_from_outside(child)
        stopped = supervisor.stop(block=False)
        eventually(lambda: not child.is_alive())
        for _ in range(2):  # the deadline, then the grace of the kill
            eventually(lambda: pool.scheduler.timers.next_deadline() is not None)
            pool.clock.advance(6)
            if stopped.done():
                break
            eventually(lambda: "killed" in pool.kinds())

        assert stopped.get(timeout=5)
        assert reason.get(timeout=5) == KILLED
        gate.set()
        eventually(lambda: pool.system.statistics().abandoned == 0)

    def test_dynamic_children_end_in_parallel(self, pool: World):
        """Supervision C63, protoactor-go, umh: all are asked, then all are waited for."""
        gate = threading.Event()
        supervisor = pool.system.start(DynamicSupervisor)
        stubborn = {"stopping": lambda _: gate.wait(20)}
        for number in range(5):
            spec = ChildSpec(number, Puppet, (), stubborn, shutdown=1.0)
            start_child(supervisor, spec, timeout=5)
        stopped = supervisor.stop(block=False)
        eventually(lambda: set(states(supervisor).values()) == {"terminating"})
        pool.clock.advance(1.0)
        eventually(lambda: pool.kinds().count("killed") == 5)
        pool.clock.advance(1.0)

        assert stopped.get(timeout=5)
        gate.set()
        eventually(lambda: pool.system.statistics().abandoned == 0)

    def test_ending_by_itself_while_being_ended_is_quiet_where_it_should_be(self):
        """Supervision C65 and C66, otp: in every order, no hang and the true reason."""
        for seed in range(120):
            world = World(DeterministicScheduler(seed))
            own = [NORMAL, SHUTDOWN, Shutdown("test"), Abnormal("other")][seed % 4]
            restart = ["permanent", "transient", "temporary"][seed % 3]
            log: list[object] = []
            supervisor = tree(world, "ab", log, restarts=dict.fromkeys("ab", restart), intensity=9)
            reason = world.system.monitor_from_outside(supervisor)
            for name in "ab":
                world.system.whereis(name).tell(lambda actor, own=own: actor.exit(own))
            stopped = supervisor.stop(block=False, reason=SHUTDOWN)

            assert stopped.get(timeout=60), f"seed {seed}"
            assert reason.get() == SHUTDOWN, f"seed {seed}"
            reported = "shutdown_error" in world.kinds() or "child_terminated" in world.kinds()
            loud = isinstance(own, Abnormal)
            if not loud and restart != "permanent":
                assert not reported, f"seed {seed}"
            assert starts(log).count("a") == stops(log).count("a"), f"seed {seed}"
            world.system.shutdown()

    def test_a_child_cannot_untie_itself_from_its_supervisor(self, world: World):
        """Supervision C67."""
        supervisor = tree(world, "a", [])
        child = world.system.whereis("a")
        child.ask(lambda actor: actor.unlink(supervisor), timeout=5)
        supervisor.stop(timeout=5)

        assert not child.is_alive()

    def test_killing_a_supervisor_in_the_middle_leaves_no_orphan(self, world: World):
        """Supervision C69, otp, gleam otp."""
        log: list[object] = []
        leaf = ChildSpec("leaf", Puppet, ("leaf", log), name="leaf")
        low = ChildSpec("low", Supervisor, ([leaf],), name="low")
        middle = ChildSpec("mid", Supervisor, ([low],), restart="temporary", name="mid")
        world.system.start(Supervisor, [middle])
        refs = [world.system.whereis(name) for name in ("mid", "low", "leaf")]
        world.system.exit(refs[0], KILLED)
        world.settle()

        assert [ref.is_alive() for ref in refs] == [False] * 3
        assert world.system.names() == []

    def test_killing_a_supervisor_that_waits_for_a_child_leaves_no_orphan(self, pool: World):
        """Supervision C70, otp."""
        gate = threading.Event()
        leaf = ChildSpec("leaf", Puppet, name="leaf")
        slow = ChildSpec("slow", Puppet, (), {"stopping": lambda _: gate.wait(20)}, shutdown=10.0)
        supervisor = pool.system.start(Supervisor, [leaf, slow])
        leaf_ref = pool.system.whereis("leaf")
        slow_ref = which_children(supervisor, timeout=5)[0].ref
        supervisor.stop(block=False)
        eventually(lambda: not slow_ref.is_alive())
        pool.system.exit(supervisor, KILLED)

        eventually(lambda: not leaf_ref.is_alive())
        gate.set()
        eventually(lambda: pool.system.roots() == [])

    def test_questions_are_answered_while_children_end(self, pool: World):
        gate = threading.Event()
        spec = ChildSpec("a", Puppet, (), {"stopping": lambda _: gate.wait(20)})
        supervisor = pool.system.start(Supervisor, [spec])
        stopped = supervisor.stop(block=False)

        # both messages are the supervisor's own: it would answer neither if it waited
        assert eventually(lambda: _state_or_none(supervisor)) == "terminating"
        gate.set()
        assert stopped.get(timeout=5)

    def test_a_child_that_starts_another_in_its_end_is_refused(self, world: World):
        """Supervision C74, Thespian."""
        refused: list[BaseException] = []
        supervisor = world.system.start(DynamicSupervisor)

        def bear(_actor: Puppet) -> None:
            try:
                start_child(supervisor, ChildSpec("orphan", Puppet, name="orphan"), timeout=1)
            except ActorExit as error:
                refused.append(error)

        spec = ChildSpec("a", Puppet, (), {"stopping": bear})
        start_child(supervisor, spec, timeout=5)
        world.system.exit(supervisor, SHUTDOWN)
        world.settle()

        # its worker may be about to go on, with the answer at hand
        eventually(lambda: [type(error) for error in refused] == [ActorExit])
        assert world.system.whereis("orphan") is None

    def test_stopping_after_a_restart_by_hand_returns(self, world: World):
        """Goakt."""
        supervisor = tree(world, "a", [])
        terminate_child(supervisor, "a", timeout=5)
        restart_child(supervisor, "a", timeout=5)

        assert supervisor.stop(timeout=5) is True

    def test_the_normal_end_of_a_temporary_child_stops_nobody(self, world: World):
        """Ractor."""
        supervisor = tree(world, "a", [], restarts={"a": "temporary"})
        end(world, "a", NORMAL)

        assert count_children(supervisor, timeout=5).specs == 0

    @pytest.mark.parametrize("phase", ["init", "continue", "handler", "restarting"])
    def test_a_stop_in_any_phase_gives_exactly_one_down(self, simulated: World, phase):
        """Akka.net."""
        _, _, signals = simulated.recorder()
        observer = simulated.system.roots()[0].cell

        def nap(actor: Puppet) -> None:
            _sleep(actor, 1)

        if phase == "init":
            cell = simulated.system.spawn(Puppet, fail=nap, monitor=(observer, "t"))
        else:
            cell = simulated.system.spawn(Puppet, monitor=(observer, "t"))
            if phase == "continue":
                cell.put(lambda actor: actor.handle_continue())
            elif phase == "handler":
                cell.put(nap)
            else:
                cell.put(crash)
        cell.ref.stop(block=False)
        simulated.advance(5)

        assert [type(signal) for signal in signals] == [Down]

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [10_000])
    def test_many_children_start_and_end(self, pool: World, count):
        """Supervision C90."""
        supervisor = pool.system.start(DynamicSupervisor)
        for number in range(count):
            start_child(supervisor, ChildSpec(number, Actor), timeout=10)

        assert count_children(supervisor, timeout=10).active == count
        assert supervisor.stop(timeout=60)

    def test_leaving_the_system_ends_every_tree(self):
        log: list[object] = []
        with ActorSystem() as system:
            spec = [ChildSpec(n, Puppet, (n, log)) for n in "ab"]
            system.start(Supervisor, spec)
        assert stops(log) == ["b", "a"]
        assert system.statistics().workers == 0

    def test_an_escalation_restores_static_children_and_not_dynamic_ones(self, world: World):
        """Supervision C94."""
        leaf = ChildSpec("leaf", Puppet, ("leaf", []), name="leaf")
        specs = [
            ChildSpec("static", Supervisor, ([leaf],), name="static"),
            ChildSpec("dynamic", DynamicSupervisor, name="dynamic"),
            ChildSpec("crasher", Puppet, name="crasher"),
        ]
        world.system.start(Supervisor, specs, strategy="one_for_all")
        start_child(world.system.whereis("dynamic"), ChildSpec("d", Puppet), timeout=5)
        end(world, "crasher", Crashed(Boom()))

        assert states(world.system.whereis("static")) == {"leaf": "running"}
        assert states(world.system.whereis("dynamic")) == {}


def test_a_name_that_a_stranger_has_fails_the_start_of_a_child(world: World):
    """Supervision C15."""
    stranger = world.system.start(Puppet, name="n")
    supervisor = world.system.start(Supervisor)
    with pytest.raises(AlreadyStarted) as caught:
        start_child(supervisor, ChildSpec("a", Puppet, name="n"), timeout=5)

    assert caught.value.ref == stranger
    with pytest.raises(NotFound):
        delete_child(supervisor, "a", timeout=5)


def _sleep(actor: Puppet, seconds: float) -> None:
    """Wait in the simulation's time."""
    future = actor.system.future()
    try:
        future.get(timeout=seconds)
    except TimeoutError:  # pragma: no cover - pykka's is another
        return
    except Exception:
        pass


def _state_or_none(supervisor: object) -> str | None:
    found = states(supervisor)
    return found["a"] if found["a"] == "terminating" else None
