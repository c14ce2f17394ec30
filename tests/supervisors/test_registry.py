"""Registries and partitions: who has which name, and when it is free."""

from __future__ import annotations

import threading

import pytest

from supervisors import (
    KILLED,
    ActorExit,
    AlreadyStarted,
    ChildSpec,
    Crashed,
    InvalidSpec,
    NoProc,
    StartError,
    Supervisor,
)
from supervisors.partition import PartitionSupervisor, partition, partitions, resize
from supervisors.registry import AlreadyRegistered, Registered, Registry, Unregistered, Via
from supervisors.testing import DeterministicScheduler, eventually
from tests.supervisors.world import Puppet, World, crash


def kept(world: World, **flags: object) -> Registry:
    registry = Registry("names", **flags)
    registry.start(world.system)
    return registry


class TestUnique:
    def test_an_actor_registers_itself_and_is_found(self, world: World):
        registry = kept(world)
        ref = world.system.start(Puppet)
        ref.ask(lambda _: registry.register("key", 7), timeout=5)

        assert registry.whereis("key") == ref
        assert [entry.value for entry in registry.lookup("key")] == [7]
        assert registry.keys(ref) == {"key"}

    def test_only_an_actor_registers_and_only_itself(self, world: World):
        """Supervision C149."""
        registry = kept(world)

        with pytest.raises(InvalidSpec):
            registry.register("key")

    def test_a_name_is_free_for_who_hears_of_the_end(self, world: World):
        """Supervision C141."""
        registry = kept(world)

        class Heir(Puppet):
            got: object = None

            def on_signal(self, signal: object) -> None:
                registry.register("key")
                self.got = signal

        heir = world.system.start(Heir)
        owner = world.system.start(Puppet)
        owner.ask(lambda _: registry.register("key"), timeout=5)
        heir.ask(lambda actor: actor.monitor(owner), timeout=5)
        owner.tell(crash)
        world.settle()

        assert registry.whereis("key") == heir

    def test_of_many_that_race_exactly_one_wins_and_all_learn_who(self, world: World):
        """Supervision C142, horde."""
        registry = kept(world)
        outcomes: list[object] = []

        def race(actor: Puppet) -> None:
            try:
                registry.register("key")
                outcomes.append(("won", actor.ref))
            except AlreadyRegistered as error:
                outcomes.append(("lost", error.ref))

        for _ in range(100):
            world.system.spawn(Puppet).put(race)
        world.settle()
        winner = registry.whereis("key")

        assert outcomes.count(("won", winner)) == 1
        assert outcomes.count(("lost", winner)) == 99

    def test_failed_registrations_leave_nothing_behind(self, world: World):
        """Supervision C143, elixir."""
        registry = kept(world)
        owner, other = world.system.start(Puppet), world.system.start(Puppet)
        owner.ask(lambda _: registry.register("key"), timeout=5)

        def try_often(_actor: Puppet) -> None:
            for _ in range(1000):
                with pytest.raises(AlreadyRegistered):
                    registry.register("key")

        other.ask(try_often, timeout=10)

        assert len(registry) == 1
        assert registry.keys(other) == set()

    def test_a_value_is_updated_by_its_owner(self, world: World):
        registry = kept(world)
        ref = world.system.start(Puppet)
        ref.ask(lambda _: registry.register("key", 1), timeout=5)

        assert ref.ask(lambda _: registry.update_value("key", lambda v: v + 1), timeout=5) == 2
        assert registry.lookup("key")[0].value == 2

    def test_unregister_frees_the_name(self, world: World):
        registry = kept(world)
        ref = world.system.start(Puppet)
        ref.ask(lambda _: registry.register("key"), timeout=5)

        assert ref.ask(lambda _: registry.unregister("key"), timeout=5) is True
        assert ref.ask(lambda _: registry.unregister("key"), timeout=5) is False
        assert registry.whereis("key") is None

    def test_a_killed_owner_is_never_found(self):
        """Celluloid, gen_registry: whatever the order of restarts."""
        for seed in range(30):
            world = World(DeterministicScheduler(seed))
            registry = kept(world)
            spec = ChildSpec("a", Puppet, name=Via(registry, "a"))
            world.system.start(Supervisor, [spec], intensity=1000)
            for _ in range(20):
                found = registry.whereis("a")
                if found is not None:
                    assert found.cell.phase != 3, f"seed {seed}"
                    world.system.exit(found, KILLED)
                world.scheduler.step()
            world.settle()
            assert registry.whereis("a").is_alive(), f"seed {seed}"
            world.system.shutdown()


class TestVia:
    def test_a_second_start_learns_who_has_the_name(self, world: World):
        """Supervision C146."""
        registry = kept(world)
        ref = world.system.start(Puppet, name=Via(registry, ("order", 17)))

        assert registry.whereis(("order", 17)) == ref
        with pytest.raises(AlreadyStarted) as caught:
            world.system.start(Puppet, name=Via(registry, ("order", 17)))
        assert caught.value.ref == ref

    def test_duplicate_keys_name_no_one(self, world: World):
        """Supervision C146."""
        registry = kept(world, keys="duplicate")

        with pytest.raises(InvalidSpec):
            world.system.start(Puppet, name=Via(registry, "key"))

    def test_a_failed_start_leaves_the_name_free(self, world: World):
        registry = kept(world)
        with pytest.raises(StartError):
            world.system.start(Puppet, name=Via(registry, "key"), fail=crash)

        assert registry.whereis("key") is None
        assert world.system.start(Puppet, name=Via(registry, "key")).is_alive()

    def test_each_incarnation_has_the_name(self, world: World):
        registry = kept(world)
        world.system.start(Supervisor, [ChildSpec("a", Puppet, name=Via(registry, "a"))])
        first = registry.whereis("a")
        first.tell(crash)
        world.settle()

        assert registry.whereis("a") not in {None, first}


