"""A driver without actors or threads: node bodies run inline, time is virtual, records are in memory.

Every effect of the machine becomes an *action*. Actions are carried out one at a time: oldest first, or
in an order that a seed draws. Time moves only when no action is left. So a seed replays a whole history.

A `Driver` may crash at any commit: the machine is thrown away, and the next process (a new store epoch)
folds what the store has and begins again.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from typing import Any

from beamweaver.checkpoint import MemoryCheckpointer
from beamweaver.checkpoint.codec import Codec
from beamweaver.checkpoint.entries import Memo
from beamweaver.checkpoint.records import RunOptions
from beamweaver.engine import Call, CallKind, Machine, Prepared, RunState
from beamweaver.engine import effects as fx
from beamweaver.engine.calling import Calling
from beamweaver.engine.failures import describe, exit_failure
from beamweaver.engine.ids import checkpoint_id
from beamweaver.engine.migrate import open_image
from beamweaver.engine.plan import Routes
from beamweaver.engine.rows import input_data
from beamweaver.engine.state import Edit, Question, Result, Sleep, Write
from beamweaver.events import TaskAcknowledged
from beamweaver.graph.edits import normalize_update
from beamweaver.graph.updates import call_node, normalize, normalize_input
from beamweaver.limits import DEFAULT_LIMITS
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.results import planned
from tests.engine.driver_parts import (
    HANGS,
    Asks,
    Calls,
    Count,
    Crashed,
    Ctx,
    Exits,
    Fixed,
    Later,
    TestEnv,
    awaited,
    check_fold,
    choose,
    goto,
    placed,
    recorded,
    told,
    without,
)

__all__ = ["HANGS", "Asks", "Crashed", "Ctx", "Driver", "Exits", "Later", "TestEnv", "goto"]

START_TIME = 1_700_000_000.0
NOTHING = object()


class Driver:
    """Drives the machine of one thread.

    Args:
        graph: The graph; may be replaced before a crash, as new code would.
        seed: None carries actions out in the order in which they came; else the seed draws the order.
        crash_at: The number of the commit (from 0) at which the process dies, counted over all processes.
        written: Whether that commit reaches the store before the process dies.
    """

    def __init__(
        self,
        graph: Any,
        *,
        thread_id: str = "t",
        seed: int | None = None,
        limits: Any = DEFAULT_LIMITS,
        publishing: bool = True,
        crash_at: int | None = None,
        written: bool = True,
        recover: bool = True,
        chance: float | None = None,
        store: Any = None,
    ) -> None:
        self.graph = graph
        self.thread_id = thread_id
        self.limits = limits
        self.publishing = publishing
        self.crash_at, self.written = crash_at, written
        self.recover = recover
        self.order = random.Random(seed) if seed is not None else None
        self.rng = random.Random(0) if chance is None else Fixed(chance)
        self.codec = Codec(limits=limits)
        self.plans: dict[Any, GraphCodec] = {}
        self.store = MemoryCheckpointer() if store is None else store
        self.ids = Count()
        self.call_ids = Count()
        self.incarnations = Count(1)
        self.now = START_TIME
        self.commits: list[Any] = []
        self.effects: list[Any] = []
        self.events: list[Any] = []
        self.replies: dict[str, fx.Reply] = {}
        self.failed: list[Exception] = []
        self.reply_counts: Counter[str] = Counter()
        self.admitted: list[tuple[str, str]] = []
        self.calls: list[Call] = []
        """Calls of this process that have no answer yet."""
        self.started: list[fx.Attempt] = []
        self.killed: list[fx.Attempt] = []
        self.ahead = 0  # bytes in the window
        self.noted: list[Any] = []
        """Tokens of notes that are durable."""
        self.log: list[str] = []
        """Nodes in the order in which their bodies ran."""
        self.finished: set[str] = set()
        """Tasks whose results were acknowledged."""
        self.faults: list[str] = []
        """Tasks that ran although their results had been acknowledged."""
        self.asked: list[str] = []
        """Guarded edges whose predicates were asked."""
        self.options: Any = None
        """What each call gives that gives nothing of its own."""
        self.watch: Any = None
        """Told the driver, the commit and whether it is written, around each; if true, the process dies."""
        self.checks = False
        """Whether each acknowledged state is compared with what the store folds to."""
        self.begin_process()

    # Processes ----------------------------------------------------------------------------------

    def begin_process(self) -> None:
        """A new owner of the store begins: fold, and go on."""
        self.epoch = self.store.acquire()
        self.calls = []
        self.begin_actor()

    def begin_actor(self) -> None:
        """A new actor of the thread in the same process; calls without an answer are handed to it again."""
        self.actions: list[tuple[str, Any]] = []
        self.timers: dict[Any, float] = {}
        self.later: list[tuple[float, int, tuple[str, Any]]] = []
        self.callers: dict[Calling, fx.Attempt] = {}
        """The attempts whose bodies wait for a graph that they called."""
        self.env = TestEnv(self)
        image = self.store.load(self.thread_id)
        opened = None if image is None else open_image(image, self.graph, self.env)
        state = RunState(self.thread_id) if opened is None else opened.state
        self.machine = Machine(self.graph, self.env, state)
        if opened is not None:
            inbox = [told(message, self) for message in opened.image.inbox]
            self.machine.begin(recover=self.recover, told=inbox, opened=opened)
        kept = {call.id for call in (*self.machine.queue, *self.machine.calls)}
        for call in list(self.calls):
            call.again = True
            call.message = None
            if call.id in kept:
                self.calls.remove(call)
            else:
                self._hand(call)

    def plans_of(self, graph: Any) -> GraphCodec:
        """The encoding of a graph's channels, made once for all processes."""
        if graph not in self.plans:
            self.plans[graph] = GraphCodec(self.codec, graph)
        return self.plans[graph]

    def crash(self) -> None:
        """The process dies, and the next one begins."""
        self.store.release()
        self.begin_process()

    def restart_actor(self) -> None:
        """The thread's actor dies, and the next one begins."""
        self.begin_actor()

    # Calls --------------------------------------------------------------------------------------

    def send(
        self, kind: CallKind, value: Any = None, *, graph: str | None = None, **options: Any
    ) -> Call:
        """Feed a call; nothing is carried out yet."""
        id_ = f"c{next(self.call_ids)}"
        run_id = options.pop("run_id", None)
        if self.options is not None:
            options.setdefault("options", self.options)
        if value is not None:
            options["input"] = self.prepared(value)
        given = {
            name: options.pop(name) for name in RunOptions.__struct_fields__ if name in options
        }
        if given:
            options["options"] = RunOptions(**given)
        call = Call(
            id_,
            kind,
            graph or self.graph.name,
            run_id or f"r-{id_}",
            named=run_id is not None,
            **options,
        )
        self.calls.append(call)
        self._hand(call)
        return call

    def _hand(self, call: Call) -> None:
        row = self.machine.state.row
        if (call.named or call.again) and row is not None and call.run_id not in row.run.names:
            call.known_run = self.store.run_number(self.thread_id, call.run_id)
        self.machine.call(call)

    def prepared(self, value: Any, graph: Any = None, env: Any = None) -> Prepared:
        answer = normalize_input(graph or self.graph, value)
        result = self.result_of(answer, env)
        digest = self.codec.digest(input_data(result.writes, result.goto, result.sends))
        return Prepared(result.writes, digest, result.goto, result.sends)

    def answer(self, call: Call) -> Any:
        """The outcome of a call; raises what the call raises."""
        assert call.id in self.replies, f"call {call.id} ({call.kind}) has no answer: it hangs"
        reply = self.replies[call.id]
        if reply.error is not None:
            raise reply.error
        return reply.outcome

    def call(self, kind: CallKind, value: Any = None, **options: Any) -> Any:
        """Make a call, run until nothing is left to do, and give its outcome."""
        call = self.send(kind, value, **options)
        self.run()
        return self.answer(call)

    def invoke(self, value: Any, **options: Any) -> Any:
        """`invoke(value)`; None continues."""
        if value is None:
            return self.go_on(**options)
        return self.call(CallKind.INVOKE, value, **options)

    def go_on(self, **options: Any) -> Any:
        """`invoke(None)`."""
        return self.call(CallKind.CONTINUE, **options)

    def resume(self, answer: Any = NOTHING, **options: Any) -> Any:
        """`resume(answer)` or `resume(answers=…)`."""
        if answer is NOTHING and "answers" not in options:
            return self.go_on(**options)
        answer = None if answer is NOTHING else answer
        return self.call(CallKind.RESUME, answer=answer, **options)

    def update(self, values: Any, as_node: str | None = None, **options: Any) -> str:
        """`update_state`; gives the new checkpoint's id."""
        return self.answer(self.send_update([[(values, as_node)]], **options)).checkpoint_id

    def send_update(self, supersteps: Any, *, runs: bool = True, **options: Any) -> Call:
        """Feed an edit: for each superstep its pairs of values and node."""
        made = []
        for updates in supersteps:
            edits = []
            for values, node in updates:
                result = self.result_of(normalize_update(self.graph, node, values))
                edits.append(Edit(node, Prepared(result.writes, b"", result.goto, result.sends)))
            made.append(tuple(edits))
        call = self.send(CallKind.UPDATE, updates=tuple(made), **placed(options))
        if runs:
            self.run()
        return call

    def branch(self, kind: CallKind, value: Any = None, **options: Any) -> Any:
        """A call from `checkpoint=`, or with `fork=True`."""
        return self.call(kind, value, **placed(options))

    @property
    def head(self) -> str:
        """The id of the head."""
        state = self.machine.state
        return checkpoint_id(state.branch, state.checkpoint_seq)

    def tell(self, value: Any, kind: CallKind = CallKind.INVOKE, **options: Any) -> Call:
        """A call that nobody waits for."""
        return self.send(kind, value, waits=False, **options)

    def fails(self, value: Any = None, **options: Any) -> BaseException:
        """The error of an `invoke`."""
        try:
            outcome = self.invoke(value, **options)
        except Exception as error:
            return error
        raise AssertionError(f"the run did not fail: {outcome}")

    def send_invoke(self, value: Any, **options: Any) -> Call:
        """Feed an `invoke`."""
        return self.send(CallKind.INVOKE, value, **options)

    def invoke_and_crash(self, value: Any, *, when: Any) -> None:
        """Invoke, kill the process when `when()` holds, and run the next one to its end."""
        self.send_invoke(value)
        self.run(until=when)
        assert when(), "the moment of the crash never came"
        self.crash()
        self.run()

    # What is there ------------------------------------------------------------------------------

    @property
    def status(self) -> Any:
        return self.machine.state.status

    @property
    def values(self) -> dict[str, Any]:
        """The values that a store keeps."""
        return without(self.machine.state.values, self.graph.unstored)

    @property
    def stored_status(self) -> Any:
        image = self.store.load(self.thread_id)
        return None if image is None else image.row.status

    @property
    def inbox(self) -> tuple[Any, ...]:
        image = self.store.load(self.thread_id)
        return () if image is None else image.inbox

    @property
    def row(self) -> Any:
        return self.store.load(self.thread_id).row

    def runs(self, node: str) -> int:
        """How often the node's body ran."""
        return self.log.count(node)

    def entries(self, kind: type) -> list[Any]:
        """Entries of that kind in all commits."""
        return [e for c in self.commits for e in c.record.entries if type(e) is kind]

    def entries_kept(self) -> int:
        """How many entries follow the newest checkpoint."""
        image = self.store.load(self.thread_id)
        return 0 if image is None else sum(len(record.entries) for record in image.entries)

    def told_events(self, kind: type) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    # Running ------------------------------------------------------------------------------------

    def run(self, until: Any = None, *, seconds: float | None = None) -> None:
        """Carry out what there is, until nothing is left, `until()` holds, or that much time has passed."""
        deadline = float("inf") if seconds is None else self.now + seconds
        while until is None or not until():
            self.advance()
            if until is not None and until():
                break
            if self.actions:
                self.step()
            elif not self._move_time(deadline):
                break

    def advance(self) -> None:
        """Let the machine advance, and take its effects."""
        for effect in self.machine.advance():
            self.effects.append(effect)
            self._take(effect)

    def step(self) -> None:
        """Carry out one action."""
        index = 0
        if self.order is not None:
            index = self.order.randrange(len(self.actions))
            if self.actions[index][0] == "write":  # those of a thread keep their order
                index = [what for what, _token in self.actions].index("write")
        what, token = self.actions.pop(index)
        getattr(self, f"_do_{what}")(token)

    def _move_time(self, deadline: float) -> bool:
        due = min([*self.timers.values(), *(t for t, _n, _a in self.later)], default=float("inf"))
        if due == float("inf") or due > deadline:
            self.now = max(self.now, deadline) if deadline != float("inf") else self.now
            return False
        self.now = max(self.now, due)
        for key, at in sorted(self.timers.items(), key=lambda item: item[1]):
            if at <= self.now:
                del self.timers[key]
                self.actions.append(("fire", key))
        self.actions.extend(action for at, _n, action in self.later if at <= self.now)
        self.later = [entry for entry in self.later if entry[0] > self.now]
        return True

    def _take(self, effect: Any) -> None:
        match effect:
            case fx.WriteCommit() | fx.WriteAhead():
                self.actions.append(("write", effect.commit))
            case fx.WriteCommits():
                self.actions.append(("write_all", effect.commits))
            case fx.StartAttempt():
                self._start(effect.attempt)
            case fx.StartTransition():
                self.actions.append(("route", effect.transition))
            case fx.CancelAttempt():
                self.killed.append(effect.attempt)
                if effect.wait:
                    self.actions.append(("lost", effect.attempt))
            case fx.SetTimer():
                self.timers[effect.key] = self.now + effect.delay
            case fx.DropTimer():
                self.timers.pop(effect.key, None)
            case fx.Admitted():
                self.admitted.append((effect.call.id, effect.run_id))
                if not effect.call.waits:
                    self._forget(effect.call)
            case fx.Reply():
                self._answered(effect)
            case fx.ReplyRecorded():
                self._answered(fx.Reply(effect.call, *recorded(self, effect)))
            case fx.LogFailure():
                self.failed.append(effect.error)
            case fx.Noted() if isinstance(effect.token, Calling):
                self.actions.append(("called", effect.token))
            case fx.Noted():
                self.noted.append(effect.token)
            case fx.Publish():
                self.events.append(effect.event)
                told = self.machine.runs_ahead or getattr(effect.event, "namespace", ())
                if type(effect.event) is TaskAcknowledged and told:
                    self.finished.add(effect.event.task_id)

    def _answered(self, reply: fx.Reply) -> None:
        self.replies[reply.call.id] = reply
        self.reply_counts[reply.call.id] += 1
        self._forget(reply.call)

    def _forget(self, call: Call) -> None:
        self.calls = [other for other in self.calls if other.id != call.id]

    # Attempts -----------------------------------------------------------------------------------

    def _start(self, attempt: fx.Attempt) -> None:
        self.started.append(attempt)
        if attempt.task_id in self.finished:
            self.faults.append(f"{attempt.task.node} (step {attempt.step}) ran again")
        self.log.append(attempt.task.node)
        self._run_body(attempt)

    def _run_body(self, attempt: fx.Attempt) -> None:
        value = self._body(attempt)
        if isinstance(value, Calling):
            self.callers[value] = attempt
            self.actions.append(("call", value))
            return
        delay = 0.0
        if isinstance(value, Later):
            delay, value = value.seconds, value.value
            value = self._judged(attempt, value)
        action = ("end", (attempt, value))
        if delay:
            self.later.append((self.now + delay, len(self.started), action))
        else:
            self.actions.append(action)

    def _body(self, attempt: fx.Attempt) -> Any:
        try:
            attempt.view = attempt.owner.graph.view(attempt.view, attempt.node)
            returned = call_node(attempt.node, attempt.view, Ctx(self, attempt))
            if inspect.iscoroutine(returned):
                returned = awaited(returned)
        except Asks as asks:
            return asks.question
        except Calls as calls:
            return calls.calling
        except Crashed:
            raise
        except BaseException as error:
            return error
        return returned if isinstance(returned, Later) else self._judged(attempt, returned)

    def _judged(self, attempt: fx.Attempt, returned: Any) -> Any:
        if isinstance(returned, (BaseException, Exits)):
            return returned
        try:
            return self._result(attempt, returned)
        except Exception as error:
            return error

    def _result(self, attempt: fx.Attempt, returned: Any) -> Result:
        owner = attempt.owner
        nested = owner.outer is not None
        answer = normalize(owner.graph, attempt.node, returned, nested=nested)
        result = self.result_of(answer, owner.env)
        if answer.parent:
            judged = normalize(owner.outer.graph, owner.attempt.node, list(answer.parent))
            result.up = self.result_of(judged, owner.outer.env)
            result.goto = result.goto or ()
        return result

    def result_of(self, answer: Any, env: Any = None) -> Result:
        env = env or self.env
        encode = env.encode
        writes = tuple(Write(c, v, encode(c, v), over) for c, v, over in answer.writes)
        return Result(writes, answer.goto, planned(env.plans, answer.sends, ""))

    # Actions ------------------------------------------------------------------------------------

    def _do_end(self, token: Any) -> None:
        attempt, value = token
        owner = self._owner(attempt)
        match value:
            case Result():
                owner.succeeded(attempt, value)
            case Question():
                owner.asked(attempt, value)
            case None:
                owner.asked(attempt)
            case Sleep():
                owner.slept(attempt, value)
            case Exits():
                failure = exit_failure(attempt.task.node, attempt.task_id, attempt.number, "killed")
                owner.failed(attempt, failure)
            case _:
                failure = describe(value, attempt.task.node, attempt.task_id, attempt.number)
                owner.failed(attempt, failure)

    def _do_call(self, calling: Calling) -> None:
        attempt = self.callers[calling]
        self._owner(attempt).called(attempt, calling)

    def _do_called(self, calling: Calling) -> None:
        """A body that called a graph goes on: it runs again from its top, where it has not ended."""
        attempt = self.callers.pop(calling)
        if calling.given_up:
            return
        if type(calling.end) is Memo:
            self._run_body(attempt)
        else:
            self.actions.append(("end", (attempt, calling.end)))

    def _owner(self, token: Any) -> Any:
        """The machine that hears of an attempt or transition: that of the graph which it is of."""
        token.owner.touch()
        return token.owner

    def _do_lost(self, attempt: fx.Attempt) -> None:
        self._owner(attempt).lost(attempt)

    def _do_fire(self, key: Any) -> None:
        self.machine.fired(key)

    def _do_route(self, transition: fx.Transition) -> None:
        owner = self._owner(transition)
        routes = choose(self, transition, owner)
        if isinstance(routes, Routes):
            owner.routed(transition, routes)
        else:
            owner.routing_failed(transition, routes)

    def _do_write(self, commit: Any) -> None:
        self._write([commit])
        self._note(commit)
        flying = self.machine.in_flight
        if flying is not None and flying.record.seq == commit.record.seq:
            if self.checks:
                check_fold(self)
            self.machine.acknowledged()
        else:
            self.machine.acknowledged_ahead(commit.record.seq)

    def _do_write_all(self, commits: list[Any]) -> None:
        self._write(commits)
        if self.checks:
            check_fold(self)
        self.machine.acknowledged()

    def _write(self, commits: list[Any]) -> None:
        number = len(self.commits)
        self._perhaps_dies(number, commits[-1], written=False)
        assert self.store.commit(self.epoch, commits) == [None] * len(commits), commits
        self.commits.append(commits[-1])
        self._perhaps_dies(number, commits[-1], written=True)

    def _perhaps_dies(self, number: int, commit: Any, *, written: bool) -> None:
        dies = self.crash_at == number and self.written == written
        if dies:
            self.crash_at = None
        if dies or (self.watch is not None and self.watch(self, commit, written)):
            raise Crashed(f"{'after' if written else 'before'} commit {number}")

    def _note(self, commit: Any) -> None:
        """Which tasks' results are acknowledged now."""
        checkpoint = commit.record.checkpoint
        if checkpoint is None and self.machine.runs_ahead:
            return  # the step may be over; an event tells of each
        if checkpoint is not None and checkpoint.source == "migrate":
            return  # its tasks are those of the open step
        if checkpoint is not None:
            step = checkpoint.step
            self.finished.update(a.task_id for a in self.started if a.place[0] <= step)
        else:
            step = self.machine.state.step
            for entry in commit.record.entries:
                if hasattr(entry, "sends") and hasattr(entry, "task"):
                    self.finished.add(self.machine.state.id_of(step.tasks[entry.task]))
