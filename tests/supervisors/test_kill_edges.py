"""Kills, failures and cancellations at the edges: where one instruction decides what is left behind."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from typing import Any

import pytest

from supervisors import (
    KILLED,
    NO_PROC,
    SHUTDOWN,
    Actor,
    ActorExit,
    ActorSystem,
    CancelToken,
    ChildSpec,
    Crashed,
    Down,
    DynamicSupervisor,
    GetChildSpec,
    Killed,
    PoolScheduler,
    Registry,
    StartChild,
    Supervisor,
    TaskEnded,
    Tasks,
    TaskSupervisor,
    TerminateChild,
    WhichChildren,
    WorkersExhausted,
    count_children,
    get_child_spec,
    resume,
    start_child,
    suspend,
    which_children,
)
from supervisors.elsewhere import Answered, Begun, Deputy, Gone
from supervisors.kill import Job
from supervisors.scheduler import Worker
from supervisors.testing import DeterministicScheduler, eventually, exit_reason
from supervisors.threads import ThreadScheduler
from tests.supervisors.test_tasks_and_kills import Body, lost_in_destructors, spin
from tests.supervisors.world import Boom, Puppet, World, worlds


class _Strike:
    """A trace function that kills the job of `perform` at the event with a number, as a killer would."""

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.left = number
        self.struck = False

    def __call__(self, frame: Any, event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename != sys.modules["supervisors.kill"].__file__:
            return None
        if self.job.window and not self.struck:
            self.left -= 1
            if self.left < 0:
                self.struck = True
                self.job.claim_kill()
                self.job.window.pop()
                self.job.injected = True
                raise Killed
        return self


@pytest.mark.parametrize("raising", [False, True])
def test_a_kill_is_absorbed_at_each_line_of_the_guard(raising):
    """Supervision 3.4: under a trace function also on lines that Python does not guard, as a bare `try:`."""

    def body() -> None:
        if raising:
            raise Boom

    before = sys.gettrace()
    places = 0
    while True:
        job = Job()
        worker = Worker(None, 1)  # type: ignore[arg-type]  # it schedules nothing
        worker.ident = threading.get_ident()
        strike = _Strike(job, places)
        sys.settrace(strike)
        try:
            result = job.perform(worker, body)
        finally:
            sys.settrace(before)
        if not strike.struck:
            break
        places += 1
        assert (result, worker.job) == (None, None), places
    assert places > 5


@pytest.fixture(params=[PoolScheduler, ThreadScheduler])
def real(request: pytest.FixtureRequest):
    """A world on real workers, of either kind."""
    yield from worlds(request.param())


class TestDeclaredWaits:
    @lost_in_destructors
    def test_a_kill_inside_blocking_leaves_no_worker_counted_as_waiting(self, real: World):
        entered = threading.Event()
        owner, seen, _ = real.recorder()

        def body(_task: object) -> None:
            with real.system.blocking():
                entered.set()
                spin()

        task = real.system.spawn_task(Body, body, owner=owner.cell, token="t")
        assert entered.wait(10)
        assert real.system.statistics().waiting == 1
        task.kill(grace=60)
        eventually(lambda: TaskEnded("t", abandoned=False) in seen, timeout=20)

        assert real.system.statistics().waiting == 0
        assert real.system.start(Puppet).ask(lambda _: "alive", timeout=5) == "alive"

    def test_a_kill_of_who_waits_for_a_lock_leaves_it_to_the_next(self, real: World):
        names = Registry("names")
        names.start(real.system)
        held, leave, waits = threading.Event(), threading.Event(), threading.Event()
        owner, seen, _ = real.recorder()

        def hold(_actor: object) -> None:
            with names.lock("key"):
                held.set()
                leave.wait(10)

        def wait(_task: object) -> None:
            waits.set()
            with names.lock("key"):
                raise AssertionError("it never had the lock")

        real.system.start(Puppet).tell(hold)
        assert held.wait(10)
        task = real.system.spawn_task(Body, wait, owner=owner.cell, token="t")
        assert waits.wait(10)
        eventually(lambda: real.system.statistics().waiting >= 1, timeout=20)
        task.kill(grace=60)
        eventually(lambda: TaskEnded("t", abandoned=False) in seen, timeout=20)
        leave.set()
        with names.lock("key"):
            pass

        assert names._queues == {}


class Remote(Deputy):
    """A deputy whose other side is the test."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def begin(self) -> None:
        self.post(Begun())

    def deliver(self, message: Any) -> None:
        self.told.append(message)

    def wind_up(self, reason: Any) -> None:
        self.post(Gone(reason))

    def let_go(self) -> None:
        self.told.append("let go")


