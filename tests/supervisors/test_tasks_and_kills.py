"""Tasks, and the protocol by which running code is killed without harm to the framework."""

from __future__ import annotations

import contextvars
import random
import sys
import threading
from collections.abc import Iterator
from time import sleep
from typing import Any

import pytest

from supervisors import (
    KILLED,
    Actor,
    ActorSystem,
    Down,
    Killed,
    Limits,
    PoolScheduler,
    TaskActor,
    TaskDone,
    TaskEnded,
    TaskFailed,
    WorkersExhausted,
    shield,
)
from supervisors.testing import DeterministicScheduler, Recorder, eventually
from tests.supervisors.world import Boom, Puppet, World, crash

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")


class Body(TaskActor):
    """Does what it is given."""

    def __init__(self, do: Any) -> None:
        self.do = do

    def run(self) -> Any:
        return self.do(self)


class Noter(Actor):
    """Notes its name for each message."""

    def __init__(self, order: list[str], name: str) -> None:
        self.order = order
        self.name = name

    def on_receive(self, message: object) -> None:
        self.order.append(self.name)


def spin(_task: object = None) -> None:
    while True:
        pass


# Python ignores, with a word on stderr, what is raised in a destructor or weak reference's callback that
# happens to run inside a body: then the kill is lost, the body ends by itself, or is abandoned.
lost_in_destructors = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def switching() -> Iterator[None]:
    """Let workers take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class TestResults:
    def test_the_value_comes_once(self, world: World):
        ref, seen, signals = world.recorder()
        world.system.spawn_task(Body, lambda _: 42, owner=ref.cell, token="t")
        world.settle()

        assert seen == [TaskDone("t", 42)]
        assert signals == []

    def test_an_error_comes_once(self, world: World):
        ref, seen, _ = world.recorder()
        world.system.spawn_task(Body, crash_body, owner=ref.cell, token="t")
        world.settle()

        assert [type(message) for message in seen] == [TaskFailed]
        assert isinstance(seen[0].error, Boom)

    def test_a_body_runs_in_the_context_that_is_given(self, world: World):
        ref, seen, _ = world.recorder()
        context = contextvars.Context()
        context.run(var.set, "given")
        world.system.spawn_task(Body, lambda _: var.get(), owner=ref.cell, token=1, context=context)
        world.system.spawn_task(Body, lambda _: var.set("leak"), owner=ref.cell, token=2)
        world.settle()
        world.system.spawn_task(Body, lambda _: var.get(), owner=ref.cell, token=3)
        world.settle()
        found = {message.token: message.value for message in seen}

        assert (found[1], found[3]) == ("given", "unset")

    def test_a_finished_task_cannot_be_killed(self, world: World):
        ref, seen, signals = world.recorder()
        task = world.system.spawn_task(Body, lambda _: 1, owner=ref.cell, token="t")
        world.settle()

        assert task.kill() is False
        assert not task.live
        world.settle()
        assert (len(seen), signals) == (1, [])

    def test_who_waits_for_a_worker_goes_before_the_owner_of_a_task_that_ends(self):
        order: list[str] = []
        with ActorSystem(scheduler=PoolScheduler(max_workers=1)) as system:
            owner = system.spawn(Noter, order, "owner")
            other = system.spawn(Noter, order, "other")

            def body(_task: object) -> None:
                sender = threading.Thread(target=other.put, args=("message",))
                sender.start()
                sender.join()

            system.spawn_task(Body, body, owner=owner, token="t")
            eventually(lambda: len(order) == 2)
        assert order == ["other", "owner"]

    def test_a_fan_out_comes_to_its_owner_in_few_turns(self, pool: World):
        turns: list[int] = []

        class Owner(Actor):
            left = 0

            def on_receive(self, message: Any) -> None:
                if type(message) is TaskDone:
                    turns.append(self.cell.holder.tick)
                    self.left -= 1
                    if not self.left:
                        self.reply.set(len(set(turns)))
                else:
                    self.reply = self.defer()
                    self.left = message
                    for number in range(message):
                        self.system.spawn_task(Body, lambda _: None, owner=self.cell, token=number)

        assert pool.system.start(Owner).ask(320, timeout=10) <= 40


class TestKills:
    def test_a_spinning_body_is_interrupted(self, pool: World):
        entered = threading.Event()
        ref, seen, signals = pool.recorder()
        task = pool.system.spawn_task(
            Body, lambda _: (entered.set(), spin()), owner=ref.cell, token="t"
        )
        assert entered.wait(10)

        assert task.kill() is True
        assert task.kill() is False
        eventually(lambda: seen)
        assert signals == [Down("t", KILLED)]
        assert seen == [TaskEnded("t", abandoned=False)]

    def test_a_task_that_has_not_begun_never_runs(self, simulated: World):
        ran: list[int] = []
        ref, seen, signals = simulated.recorder()
        task = simulated.system.spawn_task(Body, lambda _: ran.append(1), owner=ref.cell, token="t")
        task.kill()
        simulated.settle()

        assert ran == []
        assert signals == [Down("t", KILLED)]
        assert seen == [TaskEnded("t", abandoned=False)]

    def test_a_body_that_hangs_is_abandoned_and_its_worker_replaced(self, pool: World):
        """Supervision C75."""
        entered, leave = threading.Event(), threading.Event()
        ref, seen, signals = pool.recorder()
        task = pool.system.spawn_task(
            Body, lambda _: (entered.set(), leave.wait(30)), owner=ref.cell, token="t"
        )
        assert entered.wait(10)
        task.kill(grace=2.0)
        eventually(lambda: signals)
        assert seen == []
        eventually(lambda: pool.scheduler.timers.next_deadline() is not None)
        pool.clock.advance(2.0)

        eventually(lambda: seen)
        assert seen == [TaskEnded("t", abandoned=True)]
        assert pool.system.statistics().abandoned == 1
        assert "abandoned" in pool.kinds()
        leave.set()
        eventually(lambda: pool.system.statistics().abandoned == 0)
        pool.settle()
        assert len(seen) == 1

    def test_abandoned_workers_are_limited(self):
        """Supervision C75, dramatiq: capped and said."""
        leave = threading.Event()
        system = ActorSystem(limits=Limits(max_abandoned=2, kill_grace=0.01))
        seen: list[Any] = []
        ref = system.start(Recorder, seen, [])
        for number in range(2):
            entered = threading.Event()
            task = system.spawn_task(
                Body, lambda _, e=entered: (e.set(), leave.wait(30)), owner=ref.cell, token=number
            )
            assert entered.wait(10)
            task.kill()
        eventually(lambda: len(seen) == 2)

        with pytest.raises(WorkersExhausted, match="max_abandoned"):
            system.spawn_task(Body, spin, owner=ref.cell, token=3)
        leave.set()
        eventually(lambda: system.statistics().abandoned == 0)
        assert system.shutdown()

    def test_without_injection_a_body_runs_on_until_it_ends(self, pool: World):
        entered, leave = threading.Event(), threading.Event()
        ended: list[str] = []

        def body(_task: object) -> None:
            entered.set()
            while not leave.is_set():
                pass
            ended.append("by itself")

        ref, seen, _ = pool.recorder()
        task = pool.system.spawn_task(Body, body, owner=ref.cell, token="t", inject=False)
        assert entered.wait(10)
        task.kill()
        leave.set()
        eventually(lambda: seen)

        assert ended == ["by itself"]

    def test_a_shielded_block_is_finished_first(self, pool: World):
        entered, leave = threading.Event(), threading.Event()
        steps: list[str] = []

        def body(_task: object) -> None:
            with shield():
                entered.set()
                while not leave.is_set():
                    pass
                steps.append("whole")
            steps.append("never")

        ref, seen, _ = pool.recorder()
        task = pool.system.spawn_task(Body, body, owner=ref.cell, token="t")
        assert entered.wait(10)
        task.kill()
        leave.set()
        eventually(lambda: seen)

        assert steps == ["whole"]

    def test_a_shield_outside_of_a_task_does_nothing(self):
        with shield(), shield():
            assert True

    def test_a_body_that_waits_for_an_answer_is_woken_by_its_kill(self, pool: World):
        entered = threading.Event()
        silent = pool.system.future()

        def body(_task: object) -> None:
            entered.set()
            silent.get()

        ref, seen, _ = pool.recorder()
        task = pool.system.spawn_task(Body, body, owner=ref.cell, token="t")
        assert entered.wait(10)
        eventually(lambda: pool.system.statistics().waiting)
        task.kill()

        eventually(lambda: seen)
        assert seen == [TaskEnded("t", abandoned=False)]

    def test_a_body_that_waits_in_the_simulation_is_woken_by_its_kill(self, simulated: World):
        ref, seen, signals = simulated.recorder()
        tasks: list[TaskActor] = []
        killer = simulated.system.start(Puppet)
        body = lambda task: task.system.future().get()
        tasks.append(simulated.system.spawn_task(Body, body, owner=ref.cell, token="t"))
        simulated.system.send_after(1.0, killer, lambda _: tasks[0].kill())
        simulated.advance(0)
        simulated.advance(2)

        assert signals == [Down("t", KILLED)]
        assert seen == [TaskEnded("t", abandoned=False)]

    def test_a_body_that_kills_itself_ends(self, world: World):
        ref, seen, signals = world.recorder()
        world.system.spawn_task(
            Body, lambda task: task.kill() and spin(), owner=ref.cell, token="t"
        )
        world.settle()

        assert signals == [Down("t", KILLED)]
        assert seen == [TaskEnded("t", abandoned=False)]

    def test_the_tasks_of_an_owner_that_ends_are_killed(self, pool: World):
        entered, ended = threading.Event(), threading.Event()

        def body(_task: object) -> None:
            entered.set()
            try:
                spin()
            except Killed:
                ended.set()
                raise

        ref = pool.system.start(Puppet)
        pool.system.spawn_task(Body, body, owner=ref.cell, token="t")
        assert entered.wait(10)
        ref.stop(timeout=10)

        assert ended.wait(10)

    def test_a_killed_body_can_no_longer_send(self, pool: World):
        """What a zombie still does through the framework is refused: it is raised out of it."""
        entered, tried = threading.Event(), threading.Event()
        ref, seen, _ = pool.recorder()

        def body(_task: object) -> None:
            try:
                entered.set()
                spin()
            except Killed:
                pass
            try:
                ref.tell("from beyond")
            finally:
                tried.set()

        task = pool.system.spawn_task(Body, body, owner=ref.cell, token="t")
        assert entered.wait(10)
        task.kill()
        assert tried.wait(10)
        eventually(lambda: TaskEnded("t", abandoned=False) in seen)

        assert "from beyond" not in seen

    @lost_in_destructors
    @pytest.mark.usefixtures("switching")
    def test_in_tight_races_no_result_no_worker_and_no_kill_is_lost(self):
        """Supervision 3.4, on a scale for every run."""
        _storm(jobs=150, seed=1)

    @lost_in_destructors
    @pytest.mark.usefixtures("switching")
    def test_in_tight_races_under_a_trace_function_nothing_is_lost(self):
        """Supervision 3.4: under coverage, or a debugger."""
        before = sys.gettrace()
        threading.settrace(_trace)
        sys.settrace(_trace)
        try:
            _storm(jobs=100, seed=2)
        finally:
            sys.settrace(before)
            threading.settrace(before)

    def test_a_killed_body_that_sleeps_holds_up_no_thread_that_is_traced(self, pool: World):
        """CPython 3.11 makes no progress there while an exception is on its way."""
        entered, leave, over = threading.Event(), threading.Event(), threading.Event()
        owner, _, _ = pool.recorder()

        def body(_task: object) -> None:
            entered.set()
            try:
                leave.wait(10)  # in C: what is raised arrives when it is over
            finally:
                over.set()

        task = pool.system.spawn_task(Body, body, owner=owner.cell, token="t")
        assert entered.wait(10)
        task.kill(grace=60)
        before = sys.gettrace()
        sys.settrace(_trace)
        try:
            calls = sum(_one() for _ in range(100))
        finally:
            sys.settrace(before)
        held = not over.is_set()
        leave.set()

        assert (calls, held) == (100, True)

    @lost_in_destructors
    @pytest.mark.slow
    @pytest.mark.timeout(180)
    @pytest.mark.usefixtures("switching")
    @pytest.mark.parametrize("seed", range(4))
    def test_in_36_000_tight_races_nothing_is_lost(self, seed):
        """Supervision 3.4."""
        _storm(jobs=9_000, seed=seed)


def _trace(*_: object) -> object:
    return _trace


def _one() -> int:
    return 1


def crash_body(_task: object) -> None:
    raise Boom


def _storm(jobs: int, seed: int) -> None:
    """Run bodies of random length that send meanwhile, and kill them at random moments."""
    rng = random.Random(seed)
    system = ActorSystem(PoolScheduler(base=2), on_event=lambda _: None)
    outcomes: dict[int, list[str]] = {}
    echoes: list[int] = []
    echo = system.start(Recorder, echoes, [])

    class Owner(Actor):
        def on_receive(self, message: Any) -> None:
            outcomes.setdefault(message.token, []).append(type(message).__name__)

        def on_signal(self, signal: Any) -> None:
            outcomes.setdefault(signal.token, []).append("Down")

    owner = system.start(Owner)

    def work(length: int) -> int:
        total = 0
        for number in range(length):
            total += number
            if number % 50 == 0:
                echo.cell.put(number)
        return total

    for number in range(jobs):
        length = rng.randrange(1, 8000)
        task = system.spawn_task(Body, lambda _, n=length: work(n), owner=owner.cell, token=number)
        if rng.random() < 0.9:
            while rng.random() < 0.98 and task.worker is None and task.live:
                sleep(0)  # most are killed in their bodies, or just when these end
            for _ in range(rng.randrange(300)):
                if not task.live:
                    break
            task.kill(grace=30)
        if number % 200 == 0:
            assert echo.ask("alive", timeout=20) is None, f"seed {seed}"

    def complete() -> bool:
        return len(outcomes) == jobs and all(
            kinds in (["TaskDone"], ["Down", "TaskEnded"]) for kinds in outcomes.values()
        )

    try:
        eventually(complete, timeout=30)
    except AssertionError:
        wrong = {
            n: k for n, k in outcomes.items() if k not in (["TaskDone"], ["Down", "TaskEnded"])
        }
        raise AssertionError(f"seed {seed}: {len(outcomes)} of {jobs}, wrong: {wrong}") from None
    assert echo.ask("alive", timeout=20) is None, f"seed {seed}"
    assert system.shutdown(), f"seed {seed}"


class TestInline:
    def make(self, system: ActorSystem) -> tuple[Any, list[str]]:
        log: list[str] = []

        class Writer(Actor):
            lane = "idle"

            def on_receive(self, message: Any) -> None:
                log.append(f"write {message}")

        return system.start(Writer), log

    def test_an_idle_actor_runs_at_once_on_the_callers_worker(self, pool: World):
        writer, log = self.make(pool.system)
        ref = pool.system.start(Puppet)

        def commit(actor: Puppet) -> bool:
            cell = writer.cell
            assert cell.busy.acquire(False)  # as if it were being woken: put must not schedule it
            cell.put("a")
            cell.busy.release()
            ran = cell.run_inline()
            log.append("after")
            assert actor.cell.holder.cell is actor.cell
            return ran

        assert ref.ask(commit, timeout=5) is True
        assert log == ["write a", "after"]

    def test_what_was_sent_runs_at_once_if_it_is_all_that_waits(self, pool: World):
        writer, log = self.make(pool.system)

        def commit(_actor: Puppet) -> bool:
            writer.cell.put("a")
            ran = writer.cell.run_inline()
            log.append("after")
            return ran

        assert pool.system.start(Puppet).ask(commit, timeout=5) is True
        assert log == ["write a", "after"]

    def test_messages_are_sent_whether_the_slice_runs_at_once_or_not(self, world: World):
        writer, log = self.make(world.system)
        ref = world.system.start(Puppet)
        for number in range(20):
            ref.ask(lambda _, n=number: writer.cell.run_inline(n), timeout=5)
        assert writer.cell.run_inline("outside") is False
        world.settle()

        assert log == [f"write {n}" for n in [*range(20), "outside"]]

    def test_it_refuses_while_something_else_is_runnable(self, pool: World):
        writer, _ = self.make(pool.system)
        other = pool.system.start(Puppet)
        ref = pool.system.start(Puppet)

        def commit(_actor: Puppet) -> bool:
            other.tell(lambda _: None)
            return writer.cell.run_inline()

        assert ref.ask(commit, timeout=5) is False

    def test_it_refuses_on_a_thread_that_is_no_worker(self, pool: World):
        writer, _ = self.make(pool.system)

        assert writer.cell.run_inline() is False

    def test_a_crash_of_the_inner_actor_is_its_own(self, world: World):
        inner = world.system.start(Puppet)
        outer = world.system.start(Puppet)

        def nest(actor: Puppet) -> str:
            assert inner.cell.busy.acquire(False)
            inner.cell.put(crash)
            inner.cell.busy.release()
            while not inner.cell.run_inline():
                pass
            return f"{actor.cell is outer.cell} {inner.is_alive()}"

        assert outer.ask(nest, timeout=5) == "True False"

    def test_killing_the_outer_actor_while_the_inner_runs_harms_neither(self, pool: World):
        entered, leave = threading.Event(), threading.Event()

        class Outer(Puppet):
            interruptible = True

        inner = pool.system.start(Puppet)
        outer = pool.system.start(Outer)
        after: list[str] = []

        def hold(_actor: Puppet) -> None:
            entered.set()
            while not leave.is_set():
                pass
            after.append("inner whole")

        def nest(_actor: Puppet) -> None:
            assert inner.cell.busy.acquire(False)
            inner.cell.put(hold)
            inner.cell.busy.release()
            inner.cell.run_inline()
            after.append("outer goes on")

        outer.tell(nest)
        assert entered.wait(10)
        reason = pool.system.monitor_from_outside(outer)
        pool.system.exit(outer, KILLED)
        leave.set()

        assert reason.get(timeout=10) == KILLED
        assert after == ["inner whole"]
        assert inner.ask(lambda _: "alive", timeout=5) == "alive"


def test_a_seed_replays_and_others_differ():
    def history(seed: int) -> list[Any]:
        world = World(DeterministicScheduler(seed))
        seen: list[Any] = []
        ref = world.system.start(Recorder, seen, [])
        for number in range(20):
            world.system.spawn_task(Body, lambda _, n=number: n, owner=ref.cell, token=number)
        world.settle()
        world.system.shutdown()
        return seen

    assert history(1) == history(1)
    assert history(1) != history(2)
