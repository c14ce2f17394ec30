"""Answers to questions: which question each is for, and whether it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.errors import (
    AlreadyAnswered,
    AmbiguousResume,
    InvalidAnswer,
    InvalidCall,
    UnknownInterrupt,
)
from beamweaver.graph.answers import AnswerFault, glance, plain_answer, take
from beamweaver.types import Interrupt

if TYPE_CHECKING:
    from beamweaver.engine.calls import Call
    from beamweaver.engine.state import Question, RunState, Task

__all__ = ["ANSWER", "answers_for", "interrupts_of", "judged", "refuse_answered"]

ANSWER = "the answer"
"""What messages call an answer that cannot be stored."""


def interrupts_of(state: RunState, task: Task) -> tuple[Interrupt, ...]:
    """The open questions of a task, as people see them: its own, then those inside of it."""
    own = [
        Interrupt(
            id=question.id,
            value=question.value,
            node=task.node,
            task_id=state.id_of(task),
            schema=msgspec.json.decode(question.schema) if question.schema else None,
            reason=question.reason,
            namespace=state.names,
        )
        for question in task.questions or ()
        if question.answer is None
    ]
    for inner in (task.inner or {}).values():
        for deeper in inner.step.tasks:
            own.extend(interrupts_of(inner, deeper))
    return tuple(own)


def refuse_answered(state: RunState, call: Call) -> None:
    """Refuse an answer to a question that was answered in the thread's last run and is not asked again.

    Raises:
        AlreadyAnswered: It was.
    """
    open_ = {q.id for task in state.step.tasks for q in task.open_questions}
    for id_ in call.answers or ():
        if id_ in state.run.answered and id_ not in open_:
            raise AlreadyAnswered(
                f"question {id_!r} of thread {state.thread_id!r} was answered before; nothing was changed. "
                "An answer is not replaced: go on with invoke(None), or begin anew with invoke(input, "
                "on_unfinished='restart'). A node that must not fail over a wrong answer gives "
                "interrupt(schema=…), or asks again in a loop until the answer is right",
                thread_id=state.thread_id,
                interrupt_id=id_,
            )


def answers_for(state: RunState, call: Call) -> list[tuple[int, Question, Any]]:
    """Which questions the call answers: `(task position, question, answer)`, each answer as it is stored.

    Raises:
        AmbiguousResume: One answer, several open questions.
        UnknownInterrupt: A question id that is not open.
        InvalidCall: A map without an entry.
        InvalidAnswer: The schema of a question refuses the answer.
    """
    open_ = {q.id: (task.position, q) for task in state.step.tasks for q in task.open_questions}
    listing = ", ".join(f"{id_} ({q.value!r})" for id_, (_p, q) in open_.items())
    if call.answers is None:
        if len(open_) > 1:
            raise AmbiguousResume(
                f"thread {state.thread_id!r} has {len(open_)} open questions and one answer was given; "
                f"give a map from id to answer: {listing}",
                thread_id=state.thread_id,
                interrupts=tuple(open_),
            )
        ((position, question),) = open_.values()
        return [(position, question, judged(state, question, call.answer))]
    if not call.answers:
        raise InvalidCall(
            "the map of answers is empty; give at least one", thread_id=state.thread_id
        )
    for id_ in call.answers:
        if id_ not in open_:
            raise UnknownInterrupt(
                f"thread {state.thread_id!r} has no open question {id_!r}; open: {listing}",
                thread_id=state.thread_id,
                interrupt_id=id_,
            )
    return [(*open_[id_], judged(state, open_[id_][1], a)) for id_, a in call.answers.items()]


def judged(state: RunState, question: Question, answer: Any) -> Any:
    """The answer as it is stored; the question's type judges it where this process has it.

    Raises:
        InvalidAnswer: The question's schema refuses it.
    """
    if not question.schema:
        return answer
    plain = plain_answer(answer)
    try:
        if question.type is not None:
            take(question.type, plain)
        else:
            glance(msgspec.json.decode(question.schema), plain)
    except AnswerFault as fault:
        raise InvalidAnswer(
            f"the answer to question {question.id} ({question.value!r}) of thread {state.thread_id!r} does "
            f"not fit its schema: {fault}. Nothing was changed and the question is open: answer again; "
            "its Interrupt.schema says what is taken",
            thread_id=state.thread_id,
            interrupt_id=question.id,
        ) from fault.__cause__
    return plain
