"""What must hold in every history; each checker says what is wrong at once, or at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamweaver.events import (
    AttemptFailed,
    RunEnded,
    StepCommitted,
    StoreTrouble,
    TaskAcknowledged,
    TaskStarted,
    ThreadQuarantined,
)
from beamweaver.runtime.context import Asks
from supervisors import CallTimeout
from supervisors.kill import Killed
from supervisors.testing import leaks
from tests.engine.modelled import run_undisturbed

if TYPE_CHECKING:
    from tests.simulation.clients import Client
    from tests.simulation.world import Process, World

__all__ = ["Bodies", "Checkers", "Hang", "answer_to"]


_EXACT = 1e-4
"""Seconds by which times may differ."""
_DEEP = 8
_DURABLE = 1.0
"""Longer sleeps are kept; who sleeps for less waits on the stack."""
_GRACE = 1.0
"""Seconds for which an attempt may wait for the end of the body before it, which was killed."""


def answer_to(question: Any) -> str:
    """The one right answer to a question."""
    return f"yes to {question}"


@dataclass(frozen=True)
class Hang:
    """How the first attempt of a task hangs.

    Attributes:
        seconds: For how long; None until somebody ends it.
        outlives: For how long it goes on when somebody has ended it; 0 if it ends at once.
    """

    seconds: float | None = None
    outlives: float = 0.0


class Bodies:
    """Hears what the bodies of nodes do: who failed before, and what each question was answered."""

    def __init__(self, world: World, wrong: list[str]) -> None:
        self.world = world
        self.done: set[tuple[str, str, int]] = set()
        """Sub-steps that returned to a body of the process that lived then."""
        self.tried: set[tuple[str, str, str]] = set()
        self.hung: set[tuple[str, str]] = set()
        self.slept: dict[tuple[str, str, int], float] = {}
        """When each sleep began."""
        self.awake: set[tuple[str, str, int]] = set()
        """Sleeps that are over."""
        self.answers: dict[tuple[str, str, int], Any] = {}
        self.wrong = wrong
        self.count = 0
        self.outliving = 0
        """How many go on now though somebody ended them."""

    def started(self, _ctx: Any) -> None:
        """A body runs."""
        self.count += 1

    def worked(self, ctx: Any, number: int) -> str:
        """The function of a sub-step: once its result was kept, it never runs again."""
        key = (ctx.thread_id, ctx.task_id, number)
        if key in self.done and self._lives(ctx):
            self.wrong.append(f"sub-step {key} of node {ctx.node} ran again")
        return f"{ctx.node}{number}"

    def kept(self, ctx: Any, number: int, found: str) -> None:
        """A sub-step returned."""
        if self._lives(ctx):
            self.done.add((ctx.thread_id, ctx.task_id, number))
        if found != f"{ctx.node}{number}":
            self.wrong.append(f"sub-step {number} of node {ctx.node} gave {found!r}")

    async def sleeps(self, ctx: Any, number: int, seconds: float, *, awaits: bool) -> None:
        """Sleep; it takes at least so long since it first began, and is not done again once it is over."""
        key = (ctx.thread_id, ctx.task_id, number)
        if seconds < _DURABLE and not awaits and self._is_deep():
            ctx.sleep(0)
            return
        now = self.world.now
        if self._lives(ctx):
            self.slept.setdefault(key, now)
        try:
            slept = ctx.sleep(seconds)
            if awaits:
                await slept
        except Asks:  # it is kept, and the body ends
            if key in self.awake and self._lives(ctx) and not self.world.steps_clock:
                self.wrong.append(f"sleep {key} of node {ctx.node} took its time again")
            raise
        if not self._lives(ctx) or self.world.steps_clock:
            return
        self.awake.add(key)
        if self.world.now < self.slept[key] + seconds - _EXACT:
            self.wrong.append(f"sleep {key} of node {ctx.node} was over too early")

    async def hang(self, ctx: Any, how: Hang, *, awaits: bool) -> bool:
        """The first attempt of a task hangs; whether somebody ended it, and it goes on all the same."""
        key = (ctx.thread_id, ctx.task_id)
        if key in self.hung or not (awaits or not self._is_deep()):
            return False
        self.hung.add(key)
        try:
            await self._waits(how.seconds, awaits=awaits)
        except (Killed, asyncio.CancelledError):
            if not how.outlives:
                raise
            self.outliving += 1
            try:
                await self._waits(how.outlives, awaits=awaits)
            finally:
                self.outliving -= 1
            return True
        if how.seconds is None:
            self.wrong.append(f"an attempt of {ctx.node} that hangs went on")
        return False

    async def _waits(self, seconds: float | None, *, awaits: bool) -> None:
        never: Any = self.world.living.system.future()
        if not awaits:
            with contextlib.suppress(CallTimeout):
                never.get(timeout=seconds)
        elif seconds is None:
            await never
        else:
            await asyncio.sleep(seconds)

    def _is_deep(self) -> bool:
        """Whether so many nodes wait on this stack that no more should."""
        return self.world.living.scheduler.depth > _DEEP

    def _lives(self, ctx: Any) -> bool:
        process = self.world.living
        return ctx.belongs_to(process.hub) and not process.ends.dying

    def first(self, ctx: Any, router: str = "") -> bool:
        """Whether this is the first attempt of the task, or a router's first for it, that ever came here."""
        key = (ctx.thread_id, ctx.task_id, router)
        if key in self.tried:
            return False
        self.tried.add(key)
        return True

    def answered(self, ctx: Any, number: int, value: Any) -> None:
        """A question of the task has an answer: its own, and for ever the same."""
        key = (ctx.thread_id, ctx.task_id, number)
        if value != answer_to(f"{ctx.node}{number}"):
            self.wrong.append(f"{key} of node {ctx.node} got the answer {value!r}")
        before = self.answers.setdefault(key, value)
        if before != value:
            self.wrong.append(f"{key} was answered {before!r}, and now {value!r}")


