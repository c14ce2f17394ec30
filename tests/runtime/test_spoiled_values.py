"""What a body without a result changed in place is found by nobody: neither in outcomes nor in the store."""

from __future__ import annotations

import random

import pytest

from beamweaver import Invoke, interrupt
from beamweaver.errors import StoreFull
from beamweaver.limits import Limits
from tests.runtime.kit import line, simulated, star, wrote

MODES = ["sync", "async", "exit"]
EACH = pytest.mark.parametrize("mode", MODES)


def spoils(how=None, *, times=1):
    """A node that changes its state in place and ends so the first times; then it says what it saw."""
    left = [times]

    def node(state):
        if left[0]:
            left[0] -= 1
            state["log"].append("spoiled")
            (how or fail)()
        return {"note": ",".join(state["log"])}

    return node


def fail():
    raise ConnectionError("boom")


def retried():
    return spoils(), {"retries": 1}


def steps(name, how_many=4):
    """A node with sub-steps: commits that somebody waits for, while others run."""

    def node(_state, ctx):
        for number in range(how_many):
            ctx.step("s", lambda: number)
        return {"log": [name]}

    return node


def calls(inner, given=None):
    """A node that calls a graph, with what it sees or with that."""
    inner = inner.compile()

    def node(state, ctx):
        return {"log": ctx.call(inner, {"log": given or state["log"]})["log"]}

    return node


def plain():
    return line("g", a=wrote("a"), b=retried(), c=wrote("c"))


def beside():
    """The retry is due while results of others are on their way."""
    return star("g", b=(spoils(), {"retries": 1}), **{f"s{i}": steps(f"s{i}") for i in range(4)})


def first_inside():
    """The graph inside has no record yet."""
    return line("g", z=wrote("z"), child=line("child", b=retried(), c=wrote("c")).compile())


def later_inside():
    child = line("child", a=wrote("a"), a2=wrote("a2"), b=retried(), c=wrote("c"))
    return line("g", z=wrote("z"), child=child.compile(), y=wrote("y"))


def unwritten_inside():
    """No step of the graph inside has written what is spoiled."""
    child = line("child", a=lambda _s: {"item": 1}, b=retried(), c=wrote("c"))
    return line("g", z=wrote("z"), child=child.compile())


def beside_sub_steps():
    child = line("child", a=wrote("a"), a2=wrote("a2"), b=retried(), c=wrote("c"))
    return star("g", child=child.compile(), s1=steps("s1"), s2=steps("s2"))


def deep():
    inner = line("deep", b=retried(), c=wrote("c")).compile()
    return line("g", z=wrote("z"), mid=line("mid", y=wrote("y"), deep=inner).compile())


def first_called():
    inner = line("inner", b=retried(), c=wrote("c"))
    return line("g", z=wrote("z"), calls=calls(inner, ["in"]), y=wrote("y"))


def later_called():
    inner = line("inner", a=wrote("a"), a2=wrote("a2"), b=retried(), c=wrote("c"))
    return star("g", calls=calls(inner), s1=steps("s1"), s2=steps("s2"))


SHAPES = [
    plain, beside, first_inside, later_inside, unwritten_inside, beside_sub_steps, deep,
    first_called, later_called,
]  # fmt: skip


def run(app, store, seed, mode, **limits):
    """The state of a run's outcome, which is what the store has after it."""
    with simulated(store, seed, graphs=[app], limits=Limits(**limits)) as runtime:
        outcome = runtime.thread(mode).ask(Invoke({"log": ["0"]}, durability=mode))
        assert runtime.get_state(mode).values == outcome.state, f"seed {seed}"
    return outcome.state


@EACH
@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_a_retry_finds_what_the_attempt_before_found(memory, make, mode):
    for seed in range(6):
        state = run(make().compile(), type(memory)(), seed, mode)
        assert "spoiled" not in str(state), f"seed {seed}"


# Graphs that a seed draws ---------------------------------------------------------------------------


def drawn(rng, name, depth, *, spoil):
    """A graph of lines, stars, sub-steps, graphs in nodes and graphs that are called, with nodes that fail.

    What runs at once shares its state, so beside a node that spoils it nobody looks at it.
    """
    nodes, shape = {}, rng.choice([line, star])
    for number in range(rng.randint(1, 3)):
        kinds = ["wrote", "steps"]
        if shape is line or number == 0:
            kinds += ["spoils", *["inside", "called"] * (depth > 0)]
        kind = rng.choice(kinds)
        node = f"{name}{number}"
        if kind == "wrote":
            nodes[node] = wrote(node)
        elif kind == "spoils":
            nodes[node] = says(node, times=rng.randint(1, 2) * spoil)
        elif kind == "steps":
            nodes[node] = steps(node, rng.randint(1, 3))
        else:
            inner = drawn(rng, f"{node}_", depth - 1, spoil=spoil)
            nodes[node] = inner.compile() if kind == "inside" else calls(inner)
    return shape(name, **nodes)


