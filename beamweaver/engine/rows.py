"""State to stored rows, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamweaver.checkpoint.entries import (
    Answered,
    Asked,
    Continued,
    Edited,
    Failing,
    Finished,
    Handled,
    Inner,
    Left,
    Memo,
    MergeFailed,
    Paused,
    Retrying,
    SendRow,
    Slept,
    StepFailed,
    TaskFailed,
    TaskRow,
    UpRow,
    WriteRow,
)
from beamweaver.checkpoint.records import CallRow, decode_record
from beamweaver.engine.answers import ANSWER
from beamweaver.engine.calls import CallKind
from beamweaver.engine.kept import is_kept
from beamweaver.engine.nested import amend_inside, passed_on, question_of, reopen
from beamweaver.engine.state import (
    Amendment,
    Planned,
    Question,
    Result,
    Sleep,
    Task,
    Write,
    failure_of,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from beamweaver.checkpoint.entries import Entry, StepEntry
    from beamweaver.engine.calls import Call
    from beamweaver.engine.env import Decoder, Env
    from beamweaver.engine.state import RunState

__all__ = [
    "apply_entry",
    "asked_row",
    "call_row",
    "continue_step",
    "continued_row",
    "edited_row",
    "finished_row",
    "handled_row",
    "holds_steps",
    "input_data",
    "retry_row",
    "send_rows",
    "sends_of",
    "shows_progress",
    "slept_row",
    "task_of",
    "task_rows",
    "values_of",
    "write_rows",
    "writes_of",
]


_PROGRESS = frozenset({Finished, TaskFailed, Retrying, Asked, Memo, Slept, Inner, Handled, Failing})


def write_rows(writes: tuple[Write, ...]) -> tuple[WriteRow, ...]:
    """Writes as they are stored; those of keys that no store keeps are left out."""
    return tuple([(w.channel, w.data, w.overwrite) for w in writes if w.data])


def send_rows(sends: tuple[Planned, ...]) -> tuple[SendRow, ...]:
    """Sends as they are stored."""
    return tuple([SendRow(s.node, s.data, s.timeout, s.idle) for s in sends])


def finished_row(task: Task) -> Finished:
    """A finished task as it is stored."""
    result = task.result
    assert result is not None, f"task {task.node!r} is not finished"
    writes, sends = write_rows(result.writes), send_rows(result.sends)
    if result.up is None and result.kept is None:
        return Finished(task.position, writes, result.goto, sends)
    up = None
    if result.up is not None:
        up = UpRow(write_rows(result.up.writes), result.up.goto, send_rows(result.up.sends))
    return Finished(task.position, writes, result.goto, sends, up, result.kept)


def retry_row(task: Task) -> Retrying:
    """A task that waits for its next attempt, as it is stored."""
    assert task.failure is not None, f"task {task.node!r} has no failure to retry"
    return Retrying(
        task.position, task.failures, task.due_us, task.delay, row_of(task.failure), task.first_us
    )


def handled_row(task: Task) -> Handled:
    """A task that its node's error handler has, as it is stored."""
    assert task.handling is not None, f"task {task.node!r} has no failure to handle"
    return Handled(task.position, task.failures, row_of(task.handling), task.first_us)


def continued_row(
    run_id: str, amendment: Amendment | None, rerun: tuple[int, ...] = ()
) -> Continued:
    """A caller's continuation as it is stored."""
    if amendment is None:
        return Continued(run_id, rerun=rerun)
    return Continued(
        run_id, write_rows(amendment.writes), amendment.goto, send_rows(amendment.sends), rerun
    )


def edited_row(position: int, result: Result) -> Edited:
    """A caller's edit as it is stored: the result of a task, or an amendment (position -1)."""
    return Edited(position, write_rows(result.writes), result.goto, send_rows(result.sends))


def input_data(
    writes: Iterable[Write], goto: tuple[str, ...] | None, sends: Iterable[Planned]
) -> dict[str, Any]:
    """An input as plain data: what its digest is of."""
    return {
        "writes": {write.channel: write.value for write in writes if write.data},
        "goto": list(goto or ()),
        "sends": [[send.node, {key: send.update[key] for key in send.data}] for send in sends],
    }


