"""Sleeps: tasks that are parked until a time, and the run that has nothing else to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.engine._attempts import Attempts
from beamweaver.engine.effects import DropTimer
from beamweaver.engine.rows import slept_row
from beamweaver.events import RunSleeps

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import ThreadRow
    from beamweaver.engine.effects import Attempt
    from beamweaver.engine.env import Env
    from beamweaver.engine.state import RunState, Sleep, Task
    from beamweaver.graph.compiled import CompiledGraph

__all__ = ["Dozing"]

_SECOND_US = 1_000_000


class Dozing(Attempts):
    """The side of a machine that parks tasks which sleep.

    A run of which all that is unfinished sleeps is stored as `sleeping`, and its clocks stand still. When
    the first sleep is over that is stored too, before code runs: so a death in a sleep counts for nothing.
    """

    def __init__(self, graph: CompiledGraph, env: Env, state: RunState) -> None:
        super().__init__(graph, env, state)
        self._risen: list[Task] = []
        """Tasks whose sleep is over, while the run is stored as one that sleeps."""
        self._run_left: float | None = None
        self._step_left: float | None = None

    # Events -------------------------------------------------------------------------------------

    def slept(self, attempt: Attempt, sleep: Sleep) -> None:
        """An attempt sleeps: its task runs again, from its top, when the sleep is over."""
        if not self._ended(attempt):
            return
        task = attempt.task
        task.fall_asleep(sleep)
        self.dirty.append(slept_row(task, sleep))
        if self.stop is None:  # else whoever goes on waits for the rest
            self.dozing[task.position] = task
            self._unsaved.append(task)

    def fired(self, key: tuple[Any, ...]) -> None:
        """A timer is due; one that no longer matters is ignored."""
        if key[0] != "sleep":
            super().fired(key)
            return
        _what, position, due_us = key
        task = self.dozing.get(position)
        if task is not None and task.due_us == due_us:
            del self.dozing[position]
            self._rise(task)

    # Falling asleep and waking up ---------------------------------------------------------------

    def activate(self) -> None:
        """Begin to execute the open step; a run that is stored as one that sleeps sleeps on."""
        self.dozes = self.state.status == "sleeping"
        super().activate()
        if self.dozes:
            self._stop_clocks()

    def begin_step(self) -> None:
        """Make the unfinished tasks of the open step ready, or let them wait until they are due."""
        super().begin_step()
        if not self.state.step.failing:
            self.lie_down()

    def lie_down(self) -> None:
        """Have the tasks that sleep waked when they are due; the sleep of some may be over."""
        for task in self.state.step.tasks:
            if task.asleep and not task.settled and task.position not in self.dozing:
                if self.rest_of(task) > 0:
                    self.dozing[task.position] = task
                    self._wake_when_due(task)
                else:
                    self._rise(task)

    def end_sleep(self) -> None:
        """The sleep for which the run is stored is over, though the clock may have been set back."""
        now = self.env.now_us()
        for task in self.state.step.tasks:
            if task.asleep and task.due_us <= self.state.run.due_us:
                task.due_us, task.delay = min(task.due_us, now), 0.0

    def start_nothing(self) -> None:
        """Nothing that waits to start does."""
        super().start_nothing()
        self._risen.clear()

    def _rise(self, task: Task) -> None:
        task.awake()
        if self.dozes:
            self._risen.append(task)
        else:
            self.add_ready(task)

    @property
    def only_sleeps(self) -> bool:
        """Whether all that is unfinished of the step sleeps, or has just slept."""
        unfinished = [task for task in self.state.step.tasks if task.result is None]
        risen = self._risen
        return bool(unfinished) and all(
            task.failure is None and (task.asleep or task in risen) for task in unfinished
        )

    def doze(self) -> bool:
        """Sleep until the first sleep is over, or go on after it.

        Returns:
            False if there is nothing to do but wait.
        """
        if self._risen:
            run = msgspec.structs.replace(self.state.run, due_us=0, delay=0.0)
            self.commit(self._woken, row=self.new_row("running", run))
            return True
        if self.dozes and not self.dirty:
            return False
        row = self.sleeping_row()
        self.dozes = True
        self._stop_clocks()
        self.commit(self._dozed, entries=self.take_dirty(), row=row)
        return True

    def sleeping_row(self) -> ThreadRow:
        """The thread's row while it sleeps: when it is due, and how much of its time it has used.

        A run that got as far as this is no suspect any more.
        """
        first = min(
            (task for task in self.state.step.tasks if task.asleep), key=lambda task: task.due_us
        )
        run = self.state.run
        used = 0 if self.dozes else int((self.env.clock() - self._run_since) * _SECOND_US)
        run = msgspec.structs.replace(
            run, due_us=first.due_us, delay=first.delay, used_us=run.used_us + used, deaths=0
        )
        return self.new_row("sleeping", run)

    def _dozed(self) -> None:
        self.wake_saved()
        self.tell_saved()
        if self.env.publishing:
            run = self.state.run
            self.publish(
                RunSleeps(
                    thread_id=self.state.thread_id,
                    run_id=run.names[0],
                    due=run.due_us / _SECOND_US,
                )
            )

    def _woken(self) -> None:
        """The run goes on, durably."""
        self._run_since = self.env.clock()
        if self._run_left is not None:
            self.arm_run(self._run_left)
        self.end_doze()
        risen, self._risen = self._risen, []
        if self.stop is None:
            for task in risen:
                self.add_ready(task)

    def end_doze(self) -> None:
        """The run is not stored as one that sleeps any more."""
        self.dozes = False
        if self._step_left is not None:
            self.arm_step(self._step_left)
        self._run_left = self._step_left = None

    def _stop_clocks(self) -> None:
        """The timeouts of step and run stand still while everything sleeps."""
        if self._run_timer is not None and self._run_timeout is not None:
            used = self.state.run.used_us / _SECOND_US + self.env.clock() - self._run_since
            self._run_left = max(self._run_timeout - used, 0.0)
            self._effects.append(DropTimer(self._run_timer))
        if self._step_timer is not None:
            self._step_left = max(self._step_until - self.env.clock(), 0.0)
            self._effects.append(DropTimer(self._step_timer))
        self._run_timer = self._step_timer = None
