"""Functions on the side: awaited, watched, shut down, streamed."""

from __future__ import annotations

import contextvars
import threading

import pytest

from supervisors import (
    KILLED,
    ActorExit,
    CallTimeout,
    ChildSpec,
    Crashed,
    InvalidSpec,
    MaxChildren,
    NoProc,
    Supervisor,
    WorkersExhausted,
)
from supervisors.tasks import Failed, Ok, Tasks, TaskSupervisor
from supervisors.testing import eventually
from tests.supervisors.world import Boom, Puppet, World


def fail() -> None:
    raise Boom("task")


def tasks_of(world: World, **flags: object) -> Tasks:
    return Tasks(world.system.start(TaskSupervisor, **flags))


def spin() -> None:
    while True:
        pass


class TestAwait:
    def test_the_value_is_awaited(self, world: World):
        assert tasks_of(world).run(pow, 2, 10).await_() == 1024

    def test_an_error_is_raised_where_it_is_awaited(self, world: World):
        """Supervision C157."""
        with pytest.raises(Boom):
            tasks_of(world).run(fail).await_()

    def test_a_wait_that_is_too_long_times_out(self, pool: World):
        """Supervision C153."""
        gate = threading.Event()
        task = tasks_of(pool).run(gate.wait, 20)
        with pytest.raises(CallTimeout):
            task.await_(0.01)
        gate.set()

        assert task.await_() is True

    def test_context_variables_of_the_caller_are_seen(self, world: World):
        var: contextvars.ContextVar[int] = contextvars.ContextVar("var", default=0)
        var.set(5)

        assert tasks_of(world).run(var.get).await_() == 5

    def test_no_stray_message_is_left(self, world: World):
        """Supervision C153."""
        tasks = tasks_of(world)
        tasks.run(int).await_()
        world.settle()

        assert len(tasks) == 0
        assert tasks.cell.empty()


class TestYieldOrShutdown:
    def test_a_value_that_came_is_returned_by_the_shutdown(self, world: World):
        """Supervision C154 and C155."""
        task = tasks_of(world).run(int, "7")
        world.settle()

        assert task.shutdown("brutal_kill") == Ok(7)

    def test_the_idiom_ends_a_task_that_takes_too_long(self, pool: World):
        """Supervision C154."""
        tasks = tasks_of(pool)
        entered = threading.Event()
        task = tasks.run(lambda: (entered.set(), spin()))
        assert entered.wait(10)

        assert (task.yield_(0.001) or task.shutdown("brutal_kill")) is None
        assert len(tasks) == 0

    def test_a_finished_task_tells_why_it_ended(self, world: World):
        """Supervision C155."""
        task = tasks_of(world).run(fail)
        world.settle()
        outcome = task.shutdown()

        assert isinstance(outcome, Failed)
        assert isinstance(outcome.reason.error, Boom)
        assert task.yield_(0) == outcome

    def test_yield_gives_none_while_it_runs(self, pool: World):
        gate = threading.Event()
        task = tasks_of(pool).run(gate.wait, 20)

        assert task.yield_(0.001) is None
        gate.set()
        assert task.yield_() == Ok(value=True)

    def test_in_every_race_the_value_is_returned_or_the_task_is_dead(self, pool: World):
        """Supervision C154: a result that arrived in the race is returned."""
        tasks = tasks_of(pool)
        for _ in range(200):
            ran: list[int] = []
            outcome = tasks.run(ran.append, 1).shutdown("brutal_kill")
            assert outcome in {None, Ok(None)}
            if outcome is not None:
                assert ran == [1]


class TestLinks:
    def test_a_failure_ends_the_caller_that_is_linked(self, world: World):
        """Supervision C151."""
        tasks = tasks_of(world)
        ref = world.system.start(Puppet)
        reason = world.system.monitor_from_outside(ref)
        ref.tell(lambda _: tasks.run_linked(fail) and None)

        assert isinstance(reason.get(timeout=5).error, Boom)

    def test_a_failure_is_only_told_to_one_that_is_not(self, world: World):
        """Supervision C151."""
        tasks = tasks_of(world)
        ref = world.system.start(Puppet)
        task = ref.ask(lambda _: tasks.run(fail), timeout=5)
        world.settle()

        assert ref.is_alive()
        assert isinstance(task.yield_(0), Failed)

    def test_a_linked_task_ends_with_its_caller(self, pool: World):
        tasks = tasks_of(pool)
        entered = threading.Event()
        ref = pool.system.start(Puppet)
        task = ref.ask(lambda _: tasks.run_linked(lambda: (entered.set(), spin())), timeout=5)
        assert entered.wait(10)
        ref.stop(timeout=5)

        assert task.yield_(10) == Failed(KILLED)

    def test_a_linked_task_that_is_awaited_too_long_ends(self, pool: World):
        """Supervision C153."""
        tasks = tasks_of(pool)
        ref = pool.system.start(Puppet)

        def wait(_actor: Puppet) -> None:
            tasks.run_linked(spin).await_(0.01)

        with pytest.raises(ActorExit) as caught:
            ref.ask(wait, timeout=10)
        assert isinstance(caught.value.__cause__, CallTimeout)
        eventually(lambda: len(tasks) == 0)


