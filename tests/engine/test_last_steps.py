"""The last steps of graphs in tasks, which are no records: what is kept of them, and how it is read."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import pytest

from beamweaver.checkpoint.entries import Left
from beamweaver.checkpoint.records import RunOptions
from beamweaver.engine._child import Child
from beamweaver.graph import Ephemeral, Graph, Untracked, append
from beamweaver.limits import DEFAULT_LIMITS
from beamweaver.runtime.inner_history import read_inner_history
from beamweaver.types import START, Send
from tests.engine.driver import Driver, Later
from tests.engine.generator import State, finish, plan_of, run_plan


class Own(State, total=False):
    """With keys that the graph around lacks."""

    mine: str
    gone: Annotated[str, Ephemeral]
    lost: Annotated[int, Untracked]


def chain(*names, schema=State, name="child", **nodes):
    """A graph of one node after another, each of which logs its name."""
    graph = Graph(schema, name=name)
    for at, each in enumerate(names):
        graph.add_node(each, nodes.get(each, lambda _s, each=each: {"log": [each]}))
        graph.add_edge(names[at - 1] if at else START, each)
    return graph.compile()


def around(child, **options):
    return Graph(State, name="top").add_node("c", child, **options).add_edge(START, "c").compile()


def calling(child, *, said=True):
    def calls(state, ctx):
        return {"log": ctx.call(child, {"log": ["in"]})["log"]}

    graph = Graph(State, name="top").add_node("c", calls, calls=[child] if said else [])
    return graph.add_edge(START, "c").compile()


def history(driver, *names, graph=None):
    """The states of the graph at these names, the oldest first."""
    found = read_inner_history(
        driver.store, driver.codec, lambda *_: graph or driver.graph, driver.thread_id, names, None
    )
    return list(found)[::-1]


def logs(driver, *names, **options):
    return [state.values["log"] for state in history(driver, *names, **options)]


def ran(graph, given=None, **options):
    driver = Driver(graph)
    driver.checks = not options
    driver.invoke(given or {"log": ["in"]}, **options)
    return driver


def kept(driver):
    return [entry for commit in driver.commits for entry in commit.record.entries]


class TestWhatIsRead:
    def test_a_graph_of_one_step_is_told_from_what_its_node_saw(self):
        driver = ran(around(chain("a")))
        assert logs(driver, "c") == [["in"], ["in", "a"]]
        assert [state.next for state in history(driver, "c")] == [("a",), ()]
        assert [state.step for state in history(driver, "c")] == [0, 1]

    def test_the_last_of_several_steps(self):
        assert logs(ran(around(chain("a", "b"))), "c") == [["in"], ["in", "a"], ["in", "a", "b"]]

    def test_keys_that_do_not_come_back_are_there_and_keys_of_one_step_are_gone(self):
        def a(_state):
            return {"mine": "a", "gone": "x", "found": ["f"], "log": ["a"], "lost": 1}

        driver = ran(around(chain("a", "b", schema=Own, a=a, b=lambda _s: {"mine": "b"})))
        (*_, before, last) = history(driver, "c")
        assert (before.values["mine"], last.values["mine"]) == ("a", "b")
        assert (before.values["gone"], "gone" in last.values) == ("x", False)
        assert (before.values["found"], last.values["found"]) == (["f"], [])
        assert last.values["log"] == ["in", "a"]

    def test_a_topic_that_the_graph_around_has_too(self):
        driver = ran(around(chain("a", a=lambda _s: {"found": ["f"]})))
        assert history(driver, "c")[-1].values["found"] == ["f"]

    def test_graphs_in_graphs_each_of_one_step(self):
        driver = ran(around(chain("inner", inner=chain("a"))))
        assert logs(driver, "c") == [["in"], ["in", "a"]]
        assert logs(driver, "c", "inner") == [["in"], ["in", "a"]]

    def test_graphs_in_graphs_of_several_steps(self):
        driver = ran(around(chain("x", "inner", "y", inner=chain("a", "b"))))
        assert logs(driver, "c")[-1] == ["in", "x", "a", "b", "y"]
        assert logs(driver, "c", "inner")[-1] == ["in", "x", "a", "b"]

    def test_one_that_is_sent_to_began_with_what_the_send_brought(self):
        graph = Graph(State, name="top").add_node("w", chain("a"))
        graph.add_conditional_edges(START, lambda _s: [Send("w", {"last": "sent"})], ["w"])
        first, last = history(ran(graph.compile()), "w")
        assert (first.values["last"], last.values["last"]) == ("sent", "sent")

    def test_one_that_runs_beside_another_task_is_told_once(self):
        """Its result is stored with its step, before the step around is done."""
        graph = Graph(State, name="top").add_node("c", chain("a", "b")).add_node("d", chain("e"))
        graph.add_node("asks", lambda _s, ctx: {"log": [ctx.interrupt("?")]})
        for node in ("c", "d", "asks"):
            graph.add_edge(START, node)
        driver = ran(graph.compile())
        driver.crash()
        driver.resume("yes")
        assert logs(driver, "c") == [["in"], ["in", "a"], ["in", "a", "b"]]
        assert logs(driver, "d") == [["in"], ["in", "e"]]

    @pytest.mark.parametrize(("dies", "last"), [(False, [None, "new"]), (True, ["new", "new"])])
    def test_one_that_began_beside_an_amendment(self, dies, last):
        """Another task of the step had failed, so that it was given up before anything of it was stored."""
        tries = []

        def fails(_state):
            tries.append(1)
            if len(tries) == 1:
                raise OSError("boom")

        slow = chain("a", a=lambda _s: Later(5, {"log": ["a"]}))
        graph = Graph(State, name="top").add_node("c", slow).add_node("fails", fails)
        graph.add_edge(START, "c").add_edge(START, "fails")
        driver = Driver(graph.compile(failure_policy="panic"))
        driver.fails({"log": ["in"]})
        if dies:
            driver.crash()
        driver.invoke({"last": "new"})
        assert [state.values.get("last") for state in history(driver, "c")] == last

    def test_an_edit_of_the_step_tells_nothing_twice(self):
        graph = Graph(State, name="top").add_node("c", chain("a"))
        graph.add_node("asks", lambda _s, ctx: {"log": [ctx.interrupt("?")]})
        driver = ran(graph.add_edge(START, "c").add_edge(START, "asks").compile())
        driver.update({"log": ["more"]})
        driver.resume("yes")
        assert logs(driver, "c") == [["in"], ["in", "a"]]

    def test_each_state_of_a_persistent_one_goes_on_from_the_one_before(self):
        graph = around(chain("a", schema=Own, a=_counted), persistent=True, key="last")
        driver = Driver(graph)
        for user in ("ann", "bob", "ann"):
            driver.invoke({"last": user})
        mine = [state.values.get("mine") for state in history(driver, "c:ann")]
        assert mine == [None, "1", "1", "11"]

    @pytest.mark.parametrize("names", ["a", "ab"])
    def test_a_graph_in_it_that_is_a_function_now_is_passed_over(self, names):
        driver = ran(around(chain("inner", inner=chain(*names))))
        other = around(chain("inner"))
        assert logs(driver, "c", graph=other) == [["in"], ["in", *names]]


def _counted(state):
    return {"mine": state.get("mine", "") + "1"}


class TestCalls:
    def test_a_call_of_one_step_has_its_first_record(self):
        driver = ran(calling(chain("a")))
        assert logs(driver, "c:child") == [["in"], ["in", "a"]]

    def test_keys_that_the_call_does_not_return_are_there(self):
        class Out(State, total=False):
            log: Annotated[list[str], append]

        graph = Graph(Own, name="child", output_schema=Out)
        child = graph.add_node("a", lambda _s: {"mine": "a"}).add_edge(START, "a").compile()
        (_first, last) = history(ran(calling(child)), "c:child")
        assert (last.values["mine"], last.values["log"]) == ("a", ["in"])

    def test_who_does_not_know_the_graph_sees_plain_data(self):
        driver = ran(calling(chain("a", "b"), said=False))
        assert logs(driver, "c:child") == [["in"], ["in", "a"], ["in", "a", "b"]]

    def test_and_of_a_graph_in_it_the_steps_that_have_records(self):
        child = chain("x", "inner", inner=chain("a", "b"))
        driver = ran(calling(child, said=False))
        assert logs(driver, "c:child")[-1] == ["in", "x", "a", "b"]
        assert logs(driver, "c:child", "inner") == [["in", "x"], ["in", "x", "a"]]

    def test_but_none_of_one_without_records(self):
        driver = ran(calling(chain("x", "inner", inner=chain("a")), said=False))
        assert logs(driver, "c:child", "inner") == []


class TestWhatIsKept:
    def test_no_more_than_the_step_wrote(self):
        """What was there before is neither kept again nor counted."""
        driver = ran(around(chain("a")), {"log": ["x" * 10_000]})
        (left,) = [entry for entry in kept(driver) if type(entry) is Left]
        assert left.own == {}
        assert [(row[0], len(row[1]) < 20, row[2]) for row in left.back] == [("log", True, False)]

    @pytest.mark.parametrize("make", [around, calling])
    def test_nothing_of_a_graph_in_which_no_node_ran(self, make):
        graph = Graph(State, name="child").add_node("a", lambda _s: None)
        child = graph.add_conditional_edges(START, lambda _s: "__end__").compile(
            allow_unreachable=True
        )
        driver = ran(make(child))
        assert [type(entry) for entry in kept(driver) if type(entry) is Left] == []

    @pytest.mark.parametrize("make", [around, calling])
    def test_nothing_where_steps_are_left_out(self, make):
        driver = ran(make(chain("a", "b")), options=RunOptions(durability="exit"))
        assert not any(type(entry) is Left for entry in kept(driver))

    def test_nothing_of_a_thread_that_ends_with_its_call(self):
        class Unkept(Driver):
            def begin_actor(self):
                super().begin_actor()
                self.env.keeps = False

        driver = Unkept(around(chain("a")))
        driver.invoke({"log": []})
        assert not any(type(entry) is Left for entry in kept(driver))


def ends_of(plan, monkeypatch):
    """A run of a plan, and with which values the graphs in it ended, by their names."""
    ends = defaultdict(list)
    end = Child._end

    def noted(self, status):
        if status == "complete" and self.closing.source != "input":
            values = {k: v for k, v in self.state.values.items() if k not in self.graph.unstored}
            if not any(name.startswith("worker") for name in self.state.names):  # several at once
                ends[self.state.names].append(values)
        end(self, status)

    monkeypatch.setattr(Child, "_end", noted)
    driver = run_plan(plan)
    monkeypatch.undo()
    return driver, ends


def read_ends(driver, names):
    found = [state.values for state in history(driver, *names) if state.next == ()]
    return [{k: v for k, v in values.items() if k != "calls"} for values in found]


def check(seed, monkeypatch, *, calls, crashes=0):
    plan = plan_of(seed, depth=2, calls=calls)
    clean, ends = ends_of(plan, monkeypatch)
    for names, values in ends.items():
        assert read_ends(clean, names) == values, f"seed {seed}, {names}"
    for mode in ("sync", "async"):
        for at in range(crashes):
            other = Driver(plan.compile(), crash_at=at * 3, limits=DEFAULT_LIMITS)
            other.options = None if mode == "sync" else RunOptions(durability="async")
            finish(other)
            for names, values in ends.items():
                where = f"seed {seed}, {names}, crash at commit {at * 3}, {mode}"
                assert read_ends(other, names) == values, where


SEEDS = (0, 4, 34)


@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_histories_of_drawn_graphs_end_as_these_did(seed, calls, monkeypatch):
    check(seed, monkeypatch, calls=calls, crashes=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_histories_of_drawn_graphs_end_as_these_did_wherever_they_die(seed, monkeypatch):
    check(seed, monkeypatch, calls=bool(seed % 2), crashes=3)
