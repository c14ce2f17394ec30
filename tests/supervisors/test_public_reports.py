"""What went wrong in other supervisors, by their public reports, and random histories of ours."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest

from supervisors import (
    BRUTAL_KILL,
    KILLED,
    NORMAL,
    SHUTDOWN,
    ActorRef,
    ChildSpec,
    DynamicSupervisor,
    RestartChild,
    RestartsExceeded,
    StartChild,
    Supervisor,
    TerminateChild,
    count_children,
    start_child,
    terminate_child,
    which_children,
)
from supervisors.registry import Registry, Unregistered
from supervisors.requests import DeleteChild
from supervisors.testing import DeterministicScheduler, leaks
from tests.supervisors.test_supervisor_restarts import end, failing, states, tree
from tests.supervisors.world import Boom, Puppet, World, crash, starts, stops


def test_a_slow_end_does_not_hide_restarts_from_the_budget(simulated: World):
    """Otp: each restart is counted when it is decided, however long the group's end takes."""
    slow = {"stopping": lambda actor: _nap(actor, 2.0)}
    specs = [
        ChildSpec("slow", Puppet, (), slow, shutdown=10.0),
        ChildSpec("a", Puppet, name="a"),
    ]
    supervisor = simulated.system.start(
        Supervisor, specs, strategy="one_for_all", intensity=2, period=5.0
    )
    reason = simulated.system.monitor_from_outside(supervisor)
    for _ in range(3):
        simulated.system.whereis("a").tell(crash)
        simulated.advance(2.1)
    simulated.advance(10)

    assert isinstance(reason.get(timeout=1).term, RestartsExceeded)


def test_the_arguments_of_a_temporary_child_do_not_outlive_it(world: World):
    """Otp."""

    class Load:
        pass

    load = Load()
    gone = weakref.ref(load)
    supervisor = world.system.start(Supervisor)
    spec = ChildSpec("a", Puppet, (load,), restart="temporary", name="a")
    start_child(supervisor, spec, timeout=5)
    del load, spec
    end(world, "a", NORMAL)
    world.events.clear()
    gc.collect()

    assert gone() is None


def test_after_a_stop_no_more_actors_live_than_before(world: World):
    """Gleam otp."""
    before = len(world.system.roots())
    supervisor = tree(world, "abc", [])
    supervisor.stop(timeout=5)

    assert len(world.system.roots()) == before
    assert world.system.names() == []


def test_dynamic_children_are_killed_without_on_stop_where_their_spec_says_so(world: World):
    """Supervision C62."""
    log: list[object] = []
    supervisor = world.system.start(DynamicSupervisor)
    for number in range(3):
        spec = ChildSpec(number, Puppet, (number, log), {"trap": True}, shutdown=BRUTAL_KILL)
        start_child(supervisor, spec, timeout=5)
    supervisor.stop(timeout=5)

    assert stops(log) == []
    assert "shutdown_error" not in world.kinds()


def test_an_automatic_shutdown_ends_the_others_in_reverse(world: World):
    """Supervision C107."""
    log: list[object] = []
    specs = [ChildSpec(n, Puppet, (n, log)) for n in "ab"]
    spec = ChildSpec("s", Puppet, ("s", log), restart="transient", significant=True, name="s")
    world.system.start(Supervisor, [*specs, spec], auto_shutdown="any_significant")
    end(world, "s", NORMAL)

    assert stops(log) == ["s", "b", "a"]
    assert {entry[2] for entry in log if entry[:2] in {("stop", "a"), ("stop", "b")}} == {SHUTDOWN}


def test_a_member_that_dies_has_left_its_group_and_the_listeners_know(world: World):
    """Supervision C161."""
    recorder, seen, _ = world.recorder()
    group = Registry("group", keys="duplicate", listeners=(recorder,))
    group.start(world.system)
    refs = [world.system.start(Puppet) for _ in range(3)]
    for ref in refs:
        ref.ask(lambda _: group.register("members"), timeout=5)
    refs[1].tell(crash)
    world.settle()

    assert {entry.ref for entry in group.lookup("members")} == {refs[0], refs[2]}
    assert seen[-1] == Unregistered("group", "members", refs[1])


def test_a_failing_start_is_no_endless_loop(world: World):
    """Earl, protoactor-go: bounded by the budget, and others are served between."""
    log: list[object] = []
    supervisor = tree(world, "a", log, fails={"a": failing(10**6)}, intensity=20)
    reason = world.system.monitor_from_outside(supervisor)
    end(world, "a", KILLED)

    assert isinstance(reason.get(timeout=5).term, RestartsExceeded)
    assert world.kinds().count("restart_failed") == 20


