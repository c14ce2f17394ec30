"""Who calls the runtime in a simulated history: each wants some runs on one thread, and makes them end."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver import Completed, Continue, Interrupted, Invoke, Resume
from beamweaver.errors import BeamWeaverError, CallRefused, Draining, RunFailed, UnknownRun
from beamweaver.types import Cancelled, Drained, Failed
from tests.simulation.checkers import answer_to

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Client", "Died"]

_ACCEPTED = (Completed, Interrupted, Cancelled, Drained, Failed, RunFailed)


_STOPPED = ("failed", "waiting", "cancelled", "drained")
"""A run that stands so goes on when somebody calls."""
_LASTING = {"put refused", "disk full", "broken sync"}
"""Faults that may last: a client calls again rather than wait for what it told."""


class Died(Exception):
    """Thrown into a client whose process died, or whose answer was lost."""


class Client:
    """Wants a number of runs on one thread, one after the other, whatever happens.

    A call that its process took into the grave is made again, with the same run id: that is the promise that
    clients rely on.

    Attributes:
        labels: The inputs that it gave; each may take effect once.
        accepted: Those of which it was told that they are kept; each must.
        calls: The calls that began its runs.
        kept: The run ids of calls that were told and are kept, and are not told again.
        amended: Whether it gave an input to a run that had begun.
        answered: Questions of which it was told that its answer is kept.
    """

    def __init__(self, world: World, thread_id: str, rng: random.Random) -> None:
        self.world = world
        self.thread_id = thread_id
        self.rng = rng
        self.labels: list[str] = []
        self.accepted: set[str] = set()
        self.calls: list[Invoke] = []
        self.kept: list[str] = []
        self.amended = False
        self.answered: set[str] = set()
        self.waiting: Any = None
        self._future: Any = None
        self.done = False
        self.at = ""
        self._amendments = 0
        self._calls = self._wants()
        self._go(None)

    def __str__(self) -> str:
        return "done" if self.done else f"waits for {self.at}"

    @property
    def is_answered(self) -> bool:
        """Whether nothing that it waits for is still to come."""
        return self.waiting is None or bool(self._future.done())

    def turn(self) -> bool:
        """Go on if the answer is there; whether it has all that it wants."""
        if self.is_answered:
            self._go(None)
        elif self.world.faults.left and self.rng.random() < 0.002:
            self._lose()
        return self.done

    def died(self) -> None:
        """The process to which it spoke is no more."""
        self._go(Died())

    def _lose(self) -> None:
        """The answer is lost on its way, and the call is made again."""
        if self.world.faults.strikes("lost answer", 1.0):
            self._go(Died())

    def _go(self, error: Exception | None) -> None:
        try:
            waiting = next(self._calls) if error is None else self._calls.throw(error)
        except StopIteration:
            self.done = True
            return
        self.waiting = waiting
        if waiting is not None:
            self._future = waiting.done if waiting.call.waits else waiting.receipt

    # What it wants ------------------------------------------------------------------------------

    def _wants(self) -> Iterator[Any]:
        yield None  # the world is not there yet
        told_once = "told once" in self.world.config.weights
        for number in range(self.world.config.runs):
            start = self._input(f"{self.thread_id}-{number}")
            self.calls.append(start)
            if told_once and self.rng.random() < 0.4:
                yield from self._tell_two(start)
            else:
                yield from self._until_complete(start)
        yield from self._leave_nothing()

    def _leave_nothing(self) -> Iterator[Any]:
        """An amendment that came too late has begun a run of its own: that one too comes to its end."""
        message: Any = Invoke(None)
        while self._inbox() or self._stands() != "complete":
            try:
                outcome = yield from self._call(message, waits=True)
            except Died:
                message = Invoke(None)
                continue
            asks = type(outcome) is Interrupted
            message = self._answers(outcome.interrupts) if asks else Invoke(None)

    def _tell_two(self, first: Invoke) -> Iterator[Any]:
        """Tell two inputs, one behind the other; when they are kept neither is told again.

        The second one begins a run of its own, or goes into that of the first if it stopped.
        """
        second = self._input(f"{first.run_id} and more")
        self.amended = True
        self.world.faults.struck["told once"] += 2
        for start in (first, second):
            outcome: Any = Died
            while outcome is not None:
                try:
                    outcome = yield from self._call(start, waits=False)
                except Died:
                    continue
            self.kept.append(str(start.run_id))
        yield from self._wait_for_its_turn(first)
        yield from self._until_complete(second)
        self.kept.clear()

    def _wait_for_its_turn(self, first: Invoke | None = None) -> Iterator[Any]:
        """What is kept has its turn though nobody calls; behind a run that stopped it waits for a call.

        Somebody may ask what became of the first one just when the run of the next one begins.
        """
        if self.rng.random() < 0.3:
            return
        self.at = "the turn of what it told"
        waits = not self.world.config.weights.keys() & _LASTING
        while self._inbox() and (stands := self._stands()) not in _STOPPED:
            died = stands == "complete" and self.world.faults.kill_between_runs()
            if not (died or waits):
                return
            if first is not None and stands == "complete" and self.rng.random() < 0.5:
                self.world.bother(self.thread_id, first, waits=self.rng.random() < 0.5)
            with contextlib.suppress(Died):
                yield None
            waits = waits or not self.world.faults.left  # so nothing was refused since it died

    def _stands(self) -> str:
        state = self.world.process.runtime.get_state(self.thread_id)
        return "complete" if state is None else state.status

    def _inbox(self) -> list[str]:
        """The run ids of the messages that wait."""
        image = self.world.process.store.load(self.thread_id)
        return [] if image is None else [str(message.run_id) for message in image.inbox]

    def _until_complete(self, start: Invoke) -> Iterator[Any]:
        """Make a call until the run that it begins is complete."""
        message = self._again(start)
        while True:
            told = self.rng.random() < 0.3
            try:
                outcome = yield from self._call(message, waits=not told)
            except Died:
                message = self._again(start)
                continue
            self._look_for_kept()
            if type(outcome) is Completed and self._is_over(start, outcome):
                return
            if type(outcome) is UnknownRun and self._was_pruned():
                return
            if type(outcome) is Completed and self.kept:
                yield from self._wait_for_its_turn()
            message = self._next(outcome, start)

    def _again(self, start: Invoke) -> Any:
        """What leads on without a risk; an input that is kept need not be given again."""
        more = [Continue(), Invoke(None)]
        return self.rng.choice(more) if self.kept else start

    def _look_for_kept(self) -> None:
        """A message that was kept waits in the inbox, or has taken effect."""
        if not self.kept:
            return
        state = self.world.process.runtime.get_state(self.thread_id)
        log, waits = [] if state is None else state.values["log"], self._inbox()
        for label in self.kept:
            if label not in waits and label not in log:
                self.world.checkers.wrong.append(f"the message {label!r}, which was kept, is lost")

    def _is_over(self, start: Invoke, outcome: Completed) -> bool:
        """Whether the run of an input is complete, by what a call gave or by what is there."""
        return start.run_id in self._names(outcome) or self._went_by(start)

    def _went_by(self, start: Invoke) -> bool:
        """Whether the run of a kept input ended unseen: an amendment that came too late began another one."""
        if start.run_id not in self.kept or start.run_id in self._inbox():
            return False
        state = self.world.process.runtime.get_state(self.thread_id)
        return state is not None and state.status == "complete"

    def _was_pruned(self) -> bool:
        """Whether a run of which no outcome is known may have ended, and its end was removed."""
        pruned = "prune" in self.world.config.weights
        return pruned and not self._inbox() and self._stands() == "complete"

    def _names(self, outcome: Any) -> tuple[str, ...]:
        """The names of the run that an outcome is of."""
        image = self.world.process.store.load(self.thread_id)
        names = image.row.run.names if image is not None else ()
        return names if outcome.run_id in names else (outcome.run_id,)

    def _was_taken(self, run_id: str, outcome: Any) -> bool:
        """Whether a call was kept; one that waited behind a run which then stopped was not."""
        if outcome is None or type(outcome) is Completed:
            return True
        image = self.world.process.store.load(self.thread_id)
        return image is not None and run_id in image.row.run.names

    def _input(self, label: str) -> Any:
        self.labels.append(label)
        return Invoke({"log": [label]}, run_id=label)

    def _next(self, outcome: Any, start: Any) -> Any:
        if type(outcome) is Interrupted:
            for each in outcome.interrupts:
                if each.id in self.answered:
                    self.world.checkers.wrong.append(f"asked again: {each.id}")
            return self._answers(outcome.interrupts)
        weights = self.world.config.weights
        stopped = isinstance(outcome, RunFailed | Cancelled)
        if stopped and "amendment" in weights and self._amendments < 2 and self.rng.random() < 0.3:
            self._amendments += 1
            self.amended = True
            self.world.faults.struck["amendment"] += 1
            return self._input(f"{self.thread_id} amendment {self._amendments}")
        return self.rng.choice([self._again(start), Continue(), Invoke(None), self._again(start)])

    def _answers(self, interrupts: Any) -> Any:
        if "wrong answer" in self.world.config.weights and self.rng.random() < 0.3:
            self.world.faults.struck["wrong answer"] += 1
            return Resume(answers={"int_nobody_asked": 1})
        second = self.answered and "second answer" in self.world.config.weights
        if second and self.rng.random() < 0.3:
            self.world.faults.struck["second answer"] += 1
            return Resume(answers={min(self.answered): "another answer"})
        if len(interrupts) == 1 and self.rng.random() < 0.5:
            return Resume(answer_to(interrupts[0].value))
        some = [each for each in interrupts if self.rng.random() < 0.7] or interrupts
        return Resume(answers={each.id: answer_to(each.value) for each in some})

    def _call(self, message: Any, *, waits: bool) -> Iterator[Any]:
        """The outcome of a call, or the error, which is an outcome too; None for a told one that was kept."""
        message = msgspec.structs.replace(message, durability=self.world.config.durability)
        self.at = f"{message!r}, {waits=}"
        self.world.trace.note(None, f"{self.thread_id}: {self.at}")
        try:
            waiting = self.world.submit(self.thread_id, message, waits=waits)
        except (CallRefused, BeamWeaverError) as error:
            yield None
            return error
        yield waiting
        outcome = self._result(waiting)
        if outcome is None or isinstance(outcome, _ACCEPTED):
            named = message.run_id if isinstance(message, Invoke) else None
            if named is not None and self._was_taken(named, outcome):
                self.accepted.add(named)
            if isinstance(message, Resume) and isinstance(message.answers, dict):
                self.answered.update(message.answers)
        self.world.trace.note(None, f"{self.thread_id}: {type(outcome).__name__}")
        return outcome

    def _result(self, waiting: Any) -> Any:
        if waiting.call.waits:
            answer = waiting.done.get()
            return answer.outcome if answer.error is None else answer.error
        try:
            waiting.receipt.get()
        except (BeamWeaverError, Draining) as error:
            return error
        return None
