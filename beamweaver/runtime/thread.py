"""The thread actor: the driver of one thread's machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from beamweaver.engine.calls import UNFINISHED
from beamweaver.engine.fold import fold
from beamweaver.engine.machine import Machine
from beamweaver.engine.migrate import open_image
from beamweaver.engine.plan import Routes
from beamweaver.engine.refusals import wrong_graph
from beamweaver.engine.state import Result, RunState, Sleep
from beamweaver.errors import BeamWeaverError, StoreFull
from beamweaver.events import StoreTrouble
from beamweaver.runtime import messages as msg
from beamweaver.runtime.edits import Apply
from beamweaver.runtime.env import ThreadEnv
from beamweaver.runtime.hub import SET_ASIDE
from beamweaver.runtime.inbox import calls_of
from beamweaver.runtime.waiters import Answer
from beamweaver.runtime.writing import ROOM, Writing
from supervisors import Ignore, TaskDone, TaskEnded, TaskFailed
from supervisors.signals import Down

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamweaver.checkpoint.records import ThreadImage
    from beamweaver.engine.calls import Call
    from beamweaver.runtime.hub import Hub
    from supervisors import ExitReason

__all__ = ["ThreadActor"]


class ThreadActor(Writing):
    """Owns the state of one thread: feeds its machine events, and carries out what the machine asks.

    Every incarnation claims its thread at the writer, reads the store, and goes on from there; so a
    crash at any moment costs at most the work whose result was not acknowledged.
    """

    lane: ClassVar[Literal["hi"]] = "hi"
    isolated: ClassVar[bool] = False

    def __init__(self, hub: Hub, thread_id: str) -> None:
        super().__init__(hub, thread_id)
        self._incarnation = hub.next_incarnation()
        self._image: ThreadImage | None = None
        """What was read of the thread and no machine has been made of."""
        self._claimed = False
        self._loaded = False
        self._begun: object | None = None
        """Recovery's wish that was granted last."""
        self._still = False
        """Whether the thread stands still until the next call, for its last commit was refused."""
        self._rung: list[Any] = []
        """Keys of timers that came due while the thread slept; they wait for its place."""

    # Life ---------------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Claim the thread; what older incarnations wrote is in the store when the claim stands."""
        hub = self._hub
        if not hub.table.enter(self.thread_id, self.cell):
            raise Ignore
        if hub.ahead.total:  # what the one before sent is written before the claim
            hub.ahead.note(self.thread_id, 0)
        before = hub.bodies.get(self.thread_id)
        hub.bodies[self.thread_id] = self._bodies
        if before is not None:
            for attempt in self._bodies.adopt(before):
                self._ending[attempt.place] = attempt
        self._claim()

    def _claim(self) -> None:
        writer = self._hub.writer
        assert writer is not None, "the writer starts before the threads"
        writer.put_inline(msg.Claim(self.thread_id, self._incarnation, self.cell))

    def on_stop(self, reason: ExitReason) -> None:  # type: ignore[override]  # pykka gives no reason
        """Let the writer forget the incarnation."""
        del reason
        if self._hub.ahead.total:
            self._hub.ahead.note(self.thread_id, 0)
        if self._hub.writer is not None:
            self._hub.writer.put(msg.Left(self.thread_id, self._incarnation))

    def on_receive(self, message: Any) -> None:
        """One message; the machine advances when no other one waits behind it."""
        kind = type(message)
        if kind is TaskDone:
            self._done(message.token, message.value)
        elif kind is msg.Acknowledged:
            self._acknowledged(message)
        elif message is msg.WAKE:
            self._go_on()
        elif kind is msg.Fired:
            self._fired(message)
        else:
            self._rarely(message)
        while self._fed and not self.cell.q:
            self._advance()

    def on_signal(self, signal: Any) -> None:
        """A node actor ended without a result: it was killed, or it crashed."""
        if type(signal) is Down:
            self._lost(signal.token, signal.reason)
        while self._fed and not self.cell.q:
            self._advance()

    def _rarely(self, message: Any) -> None:
        match message:
            case TaskFailed():
                self._failed(message.token, message.error)
            case TaskEnded():
                self._body_ended(message.token, abandoned=message.abandoned)
            case Down():
                self._lost(message.token, message.reason)
            case msg.Note():
                self._note(message)
            case msg.Call():
                self._call(message)
            case msg.Refused():
                self._refused(message)
            case msg.Claimed():
                self._claimed = True
                self._go_on()
            case msg.DRAIN:
                self._fed = True
                self._go_on()
            case msg.CUT:
                self._feed(Machine.cut)
            case msg.RETIRE:
                self._retire()
            case msg.CHANGED:
                self._claim_again()

    # Going on with the thread -------------------------------------------------------------------

    def _go_on(self) -> None:
        """Do what callers and Recovery want of the thread, and what it has to do by itself."""
        if not self._claimed:
            return
        wish = self._wish()  # a later one is of something that may be other than what is found now
        try:
            if not self._loaded:
                self._load()
            if not self._wanted():
                self._fed = True
                return
            if not self._hub.table.take_place(self.thread_id, self.cell):
                return
            self._begin()
        except BeamWeaverError as error:
            self._set_aside(error, wish)
        else:
            self._take_calls()
        self._fed = True

    def _load(self) -> None:
        hub = self._hub
        hub.reached("thread.load", self.thread_id)
        self._image = hub.store.load(self.thread_id)
        self._loaded = True

    def _wanted(self) -> bool:
        """Whether anybody wants something of the thread, or the thread itself."""
        hub, image = self._hub, self._image
        if hub.waiters.has(self.thread_id) or self._wish() is not None or self._rung:
            return True
        if self._machine is not None or image is None or self._still:
            return False
        return image.row.status in UNFINISHED or bool(image.inbox)

    def _wish(self) -> object | None:
        """Recovery's wish to have the thread taken up, if it was not granted yet."""
        mark = self._hub.table.mark_of(self.thread_id)
        return None if mark is self._begun else mark

    def _begin(self) -> None:
        """Go on with a run of this process, and with one that Recovery wants taken up."""
        hub, wish = self._hub, self._wish()
        if wish is not None and self._machine is not None and self._outdated(self._machine):
            self._machine = None
            self._load()
        machine, image = self._machine, self._image
        if machine is None and image is not None:
            if image.row.graph in hub.graphs:
                self._make_machine(image.row.graph)
            elif wish is not None:
                self._begun = wish
                hub.set_aside(self.thread_id, hub.unknown_graph(image.row.graph))
        elif wish is not None and (machine is None or machine.idle or machine.dozes):
            self._begun = wish
            if machine is not None and machine.idle:
                machine.begin(recover=True)
        rung, self._rung = self._rung, []
        for key in rung:
            self._ring(key)

    def _make_machine(self, graph_name: str) -> Machine:
        hub, wish = self._hub, self._wish()
        graph = hub.graph(graph_name)
        env = ThreadEnv(hub, hub.codec_of(graph), self.thread_id, self._incarnation)
        image = self._image
        if image is None:
            machine = Machine(graph, env, RunState(self.thread_id))
        else:
            opened = open_image(image, graph, env)
            told = calls_of(opened.image.inbox, env, graph.name)
            machine = Machine(graph, env, opened.state)
            self._begun = wish or self._begun
            due = self.thread_id in hub.due
            hub.due.discard(self.thread_id)
            machine.begin(recover=wish is not None, told=told, due=due, opened=opened)
        self._machine, self._image, self._still = machine, None, False
        if machine.unfit is not None:
            hub.set_aside(self.thread_id, machine.unfit)
        elif hub.aside:
            hub.aside.pop(self.thread_id, None)
        return machine

    def _set_aside(self, error: BeamWeaverError, wish: object | None) -> None:
        """Nobody can do anything with the thread now; the next call, or Recovery's next wish, tries again."""
        hub = self._hub
        if isinstance(error, SET_ASIDE):
            hub.set_aside(self.thread_id, error)
        else:
            hub.log.error("thread_unreadable", thread_id=self.thread_id, error=error.message)
            if hub.listeners:
                hub.publish(StoreTrouble(thread_id=self.thread_id, message=error.message))
        self._machine = self._image = None
        self._loaded = False
        self._begun = wish or self._begun
        hub.waiters.fail_thread(self.thread_id, error)

    # Calls --------------------------------------------------------------------------------------

    def _take_calls(self) -> None:
        for call in self._hub.waiters.take(self.thread_id, self._incarnation):
            try:
                self._take_call(call)
            except BeamWeaverError as error:
                self._hub.waiters.answer(self.thread_id, call, Answer(None, error))

    def _take_call(self, call: Call) -> None:
        machine = self._machine
        if machine is not None and self._outdated(machine):
            self._image = self._hub.store.load(self.thread_id)
            machine = None
        if machine is None:
            name = call.graph if self._image is None else self._image.row.graph
            if name != call.graph:
                raise wrong_graph(self.thread_id, name, call.graph)
            machine = self._make_machine(name)
        if call.named or call.again:
            self._look_up(call, machine)
        if call.again and not call.waits:
            if self._kept(call, machine):
                return
            call.message = None  # the commit that was to keep it went with the actor before
        machine.call(call)

    def _outdated(self, machine: Machine) -> bool:
        """Whether another graph was registered under the name meanwhile: its code runs from now on.

        A run that executes here goes on to its end as it began.
        """
        return machine.idle and self._hub.graphs.get(machine.graph.name) is not machine.graph

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
        if machine is None or self._bodies.running.pop(token, None) is None:
            return
        self._fed = True
        kind = type(value)
        owner = token.owner
        if owner is not machine:
            owner.touch()
        if kind is Result:
            owner.succeeded(token, value)
        elif kind is tuple:
            self._tainted = True
            owner.asked(token, *value)
        elif kind is Sleep:
            self._tainted = True
            owner.slept(token, value)
        elif kind is Routes:
            owner.routed(token, value)
        else:
            self._fail(token, value)

    def _ring(self, key: Any) -> None:
        """A timer of the machine is due."""
        if self._tainted and _innermost(key)[0] in ("retry", "sleep"):
            self._reload = True  # before it advances
        self._feed(lambda machine: machine.fired(key))

    def _fired(self, fired: msg.Fired) -> None:
        machine = self._machine
        if fired.key is not ROOM:
            if machine is not None and machine.dozes:
                self._rung.append(fired.key)
                self._go_on()
            else:
                self._ring(fired.key)
        elif self._machine is None:
            self._still = False
            self._hub.ensure(self.thread_id, recover=self._begun is not None)
        else:
            self._write_again(self._machine)

    def _acknowledged(self, ack: msg.Acknowledged) -> None:
        machine = self._machine
        if machine is None:
            return
        if self._hub.fault is not None:
            self._hub.reached("thread.acknowledged", self.thread_id)
        if machine.in_flight is not None and machine.in_flight.record.seq == ack.seq:
            if self._tainted and machine.settled:
                self._read_again(machine)  # the store has all of it, and nobody has heard of it yet
            machine.acknowledged()
            self._fed = True
        elif machine.window:
            machine.acknowledged_ahead(ack.seq)
            self._fed = True

    def _refused(self, refused: msg.Refused) -> None:
        """A commit failed: callers hear it, and the thread stands where the store has it.

        What is on its way after it cannot be written either; the new claim makes it void. In a full store a
        run that executes waits where it is, until there is room.
        """
        hub, machine, error = self._hub, self._machine, refused.error
        if not self._claimed:
            return  # it was void already
        if self._unwritten is not None:
            self._unwritten.discard(refused.seq)
            return
        full = isinstance(error, StoreFull)
        if not (
            self._again(refused.seq, full=full) and full
        ):  # of a run that waits for room it is said once
            hub.log.error("commit_failed", thread_id=self.thread_id, error=error.message)
            if hub.listeners:
                hub.publish(StoreTrouble(thread_id=self.thread_id, message=error.message))
        if full and machine is not None and machine.active:
            self._wait_for_room(machine, refused.seq)
            return
        if full or self._goes_on():
            self._try_later()
        self._bodies.kill_all()
        hub.waiters.fail_thread(self.thread_id, error)
        self._claimed, self._incarnation = False, hub.next_incarnation()
        self._stand_still()
        self._claim()

    def _stand_still(self) -> None:
        """Forget the machine; the next call reads the store again."""
        self._machine = self._image = None
        self._still, self._loaded = True, False
        self._wait_no_more()
        if self._hub.ahead.total:
            self._hub.ahead.note(self.thread_id, 0)
        self._held.clear()
        self._held_clocks.clear()
        self._awaited.clear()
        self._go_on()

    def _claim_again(self) -> None:
        """The thread was changed in the store: what is known of it is void, and so is a commit on its way."""
        if self._claimed:
            self._claimed, self._incarnation = False, self._hub.next_incarnation()
            self._stand_still()
            self._still = False
            self._claim()

    # Advancing ----------------------------------------------------------------------------------

    def _advance(self) -> None:
        machine = self._machine
        self._fed = False
        if machine is None:
            self._rest()
            return
        if (self._tainted or self._reload) and not self._read_changed(machine):
            for effect in machine.asked_for():
                self._handlers[type(effect)](effect)
            return
        if self._hub.draining:
            machine.drain()
        handlers = self._handlers
        for effect in machine.advance():
            handlers[type(effect)](effect)
        if (machine.dozes or not machine.active) and machine.at_rest:
            self._rest()

    def _read_changed(self, machine: Machine) -> bool:
        """Bodies that gave no result may have changed values in place: see that nobody finds those.

        Whoever is next sees those of the store instead, when it has all that is known here.

        Returns:
            False if it has not: its answer comes.
        """
        waits = machine.active and not (machine.settled or machine.family)
        if waits and not self._reload:
            return True
        if not machine.catch_up():
            return False
        self._read_again(machine)
        return True

    def _read_again(self, machine: Machine) -> None:
        """Take the values of the store, which has all that is known here."""
        self._tainted = self._reload = False
        image = self._hub.store.load(self.thread_id)
        if image is not None:
            machine.replace_state(fold(image, machine.env))

    def _rest(self) -> None:
        """Nothing of the thread runs: others have its place; without a store it leaves at once."""
        hub = self._hub
        if not self._claimed or self._bodies:
            return
        if not hub.table.rest(self.thread_id, self.cell, self._begun):
            self._go_on()
        elif not hub.keeps and self._loaded:
            self._retire()

    # Leaving ------------------------------------------------------------------------------------

    def _retire(self) -> None:
        machine = self._machine
        if machine is not None and (self._bodies or self._ending or not machine.may_leave):
            return
        if not self._claimed or self._rung:
            return
        self._hub.bodies.pop(self.thread_id, None)  # first: a successor has its own
        if not self._hub.table.leave(self.thread_id, self.cell):
            self._hub.bodies[self.thread_id] = self._bodies
            return
        if not self._hub.keeps:
            self._discard()
        elif machine is not None and machine.dozes:
            self._sleep_on(machine)
        self.exit()

    def _sleep_on(self, machine: Machine) -> None:
        """Have Recovery wake the thread; this actor's timers are nobody's from now on."""
        machine.start_nothing()
        for effect in machine.advance():
            self._handlers[type(effect)](effect)
        run = machine.state.run
        if self._hub.recovery is not None:
            rest = machine.env.rest_of(run.due_us, run.delay)
            self._hub.recovery.put(msg.Sleeps(self.thread_id, rest))

    def _discard(self) -> None:
        """Nobody can ask for a thread of a graph without a store again: its records go too."""
        writer, thread_id = self._hub.writer, self.thread_id
        if writer is not None:
            gone = self.system.future()
            writer.put_inline(
                Apply(lambda store, epoch: store.delete_thread(epoch, thread_id), gone)
            )


def _innermost(key: Any) -> Any:
    """The key of a timer as the machine that asked for it knows it: a subgraph's is wrapped."""
    while key[0] == "in":
        key = key[3]
    return key
