"""The pool and the simulation: no lost wake-up, no deadlock, growth, rest."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

import pytest

from supervisors import (
    Actor,
    ActorSystem,
    InvalidSpec,
    PoolScheduler,
    StuckError,
    TaskActor,
    TaskDone,
    WorkersExhausted,
)
from supervisors.clock import RealClock
from supervisors.testing import DeterministicScheduler, VirtualClock, eventually
from tests.supervisors.world import Puppet, World


class Nest(Actor):
    """Asks a new one of its kind, as deep as it is told."""

    def on_receive(self, depth: int) -> int:
        if depth == 0:
            return 0
        return 1 + self.system.start(Nest).ask(depth - 1)


class TestPool:
    def test_nested_asks_never_deadlock(self):
        """Supervision 2.4: depth 200."""
        with ActorSystem(PoolScheduler(base=2)) as system:
            assert system.start(Nest).ask(200, timeout=15) == 200

    def test_too_many_waits_are_an_error_and_no_hang(self):
        with ActorSystem(PoolScheduler(max_waiting=5), on_event=lambda _: None) as system:
            with pytest.raises(Exception, match="ended before it answered") as caught:
                system.start(Nest).ask(50, timeout=15)
            error: BaseException | None = caught.value
            while error is not None and not isinstance(error, WorkersExhausted):
                error = error.__cause__
            assert isinstance(error, WorkersExhausted)

    def test_blocking_bodies_run_side_by_side(self, pool: World):
        """Each waits for all: they end only if all run at the same time."""
        count = 30
        barrier = threading.Barrier(count)

        class Meet(TaskActor):
            def run(self) -> int:
                return barrier.wait(15)

        ref, seen, _ = pool.recorder()
        for number in range(count):
            pool.system.spawn_task(Meet, owner=ref.cell, token=number)
        eventually(lambda: len(seen) == count, timeout=15)

        assert all(type(message) is TaskDone for message in seen)

    def test_declared_blocking_lets_another_worker_in_at_once(self, pool: World):
        gate = threading.Event()

        def block(actor: Puppet) -> bool:
            with actor.system.blocking():
                return gate.wait(15)

        ref, other = pool.system.start(Puppet), pool.system.start(Puppet)
        blocked = ref.ask(block, block=False)
        eventually(lambda: pool.system.statistics().waiting == 1)
        other.ask(lambda _: gate.set(), timeout=10)

        assert blocked.get(timeout=10) is True

    def test_an_actor_woken_by_one_that_then_blocks_is_not_stuck_behind_it(self, pool: World):
        gate = threading.Event()
        other = pool.system.start(Puppet)

        def wake_and_block(_actor: Puppet) -> bool:
            other.tell(lambda _: gate.set())
            return gate.wait(15)

        assert pool.system.start(Puppet).ask(wake_and_block, timeout=20) is True

    def test_a_body_that_computes_does_not_keep_others_from_running(self, pool: World):
        gate = threading.Event()
        other = pool.system.start(Puppet)

        def compute(_actor: Puppet) -> bool:
            other.tell(lambda _: gate.set())
            while not gate.is_set():
                pass
            return True

        assert pool.system.start(Puppet).ask(compute, timeout=20) is True

    def test_workers_end_with_the_system_and_none_starts_before_it_is_needed(self):
        before = set(threading.enumerate())
        system = ActorSystem()
        assert set(threading.enumerate()) == before
        system.start(Puppet)
        assert system.shutdown() is True

        assert set(threading.enumerate()) == before

    def test_idle_workers_retire(self):
        with ActorSystem(PoolScheduler(keep_alive=0.01)) as system:
            system.start(Nest).ask(20, timeout=15)

            eventually(lambda: system.statistics().workers <= 1)

    def test_the_keeper_rests_while_nothing_is_active(self, pool: World):
        pool.system.start(Puppet)

        eventually(lambda: pool.scheduler.keeper.parked)
        assert pool.system.start(Puppet).ask(lambda _: 1, timeout=5) == 1

    def test_forwarding_loses_no_message_and_runs_no_actor_twice_at_once(self):
        _forward(messages=2_000, seed=3)

    @pytest.mark.slow
    @pytest.mark.timeout(180)
    @pytest.mark.parametrize("seed", range(3))
    def test_forwarding_120_000_messages_loses_none(self, seed):
        """Hot path, checked: feeders, random blocking, a short switch interval."""
        _forward(messages=120_000, seed=seed)

    @pytest.mark.parametrize("flags", [{"base": 0}, {"base": 4, "max_workers": 2}])
    def test_wrong_sizes_are_refused(self, flags):
        with pytest.raises(InvalidSpec):
            PoolScheduler(**flags)

    def test_an_idle_lane_waits_until_nothing_else_is_runnable(self):
        """On a clock that stands still, so that it never has waited long enough to go first."""
        order: list[str] = []

        class Writer(Actor):
            lane = "idle"

            def on_receive(self, message: str) -> None:
                order.append(message)

        with ActorSystem(PoolScheduler(), clock=VirtualClock(autojump=False)) as system:
            writer = system.start(Writer)
            others = [system.start(Puppet) for _ in range(5)]

            def burst(_actor: Puppet) -> None:
                writer.tell("write")
                for other in others:
                    other.tell(lambda _: order.append("work"))

            system.start(Puppet).ask(burst, timeout=5)
            eventually(lambda: len(order) == 6)

        assert order[-1] == "write"


def _forward(messages: int, seed: int) -> None:
    """Pass messages around a ring of actors from several threads; some block at random."""
    rng = random.Random(seed)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    system = ActorSystem(PoolScheduler(base=2, max_workers=8))
    done = threading.Semaphore(0)
    twice: list[object] = []

    class Hop(Actor):
        isolated = False
        inside = False

        def __init__(self, number: int) -> None:
            self.number = number

        def on_receive(self, left: int) -> None:
            if self.inside:
                twice.append(self.number)
            self.inside = True
            if left:
                ring[(self.number + 1 + left % 3) % len(ring)].cell.put(left - 1)
            else:
                done.release()
            if left % 997 == 5:
                with self.system.blocking():
                    threading.Event().wait(0.0001)
            self.inside = False

    ring = [system.start(Hop, number) for number in range(16)]
    feeders = 4
    hops = 9
    each = messages // (hops + 1) // feeders

    def feed(own: random.Random) -> None:
        for _ in range(each):
            ring[own.randrange(16)].cell.put(hops)

    threads = [
        threading.Thread(target=feed, args=(random.Random(rng.random()),)) for _ in range(feeders)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for count in range(each * feeders):
            assert done.acquire(timeout=30), f"seed {seed}: {count} of {each * feeders} arrived"
        assert twice == [], f"seed {seed}"
        assert system.shutdown(), f"seed {seed}"
    finally:
        sys.setswitchinterval(before)


class TestSimulation:
    def test_a_wait_that_can_never_end_names_the_seed(self):
        system = ActorSystem(DeterministicScheduler(seed=77))

        with pytest.raises(StuckError, match="seed 77"):
            system.future().get()

    def test_a_timeout_passes_in_virtual_time(self):
        system = ActorSystem(DeterministicScheduler())
        with pytest.raises(Exception, match="no answer within 3600"):
            system.future().get(timeout=3600)

        assert system.clock.monotonic() == 3600

    def test_without_autojump_the_clock_stands(self):
        clock = VirtualClock(autojump=False)
        system = ActorSystem(DeterministicScheduler(clock=clock))

        with pytest.raises(StuckError):
            system.future().get(timeout=1)

    def test_it_needs_a_virtual_clock(self):
        with pytest.raises(InvalidSpec):
            ActorSystem(DeterministicScheduler(), clock=RealClock())

    def test_an_endless_loop_is_an_error(self):
        system = ActorSystem(DeterministicScheduler(max_steps=100))
        ref = system.spawn(Puppet)

        def again(actor: Puppet) -> None:
            actor.cell.put(again)

        ref.put(again)
        with pytest.raises(StuckError, match="100 turns"):
            system.future().get()

    def test_seeds_give_different_orders(self):
        def order(seed: int) -> list[Any]:
            system = ActorSystem(DeterministicScheduler(seed))
            log: list[Any] = []
            cells = [system.spawn(Puppet, n, log) for n in range(6)]
            system.scheduler.settle()
            assert len(cells) == 6
            return log

        assert len({tuple(order(seed)) for seed in range(20)}) > 10
        assert order(3) == order(3)
