"""What else a thread of an older version has: subgraphs, options of calls, messages, damaged values."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from beamweaver.engine import CallKind
from beamweaver.engine.migrate import open_image
from beamweaver.errors import DeserializationError, GraphChanged, MigrationFailed, UnknownTarget
from beamweaver.graph import Graph, Migration
from beamweaver.types import START, Overwrite, Send
from tests.engine.driver import Driver, Later
from tests.engine.graphs import State, asks, fails, graph, wrote
from tests.engine.test_versions import deploy, refusal

RENAMED = Migration(rename={"a": "b"})
MOVED = Migration(rename={"p": "q"})
DROPPED = Migration(drop=("p", "a"))


def of_version(version, edges, migration=RENAMED, schema=State, **nodes):
    """A graph of version 1, or of version 2 with a migration."""
    options = dict(nodes.pop("options", {}))
    if version > 1:
        options["migrations"] = {1: migration}
    return graph(edges, schema=schema, version=version, options=options, **nodes)


class Own(State, total=False):
    runs: Annotated[int, operator.add]


def keeper(name, version, migration=MOVED, *, bad=None):
    """A graph with a persistent graph under a name, which counts its runs, and perhaps a node that fails."""
    counts = graph("^>n", schema=Own, name="counts", n=lambda s: {"log": [s["runs"]], "runs": 1})
    migrations = {1: migration} if version > 1 else {}
    builder = Graph(State, name="g", version=version).add_node(name, counts, persistent=True)
    builder.add_edge(START, name)
    if bad is not None:
        builder.add_node("bad", bad).add_edge(START, "bad")
    return builder.compile(migrations=migrations)


class TestWhatPersistentGraphsKeep:
    def test_it_goes_with_the_node(self):
        driver = Driver(keeper("p", 1))
        driver.invoke({})
        deploy(driver, keeper("q", 2))
        assert driver.invoke({}).state["log"] == [0, 1]
        assert list(driver.machine.state.kept) == ["q"]

    def test_that_of_a_dropped_node_is_dropped(self):
        driver = Driver(keeper("p", 1))
        driver.invoke({})
        deploy(driver, keeper("q", 2, DROPPED))
        assert driver.invoke({}).state["log"] == [0, 0]

    def test_what_a_finished_one_is_about_to_keep_goes_with_it_too(self):
        driver = Driver(keeper("p", 1, bad=fails(1)))
        driver.fails({})
        deploy(driver, keeper("q", 2, bad=wrote("bad")))
        driver.go_on()
        assert driver.invoke({}).state["log"] == [0, "bad", 1, "bad"]


class TestUpdates:
    def test_several_updates_of_one_task_are_changed_one_by_one(self):
        """A key that is there twice begins another update, and so does one that overwrites."""
        seen = []

        def update(values):
            seen.append(dict(values))
            return values

        first = of_version(1, "^>ok ^>ask", ask=asks(),
                           ok=lambda _s: [{"log": ["a"]}, {"log": ["b"]}, {"x": Overwrite(1)}])  # fmt: skip
        driver = Driver(first)
        driver.invoke({})
        deploy(driver, of_version(2, "^>ok ^>ask", Migration(update=update), ok=None, ask=asks()))
        assert seen == [{"log": ["a"]}, {"log": ["b"]}, {"x": 1}]
        assert driver.resume("yes").state["log"] == ["ask:yes", "a", "b"]

    def test_a_step_on_the_way_without_a_function_changes_nothing(self):
        driver = Driver(of_version(1, "^>ask", ask=asks()))
        driver.invoke({"x": 1})
        steps = {1: Migration(rename={"none": "none"}), 2: Migration(state=lambda v: {**v, "y": 2})}
        deploy(driver, graph("^>ask", version=3, ask=asks(), options={"migrations": steps}))
        assert driver.resume("yes").state == {"log": ["ask:yes"], "n": 0, "x": 1, "y": 2}

    def test_an_overlay_of_a_send_that_stays_as_it_is_keeps_its_bytes(self):
        first = of_version(1, "^>s", s=lambda _s: Send("a", {"x": (1, 2)}), a=asks("a"))
        driver = Driver(first)
        driver.invoke({})
        before = driver.row
        again = of_version(2, "^>s", Migration(rename={"a": "b"}, update=dict), s=None, b=asks("b"))
        deploy(driver, again)
        assert driver.row.run == msgspec.structs.replace(before.run, options=None)
        (task,) = driver.machine.state.step.tasks
        assert task.update == {"x": (1, 2)}

    def test_plain_data_is_made_into_the_type_that_the_key_has_now(self):
        class Point(msgspec.Struct):
            x: int
            y: int = 0

        class Points(TypedDict, total=False):
            log: Annotated[list[Any], operator.add]
            at: Point

        class Plain(TypedDict, total=False):
            log: Annotated[list[Any], operator.add]
            at: dict

        driver = Driver(of_version(1, "^>ask", schema=Plain, ask=asks()))
        driver.invoke({"at": {"x": 1}})
        moves = Migration(state=lambda values: {**values, "at": {"x": 5}})
        deploy(driver, of_version(2, "^>ask", moves, Points, ask=asks()))
        assert driver.resume("yes").state["at"] == Point(5)

    def test_data_that_the_type_refuses_is_told(self):
        class Positive(TypedDict, total=False):
            log: Annotated[list[Any], operator.add]
            n: Annotated[list[int], operator.add]

        driver = Driver(of_version(1, "^>ask", ask=asks()))
        driver.invoke({"n": 3})
        changed = of_version(2, "^>ask", Migration(state=dict), Positive, ask=asks())
        error = refusal(driver, changed, MigrationFailed)
        assert "migrations[1].state returned 3 (int) for the key 'n'" in error.message

    def test_a_value_that_was_there_and_cannot_be_stored_any_more_is_told(self):
        driver = Driver(of_version(1, "^>ask", ask=asks()))
        driver.invoke({"x": 1})
        changed = of_version(2, "^>ask", Migration(state=lambda _v: {"x": object()}), ask=asks())
        error = refusal(driver, changed, MigrationFailed)
        assert "migrations[1].state returned for 'x' what cannot be stored" in error.message


class TestOptionsOfACall:
    @pytest.mark.parametrize(("given", "now"), [(("a",), ("b",)), (("*",), ("*",))])
    def test_breakpoints_have_the_new_names(self, given, now):
        nodes = {"first": None, "a": None}
        driver = Driver(of_version(1, "^>first first>a", **nodes))
        driver.invoke({}, interrupt_before=given, interrupt_after=())
        nodes = {"first": None, "b": None}
        deploy(driver, of_version(2, "^>first first>b", **nodes))
        options = driver.row.run.options
        assert (options.interrupt_before, options.interrupt_after) == (now, ())

    def test_those_of_a_message_that_waits_too(self):
        driver = Driver(of_version(1, "^>first first>a", first=lambda _s: Later(2), a=None))
        driver.send_invoke({})
        driver.tell({"x": 1}, interrupt_before=("a",))
        driver.run(until=lambda: driver.inbox)
        deploy(driver, of_version(2, "^>first first>b", first=None, b=None))
        assert driver.status == "waiting"
        assert driver.machine.state.step.paused.before == ("b",)


class TestWhatWaits:
    def test_a_message_that_needs_no_change_stays_as_it_is(self):
        driver = Driver(of_version(1, "^>ask", ask=lambda _s: Later(2)))
        driver.send_invoke({})
        driver.tell(None, CallKind.RESUME, answers={"int_1": "yes"})
        driver.run(until=lambda: driver.inbox)
        before = driver.inbox
        again = of_version(2, "^>ask", Migration(), ask=None)
        opened = open_image(driver.store.load("t"), again, driver.env)
        assert opened.migrated.inbox == ()
        assert opened.image.inbox == before

    def test_a_run_that_slept_in_a_dropped_node_goes_on_without_it(self):
        def sleeper(_state, ctx):
            ctx.sleep(100)

        driver = Driver(of_version(1, "^>ok ^>a ok>end", ok=None, a=sleeper, end=None))
        driver.send_invoke({})
        driver.run(seconds=1)
        assert driver.stored_status == "sleeping"
        deploy(driver, of_version(2, "^>ok ok>end", DROPPED, ok=None, end=None))
        assert (driver.status, driver.values["log"]) == ("complete", ["ok", "end"])

    def test_a_join_at_which_nobody_arrived_any_more_is_dropped(self):
        parts = {"c": None, "ask": asks(), "end": None}
        first = of_version(1, "^>a a>ask ^>c c>ask", joins=[("a ask", "end")], a=None, **parts)
        driver = Driver(first)
        driver.invoke({})
        assert list(driver.machine.state.joins.values()) == [("a",)]
        deploy(driver, of_version(2, "^>c c>ask", DROPPED, **parts))
        assert driver.machine.state.joins == {}

    def test_what_was_spent_on_an_edge_of_a_dropped_node_is_dropped(self):
        guards = [("a>ask", {"max_runs": 2})]
        driver = Driver(of_version(1, "^>a", a=None, ask=asks(), guards=guards))
        driver.invoke({})
        assert driver.machine.state.spent == {"a:ask:0": 1}
        deploy(driver, of_version(2, "^>ask", DROPPED, ask=asks()))
        assert driver.machine.state.spent == {}

    def test_it_is_migrated_where_nobody_listens(self):
        driver = Driver(of_version(1, "^>a", a=asks("a")), publishing=False)
        driver.invoke({})
        deploy(driver, of_version(2, "^>b", b=asks("b")))
        assert (driver.row.version, driver.events) == (2, [])


class TestWhatIsGone:
    def inside(self, child):
        return graph("^>p", name="g", p=child)

    def waiting(self):
        driver = Driver(self.inside(graph("^>ask ask>z", name="child", ask=asks(), z=None)))
        driver.invoke({})
        return driver

    def test_a_graph_that_is_a_function_now(self):
        error = refusal(self.waiting(), self.inside(asks("p")))
        assert error.differences == ("node 'p' was a graph and is a function",)

    def test_a_graph_whose_node_is_gone_is_told_once(self):
        error = refusal(self.waiting(), graph("^>other", other=None))
        assert len(error.differences) == 1
        assert "node 'p' is gone" in error.differences[0]

    def test_a_new_run_may_begin_in_its_place(self):
        """What is known of the old step, answers in graphs that are gone included, counts for nothing."""
        child = graph("^>one ^>two", name="child", one=asks("one"), two=asks("two"))
        driver = Driver(self.inside(child))
        first, _second = driver.invoke({}).interrupts
        driver.resume(answers={first.id: "yes"})
        driver.graph = graph("^>other", other=None)
        driver.crash()
        with pytest.raises(GraphChanged):
            driver.go_on()
        outcome = driver.invoke({"x": 1}, on_unfinished="restart")
        assert outcome.state["log"] == ["other"]

    def test_a_graph_that_takes_any_key_has_lost_none(self):
        driver = Driver(graph("^>ask", schema=None, ask=lambda _s, ctx: {"x": ctx.interrupt("?")}))
        driver.invoke({"anything": 1})
        driver.crash()
        assert driver.resume(2).state == {"anything": 1, "x": 2}

    def test_a_called_graph_that_has_lost_the_node_of_its_step_fails_its_caller(self):
        """Which graph is called is known only when it is called again."""
        nodes = [{"ask": asks()}, {"other": None}]

        def calls(_state, ctx):
            (name,) = nodes[0]
            child = graph(f"^>{name}", name="child", **nodes[0])
            return {"log": ctx.call(child, {})["log"]}

        driver = Driver(graph("^>a", a=calls))
        (question,) = driver.invoke({}).interrupts
        driver.crash()
        del nodes[0]
        call = driver.send(CallKind.RESUME, answers={question.id: "yes"})
        driver.run()
        error = driver.replies[call.id].error
        assert "is about to run node 'ask', which this graph has not (any more)" in str(error)
        assert error.failures[0].type_name.endswith(UnknownTarget.__name__)

    def test_a_called_graph_that_has_lost_a_graph_in_it_fails_its_caller(self):
        deepest = graph("^>ask", name="deepest", ask=asks())
        nodes = [{"deep": deepest}, {"other": None}]

        def calls(_state, ctx):
            (name,) = nodes[0]
            return {"log": ctx.call(graph(f"^>{name}", name="child", **nodes[0]), {})["log"]}

        driver = Driver(graph("^>a", a=calls))
        (question,) = driver.invoke({}).interrupts
        driver.crash()
        del nodes[0]
        call = driver.send(CallKind.RESUME, answers={question.id: "yes"})
        driver.run()
        assert "is about to run node 'deep'" in str(driver.replies[call.id].error)


def test_a_damaged_value_is_no_change_of_the_graph():
    driver = Driver(of_version(1, "^>ask", ask=asks()))
    driver.invoke({"n": 1})
    image = driver.store.load("t")
    damaged = msgspec.structs.replace(image, values={**image.values, "n": b"\xc1"})
    with pytest.raises(DeserializationError):
        open_image(damaged, driver.graph, driver.env)
    with pytest.raises(GraphChanged, match="the stored value"):
        open_image(damaged, of_version(1, "^>ask ask>more", ask=asks(), more=None), driver.env)