class TestSuspension:
    def test_resuming_a_busy_deputy_delivers_nothing_before_its_answer(self, simulated: World):
        told: list[Any] = []
        ref = simulated.system.start(Remote, told)
        one, two = (ref.ask(n, block=False) for n in (1, 2))
        simulated.settle()
        resume(ref)
        simulated.settle()
        assert told == [1]
        ref.cell.actor.post(Answered("one"))
        simulated.settle()
        ref.cell.actor.post(Answered("two"))

        assert (one.get(timeout=1), two.get(timeout=1), told) == ("one", "two", [1, 2])

    def test_a_suspended_deputy_stays_so_after_its_answer(self, simulated: World):
        told: list[Any] = []
        ref = simulated.system.start(Remote, told)
        one, two = (ref.ask(n, block=False) for n in (1, 2))
        simulated.settle()
        suspend(ref)
        ref.cell.actor.post(Answered("one"))
        simulated.settle()
        assert (one.get(timeout=1), two.done(), told) == ("one", False, [1])
        resume(ref)
        simulated.settle()

        assert told == [1, 2]


class TestASupervisorThatStarts:
    """Its children start one after the other, and one may take long."""

    def make(self, world: World, told: list[Any]) -> Any:
        specs = [ChildSpec("quick", Puppet), ChildSpec("slow", Late, (told,))]
        ref = world.system.spawn(Supervisor, specs).ref
        world.settle()
        return ref

    def test_questions_are_answered_meanwhile(self, simulated: World):
        supervisor = self.make(simulated, [])
        asked = [supervisor.ask(q, block=False) for q in (WhichChildren(), GetChildSpec("slow"))]
        simulated.settle()

        assert [child.state for child in asked[0].get(timeout=0)] == ["starting", "running"]
        assert asked[1].get(timeout=0).id == "slow"

    def test_a_child_may_look_at_its_supervisor_in_its_start(self, world: World):
        found: list[Any] = []

        def look(actor: Puppet) -> None:
            found.extend(which_children(actor.cell.parent.ref, timeout=5))
            found.append(get_child_spec(actor.cell.parent.ref, "child", timeout=5))

        world.system.start(Supervisor, [ChildSpec("child", Puppet, kwargs={"fail": look})])

        assert [one.id for one in found] == ["child", "child"]

    def test_what_changes_something_waits_until_all_have_started(self, simulated: World):
        told: list[Any] = []
        supervisor = self.make(simulated, told)
        first = supervisor.ask(StartChild(ChildSpec("x", Puppet)), block=False)
        second = supervisor.ask(TerminateChild("quick"), block=False)
        simulated.settle()
        assert [first.done(), second.done()] == [False, False]
        told[0].post(Begun())
        simulated.settle()

        assert (first.get(timeout=0).is_alive(), second.get(timeout=0)) == (True, None)
        states = {child.id: child.state for child in which_children(supervisor)}
        assert states == {"quick": "undefined", "slow": "running", "x": "running"}

    @pytest.mark.parametrize("how", ["killed", "failed"])
    def test_who_waits_for_one_that_ends_is_told(self, simulated: World, how):
        told: list[Any] = []
        supervisor = self.make(simulated, told)
        early = supervisor.ask(StartChild(ChildSpec("x", Puppet)), block=False)
        simulated.settle()
        if how == "killed":
            simulated.system.exit(supervisor, KILLED)
        else:
            told[0].post(Gone(Crashed(Boom())))
        simulated.settle()

        with pytest.raises(ActorExit):
            early.get(timeout=0)


class Late(Deputy):
    """Has started when the test says so."""

    def __init__(self, told: list[Any]) -> None:
        told.append(self)

    def begin(self) -> None:
        """Wait for the test."""

    def wind_up(self, reason: Any) -> None:
        self.post(Gone(reason))

    def let_go(self) -> None:
        """Nothing is held."""


class Own(Puppet):
    execution = "thread"


