"""Who edits and branches in a simulated history: on a thread of its own, whose ends it knows by the model."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamweaver import END, Invoke
from tests.engine.modelled import run_undisturbed
from tests.simulation.clients import Client, Died

if TYPE_CHECKING:
    from beamweaver import Runtime
    from tests.simulation.world import World

__all__ = ["Editor"]

_FEW = 4
"""Ends from which it chooses: the newest."""


@dataclass
class _End:
    """A complete run, or an edit after it: what the thread holds there.

    Attributes:
        id: The checkpoint.
        values: Of the model.
        labels: The runs and edits that led here.
        run: The run that it is of.
        amid: Checkpoints of the run before its end; what goes on from there ends alike.
    """

    id: str
    values: dict[str, Any]
    labels: tuple[str, ...]
    run: str
    amid: tuple[str, ...] = ()


class Editor(Client):
    """Runs, edits, branches, moves the head, removes runs and deletes, and looks after each what is there.

    A call whose process died may have taken effect or not; one that returned has.
    """

    def __init__(self, world: World, thread_id: str, rng: random.Random) -> None:
        self.ends: list[_End] = []
        self.head: _End | None = None
        self.seen: dict[str, Any] = {}
        """Checkpoint -> its values when it was seen first; they never change."""
        self._made = 0
        super().__init__(world, thread_id, rng)
        self._amendments = 1_000  # it makes none

    def _wants(self) -> Iterator[Any]:
        yield from self._pause()  # the world is not there yet
        yield from self._begin_anew()
        ways = [
            self._edit,
            self._branch,
            self._again_from_amid,
            self._move,
            self._remove,
            self._delete,
        ]
        for _number in range(self.world.config.runs):
            yield from self.rng.choice(ways)()
            self._look()
        yield from self._begin_anew()

    def _label(self, what: str) -> str:
        self._made += 1
        return f"{self.thread_id} {what} {self._made}"

    # Runs ---------------------------------------------------------------------------------------

    def _begin_anew(self) -> Iterator[Any]:
        """A run on what is there."""
        before = self.head.values if self.head is not None else None
        yield from self._runs(self._label("run"), before, self.head)

    def _branch(self) -> Iterator[Any]:
        """A run on the values of an older end."""
        end = self._some_end()
        yield from self._runs(self._label("branch"), end.values, end, checkpoint_id=end.id)

    def _again_from_amid(self) -> Iterator[Any]:
        """A branch that goes on from amid a run, and ends as that one did."""
        end = self._some_end()
        if not end.amid:
            return
        point = self.rng.choice(end.amid)
        start = Invoke(None, run_id=self._label("replay"), checkpoint_id=point)
        yield from self._until_complete(start)
        self._arrive(end.values, end.labels, str(start.run_id))

    def _runs(
        self, label: str, before: dict[str, Any] | None, end: _End | None, **options: Any
    ) -> Iterator[Any]:
        start = Invoke({"log": [label]}, run_id=label, **options)
        yield from self._until_complete(start)
        model = self.world.plan.model()
        if before is not None:
            model.values = copy.deepcopy(before)
        run_undisturbed(model, {"log": [label]}, self.world.plan.body)
        labels = end.labels if end is not None else ()
        self._arrive(model.values, (*labels, label), label)

    def _arrive(self, values: dict[str, Any], labels: tuple[str, ...], run: str) -> None:
        """The thread is at a new end."""
        known = set(self.seen)
        self._look(values)
        states = list(self.world.process.runtime.get_state_history(self.thread_id))
        amid = tuple(_id(s) for s in states if s.next and _id(s) not in known)
        for state in states:
            self._remember(_id(state), state.values)
        self.head = _End(self._head_id(), values, labels, run, amid)
        self.ends.append(self.head)

    # Edits --------------------------------------------------------------------------------------

    def _edit(self) -> Iterator[Any]:
        """An edit at the head, which leads nowhere."""
        assert self.head is not None, "an editor begins with a run"
        label = self._label("edit")
        made = yield from self._do(
            lambda runtime: runtime.update_state(self.thread_id, {"log": [label]}, as_node=END)
        )
        found = self._state().values["log"]
        if label in found or made is not None:
            values = {**self.head.values, "log": [*self.head.values["log"], label]}
            self._arrive(values, (*self.head.labels, label), self.head.run)
            if made is not None and made != self._head_id():
                self._blame(f"the edit {label!r} made {made}, and the head is {self._head_id()}")

    def _move(self) -> Iterator[Any]:
        """The head goes to an older end."""
        end = self._some_end()
        done = yield from self._do(lambda runtime: runtime.set_head(self.thread_id, end.id))
        if done is not None or self._head_id() == end.id:
            self.head = end

    def _remove(self) -> Iterator[Any]:
        """A run goes, and what it ended with; never the one at the head."""
        assert self.head is not None, "an editor begins with a run"
        runs = sorted({end.run for end in self.ends} - {self.head.run})
        if runs:
            run = self.rng.choice(runs)
            yield from self._do(lambda runtime: runtime.delete_runs(self.thread_id, [run]))
            self._forget(run)

    def _delete(self) -> Iterator[Any]:
        """All of it goes; the next run begins a thread."""
        done = yield from self._do(lambda runtime: runtime.delete_thread(self.thread_id))
        gone = self.world.process.runtime.get_state(self.thread_id) is None
        if done is not None and not gone:
            self._blame("it was deleted, and is there")
        if gone:
            self.head, self.ends, self.seen = None, [], {}
            yield from self._begin_anew()

    def _do(self, call: Callable[[Runtime], Any]) -> Iterator[Any]:
        """What a call gives that waits on this stack; None if nobody can know what came of it."""
        self.world.faults.struck["edits"] += 1
        done = self.world.edit(call)
        yield from self._pause()
        return done

    def _pause(self) -> Iterator[Any]:
        """Let a turn pass, in which the process may turn out to be dead, and another one begin."""
        try:
            yield None
        except Died:
            self.world.note(f"{self.thread_id} looks what is there")

    # Looking ------------------------------------------------------------------------------------

    def _look(self, wanted: dict[str, Any] | None = None) -> None:
        """What is at the head is what the model says, and what was seen before has not changed."""
        if wanted is None:
            assert self.head is not None, "an editor begins with a run"
            wanted = self.head.values
        state = self._state()
        if state.status != "complete":
            self._blame(f"it is {state.status}")
        for key in ("log", "sums"):
            if state.values[key] != wanted[key]:
                self._blame(f"{key} is {state.values[key]}, and not {wanted[key]}")
        for end in self.ends[-_FEW:]:
            found = self.world.process.runtime.get_state(self.thread_id, end.id)
            if found is None:
                self._blame(f"checkpoint {end.id} is lost")
            else:
                self._remember(end.id, found.values)

    def _remember(self, checkpoint: str, values: Any) -> None:
        before = self.seen.setdefault(checkpoint, values)
        if before != values:
            self._blame(f"checkpoint {checkpoint} had {before}, and now has {values}")

    def _forget(self, run: str) -> None:
        """A run was removed, or is about to be: what is gone is of no other run."""
        states = self.world.process.runtime.get_state_history(self.thread_id)
        there = {_id(state) for state in states}
        for end in self.ends:
            if end.id not in there and end.run != run:
                self._blame(f"the end {end.id} of the run {end.run!r} went with the run {run!r}")
        self.ends = [end for end in self.ends if end.id in there and end.run != run]
        for end in self.ends:
            end.amid = tuple(point for point in end.amid if point in there)
        self.seen = {point: values for point, values in self.seen.items() if point in there}

    def _some_end(self) -> _End:
        return self.rng.choice(self.ends[-_FEW:])

    def _state(self) -> Any:
        state = self.world.process.runtime.get_state(self.thread_id)
        assert state is not None, f"{self.world.config.seed=}: {self.thread_id} is lost"
        return state

    def _head_id(self) -> str:
        return _id(self._state())

    def _blame(self, what: str) -> None:
        self.world.checkers.wrong.append(f"{self.thread_id}: {what}")


def _id(state: Any) -> str:
    return str(state.config["configurable"]["checkpoint_id"])