class TestSupervisor:
    def test_more_than_max_children_are_refused(self, pool: World):
        """Supervision C159."""
        gate = threading.Event()
        tasks = tasks_of(pool, max_children=1)
        first = tasks.run(gate.wait, 20)
        with pytest.raises(MaxChildren):
            tasks.run(int)
        with pytest.raises(MaxChildren):
            tasks.start(int)
        gate.set()
        first.await_()

    @pytest.mark.parametrize("kill", [True, False])
    def test_tasks_end_with_their_supervisor_and_who_waits_is_told(self, pool: World, kill):
        tasks = tasks_of(pool)
        entered = threading.Event()
        task = tasks.run(lambda: (entered.set(), spin()))
        assert entered.wait(10)
        if kill:
            pool.system.exit(tasks.cell, KILLED)
        else:
            tasks.cell.ref.stop(timeout=5)

        with pytest.raises(ActorExit):
            task.await_(10)
        eventually(lambda: tasks.cell.phase == 3)
        with pytest.raises(NoProc):
            tasks.run(int)

    def test_a_forgotten_task_that_fails_is_reported(self, world: World):
        """Supervision C157."""
        tasks_of(world).start(fail)
        world.settle()

        assert "task_failed" in world.kinds()

    def test_it_stands_in_a_tree(self, world: World):
        world.system.start(Supervisor, [ChildSpec("tasks", TaskSupervisor, name="tasks")])

        assert Tasks(world.system.whereis("tasks")).run(int, "1").await_() == 1

    def test_another_actor_is_no_task_supervisor(self, world: World):
        with pytest.raises(InvalidSpec):
            Tasks(world.system.start(Puppet))
        with pytest.raises(Exception, match="max_children"):
            world.system.start(TaskSupervisor, -1)


class TestStream:
    def test_outcomes_come_in_the_order_of_the_items(self, world: World):
        """Supervision C158."""
        outcomes = tasks_of(world).stream(lambda n: n * n, range(20), max_concurrency=3)

        assert [outcome.value for outcome in outcomes] == [n * n for n in range(20)]

    def test_unordered_outcomes_are_all_there(self, world: World):
        outcomes = tasks_of(world).stream(abs, range(20), ordered=False)

        assert sorted(outcome.value for outcome in outcomes) == list(range(20))

    def test_no_more_run_at_a_time_than_may(self, pool: World):
        """Supervision C158."""
        running: list[int] = []
        most: list[int] = []

        def work(number: int) -> int:
            running.append(number)
            most.append(len(running))
            threading.Event().wait(0.001)
            running.remove(number)
            return number

        list(tasks_of(pool).stream(work, range(20), max_concurrency=3))

        assert max(most) <= 3

    def test_errors_are_outcomes(self, world: World):
        outcomes = list(tasks_of(world).stream(lambda n: 1 // n, [1, 0, 1]))

        assert [type(outcome) for outcome in outcomes] == [Ok, Failed, Ok]
        assert isinstance(outcomes[1].reason, Crashed)

    def test_what_takes_too_long_is_killed_or_ends_the_stream(self, pool: World):
        """Supervision C158."""
        tasks = tasks_of(pool)
        work = lambda n: spin() if n == 1 else n
        outcomes = list(
            tasks.stream(work, range(3), timeout=0, max_concurrency=1, on_timeout="kill_task")
        )
        assert outcomes[1] == Failed(KILLED)
        with pytest.raises(CallTimeout):
            list(tasks.stream(lambda _: spin(), [1], timeout=0))

        eventually(lambda: len(tasks) == 0)

    def test_a_reader_that_stops_leaves_no_task_behind(self, pool: World):
        """Supervision C158."""
        tasks = tasks_of(pool)
        stream = tasks.stream(lambda n: n if n == 0 else spin(), range(8), max_concurrency=4)
        assert next(stream) == Ok(0)
        stream.close()

        eventually(lambda: len(tasks) == 0)

    def test_a_stream_without_room_is_refused(self, world: World):
        with pytest.raises(InvalidSpec):
            next(tasks_of(world).stream(abs, [1], max_concurrency=0))


def test_a_task_that_could_not_be_started_holds_no_place(pool: World, monkeypatch):
    tasks = tasks_of(pool, max_children=1)

    def none_left(*_args, **_kwargs):
        raise WorkersExhausted("no worker is left")

    with monkeypatch.context() as patch:
        patch.setattr(pool.system, "spawn_task", none_left)
        with pytest.raises(WorkersExhausted):
            tasks.run(pow, 2, 3)

    assert tasks.run(pow, 2, 3).await_() == 8
