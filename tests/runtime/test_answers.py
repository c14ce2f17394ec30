"""Questions and answers over several nodes, Sends and rounds, from outside."""

from __future__ import annotations

import pytest

from beamweaver import START, Completed, Graph, Interrupted, RetryPolicy, Send, interrupt
from beamweaver.errors import AmbiguousResume
from tests.runtime.kit import Counted, Log, line, star, wrote


def test_a_question_is_not_tried_again_and_shown_with_its_task(store):
    """langgraph 69."""
    node = Counted(lambda _s: {"log": [interrupt({"amount": 7})]})
    graph = line("g", ask=(node, {"retry": RetryPolicy(max_attempts=5, retry_on="any")}))
    with graph.compile(checkpointer=store) as app:
        outcome = app.invoke({"n": 1}, thread_id="t")
        (task,) = app.get_state("t").tasks
        assert (task.node, task.state, task.interrupts) == ("ask", "waiting", outcome.interrupts)
        assert outcome.interrupt.value == {"amount": 7}
        assert node.runs == 1
        assert app.resume("yes", thread_id="t").state["log"] == ["yes"]
        assert node.runs == 2


@pytest.mark.parametrize("asking", [0, 2])
def test_sends_that_finished_beside_a_question_never_run_again(store, asking):
    """langgraph 43; langgraph 71."""
    runs = []

    def worker(state):
        runs.append(state["item"])
        answer = interrupt("?") if state["item"] == asking else "-"
        return {"log": [f"{state['item']}{answer}"]}

    graph = Graph(Log, name="g").add_node("worker", worker)
    graph.add_node("fan", lambda _s: [Send("worker", {"item": i}) for i in range(3)])
    graph.add_edge(START, "fan").add_node("after", wrote("after")).add_edge("worker", "after")
    with graph.compile(checkpointer=store) as app:
        outcome = app.invoke({"n": 1}, thread_id="t")
        assert type(outcome) is Interrupted
        assert [t.state for t in app.get_state("t").tasks].count("finished") == 2
        final = app.resume("!", thread_id="t").state["log"]
        assert final == [f"{i}{'!' if i == asking else '-'}" for i in range(3)] + ["after"]
        assert sorted(runs) == sorted([0, 1, 2, asking])


def test_one_map_answers_five_and_the_results_are_in_the_order_of_the_tasks(store):
    """langgraph 77; langgraph 78; graph 21."""
    graph = Graph(Log, name="g")
    graph.add_node("worker", lambda s: {"log": [f"{s['item']}={interrupt(s['item'])}"]})
    graph.add_conditional_edges(START, lambda _s: [Send("worker", {"item": i}) for i in range(5)])
    with graph.compile(checkpointer=store) as app:
        questions = app.invoke({"n": 1}, thread_id="t").interrupts
        assert [q.value for q in questions] == list(range(5))
        with pytest.raises(AmbiguousResume):
            app.resume("x", thread_id="t")
        answers = {q.id: q.value * 10 for q in reversed(questions)}
        outcome = app.resume(answers, thread_id="t")
        assert outcome.state["log"] == ["0=0", "1=10", "2=20", "3=30", "4=40"]


def test_what_came_between_two_questions_is_in_the_state(place):
    """langgraph 75."""
    graph = line(
        "g",
        first=lambda _s: {"log": [interrupt("first?")]},
        between=wrote("between"),
        second=lambda s: {"log": [f"{interrupt('second?')} after {len(s['log'])}"]},
    )
    with graph.compile(checkpointer=place.open()) as app:
        app.invoke({"n": 1}, thread_id="t")
        assert app.resume("1", thread_id="t").state["log"] == ["1", "between"]
    with graph.compile(checkpointer=place.open()) as app:
        assert app.resume("2", thread_id="t").state["log"] == ["1", "between", "2 after 2"]


def test_nodes_before_a_question_run_once_over_rounds_of_it(store):
    """langgraph 81."""
    before = Counted(lambda _s: {"log": ["before"]})
    node = Counted(lambda _s: {"log": [interrupt("1"), interrupt("2"), interrupt("3")]})
    with line("g", before=before, ask=node).compile(checkpointer=store) as app:
        asked = [app.invoke({"n": 1}, thread_id="t").interrupt.value]
        asked += [app.resume(a, thread_id="t").interrupt.value for a in "ab"]
        assert asked == ["1", "2", "3"]
        outcome = app.resume("c", thread_id="t")
        assert type(outcome) is Completed
        assert outcome.state["log"] == ["before", "a", "b", "c"]
    assert (before.runs, node.runs) == (1, 4)


def test_a_finished_sibling_never_runs_again_over_two_answers(store):
    """langgraph 59."""
    fine = Counted(lambda _s: {"log": ["fine"]})
    ask = Counted(lambda _s: {"log": [interrupt("1"), interrupt("2")]})
    with star("g", ask=ask, fine=fine).compile(checkpointer=store) as app:
        app.invoke({"n": 1}, thread_id="t")
        app.resume("a", thread_id="t")
        assert app.resume("b", thread_id="t").state["log"] == ["a", "b", "fine"]
    assert (fine.runs, ask.runs) == (1, 3)