def says(name, times):
    """The same as `spoils`, and what it saw goes on to all that follows."""
    node = spoils(times=times)
    return lambda state: {"log": [f"{name}({node(state)['note']})"]}, {"retries": 2}


@EACH
@pytest.mark.parametrize(
    ("seed", "order"),
    [*zip(range(40), range(40), strict=True), (288, 2016), (421, 2947)],  # the last two failed once
)
def test_a_drawn_run_ends_as_one_in_which_nothing_fails(memory, seed, order, mode):
    clean = drawn(random.Random(seed), "g", 2, spoil=False).compile()
    failing = drawn(random.Random(seed), "g", 2, spoil=True).compile()
    wanted = run(clean, type(memory)(), seed, "sync")
    assert run(failing, memory, order, mode, ahead_commits=seed % 3 + 1) == wanted, f"seed {seed}"


# Runs that stop -------------------------------------------------------------------------------------


@EACH
def test_a_failed_run_shows_what_it_found_and_goes_on_with_it(store, mode):
    graph = line("g", a=wrote("a"), b=wrote("b"), bad=spoils())
    with graph.compile(checkpointer=store) as app:
        failed = app.invoke({}, thread_id="t", durability=mode, raises=False)
        assert failed.state == {"log": ["a", "b"]}
        outcome = app.invoke(None, thread_id="t", durability=mode)
        assert outcome.state == {"log": ["a", "b"], "note": "a,b"} == app.get_state("t").values


@EACH
def test_so_does_one_that_asks(store, mode):
    asks = spoils(lambda: interrupt("?"), times=1)
    with line("g", a=wrote("a"), asks=asks).compile(checkpointer=store) as app:
        assert app.invoke({}, thread_id="t", durability=mode).state == {"log": ["a"]}
        assert app.resume("yes", thread_id="t").state == {"log": ["a"], "note": "a"}


def hang():
    while True:
        pass


def hangs_inside():
    return line("g", a=wrote("a"), child=line("child", b=spoils(hang)).compile())


def hangs():
    return line("g", a=wrote("a"), b=spoils(hang))


@EACH
@pytest.mark.parametrize("limit", ["step_timeout", "run_timeout"])
@pytest.mark.parametrize("make", [hangs, hangs_inside])
def test_so_does_one_that_is_out_of_time(store, make, limit, mode):
    """It stops at the moment in which its bodies are killed."""
    with make().compile(checkpointer=store, **{limit: 0.05}) as app:
        failed = app.invoke({}, thread_id="t", durability=mode, raises=False)
        assert failed.state == {"log": ["a"]}
        outcome = app.invoke(None, thread_id="t", durability=mode)
        assert outcome.state == {"log": ["a"], "note": "a"} == app.get_state("t").values


# While the store has to have it all first -----------------------------------------------------------


@EACH
def test_a_timeout_inside_of_a_graph_counts_while_the_store_is_full(memory, mode):
    full, ended, system = [], set(), []

    def faults(point):
        if full and point == "put.before":
            raise StoreFull("the disk is full")

    def hung(name):
        def node(_state):
            try:
                system[0].future().get()
            except BaseException:
                ended.add(name)
                raise

        return node

    def fills(_state):
        full.append(True)
        return {"log": ["fills"]}

    child = line("child", a=wrote("a"))
    for name, node, limit in (
        ("one", fills, None),
        ("two", hung("two"), 2),
        ("ten", hung("ten"), 5),
    ):
        child.add_node(name, node, timeout=limit).add_edge("a", name)
    app = line("g", child=child.compile()).compile()
    memory.faults = faults
    with simulated(memory, 1, graphs=[app]) as runtime:
        system.append(runtime._core.system)
        call = runtime._core.submit(app, "t", Invoke({}, durability=mode), waits=True)
        runtime._core.system.scheduler.run_for(10.0)
        assert (call.done.done(), ended) == (False, {"two", "ten"})
        full.clear()
        assert "'two'" in str(call.done.get().error)
