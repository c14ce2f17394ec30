"""When supervisors restart whom: the decision table, the strategies, failing restarts."""

from __future__ import annotations

import itertools

import pytest

from supervisors import (
    BRUTAL_KILL,
    KILLED,
    NO_PROC,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    ActorRef,
    ChildSpec,
    Crashed,
    DynamicSupervisor,
    Ignore,
    Shutdown,
    Supervisor,
    count_children,
    start_child,
    terminate_child,
    which_children,
)
from supervisors.testing import DeterministicScheduler
from tests.supervisors.world import Boom, Puppet, World, crash, starts, stops


def tree(world: World, ids: str, log: list[object], **flags: object) -> ActorRef:
    """Start a supervisor of puppets that have their ids as names."""
    restarts = flags.pop("restarts", {})
    fails = flags.pop("fails", {})
    specs = [
        ChildSpec(
            one,
            Puppet,
            (one, log),
            {"fail": fails.get(one)},
            restart=restarts.get(one, "permanent"),
            name=one,
        )
        for one in ids
    ]
    flags.setdefault("intensity", 3)
    return world.system.start(Supervisor, specs, **flags)


def states(supervisor: ActorRef) -> dict[object, str]:
    return {info.id: info.state for info in which_children(supervisor, timeout=5)}


def end(world: World, name: str, reason: object) -> None:
    """Have the actor `name` end for `reason`, whatever that is."""
    ref = world.system.whereis(name)
    if reason == KILLED:
        world.system.exit(ref, KILLED)
    elif isinstance(reason, Crashed):
        ref.tell(crash)
    else:
        ref.tell(lambda actor: actor.exit(reason))
    world.settle()


def failing(times: int):
    """Return an `on_start` hook that fails in its second to (1 + times)th call."""
    calls = itertools.count()

    def fail(_actor: Puppet) -> None:
        if 1 <= next(calls) <= times:
            raise Boom("restart")

    return fail


REASONS = [
    NORMAL, SHUTDOWN, Shutdown("x"), KILLED, NO_PROC, Abnormal("boom"), Crashed(Boom()),
]  # fmt: skip
QUIET = 3  # the first three


class TestDecisionTable:
    """Supervision 1.3: exit reason x restart type."""

    @pytest.mark.parametrize("reason", REASONS, ids=repr)
    def test_a_permanent_child_is_always_restarted(self, world: World, reason):
        log: list[object] = []
        supervisor = tree(world, "a", log)
        end(world, "a", reason)

        assert starts(log) == ["a", "a"]
        assert states(supervisor) == {"a": "running"}
        assert "child_terminated" in world.kinds()

    @pytest.mark.parametrize("reason", REASONS[:QUIET], ids=repr)
    def test_a_transient_child_that_ends_quietly_stays_down(self, world: World, reason):
        """Supervision C21."""
        log: list[object] = []
        supervisor = tree(world, "a", log, restarts={"a": "transient"})
        end(world, "a", reason)

        assert starts(log) == ["a"]
        assert states(supervisor) == {"a": "undefined"}
        counts = count_children(supervisor, timeout=5)
        assert (counts.specs, counts.active) == (1, 0)
        assert "child_terminated" not in world.kinds()

    @pytest.mark.parametrize("reason", REASONS[QUIET:], ids=repr)
    def test_a_transient_child_that_ends_abnormally_is_restarted(self, world: World, reason):
        """Supervision C22."""
        log: list[object] = []
        supervisor = tree(world, "a", log, restarts={"a": "transient"})
        end(world, "a", reason)

        assert starts(log) == ["a", "a"]
        assert states(supervisor) == {"a": "running"}
        assert "child_terminated" in world.kinds()

    @pytest.mark.parametrize("reason", REASONS, ids=repr)
    def test_a_temporary_child_is_forgotten(self, world: World, reason):
        """Supervision C23."""
        log: list[object] = []
        supervisor = tree(world, "a", log, restarts={"a": "temporary"})
        end(world, "a", reason)

        assert starts(log) == ["a"]
        assert count_children(supervisor, timeout=5).specs == 0
        assert ("child_terminated" in world.kinds()) is (REASONS.index(reason) >= QUIET)

    @pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
    @pytest.mark.parametrize("reason", REASONS, ids=repr)
    def test_a_dynamic_child_follows_the_same_table(self, world: World, restart, reason):
        log: list[object] = []
        supervisor = world.system.start(DynamicSupervisor)
        spec = ChildSpec("a", Puppet, ("a", log), restart=restart, name="a")
        start_child(supervisor, spec, timeout=5)
        end(world, "a", reason)

        quiet = REASONS.index(reason) < QUIET
        again = restart == "permanent" or (restart == "transient" and not quiet)
        assert len(starts(log)) == 1 + again
        assert count_children(supervisor, timeout=5).active == int(again)


