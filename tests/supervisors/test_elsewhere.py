"""Actors whose handlers run elsewhere: on an event loop, in a process, on a worker of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisors import (
    BRUTAL_KILL,
    KILLED,
    NORMAL,
    SHUTDOWN,
    Abnormal,
    Actor,
    ActorExit,
    ActorSystem,
    CallTimeout,
    ChildSpec,
    Crashed,
    Ignore,
    PoolScheduler,
    ProcessEnded,
    Refuse,
    RemoteError,
    StartError,
    Supervisor,
    Tasks,
    TaskSupervisor,
    WorkersExhausted,
    which_children,
)
from supervisors.asynchronous import AsyncActor
from supervisors.process import Codec, ProcessActor, ProcessPool, end_of
from supervisors.testing import eventually, exit_reason

TARGETS = "tests.supervisors.elsewhere_targets"
COUNTER = f"{TARGETS}:Counter"


@pytest.fixture
def system() -> Iterator[ActorSystem]:
    with ActorSystem() as made:
        yield made


def _turn() -> asyncio.Future[None]:
    """Let the loop turn once."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(turned.set_result, None)
    return turned


class Sleepy(AsyncActor):
    def __init__(self, log: list[object] | None = None) -> None:
        self.log = [] if log is None else log

    async def setup(self) -> None:
        self.log.append("setup")

    async def handle(self, message: object) -> object:
        if message == "crash":
            raise KeyError("crashed")
        if message == "refuse":
            raise Refuse(ValueError("no"))
        if message == "hang":
            self.log.append("hangs")
            try:
                await asyncio.Event().wait()
            finally:
                self.log.append("unwound")
        if message == "exit":
            self.exit(Abnormal("wanted"))
        if isinstance(message, Actor | type(self.ref)):
            return await message.ask_async("hello", timeout=5)
        await _turn()
        return message

    async def teardown(self, reason: object) -> None:
        self.log.append(reason)


class TestAsyncActors:
    def test_it_answers(self, system: ActorSystem):
        assert system.start(Sleepy).ask("hello", timeout=5) == "hello"

    def test_it_awaits_another(self, system: ActorSystem):
        assert system.start(Sleepy).ask(system.start(Sleepy), timeout=5) == "hello"

    def test_its_messages_are_handled_one_at_a_time_and_in_order(self, system: ActorSystem):
        seen: list[object] = []

        class Slow(AsyncActor):
            async def handle(self, message: object) -> None:
                seen.append(message)
                await _turn()
                seen.append(message)

        ref = system.start(Slow)
        for number in range(3):
            ref.tell(number)
        ref.ask("end", timeout=5)

        assert seen == [0, 0, 1, 1, 2, 2, "end", "end"]

    def test_a_refusal_is_an_answer(self, system: ActorSystem):
        ref = system.start(Sleepy)
        with pytest.raises(ValueError, match="no"):
            ref.ask("refuse", timeout=5)

        assert ref.ask(1, timeout=5) == 1

    def test_an_error_ends_it(self, system: ActorSystem):
        ref = system.start(Sleepy)
        with pytest.raises(ActorExit) as caught:
            ref.ask("crash", timeout=5)

        assert isinstance(caught.value.reason.error, KeyError)

    def test_a_stop_waits_for_its_teardown(self, system: ActorSystem):
        log: list[object] = []
        assert system.start(Sleepy, log).stop(timeout=5, reason=SHUTDOWN)

        assert log == ["setup", SHUTDOWN]

    def test_it_can_end_itself(self, system: ActorSystem):
        log: list[object] = []
        ref = system.start(Sleepy, log)
        end = system.monitor_from_outside(ref)

        assert ref.ask("exit", timeout=5) == "exit"
        assert end.get(timeout=5) == Abnormal("wanted")

    def test_a_kill_cancels_its_handler(self, system: ActorSystem):
        log: list[object] = []
        ref = system.start(Sleepy, log)
        answer = ref.ask("hang", block=False)
        eventually(lambda: "hangs" in log)
        system.exit(ref, KILLED)

        with pytest.raises(ActorExit, match="KILLED"):
            answer.get(timeout=5)
        eventually(lambda: log[-1] == "unwound")

    @pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
    def test_a_failed_start_is_a_start_error(self, system: ActorSystem, error):
        class Broken(AsyncActor):
            async def setup(self) -> None:
                raise error

        with pytest.raises(StartError) as caught:
            system.start(Broken)
        assert caught.value.reason == Crashed(error)

    def test_it_is_restarted_like_any_other(self, system: ActorSystem):
        log: list[object] = []
        root = system.start(Supervisor, [ChildSpec("a", Sleepy, (log,), name="a")])
        old = system.whereis("a")
        old.tell("crash")
        exit_reason(system, old)
        eventually(lambda: which_children(root)[0].restarts == 1)

        assert eventually(lambda: system.whereis("a")).ask(7, timeout=5) == 7
        assert log == ["setup", "setup"]

    def test_an_actor_without_a_handler_says_so(self, system: ActorSystem):
        with pytest.raises(ActorExit, match="override handle"):
            system.start(AsyncActor).ask(1, timeout=5)

    def test_the_loop_ends_with_the_system(self):
        with ActorSystem() as system:
            system.start(Sleepy)
        assert "event-loop" not in {thread.name for thread in threading.enumerate()}


