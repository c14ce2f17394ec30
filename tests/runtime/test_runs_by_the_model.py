"""Drawn runs of the whole runtime: each checkpoint that people see is one of the model."""

from __future__ import annotations

import random

import pytest

from beamweaver.errors import NodeFailed
from beamweaver.types import Completed, Interrupted
from tests.engine.modelled import run_undisturbed
from tests.model import Return
from tests.simulation.plan import OF_THE_MODEL, QUESTIONS, SimPlan


class Bodies:
    """What the bodies of a simulated plan tell, where nobody has to look."""

    def __init__(self):
        self.failed = set()

    def started(self, ctx):
        pass

    def worked(self, ctx, number):
        return f"{ctx.node}{number}"

    def kept(self, ctx, number, found):
        assert found == f"{ctx.node}{number}"

    async def sleeps(self, ctx, number, seconds, *, awaits):
        pass

    def answered(self, ctx, number, answer):
        assert answer == "yes"

    def first(self, ctx):
        """Whether the task is to fail: once, in the process that first runs it."""
        known = ctx.task_id in self.failed
        self.failed.add(ctx.task_id)
        return not known


def drawn(seed):
    """A plan without times, which no clock is there for, and whose routers only choose."""
    return _without_times(SimPlan(seed))


def _without_times(plan):
    plan.routers.disturbed, plan.hangs = False, {}
    for node in plan.nodes.values():
        node.mood = "fine" if node.mood == "retried" else node.mood
        plan.timeouts[node.name] = None
    for inner in plan.inner.values():
        _without_times(inner)
    return plan


def completed(app, given=None, *, amends=None, **start):
    """Call, answer what is asked and go on after failures, until the run is complete."""
    for _turn in range(200):
        try:
            outcome = app.invoke(given, thread_id="t", **start)
            while type(outcome) is Interrupted:
                answers = {question.id: "yes" for question in outcome.interrupts}
                outcome = app.resume(answers=answers, thread_id="t")
        except NodeFailed:
            given, start = amends, {}
            continue
        assert type(outcome) is Completed
        return
    raise AssertionError("the run never ends")


def played(thread, plan, branch=0):
    """The same of the model: what fails is amended, as `completed` does it with `amends`."""
    while thread.step is not None:
        for task in thread.unfinished:
            mood, place = plan.nodes[task.node].mood, (branch, thread.step.number, task.path)
            if mood == "fails" and place not in plan.failed:
                plan.failed.add(place)
                thread.fail(task)
            elif len(task.answers) < QUESTIONS.get(mood, 0):
                thread.ask(task)
            else:
                thread.finish(task, plan.body(task, thread.view(task)))
        if thread.status == "open":
            thread.close()
            continue
        failed = thread.status == "failed"
        for task in () if failed else [task for task in thread.step.tasks if task.asks]:
            thread.answer(task, "yes")
        thread.go_on(Return([("log", ["amended"], False)]) if failed else None)


def check(app, points, where):
    states = [s for s in app.get_state_history("t") if s.metadata["source"] != "fork"][::-1]
    states = [state for state in states if state.next != ("__start__",)]
    assert len(states) == len(points), where
    for state, (values, tasks, _joins, _spent, waiting) in zip(states, points, strict=True):
        known = {key: value for key, value in values.items() if key not in OF_THE_MODEL}
        seen = {key: state.values[key] for key in known if key in state.values}
        assert {"rounds": 0, "sums": {}, "log": []} | seen == known, where
        nodes = [task.node for task in (*tasks, *waiting)]
        assert set(state.next) == set(nodes), where
    return [state.config["configurable"]["checkpoint_id"] for state in states]


def run(seed, place):
    """Two runs, then, in another runtime, a branch from any of their checkpoints."""
    plan, where = drawn(seed), f"seed {seed}"
    model, bodies = plan.model(), Bodies()
    with plan.compile(bodies, checkpointer=place.open()) as app:
        for _run in range(2):
            completed(app, {"log": []})
            run_undisturbed(model, {}, plan.body)
        ids = check(app, model.points, where)
    open_ = [at for at, point in enumerate(model.points) if point[1]]
    at = random.Random(seed).choice(open_)
    with plan.compile(bodies, checkpointer=place.open()) as app:
        model.branch(model.points[at])
        run_undisturbed(model, None, plan.body)
        completed(app, checkpoint_id=ids[at])
        check(app, model.points, where)


@pytest.mark.parametrize("seed", range(5))
def test_each_checkpoint_is_one_of_the_model(seed, place):
    run(seed, place)


def amend(seed, place):
    """A run whose failures are amended, then, in another runtime, a branch of it."""
    plan, where = drawn(seed), f"seed {seed}"
    plan.failed = set()
    model, bodies = plan.model(), Bodies()
    amends = {"log": ["amended"]}
    with plan.compile(bodies, checkpointer=place.open()) as app:
        completed(app, {"log": []}, amends=amends)
        model.start({})
        played(model, plan)
        ids = check(app, model.points, where)
    at = random.Random(seed).choice([at for at, point in enumerate(model.points) if point[1]])
    with plan.compile(bodies, checkpointer=place.open()) as app:
        model.branch(model.points[at])
        played(model, plan, branch=1)
        completed(app, amends=amends, checkpoint_id=ids[at])
        check(app, model.points, where)


@pytest.mark.parametrize("seed", [seed for seed in range(12) if not SimPlan(seed).inner])
def test_each_checkpoint_of_a_run_that_is_amended_is_one_of_the_model(seed, place):
    amend(seed, place)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_each_checkpoint_of_many_runs_is_one_of_the_model(seed, place):
    run(seed, place)
