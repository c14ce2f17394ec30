"""What the driver of the engine's tests is made of: node returns with a meaning, contexts, the world."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.records import decode_call
from beamweaver.engine import Call, CallKind, Prepared
from beamweaver.engine import effects as fx
from beamweaver.engine.calling import Calling, output_of, start_of
from beamweaver.engine.failures import describe
from beamweaver.engine.fold import fold
from beamweaver.engine.ids import call_ordinal, idempotency_key, interrupt_id
from beamweaver.engine.merge import with_initial
from beamweaver.engine.plan import Route, Routes
from beamweaver.engine.rows import sends_of, values_of, writes_of
from beamweaver.engine.state import Question, Sleep
from beamweaver.engine.unread import Unread, read
from beamweaver.errors import RouterFailed, SerializationError, UnknownRun, UnknownTarget
from beamweaver.graph.guards import call_guard, guards_to_ask, judge_guard
from beamweaver.graph.updates import call_router, normalize_routing
from beamweaver.runtime.results import planned
from beamweaver.types import Command

if TYPE_CHECKING:
    from tests.engine.driver import Driver


class Crashed(BaseException):
    """The process died at the commit where the test wanted it to."""


class Count:
    """Counts up as `itertools.count` does, which Python 3.14 no longer copies."""

    def __init__(self, first: int = 0) -> None:
        self.next = first

    def __iter__(self) -> Count:
        return self

    def __next__(self) -> int:
        self.next += 1
        return self.next - 1


class Later:
    """What a node returns to end `seconds` later, with a value or an exception."""

    def __init__(self, seconds: float, value: Any = None) -> None:
        self.seconds = seconds
        self.value = value


HANGS = Later(float("inf"))
"""A node that returns this never ends by itself."""


class Exits:
    """What a node returns whose actor is killed from outside."""


class Asks(BaseException):
    def __init__(self, question: Question | Sleep) -> None:
        self.question = question


class Calls(BaseException):
    """What ends a body that calls a graph: it runs again from its top when that has ended."""

    def __init__(self, calling: Calling) -> None:
        self.calling = calling


class Ctx:
    """What a node may know here."""

    def __init__(self, driver: Driver, attempt: fx.Attempt) -> None:
        self._driver = driver
        self._attempt = attempt
        self._asked = 0
        self._slept = 0
        self._called: Counter[str] = Counter()
        self.attempt = attempt.number
        self.era = attempt.owner.state.step.era
        self.namespace = attempt.owner.state.names
        self.task_id = attempt.task_id
        self.step = attempt.step
        self.node = attempt.task.node
        self.first_attempt_at = attempt.first_us / 1_000_000
        self.idempotency_key = idempotency_key(driver.thread_id, attempt.scope)

    def sleep(self, seconds: float) -> None:
        ordinal = self._slept
        self._slept += 1
        if all(sleep.ordinal != ordinal for sleep in self._attempt.task.sleeps or ()):
            due_us = self._driver.env.now_us() + int(seconds * 1_000_000)
            raise Asks(Sleep(ordinal, None, due_us, seconds))

    def call(self, graph: Any, given: Any, *, key: str | None = None) -> Any:
        ordinal = call_ordinal(None if key is not None else self._called[graph.name])
        ident = (graph.name, ordinal, key)
        env = self._attempt.owner.env.inside(graph)
        memo = (self._attempt.task.memos or {}).get(ident)
        if memo is None:
            prepared = self._driver.prepared(given, graph, env)
            raise Calls(Calling(graph, ident, prepared.digest, start_of(graph, prepared)))
        self._called[graph.name] += key is None
        return output_of(graph, memo.value, env)

    def interrupt(
        self, value: Any, *, key: str | None = None, schema: bytes = b"", kind: Any = None
    ) -> Any:
        ordinal = self._asked
        self._asked += key is None
        id_ = interrupt_id(self._attempt.scope, ordinal, key)
        for question in self._attempt.questions:
            if question.id == id_ and question.answer is not None:
                return self._driver.env.decode_any(question.answer)
        data = self._driver.env.encode_any(value)
        place = ordinal if key is None else -1
        raise Asks(Question(id_, place, key, value, data, schema=schema, type=kind))


class TestEnv:
    """`beamweaver.engine.Env` of a driver."""

    __test__ = False
    keeps = True

    def __init__(self, driver: Driver, graph: Any = None, around: Any = None) -> None:
        self._driver = driver
        self._codec = driver.codec
        self.graph = graph or driver.graph
        self.around = around or self
        self._inside: dict[Any, TestEnv] = {}
        self.epoch = driver.epoch
        self.incarnation = around.incarnation if around else next(driver.incarnations)
        self.limits = driver.limits
        self.publishing = driver.publishing
        codec = self.plans = driver.plans_of(self.graph)
        self.encode, self.decode = codec.encode, codec.decode
        self.decode_sent, self.copy = codec.decode_sent, codec.copy
        self.decode_old, self.encode_sent = codec.decode_old, codec.encode_sent
        self.encode_any = self._codec.encode
        self.decode_any = self._codec.decode
        self.digest = self._codec.digest
        self.encode_result = lambda _node, channel, value: codec.encode(channel, value)
        self.tell_large = self._codec.tell_large

    def inside(self, graph: Any) -> TestEnv:
        if graph not in self._inside:
            self._inside[graph] = TestEnv(self._driver, graph, self)
        return self._inside[graph]

    def called(self, _node: str, _key: str) -> Any:
        return self.graph, Unread(self)

    def now_us(self) -> int:
        return int(self._driver.now * 1_000_000)

    def rest_of(self, due_us: int, delay: float) -> float:
        return min(max((due_us - self.now_us()) / 1_000_000, 0.0), delay)

    def clock(self) -> float:
        return self._driver.now

    def random(self) -> float:
        return self._driver.rng.random()

    def new_id(self) -> str:
        return f"id{next(self._driver.ids)}"

    def ahead(self, size: int) -> bool:
        self._driver.ahead = size
        return size < self.limits.ahead_bytes_in_all

    def load(self, seq: int | None) -> Any:
        return self._driver.store.load(self._driver.thread_id, seq)

    def message_key(self, key: str) -> Any:
        return self._driver.store.message_key(self._driver.thread_id, key)

    def run_number(self, run_id: str) -> int | None:
        return self._driver.store.run_number(self._driver.thread_id, run_id)


class Fixed:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def awaited(coroutine: Any) -> Any:
    """The value of a coroutine that awaits nothing that has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("an async node of a test waits for something real")


