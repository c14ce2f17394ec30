"""The machine of one thread: events in, effects out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.engine._branches import Branches
from beamweaver.engine._core import Stop
from beamweaver.engine.calls import UNFINISHED
from beamweaver.engine.merge import with_initial
from beamweaver.engine.rereading import reread_step
from beamweaver.errors import Draining
from beamweaver.events import ThreadMigrated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from beamweaver.engine.calls import Call
    from beamweaver.engine.effects import Effect
    from beamweaver.engine.migrate import Migrated, Opened
    from beamweaver.engine.state import RunState

__all__ = ["Machine"]


class Machine(Branches):
    """A thread's state machine; its driver feeds events, then carries out the effects of `advance()`.

    The events are methods: `call`, `succeeded`, `failed`, `asked`, `slept`, `noted`, `lost`, `routed`,
    `routing_failed`, `fired`, `acknowledged`, `drain`, `cut`. None of them has an effect by itself:
    several may be fed before one `advance()`, so that results that arrive together become durable together.

    Args:
        graph: The thread's graph.
        env: Clock, chance, ids and encoding.
        state: What the store has of the thread (`fold`), or an empty `RunState` for a new one.

    Example:
        >>> from beamweaver.engine import Machine, RunState  # doctest: +SKIP
        >>> machine = Machine(graph, env, RunState("order-17"))  # doctest: +SKIP
        >>> machine.call(call); effects = machine.advance()  # doctest: +SKIP
    """

    def call(self, call: Call) -> None:
        """A call arrived."""
        self.calls.append(call)

    def begin(
        self,
        *,
        recover: bool,
        told: Iterable[Call] = (),
        due: bool = False,
        opened: Opened | None = None,
    ) -> None:
        """After a load: go on with a run that this process owns, or that it is to recover.

        A run that a told call was to cancel is cancelled now.

        Args:
            recover: Whether a run that a dead process left is taken up without a call.
            told: The durable messages that wait in the inbox, oldest first.
            due: Whether a sleep of the run is over, whatever the clock says.
            opened: What was loaded: a migration of it is committed first, and a step that is unfit waits.
        """
        calls = tuple(told)
        self.queue.extend(calls)
        if opened is not None:
            self.unfit = opened.unfit
        if self.unfit is not None:
            return
        if opened is None or opened.migrated is None:
            self._begin(calls, recover=recover, due=due)
        else:
            self._migrate(opened.migrated, lambda: self._begin(calls, recover=recover, due=due))

    def _migrate(self, migrated: Migrated, then: Callable[[], None]) -> None:
        """Make the thread one of this version, in one commit."""

        def done() -> None:
            if self.env.publishing:
                self.publish(
                    ThreadMigrated(
                        thread_id=self.state.thread_id,
                        from_version=migrated.stored,
                        to_version=self.graph.version,
                    )
                )
            then()

        row, seq = self.state.row, self.state.seq
        assert row is not None, "only a thread that exists is migrated"
        self.commit(
            done,
            checkpoint=migrated.checkpoint,
            entries=migrated.entries,
            row=row,
            ended=(row.run.number, seq) if row.status == "complete" and row.run.number else None,
            inbox_put=migrated.inbox,
        )

    def _begin(self, told: tuple[Call, ...], *, recover: bool, due: bool) -> None:
        status, epoch = self.state.status, self.env.epoch
        if status in UNFINISHED and any(call.on_busy == "cancel" for call in told):
            self.commit(self.run_stopped, row=self.new_row("cancelled"))
            return
        if due and status == "sleeping":
            self.end_sleep()
        if status is not None and status in UNFINISHED:
            run = self.state.run
            owned = max(run.claimed_epoch, run.taken_up_epoch) == epoch
            if owned and status != "drained":
                self.activate()
            elif recover:
                self.take_up()
        if not self.active and self.in_flight is None:
            self.settle_queue()

    def advance(self) -> list[Effect]:
        """Carry the thread as far as it goes without the world; what the world must do now.

        Returns:
            The effects, in the order in which they are to be carried out.
        """
        while (self.touched and self.advance_children()) or (
            self.in_flight is None and self._advance_once()
        ):
            pass
        if (self.ready or self.ready_async) and self.active and self.stop is None:
            self.start_ready()  # other tasks of the step need not wait for the commit in flight
        effects, self._effects = self._effects, []
        return effects

    def _advance_once(self) -> bool:
        if self.editing is not None:
            return self.go_on_editing(self.editing)
        if self.calls:
            self.take(self.calls.popleft())
            return True
        if not self.active or self.transition is not None:
            return False
        if (self.ready or self.ready_async) and self.stop is None:
            self.start_ready()
        if self.running or self.sleeping:
            if self.dirty and (not self.early or self.must_flush() or self.may_flush()):
                self.flush()
            return False
        return self.close()

    def cut(self) -> None:
        """The deadline of a drain passed: stop what still runs."""
        if self.active:
            self.halt(self.stop or Stop("drained"), wait=False)
        elif self.editing is not None:
            self.stop_editing("was cut off by the end of a drain", Draining)

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to do until a call comes, or a sleep is over."""
        return self.idle or (self.dozes and self.in_flight is None and not self._risen)

    @property
    def may_leave(self) -> bool:
        """Whether all that is known here of the thread is in the store, and nobody waits here."""
        return self.idle or (self.at_rest and not (self.calls or self.attached or self.queue))

    @property
    def idle(self) -> bool:
        """Whether nothing executes, is on its way to the store, or waits to be decided."""
        return not (self.active or self.in_flight or self.calls or self.editing)

    @property
    def settled(self) -> bool:
        """Whether no task of the open step runs, may start, or sleeps: the step is about to close."""
        open_ = self.running or self.ready or self.ready_async or self.sleeping
        return self.active and not open_

    def catch_up(self) -> bool:
        """Bring to the store what is only known here, so that its values are those of this moment.

        Nothing goes on meanwhile: neither the thread nor a graph in its tasks.

        Returns:
            Whether the store has all of it; if not, a commit is on its way and its acknowledgement comes.
        """
        if self.in_flight is None and not self.window and self.active and self.left_out:
            self.gather_all()
            self.flush()
        self.bring_up()
        return self.in_flight is None and not self.window

    def replace_state(self, state: RunState) -> None:
        """Take the values as the store has them, after user code may have changed shared ones in place.

        Attempts that run keep their tasks, and what no store keeps stays; a commit may be on its way.

        Args:
            state: As the store has it; ignored if it is that of another step.
        """
        mine = self.state
        if state.checkpoint_seq != mine.checkpoint_seq:
            return
        unstored = {key: mine.values[key] for key in self.graph.unstored & mine.values.keys()}
        mine.values = {**with_initial(self.graph, state.values), **unstored}
        self._view = None
        reread_step(mine.step, state.step)
        self.reread_inside(state)
