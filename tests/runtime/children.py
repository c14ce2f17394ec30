"""What child processes of these tests do. Real processes: they are killed for real."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from typing import Any

from beamweaver import START, Graph, Invoke, Resume, Runtime, interrupt
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.errors import StoreOwned
from beamweaver.events import TaskAcknowledged, TaskStarted
from beamweaver.limits import Limits
from tests.runtime.kit import Log, line, nested, six, wrote

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.runtime.children"])
PATIENCE = 15.0
NARROW = Limits(ahead_commits=2)
"""Limits under which a run with `durability="async"` often finds its window full."""


@contextlib.contextmanager
def child(target, *args):
    """A child process with a pipe to it; it is dead when the block ends."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_quiet, args=(target, theirs, *args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join(PATIENCE)
        ours.close()


def _quiet(target, *args):
    logging.disable(logging.CRITICAL)
    target(*args)


def killed(target, *args) -> list[Any]:
    """Run a child that is killed by itself; what it sent before."""
    with child(target, *args) as (process, pipe):
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL, f"exit code {process.exitcode}"
        return received(pipe)


def answer(target, *args) -> Any:
    """Run a child to its end; the one thing that it sent."""
    with child(target, *args) as (process, pipe):
        assert pipe.poll(PATIENCE), "the child sent nothing"
        found = pipe.recv()
        process.join(PATIENCE)
        assert process.exitcode == 0, f"exit code {process.exitcode}"
        return found


def received(pipe) -> list[Any]:
    """Everything that a dead child sent."""
    found = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            found.append(pipe.recv())
    return found