def call_row(call: Call, env: Env) -> CallRow:
    """A told call as the inbox keeps it.

    Raises:
        SerializationError: An answer cannot be stored.
    """
    prepared = call.input
    answers = None
    if call.kind is CallKind.RESUME:
        given = {"": call.answer} if call.answers is None else call.answers
        answers = {key: env.encode_any(value, ANSWER) for key, value in given.items()}
    return CallRow(
        kind=call.kind.value,
        run_id=call.run_id,
        named=call.named,
        recursion_limit=call.recursion_limit,
        has_input=prepared is not None,
        digest=prepared.digest if prepared else b"",
        writes=write_rows(prepared.writes) if prepared else (),
        goto=prepared.goto if prepared else None,
        sends=send_rows(prepared.sends) if prepared else (),
        answers=answers,
        on_unfinished=call.on_unfinished,
        on_busy=call.on_busy,
        options=call.options,
        rerun=call.rerun,
        checkpoint=call.checkpoint,
        fork=call.fork,
        place=call.place,
    )


def _task_row(task: Task) -> TaskRow:
    """A planned task as it is stored."""
    if task.source is None:
        return TaskRow(task.node)
    return TaskRow(
        task.node, task.source, task.index, task.update_data, task.timeout, idle=task.idle
    )


def task_rows(tasks: Sequence[Task]) -> tuple[TaskRow, ...]:
    """Planned tasks as they are stored."""
    if len(tasks) == 1 and tasks[0].source is None:
        return (TaskRow(tasks[0].node),)
    return tuple([_task_row(task) for task in tasks])


def task_of(row: TaskRow, env: Env) -> Task:
    """A planned task from its row."""
    update = None
    if row.update is not None:
        update = {key: env.decode_sent(row.node, key, data) for key, data in row.update.items()}
    return Task(
        row.node,
        row.source,
        row.index,
        update,
        row.update,
        row.timeout,
        id=row.id,
        idle=row.idle,
    )


def writes_of(rows: tuple[WriteRow, ...], env: Env) -> tuple[Write, ...]:
    """Writes from their rows."""
    return tuple(
        Write(channel, env.decode(channel, data), data, overwrite)
        for channel, data, overwrite in rows
    )


def values_of(stored: Mapping[str, bytes], env: Decoder) -> dict[str, Any]:
    """The values of channels from their encodings; a key that is gone has an empty one."""
    return {
        name: env.decode(name, data) for name, data in stored.items() if data and not is_kept(name)
    }


def slept_row(task: Task, sleep: Sleep) -> Slept:
    """A task that sleeps, as it is stored."""
    return Slept(task.position, sleep.ordinal, sleep.key, sleep.due_us, sleep.delay)


def sends_of(rows: tuple[SendRow, ...], env: Env) -> tuple[Planned, ...]:
    """Sends from their rows."""
    return tuple(
        Planned(
            row.node,
            {key: env.decode_sent(row.node, key, data) for key, data in row.update.items()},
            row.update,
            row.timeout,
            row.idle,
        )
        for row in rows
    )


def shows_progress(entries: tuple[Entry, ...]) -> bool:
    """Whether a record with these entries shows that a task went on."""
    return any(type(entry) in _PROGRESS for entry in entries)


def holds_steps(entries: Iterable[Entry]) -> bool:
    """Whether graphs inside of tasks have steps in entries: such a record is their history, and stays."""
    for entry in entries:
        if type(entry) is Left:
            return True
        if type(entry) is Inner:
            record = decode_record(entry.data)
            if record.checkpoint is not None or holds_steps(record.entries):
                return True
    return False


def apply_entry(state: RunState, entry: StepEntry, env: Env) -> None:
    """Fold one stored entry into the open step."""
    match entry:
        case Finished():
            _finish(state, entry, env)
        case TaskFailed():
            task = state.step.tasks[entry.task]
            task.awake()
            task.failures = entry.attempt
            task.failure = failure_of(entry.failure, task.node, state.id_of(task), entry.attempt)
            task.due_us = 0
        case Retrying():
            _retry(state, entry)
        case Asked():
            _ask(state, entry, env)
        case Answered():
            _answer(state, entry)
        case Memo():
            task = state.step.tasks[entry.task]
            task.awake()
            task.remember(entry)
        case Slept():
            sleep = Sleep(entry.ordinal, entry.key, entry.due_us, entry.delay)
            state.step.tasks[entry.task].fall_asleep(sleep)
        case Continued():
            continue_step(state, _amendment(entry, env), entry.rerun)
        case Edited():
            _edit(state, entry, env)
        case Left():
            pass  # the result says it
        case _:
            _apply_to_step(state, entry)