class TestStrategies:
    def test_one_for_one_restarts_the_child_that_ended(self, world: World):
        log: list[object] = []
        tree(world, "abc", log)
        end(world, "b", Crashed(Boom()))

        assert starts(log) == ["a", "b", "c", "b"]

    def test_one_for_all_ends_in_reverse_and_starts_in_order(self, world: World):
        """Supervision C26."""
        log: list[object] = []
        tree(world, "abc", log, strategy="one_for_all")
        end(world, "b", Crashed(Boom()))

        assert stops(log) == ["b", "c", "a"]
        assert starts(log) == ["a", "b", "c", "a", "b", "c"]

    def test_rest_for_one_leaves_the_earlier_alone(self, world: World):
        """Supervision C27."""
        log: list[object] = []
        tree(world, "abcd", log, strategy="rest_for_one")
        first = world.system.whereis("a")
        end(world, "b", Crashed(Boom()))

        assert stops(log) == ["b", "d", "c"]
        assert starts(log) == ["a", "b", "c", "d", "b", "c", "d"]
        assert world.system.whereis("a") == first

    @pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
    def test_a_temporary_bystander_is_ended_and_forgotten(self, world: World, strategy):
        """Supervision C25."""
        log: list[object] = []
        supervisor = tree(world, "ab", log, strategy=strategy, restarts={"b": "temporary"})
        end(world, "a", Crashed(Boom()))

        assert stops(log) == ["a", "b"]
        assert states(supervisor) == {"a": "running"}

    def test_a_terminated_child_runs_again_with_its_group(self, world: World):
        """Supervision C31."""
        log: list[object] = []
        supervisor = tree(world, "ab", log, strategy="one_for_all")
        terminate_child(supervisor, "a", timeout=5)
        end(world, "b", Crashed(Boom()))

        assert states(supervisor) == {"a": "running", "b": "running"}

    def test_siblings_that_die_together_are_one_restart_of_one_for_all(self, simulated: World):
        """Supervision 1.5, march: one group restart at a time."""
        log: list[object] = []
        supervisor = tree(simulated, "abc", log, strategy="one_for_all", intensity=1)
        for name in "abc":
            simulated.system.whereis(name).tell(crash)
        simulated.settle()

        assert states(supervisor) == dict.fromkeys("abc", "running")

    def test_each_incarnation_is_a_new_object(self, world: World):
        """Protoactor-go."""
        log: list[object] = []
        tree(world, "a", log)
        first = world.system.whereis("a").ask(id, timeout=5)
        kept = world.system.whereis("a").ask(lambda actor: actor, timeout=5)
        end(world, "a", Crashed(Boom()))

        assert world.system.whereis("a").ask(id, timeout=5) != first
        assert kept is not None


