"""A graph with every kind of key, and a child process that is killed while it runs it."""

from __future__ import annotations

import dataclasses
import threading
from typing import Annotated, Any, TypedDict

from beamweaver import START, Graph, Invoke, Runtime, Send
from beamweaver.graph import Ephemeral, RemainingSteps, Topic, Untracked, append
from tests.runtime.children import PATIENCE, Killer, store_at


@dataclasses.dataclass
class Job:
    """The state: what is logged depends on every kind, but for what is lost with a process."""

    url: str
    log: Annotated[list[str], append] = dataclasses.field(default_factory=list)
    found: Annotated[list[str], Topic] = dataclasses.field(default_factory=list)
    hint: Annotated[str, Ephemeral] = "none"
    client: Annotated[Any, Untracked] = None
    left: Annotated[int, RemainingSteps] = 0


class Item(TypedDict):
    """What the last node sees."""

    item: tuple[int, ...]
    left: Annotated[int, RemainingSteps]


def _saw(name: str, state: Job) -> str:
    # A lock cannot be stored: either the process has kept it, or it is gone.
    assert state.client is None or isinstance(state.client, type(threading.Lock()))
    return f"{name} {state.found} {state.hint} {state.left}"


def kinds() -> Any:
    """a; b and c at once; d, which sends to w; e."""

    def a(state: Job) -> Any:
        client = threading.Lock()
        return {"log": _saw("a", state), "found": ["a1", "a2"], "hint": "a", "client": client}

    def b(state: Job) -> Any:
        return {"log": _saw("b", state), "found": "b", "hint": "b"}

    async def c(state: Job) -> Any:
        return {"log": _saw("c", state), "found": "c", "client": threading.Lock()}

    def d(state: Job) -> Any:
        return [{"log": _saw("d", state)}, *(Send("w", {"item": (i, i)}) for i in range(2))]

    def w(state: Item) -> Any:
        return {"log": f"w {state['item']} {state['left']}", "found": "w"}

    def e(state: Job) -> Any:
        return {"log": _saw("e", state)}

    graph = Graph(Job, name="kinds")
    for node in (a, b, c, d, e):
        graph.add_node(node)
    graph.add_node(w, input_schema=Item)
    graph.add_edge(START, "a").add_edge("a", "b").add_edge("a", "c").add_edge(["b", "c"], "d")
    return graph.add_edge("w", "e").compile(recursion_limit=20, allow_unreachable=True)


LOG = [
    "a ['in'] none 20",
    "b ['a1', 'a2'] a 19",
    "c ['a1', 'a2'] a 19",
    "d ['b', 'c'] b 18",
    "w (0, 0) 17",
    "w (1, 1) 17",
    "e ['w', 'w'] none 16",
]


def run_kinds(pipe: Any, path: Any, nth: int) -> None:
    """Run or go on with the graph, and be killed at the n-th fault point that is reached."""
    killer = Killer(nth)
    store = store_at(path)
    with Runtime(store, graphs=[kinds()], fault=killer) as runtime:
        store.faults = killer
        given = Invoke({"url": "/", "found": ["in"]}, run_id="R")
        outcome = runtime.thread("t").ask(given, timeout=PATIENCE)
        store.faults = lambda _point: None
    pipe.send((outcome.state.log, outcome.state.found, outcome.state.hint))
