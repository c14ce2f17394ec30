"""Significant children: those whose own end may end their supervisor."""

from __future__ import annotations

import pytest

from supervisors import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    ChildSpec,
    Crashed,
    DynamicSupervisor,
    InvalidSpec,
    StartError,
    Supervisor,
    count_children,
    start_child,
    terminate_child,
)
from tests.supervisors.test_supervisor_restarts import end, states
from tests.supervisors.world import Boom, Puppet, World, crash, stops


class TestSignificant:
    @pytest.mark.parametrize(
        ("restart", "reason", "ends"),
        [
            ("temporary", NORMAL, True),
            ("temporary", Crashed(Boom()), True),
            ("temporary", KILLED, True),
            ("transient", NORMAL, True),
            ("transient", Crashed(Boom()), False),
            ("transient", KILLED, False),
        ],
        ids=repr,
    )
    def test_the_end_of_a_significant_child(self, world: World, restart, reason, ends):
        """Supervision C101 and C102."""
        log: list[object] = []
        specs = [
            ChildSpec("b", Puppet, ("b", log)),
            ChildSpec("a", Puppet, ("a", log), restart=restart, significant=True, name="a"),
        ]
        supervisor = world.system.start(Supervisor, specs, auto_shutdown="any_significant")
        ended = world.system.monitor_from_outside(supervisor)
        end(world, "a", reason)

        assert ended.done() is ends
        if ends:
            assert ended.get() == SHUTDOWN
            assert stops(log)[-1] == "b"

    @pytest.mark.parametrize("auto_shutdown", ["any_significant", "all_significant"])
    def test_the_end_of_another_child_ends_nothing(self, world: World, auto_shutdown):
        specs = [
            ChildSpec("s", Puppet, restart="transient", significant=True),
            ChildSpec("a", Puppet, restart="transient", name="a"),
            ChildSpec("b", Puppet, restart="temporary", name="b"),
        ]
        supervisor = world.system.start(Supervisor, specs, auto_shutdown=auto_shutdown)
        end(world, "a", NORMAL)
        end(world, "b", NORMAL)

        assert states(supervisor) == {"s": "running", "a": "undefined"}

    def test_terminating_a_significant_child_ends_nothing(self, world: World):
        """Supervision C101."""
        spec = ChildSpec("a", Puppet, restart="temporary", significant=True)
        supervisor = world.system.start(Supervisor, [spec], auto_shutdown="any_significant")
        terminate_child(supervisor, "a", timeout=5)

        assert count_children(supervisor, timeout=5).specs == 0

    def test_all_significant_waits_for_the_last(self, world: World):
        """Supervision C103."""
        specs = [
            ChildSpec(n, Puppet, (n,), restart="transient", significant=True, name=n) for n in "ab"
        ]
        supervisor = world.system.start(Supervisor, specs, auto_shutdown="all_significant")
        ended = world.system.monitor_from_outside(supervisor)
        end(world, "a", NORMAL)
        assert not ended.done()
        end(world, "b", NORMAL)

        assert ended.get(timeout=5) == SHUTDOWN

    def test_an_automatic_shutdown_escalates_through_significant_supervisors(self, world: World):
        """Supervision C105."""
        leaf = ChildSpec("leaf", Puppet, restart="transient", significant=True, name="leaf")
        sub = ChildSpec(
            "sub", Supervisor, ([leaf],), {"auto_shutdown": "any_significant"},
            restart="transient", significant=True,
        )  # fmt: skip
        root = world.system.start(Supervisor, [sub], auto_shutdown="any_significant")
        ended = world.system.monitor_from_outside(root)
        end(world, "leaf", NORMAL)

        assert ended.get(timeout=5) == SHUTDOWN

    def test_combinations_that_cannot_be_are_refused(self, world: World):
        """Supervision C106."""
        with pytest.raises(InvalidSpec):
            ChildSpec("a", Puppet, significant=True)
        spec = ChildSpec("a", Puppet, restart="transient", significant=True)
        with pytest.raises(StartError):
            world.system.start(Supervisor, [spec])
        dynamic = world.system.start(DynamicSupervisor)
        with pytest.raises(InvalidSpec):
            start_child(dynamic, spec, timeout=5)

    def test_connections_that_end_abnormally_leave_no_supervisor(self, simulated: World):
        """Otp, in small."""
        top = simulated.system.start(DynamicSupervisor)
        for number in range(50):
            leaf = ChildSpec(
                "leaf", Puppet, restart="temporary", significant=True, name=f"leaf-{number}"
            )
            sub = ChildSpec(
                number, Supervisor, ([leaf],), {"auto_shutdown": "any_significant"},
                restart="temporary",
            )  # fmt: skip
            start_child(top, sub, timeout=5)
            simulated.system.whereis(f"leaf-{number}").tell(crash)
        simulated.settle()

        assert count_children(top, timeout=5).specs == 0