def test_a_killed_static_supervisor_is_restarted_with_its_children(world: World):
    log: list[object] = []
    leaf = ChildSpec("leaf", Puppet, ("leaf", log))  # a name might still be taken, as in OTP
    sub = ChildSpec("sub", Supervisor, ([leaf],), name="sub")
    world.system.start(Supervisor, [sub])
    world.system.exit(world.system.whereis("sub"), KILLED)
    world.settle()

    assert starts(log) == ["leaf", "leaf"]
    assert stops(log) == ["leaf"]


def test_repeated_deaths_and_terminations_of_one_child_never_hang(simulated: World):
    """Reported of otp: a death that races with a termination."""
    supervisor = tree(simulated, "a", [], intensity=10**6)
    for _ in range(300):
        simulated.system.whereis("a").tell(crash)
        terminate_child(supervisor, "a", timeout=60)
        supervisor.ask(RestartChild("a"), timeout=60)

    assert states(supervisor) == {"a": "running"}


def _nap(actor: Puppet, seconds: float) -> None:
    with pytest.raises(Exception, match="no answer"):
        actor.system.future().get(timeout=seconds)


class TestRandomHistories:
    """Random orders, crashes and failing starts: whatever happens, the books balance."""

    @pytest.mark.parametrize("block", range(4))
    @pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one", "dynamic"])
    def test_the_books_balance(self, strategy, block):
        for seed in range(block * 25, block * 25 + 25):
            _history(strategy, seed)

    @pytest.mark.slow
    @pytest.mark.timeout(180)
    @pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one", "dynamic"])
    def test_the_books_balance_in_2_000_histories_each(self, strategy):
        for seed in range(1000, 3000):
            _history(strategy, seed)


def _history(strategy: str, seed: int) -> None:
    rng = random.Random(seed)
    world = World(DeterministicScheduler(seed))
    log: list[Any] = []
    ids = "abcd"
    specs = [_spec(rng, one, log) for one in ids]
    if strategy == "dynamic":
        supervisor = world.system.start(DynamicSupervisor, intensity=10**6)
        for spec in specs:
            supervisor.tell(StartChild(spec))
    else:
        supervisor = world.system.start(Supervisor, specs, strategy=strategy, intensity=10**6)
    for _ in range(rng.randrange(5, 40)):
        _act(rng, world, supervisor, log)
        for _ in range(rng.randrange(12)):
            world.scheduler.step()
    world.settle()
    _check(world, supervisor, log, f"{strategy}, seed {seed}")
    stopped = supervisor.stop(timeout=1000)
    assert stopped, f"{strategy}, seed {seed}"
    assert sorted(starts(log)) == sorted(stops(log)), f"{strategy}, seed {seed}"
    world.system.shutdown()
    assert leaks(world.system) == [], f"{strategy}, seed {seed}"


def _spec(rng: random.Random, child_id: str, log: list[Any]) -> ChildSpec:
    chance = rng.choice([0, 0, 0.3])
    calls = [0]

    def fail(_actor: Puppet) -> None:
        calls[0] += 1
        if calls[0] > 1 and rng.random() < chance:
            raise Boom("start")

    restart = rng.choice(["permanent", "permanent", "transient", "temporary"])
    return ChildSpec(
        child_id, Puppet, (child_id, log), {"fail": fail}, restart=restart, name=child_id
    )


def _act(rng: random.Random, world: World, supervisor: ActorRef, log: list[Any]) -> None:
    child_id = rng.choice("abcd")
    ref = world.system.whereis(child_id)
    kind = rng.randrange(8)
    if kind < 3 and ref is not None:
        reason = rng.choice([NORMAL, SHUTDOWN])
        do = rng.choice([crash, lambda actor: actor.exit(reason)])
        ref.cell.put(do)
    elif kind == 3:
        supervisor.tell(TerminateChild(child_id))
    elif kind == 4:
        supervisor.tell(RestartChild(child_id))
    elif kind == 5:
        supervisor.tell(DeleteChild(child_id))
    elif kind == 6:
        supervisor.tell(StartChild(_spec(rng, child_id, log)))
    else:
        assert len(which_children(supervisor, timeout=1000)) <= 4


def _check(world: World, supervisor: ActorRef, log: list[Any], where: str) -> None:
    found = states(supervisor)
    assert set(found.values()) <= {"running", "undefined"}, where
    for child_id in "abcd":
        alive = starts(log).count(child_id) - stops(log).count(child_id)
        running = found.get(child_id) == "running"
        assert alive == int(running), f"{where}: {child_id} lives {alive} times, {found}"
        assert (world.system.whereis(child_id) is not None) is running, where
    counts = count_children(supervisor, timeout=1000)
    assert counts.active == sum(state == "running" for state in found.values()), where
    assert world.scheduler.runnable == 0, where