class TestNoThreadToBeHad:
    @pytest.fixture
    def full(self, pool: World) -> World:
        """A world whose one thread for `execution="thread"` is taken."""
        pool.scheduler.dedicated().max_workers = 1
        pool.system.start(Own, name="first")
        return pool

    def test_a_start_fails_and_leaves_nothing(self, full: World):
        before = full.system.roots()
        for _ in range(2):
            with pytest.raises(WorkersExhausted):
                full.system.start(Own, name="second")

        assert (full.system.names(), full.system.roots()) == (["first"], before)

    def test_who_monitors_a_spawned_one_is_told(self, full: World):
        owner, _, signals = full.recorder()
        with pytest.raises(WorkersExhausted):
            full.system.spawn(Own, monitor=(owner.cell, "t"))
        full.settle()

        assert [type(signal) for signal in signals] == [Down]

    @pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
    def test_a_child_fails_to_start_and_another_time_it_does(self, full: World, kind):
        supervisor = full.system.start(kind)
        spec = ChildSpec("child", Own, name="second")
        with pytest.raises(WorkersExhausted):
            _start_unwrapped(supervisor, spec)
        full.settle()
        assert (count_children(supervisor).specs, full.system.whereis("second")) == (0, None)
        full.system.whereis("first").stop()
        eventually(lambda: full.system.statistics().dedicated == 0, timeout=20)

        assert start_child(supervisor, spec, timeout=5).is_alive()
        assert "restart_failed" not in full.kinds()

    def test_one_that_hangs_can_be_given_up(self, full: World):
        leave = threading.Event()
        ref = full.system.whereis("first")
        ref.tell(lambda _: leave.wait(20))
        reason = full.system.monitor_from_outside(ref)
        full.system.exit(ref, KILLED)
        full.clock.advance(1)

        assert reason.get(timeout=10) == KILLED
        leave.set()
        eventually(lambda: full.system.statistics().abandoned == 0, timeout=20)


def _start_unwrapped(supervisor: Any, spec: ChildSpec) -> None:
    try:
        start_child(supervisor, spec, timeout=5)
    except WorkersExhausted:
        raise
    except Exception as error:
        raise error.reason.error from None  # type: ignore[attr-defined]  # a static one wraps it


class TestMonitors:
    def test_a_down_on_its_way_is_not_seen_after_the_cancel(self, world: World):
        target = world.system.start(Puppet)
        watcher = world.system.start(Puppet)
        monitor = watcher.ask(lambda actor: actor.monitor(target, "t"), timeout=5)
        stood: list[bool] = []
        # between the moment of the end, and the word of it
        target.cell.pages().names += (lambda _: stood.append(monitor.cancel()),)
        target.stop(timeout=5)
        world.settle()

        assert (stood, watcher.ask(lambda actor: actor.signals, timeout=5)) == ([False], [])

    def test_cancelling_one_of_two_with_one_token_leaves_the_other(self, world: World):
        target = world.system.start(Puppet)
        watcher = world.system.start(Puppet)

        def watch(actor: Puppet) -> None:
            first, _ = actor.monitor(target, "t"), actor.monitor(target, "t")
            actor.system.exit(target, SHUTDOWN)
            exit_reason(actor.system, target)
            first.cancel()

        watcher.ask(watch, timeout=5)
        world.settle()

        assert watcher.ask(lambda actor: actor.signals, timeout=5) == [Down("t", SHUTDOWN)]

    def test_one_of_the_dead_can_be_cancelled_too(self, world: World):
        target = world.system.start(Puppet)
        target.stop()

        def watch(actor: Puppet) -> bool:
            actor.monitor(target, "kept")
            return actor.monitor(target, "cancelled").cancel()

        watcher = world.system.start(Puppet)

        assert watcher.ask(watch, timeout=5) is False
        assert watcher.ask(lambda actor: actor.signals, timeout=5) == [Down("kept", NO_PROC)]


class TestRaisingHooks:
    def test_everybody_is_told_of_an_end_whose_release_raises(self, world: World):
        owner, _, signals = world.recorder()
        ref = world.system.start(Puppet, name="name", monitor=(owner.cell, "t"))

        def release(_cell: object) -> None:
            raise Boom("release")

        ref.cell.pages().names = (release, *ref.cell.pages().names)
        pending = ref.ask(lambda actor: actor.defer(), block=False)
        ref.stop(timeout=5, reason=SHUTDOWN)
        world.settle()

        assert signals == [Down("t", SHUTDOWN)]
        assert world.system.whereis("name") is None
        assert pending.done()
        assert "stop_failed" in world.kinds()

    def test_a_raising_callback_of_a_future_ends_nobody(self, world: World, caplog):
        ref = world.system.start(Puppet)
        future = ref.ask(lambda _: "answer", block=False)

        def raising(_future: object) -> None:
            raise Boom("callback")

        future.add_done_callback(raising)

        assert future.get(timeout=5) == "answer"
        assert ref.ask(lambda _: "alive", timeout=5) == "alive"
        assert "callback of a future raised" in caplog.text


