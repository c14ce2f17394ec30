"""Static breakpoints: recorded where the run stops, and passed once."""

from __future__ import annotations

import pytest

from beamweaver.checkpoint.entries import Paused
from beamweaver.checkpoint.records import RunOptions
from beamweaver.engine import CallKind
from beamweaver.engine.breakpoints import breakpoints_of
from beamweaver.errors import AlreadyAnswered, NothingToResume, RunFailed
from beamweaver.types import Breakpoint, Command, Completed, Interrupted, Send
from tests.engine.driver import HANGS, Crashed, Driver, goto
from tests.engine.graphs import asks, fails_once, fan, graph, line, wrote


def before(*nodes):
    return tuple(Breakpoint(node=node, when="before") for node in nodes)


def after(*nodes):
    return tuple(Breakpoint(node=node, when="after") for node in nodes)


def at(outcome):
    """Where a run stands."""
    assert type(outcome) is Interrupted
    assert outcome.interrupts == ()
    return outcome.breakpoints


def abc(**options):
    return Driver(line("a", "b", "c", **options))


class TestWhere:
    def test_before_a_node_the_step_has_not_begun(self):
        """graph 29."""
        driver = abc(interrupt_before=["b"])
        assert at(driver.invoke({})) == before("b")
        assert driver.log == ["a"]
        assert (driver.status, [t.node for t in driver.machine.state.step.tasks]) == (
            "waiting",
            ["b"],
        )

    def test_after_a_node_its_step_is_committed(self):
        """graph 72; langgraph 86."""
        driver = abc(interrupt_after=["b"])
        outcome = driver.invoke({})
        assert at(outcome) == after("b")
        assert outcome.state["log"] == ["a", "b"]
        assert driver.go_on().state["log"] == ["a", "b", "c"]

    def test_before_the_first_node_of_all(self):
        driver = abc(interrupt_before=["a"])
        assert at(driver.invoke({"x": 1})) == before("a")
        assert driver.log == []
        assert driver.go_on().state == {"x": 1, "log": ["a", "b", "c"], "n": 0}

    def test_before_the_first_node_behind_a_router(self):
        driver = Driver(
            graph(
                "a>$", a=None, routers=[("^", lambda _s: "a")], options={"interrupt_before": ["a"]}
            )
        )
        assert at(driver.invoke({})) == before("a")
        assert type(driver.go_on()) is Completed

    def test_after_the_last_node_nothing_is_left_to_stop(self):
        driver = abc(interrupt_after=["c"])
        assert type(driver.invoke({})) is Completed

    def test_after_one_and_before_the_next_is_one_stop(self):
        driver = abc(interrupt_after=["a"], interrupt_before=["b"])
        assert at(driver.invoke({})) == (*after("a"), *before("b"))
        assert type(driver.go_on()) is Completed

    def test_everywhere(self):
        driver = abc(interrupt_before="*", interrupt_after="*")
        stops = [at(driver.invoke({})), at(driver.go_on()), at(driver.go_on())]
        assert stops == [before("a"), (*after("a"), *before("b")), (*after("b"), *before("c"))]
        assert type(driver.go_on()) is Completed

    def test_one_node_of_a_step_stops_the_whole_step(self):
        driver = Driver(fan(a=None, b=None, c=None, options={"interrupt_before": ["b"]}))
        assert at(driver.invoke({})) == before("b")
        assert driver.log == []

    def test_sends_stop_together(self):
        def sends(_state):
            return [Send("w", {"x": i}) for i in range(3)]

        driver = Driver(
            graph(
                "^>fan", fan=sends, w=lambda s: {"n": s["x"]}, options={"interrupt_before": ["w"]}
            )
        )
        assert at(driver.invoke({})) == before("w")
        assert driver.go_on().state["n"] == 3

    def test_a_join_keeps_who_arrived(self):
        """langgraph 33."""
        driver = Driver(
            graph(
                "^>a ^>b1 b1>b2",
                a=None,
                b1=None,
                b2=None,
                c=None,
                joins=[("a b2", "c")],
                options={"interrupt_after": ["a"]},
            )
        )
        assert at(driver.invoke({})) == after("a")
        driver.crash()
        assert driver.go_on().state["log"] == ["a", "b1", "b2", "c"]

    def test_a_loop_stops_in_each_round(self):
        driver = Driver(
            graph(
                "^>a",
                a=lambda s: {"n": 1},
                routers=[("a", lambda s: "a" if s["n"] < 3 else "__end__")],
                options={"interrupt_after": ["a"]},
            )
        )
        assert [at(driver.invoke({})), at(driver.go_on())] == [after("a")] * 2
        assert driver.go_on().state["n"] == 3

    def test_the_limit_of_steps_counts_anew_behind_one(self):
        driver = abc(interrupt_before=["c"], recursion_limit=2)
        assert at(driver.invoke({})) == before("c")
        assert type(driver.go_on()) is Completed