class TestAwaiting:
    def test_an_event_loop_awaits_an_ask(self, system: ActorSystem):
        """Calls from an event loop."""

        async def main() -> object:
            return await system.start(Sleepy).ask("hello", block=False)

        assert asyncio.run(main()) == "hello"

    def test_many_await_one_future(self, system: ActorSystem):
        future = system.future()

        async def main() -> list[object]:
            waiting = asyncio.gather(*(_value(future) for _ in range(3)))
            await _turn()
            threading.Thread(target=future.set, args=(5,)).start()
            return list(await waiting)

        assert asyncio.run(main()) == [5, 5, 5]

    def test_an_error_is_raised_where_it_is_awaited(self, system: ActorSystem):
        future = system.future()
        future.set_exception(KeyError("wrong"))
        with pytest.raises(KeyError):
            asyncio.run(_value(future))

    def test_a_call_that_is_not_answered_times_out_and_is_dropped(self, system: ActorSystem):
        gate = threading.Event()
        seen: list[object] = []

        class Busy(Actor):
            def on_receive(self, message: object) -> None:
                seen.append(message)
                gate.wait(10)

        ref = system.start(Busy)
        ref.tell("first")

        async def main() -> None:
            with pytest.raises(CallTimeout, match=r"within 0\.01 s"):
                await ref.ask_async("second", timeout=0.01)

        asyncio.run(main())
        gate.set()
        ref.ask("third", timeout=5)
        assert seen == ["first", "third"]

    def test_a_loop_that_was_closed_disturbs_nobody(self, system: ActorSystem):
        future = system.future()

        async def main() -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_value(future), 0.001)

        asyncio.run(main())
        future.set(1)
        assert future.get() == 1


async def _value(future: object) -> object:
    return await future


