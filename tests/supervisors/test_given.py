"""A wrong argument is an error at once, which names it, its value and the cure."""

from __future__ import annotations

import pytest

from supervisors import (
    NORMAL,
    Actor,
    ActorExit,
    InvalidSpec,
    count_children,
    drain,
    exit_after,
    suspend,
    terminate_child,
    which_children,
)
from tests.supervisors.world import Puppet, World

NO_ACTOR = {
    "exit": lambda system: system.exit(3, NORMAL),
    "monitor_from_outside": lambda system: system.monitor_from_outside(3),
    "send_after": lambda system: system.send_after(1, 3, "x"),
    "send_every": lambda system: system.send_every(1, 3, "x"),
    "exit_after": lambda system: exit_after(system, 1, 3, NORMAL),
    "start(link=)": lambda system: system.start(Actor, link=3),
    "spawn(link=)": lambda system: system.spawn(Actor, link=3),
    "suspend": lambda system: suspend(3),
    "drain": lambda system: drain(3),
    "which_children": lambda system: which_children(3),
    "count_children": lambda system: count_children(3),
    "terminate_child": lambda system: terminate_child(3, "a"),
}


@pytest.mark.parametrize("call", NO_ACTOR.values(), ids=NO_ACTOR)
def test_what_is_no_actor_is_named(simulated: World, call):
    with pytest.raises(InvalidSpec, match="actor = 3 is not valid: give the ActorRef"):
        call(simulated.system)


@pytest.mark.parametrize("verb", ["link", "unlink", "monitor"])
def test_what_is_no_actor_is_named_to_actors_too(simulated: World, verb):
    puppet = simulated.system.start(Puppet)

    with pytest.raises(ActorExit) as caught:
        puppet.ask(lambda actor: getattr(actor, verb)(3))

    assert "actor = 3 is not valid" in str(caught.value.reason.error)


@pytest.mark.parametrize("reason", ["kill", None, ValueError("x")])
def test_what_is_no_reason_is_named_and_ends_nobody(simulated: World, reason):
    puppet = simulated.system.start(Puppet)

    for end in (
        lambda: simulated.system.exit(puppet, reason),
        lambda: puppet.stop(reason=reason),
        lambda: exit_after(simulated.system, 1, puppet, reason),
    ):
        with pytest.raises(InvalidSpec, match="give NORMAL, SHUTDOWN, KILLED"):
            end()
    simulated.settle()

    assert puppet.is_alive()


@pytest.mark.parametrize("name", [3, ["a"]])
def test_what_is_no_name_is_named(simulated: World, name):
    with pytest.raises(InvalidSpec, match="give a text, or a Via"):
        simulated.system.start(Actor, name=name)


@pytest.mark.parametrize("kind", [int, "Actor", 3])
def test_what_is_no_class_of_actors_is_named(simulated: World, kind):
    with pytest.raises(InvalidSpec, match="give a subclass of supervisors.Actor"):
        simulated.system.start(kind)


@pytest.mark.parametrize("delay", ["1", float("nan"), None, True])
def test_what_is_no_delay_is_named(simulated: World, delay):
    with pytest.raises(InvalidSpec, match="delay = .* is not valid: give seconds"):
        simulated.system.send_after(delay, simulated.system.start(Actor), "x")
