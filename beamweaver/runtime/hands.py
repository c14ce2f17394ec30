"""The side of a thread's actor that carries out what its machine asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from beamweaver.engine import effects as fx
from beamweaver.engine._child import Child
from beamweaver.engine.failures import describe, exit_failure
from beamweaver.errors import BeamWeaverError, UnknownRun
from beamweaver.events import AttemptKilled
from beamweaver.runtime import messages as msg
from beamweaver.runtime.bodies import Bodies
from beamweaver.runtime.frames import Frame
from beamweaver.runtime.given import default_context
from beamweaver.runtime.reading import recorded_outcome
from beamweaver.runtime.substeps import GivenUp
from beamweaver.runtime.waiters import Answer
from supervisors import Actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.records import ThreadRow
    from beamweaver.engine._callers import Callers
    from beamweaver.engine._children import Children
    from beamweaver.engine.effects import Attempt
    from beamweaver.engine.machine import Machine
    from beamweaver.runtime.hub import Hub
    from beamweaver.types import Completed, Failure
    from supervisors import ExitReason

__all__ = ["Hands"]

_ATTACHED = 64
"""From how many calls on that wait for a run those are looked for whose callers have gone."""


class Hands(Actor):
    """Starts and kills attempts, keeps timers, writes commits, answers calls.

    The next attempt of a task starts when the body of the one before has ended or was given up.
    """

    def __init__(self, hub: Hub, thread_id: str) -> None:
        self._hub = hub
        self.thread_id = thread_id
        self._machine: Machine | None = None
        self._frame: Frame | None = None
        self._framed: ThreadRow | None = None
        """The thread's row when the frame was found to be that of its run and graph."""
        self._bodies = Bodies(hub, self.cell)
        self._ending: dict[tuple[int | str, ...], Attempt] = {}
        """Killed attempts whose bodies have not ended: place -> attempt."""
        self._awaited: set[Attempt] = set()
        """Of those, the ones whose end the machine waits for."""
        self._held: dict[tuple[int | str, ...], fx.StartAttempt] = {}
        """Attempts that start when the body of the one before has ended."""
        self._held_clocks: dict[tuple[int | str, ...], list[fx.SetTimer]] = {}
        """Their timeouts, which run from that moment on."""
        self._crowd = _ATTACHED
        self._reload = False
        """Whether an abandoned body may still change shared values."""
        self._tainted = False
        """Whether a body that gave no result may have changed shared values in place."""
        self._fed = False
        """Whether the machine was told something and has not advanced since."""
        self._handlers: dict[type, Callable[[Any], None]] = {
            fx.StartAttempt: self._start_attempt,
            fx.CancelAttempt: self._cancel_attempt,
            fx.StartTransition: self._start_transition,
            fx.CancelTransition: self._cancel_transition,
            fx.WriteCommit: self._write,
            fx.Noted: self._noted,
            fx.WriteCommits: self._write_all,
            fx.SetTimer: self._set_timer,
            fx.DropTimer: self._drop_timer,
            fx.Admitted: self._admitted,
            fx.Reply: self._reply,
            fx.ReplyRecorded: self._reply_recorded,
            fx.LogFailure: self._log_failure,
            fx.Publish: self._publish,
        }

    # What becomes of bodies ---------------------------------------------------------------------

    def _failed(self, token: Any, error: BaseException) -> None:
        """The framework's own code failed in the attempt; as good as the node's failure."""
        machine = self._machine
        if machine is None or not self._bodies.ended(token):
            return
        node, task_id, number = _who(token)
        self._fail(token, describe(error, node, task_id, number))

    def _owner(self, token: Any) -> Callers:
        """Who hears of an attempt or transition: the machine, or that of a subgraph in it."""
        owner: Callers = token.owner
        owner.touch()
        return owner

    def _fail(self, token: Any, failure: Failure) -> None:
        self._fed = True
        if isinstance(token, fx.Attempt):
            self._tainted = True
            self._owner(token).failed(token, failure)
        else:
            self._owner(token).routing_failed(token, failure)

    def _lost(self, token: Any, reason: ExitReason) -> None:
        """The actor of an attempt was killed from outside (its own kills are known already)."""
        machine = self._machine
        if machine is None or not self._bodies.ended(token):
            return
        if isinstance(token, fx.Attempt):
            self._ending[token.place] = token
        node, task_id, number = _who(token)
        self._fail(token, exit_failure(node, task_id, number, reason))

    def _body_ended(self, token: Any, *, abandoned: bool) -> None:
        key = token.place if isinstance(token, fx.Attempt) else ()
        self._ending.pop(key, None)
        self._bodies.gone(token)
        if abandoned:
            self._reload = True
        if self._hub.listeners and isinstance(token, fx.Attempt):
            assert token.owner is not None, "an attempt is one of a machine"
            self._hub.publish(
                AttemptKilled(
                    thread_id=self.thread_id,
                    namespace=token.owner.state.names,
                    task_id=token.task_id,
                    abandoned=abandoned,
                )
            )
        held = self._held.pop(key, None)
        if token in self._awaited:
            self._awaited.discard(token)
            self._lose(token)
        clocks = self._held_clocks.pop(key, ())
        if held is not None:
            self._start_attempt(held)
            for clock in clocks:
                self._set_timer(clock)
        self._fed = True

    def _lose(self, attempt: Attempt) -> None:
        """The body of an attempt for whose end the machine waits has ended."""
        if self._machine is not None:
            self._owner(attempt).lost(attempt)
            self._fed = True

    def _note(self, note: msg.Note) -> None:
        """A sub-step of a body that runs ended well; that of any other body counts for nothing."""
        machine = self._machine
        if machine is None or not self._owner(note.attempt).noted(
            note.attempt, note.memo, note.done
        ):
            note.done.offer_error(GivenUp())
        else:
            self._fed = True

    def _call(self, call: msg.Call) -> None:
        """A body that runs calls a graph; what any other body still does counts for nothing."""
        machine, attempt = self._machine, call.attempt
        if machine is not None and self._hub.draining:
            machine.drain()  # first: nothing begins any more
        if machine is None or not self._owner(attempt).called(attempt, call.calling):
            call.calling.done.offer_error(GivenUp())
        else:
            self._fed = True

    # Effects ------------------------------------------------------------------------------------

    def _start_attempt(self, effect: fx.StartAttempt) -> None:
        attempt = effect.attempt
        if self._ending and attempt.place in self._ending:
            self._held[attempt.place] = effect
            return
        machine, hub = self._machine, self._hub
        if machine is None:
            return
        if hub.fault is not None:
            hub.reached("thread.start", self.thread_id)
        owner, frame = attempt.owner, self._frame
        try:
            if (
                frame is None
                or owner is not machine
                or machine.state.row is not self._framed
                or machine.graph is not frame.graph
            ):
                frame = self._frame_of(machine, owner)
            self._bodies.start(frame, attempt)
        except Exception as error:  # noqa: BLE001 - no worker to be had is the attempt's failure
            node, task_id, number = _who(attempt)
            self._fail(attempt, describe(error, node, task_id, number))

    def _frame_of(self, machine: Machine, owner: Children | None) -> Frame:
        if owner is not machine and isinstance(owner, Child):
            return self._inner_frame(machine, owner)
        row, frame = machine.state.row, self._frame
        run_id = "" if row is None else row.run.names[0]  # an edit may come before the first run
        if frame is None or frame.run_id != run_id or frame.graph is not machine.graph:
            hub, graph = self._hub, machine.graph
            strict = hub.strict if graph.strict is None else graph.strict
            codec = hub.codec_of(graph)
            given = self._context_of(machine)
            plain = graph.plain and not strict
            frame = Frame(hub, graph, codec, self.thread_id, run_id, strict, given, plain)
            self._frame = frame
        self._framed = row
        return frame

    def _inner_frame(self, machine: Machine, child: Child) -> Frame:
        if child.frame is None:
            around = self._frame_of(machine, child.outer)
            graph = child.graph
            strict = around.strict if graph.strict is None else graph.strict
            child.frame = Frame(
                self._hub,
                graph,
                self._hub.codec_of(graph),
                self.thread_id,
                around.run_id,
                strict,
                around.context,
                graph.plain and not strict,
                child.state.names,
                None if child.calling else (around.graph, child.attempt.node, around.codec),
            )
        frame: Frame = child.frame
        return frame

    def _start_transition(self, effect: fx.StartTransition) -> None:
        machine = self._machine
        if machine is None:
            return
        try:
            self._bodies.route(self._frame_of(machine, effect.transition.owner), effect.transition)
        except Exception as error:  # noqa: BLE001 - no worker to be had is the routers' failure
            self._fail(effect.transition, describe(error, "", "", 1))

    def _cancel_attempt(self, effect: fx.CancelAttempt) -> None:
        attempt = effect.attempt
        key = attempt.place
        if self._ending.get(key) is attempt:
            # Killed before, and its body still runs.
            if effect.wait:
                self._awaited.add(attempt)
            return
        held = self._held.pop(key, None)
        if held is not None or not self._bodies.kill(attempt, hear=effect.wait):
            if effect.wait and attempt not in self._bodies.running:
                self._lose(attempt)
            return
        self._ending[key] = attempt
        self._tainted = True
        if effect.wait:
            self._awaited.add(attempt)

    def _cancel_transition(self, effect: fx.CancelTransition) -> None:
        self._bodies.kill(effect.transition)

    def _write(self, effect: fx.WriteCommit) -> None:
        writer = self._hub.writer
        assert writer is not None, "the writer starts before the threads"
        writer.put_inline(msg.Write(effect.commit, self.cell))

    def _noted(self, effect: fx.Noted) -> None:
        effect.token.offer(None)  # the future of the note, or the call

    def _write_all(self, effect: fx.WriteCommits) -> None:
        writer = self._hub.writer
        assert writer is not None, "the writer starts before the threads"
        writer.put_inline(msg.WriteAll(effect.commits, self.cell))

    def _set_timer(self, effect: fx.SetTimer) -> None:
        for key, held in self._held.items():
            if effect.key in _timers_of(held.attempt):
                self._held_clocks.setdefault(key, []).append(effect)
                return
        assert self._hub.timers is not None, "the timers start before the threads"
        self._hub.timers.put(msg.SetTimer(self.cell, effect.key, effect.delay))

    def _drop_timer(self, effect: fx.DropTimer) -> None:
        assert self._hub.timers is not None, "the timers start before the threads"
        self._hub.timers.put(msg.DropTimer(self.cell, effect.key))

    def _admitted(self, effect: fx.Admitted) -> None:
        self._hub.reached("thread.admitted", self.thread_id)
        self._bodies.context = self._hub.waiters.context_of(self.thread_id, effect.call)
        given = self._hub.waiters.given_of(self.thread_id, effect.call)
        if given is not UNSET:
            self._give(effect.run_id, given)
        self._hub.waiters.admitted(self.thread_id, effect.call, effect.run_id)
        machine = self._machine
        if machine is not None and len(machine.attached) >= self._crowd:
            self._thin_out(machine)

    def _give(self, run_id: str, given: Any) -> None:
        """A call brings a context for the run of that name, now or when its turn comes."""
        known = self._bodies.given
        known.pop(run_id, None)
        known[run_id] = given
        self._frame = None
        if len(known) > self._hub.limits.inbox + 1:
            known.pop(next(iter(known)))

    def _context_of(self, machine: Machine) -> Any:
        """The context of the run: that of its last call that brought one, or the runtime's."""
        known = self._bodies.given
        for name in reversed(known):
            if name in machine.state.run.names:
                return known[name]
        return default_context(self._hub, machine.graph)

    def _thin_out(self, machine: Machine) -> None:
        """Forget calls that waited for the run and whose callers have gone."""
        knows = self._hub.waiters.knows
        machine.attached = [call for call in machine.attached if knows(self.thread_id, call)]
        self._crowd = max(_ATTACHED, 2 * len(machine.attached))

    def _reply(self, effect: fx.Reply) -> None:
        answer = Answer(effect.outcome, effect.error)
        self._hub.waiters.answer(self.thread_id, effect.call, answer)

    def _reply_recorded(self, effect: fx.ReplyRecorded) -> None:
        outcome: Completed | None = None
        error: BeamWeaverError | None = None
        try:
            outcome = recorded_outcome(self._hub, self.thread_id, effect.call, effect.number)
        except BeamWeaverError as unreadable:
            error = unreadable
        if outcome is None and error is None:
            error = UnknownRun(
                f"run {effect.call.run_id!r} of thread {self.thread_id!r} ended without a recorded "
                "outcome: a later run took its place before it was complete, or its end was pruned",
                thread_id=self.thread_id,
                run_id=effect.call.run_id,
            )
        self._hub.waiters.answer(self.thread_id, effect.call, Answer(outcome, error))

    def _log_failure(self, effect: fx.LogFailure) -> None:
        knows = self._hub.waiters.knows
        if self._bodies.heirs or any(knows(self.thread_id, call) for call in effect.calls):
            return  # a successor says it, or a caller hears it
        error, cause = effect.error, effect.error.__cause__
        self._hub.log.error(
            "run_failed",
            thread_id=self.thread_id,
            run_id=error.run_id,
            code=error.code,
            error=error.message,
            exc_info=None if cause is None or cause.__traceback__ is None else cause,
        )

    def _publish(self, effect: fx.Publish) -> None:
        if not self._bodies.heirs:  # else a successor has told of what came after
            self._hub.publish(effect.event)


def _timers_of(attempt: Attempt) -> list[tuple[Any, ...]]:
    """The keys under which the machine asks for an attempt's timers."""
    owner = attempt.owner
    keys = [key for key in (attempt.timer, attempt.idle_timer) if key is not None]
    return [key if owner is None else owner.outer_key(key) for key in keys]


def _who(token: Any) -> tuple[str, str, int]:
    if isinstance(token, fx.Attempt):
        return token.task.node, token.task_id, token.number
    return "", "", 1