class TestPassing:
    def test_an_input_is_kept_and_passes_nothing(self):
        driver = abc(interrupt_before=["b"])
        driver.invoke({})
        outcome = driver.invoke({"x": 7})
        assert at(outcome) == before("b")
        assert outcome.state["x"] == 7
        assert driver.go_on().state["x"] == 7

    def test_the_same_call_again_passes_nothing(self):
        driver = abc(interrupt_before=["b"])
        driver.invoke({"x": 1}, run_id="R")
        assert at(driver.invoke({"x": 1}, run_id="R")) == before("b")
        driver.crash()
        assert at(driver.invoke({"x": 1})) == before("b")
        assert driver.log == ["a"]

    def test_a_goto_passes_it(self):
        """graph 28; next tasks are unique by node."""
        driver = Driver(line("a", "b", interrupt_before=["a"]))
        driver.invoke({})
        assert driver.invoke(Command(goto="b")).state["log"] == ["a", "b"]

    @pytest.mark.parametrize("answer", ["yes", None])
    def test_an_answer_passes_it_and_is_dropped(self, answer):
        """graph 29."""
        driver = abc(interrupt_before=["b"])
        driver.invoke({})
        assert driver.resume(answer).state["log"] == ["a", "b", "c"]

    def test_an_answer_to_a_question_by_id_does_not(self):
        driver = abc(interrupt_before=["b"])
        driver.invoke({})
        with pytest.raises(NothingToResume):
            driver.resume(answers={"int_1": "yes"})
        assert driver.status == "waiting"

    def test_a_failure_behind_it_does_not_bring_it_back(self):
        driver = Driver(
            graph("^>a a>b", a=None, b=fails_once("b"), options={"interrupt_before": ["b"]})
        )
        driver.invoke({})
        with pytest.raises(RunFailed):
            driver.go_on()
        assert driver.go_on().state["log"] == ["a", "b"]

    def test_a_new_run_stops_again(self):
        driver = abc(interrupt_before=["b"])
        driver.invoke({})
        driver.go_on()
        assert at(driver.invoke({})) == before("b")

    def test_restarting_at_one_begins_anew(self):
        driver = abc(interrupt_before=["b"])
        driver.invoke({})
        assert at(driver.invoke({"x": 1}, on_unfinished="restart")) == before("b")
        assert driver.log == ["a", "a"]

    def test_a_cancel_leaves_it(self):
        driver = abc(interrupt_before=["b"])
        driver.invoke({})
        assert at(driver.call(CallKind.CANCEL)) == before("b")

    def test_what_waits_behind_the_run_has_its_turn_at_the_breakpoint(self):
        driver = abc(interrupt_before=["b"])
        first = driver.send_invoke({})
        second = driver.send_invoke({"x": 1})
        driver.run()
        assert at(driver.answer(first)) == at(driver.answer(second)) == before("b")
        assert driver.go_on().state["x"] == 1

    def test_a_drain_at_one_is_a_stop_there(self):
        driver = abc(interrupt_before=["b"])
        call = driver.send_invoke({})
        driver.run(until=lambda: driver.log == ["a"])
        driver.machine.drain()
        driver.run()
        assert at(driver.answer(call)) == before("b")