@pytest.mark.slow
class TestProcessActors:
    def test_it_answers_from_another_process(self, system: ActorSystem):
        ref = system.start(ProcessActor, COUNTER, (5,))

        assert ref.ask(2, timeout=10) == 7
        assert ref.ask(["pid"], timeout=10) not in {None, os.getpid()}

    def test_a_failed_start_tells_the_error(self, system: ActorSystem):
        with pytest.raises(StartError, match="a counter starts at 0"):
            system.start(ProcessActor, COUNTER, (-1,))

    def test_an_error_ends_it_with_its_text(self, system: ActorSystem):
        ref = system.start(ProcessActor, COUNTER)
        with pytest.raises(ActorExit) as caught:
            ref.ask(["crash"], timeout=10)

        error = caught.value.reason.error
        assert isinstance(error, RemoteError)
        assert (error.type, "in crash" in error.traceback) == ("builtins.KeyError", True)

    def test_killed_from_outside_it_ends_with_the_signal(self, system: ActorSystem):
        """Supervision §6.5: Thespian 85."""
        ref = system.start(ProcessActor, COUNTER)
        end = system.monitor_from_outside(ref)
        os.kill(ref.cell.actor.pid, signal.SIGKILL)

        assert end.get(timeout=10) == Abnormal(("signal", 9))

    def test_leaving_by_itself_it_ends_with_its_code(self, system: ActorSystem):
        ref = system.start(ProcessActor, COUNTER)
        with pytest.raises(ActorExit) as caught:
            ref.ask(["leave", 3], timeout=10)

        assert caught.value.reason == Abnormal(("exit", 3))

    def test_a_good_end_runs_its_on_stop(self, system: ActorSystem, tmp_path: Path):
        ref = system.start(ProcessActor, COUNTER)
        ref.ask(["note", str(tmp_path / "said")], timeout=10)
        ref.stop(timeout=10, reason=NORMAL)

        assert (tmp_path / "said").read_text() == "NORMAL"

    def test_a_brutal_kill_ends_what_cannot_be_interrupted(
        self, system: ActorSystem, tmp_path: Path
    ):
        """Supervision C75, C62."""
        spec = ChildSpec("a", ProcessActor, (COUNTER,), shutdown=BRUTAL_KILL, name="a")
        root = system.start(Supervisor, [spec])
        actor = system.whereis("a").cell.actor
        process = actor._process
        system.whereis("a").tell(["hang", str(tmp_path / "hangs")])
        eventually((tmp_path / "hangs").exists)
        root.stop(timeout=10)

        assert process.finish(10)
        assert process.code == -signal.SIGKILL
        assert system.statistics().abandoned == 0

    def test_it_takes_a_warm_process(self, system: ActorSystem):
        pool = ProcessPool(system, warm=1)
        ready = {process.pid for process in pool._all.values()}
        ref = system.start(ProcessActor, COUNTER, pool=pool)

        assert ref.ask(["pid"], timeout=10) in ready
        ref.stop(timeout=10)
        assert pool.close()

    def test_another_codec_crosses(self, system: ActorSystem):
        codec = Codec("msgspec.json:encode", "msgspec.json:decode")

        assert system.start(ProcessActor, COUNTER, (1,), codec=codec).ask(1, timeout=10) == 2


@pytest.mark.slow
class TestProcessPools:
    def test_a_process_that_was_used_often_ends_as_a_new_one_does(self, system: ActorSystem):
        pool = ProcessPool(system, warm=0)
        for n in range(1_200):  # more than a stack is deep
            pool.call(f"{TARGETS}:double", n, timeout=10)
        with pytest.raises(ProcessEnded):
            pool.call("os:_exit", 3, timeout=10)

        eventually(lambda: len(pool) == 0)
        assert pool.close()

    def test_calls_one_after_the_other_use_the_same_processes(self, system: ActorSystem):
        pool = ProcessPool(system)
        found = {pool.call("os:getpid", timeout=10) for _ in range(10)}

        assert len(found) <= 2
        assert pool.close()

    def test_it_calls_functions(self, system: ActorSystem):
        pool = ProcessPool(system)
        answers = [pool.call(f"{TARGETS}:double", n, timeout=10) for n in range(3)]

        assert answers == [0, 2, 4]
        assert len(pool) <= 2
        assert pool.close()
        with pytest.raises(WorkersExhausted):
            pool.call(f"{TARGETS}:double", 1)

    def test_an_error_crosses_as_text(self, system: ActorSystem):
        pool = ProcessPool(system)
        with pytest.raises(RemoteError, match=r"builtins\.ValueError: no"):
            pool.call(f"{TARGETS}:fail", "no", timeout=10)
        assert pool.close()

    def test_a_process_that_dies_is_told(self, system: ActorSystem):
        pool = ProcessPool(system)
        with pytest.raises(ProcessEnded) as caught:
            pool.call(f"{TARGETS}:die", timeout=10)

        assert (caught.value.how, caught.value.number) == ("signal", 9)
        assert pool.close()

    def test_a_killed_task_takes_its_process_along(self, system: ActorSystem, tmp_path: Path):
        pool = ProcessPool(system, warm=0)
        tasks = Tasks(system.start(TaskSupervisor))
        task = tasks.run(pool.call, f"{TARGETS}:hang", str(tmp_path / "hangs"))
        eventually((tmp_path / "hangs").exists)

        assert (task.yield_(0) or task.shutdown()) is None
        eventually(lambda: len(pool) == 0)

    def test_a_call_that_takes_too_long_ends_its_process(self, system: ActorSystem, tmp_path: Path):
        pool = ProcessPool(system, warm=0)
        with pytest.raises(CallTimeout):
            pool.call(f"{TARGETS}:hang", str(tmp_path / "hangs"), timeout=0.2)

        eventually(lambda: len(pool) == 0)

    def test_its_size_is_limited(self, system: ActorSystem):
        pool = ProcessPool(system, warm=1, max_processes=1)
        pool.take()
        with pytest.raises(WorkersExhausted, match="max_processes"):
            pool.take()
        assert pool.close()


