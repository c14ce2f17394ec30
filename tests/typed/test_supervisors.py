"""Uses of the public names of `supervisors` in a typed program: they run, and mypy and pyright pass.

Pyright judges this folder in its strict mode (`[tool.pyright]`), mypy too (`[tool.mypy]`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

import pykka

from supervisors import (
    BRUTAL_KILL,
    INFINITY,
    KILLED,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    Actor,
    ActorExit,
    ActorRef,
    ActorSystem,
    Backoff,
    CancelToken,
    Cell,
    ChildCounts,
    ChildInfo,
    ChildReply,
    ChildSpec,
    Crashed,
    Down,
    DynamicSupervisor,
    Event,
    Exit,
    ExitReason,
    Failed,
    Future,
    Ignore,
    Limits,
    MonitorRef,
    Node,
    Ok,
    PartitionSupervisor,
    PoolScheduler,
    Refuse,
    Registry,
    Reply,
    Shutdown,
    StartChild,
    Statistics,
    Supervisor,
    Task,
    TaskActor,
    TaskDone,
    TaskEnded,
    TaskFailed,
    Tasks,
    TaskSupervisor,
    ThreadScheduler,
    TimerRef,
    Via,
    WhichChildren,
    cancellation,
    count_children,
    delete_child,
    drain,
    dump,
    exit_after,
    get_child_spec,
    get_state,
    is_quiet,
    partition,
    partitions,
    resize,
    restart_child,
    resume,
    shield,
    start_child,
    suspend,
    terminate_child,
    tree,
    which_children,
)
from supervisors.asynchronous import AsyncActor
from supervisors.process import Codec, ProcessActor, ProcessPool
from supervisors.testing import DeterministicScheduler, Recorder, VirtualClock, exit_reason, leaks


class Counter(Actor):
    """Adds up."""

    mailbox_limit = 100
    interruptible = True

    def __init__(self, start: int = 0) -> None:
        self.value = start
        self.heard: list[Exit | Down] = []
        self.trap_exit = True

    def on_start(self) -> None:
        if self.value < 0:
            raise Ignore
        self.handle_continue("warm")

    def on_continue(self, term: Any) -> None:
        self.warm: object = term

    def on_receive(self, message: Any) -> Any:
        if not isinstance(message, int):
            raise Refuse(TypeError("a number"))
        self.value += message
        return self.value

    def on_signal(self, signal: Exit | Down) -> None:
        self.heard.append(signal)

    def on_stop(self, reason: ExitReason = NORMAL) -> None:
        self.value = 0


@dataclass(frozen=True)
class Look:
    """A message: watch another, and cease to."""

    other: ActorRef[Any]


class Waiting(Actor):
    """Watches, links, defers, and asks its supervisor without waiting."""

    lane = "lo"
    execution = "thread"
    reply: Reply

    def on_receive(self, message: Any) -> Any:
        match message:
            case Look(other):
                monitor: MonitorRef = self.monitor(other)
                self.link(other)
                self.unlink(other)
                return monitor.cancel()
            case ChildReply(_, value, None):
                return self.reply.set(value)
            case _:
                self.reply = self.defer()
                message.tell(WhichChildren((self.cell, "children")))
                return None


class Body(TaskActor):
    """Sums up."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def run(self) -> int:
        with shield():
            return sum(self.numbers)


class Echo(AsyncActor):
    """Echoes."""

    async def setup(self) -> None:
        await asyncio.sleep(0)

    async def handle(self, message: Any) -> Any:
        await asyncio.sleep(0)
        return message

    async def teardown(self, reason: ExitReason) -> None:
        await asyncio.sleep(0)


class Old(pykka.ThreadingActor):
    """One of pykka's own."""

    def double(self, n: int) -> int:
        return 2 * n


def _quiet(event: Event) -> None:
    assert event.kind


def test_actors_and_references() -> None:
    letters: list[object] = []
    with ActorSystem(
        PoolScheduler(base=1, max_workers=8),
        on_event=_quiet,
        on_dead_letter=lambda actor, message, reason: letters.append((actor, message, reason)),
        limits=Limits(kill_grace=0.2),
    ) as system:
        counter = assert_type(system.start(Counter, 1, name="counter"), ActorRef[Counter])
        counter.tell(1)
        assert counter.ask(1, timeout=5) == 3
        future = assert_type(counter.ask(1, block=False), Future[Any])
        assert (future.get(timeout=5), future.done()) == (4, True)
        assert_type(counter.is_alive(), bool)
        assert_type(system.whereis("counter"), ActorRef[Any] | None)
        cell = assert_type(system.spawn(Counter, 5), Cell)
        assert_type(cell.ref, ActorRef[Any])
        timer = assert_type(system.send_after(60, counter, 1), TimerRef)
        assert timer.cancel()
        assert system.send_every(60, counter, 1).cancel()
        ended = assert_type(system.monitor_from_outside(counter), Future[ExitReason])
        exit_after(system, 60, counter, KILLED).cancel()
        suspend(counter)
        resume(counter)
        assert_type(get_state(counter), dict[str, object])
        assert_type(counter.stop(timeout=5, reason=SHUTDOWN), bool)
        assert is_quiet(ended.get(timeout=5))
        system.exit(cell, Abnormal("enough"))
        assert_type(drain(system.start(Counter)), bool)
        waiting = system.start(Waiting)
        waiting.ask(Look(system.start(Counter)), timeout=5)
        assert_type(system.statistics(), Statistics)
        assert_type(tree(system), Node)
        assert_type(dump(system), str)
    assert letters == []