class TestQuestions:
    def test_a_question_behind_one_is_not_passed(self):
        driver = Driver(graph("^>ask ask>b", ask=asks(), b=None, options={"interrupt_before": "*"}))
        driver.invoke({})
        asked = driver.go_on()
        assert (asked.interrupt.value, asked.breakpoints) == ("ok?", ())
        assert driver.go_on().interrupts == asked.interrupts
        assert at(driver.resume("yes")) == before("b")
        with pytest.raises(AlreadyAnswered):
            driver.resume(answers={asked.interrupt.id: "no"})
        assert driver.go_on().state["log"] == ["ask:yes", "b"]

    def test_an_open_question_stops_its_step_before_the_breakpoint_after_it(self):
        driver = Driver(
            graph(
                "^>ask ^>a ask>b a>b",
                ask=asks(),
                a=None,
                b=None,
                options={"interrupt_after": ["a"]},
            )
        )
        assert driver.invoke({}).interrupts[0].node == "ask"
        assert at(driver.resume("yes")) == after("a")
        assert driver.go_on().state["log"] == ["ask:yes", "a", "b"]


class TestOfACall:
    def options(self, **given):
        return {"options": RunOptions(**given)}

    def test_it_takes_the_place_of_the_graphs_own(self):
        driver = abc(interrupt_before=["b"])
        assert at(driver.invoke({}, **self.options(interrupt_before=("c",)))) == before("c")
        assert type(driver.go_on()) is Completed

    def test_none_at_all(self):
        driver = abc(interrupt_before=["b"])
        assert type(driver.invoke({}, **self.options(interrupt_before=()))) is Completed

    def test_it_holds_over_a_crash(self):
        driver = abc()
        driver.send_invoke({}, **self.options(interrupt_after=("b",)))
        driver.run(until=lambda: driver.log == ["a"])
        driver.crash()
        driver.run()
        assert driver.status == "waiting"
        assert at(driver.invoke({})) == after("b")

    def test_the_next_call_has_its_own(self):
        driver = abc()
        driver.invoke({}, **self.options(interrupt_before=("*",)))
        assert at(driver.go_on(**self.options(interrupt_before=("c",)))) == before("c")
        assert type(driver.go_on()) is Completed


def stops():
    return graph(
        "^>a a>ask ask>b b>$",
        a=None,
        ask=asks(),
        b=wrote("b"),
        options={"interrupt_before": ["ask"], "interrupt_after": ["ask"]},
    )


def test_a_death_at_any_commit_neither_skips_nor_repeats_one():
    clean = Driver(stops())
    clean.checks = True
    clean.invoke({})
    clean.go_on()
    clean.resume("yes")
    clean.go_on()
    assert [bool(e.before or e.after) for e in clean.entries(Paused)] == [True, False, True, False]
    for number in range(len(clean.commits)):
        for written in (False, True):
            driver = Driver(stops(), crash_at=number, written=written)
            where = f"crash {'after' if written else 'before'} commit {number}"
            assert list(stands(driver)) == STANDS, where
            assert driver.machine.state.values["log"] == ["a", "ask:yes", "b"], where


STANDS = [(before("ask"), []), ((), ["ok?"]), (after("ask"), []), "complete"]


def stands(driver):
    """Where the run stands after each call; a call that a death swallowed is made again."""
    calls = [lambda: driver.invoke({}), driver.go_on, lambda: driver.resume("yes"), driver.go_on]
    last = None
    for call in calls:
        while (stand := stand_after(driver, call)) == last:
            pass
        yield stand
        last = stand


def stand_after(driver, call):
    try:
        call()
    except Crashed:
        driver.crash()
        driver.run()
    if driver.status in (None, "complete"):
        return driver.status
    step = driver.machine.state.step
    return breakpoints_of(step), [q.value for q in driver.machine.open_interrupts()]


def test_a_graph_without_breakpoints_records_none():
    driver = abc()
    driver.invoke({})
    assert driver.entries(Paused) == []


def test_a_goto_leads_before_one():
    driver = Driver(
        graph("^>a", a=lambda _s: goto("b"), b=None, options={"interrupt_before": ["b"]})
    )
    assert at(driver.invoke({})) == before("b")


def test_a_killed_step_behind_one_is_not_stopped_again():
    left = [HANGS]
    driver = Driver(
        graph(
            "^>a a>b",
            a=None,
            b=lambda _s: left.pop() if left else {"log": ["b"]},
            options={"interrupt_before": ["b"]},
        )
    )
    driver.invoke({})
    driver.send(CallKind.CONTINUE)
    driver.run(until=lambda: driver.runs("b"))
    driver.crash()
    driver.run()
    assert driver.status == "complete"
