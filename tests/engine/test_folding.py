"""What is folded from a thread's records, and what of them is read later or never."""

from __future__ import annotations

import itertools

import pytest

from beamweaver.engine import CallKind
from beamweaver.engine.along import fold_along
from beamweaver.engine.fold import fold
from beamweaver.engine.ids import name_in
from beamweaver.types import PARENT, Command, Send
from tests.engine.driver import Driver
from tests.engine.graphs import asks, graph


def image_of(driver):
    """The head with all of its entries."""
    seq = driver.machine.state.checkpoint_seq
    return driver.store.load("t", seq, entries=True)


class TestAlong:
    """`fold_along`: the state after each thing that happened in a step, inside of its tasks too."""

    def test_it_goes_from_the_checkpoint_to_what_there_is(self):
        driver = Driver(graph("^>a ^>ask ^>b", a=None, ask=asks(), b=None))
        driver.invoke({})
        seen = [
            [task.node for task in state.step.tasks if task.settled]
            for state in fold_along(image_of(driver), driver.env)
        ]
        assert seen[0] == []
        assert seen[-1] == ["a", "ask", "b"]
        assert all(set(before) <= set(after) for before, after in itertools.pairwise(seen))

    def test_each_step_of_a_graph_in_a_task_is_seen(self):
        child = graph("^>a a>b b>ask", name="child", a=None, b=None, ask=asks())
        driver = Driver(graph("^>c", name="top", c=graph("^>m", name="middle", m=child)))
        driver.invoke({})
        seen = []
        for state in fold_along(image_of(driver), driver.env):
            (task,) = state.step.tasks
            for middle in (task.inner or {}).values():
                for inner in (middle.step.tasks[0].inner or {}).values():
                    shown = [each.node for each in inner.step.tasks], len(inner.values["log"])
                    if shown not in seen:
                        seen.append(shown)
        assert seen == [(["a"], 0), (["b"], 1), (["ask"], 2)]

    def test_the_last_of_them_is_what_the_store_folds_to(self):
        child = graph("^>a a>ask", name="child", a=None, ask=asks())
        driver = Driver(graph("^>c", name="top", c=child))
        driver.invoke({})
        *_before, last = fold_along(image_of(driver), driver.env)
        whole = fold(driver.store.load("t"), driver.env)
        (mine,), (other,) = (
            [inner for task in state.step.tasks for inner in task.inner.values()]
            for state in (last, whole)
        )
        assert (mine.values, mine.seq, mine.step.asks) == (other.values, other.seq, True)


class TestCalledGraphs:
    """Of a called graph the values are read when it is called again."""

    def resumed(self, nodes, edges="^>ask", later=None, edges_later=None):
        """A call that asked, answered by a process with perhaps another graph."""
        given = {"edges": edges, "nodes": nodes}

        def calls(_state, ctx):
            child = graph(given["edges"], name="child", **given["nodes"])
            return {"log": ctx.call(child, {"x": 1})["log"]}

        driver = Driver(graph("^>a", a=calls))
        interrupts = driver.invoke({}).interrupts
        driver.crash()
        if later is not None:
            given.update(nodes=later, edges=edges_later)
        call = driver.send(CallKind.RESUME, answers={interrupts[0].id: "yes"})
        driver.run()
        return driver.replies[call.id]

    def test_what_a_graph_in_it_is_about_to_command_is_read_too(self):
        """A task of that graph has commanded, and the step in which it did is not over."""
        up = lambda _s: Command(graph=PARENT, update={"log": ["up"]}, goto="end")
        deep = graph("^>d ^>ask", name="deep", d=up, ask=asks())
        reply = self.resumed({"deep": deep, "end": None}, "^>deep")
        assert reply.outcome.state["log"] == ["ask:yes", "up", "end"]

    def test_what_a_finished_task_sends_is_read_too(self):
        sends = lambda _s: Send("end", {"x": (1, 2)})
        nodes = {"send": sends, "ask": asks(), "end": lambda s: {"log": [s["x"]]}}
        reply = self.resumed(nodes, "^>send ^>ask")
        assert reply.outcome.state["log"] == ["ask:yes", (1, 2)]

    def test_where_a_finished_task_goes_to_a_node_that_is_gone_the_call_fails(self):
        nodes = {"go": lambda _s: Command(goto="end"), "ask": asks(), "end": None}
        later = {"go": None, "ask": asks()}
        reply = self.resumed(nodes, "^>go ^>ask", later, "^>go ^>ask")
        assert "a finished task goes to node 'end', which graph 'child' has not" in str(reply.error)


@pytest.mark.parametrize(
    ("key", "name"), [("child", "child"), ("child|2", "child"), ("|handler:child:a", "child")]
)
def test_a_called_graph_is_found_by_the_name_in_its_key(key, name):
    assert name_in(key) == name
