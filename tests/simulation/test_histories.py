"""Whole histories of the runtime, each drawn from one seed: every crash, nothing lost or done twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import beamweaver
from beamweaver import Invoke, Runtime
from beamweaver.errors import StoreBroken
from beamweaver.runtime.loop import LoopTask
from tests.simulation.config import KINDS, Config
from tests.simulation.faults import POINTS
from tests.simulation.plan import SimPlan
from tests.simulation.totals import Totals
from tests.simulation.world import World, simulate

FAST, MODES = 150, 25
BLOCKS, BLOCK = 24, 50
OF_COROUTINES = (54, 172, 53, 122, 148)
"""In some of these histories async nodes hang, are killed, outlive that, and go with their process."""
OF_ROUTERS = (106, 72, 92, 169)
"""In some of these async routers do."""


@pytest.mark.parametrize("seed", range(FAST))
def test_whatever_goes_wrong_each_thread_ends_as_the_model_says(seed):
    simulate(seed)


@pytest.mark.parametrize("mode", ["async", "exit"])
@pytest.mark.parametrize("seed", range(200, 200 + MODES))
def test_so_it_does_within_the_promise_of_each_durability(seed, mode):
    simulate(seed, durability=mode)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_so_it_does_for_many_more_seeds(block):
    for seed in range(1_000 + block * BLOCK, 1_000 + (block + 1) * BLOCK):
        simulate(seed)


def test_what_a_process_does_before_its_start_returns_counts_too(monkeypatch):
    start = Runtime.start

    def slow_start(runtime):
        world = runtime.process.world
        start(runtime)
        for _turn in range(60):
            runtime.process.scheduler.step()
        world.note("started")

    monkeypatch.setattr(Runtime, "start", slow_start)
    world = World(Config.drawn(302), keep=True)
    world.run()
    world.close()
    started, heard = set(), set()
    for line in world.trace.lines:
        process = line.split()[0]
        if line.endswith(" started"):
            started.add(process)
        elif "TaskStarted(" in line and process not in started:
            heard.add(process)
    assert heard, "no process began a task before its start returned"


def test_a_process_that_has_to_end_when_all_is_done_is_followed_by_another():
    world = World(Config.drawn(3))
    calm, ends = world.faults.calm, []

    def calm_and_broken():
        calm()
        if not ends:
            ends.append(world.process)
            world.process.hub.fatal = StoreBroken("the last sync failed")

    world.faults.calm = calm_and_broken
    try:
        world.run()
        assert ends[0].over
        assert not world.process.over
    finally:
        world.close()


def test_a_kept_input_whose_run_ended_before_its_client_looked_is_not_waited_for():
    world = World(Config.drawn(3))
    try:
        world.run()
        client = world.clients["t0"]
        first = Invoke({}, run_id=client.labels[0])
        assert not client._went_by(first)  # it may be called again, by its name
        client.kept = [str(first.run_id)]
        assert client._went_by(first)
    finally:
        world.close()


@pytest.mark.parametrize("seed", [*range(100, 105), 44, 149, 93, 72])
def test_one_seed_is_one_history(seed):
    """With graphs inside, as in 44 and 93 (with `key=`), async nodes, as in 149, and routers, as in 72."""
    assert simulate(seed).trace.digest == simulate(seed).trace.digest


def test_other_seeds_are_other_histories():
    assert len({simulate(seed).trace.digest for seed in range(5)}) == 5


def test_the_trace_begins_with_the_configuration():
    world = World(Config.drawn(7), keep=True)
    world.close()
    assert str(Config.drawn(7)) in world.trace.lines[0]


def test_the_configurations_of_many_seeds_have_every_kind_of_fault():
    drawn = {kind for seed in range(50) for kind in Config.drawn(seed).weights}
    assert drawn == set(KINDS)


def test_some_graphs_have_graphs_inside_some_functions_that_call_them_and_some_async_nodes():
    plans = [SimPlan(seed) for seed in range(140)]
    inside = [inner for plan in plans for inner in plan.inner.values()]
    assert sum(bool(plan.callers) for plan in plans) >= 4
    assert any(inner.inner for inner in inside)
    assert any(inner.keeps for inner in inside)
    assert any(inner.ups for inner in inside)
    assert sum(plan.is_async for plan in plans) >= 10
    assert sum(plan.is_async or bool(plan.inner) for plan in plans) < 70


def test_some_workers_are_persistent_graphs_with_a_state_for_each_key():
    inside = [inner for seed in range(140) for inner in SimPlan(seed).inner.values()]
    assert sum(inner.keyed for inner in inside) >= 3
    assert all(inner.keeps for inner in inside if inner.keyed)


def test_some_routers_are_async_some_of_these_wait_and_some_fail_at_first():
    routers = [SimPlan(seed).routers for seed in range(140)]
    disturbed = [each for each in routers if each.disturbed]
    assert 20 <= len(disturbed) < 70
    asyncs, fails, waits = zip(*(each.drawn("router_n0") for each in disturbed), strict=True)
    assert any(asyncs)
    assert any(fails)
    assert {seconds for seconds in waits if seconds} == {0.5, 3.0}


def lines_of(seed):
    world = World(Config.drawn(seed), keep=True)
    world.run()
    world.close()
    return world.trace.lines


def test_an_async_node_that_hangs_is_out_of_time():
    def has(seed):
        names = [f"node={name!r}" for name in SimPlan(seed).awaits]
        ends = [line for line in lines_of(seed) if "node_timeout" in line]
        return any(name in line for line in ends for name in names)

    assert any(has(seed) for seed in OF_COROUTINES)


def of_loop_tasks(monkeypatch, name):
    """Which of the tasks on the loop this method is called for."""
    called = []
    method = getattr(LoopTask, name)

    def noted(task, *args, **options):
        done = method(task, *args, **options)
        called.append((task, done, options))
        return done

    monkeypatch.setattr(LoopTask, name, noted)
    return called


@pytest.mark.parametrize(("what", "seeds"), [("nodes", OF_COROUTINES), ("routers", OF_ROUTERS)])
def test_some_coroutines_are_killed(monkeypatch, what, seeds):
    calls = of_loop_tasks(monkeypatch, "kill")

    def has(seed):
        calls.clear()
        simulate(seed)
        return any(
            done and (task._name == "router") == (what == "routers") for task, done, _ in calls
        )

    assert any(has(seed) for seed in seeds)


def test_some_coroutines_outlive_their_kill_and_are_given_up(monkeypatch):
    calls = of_loop_tasks(monkeypatch, "_tell_ended")

    def has(seed):
        calls.clear()
        simulate(seed)
        return any(options["abandoned"] for _task, _done, options in calls)

    assert any(has(seed) for seed in OF_COROUTINES)


@pytest.mark.parametrize("what", ["nodes", "routers"])
def test_some_coroutines_go_with_a_process_that_dies(monkeypatch, what):
    die, begun, found = World.die, of_loop_tasks(monkeypatch, "begin"), []

    def dies(world, **options):
        loop = world.process.loop
        for task, _done, _options in begun:
            runs = task._task is not None and not task._task.done() and task._worker.loop is loop
            found.append(runs and (task._name == "router") == (what == "routers"))
        die(world, **options)

    monkeypatch.setattr(World, "die", dies)

    def has(seed):
        begun.clear()
        simulate(seed)
        return any(found)

    assert any(has(seed) for seed in (OF_COROUTINES if what == "nodes" else OF_ROUTERS))


def test_the_points_that_are_counted_are_those_of_the_runtime():
    code = "".join(path.read_text() for path in Path(beamweaver.__file__).parent.rglob("*.py"))
    found = set(re.findall(r'hub\.reached\("([a-z.]+)"', code))
    assert {point for point in found if not point.startswith("inbox.")} == set(
        POINTS
    )  # no letters here


def counted(*seeds):
    totals = Totals()
    for seed in seeds:
        totals.take(seed, simulate(seed))
    return totals


def test_what_is_counted_of_two_ranges_adds_up_to_what_is_counted_of_both(tmp_path):
    both, first, second = counted(0, 1, 2, 5), counted(0, 1), counted(2, 5)
    for number, totals in enumerate((first, second)):
        totals.write(tmp_path / f"{number}.json")
    added = Totals()
    for number in range(2):
        added.add(Totals.read(tmp_path / f"{number}.json"))
    assert vars(added) == vars(both)
    assert added.ranges == [(0, 2), (5, 5)]


def test_a_seed_that_was_counted_already_is_refused():
    with pytest.raises(ValueError, match="the seed 1 is counted twice"):
        counted(0, 1).add(counted(1))