class TestWhatIsLeft:
    def test_a_token_holds_no_children_that_rest(self, world: World):
        parent = CancelToken(world.system)
        for _ in range(100):
            CancelToken(world.system, parent=parent, timeout=5)
        gc.collect()

        assert parent._over._waiters == []

    def test_a_child_that_is_to_call_somebody_is_held_until_then(self, world: World):
        parent = CancelToken(world.system)
        called: list[int] = []
        CancelToken(world.system, parent=parent).on_cancel(lambda: called.append(1))
        gc.collect()
        parent.cancel()

        assert called == [1]

    def test_an_unordered_stream_leaves_no_callbacks(self, pool: World):
        tasks = Tasks(pool.system.start(TaskSupervisor))
        gate = pool.system.future()

        def work(number: int) -> int:
            return number or gate.get()

        stream = tasks.stream(work, range(50), max_concurrency=2, ordered=False, timeout=None)
        found = [next(stream).value for _ in range(49)]
        [waiting] = tasks._actor.running.values()

        assert found == list(range(1, 50))
        assert len(waiting._outcome._waiters) == 1
        gate.set(0)
        assert [outcome.value for outcome in stream] == [0]

    def test_dead_letters_are_events_where_they_have_no_hook_of_their_own(self):
        events: list[Any] = []
        with ActorSystem(on_event=events.append) as system:
            ref = system.start(Puppet)
            suspend(ref)
            ref.tell("held")
            ref.stop(reason=SHUTDOWN)

        [letter] = [event for event in events if event.kind == "dead_letter"]
        assert (letter.reason, letter.detail) == (SHUTDOWN, {"message": "str"})

    def test_what_comes_at_the_very_end_of_a_suspended_actor_is_a_dead_letter_too(self):
        events: list[Any] = []

        def hear(event: Any) -> None:
            events.append(event)
            if event.kind == "actor_ended":
                ref.cell.put("late")

        with ActorSystem(on_event=hear) as system:
            ref = system.start(Puppet)
            suspend(ref)
            ref.stop(reason=SHUTDOWN)

        assert [event.kind for event in events if event.kind == "dead_letter"] == ["dead_letter"]


class TestDispatchInParallel:
    def register(self, world: World, names: Registry, value: object) -> None:
        world.system.start(Puppet).ask(lambda _: names.register("topic", value), timeout=5)

    def test_all_are_called_at_once(self, pool: World):
        """Supervision C145."""
        names = Registry("topics", keys="duplicate")
        names.start(pool.system)
        for value in range(3):
            self.register(pool, names, value)
        together = threading.Barrier(3)
        tasks = Tasks(pool.system.start(TaskSupervisor))

        def call(_entry: object) -> None:
            with pool.system.blocking():
                together.wait(10)

        assert names.dispatch("topic", call, parallel=tasks) == 3

    def test_an_error_is_raised_when_all_have_ended(self, world: World):
        names = Registry("topics", keys="duplicate")
        names.start(world.system)
        for value in range(3):
            self.register(world, names, value)
        tasks = Tasks(world.system.start(TaskSupervisor))
        called: list[object] = []

        def call(entry: Any) -> None:
            called.append(entry.value)
            if entry.value == 0:
                raise Boom("zero")

        with pytest.raises(Boom):
            names.dispatch("topic", call, parallel=tasks)
        assert sorted(called) == [0, 1, 2]


class _Quiet(Actor):
    """Does nothing."""


def test_the_keeper_of_timers_outlives_a_target_that_raises(pool: World):
    class Target:
        def put(self, message: object) -> None:
            raise Boom(message)

    pool.scheduler.timers.add(0.5, Target(), "x")
    ref = pool.system.start(_Quiet)
    owner, seen, _ = pool.recorder()
    pool.system.send_after(0.5, owner, "later")
    pool.advance(1)

    assert (ref.is_alive(), seen) == (True, ["later"])


@pytest.mark.parametrize("seed", range(12))
def test_an_actor_that_is_given_up_while_it_waits_for_its_turn_ends_and_takes_letters_no_more(seed):
    scheduler = DeterministicScheduler(seed=seed)
    letters = []
    system = ActorSystem(scheduler, on_event=letters.append)
    actor = system.start(Actor)
    scheduler.settle()
    ended = system.monitor_from_outside(actor)
    actor.tell("makes it runnable")
    system.exit(actor, KILLED)
    scheduler.clock.advance(system.limits.kill_grace + 1)
    scheduler.timers.fire_due()  # it is given up before or after its turn, as the seed says
    scheduler.settle()
    assert ended.get() == KILLED, f"{seed=}"
    with contextlib.suppress(ActorExit):
        actor.tell("too late")
    scheduler.settle()
    assert [e.kind for e in letters if e.kind == "abandoned"] == [], (
        f"{seed=}: it held up no worker"
    )
    system.shutdown()
