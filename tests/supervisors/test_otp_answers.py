"""Answers that the comparison with OTP showed to be wrong once."""

from __future__ import annotations

import pytest

from supervisors import (
    Abnormal,
    ActorExit,
    ChildSpec,
    Crashed,
    DynamicSupervisor,
    NotFound,
    Supervisor,
    count_children,
    delete_child,
    get_child_spec,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from tests.supervisors.test_supervisor_restarts import states, tree
from tests.supervisors.world import Boom, Puppet, World, crash


def fail_again(actor: Puppet) -> None:
    if len(actor.log) > 0:
        raise Boom


class TestTheOldReferenceOfADynamicChild:
    def test_it_ends_the_child_after_failed_retries_too(self, simulated: World):
        """Supervision C86."""
        loop = simulated.system.start(DynamicSupervisor, intensity=10**9)
        old = start_child(loop, ChildSpec("a", Puppet, ("a", []), {"fail": fail_again}), timeout=1)
        old.tell(crash)
        for _ in range(50):
            simulated.scheduler.step()
        terminate_child(loop, old, timeout=1)

        assert count_children(loop, timeout=1).specs == 0
        simulated.settle()

    def test_it_is_not_found_once_a_successor_runs(self, world: World):
        pool = world.system.start(DynamicSupervisor)
        old = start_child(pool, ChildSpec("a", Puppet), timeout=5)
        old.tell(crash)
        world.settle()

        with pytest.raises(NotFound):
            terminate_child(pool, old, timeout=5)
        assert states(pool) == {"a": "running"}
        assert get_child_spec(pool, which_children(pool)[0].ref, timeout=5).id == "a"


class TestAReferenceIsNoIdToAStaticSupervisor:
    @pytest.mark.parametrize("ask", [terminate_child, restart_child, delete_child])
    def test_it_is_not_found(self, world: World, ask):
        """Supervision §1.7."""
        supervisor = tree(world, "a", [])
        ref = world.system.whereis("a")

        with pytest.raises(NotFound):
            ask(supervisor, ref, timeout=5)
        assert ref.is_alive()

    def test_its_spec_is_found_by_it(self, world: World):
        """Supervision C87."""
        supervisor = tree(world, "a", [])

        assert get_child_spec(supervisor, world.system.whereis("a"), timeout=5).id == "a"

    def test_unless_the_id_is_one(self, world: World):
        friend = world.system.start(Puppet)
        supervisor = world.system.start(Supervisor, [ChildSpec(friend, Puppet)])
        terminate_child(supervisor, friend, timeout=5)

        assert states(supervisor) == {friend: "undefined"}


class TestStopAnsweredByAnotherEnd:
    def test_an_error_in_on_stop_is_the_askers_too(self, world: World):
        """Supervision C125."""
        ref = world.system.start(Puppet, stopping=crash)
        with pytest.raises(ActorExit) as caught:
            ref.stop(timeout=5)

        assert isinstance(caught.value.reason, Crashed)

    def test_a_crash_that_comes_first_is_told(self, simulated: World):
        """Supervision C125."""
        ref = simulated.system.start(Puppet)
        simulated.system.exit(ref, Abnormal("sooner"))
        stopped = ref.stop(block=False)
        simulated.settle()

        with pytest.raises(ActorExit, match="sooner"):
            stopped.get(timeout=1)

    def test_a_quiet_end_for_another_reason_is_an_end(self, world: World):
        supervisor = tree(world, "a", [])
        ref = world.system.whereis("a")
        first = supervisor.stop(block=False)

        assert ref.stop(timeout=5) in {True, False}
        assert first.get(timeout=5)

    def test_a_system_shuts_down_whatever_its_actors_do_at_their_end(self, world: World):
        world.system.start(Puppet, stopping=crash)

        assert world.system.shutdown() is not None
