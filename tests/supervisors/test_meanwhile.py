"""What other threads do while an actor begins, ends, or is looked at."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from supervisors import KILLED, NORMAL, Abnormal, ChildSpec, Down, Exit
from supervisors.death import finish
from supervisors.family import Child, Run
from tests.supervisors.world import Puppet, World


class Inner(Puppet):
    """Its messages may be handled inside of the sender's slice."""

    lane = "idle"
    isolated = False


@contextmanager
def as_soon_as(name: str, do: Callable[[], object]) -> Iterator[list[str]]:
    """Call `do` when a function of that name is first called, as another thread might; tell of it."""
    done: list[str] = []

    def trace(frame: FrameType, _event: str, _arg: object) -> None:
        ours = frame.f_globals.get("__name__", "").startswith("supervisors.")
        if not done and ours and frame.f_code.co_name == name:
            done.append(frame.f_code.co_name)
            do()

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield done
    finally:
        sys.settrace(before)


def test_signals_that_come_while_an_actor_begins_do_it_no_harm(simulated: World):
    cell = simulated.system.make(Puppet, (), {})
    cell.put_system(Down("first", NORMAL))
    simulated.system.launch(cell)
    with as_soon_as("<genexpr>", lambda: cell.put_system(Down("second", NORMAL))) as done:
        simulated.settle()

    assert done
    assert [signal.token for signal in cell.actor.signals] == ["first", "second"]


def test_signals_that_come_while_a_token_is_made_do_no_harm(simulated: World):
    actor = simulated.system.start(Puppet)

    def make(puppet: Puppet) -> bool:
        puppet.cell.put_system(Down("first", NORMAL))
        with as_soon_as(
            "<genexpr>", lambda: puppet.cell.put_system(Down("second", NORMAL))
        ) as done:
            token = puppet.cell.cancel_token()
        return bool(done) and not token.cancelled

    assert actor.ask(make, timeout=5)


def test_who_unlinks_while_the_other_ends_keeps_nobody_from_hearing_of_it(simulated: World):
    first, second, third = (simulated.system.start(Puppet, trap=True) for _ in range(3))
    dying = simulated.system.start(Puppet)
    for actor in (first, second, third):
        actor.ask(lambda puppet: puppet.link(dying), timeout=5)
    ours, theirs = second.cell.pages(), dying.cell.pages()

    def unlink() -> None:
        ours.links.pop(dying.cell)
        theirs.links.pop(second.cell)

    simulated.system.exit(dying, Abnormal("enough"))
    with as_soon_as("put_system", unlink) as done:
        simulated.settle()

    assert done
    heard = [
        actor.ask(lambda puppet: [type(signal) for signal in puppet.signals], timeout=5)
        for actor in (first, second, third)
    ]
    assert heard == [[Exit], [], [Exit]]


def test_an_actor_that_is_given_up_as_it_is_sent_to_inline_harms_nobody(simulated: World):
    inner, outer = simulated.system.start(Inner), simulated.system.start(Puppet)
    with as_soon_as("_take", lambda: finish(inner.cell, KILLED)) as done:
        outer.ask(lambda _: inner.cell.put_inline("first"), timeout=5)
    inner.cell.put("second")
    simulated.settle()

    assert done
    assert [message for _, message, _ in simulated.letters] == ["first", "second"]


def test_a_child_that_goes_while_it_is_looked_at_has_the_state_that_was_seen():
    run = Run(Child(1, ChildSpec(1, Puppet)), 0.0, starting=False)

    looks = iter([run, None, None])

    class Going:
        restarting = None
        run = property(lambda _self: next(looks))

    state: Any = Child.state
    assert state.fget(Going()) == "running"