def die(*_ignored: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def store_at(path, survives="process-kill"):
    return LMDBCheckpointer(path, survives=survives)


# Ownership ----------------------------------------------------------------------------------------


def own(pipe, path):
    """Own a store until the pipe ends."""
    with Runtime(store_at(path)):
        pipe.send(os.getpid())
        with contextlib.suppress(EOFError):
            pipe.recv()


def try_to_own(pipe, path):
    """Try to own a store; tell what came of it."""
    try:
        with Runtime(store_at(path)):
            pipe.send("owner")
    except StoreOwned as error:
        pipe.send(error)


# Messages -----------------------------------------------------------------------------------------


def tell_and_die(_pipe, path, thread_id, n):
    """Tell a thread, and die as soon as `tell` returns."""
    app = line("g", a=_wait_for_ever, b=wrote("b")).compile()
    runtime = Runtime(store_at(path), graphs=[app]).start()
    runtime.thread(thread_id).tell(Invoke({"n": n}, run_id=f"run-{n}"))
    die()


def options_and_die(_pipe, path, run_timeout=120.0):
    """Tell a thread a run with options of its own, and die."""
    app = line("g", a=_wait_for_ever, b=wrote("b")).compile()
    runtime = Runtime(store_at(path), graphs=[app]).start()
    options = {"run_timeout": run_timeout, "max_concurrency": 1, "tags": ["nightly"]}
    runtime.thread("t").tell(Invoke({"n": 1}, metadata={"user": "ann"}, **options))
    die()


def guarded_app(guard):
    """`a` goes round twice by its guarded edge."""
    graph = Graph(Log, name="g").add_node("a", wrote("a")).add_edge(START, "a")
    return graph.add_edge("a", "a", when=guard, max_runs=2)


def guarded_and_die(_pipe, path):
    """Die while the second answer of a guard is made."""

    def guard(state):
        return len(state["log"]) < 2 or die()

    guarded_app(guard).compile(checkpointer=store_at(path)).invoke({}, thread_id="t")


def tell_behind_and_die(pipe, path, how_many):
    """Tell messages to a thread that runs, and die."""
    app = line("g", a=_wait_for_ever, b=wrote("b")).compile()
    runtime = Runtime(store_at(path), graphs=[app]).start()
    thread = runtime.thread("t")
    thread.tell(Invoke({"n": 0}))
    for n in range(1, how_many + 1):
        pipe.send(thread.tell(Invoke({"n": n})))
    die()


def ask_and_die(_pipe, path, thread_id):
    """Have a thread ask its question, and die."""
    runtime = Runtime(store_at(path), graphs=[reviewed()]).start()
    runtime.thread(thread_id).ask(Invoke({"n": 1}), timeout=PATIENCE)
    die()


def answer_and_die(_pipe, path, thread_id):
    """Tell a waiting thread its answer, and die."""
    runtime = Runtime(store_at(path), graphs=[reviewed()]).start()
    runtime.thread(thread_id).tell(Resume("yes"))
    die()


def reviewed() -> Any:
    return line("review", a=lambda _s: {"log": [interrupt("?")]}, b=wrote("b")).compile()


def _wait_for_ever(_state):
    threading.Event().wait()


# Recovery -----------------------------------------------------------------------------------------


def leave(pipe, path, threads, inputs=None):
    """Begin threads whose first node ends and whose second hangs; die when all are there."""
    came = threading.Semaphore(0)

    def hang(_state):
        came.release()
        threading.Event().wait()

    app = line("g", a=wrote("a"), b=hang).compile()
    runtime = Runtime(store_at(path), graphs=[app]).start()
    for thread_id in threads:
        runtime.thread(thread_id).tell(Invoke(inputs or {"n": 1}))
    for _ in threads:
        assert came.acquire(timeout=PATIENCE)
    pipe.send("all hang")
    die()


def complete_and_die(_pipe, path, run_id):
    """Complete a run, and die before anyone reads its outcome."""
    app = line("g", a=wrote("a"), b=wrote("b")).compile(checkpointer=store_at(path))
    app.invoke({"n": 1}, thread_id="t", run_id=run_id)
    die()


def poisoned(kill: Any = die) -> Any:
    """A graph whose second node kills its process."""
    return line("poison", a=wrote("a"), p=kill).compile()


def healthy(node: Any) -> Any:
    """A graph whose second node is this one."""
    return line("healthy", a=wrote("a"), b=node).compile()


def run_poisoned(pipe, path, fresh, expected):
    """Take up what is there, begin `fresh` threads, and die when `expected` healthy ones hang."""
    came = threading.Semaphore(0)
    graphs = [poisoned(_die_when(came, expected)), healthy(_hang(came))]
    runtime = Runtime(store_at(path), graphs=graphs).start()
    for name in fresh:
        runtime.thread(name, graphs[name[0] != "p"]).tell(Invoke({"n": 1}))
    pipe.send("up")
    threading.Event().wait(PATIENCE)
    os._exit(3)


def finish_healthy(pipe, path):
    """Take up what is there: healthy threads end at once, poisoned ones kill the process."""
    with Runtime(store_at(path), graphs=[poisoned(), healthy(wrote("b"))]) as runtime:
        runtime.subscribe(lambda event: pipe.send((type(event).__name__, event.thread_id)))
        threading.Event().wait(PATIENCE)
    os._exit(3)


def _die_when(came, expected):
    def node(_state):
        for _ in range(expected):
            assert came.acquire(timeout=PATIENCE)
        die()

    return node


def _hang(came):
    def node(_state):
        came.release()
        threading.Event().wait()

    return node


# Kill points --------------------------------------------------------------------------------------


class Killer:
    """Counts the fault points that are reached, and kills the process at the n-th."""

    def __init__(self, nth: int) -> None:
        self.nth = nth
        self.reached = 0
        self._lock = threading.Lock()

    def __call__(self, _point: str, _thread: str = "") -> None:
        with self._lock:
            self.reached += 1
            if self.reached == self.nth:
                die()


def run_nested_to_point(pipe, path, survives, nth, durability="sync"):
    """The same with graphs in graphs."""
    run_to_point(pipe, path, survives, nth, nested, durability)


def run_to_point(pipe, path, survives, nth, graph=six, durability="sync"):
    """Run or go on with the six-node graph, and be killed at the n-th fault point that is reached.

    Tells each task that starts and each whose acknowledgement came, then the state and the count.
    """
    send = threading.Lock()

    def listen(event):
        if isinstance(event, TaskStarted | TaskAcknowledged):
            with send:
                pipe.send((type(event).__name__, event.task_id))

    killer = Killer(nth)
    store = store_at(path, survives)
    app = graph().compile()
    with Runtime(store, graphs=[app], fault=killer, limits=NARROW) as runtime:
        store.faults = killer
        runtime.subscribe(listen)
        message = Invoke({"n": 1}, run_id="R", durability=durability)
        outcome = runtime.thread("t").ask(message, timeout=PATIENCE)
        store.faults = lambda _point: None
    with send:
        pipe.send(("state", outcome.state))
        pipe.send(("points", killer.reached))


# Sub-steps ------------------------------------------------------------------------------------------

STEPS = [f"{node}{n}" for node in "abc" for n in range(3)]


def stepping(tell: Any) -> Any:
    """Three nodes of three sub-steps each: a, then b and c at once, c an async one.

    Tells `("ran", step)` at the end of a sub-step's function, and `("kept", step)` when `ctx.step` returned.
    """

    def work(step):
        tell(("ran", step))
        return step

    def node(_state, ctx):
        found = []
        for n in range(3):
            found.append(ctx.step("work", work, f"{ctx.node}{n}"))
            tell(("kept", found[-1]))
        return {"log": found}

    async def node_async(_state, ctx):
        async def one(step):
            found = await ctx.step(step, work, step)
            tell(("kept", found))
            return found

        return {"log": list(await asyncio.gather(*(one(f"c{n}") for n in range(3))))}

    graph = Graph(Log, name="stepping").add_node("a", node).add_node("b", node)
    graph.add_node("c", node_async)
    return graph.add_edge(START, "a").add_edge("a", "b").add_edge("a", "c").compile()


def step_to_point(pipe, path, survives, nth, durability="sync"):
    """Run or go on with the graph of sub-steps, and be killed at the n-th fault point that is reached."""
    lock = threading.Lock()

    def tell(what):
        with lock:
            pipe.send(what)

    killer = Killer(nth)
    store = store_at(path, survives)
    with Runtime(store, graphs=[stepping(tell)], fault=killer) as runtime:
        store.faults = killer
        message = Invoke({"n": 1}, run_id="R", durability=durability)
        outcome = runtime.thread("t").ask(message, timeout=PATIENCE)
        store.faults = lambda _point: None
    tell(("state", outcome.state))


# Called graphs --------------------------------------------------------------------------------------

CALLED = ["a", "b0", "c", "b1", "c", "d0", "d1", "d0", "d1", "end"]


def caller_of(tell: Any) -> Any:
    """A node, one that calls a graph twice, one that calls two at once, and a node; `CALLED` is its log.

    Tells `("ran", step)` at the end of a sub-step's function, and `("kept", step)` when `ctx.step` returned.
    """

    def once(step):
        def node(state, ctx):
            at = f"{step}{state['n']}" if "n" in state else step
            where = "/".join([*ctx.namespace, at])

            def work():
                tell(("ran", where))
                return at

            found = ctx.step("work", work)
            tell(("kept", where))
            return {"log": [found]}

        return node

    child = line("child", b=once("b"), c=lambda _state: {"log": ["c"]}).compile()
    other = Graph(Log, name="other").add_node("d", once("d")).add_edge(START, "d")
    other = other.add_node("again", lambda state: {"n": state["n"] + 1}).add_edge("d", "again")
    other = other.add_edge("again", "d", max_runs=1).compile()

    def calls(_state, ctx):
        return {"log": [x for n in range(2) for x in ctx.call(child, {"n": n})["log"]]}

    async def gathers(_state, ctx):
        made = [ctx.call(other, {"n": 0}, key=str(n)) for n in range(2)]
        return {"log": [x for each in await asyncio.gather(*made) for x in each["log"]]}

    return line("caller", a=once("a"), calls=calls, gathers=gathers, end=once("end")).compile()


def call_to_point(pipe, path, survives, nth):
    """Run or go on with the graph that calls graphs, and be killed at the n-th fault point reached."""
    lock = threading.Lock()

    def tell(what):
        with lock:
            pipe.send(what)

    killer = Killer(nth)
    store = store_at(path, survives)
    with Runtime(store, graphs=[caller_of(tell)], fault=killer) as runtime:
        store.faults = killer
        outcome = runtime.thread("t").ask(Invoke({}, run_id="R"), timeout=PATIENCE)
        store.faults = lambda _point: None
    tell(("state", outcome.state))


# Sleeps -------------------------------------------------------------------------------------------


def napping(tell: Any) -> Any:
    """A node that works, sleeps a little longer than in place, and works again."""

    def work(what):
        tell(("ran", what))

    def node(_state, ctx):
        for n in range(2):
            ctx.step("work", work, n)
            tell(("kept", n))
            ctx.sleep(1.001)
        return {"log": ["awake"]}

    return line("napping", a=node).compile()


def nap_to_point(pipe, path, nth):
    """Run or go on with the napping graph, and be killed at the n-th fault point that is reached."""
    killer = Killer(nth)
    store = store_at(path)
    with Runtime(store, graphs=[napping(pipe.send)], fault=killer) as runtime:
        store.faults = killer
        runtime.thread("t").ask(Invoke({"n": 1}, run_id="R"), timeout=PATIENCE)
        store.faults = lambda _point: None


# Idempotency keys -----------------------------------------------------------------------------------


def kill_at(point, nth=1):
    """A fault that kills the process at the nth time that a point is reached."""
    seen = [0]

    def reached(name, _thread):
        seen[0] += name == point
        if seen[0] == nth and name == point:
            die()

    return reached


def tell_keyed_and_die(pipe, path, point, n):
    """Tell a message with a key, and die at a point, or when `tell` returned."""
    app = line("g", a=wrote("a")).compile()
    runtime = Runtime(store_at(path), graphs=[app], fault=kill_at(point)).start()
    pipe.send(runtime.thread("t").tell(Invoke({"n": n}), idempotency_key="k"))
    die()
