"""Who calls the runtime in a simulated history: each wants some runs on one thread, and makes them end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver import Completed, Continue, Interrupted, Invoke, Resume
from beamweaver.errors import BeamWeaverError, CallRefused, Draining, RunFailed
from beamweaver.types import Cancelled, Drained, Failed
from tests.simulation.checkers import answer_to

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Client"]

_ACCEPTED = (Completed, Interrupted, Cancelled, Drained, Failed, RunFailed)


class Died(Exception):
    """Thrown into a client whose process died."""


class Client:
    """Wants a number of runs on one thread, one after the other, whatever happens.

    A call that its process took into the grave is made again, with the same run id: that is the promise that
    clients rely on.

    Attributes:
        labels: The inputs that it gave; each may take effect once.
        accepted: Those of which it was told that they are kept; each must.
        amended: Whether it gave an input to a run that had begun.
        answered: Questions of which it was told that its answer is kept.
        asked_again: Those of them that were asked once more, which must not be.
    """

    def __init__(self, world: World, thread_id: str, rng: random.Random) -> None:
        self.world = world
        self.thread_id = thread_id
        self.rng = rng
        self.labels: list[str] = []
        self.accepted: set[str] = set()
        self.amended = False
        self.answered: set[str] = set()
        self.asked_again: list[str] = []
        self.waiting: Any = None
        self.done = False
        self.at = ""
        self._amendments = 0
        self._calls = self._wants()
        self._go(None)

    def __str__(self) -> str:
        return "done" if self.done else f"waits for {self.at}"

    def turn(self) -> bool:
        """Go on if the answer is there; whether it has all that it wants."""
        if not self.done and (self.waiting is None or self._future().done()):
            self._go(None)
        return self.done

    def died(self) -> None:
        """The process to which it spoke is no more."""
        if not self.done:
            self._go(Died())

    def _future(self) -> Any:
        return self.waiting.done if self.waiting.call.waits else self.waiting.receipt

    def _go(self, error: Exception | None) -> None:
        try:
            self.waiting = next(self._calls) if error is None else self._calls.throw(error)
        except StopIteration:
            self.done = True

    # What it wants ------------------------------------------------------------------------------

    def _wants(self) -> Iterator[Any]:
        yield None  # the world is not there yet
        for number in range(self.world.config.runs):
            yield from self._run(number)

    def _run(self, number: int) -> Iterator[Any]:
        start = self._input(f"{self.thread_id}-{number}")
        message = start
        while True:
            told = self.rng.random() < 0.3
            try:
                outcome = yield from self._call(message, waits=not told)
            except Died:
                message = start
                continue
            if type(outcome) is Completed and start.run_id in self._names(outcome):
                return
            message = self._next(outcome, start)

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
            self.asked_again += [each.id for each in outcome.interrupts if each.id in self.answered]
            return self._answers(outcome.interrupts)
        weights = self.world.config.weights
        stopped = isinstance(outcome, RunFailed | Cancelled)
        if stopped and "amendment" in weights and self._amendments < 2 and self.rng.random() < 0.3:
            self._amendments += 1
            self.amended = True
            return self._input(f"{self.thread_id} amendment {self._amendments}")
        return self.rng.choice([start, Continue(), Invoke(None), start])

    def _answers(self, interrupts: Any) -> Any:
        if "wrong answer" in self.world.config.weights and self.rng.random() < 0.3:
            return Resume(answers={"int_nobody_asked": 1})
        if (
            self.answered
            and "second answer" in self.world.config.weights
            and self.rng.random() < 0.3
        ):
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