def test_return_codes_are_read_as_exits_or_signals():
    assert [end_of(0), end_of(2), end_of(-15)] == [("exit", 0), ("exit", 2), ("signal", 15)]


_PARENT = f"""
import sys
from supervisors import ActorSystem
from supervisors.process import ProcessActor
system = ActorSystem()
ref = system.start(ProcessActor, {COUNTER!r})
ref.tell(["hang", sys.argv[1]])
print(ref.cell.actor.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_process_ends_with_its_parent_whatever_it_does(tmp_path: Path):
    """Supervision §3.3."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "hangs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        text=True,
    )
    child = int(parent.stdout.readline())
    eventually((tmp_path / "hangs").exists)
    parent.kill()
    parent.communicate()

    eventually(lambda: not _runs(child), timeout=10)


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1][:3]
    except FileNotFoundError:
        return False


class Where(Actor):
    def on_receive(self, message: object) -> object:
        if callable(message):
            message()
        return threading.get_ident()


class OnItsOwn(Where):
    execution = "thread"


class TestDedicatedWorkers:
    def test_it_runs_always_on_a_worker_of_its_own(self, system: ActorSystem):
        own, other = system.start(OnItsOwn), system.start(OnItsOwn)
        first = {own.ask(None, timeout=5) for _ in range(20)}
        pooled = system.start(Where).ask(None, timeout=5)

        assert len(first) == 1
        assert len(first | {other.ask(None, timeout=5), pooled}) == 3

    def test_a_spec_says_so(self, system: ActorSystem):
        system.start(Supervisor, [ChildSpec("a", Where, execution="thread", name="a")])
        system.whereis("a").ask(None, timeout=5)

        assert system.statistics().dedicated == 1

    def test_what_blocks_there_takes_no_worker_of_the_pool(self):
        with ActorSystem(PoolScheduler(max_workers=1)) as system:
            gate = threading.Event()
            system.start(OnItsOwn).tell(lambda: gate.wait(10))

            assert system.start(Where).ask(None, timeout=5)
            gate.set()

    def test_its_thread_ends_with_it(self, system: ActorSystem):
        ref = system.start(OnItsOwn)
        ref.stop(timeout=5)

        eventually(lambda: system.statistics().dedicated == 0)

    def test_a_kill_gives_its_worker_up(self, system: ActorSystem):
        gate, began = threading.Event(), threading.Event()
        ref = system.start(OnItsOwn)
        ref.tell(lambda: (began.set(), gate.wait(10)))
        began.wait(5)
        ref.cell.kill(0.01)

        assert exit_reason(system, ref) == KILLED
        assert system.statistics().abandoned == 1
        gate.set()
        eventually(lambda: system.statistics().abandoned == 0)

    def test_it_asks_those_of_the_pool_and_is_asked(self, system: ActorSystem):
        pooled, own = system.start(Where), system.start(OnItsOwn)
        own.ask(lambda: pooled.ask(None, timeout=5), timeout=5)

        assert pooled.ask(lambda: own.ask(None, timeout=5), timeout=5)


def test_an_async_actor_may_ignore_its_start(system: ActorSystem):
    class Shy(AsyncActor):
        async def setup(self) -> None:
            raise Ignore

    with pytest.raises(Ignore):
        system.start(Shy)


def test_an_actor_whose_loop_cannot_be_had_fails_to_start(system: ActorSystem, monkeypatch):
    def none(_make):
        raise OSError("no thread is left")

    monkeypatch.setattr(system, "resource", none)
    with pytest.raises(StartError, match="no thread is left"):
        system.start(AsyncActor, timeout=10)
