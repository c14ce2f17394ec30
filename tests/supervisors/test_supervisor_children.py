"""Managing the children of a supervisor by hand, with OTP's answers."""

from __future__ import annotations

import pytest

from supervisors import (
    ActorRef,
    AlreadyPresent,
    AlreadyStarted,
    ChildReply,
    ChildSpec,
    CountChildren,
    DynamicSupervisor,
    InvalidSpec,
    MaxChildren,
    NotFound,
    RestartChild,
    Running,
    StartChild,
    StartError,
    Supervisor,
    TerminateChild,
    WhichChildren,
    count_children,
    delete_child,
    get_child_spec,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from tests.supervisors.test_supervisor_restarts import failing, states, tree
from tests.supervisors.world import Boom, Puppet, World, crash, starts


class TestStatic:
    def test_start_child_gives_its_reference(self, world: World):
        supervisor = world.system.start(Supervisor)
        ref = start_child(supervisor, ChildSpec("a", Puppet), timeout=5)

        assert which_children(supervisor, timeout=5)[0].ref == ref

    def test_start_child_of_a_running_id(self, world: World):
        supervisor = tree(world, "a", [])
        with pytest.raises(AlreadyStarted) as caught:
            start_child(supervisor, ChildSpec("a", Puppet), timeout=5)

        assert caught.value.ref == world.system.whereis("a")

    def test_start_child_of_a_stopped_id(self, world: World):
        supervisor = tree(world, "a", [])
        terminate_child(supervisor, "a", timeout=5)

        with pytest.raises(AlreadyPresent):
            start_child(supervisor, ChildSpec("a", Puppet), timeout=5)

    def test_start_child_that_fails_discards_its_spec(self, world: World):
        """Supervision C09."""
        supervisor = world.system.start(Supervisor)
        with pytest.raises(StartError) as caught:
            start_child(supervisor, ChildSpec("a", Puppet, (), {"fail": crash}), timeout=5)

        assert isinstance(caught.value.__cause__, Boom)
        with pytest.raises(NotFound):
            delete_child(supervisor, "a", timeout=5)

    def test_restart_child_that_fails_keeps_its_spec(self, world: World):
        """Supervision C10."""
        supervisor = tree(world, "a", [], fails={"a": failing(1)})
        terminate_child(supervisor, "a", timeout=5)
        with pytest.raises(StartError):
            restart_child(supervisor, "a", timeout=5)

        assert states(supervisor) == {"a": "undefined"}
        assert isinstance(restart_child(supervisor, "a", timeout=5), ActorRef)

    def test_terminate_child_twice_and_unknown(self, world: World):
        """Supervision C81."""
        supervisor = tree(world, "a", [])
        terminate_child(supervisor, "a", timeout=5)
        terminate_child(supervisor, "a", timeout=5)

        with pytest.raises(NotFound):
            terminate_child(supervisor, "x", timeout=5)

    def test_delete_child_running_stopped_and_unknown(self, world: World):
        """Supervision C82."""
        supervisor = tree(world, "a", [])
        with pytest.raises(Running):
            delete_child(supervisor, "a", timeout=5)
        terminate_child(supervisor, "a", timeout=5)
        delete_child(supervisor, "a", timeout=5)

        with pytest.raises(NotFound):
            delete_child(supervisor, "a", timeout=5)

    def test_restart_child_running_stopped_and_unknown(self, world: World):
        """Supervision C83, cajun: the name leads to the new one."""
        supervisor = tree(world, "a", [])
        old = world.system.whereis("a")
        with pytest.raises(Running):
            restart_child(supervisor, "a", timeout=5)
        terminate_child(supervisor, "a", timeout=5)
        new = restart_child(supervisor, "a", timeout=5)

        assert new == world.system.whereis("a") != old
        with pytest.raises(NotFound):
            restart_child(supervisor, "x", timeout=5)

    def test_get_child_spec_by_id_by_reference_and_unknown(self, world: World):
        """Supervision C87."""
        supervisor = tree(world, "a", [])
        spec = get_child_spec(supervisor, "a", timeout=5)

        assert (spec.restart, spec.shutdown_rule, spec.child_type) == ("permanent", 5.0, "worker")
        assert get_child_spec(supervisor, world.system.whereis("a"), timeout=5) == spec
        with pytest.raises(NotFound):
            get_child_spec(supervisor, "x", timeout=5)

    def test_a_bad_spec_is_refused(self, world: World):
        supervisor = world.system.start(Supervisor)
        with pytest.raises(InvalidSpec):
            start_child(supervisor, ChildSpec(None, Puppet), timeout=5)
        with pytest.raises(InvalidSpec):
            supervisor.ask(StartChild("not a spec"), timeout=5)

        assert count_children(supervisor, timeout=5).specs == 0


class TestDynamic:
    def test_terminate_child_by_reference_once(self, world: World):
        """Supervision C85."""
        supervisor = world.system.start(DynamicSupervisor)
        ref = start_child(supervisor, ChildSpec(None, Puppet), timeout=5)
        terminate_child(supervisor, ref, timeout=5)

        with pytest.raises(NotFound):
            terminate_child(supervisor, ref, timeout=5)

    def test_a_failing_start_gives_the_plain_reason(self, world: World):
        """Supervision C11."""
        supervisor = world.system.start(DynamicSupervisor)
        with pytest.raises(StartError) as caught:
            start_child(supervisor, ChildSpec("a", Puppet, (), {"fail": crash}), timeout=5)

        assert isinstance(caught.value.reason.error, Boom)
        assert count_children(supervisor, timeout=5).specs == 0

    @pytest.mark.parametrize("limit", [0, 2])
    def test_max_children_is_kept(self, world: World, limit):
        """Supervision C91."""
        supervisor = world.system.start(DynamicSupervisor, max_children=limit)
        for _ in range(limit):
            start_child(supervisor, ChildSpec(None, Puppet), timeout=5)

        with pytest.raises(MaxChildren):
            start_child(supervisor, ChildSpec(None, Puppet), timeout=5)

    def test_extra_arguments_go_first_and_stay_at_a_restart(self, world: World):
        """Supervision C93, elixir."""
        log: list[object] = []
        supervisor = world.system.start(DynamicSupervisor, extra_args=("extra",))
        ref = start_child(supervisor, ChildSpec("a", Puppet, (log,)), timeout=5)
        ref.tell(crash)
        world.settle()

        assert starts(log) == ["extra", "extra"]

    def test_many_are_counted_exactly(self, world: World):
        """Supervision C89."""
        supervisor = world.system.start(DynamicSupervisor)
        refs = [start_child(supervisor, ChildSpec(None, Puppet), timeout=5) for _ in range(200)]
        for ref in refs[:50]:
            terminate_child(supervisor, ref, timeout=5)
        counts = count_children(supervisor, timeout=5)

        assert (counts.specs, counts.active, counts.workers) == (150, 150, 150)

    def test_an_id_is_unique(self, world: World):
        supervisor = world.system.start(DynamicSupervisor)
        start_child(supervisor, ChildSpec("a", Puppet), timeout=5)

        with pytest.raises(AlreadyStarted):
            start_child(supervisor, ChildSpec("a", Puppet), timeout=5)

    def test_what_needs_stopped_children_is_refused(self, world: World):
        supervisor = world.system.start(DynamicSupervisor)

        with pytest.raises(InvalidSpec):
            restart_child(supervisor, "a", timeout=5)


class TestWithoutWaiting:
    @pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
    def test_an_actor_gets_the_answer_as_a_message(self, world: World, kind):
        supervisor = world.system.start(kind)
        recorder, seen, _ = world.recorder()
        cell = recorder.cell
        supervisor.tell(StartChild(ChildSpec("a", Puppet, name="a"), (cell, 1)))
        world.settle()
        supervisor.tell(StartChild(ChildSpec("a", Puppet), (cell, 2)))
        supervisor.tell(TerminateChild("x", (cell, 3)))
        world.settle()

        assert seen[0] == ChildReply(1, world.system.whereis("a"), None)
        assert [(reply.token, type(reply.error)) for reply in seen[1:]] == [
            (2, AlreadyStarted), (3, NotFound),
        ]  # fmt: skip

    def test_questions_and_orders_have_the_same_form(self, world: World):
        supervisor = tree(world, "a", [])
        recorder, seen, _ = world.recorder()
        for token, request in enumerate((WhichChildren, CountChildren)):
            supervisor.tell(request((recorder.cell, token)))
        supervisor.tell(RestartChild("a", (recorder.cell, 2)))
        world.settle()

        assert [reply.token for reply in seen] == [0, 1, 2]
        assert isinstance(seen[2].error, Running)

    def test_a_tell_without_reply_to_is_carried_out(self, world: World):
        supervisor = world.system.start(DynamicSupervisor)
        supervisor.tell(StartChild(ChildSpec("a", Puppet, name="a")))
        world.settle()

        assert world.system.whereis("a") is not None


class TestChildSpec:
    @pytest.mark.parametrize(
        ("fields", "name"),
        [
            ({"actor": "Puppet"}, "actor"),
            ({"actor": object}, "actor"),
            ({"args": [1]}, "args"),
            ({"restart": "always"}, "restart"),
            ({"significant": 1}, "significant"),
            ({"type": "boss"}, "type"),
            ({"shutdown": -1}, "shutdown"),
            ({"shutdown": "gently"}, "shutdown"),
            ({"shutdown": True}, "shutdown"),
            ({"significant": True}, "significant"),
            ({"start_timeout": 0}, "start_timeout"),
        ],
        ids=repr,
    )
    def test_a_wrong_field_is_named_with_its_value_and_cure(self, fields, name):
        """Supervision C13."""
        with pytest.raises(InvalidSpec) as caught:
            ChildSpec(**{"id": "a", "actor": Puppet, **fields})

        assert caught.value.field == name
        assert caught.value.cure in str(caught.value)

    def test_defaults_depend_on_the_type(self):
        worker, supervisor = ChildSpec("w", Puppet), ChildSpec("s", Supervisor)

        assert (worker.child_type, worker.shutdown_rule) == ("worker", 5.0)
        assert (supervisor.child_type, supervisor.shutdown_rule) == ("supervisor", float("inf"))