class _Reruns:
    """Acknowledged work is never done again."""

    def __init__(self, wrong: list[str]) -> None:
        self.acknowledged: set[tuple[str, str]] = set()
        self.wrong = wrong

    def hear(self, event: Any, *, current: bool) -> None:
        if type(event) is TaskAcknowledged:
            self.acknowledged.add((event.thread_id, event.task_id))
        elif type(event) is TaskStarted and current and self._is_done(event):
            self.wrong.append(f"{event.thread_id}: {event.node} ran after its acknowledgement")

    def _is_done(self, event: Any) -> bool:
        return (event.thread_id, event.task_id) in self.acknowledged


class _Timers:
    """Attempts and the ends of their time come when they are due, and each attempt ends once."""

    def __init__(self, world: World, wrong: list[str]) -> None:
        self.world = world
        self.due: dict[tuple[str, str], float] = {}
        self.failed: dict[tuple[str, str], int] = {}
        self.unsure: dict[tuple[str, str], int] = {}
        """The last attempt of which nobody knows whether its failure was kept."""
        self.running: dict[tuple[str, str], float] = {}
        """When the attempt that runs started."""
        self.ended: dict[tuple[str, str], int] = {}
        """In which process an attempt failed after which none has started."""
        self.wrong = wrong

    def hear(self, event: Any) -> None:
        kind = type(event)
        if kind is RunEnded and event.status not in {"drained", "sleeping"}:  # else it goes on
            for known in (self.due, self.failed, self.unsure):
                for key in [key for key in known if key[0] == event.thread_id]:
                    del known[key]
        elif kind is AttemptFailed:
            self._failed(event)
        elif kind is TaskStarted:
            self._started(event)
        elif kind is TaskAcknowledged:
            self._acknowledged(event)

    def _acknowledged(self, event: Any) -> None:
        if self.ended.get((event.thread_id, event.task_id)) == self.world.lives:
            self.wrong.append(f"a result of {event.node} counts whose attempt had ended")

    def half_heard(self, event: AttemptFailed) -> None:
        """A failure of a process that dies in this turn: its commit may have been the last that was kept."""
        self.unsure[event.thread_id, event.task_id] = event.attempt

    def _failed(self, event: Any) -> None:
        key, now = (event.thread_id, event.task_id), self.world.now
        began = self.running.pop(key, None)
        self.failed[key] = event.attempt
        self.ended[key] = self.world.lives
        if began is None:
            self.wrong.append(f"attempt {event.attempt} of {event.node} ended twice")
        elif event.failure_code == "node_timeout" and not self.world.plan.graph_in(event):
            seconds = self.world.plan.timeout_of(event)
            if seconds is None or now < began + seconds - _EXACT:
                self.wrong.append(f"{event.node} was out of time after {now - began:g} s")
            elif now > began + seconds + _GRACE + _EXACT:
                self.wrong.append(f"{event.node} was out of time after {now - began:g} s, too late")
        if event.retry_in is not None:
            self.due[key] = now + event.retry_in

    def _started(self, event: Any) -> None:
        key, now = (event.thread_id, event.task_id), self.world.now
        self.running[key] = now
        self.ended.pop(key, None)
        due, failed = self.due.pop(key, 0.0), self.failed.get(key, 0)
        counted = event.attempt > failed  # else the failure went with its process, or its actor
        if counted and not self.world.steps_clock and now < due - _EXACT:
            self.wrong.append(f"{key} started {due - now:g} s too early")
        if event.attempt > max(failed, self.unsure.pop(key, 0)) + 1:
            self.wrong.append(f"{key}: attempt {event.attempt} of {event.node} started out of turn")