class TestDuplicate:
    def test_all_are_reached_and_the_dead_are_not(self, world: World):
        """Supervision C145."""
        registry = kept(world, keys="duplicate")
        refs = [world.system.start(Puppet) for _ in range(4)]
        for number, ref in enumerate(refs):
            ref.ask(lambda _, n=number: registry.register("topic", n), timeout=5)
        refs[0].tell(crash)
        world.settle()
        reached: list[object] = []

        assert registry.dispatch("topic", lambda entry: reached.append(entry.value)) == 3
        assert sorted(reached) == [1, 2, 3]


class TestKeeper:
    def test_a_registry_that_nobody_keeps_raises(self, world: World):
        """Supervision C147."""
        registry = Registry("names")

        with pytest.raises(NoProc):
            registry.whereis("key")
        with pytest.raises(NoProc):
            world.system.start(Puppet, name=Via(registry, "key"))

    def test_when_the_keeper_is_killed_the_registered_end_with_it(self, world: World):
        """Supervision C147."""
        registry = Registry("names")
        keeper = registry.start(world.system)
        ref = world.system.start(Puppet, name=Via(registry, "key"))
        world.system.exit(keeper, KILLED)
        world.settle()

        assert not ref.is_alive()
        with pytest.raises(NoProc):
            registry.lookup("key")

    def test_a_restarted_keeper_begins_empty(self, world: World):
        registry = Registry("names")
        root = world.system.start(
            Supervisor, [registry.child_spec(), ChildSpec("a", Puppet, name=Via(registry, "a"))],
            strategy="rest_for_one",
        )  # fmt: skip
        first = registry.whereis("a")
        keeper = next(c for c in list(root.cell.book.kids) if "Keeper" in repr(c))
        world.system.exit(keeper, KILLED)
        world.settle()

        assert registry.whereis("a") not in {None, first}
        assert len(registry) == 1

    def test_listeners_hear_of_both(self, world: World):
        recorder, seen, _ = world.recorder()
        registry = kept(world, listeners=(recorder,))
        ref = world.system.start(Puppet)
        ref.ask(lambda _: registry.register("key", 1), timeout=5)
        ref.tell(crash)
        world.settle()

        assert seen == [Registered("names", "key", ref, 1), Unregistered("names", "key", ref)]

    def test_the_lock_of_a_key_is_held_by_one_at_a_time(self, pool: World):
        registry = kept(pool)
        inside: list[int] = []
        most: list[int] = []
        gate = threading.Event()

        def enter(_actor: Puppet) -> None:
            with registry.lock("key"):
                inside.append(1)
                most.append(len(inside))
                gate.wait(10)
                inside.pop()

        for _ in range(5):
            pool.system.spawn(Puppet).put(enter)
        eventually(lambda: inside)
        gate.set()
        eventually(lambda: len(most) == 5)

        assert set(most) == {1}

    def test_keys_are_unique_or_duplicate(self):
        with pytest.raises(InvalidSpec):
            Registry("names", keys="some")


class TestPartitions:
    @pytest.mark.parametrize(("key", "number"), [(-1, 1), (0, 0), (1, 1), (4, 0), (7, 3)])
    def test_whole_numbers_choose_by_their_remainder(self, world: World, key, number):
        """Supervision C150."""
        shards = world.system.start(PartitionSupervisor, ChildSpec(None, Puppet, (0,)), 4)

        assert partition(shards, key).cell is shards.cell.actor.cell_of(number)

    def test_other_keys_choose_by_a_stable_hash(self, world: World):
        """Supervision C150."""
        shards = world.system.start(PartitionSupervisor, ChildSpec(None, Puppet), 4)
        chosen = {key: partition(shards, key) for key in ("a", b"a", "order-17")}

        assert chosen["a"] == chosen[b"a"] == partition(shards, "a")

    def test_no_partitions_are_an_error_at_the_look_up(self, world: World):
        """Supervision C150."""
        shards = world.system.start(PartitionSupervisor, ChildSpec(None, Puppet), 0)

        with pytest.raises(NoProc):
            partition(shards, 1)

    @pytest.mark.parametrize("count", [0, 2, 6])
    def test_resizing_moves_keys_and_ends_those_that_are_too_many(self, world: World, count):
        """Supervision C150."""
        log: list[object] = []
        shards = world.system.start(PartitionSupervisor, ChildSpec(None, Puppet, ("p", log)), 4)
        resize(shards, count, timeout=5)

        assert partitions(shards) == count
        assert sum(entry[0] == "start" for entry in log) == max(4, count)
        assert sum(entry[0] == "stop" for entry in log) == max(0, 4 - count)

    def test_arguments_may_depend_on_the_number(self, world: World):
        shards = world.system.start(
            PartitionSupervisor, ChildSpec(None, Puppet), 3, with_args=lambda _, n: (f"p{n}",)
        )

        assert partition(shards, 2).ask(lambda actor: actor.id, timeout=5) == "p2"

    def test_a_partition_that_crashed_is_replaced(self, world: World):
        shards = world.system.start(PartitionSupervisor, ChildSpec(None, Puppet), 2)
        first = partition(shards, 1)
        with pytest.raises(ActorExit) as caught:
            first.ask(crash, timeout=5)
        world.settle()

        assert isinstance(caught.value.reason, Crashed)
        assert partition(shards, 1) != first
