"""Runs of a plan that die at their commits: each ends as the clean one, and that one as the model says.

A plan is compiled once and run to its end. Then one run dies at each of its commits, all along. A single
death costs only what comes after it: what the clean run has stored is set aside where it could have died, and
a next process goes on from there.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from beamweaver.checkpoint import MemoryCheckpointer
from beamweaver.checkpoint.entries import Answered, Continued
from beamweaver.events import AttemptFailed
from beamweaver.limits import DEFAULT_LIMITS, Limits
from tests.engine.driver import Driver
from tests.engine.driver_parts import Count, check_fold
from tests.engine.generator import Plan, finish
from tests.engine.modelled import run_model

__all__ = ["ALL", "crash_plan"]

ALL = 1_000_000_000
"""As many single deaths as a run has places for."""
_COPIED = (list, set, dict, Count)
_PATIENCE = 4_000


def crash_plan(
    plan: Plan,
    *,
    points: int,
    all_along: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    thorough: bool = False,
) -> Counter[str]:
    """Run a plan without a death, once with deaths all along, and with one at each of so many places.

    Args:
        plan: The plan.
        points: How many places, drawn from all; each is before a commit is written, or after.
        all_along: Whether one run dies all along.
        limits: Of all the runs.
        thorough: Whether what is stored is looked at after each commit of the run with deaths all along,
            and not only at its end.

    Returns:
        What there was, counted.

    Raises:
        AssertionError: A run does not end as it should; the message has the seed.
    """
    graph = plan.compile()
    places = _Places(points, plan.seed)
    clean = Driver(graph, limits=limits)
    clean.watch, clean.checks = places.watch, True
    finish(clean)
    _judge_clean(plan, clean)
    counts = _counted(plan, clean)
    if all_along:
        counts["deaths all along"] = _die_all_along(plan, graph, clean, limits, thorough=thorough)
    for where, left in places.drawn:
        left.begin_process()
        finish(left)
        _judge(left, clean, f"seed {plan.seed}, crash {where}")
    counts["single deaths"] = len(places.drawn)
    return counts


def _die_all_along(plan: Plan, graph: Any, clean: Driver, limits: Limits, *, thorough: bool) -> int:
    deaths = _Deaths(plan.seed, 3 * len(clean.commits))
    patient = msgspec.structs.replace(limits, owner_deaths=1_000_000)
    dying = Driver(graph, limits=patient)
    dying.watch, dying.checks = deaths, thorough
    finish(dying, patience=_PATIENCE)
    _judge(dying, clean, f"seed {plan.seed}, deaths all along")
    return deaths.count


def _judge_clean(plan: Plan, clean: Driver) -> None:
    assert clean.faults == [], f"seed {plan.seed}: {clean.faults}"
    if plan.is_flat:
        expected = run_model(plan)
        assert clean.machine.state.values == expected.values, f"seed {plan.seed}"
        assert clean.machine.state.step.number == expected.next_number, f"seed {plan.seed}"


def _judge(crashed: Driver, clean: Driver, where: str) -> None:
    mine, other = crashed.machine.state, clean.machine.state
    assert crashed.values == clean.values, where
    assert crashed.faults == [], f"{where}: {crashed.faults}"
    assert mine.kept == other.kept, where
    assert mine.step.number == other.step.number, where
    check_fold(crashed)


def _after_death(driver: Driver) -> Driver:
    """A driver to whom the process of this one is dead; it has a store of its own, and no process yet."""
    other = copy.copy(driver)
    for name, value in vars(driver).items():
        if isinstance(value, _COPIED):
            setattr(other, name, copy.copy(value))
    other.watch, other.checks = None, False
    other.store = _copied(driver.store)
    return other


def _copied(store: MemoryCheckpointer) -> MemoryCheckpointer:
    """A store with the same threads, which nobody owns."""
    other = MemoryCheckpointer()
    for name, thread in store._threads.items():
        image = other._threads[name] = thread.copy()
        image.row, image.status, image.due = thread.row, thread.status, thread.due
        image.inbox, image.keys = dict(thread.inbox), dict(thread.keys)
    other._by_status = {status: set(names) for status, names in store._by_status.items()}
    other._epoch, other._asleep_us = store._epoch, store._asleep_us
    return other


class _Places:
    """What is left at so many of the places where a run may die, each as likely as any other."""

    def __init__(self, most: int, seed: int) -> None:
        self.drawn: list[tuple[str, Driver]] = []
        self._most = most
        self._seen = 0
        self._rng = random.Random(f"places {seed}")

    def watch(self, driver: Driver, _commit: Any, written: bool) -> bool:
        """Set aside what is there, perhaps in the place of another one; nobody dies."""
        self._seen += 1
        number = len(driver.commits) - written
        where = f"{'after' if written else 'before'} commit {number}"
        if len(self.drawn) < self._most:
            self.drawn.append((where, _after_death(driver)))
        elif (place := self._rng.randrange(self._seen)) < self._most:
            self.drawn[place] = where, _after_death(driver)
        return False


class _Deaths:
    """The process dies at each commit that brings something: before it is written, or after, by lot.

    So it may come to two commits in one life. It has to, where the first counts for nothing without the
    second: how a graph failed that a function called, and that the function failed. Where many of them
    follow each other it would take too many lives, so there are at most so many.
    """

    def __init__(self, seed: int, most: int) -> None:
        self.count = 0
        self._most = most
        self._rng = random.Random(f"deaths {seed}")
        self._died = False
        """Whether it died before the commit that comes."""

    def __call__(self, _driver: Driver, commit: Any, written: bool) -> bool:
        brings = commit.record.entries or commit.record.checkpoint
        if not brings or self.count >= self._most:
            return False
        if written:
            dies, self._died = not self._died, False
        elif self._died:
            dies = False
        else:
            dies = self._died = self._rng.random() < 0.5
        self.count += dies
        return dies


def _counted(plan: Plan, clean: Driver) -> Counter[str]:
    """What the graph and its clean run had."""
    plans = list(_plans(plan))
    nodes = [node for each in plans for node in each.nodes]
    return Counter(
        {
            "graphs": 1,
            "subgraphs": sum(n.inner is not None and not n.calls for n in nodes),
            "called graphs": sum(n.calls for n in nodes),
            "nodes": len(nodes),
            "joins": sum(len(each.joins) for each in plans),
            "loops": sum(each.loop is not None for each in plans),
            "guards": sum(len(each.guards) for each in plans),
            "deferred nodes": sum(n.defer for n in nodes),
            "steps": clean.machine.state.step.number,
            "commits": len(clean.commits),
            "attempts": len(clean.started),
            "Sends": sum(a.task.source is not None for a in clean.started),
            "interrupts": len(clean.entries(Answered)),
            "failures": len(clean.told_events(AttemptFailed)),
            "continuations": len(clean.entries(Continued)),
        }
    )


def _plans(plan: Plan) -> Iterator[Plan]:
    yield plan
    for node in plan.nodes:
        if node.inner is not None:
            yield from _plans(node.inner)