class Checkers:
    """All that is checked of one history."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wrong: list[str] = []
        self.bodies = Bodies(world, self.wrong)
        self.reruns = _Reruns(self.wrong)
        self.timers = _Timers(world, self.wrong)
        self.troubled: set[tuple[Process, str]] = set()
        """Threads of which the store refused something, even that they are drained."""
        self.steps = 0

    def listener(self, process: Process) -> Any:
        """What hears the events of one process."""

        def hear(event: Any) -> None:
            current = process is self.world.living and not process.ends.dying
            self.world.trace.note(process, event)
            if type(event) is StepCommitted:
                self.steps += 1
            elif type(event) is StoreTrouble:
                self.troubled.add((process, event.thread_id))
            self.reruns.hear(event, current=current)
            if current:
                self.timers.hear(event)
            elif process is self.world.living and type(event) is AttemptFailed:
                self.timers.half_heard(event)
            if type(event) is ThreadQuarantined:
                self.wrong.append(f"{event.thread_id} was quarantined: {event.reason}")

        return hear

    def check(self) -> None:
        """What must hold at any moment.

        Raises:
            AssertionError: It does not; the message has the seed.
        """
        if self.wrong or self.world.disk.stale:
            found = [*self.wrong, *self.world.disk.stale]
            raise AssertionError(f"{self.world.config.seed=}: {found[:3]}")

    def check_drained(self, process: Process, waiting: list[Client]) -> None:
        """What must hold after a drain: nothing is left of the runtime, and nothing of it runs on."""
        where = f"{self.world.config.seed=}"
        left = leaks(process.system)
        if not self.bodies.outliving:  # these have timers of their own
            assert left == [], f"{where}: {left}"
        for client in waiting:
            assert client.is_answered, f"{where}: {client.thread_id} {client}, after the drain"
        for thread_id in self.world.threads if waiting else ():
            image = process.store.load(thread_id)
            run, status = (None, None) if image is None else (image.row.run, image.row.status)
            heard = (process, thread_id) not in self.troubled
            if run and heard and process.hub.epoch in (run.claimed_epoch, run.taken_up_epoch):
                assert status not in ("accepted", "running"), f"{where}: {thread_id} {status}"

    def check_end(self) -> None:
        """What must hold when all clients have what they want and faults have stopped."""
        self.check()
        hub = self.world.process.hub
        left = [thread_id for thread_id, bodies in hub.bodies.items() if bodies]
        assert left == [], f"{self.world.config.seed=}: bodies of {left} are left"
        for thread_id in self.world.threads:
            self._history(thread_id)
            self._values(thread_id)

    def _values(self, thread_id: str) -> None:
        world = self.world
        where = f"{world.config.seed=}, {thread_id}"
        state = world.process.runtime.get_state(thread_id)
        image = world.process.store.load(thread_id)
        assert state is not None, f"{where}: it is lost"
        assert image is not None, f"{where}: it is lost"
        assert state.status == "complete", f"{where}: it is {state.status}"
        client = world.clients[thread_id]
        model = world.plan.model()
        for _run in range(image.row.run.number):
            run_undisturbed(model, {}, world.plan.body)
        log, labels = state.values["log"], client.labels
        for label in labels:
            count = log.count(label)
            low = 1 if label in client.accepted else 0
            assert low <= count <= 1, f"{where}: input {label!r} took effect {count} times"
        assert image.inbox == (), f"{where}: messages are left"
        rest = [entry for entry in log if entry not in labels]
        assert Counter(rest) == Counter(model.values["log"]), (
            f"{where}: {rest} is not {model.values['log']}"
        )
        if not client.amended:
            assert rest == model.values["log"], f"{where}: {rest} is not in the order of the model"
        assert state.values["sums"] == model.values["sums"], f"{where}: {state.values['sums']}"

    def _history(self, thread_id: str) -> None:
        """A branch is one line: each checkpoint follows the one before it, and no step is planned twice."""
        seen: dict[str, tuple[int, int]] = {}  # branch -> step and parent of the checkpoint after
        for image in self.world.process.store.history(thread_id, values=False):
            point = image.checkpoint.checkpoint
            assert point is not None, (
                f"{self.world.config.seed=}, {thread_id}: a page without checkpoint"
            )
            after = seen.get(point.branch)
            where = f"{self.world.config.seed=}, {thread_id}, checkpoint {image.checkpoint.seq}"
            if after is not None:
                step, parent = after
                assert point.step < step or (point.step == step and point.source == "input"), (
                    f"{where}: step {point.step} before step {step}"
                )
                follows = parent == image.checkpoint.seq
                pruned = "prune" in self.world.config.weights and parent > image.checkpoint.seq
                assert follows or pruned, f"{where}: the next one follows {parent}"
            seen[point.branch] = (point.step, point.parent)