def test_exit_reasons_are_told_apart() -> None:
    def word(reason: ExitReason) -> str:
        match reason:
            case Crashed(error):
                return assert_type(error, BaseException).__class__.__name__
            case Shutdown(term) | Abnormal(term):
                return str(assert_type(term, object))
            case _:
                return reason.name

    assert [word(Crashed(ValueError())), word(Shutdown("x")), word(KILLED)] == [
        "ValueError",
        "x",
        "killed",
    ]


def test_supervisors() -> None:
    with ActorSystem(on_event=_quiet) as system:
        specs = [
            ChildSpec("a", Counter, (1,), restart="transient", shutdown=BRUTAL_KILL),
            ChildSpec("b", Counter, kwargs={"start": 2}, shutdown=INFINITY, significant=False),
            ChildSpec("old", Old),
        ]
        root = assert_type(
            system.start(Supervisor, specs, strategy="rest_for_one", backoff=Backoff(0.1)),
            ActorRef[Supervisor],
        )
        children = assert_type(which_children(root), list[ChildInfo])
        assert_type(count_children(root), ChildCounts)
        assert_type(get_child_spec(root, "a"), ChildSpec)
        terminate_child(root, "a")
        assert_type(restart_child(root, "a"), ActorRef[Any] | None)
        terminate_child(root, "a")
        delete_child(root, "a")
        assert_type(start_child(root, specs[0]), ActorRef[Any] | None)
        assert len(children) == 3
        waiting = system.start(Waiting)
        assert len(waiting.ask(root, timeout=5)) == 3

        pool = system.start(DynamicSupervisor, max_children=2, budget="child", extra_args=(1,))
        pool.tell(StartChild(ChildSpec(None, Counter)))
        shards = system.start(PartitionSupervisor, ChildSpec(None, Counter), 2)
        assert_type(partition(shards, "key"), ActorRef[Any])
        resize(shards, 3)
        assert assert_type(partitions(shards), int) == 3


def test_tasks() -> None:
    with ActorSystem(on_event=_quiet) as system:
        tasks = Tasks(system.start(TaskSupervisor, max_children=10))

        def length(text: str) -> int:
            return len(text)

        task = assert_type(tasks.run(length, "four"), Task[int])
        assert assert_type(task.await_(), int) == 4
        outcome = assert_type(tasks.run(length, "four").yield_(5), Ok | Failed | None)
        assert outcome == Ok(4)
        assert_type(tasks.run_linked(length, "x").shutdown(), Ok | Failed | None)
        tasks.start(length, "x")
        assert [
            o for o in tasks.stream(length, ["a", "bb"], ordered=False) if o == Failed(KILLED)
        ] == []

        seen: list[TaskDone | TaskFailed | TaskEnded] = []
        owner = system.start(Recorder, seen, [])
        body = assert_type(system.spawn_task(Body, [1, 2], owner=owner.cell, token="t"), Body)
        assert_type(body.kill(), bool)
        assert_type(cancellation(), CancelToken)


def test_registries() -> None:
    names = Registry("names", keys="unique")
    with ActorSystem(on_event=_quiet) as system:
        system.start(Supervisor, [names.child_spec()])
        ref = system.start(Counter, name=Via(names, ("order", 17)))
        assert assert_type(names.whereis(("order", 17)), ActorRef[Any] | None) == ref
        with names.lock("key"):
            assert names.dispatch(("order", 17), lambda entry: entry.value) == 1


def test_other_places_to_run() -> None:
    async def converse(ref: ActorRef[Any]) -> object:
        answer: object = await ref.ask_async("hello", timeout=5)
        assert answer == await ref.ask("hello", block=False)
        return answer

    with ActorSystem(ThreadScheduler(), on_event=_quiet) as system:
        assert asyncio.run(converse(system.start(Echo))) == "hello"
        pool = ProcessPool(system, warm=0, codec=Codec())
        assert pool.call("math:hypot", 3, 4) == 5.0
        assert assert_type(pool.close(), bool)
        assert ChildSpec("process", ProcessActor, ("module:Class",)).actor is ProcessActor


def test_simulations() -> None:
    scheduler = DeterministicScheduler(seed=1, clock=VirtualClock())
    system = ActorSystem(scheduler, on_event=_quiet)
    ref = system.start(Counter)
    scheduler.run_for(10.0)
    ref.stop(block=False)
    try:
        ref.ask(1)
    except ActorExit as ended:
        assert_type(ended.reason, ExitReason)
    assert exit_reason(system, ref) is not None
    system.shutdown()
    assert assert_type(leaks(system), list[str]) == []
