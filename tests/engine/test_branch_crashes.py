"""Branches and edits that die anywhere, or that are handed to a new actor: each happens once."""

from __future__ import annotations

import random

import pytest

from beamweaver.engine import CallKind
from beamweaver.engine.effects import Transition
from beamweaver.errors import NodeFailed
from tests.engine.driver import Crashed, Driver
from tests.engine.generator import finish, plan_of, run_plan
from tests.engine.graphs import asks, fails, graph, line
from tests.engine.modelled import run_model

BOTH = pytest.mark.parametrize("written", [False, True], ids=["before", "after"])


def checkpoints(driver):
    return list(driver.store.history("t"))


def sources(driver):
    return [image.checkpoint.checkpoint.source for image in checkpoints(driver)]


def oldest(driver):
    """The id of the checkpoint of the first input."""
    checkpoint = checkpoints(driver)[-1].checkpoint
    return f"{checkpoint.checkpoint.branch}-{checkpoint.seq}"


def survive(driver, call):
    """Make a call in a process that may die; in the next one make it again, as a caller would."""
    try:
        return call()
    except Crashed:
        driver.crash()
        driver.run()
        return call()


def places(make, call):
    """Each commit of a call, from the clean run of it."""
    driver = make()
    before = len(driver.commits)
    call(driver)
    return before, len(driver.commits)


def asking():
    driver = Driver(line("a", "b"), publishing=False)
    driver.graph = graph("^>a a>ask ask>b b>$", a=None, ask=asks(), b=None)
    driver.restart_actor()
    driver.invoke({"x": 1})
    return driver


def done():
    driver = Driver(line("a", "b"))
    driver.invoke({"x": 1})
    return driver


def broken():
    """One of two finished, the other failed."""
    driver = Driver(graph("^>ok ^>bad ok>c bad>c c>$", ok=None, bad=fails(1), c=None))
    driver.fails({"x": 1})
    return driver


class TestABranch:
    def call(self, driver):
        return driver.branch(CallKind.INVOKE, {"x": 2}, checkpoint=oldest(driver), run_id="F")

    @BOTH
    def test_it_is_made_once_wherever_the_process_dies(self, written):
        first, last = places(done, self.call)
        for at in range(first, last):
            driver = done()
            driver.crash_at, driver.written = at, written
            outcome = survive(driver, lambda driver=driver: self.call(driver))
            assert outcome.state["log"] == ["a", "b"], at
            assert outcome.state["x"] == 2, at
            assert sources(driver).count("fork") == 1, at

    @BOTH
    def test_without_a_run_id_a_new_process_joins_it_too(self, written):
        def call(driver):
            return driver.branch(CallKind.INVOKE, {"x": 2}, checkpoint=start)

        first, last = places(done, lambda d: d.branch(CallKind.CONTINUE, checkpoint=oldest(d)))
        for at in range(first, last):
            driver = done()
            start = oldest(driver)
            driver.crash_at, driver.written = at, written
            driver.recover = False
            outcome = survive(driver, lambda driver=driver: call(driver))
            assert outcome.state["x"] == 2, at
            ended = written and at == last - 1  # then nobody knows that it was not heard
            assert sources(driver).count("fork") == 1 + ended, at

    @BOTH
    def test_a_promised_answer_is_given_once(self, written):
        def call(driver):
            return driver.branch(
                CallKind.RESUME, answer="yes", checkpoint=oldest(driver), run_id="F"
            )

        first, last = places(asking, call)
        assert last - first > 4
        for at in range(first, last):
            driver = asking()
            driver.crash_at, driver.written = at, written
            outcome = survive(driver, lambda driver=driver: call(driver))
            assert outcome.state["log"] == ["a", "ask:yes", "b"], at
            assert sources(driver).count("fork") == 1, at

    def test_an_actor_that_dies_is_followed_by_one_that_knows_the_call(self):
        driver = done()
        start = oldest(driver)
        call = driver.send(CallKind.CONTINUE, checkpoint=start, place=b"p")
        driver.run(until=lambda: "fork" in sources(driver))
        driver.restart_actor()
        driver.run()
        assert driver.answer(call).state["log"] == ["a", "b"]
        assert sources(driver).count("fork") == 1

    def test_the_states_are_what_the_store_folds_to(self):
        driver = asking()
        driver.checks = True
        driver.branch(CallKind.RESUME, answer="yes", checkpoint=oldest(driver))
        driver.branch(CallKind.INVOKE, {"x": 5}, checkpoint=oldest(driver))
        driver.update({"x": 6})
        driver.update({"log": ["e"]}, "ask")
        driver.go_on()
        assert driver.machine.state.values["log"] == ["a", "e", "b"]