def _apply_to_step(
    state: RunState, entry: Handled | Paused | Failing | MergeFailed | StepFailed
) -> None:
    """Fold what concerns the step as a whole, or hands a task over."""
    step = state.step
    match entry:
        case Handled():
            _handle(state, entry)
        case Paused():
            if entry.before or entry.after:
                step.paused = entry
            else:
                step.pass_breakpoints()
        case Failing():
            step.failing = True
            if entry.failure is not None:
                step.unheard = failure_of(entry.failure, "on_failure", "", 1)
        case MergeFailed():
            step.failure = failure_of(entry.failure, entry.node, "", 1)
        case _:  # StepFailed
            step.failure = failure_of(entry.failure, "", "", 1)


def continue_step(
    state: RunState, amendment: Amendment | None, rerun: tuple[int, ...] = ()
) -> None:
    """A caller goes on: a new era of the step, fresh counts, failed and dropped tasks may run again."""
    step = state.step
    step.era += 1
    step.failure = step.unheard = None
    step.failing = False
    state.executed = 0
    if amendment is not None:
        amendment.era = step.era
        step.amendments.append(amendment)
    for position in rerun:
        step.tasks[position].begin_anew()
    for task in step.tasks:
        if task.result is None:
            task.clear_failure()
            for key, inner in (task.inner or {}).items():
                continue_step(inner, None if key else passed_on(inner, amendment))


def asked_row(task: Task, question: Question) -> Asked:
    """A question as it is stored."""
    return Asked(
        task.position,
        question.ordinal,
        question.key,
        question.data,
        question.id,
        question.schema,
        question.reason,
    )


def _amendment(entry: Continued, env: Env) -> Amendment | None:
    if not entry.writes and entry.goto is None and not entry.sends:
        return None
    return Amendment(writes_of(entry.writes, env), entry.goto, sends_of(entry.sends, env))


def _edit(state: RunState, entry: Edited, env: Env) -> None:
    step = state.step
    writes, sends = writes_of(entry.writes, env), sends_of(entry.sends, env)
    if entry.task < 0:
        step.era += 1
        amendment = Amendment(writes, entry.goto, sends, step.era)
        step.amendments.append(amendment)
        amend_inside(step, amendment)
        return
    task = step.tasks[entry.task]
    task.inner = None
    task.result = Result(writes, entry.goto, sends, step.era)
    task.questions = task.sleeps = None
    task.clear_failure()


def _finish(state: RunState, entry: Finished, env: Env) -> None:
    task = state.step.tasks[entry.task]
    task.awake()
    task.result = Result(
        writes_of(entry.writes, env), entry.goto, sends_of(entry.sends, env), state.step.era
    )
    task.result.kept = entry.kept
    if entry.up is not None:
        up, around = entry.up, env.around
        task.result.up = Result(writes_of(up.writes, around), up.goto, sends_of(up.sends, around))
    task.due_us = 0
    task.inner = None


def _retry(state: RunState, entry: Retrying) -> None:
    task = state.step.tasks[entry.task]
    task.awake()
    task.failures = entry.attempt
    task.due_us = entry.due_us
    task.delay = entry.delay
    task.first_us = entry.first_attempt_us
    task.failure = None
    reopen(task)


def _handle(state: RunState, entry: Handled) -> None:
    task = state.step.tasks[entry.task]
    task.failures = entry.attempt
    task.first_us = entry.first_attempt_us
    task.give_to_handler(failure_of(entry.failure, task.node, state.id_of(task), entry.attempt))


def _ask(state: RunState, entry: Asked, env: Env) -> None:
    value = env.decode_any(entry.value)
    question = Question(
        entry.id,
        entry.ordinal,
        entry.key,
        value,
        entry.value,
        schema=entry.schema,
        reason=entry.reason,
    )
    task = state.step.tasks[entry.task]
    task.awake()
    task.ask(question)


def _answer(state: RunState, entry: Answered) -> None:
    question = question_of(state.step.tasks[entry.task], entry.id)
    if question is not None:
        question.answer = entry.value