class TestFailingRestarts:
    def test_a_failed_restart_is_tried_again_and_counted(self, world: World):
        """Supervision C51, AtomVM."""
        log: list[object] = []
        supervisor = tree(world, "a", log, fails={"a": failing(2)}, intensity=3)
        end(world, "a", Crashed(Boom()))

        assert states(supervisor) == {"a": "running"}
        assert which_children(supervisor, timeout=5)[0].restarts == 3
        assert world.kinds().count("restart_failed") == 2

    def test_one_for_all_begins_again_when_another_child_fails(self, world: World):
        """Supervision C29."""
        log: list[object] = []
        tree(world, "ab", log, strategy="one_for_all", fails={"b": failing(1)})
        end(world, "a", Crashed(Boom()))

        assert starts(log) == ["a", "b", "a", "a", "b"]
        assert stops(log) == ["a", "b", "a"]

    def test_rest_for_one_tries_again_from_the_child_that_failed(self, world: World):
        """Supervision C30."""
        log: list[object] = []
        tree(world, "abc", log, strategy="rest_for_one", fails={"b": failing(1)})
        end(world, "a", Crashed(Boom()))

        assert starts(log) == ["a", "b", "c", "a", "b", "c"]

    def test_a_restart_into_ignore_keeps_the_spec_of_a_static_child(self, world: World):
        log: list[object] = []
        supervisor = tree(world, "a", log, fails={"a": _ignore_from(1)})
        end(world, "a", Crashed(Boom()))

        assert states(supervisor) == {"a": "undefined"}

    def test_a_dynamic_child_that_restarts_into_ignore_is_forgotten(self, world: World):
        """Supervision C34, otp."""
        supervisor = world.system.start(DynamicSupervisor)
        spec = ChildSpec(None, Puppet, ("a", []), {"fail": _ignore_from(1)}, name="a")
        start_child(supervisor, spec, timeout=5)
        end(world, "a", Crashed(Boom()))

        assert count_children(supervisor, timeout=5).specs == 0
        assert supervisor.stop(timeout=5) is True

    def test_a_dynamic_restart_may_fail_be_ignored_or_succeed(self, world: World):
        """Supervision C33."""
        log: list[object] = []
        supervisor = world.system.start(DynamicSupervisor, intensity=10)
        fail = failing(3)
        start_child(supervisor, ChildSpec(1, Puppet, (1, log), {"fail": fail}, name="a"), timeout=5)
        end(world, "a", Crashed(Boom()))

        assert count_children(supervisor, timeout=5).active == 1
        assert world.kinds().count("restart_failed") == 3

    def test_a_second_death_during_a_restart_is_no_trouble(self):
        """Celluloid: any order of many deaths leaves every child running once."""
        for seed in range(60):
            world = World(DeterministicScheduler(seed))
            log: list[object] = []
            strategy = ["one_for_one", "one_for_all", "rest_for_one"][seed % 3]
            supervisor = tree(world, "abc", log, strategy=strategy, intensity=100)
            for name in "abcab":
                ref = world.system.whereis(name)
                if ref is not None and ref.is_alive():
                    ref.tell(crash)
                for _ in range(seed % 7):
                    world.scheduler.step()
            world.settle()

            assert states(supervisor) == dict.fromkeys("abc", "running"), f"seed {seed}"
            alive = {n: starts(log).count(n) - stops(log).count(n) for n in "abc"}
            assert alive == dict.fromkeys("abc", 1), f"seed {seed}"
            world.system.shutdown()

    def test_junk_and_unknown_ends_do_not_disturb_a_supervisor(self, world: World):
        """Supervision C35."""
        supervisor = tree(world, "a", [])
        world.system.exit(supervisor, NORMAL)
        supervisor.tell("junk")
        with pytest.raises(TypeError, match="does not understand"):
            supervisor.ask("junk", timeout=5)
        stranger = world.system.start(Puppet)
        stranger.tell(lambda actor: actor.system.exit(supervisor, Abnormal("x")))
        world.settle()

        assert states(supervisor) == {"a": "running"}

    def test_the_next_incarnation_starts_after_on_stop_of_the_last(self, world: World):
        """Kameo."""
        log: list[object] = []
        spec = ChildSpec(
            "a", Puppet, ("a", log), {"stopping": lambda _: log.append("stopped")}, name="a"
        )
        world.system.start(Supervisor, [spec])
        world.system.whereis("a").tell(crash)
        world.settle()

        assert [entry if isinstance(entry, str) else entry[0] for entry in log] == [
            "start", "stop", "stopped", "start",
        ]  # fmt: skip

    def test_an_error_in_on_stop_does_not_restart_a_child_that_is_terminated(self, world: World):
        """Protoactor-go."""
        spec = ChildSpec("a", Puppet, ("a", []), {"stopping": crash})
        supervisor = world.system.start(Supervisor, [spec])
        terminate_child(supervisor, "a", timeout=5)
        world.settle()

        assert states(supervisor) == {"a": "undefined"}
        assert "shutdown_error" in world.kinds()

    def test_messages_of_the_last_incarnation_are_not_handled_by_the_next(self, simulated: World):
        """Akka-core: the mailbox dies with its actor."""
        log: list[object] = []
        tree(simulated, "a", log)
        ref = simulated.system.whereis("a")
        ref.tell(crash)
        ref.tell(lambda _: log.append("lost"))
        called = ref.ask(lambda _: 1, block=False)
        simulated.settle()

        assert "lost" not in log
        assert len(simulated.letters) == 1
        with pytest.raises(Exception, match="ended before it answered"):
            called.get(timeout=1)

    def test_a_brutally_killed_child_has_no_on_stop(self, world: World):
        """Supervision C62."""
        log: list[object] = []
        spec = ChildSpec("a", Puppet, ("a", log), {"trap": True}, shutdown=BRUTAL_KILL)
        supervisor = world.system.start(Supervisor, [spec])
        child = which_children(supervisor, timeout=5)[0].ref
        reason = world.system.monitor_from_outside(child)
        terminate_child(supervisor, "a", timeout=5)

        assert reason.get(timeout=5) == KILLED
        assert stops(log) == []
        assert "shutdown_error" not in world.kinds()


def _ignore_from(first: int):
    calls = itertools.count()

    def fail(_actor: Puppet) -> None:
        if next(calls) >= first:
            raise Ignore

    return fail
