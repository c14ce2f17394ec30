"""The thread actor: the driver of one thread's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.engine import effects as fx
from beamweaver.engine.failures import describe, exit_failure
from beamweaver.engine.fold import fold
from beamweaver.engine.machine import Machine
from beamweaver.engine.state import Question, Result, RunState
from beamweaver.errors import BeamWeaverError, UnknownRun
from beamweaver.events import AttemptKilled, StoreTrouble
from beamweaver.runtime import edits
from beamweaver.runtime import messages as msg
from beamweaver.runtime.bodies import Bodies
from beamweaver.runtime.context import Frame
from beamweaver.runtime.env import ThreadEnv
from beamweaver.runtime.inbox import calls_of
from beamweaver.runtime.reading import recorded_outcome, wrong_graph
from beamweaver.runtime.waiters import Answer
from beamweaver.runtime.writer import Apply
from supervisors import Actor, TaskDone, TaskEnded, TaskFailed
from supervisors.signals import Down

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.records import ThreadImage
    from beamweaver.engine.calls import Call
    from beamweaver.engine.effects import Attempt, Effect
    from beamweaver.runtime.hub import Hub
    from beamweaver.types import Failure
    from supervisors import ExitReason, Future

__all__ = ["ThreadActor"]


class ThreadActor(Actor):
    """Owns the state of one thread: feeds its machine events, and carries out what the machine asks.

    Every incarnation claims its thread at the writer, reads the store, and goes on from there; so a
    crash at any moment costs at most the work whose result was not acknowledged.
    """

    lane: ClassVar[Literal["hi"]] = "hi"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub, thread_id: str, *, recover: bool = False) -> None:
        self._hub = hub
        self.thread_id = thread_id
        self._recover = recover
        self._incarnation = hub.next_incarnation()
        self._machine: Machine | None = None
        self._frame: Frame | None = None
        self._image: ThreadImage | None = None
        self._loaded = False
        self._bodies = Bodies(hub, self.cell)
        self._ending: dict[tuple[int, int], Attempt] = {}
        """Killed attempts whose bodies have not ended: (step, position) -> attempt."""
        self._awaited: set[Attempt] = set()
        """Of those, the ones whose end the machine waits for."""
        self._held: dict[tuple[int, int], fx.StartAttempt] = {}
        """Attempts that start when the body of the one before has ended."""
        self._held_clocks: dict[tuple[int, int], fx.SetTimer] = {}
        """Their timeouts, which run from that moment on."""
        self._reload = False
        self._fed = False
        self._drains: list[Future[None]] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            fx.StartAttempt: self._start_attempt,
            fx.CancelAttempt: self._cancel_attempt,
            fx.StartTransition: self._start_transition,
            fx.CancelTransition: self._cancel_transition,
            fx.WriteCommit: self._write,
            fx.SetTimer: self._set_timer,
            fx.DropTimer: self._drop_timer,
            fx.Admitted: self._admitted,
            fx.Reply: self._reply,
            fx.ReplyRecorded: self._reply_recorded,
            fx.Publish: self._publish,
        }

    # Life ---------------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Claim the thread; what older incarnations wrote is in the store when the claim stands."""
        before = self._hub.bodies.get(self.thread_id)
        self._hub.bodies[self.thread_id] = self._bodies
        if before is not None:
            for attempt in self._bodies.adopt(before):
                self._ending[attempt.step, attempt.position] = attempt
        self._hub.enter(self.thread_id, self.cell)
        self._claim()

    def _claim(self) -> None:
        assert self._hub.writer is not None, "the writer starts before the threads"
        self._hub.writer.put_inline(msg.Claim(self.thread_id, self._incarnation, self.cell))

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka gives no reason
        """Let the writer forget the incarnation."""
        del reason
        if self._hub.writer is not None:
            self._hub.writer.put(msg.Left(self.thread_id, self._incarnation))

    def on_receive(self, message: Any) -> None:
        """One message; the machine advances when no other one waits behind it."""
        kind = type(message)
        if kind is TaskDone:
            self._done(message.token, message.value)
        elif kind is msg.Acknowledged:
            self._acknowledged(message)
        elif kind is msg.Claimed:
            self._load()
        elif kind is msg.Fired:
            self._feed(lambda machine: machine.fired(message.key))
        else:
            self._rarely(message)
        if self._fed and not self.cell.q:
            self._advance()

    def on_signal(self, signal: Any) -> None:
        """A node actor ended without a result: it was killed, or it crashed."""
        if type(signal) is Down:
            self._lost(signal.token, signal.reason)
        if self._fed and self.cell.empty():
            self._advance()

    def _rarely(self, message: Any) -> None:
        match message:
            case TaskFailed():
                self._failed(message.token, message.error)
            case TaskEnded():
                self._body_ended(message.token, abandoned=message.abandoned)
            case Down():
                self._lost(message.token, message.reason)
            case msg.Refused():
                self._refused(message)
            case msg.WAKE:
                self._take_calls()
            case msg.Drain():
                self._drains.append(message.done)
                self._fed = True
            case msg.CUT:
                self._feed(Machine.cut)
            case msg.RECOVER:
                self._recover_now()
            case msg.RETIRE:
                self._retire()
            case edits.CHANGED:
                self._claim_again()

    # Loading ------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the thread from the store, then go on with it."""
        hub = self._hub
        hub.reached("thread.load", self.thread_id)
        self._image = hub.store.load(self.thread_id)
        self._loaded = True
        if self._image is not None and self._image.row.graph in hub.graphs:
            self._make_machine(self._image.row.graph)
        elif self._image is not None and self._recover:
            hub.log.warning(
                "thread_of_unknown_graph", thread_id=self.thread_id, graph=self._image.row.graph
            )
        self._take_calls()

    def _make_machine(self, graph_name: str) -> Machine:
        hub = self._hub
        graph = hub.graph(graph_name)
        env = ThreadEnv(hub, hub.codec_of(graph), self._incarnation)
        image = self._image
        state = fold(image, env) if image is not None else RunState(self.thread_id)
        machine = self._machine = Machine(graph, env, state)
        if image is not None:
            machine.begin(recover=self._recover, told=calls_of(image.inbox, env, graph.name))
        self._image = None
        self._fed = True
        return machine

    def _recover_now(self) -> None:
        """Recovery found the thread's actor there, because of a call: is the run taken up too?"""
        self._recover = True
        machine, image = self._machine, self._image
        if machine is None:
            if image is not None and image.row.graph in self._hub.graphs:
                self._make_machine(image.row.graph)
        elif machine.idle:
            machine.begin(recover=True)
            self._fed = True
        self._take_calls()

    def _take_calls(self) -> None:
        if not self._loaded:
            return
        for call in self._hub.waiters.take(self.thread_id, self._incarnation):
            try:
                self._take_call(call)
            except BeamWeaverError as error:
                self._hub.waiters.answer(self.thread_id, call, Answer(None, error))

    def _take_call(self, call: Call) -> None:
        machine = self._machine
        if machine is not None and machine.idle and self._outdated(machine):
            self._image = self._hub.store.load(self.thread_id)
            machine = None
        if machine is None:
            name = call.graph if self._image is None else self._image.row.graph
            if name != call.graph:
                raise wrong_graph(self.thread_id, name, call.graph)
            machine = self._make_machine(name)
        if call.named or call.again:
            self._look_up(call, machine)
        if call.again and not call.waits and self._kept(call, machine):
            return
        machine.call(call)
        self._fed = True

    def _outdated(self, machine: Machine) -> bool:
        """Whether another graph was registered under the name meanwhile: its code runs from now on."""
        return self._hub.graphs.get(machine.graph.name) is not machine.graph

    def _kept(self, call: Call, machine: Machine) -> bool:
        """A told message that is durable already is not taken twice."""
        if any(call.id == kept.id for kept in (*machine.queue, *machine.calls)):
            self._hub.waiters.admitted(self.thread_id, call, call.run_id)
            return True
        return False

    def _look_up(self, call: Call, machine: Machine) -> None:
        row = machine.state.row
        if row is not None and call.run_id not in row.run.names:
            call.known_run = self._hub.store.run_number(self.thread_id, call.run_id)

    # Events -------------------------------------------------------------------------------------

    def _feed(self, event: Callable[[Machine], None]) -> None:
        if self._machine is not None:
            event(self._machine)
            self._fed = True

    def _done(self, token: Any, value: Any) -> None:
        machine = self._machine
        if machine is None or not self._bodies.ended(token):
            return
        self._fed = True
        kind = type(value)
        if kind is Result:
            machine.succeeded(token, value)
        elif kind is Question:
            machine.asked(token, value)
        elif kind is dict:
            machine.routed(token, value)
        else:
            self._fail(machine, token, value)

    def _failed(self, token: Any, error: BaseException) -> None:
        """The framework's own code failed in the attempt; as good as the node's failure."""
        machine = self._machine
        if machine is None or not self._bodies.ended(token):
            return
        node, task_id, number = _who(token)
        self._fail(machine, token, describe(error, node, task_id, number))

    def _fail(self, machine: Machine, token: Any, failure: Failure) -> None:
        self._fed = True
        if isinstance(token, fx.Attempt):
            machine.failed(token, failure)
        else:
            machine.routing_failed(token, failure)

    def _lost(self, token: Any, reason: ExitReason) -> None:
        """The actor of an attempt was killed from outside (its own kills are known already)."""
        machine = self._machine
        if machine is None or not self._bodies.ended(token):
            return
        if isinstance(token, fx.Attempt):
            self._ending[token.step, token.position] = token
        node, task_id, number = _who(token)
        self._fail(machine, token, exit_failure(node, task_id, number, reason))

    def _body_ended(self, token: Any, *, abandoned: bool) -> None:
        key = (token.step, token.position) if isinstance(token, fx.Attempt) else (-1, -1)
        self._ending.pop(key, None)
        self._bodies.gone(token)
        if abandoned:
            self._reload = True
        if self._hub.listeners and isinstance(token, fx.Attempt):
            self._hub.publish(
                AttemptKilled(thread_id=self.thread_id, task_id=token.task_id, abandoned=abandoned)
            )
        held = self._held.pop(key, None)
        if token in self._awaited:
            self._awaited.discard(token)
            self._feed(lambda machine: machine.lost(token))
        clock = self._held_clocks.pop(key, None)
        if held is not None:
            self._start_attempt(held)
            if clock is not None:
                self._set_timer(clock)
        self._fed = True

    def _acknowledged(self, ack: msg.Acknowledged) -> None:
        machine = self._machine
        if machine is None or machine.in_flight is None:
            return
        if machine.in_flight.record.seq == ack.seq:
            if self._hub.fault is not None:
                self._hub.reached("thread.acknowledged", self.thread_id)
            machine.acknowledged()
            self._fed = True

    def _refused(self, refused: msg.Refused) -> None:
        """A commit failed: callers hear it, and the thread stands where the store has it."""
        hub = self._hub
        hub.log.error("commit_failed", thread_id=self.thread_id, error=refused.error.message)
        if hub.listeners:
            hub.publish(StoreTrouble(thread_id=self.thread_id, message=refused.error.message))
        self._bodies.kill_all()
        hub.waiters.fail_thread(self.thread_id, refused.error)
        self._stand_still()

    def _stand_still(self) -> None:
        """Forget the machine; the next call reads the store again."""
        self._machine = None
        self._recover = False
        self._held.clear()
        self._held_clocks.clear()
        self._awaited.clear()
        self._image = self._hub.store.load(self.thread_id)
        self._take_calls()

    def _claim_again(self) -> None:
        """The thread was changed in the store: what is known of it is void, and so is a commit on its way."""
        if self._loaded:
            self._loaded, self._incarnation = False, self._hub.next_incarnation()
            self._stand_still()
            self._claim()

    # Effects ------------------------------------------------------------------------------------

    def _advance(self) -> None:
        machine = self._machine
        self._fed = False
        if machine is None:
            self._drained()
            return
        if self._reload and machine.in_flight is None:
            self._read_again(machine)
        if self._hub.draining:
            machine.drain()
        handlers = self._handlers
        effects: list[Effect] = machine.advance()
        for effect in effects:
            handlers[type(effect)](effect)
        if not machine.active and machine.idle:
            self._rest(machine)

    def _read_again(self, machine: Machine) -> None:
        """An abandoned body may still change shared values: take those of the store instead."""
        self._reload = False
        image = self._hub.store.load(self.thread_id)
        if image is not None:
            machine.replace_state(fold(image, machine.env))

    def _start_attempt(self, effect: fx.StartAttempt) -> None:
        attempt = effect.attempt
        if self._ending and (attempt.step, attempt.position) in self._ending:
            self._held[attempt.step, attempt.position] = effect
            return
        machine, hub = self._machine, self._hub
        if machine is None:
            return
        if hub.fault is not None:
            hub.reached("thread.start", self.thread_id)
        try:
            self._bodies.start(self._frame_of(machine), attempt)
        except Exception as error:  # noqa: BLE001 - no worker to be had is the attempt's failure
            node, task_id, number = _who(attempt)
            self._fail(machine, attempt, describe(error, node, task_id, number))

    def _frame_of(self, machine: Machine) -> Frame:
        row, frame = machine.state.row, self._frame
        assert row is not None, "what runs has a run"
        run_id = row.run.names[0]
        if frame is None or frame.run_id != run_id or frame.graph is not machine.graph:
            codec = self._hub.codec_of(machine.graph)
            frame = self._frame = Frame(self._hub, machine.graph, codec, self.thread_id, run_id)
        return frame

    def _start_transition(self, effect: fx.StartTransition) -> None:
        machine = self._machine
        if machine is None:
            return
        try:
            self._bodies.route(self._frame_of(machine), effect.transition)
        except Exception as error:  # noqa: BLE001 - no worker to be had is the routers' failure
            self._fail(machine, effect.transition, describe(error, "", "", 1))

    def _cancel_attempt(self, effect: fx.CancelAttempt) -> None:
        attempt = effect.attempt
        key = (attempt.step, attempt.position)
        if self._ending.get(key) is attempt:
            # Killed before, and its body still runs.
            if effect.wait:
                self._awaited.add(attempt)
            return
        held = self._held.pop(key, None)
        if held is not None or not self._bodies.kill(attempt):
            if effect.wait:
                self._feed(lambda machine: machine.lost(attempt))
            return
        self._ending[key] = attempt
        if effect.wait:
            self._awaited.add(attempt)

    def _cancel_transition(self, effect: fx.CancelTransition) -> None:
        self._bodies.kill(effect.transition)

    def _write(self, effect: fx.WriteCommit) -> None:
        writer = self._hub.writer
        assert writer is not None, "the writer starts before the threads"
        writer.put_inline(msg.Write(effect.commit, self.cell))

    def _set_timer(self, effect: fx.SetTimer) -> None:
        for key, held in self._held.items():
            if held.attempt.timer == effect.key:
                self._held_clocks[key] = effect
                return
        assert self._hub.timers is not None, "the timers start before the threads"
        self._hub.timers.put(msg.SetTimer(self.cell, effect.key, effect.delay))

    def _drop_timer(self, effect: fx.DropTimer) -> None:
        assert self._hub.timers is not None, "the timers start before the threads"
        self._hub.timers.put(msg.DropTimer(self.cell, effect.key))

    def _admitted(self, effect: fx.Admitted) -> None:
        self._hub.reached("thread.admitted", self.thread_id)
        self._bodies.context = self._hub.waiters.context_of(self.thread_id, effect.call)
        self._hub.waiters.admitted(self.thread_id, effect.call, effect.run_id)

    def _reply(self, effect: fx.Reply) -> None:
        answer = Answer(effect.outcome, effect.error)
        self._hub.waiters.answer(self.thread_id, effect.call, answer)

    def _reply_recorded(self, effect: fx.ReplyRecorded) -> None:
        outcome = recorded_outcome(self._hub, self.thread_id, effect.call, effect.number)
        error = None
        if outcome is None:
            error = UnknownRun(
                f"run {effect.call.run_id!r} of thread {self.thread_id!r} ended without a recorded "
                "outcome: a later run took its place before it was complete",
                thread_id=self.thread_id,
                run_id=effect.call.run_id,
            )
        self._hub.waiters.answer(self.thread_id, effect.call, Answer(outcome, error))

    def _publish(self, effect: fx.Publish) -> None:
        self._hub.publish(effect.event)

    # Leaving ------------------------------------------------------------------------------------

    def _rest(self, machine: Machine) -> None:
        """The run stopped and nobody asks: a thread of a graph without a store leaves at once."""
        self._drained()
        if not self._hub.keeps and machine.state.status is not None:
            self._retire()

    def _drained(self) -> None:
        if self._loaded and not self._bodies:
            for done in self._drains:
                done.offer(None)
            self._drains = []

    def _retire(self) -> None:
        machine = self._machine
        if machine is not None and not (machine.idle and not self._bodies and not self._ending):
            return
        if self._hub.leave(self.thread_id, self.cell):
            if not self._hub.keeps:
                self._discard()
            self.exit()

    def _discard(self) -> None:
        """Nobody can ask for a thread of a graph without a store again: its records go too."""
        writer, thread_id = self._hub.writer, self.thread_id
        if writer is not None:
            gone = self.system.future()
            writer.put_inline(
                Apply(lambda store, epoch: store.delete_thread(epoch, thread_id), gone)
            )


def _who(token: Any) -> tuple[str, str, int]:
    if isinstance(token, fx.Attempt):
        return token.task.node, token.task_id, token.number
    return "", "", 1
