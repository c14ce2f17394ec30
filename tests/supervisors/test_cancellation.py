"""Cancellation tokens: wishes that code looks at, and waits that they wake."""

from __future__ import annotations

import threading

import pytest

from supervisors import (
    KILLED,
    Cancelled,
    CancelToken,
    ChildSpec,
    Supervisor,
    TaskActor,
    TaskEnded,
    Tasks,
    TaskSupervisor,
    cancellation,
)
from tests.supervisors.world import Puppet, World


class TestToken:
    def test_it_is_cancelled_once(self, world: World):
        token = CancelToken(world.system)

        assert [token.cancelled, token.cancel(), token.cancel(), token.cancelled] == [
            False, True, False, True,
        ]  # fmt: skip

    def test_its_deadline_cancels_it(self, world: World):
        token = CancelToken(world.system, timeout=2.0)
        assert token.remaining() == 2.0
        token.raise_if_cancelled()
        world.clock.advance(2.5)

        assert token.remaining() == 0.0
        with pytest.raises(Cancelled, match="deadline"):
            token.raise_if_cancelled()

    def test_a_child_has_the_earlier_deadline_and_the_cancellation_of_its_parent(
        self, world: World
    ):
        parent = CancelToken(world.system, timeout=2.0)
        child = CancelToken(world.system, timeout=60.0, parent=parent)
        assert child.deadline == parent.deadline
        parent.cancel()

        assert child.cancelled

    def test_a_wait_ends_by_itself(self, simulated: World):
        token = CancelToken(simulated.system)

        assert token.wait(3.0) is False
        assert simulated.clock.monotonic() == 3.0

    def test_a_wait_ends_at_the_deadline(self, simulated: World):
        token = CancelToken(simulated.system, timeout=2.0)
        with pytest.raises(Cancelled):
            token.sleep(100.0)

        assert simulated.clock.monotonic() == 2.0

    def test_who_waits_is_woken(self, pool: World):
        token = CancelToken(pool.system)
        threading.Timer(0.01, token.cancel).start()

        assert token.wait(20.0)

    def test_a_call_is_made_at_the_cancellation(self, world: World):
        token, called = CancelToken(world.system), []
        token.on_cancel(lambda: called.append(1))
        token.cancel()
        token.on_cancel(lambda: called.append(2))

        assert called == [1, 2]

    def test_plain_code_has_one_that_nobody_cancels(self):
        assert cancellation().cancelled is False


def wait_for_the_end(actor: Puppet) -> None:
    actor.log.append("waits")
    actor.log.append(cancellation().wait(50.0))


class TestOfActors:
    def test_a_handler_that_waits_is_woken_by_its_supervisor(self, pool: World):
        """Supervision §3.3: the first layer."""
        log: list[object] = []
        supervisor = pool.system.start(Supervisor, [ChildSpec("a", Puppet, ("a", log), name="a")])
        pool.system.whereis("a").tell(wait_for_the_end)
        while "waits" not in log:
            pass
        supervisor.stop(timeout=5)

        assert log[1:3] == ["waits", True]
        assert log[3][:2] == ("stop", "a")

    @pytest.mark.parametrize("how", ["stop", "exit", "kill"])
    def test_an_end_that_waits_already_is_seen(self, simulated: World, how):
        log: list[object] = []
        ref = simulated.system.start(Puppet, "a", log)

        def end_itself(actor: Puppet) -> None:
            if how == "stop":
                ref.stop(block=False)
            elif how == "exit":
                actor.system.exit(ref, KILLED)
            else:
                ref.cell.kill(10.0)
            log.append(cancellation().cancelled)

        ref.tell(end_itself)
        simulated.settle()

        assert log[1] is True

    def test_a_signal_that_is_trapped_cancels_nothing(self, simulated: World):
        log: list[object] = []
        ref = simulated.system.start(Puppet, "a", log, trap=True)
        other = simulated.system.start(Puppet)

        def be_told(actor: Puppet) -> None:
            token = cancellation()
            other.ask(lambda _: actor.system.exit(ref, KILLED.__class__("why")))
            log.append(token.cancelled)

        ref.tell(be_told)
        simulated.settle()

        assert log[1] is False
        assert ref.is_alive()


class TestOfTasks:
    def test_a_body_that_is_not_interrupted_sees_its_kill(self, pool: World):
        recorder, seen, _ = pool.recorder()
        began, ended = threading.Event(), threading.Event()

        class Body(TaskActor):
            def run(self) -> None:
                token = cancellation()
                began.set()
                while not token.cancelled:
                    pass
                ended.set()

        task = pool.system.spawn_task(Body, owner=recorder.cell, token="t", inject=False)
        began.wait(5)
        task.kill()

        assert ended.wait(5)
        pool.settle()
        assert seen == [TaskEnded("t", abandoned=False)]

    def test_a_kill_cancels_the_token(self, simulated: World):
        tasks = Tasks(simulated.system.start(TaskSupervisor))
        seen: list[bool] = []

        def body() -> None:
            token = cancellation()
            try:
                task._body.kill()
            finally:
                seen.append(token.cancelled)

        task = tasks.run(body)
        simulated.settle()

        assert seen == [True]


def test_a_wait_until_a_deadline_that_is_not_there_has_no_end(pool: World):
    token = CancelToken(pool.system)
    actor = pool.system.start(Puppet)

    assert actor.ask(lambda _me: 7, timeout=token.remaining()) == 7


def test_waits_that_were_given_up_leave_nothing_behind(world: World):
    token = CancelToken(world.system)
    for _ in range(3):
        token.wait(0.0001)

    assert token._over._waiters == []