def without(values: Any, keys: Any) -> Any:
    """Values but those of some keys."""
    return {key: value for key, value in values.items() if key not in keys}


def plain(result: Any) -> Any:
    if result is None:
        return None
    writes = [(w.channel, w.value, w.overwrite) for w in result.writes if w.data]
    return writes, result.goto, [(p.node, p.update) for p in result.sends], result.era


def read_calls(mine: Any, stored: Any, env: Any) -> None:
    """Read the called graphs of a stored task, of which the machine knows by now what they are."""
    for key, inner in (mine.inner or {}).items():
        other = (stored.inner or {}).get(key)
        if other is None or inner.unread:
            continue
        if other.unread:
            read(other, inner.graph, env.inside(inner.graph))
        for one, two in zip(inner.step.tasks, other.step.tasks, strict=False):
            read_calls(one, two, env.inside(inner.graph))


def task_as_data(task: Any, env: TestEnv) -> Any:
    questions = [(q.id, q.value, q.answer, q.schema, q.reason) for q in task.questions or ()]
    due = (task.failures, task.due_us if task.due_us > env.now_us() + 1 else 0)
    failed = task.failure and (task.failure.code, task.failure.message)
    attempt = task.failure and not task.inner and task.failure.attempt
    found = {key: inner_as_data(state, env) for key, state in (task.inner or {}).items()}
    inner = {key: data for key, data in found.items() if data is not None}
    return plain(task.result), failed, attempt, questions, due, inner


def inner_as_data(state: Any, env: TestEnv) -> Any:
    """A run inside of a task, for comparison; one that has nothing to be kept is as one that never began."""
    if state.seq <= 1 and not any(task.failure for task in state.step.tasks):
        return None
    step = state.step
    amendments = [plain(amendment) for amendment in step.amendments]
    tasks = [(state.id_of(task), task_as_data(task, env)) for task in step.tasks]
    unstored = state.graph.unstored
    values, start = without(state.values, unstored), without(state.start, unstored)
    run = (values, start, state.written, state.kept, state.seq)
    return run, step.number, step.era, amendments, state.joins, state.executed, tasks


def router_failure(error: Exception, node: str) -> Exception:
    if isinstance(error, UnknownTarget | SerializationError):
        return error
    failure = RouterFailed(f"a router after {node!r} raised {error!r}", node=node)
    failure.__cause__ = error
    return failure


