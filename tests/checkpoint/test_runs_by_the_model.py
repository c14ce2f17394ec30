"""Drawn runs in real stores: each checkpoint that is kept is one of the model."""

from __future__ import annotations

import random

import pytest

from beamweaver.engine import CallKind
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.rows import values_of
from beamweaver.errors import NodeFailed
from beamweaver.limits import Limits
from beamweaver.types import START
from tests.checkpoint.kit import KINDS, place_of
from tests.engine.driver import Crashed, Driver
from tests.engine.generator import finish, plan_of
from tests.engine.modelled import end_model, run_model

SMALL = Limits(value_bytes_whole=0)
"""Under these limits what reducers make is stored as what was added."""


class History:
    """A drawn run on a store, and what the model says of it."""

    def __init__(self, seed, store):
        self.where = f"seed {seed}"
        self.rng = random.Random(seed)
        self.plan = plan_of(seed)
        for node in self.plan.nodes:  # a branch counts its steps anew
            node.reads = [key for key in node.reads if key != "left"]
        self.store = store
        self.driver = Driver(
            self.plan.compile(),
            store=store,
            seed=seed,
            limits=SMALL,
            crash_at=self.rng.randrange(9),
            written=self.rng.random() < 0.5,
        )
        self.model = run_model(self.plan)
        self.points = {}
        """What the model says of each checkpoint, by its number."""

    def run(self):
        finish(self.driver)
        self._learn()

    def branch(self):
        """Go on from any checkpoint, and die once more on the way."""
        seq = self.rng.choice([seq for seq, point in self.points.items() if point[1]])
        stored = self.store.load("t", seq).checkpoint.checkpoint
        self.driver.crash_at = len(self.driver.commits) + self.rng.randrange(6)
        self.model.branch(self.points[seq])
        end_model(self.plan, self.model)
        named = {"checkpoint": checkpoint_id(stored.branch, seq), "fork": True, "run_id": "again"}
        for _try in range(2):  # a process dies once
            try:
                self.driver.branch(CallKind.CONTINUE, **named)
            except Crashed:
                self.driver.crash()
            except NodeFailed:  # the next call goes on
                break
            else:
                break
        finish(self.driver)
        self.driver.crash_at = None
        self._learn()

    def _checkpoints(self, thread="t"):
        """The numbers of all checkpoints, the oldest first.

        Left out are those with which branches begin, and those of an input whose routers were not asked.
        """
        records = [image.checkpoint for image in self.store.history(thread, values=False)]
        steps = [(each.seq, each.checkpoint) for each in records][::-1]
        started = [(seq, step) for seq, step in steps if step.source != "fork"]
        return [seq for seq, step in started if [t.node for t in step.tasks] != [START]]

    def _learn(self):
        found = self._checkpoints()
        assert len(found) == len(self.model.points), self.where
        self.points = dict(zip(found, self.model.points, strict=True))
        self.check()

    def check(self, thread="t"):
        """Each checkpoint that is kept is as the model says; how many these are."""
        found = self._checkpoints(thread)
        for seq in found:
            values, tasks, _joins, _spent, waiting = self.points[seq]
            image, where = self.store.load(thread, seq), f"{self.where}, checkpoint {seq}"
            stored = image.checkpoint.checkpoint
            initial = {
                key: channel.initial() for key, channel in self.driver.graph.channels.items()
            }
            wanted = {key: value for key, value in values.items() if key != "calls"}  # untracked
            assert {key: initial[key] for key in wanted} | values_of(
                image.values, self.driver.env
            ) == wanted, where
            assert [task.node for task in stored.tasks] == [task.node for task in tasks], where
            assert {task.node for task in stored.deferred} == {task.node for task in waiting}, where
        return len(found)


def check(seed, kind, folder):
    place = place_of(kind, folder)
    store = place.open()
    history = History(seed, store)
    history.run()
    history.branch()
    epoch = history.driver.epoch
    assert store.copy_thread(epoch, "t", "copy")
    whole = history.check()
    sum(store.prune(epoch, ["t"], keep_last=2))
    assert history.check() <= whole
    assert history.check("copy") == whole
    place.close()


def check_all(seeds, kind, folder):
    for seed in seeds:
        (folder / str(seed)).mkdir()
        check(seed, kind, folder / str(seed))


@pytest.mark.parametrize("kind", ["memory", "lmdb-process-kill"])
@pytest.mark.parametrize("block", range(0, 20, 5))
def test_each_checkpoint_that_is_kept_is_one_of_the_model(block, kind, tmp_path):
    check_all(range(block, block + 5), kind, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(200, 230, 10))
def test_each_checkpoint_of_many_runs_is_one_of_the_model(block, kind, tmp_path):
    check_all(range(block, block + 10), kind, tmp_path)
