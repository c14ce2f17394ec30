"""What processes do that share a store: owners that are killed, senders that die or stand still."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

from beamweaver import Invoke, Runtime
from beamweaver.limits import Limits
from tests.runtime.children import die, kill_at, store_at
from tests.runtime.kit import line


def adding():
    """Each message adds its number to the log."""
    return line("g", add=lambda s: {"log": [s["n"]]})


def own_until(pipe, path, point, nth):
    """Own the store and die at the nth time that a point is reached, or when told to end."""
    limits = Limits(owner_deaths=99)  # that many deaths are no fault of the thread
    graphs, fault = [adding().compile()], kill_at(point, nth)
    with Runtime(store_at(path), graphs=graphs, fault=fault, limits=limits):
        pipe.send(os.getpid())
        with contextlib.suppress(EOFError):
            pipe.recv()


def send(pipe, path, numbers, survives="power-loss"):
    """Send messages one after the other; tell when each is durable."""
    with client(path, survives) as runtime:
        for n in numbers:
            pipe.send(runtime.thread("t").tell(Invoke({"n": n})))


def send_to_point(pipe, path, point, stop=False):
    """Send a message and be killed, or stopped, at a point of it."""
    with client(path, "power-loss", fault=stop_at(point) if stop else kill_at(point)) as runtime:
        pipe.send(os.getpid())
        pipe.send(runtime.thread("t").tell(Invoke({"n": 7})))


def ask(pipe, path, n):
    """Ask as a client; send the outcome."""
    with client(path) as runtime:
        outcome = runtime.thread("t").ask(Invoke({"n": n}), timeout=20)
        pipe.send((type(outcome).__name__, outcome.state))


def dies_once(path):
    """A graph whose node kills its process at its first run."""
    marker = path.with_suffix(".died")

    def once(state):
        if not marker.exists():
            marker.touch()
            die()
        return {"log": [state["n"]]}

    return line("g", once=once)


def own_and_die_in_a_node(_pipe, path):
    """Own the store; a node ends that."""
    with Runtime(store_at(path), graphs=[dies_once(path).compile()]):
        signal.pause()


def take_part(pipe, path):
    """Be whatever is free; tell which it is, until the pipe ends."""
    with Runtime(store_at(path), graphs=[adding().compile()], role="auto") as runtime:
        pipe.send(runtime.role)
        with contextlib.suppress(EOFError):
            pipe.recv()


def client(path, survives="process-kill", **options: Any) -> Runtime:
    return Runtime(
        store_at(path, survives), graphs=[adding().compile()], role="client", wait=10, **options
    )


def stop_at(point):
    """A fault that stops the process, so that only a signal lets it go on."""

    def reached(name, _thread=""):
        if name == point:
            # To this very thread: another one would let it run on a little.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    return reached