def told(message: Any, driver: Driver) -> Call:
    """A told call, from its message."""
    row = decode_call(message.payload)
    prepared = None
    if row.has_input:
        writes, sends = writes_of(row.writes, driver.env), sends_of(row.sends, driver.env)
        prepared = Prepared(writes, row.digest, row.goto, sends)
    answers = {key: driver.codec.decode(data) for key, data in (row.answers or {}).items()}
    call = Call(
        message.id,
        CallKind(row.kind),
        driver.graph.name,
        row.run_id,
        input=prepared,
        answer=answers.get(""),
        answers=None if row.answers is None or "" in answers else answers,
        named=row.named,
        waits=False,
        on_busy=row.on_busy,
        on_unfinished=row.on_unfinished,
        recursion_limit=row.recursion_limit,
        options=row.options,
        rerun=row.rerun,
        checkpoint=row.checkpoint,
        fork=row.fork,
        place=row.place,
    )
    call.message = message.number
    return call


def placed(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a call that may name a checkpoint."""
    place = (options.get("checkpoint"), options.get("fork", False))
    return options if place == (None, False) else {**options, "place": repr(place).encode()}


def choose(driver: Driver, transition: fx.Transition, owner: Any) -> Any:
    """What the routers and guards of a step chose, or how they failed."""
    routes = Routes(transition.spent)
    node = ""
    try:
        for exit_ in transition.exits:
            node = exit_.task.node
            for branch in exit_.branches:
                returned = call_router(branch, owner.graph.view(transition.view), None)
                targets, sends = normalize_routing(owner.graph, branch, returned)
                routes.add(exit_.task, Route(targets, planned(owner.env.plans, sends, "")))
            answers = {}
            for guard in guards_to_ask(exit_.guards, routes.spent):
                driver.asked.append(guard.key)
                said = call_guard(guard, owner.graph.view(transition.view), None)
                said = awaited(said) if guard.is_async else said
                answers[guard.key] = judge_guard(guard, said)
            if exit_.guards:
                routes.cross(exit_.task, exit_.guards, answers)
    except Exception as error:
        return describe(router_failure(error, node), node, "", 1)
    return routes


def recorded(driver: Driver, effect: fx.ReplyRecorded) -> tuple[Any, Any]:
    seq = driver.store.run_end(driver.thread_id, effect.number)
    if seq is None:
        return None, UnknownRun("no recorded outcome")
    image = driver.store.load(driver.thread_id, seq)
    return values_of(image.values, driver.env), None


def goto(*nodes: Any, **update: Any) -> Command:
    """A command with an update."""
    return Command(update=update or None, goto=list(nodes))


def check_fold(driver: Driver) -> None:
    """The machine's state is what the store folds to, but for what happened since the commit."""
    mine, stored = driver.machine.state, fold(driver.store.load(driver.thread_id), driver.env)
    stored.values = with_initial(driver.graph, stored.values)
    assert driver.values == without(stored.values, driver.graph.unstored)
    for name in ("row", "versions", "joins", "executed", "seq", "checkpoint_seq"):
        assert getattr(mine, name) == getattr(stored, name), name
    for name in (
        "branch",
        "parent_seq",
        "since_full",
        "entry_seqs",
        "spent",
        "warnings",
        "kept",
    ):
        assert getattr(mine, name) == getattr(stored, name), name
    assert [(t.node, t.path, t.update) for t in mine.deferred] == [
        (t.node, t.path, t.update) for t in stored.deferred
    ]
    assert (mine.step.number, mine.step.era) == (stored.step.number, stored.step.era)
    assert [plain(a) for a in mine.step.amendments] == [plain(a) for a in stored.step.amendments]
    assert mine.step.paused == stored.step.paused
    assert (mine.step.failure is None) == (stored.step.failure is None)
    moved = {x if isinstance(x, int) else getattr(x, "position", -1) for x in _moved(driver)}
    for one, other in zip(mine.step.tasks, stored.step.tasks, strict=True):
        assert (one.node, mine.id_of(one)) == (other.node, stored.id_of(other))
        if one.position not in moved:
            read_calls(one, other, driver.env)
            assert task_as_data(one, driver.env) == task_as_data(other, driver.env), one.node


def _moved(driver: Driver) -> list[Any]:
    """Tasks that may be ahead of the store: they run, or something of them is in no commit yet."""
    dirty = [x if hasattr(x, "position") else x.task for x in driver.machine.dirty]
    return [*driver.machine.running, *dirty, *driver.machine.ready]