class TestAnEdit:
    @BOTH
    @pytest.mark.parametrize(
        ("make", "node"),
        [(broken, None), (broken, "ok"), (broken, "bad"), (broken, "c"), (done, "a"), (done, None)],
        ids=["amends", "adds", "answers", "leaves", "goes on", "ends"],
    )
    def test_it_is_there_or_not(self, make, node, written):
        driver = make()
        before = driver.store.load("t")
        driver.crash_at, driver.written = len(driver.commits), written
        with pytest.raises(Crashed):
            driver.update({"n": 5}, node)
        driver.crash()
        driver.run()
        after = driver.store.load("t")
        if written:
            assert after.checkpoint.checkpoint.source == "update"
            assert after.checkpoint.checkpoint.parent == before.checkpoint.seq
        else:
            assert after == before
        assert not driver.machine.active

    @BOTH
    def test_all_supersteps_are_there_or_none(self, written):
        driver = done()
        before = len(checkpoints(driver))
        driver.crash_at, driver.written = len(driver.commits), written
        with pytest.raises(Crashed):
            driver.send_update([[({"n": 1}, "a")], [({"n": 1}, None)], [({"n": 1}, "b")]])
        driver.crash()
        assert len(checkpoints(driver)) == before + 3 * written

    def test_an_actor_that_dies_is_followed_by_one_that_knows_the_edit(self):
        driver = broken()
        call = driver.send_update([[({"n": 5}, None)]], runs=False)
        driver.run(until=lambda: "update" in sources(driver))
        driver.restart_actor()
        driver.run()
        assert driver.answer(call).checkpoint_id == driver.head
        assert sources(driver).count("update") == 1
        assert driver.go_on().state["n"] == 5

    def test_an_actor_that_dies_before_it_makes_it_again(self):
        driver = broken()
        call = driver.send_update([[({"n": 5}, None)]], runs=False)
        driver.restart_actor()
        driver.run()
        assert driver.answer(call).checkpoint_id == driver.head
        assert driver.go_on().state["n"] == 5

    def test_what_the_step_had_is_carried_along(self):
        driver = broken()
        driver.update({"n": 5})
        driver.update({"n": 5})
        driver.crash()
        outcome = driver.go_on()
        assert (outcome.state["n"], outcome.state["log"]) == (10, ["ok", "bad", "c"])
        assert driver.runs("ok") == 1

    def test_amendments_see_only_what_came_before_them(self):
        """Results, edit, result: they merge in the order in which they came."""
        driver = Driver(graph("^>ok ^>bad", ok=None, bad=fails(2)))
        driver.fails({"x": 1})
        driver.update({"log": ["one"]})
        driver.fails(None)
        driver.update({"log": ["two"]})
        assert driver.go_on().state["log"] == ["ok", "one", "two", "bad"]


class TestRouters:
    def driver(self):
        driver = Driver(
            graph("^>a", routers=[("a", lambda s: s["x"], ["b", "c"])], a=None, b=None, c=None)
        )
        driver.invoke({"x": "b"})
        return driver

    def ask(self, driver):
        """Feed an edit up to the moment when its routers are asked."""
        call = driver.send_update([[({"x": "c"}, "a")]], runs=False)
        driver.advance()
        (what, transition), *_ = driver.actions
        assert what == "route"
        assert isinstance(transition, Transition)
        return call

    def test_nothing_else_is_decided_while_they_are_asked(self):
        driver = self.driver()
        call = self.ask(driver)
        other = driver.send_invoke({"x": "b"})
        driver.run()
        assert driver.answer(call).checkpoint_id
        assert driver.answer(other).state["log"] == ["a", "b", "c"]

    def test_the_end_of_a_drain_gives_it_up(self):
        driver = self.driver()
        call = self.ask(driver)
        driver.machine.cut()
        driver.run()
        with pytest.raises(Exception, match="cut off"):
            driver.answer(call)
        assert driver.machine.idle

    def test_an_answer_of_routers_that_were_given_up_is_nothing(self):
        driver = self.driver()
        call = self.ask(driver)
        driver.send(CallKind.CANCEL)
        before = driver.store.load("t")
        driver.run()
        with pytest.raises(Exception, match="cancelled"):
            driver.answer(call)
        assert driver.store.load("t") == before


class TestGeneratedRuns:
    """Nodes depend on the state alone, so a branch from anywhere in a run ends as the run did."""

    def ids(self, driver):
        return [
            f"{image.checkpoint.checkpoint.branch}-{image.checkpoint.seq}"
            for image in checkpoints(driver)
        ]

    @pytest.mark.parametrize("seed", range(40))
    def test_a_branch_from_any_checkpoint_ends_as_the_run(self, seed):
        plan = plan_of(seed, disturbed=False)
        for node in plan.nodes:
            node.reads = [
                key for key in node.reads if key != "left"
            ]  # a branch counts its steps anew
        driver = run_plan(plan)
        assert driver.machine.state.values == run_model(plan).values, f"seed {seed}"
        expected = driver.values
        rng = random.Random(seed)
        ids = self.ids(driver)
        for checkpoint in rng.sample(ids, min(4, len(ids))):
            driver.crash_at = len(driver.commits) + rng.randrange(6)
            driver.written = rng.random() < 0.5
            kind = CallKind.CONTINUE
            try:
                driver.branch(kind, checkpoint=checkpoint, fork=True, run_id=checkpoint)
            except Crashed:
                driver.crash()
                try:
                    driver.branch(kind, checkpoint=checkpoint, fork=True, run_id=checkpoint)
                except Crashed:
                    raise AssertionError("a process dies once") from None
            finish(driver)
            driver.crash_at = None
            assert driver.values == expected, f"seed {seed}, {checkpoint}"
        assert len(set(self.ids(driver))) == len(checkpoints(driver))

    @pytest.mark.parametrize("seed", range(40))
    def test_an_edit_that_changes_nothing_changes_nothing(self, seed):
        """Amid any run, wherever it stops or dies: an empty edit carries along all that there is."""
        plan = plan_of(seed)
        expected = run_model(plan).values
        rng = random.Random(seed)
        driver = Driver(plan.compile(), crash_at=rng.randrange(1, 9), written=True)
        driver.recover = False
        try:
            driver.invoke({"log": ["in"]}, run_id="the-run")
        except Crashed:
            driver.crash()
        except NodeFailed:
            pass
        driver.crash_at = None
        if driver.status != "complete":
            driver.update(None)
            driver.update({})
            driver.crash()
        finish(driver)
        assert driver.values == {k: v for k, v in expected.items() if k != "calls"}, f"seed {seed}"
        assert driver.faults == [], f"seed {seed}"
