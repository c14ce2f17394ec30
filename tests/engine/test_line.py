"""The short way along a line of nodes: what it commits is what the way of all other steps commits."""

from __future__ import annotations

import random

import pytest

from beamweaver.checkpoint.records import RunOptions
from beamweaver.engine._line import Line
from beamweaver.errors import NodeFailed, RecursionLimit
from beamweaver.graph import Graph
from beamweaver.limits import Limits
from beamweaver.types import END, START, Command, Completed, Interrupted, Overwrite, Send
from tests.engine.driver import Driver
from tests.engine.graphs import State, line

KINDS = ("x", "x", "x", "both", "none", "log", "overwrite", "goto", "sends", "flaky", "asks")


def body(kind, index):
    fresh = [True]

    def node(state, ctx):
        match kind:
            case "x":
                return {"x": (state.get("x") or 0) + index}
            case "both":
                return [{"x": index}, {"y": state.get("x")}]
            case "log":
                return {"log": [index], "y": index}
            case "overwrite":
                return {"x": Overwrite(index)}
            case "goto":
                return Command(update={"y": index}, goto=f"n{index + 1}")
            case "sends":
                return Command(update={"y": index}, goto=[Send("side", {"x": i}) for i in range(2)])
            case "flaky" if fresh[0]:
                fresh[0] = False
                raise ConnectionError
            case "asks":
                return {"x": ctx.interrupt("what?")}
        return None

    return node


def drawn(rng):
    """A line of nodes of all kinds, here and there with a second way or a join."""
    count = rng.randrange(4, 10)
    graph = Graph(State, name="drawn")
    names = [f"n{index}" for index in range(count)]
    for index, name in enumerate(names):
        kind = rng.choice(KINDS if index + 1 < count else KINDS[:6])
        graph.add_node(name, body(kind, index), retries=rng.choice([0, 2]), destinations=["side"])
    graph.add_node("side", lambda _state: {"log": ["side"]})
    graph.add_edge(START, "n0")
    for before, after in zip(names, [*names[1:], END], strict=True):
        graph.add_edge(before, after)
    if rng.random() < 0.3:
        graph.add_edge(names[1], "side")
    if rng.random() < 0.3:
        graph.add_edge([names[1], names[2]], "side")
    return graph.compile()


def history(seed):
    """All commits of a drawn line, whose caller answers and goes on until it is complete."""
    rng = random.Random(seed)
    limits = Limits(full_versions_every=rng.choice([2, 64]))
    driver = Driver(drawn(rng), limits=limits, publishing=rng.random() < 0.5)
    driver.options = rng.choice(
        [
            None,
            RunOptions(durability="async"),
            RunOptions(durability="exit"),
            RunOptions(metadata={"a": b"1"}),
        ]
    )
    outcome = None
    for turn in range(30):
        try:
            if turn == 0:
                outcome = driver.invoke({"x": 1}, recursion_limit=rng.choice([0, 0, 3]))
            elif type(outcome) is Interrupted:
                outcome = driver.resume(seed)
            else:
                outcome = driver.go_on()
        except (NodeFailed, RecursionLimit):
            outcome = None
        if type(outcome) is Completed:
            return driver.commits, driver.events, outcome.state
    raise AssertionError(f"seed {seed}: the run never ends")


def judge(seed, monkeypatch):
    short = history(seed)
    with monkeypatch.context() as patch:
        patch.setattr(Line, "_go_along", lambda _self: False)
        assert history(seed) == short, f"seed {seed}"


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_make_the_same_commits(seed, monkeypatch):
    judge(seed, monkeypatch)


@pytest.mark.slow
def test_both_ways_make_the_same_commits_for_many_seeds(monkeypatch):
    for seed in range(1_000, 1_300):
        judge(seed, monkeypatch)


def test_a_plain_line_takes_the_short_way(monkeypatch):
    taken = []
    went = Line._go_along
    monkeypatch.setattr(Line, "_go_along", lambda self: taken.append(went(self)) or taken[-1])
    graph = Graph(State, name="plain")
    graph.add_sequence([(name, lambda _state: {"x": 1}) for name in "abcd"])
    graph.add_edge(START, "a").add_edge("d", END)
    Driver(graph.compile()).invoke({"x": 0})
    assert taken == [True, True, True, False]


def test_what_a_reducer_makes_takes_the_long_way(monkeypatch):
    taken = []
    went = Line._go_along
    monkeypatch.setattr(Line, "_go_along", lambda self: taken.append(went(self)) or taken[-1])
    Driver(line("a", "b", "c")).invoke({"x": 0})
    assert not any(taken)
