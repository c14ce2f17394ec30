"""Questions with a schema, questions side by side, and whose object an answer is."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal, TypedDict

import msgspec
import pytest

from beamweaver import Completed, Interrupted, Invoke, Resume, RetryPolicy, Runtime, interrupt
from beamweaver.errors import AlreadyAnswered, InvalidAnswer, InvalidCall, KeyRequired, NodeFailed
from tests.runtime.kit import line

pydantic = pytest.importorskip("pydantic")


@dataclasses.dataclass
class Decision:
    approve: bool
    due: dt.date | None = None


class Scored(msgspec.Struct):
    score: Annotated[int, msgspec.Meta(ge=0, le=10)]
    tags: list[str] = []


class Typed(TypedDict):
    text: str


class Model(pydantic.BaseModel):
    n: int


def asks(*questions, **options):
    """An app whose node asks and logs what it got."""

    def node(_state):
        return {"log": [interrupt(q, **options) for q in questions or ("?",)]}

    return line("g", ask=node)


def shows(value):
    """An answer in a form that every store keeps."""
    return repr(value)


def asks_for(schema):
    return line("g", ask=lambda _s: {"log": [shows(interrupt("?", schema=schema))]})


TAKEN = {
    "a bool": (bool, True, True),
    "a choice": (Literal["yes", "no"], "yes", "yes"),
    "None": (int | None, None, None),
    "a dataclass": (
        Decision,
        {"approve": True, "due": "2026-01-02"},
        Decision(True, dt.date(2026, 1, 2)),
    ),
    "an instance of it": (Decision, Decision(True), Decision(True)),
    "a struct": (Scored, {"score": 3}, Scored(3)),
    "a typed dict": (Typed, {"text": "a"}, {"text": "a"}),
    "a list": (list[Scored], [{"score": 1}], [Scored(1)]),
    "a pydantic model": (Model, {"n": 1}, Model(n=1)),
    "an instance of the model": (Model, Model(n=1), Model(n=1)),
    "a list of models": (list[Model], [{"n": 1}], [Model(n=1)]),
}
REFUSED = {
    "a bool": (bool, "yes", "Expected `bool`, got `str`"),
    "a choice": (Literal["yes", "no"], "perhaps", r"'perhaps' \(str\); give one of 'yes', 'no'"),
    "a dataclass": (Decision, {"approve": 1}, r"Expected `bool`, got `int` - at `\$.approve`"),
    "a key that is not there": (Decision, {}, "missing required field `approve`"),
    "a struct": (list[Scored], [{"score": 1}, {"score": "x"}], r"at `\$\[1\].score`"),
    "a constraint": (Scored, {"score": 11}, r"<= 10 - at `\$.score`"),
    "None": (int, None, "Expected `int`"),
    "a pydantic model": (Model, {"n": "x"}, r"valid integer.*got 'x' \(str\) - at `\$.n`"),
}
AT_A_GLANCE = [name for name in REFUSED if name not in ("a constraint", "a pydantic model")]


class TestSchema:
    @pytest.mark.parametrize("what", TAKEN)
    def test_an_answer_comes_back_as_a_value_of_the_type(self, store, what):
        schema, answer, value = TAKEN[what]
        with asks_for(schema).compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert app.resume(answer, thread_id="t").state["log"] == [shows(value)]

    @pytest.mark.parametrize("what", REFUSED)
    def test_another_one_is_refused_and_the_question_stays(self, store, what):
        schema, answer, said = REFUSED[what]
        with asks_for(schema).compile(checkpointer=store) as app:
            question = app.invoke({"n": 1}, thread_id="t").interrupt
            with pytest.raises(InvalidAnswer, match=said) as caught:
                app.resume(answer, thread_id="t")
            assert caught.value.interrupt_id == question.id
            assert "answer again" in str(caught.value)
            assert app.get_state("t").interrupts == (question,)
            assert app.get_state("t").status == "waiting"

    @pytest.mark.parametrize("what", AT_A_GLANCE)
    def test_a_process_that_never_asked_refuses_it_by_the_description(self, place, what):
        schema, answer, _said = REFUSED[what]
        with asks_for(schema).compile(checkpointer=place.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        with asks_for(schema).compile(checkpointer=place.open()) as app:
            with pytest.raises(InvalidAnswer):
                app.resume(answer, thread_id="t")
            assert app.get_state("t").status == "waiting"

    @pytest.mark.parametrize("what", TAKEN)
    def test_a_process_that_never_asked_takes_a_right_one(self, place, what):
        schema, answer, value = TAKEN[what]
        with asks_for(schema).compile(checkpointer=place.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        with asks_for(schema).compile(checkpointer=place.open()) as app:
            assert app.resume(answer, thread_id="t").state["log"] == [shows(value)]

    @pytest.mark.parametrize("what", ["a constraint", "a pydantic model"])
    def test_what_only_the_type_can_judge_is_asked_again_with_the_reason(self, place, what):
        schema, answer, said = REFUSED[what]
        good, value = TAKEN["a struct" if what == "a constraint" else what][1:]
        with asks_for(schema).compile(checkpointer=place.open()) as app:
            first = app.invoke({"n": 1}, thread_id="t").interrupt
        with asks_for(schema).compile(checkpointer=place.open()) as app:
            again = app.resume({first.id: answer}, thread_id="t").interrupt
            assert again.id == first.id
            assert first.reason == ""
            assert again.reason.startswith("the answer ")
            assert re.search(said, again.reason)
            assert app.get_state("t").interrupts == (again,)
            with pytest.raises(InvalidAnswer):
                app.resume({first.id: answer}, thread_id="t")
            outcome = app.resume({first.id: good}, thread_id="t")
            assert outcome.state["log"] == [shows(value)]
            with pytest.raises(AlreadyAnswered):
                app.resume({first.id: good}, thread_id="t")

    def test_one_wrong_answer_of_a_map_refuses_the_map(self, store):
        def node(_state):
            return {"log": [interrupt("?", key="a", schema=bool), interrupt("?", key="b")]}

        with line("g", ask=node).compile(checkpointer=store) as app:
            first = app.invoke({"n": 1}, thread_id="t").interrupt
            with pytest.raises(InvalidAnswer):
                app.resume({first.id: 3}, thread_id="t")
            assert app.resume({first.id: True}, thread_id="t").interrupt.id != first.id

    def test_who_answers_sees_what_is_taken(self, store):
        with asks_for(Decision).compile(checkpointer=store) as app:
            question = app.invoke({"n": 1}, thread_id="t").interrupt
            assert question.schema["$defs"]["Decision"]["required"] == ["approve"]
            assert app.get_state("t").interrupts[0].schema == question.schema

    def test_a_question_without_one_takes_anything(self, store):
        with asks().compile(checkpointer=store) as app:
            assert app.invoke({"n": 1}, thread_id="t").interrupt.schema is None
            assert app.resume([1], thread_id="t").state["log"] == [[1]]

    @pytest.mark.parametrize("schema", [5, "int", {"type": "string"}])
    def test_what_is_no_type_fails_the_node_that_gave_it(self, memory, schema):
        with (
            asks_for(schema).compile(checkpointer=memory) as app,
            pytest.raises(NodeFailed) as caught,
        ):
            app.invoke({"n": 1}, thread_id="t")
        assert isinstance(caught.value.__cause__, InvalidCall)

    def test_a_validator_that_raises_anything_refuses_the_answer(self, memory):
        @dataclasses.dataclass
        class Odd:
            n: int

            def __post_init__(self):
                raise KeyError("odd")

        with asks_for(Odd).compile(checkpointer=memory) as app:
            app.invoke({"n": 1}, thread_id="t")
            with pytest.raises(InvalidAnswer, match="odd"):
                app.resume({"n": 1}, thread_id="t")

    def test_the_code_may_ask_for_another_type_meanwhile(self, place):
        with asks_for(int).compile(checkpointer=place.open()) as app:
            app.invoke({"n": 1}, thread_id="t")
        with asks_for(str).compile(checkpointer=place.open()) as app:
            again = app.resume(3, thread_id="t").interrupt
            assert "Expected `str`" in again.reason
            assert again.schema == {"type": "string"}
            assert app.resume("three", thread_id="t").state["log"] == ["'three'"]


class TestSideBySide:
    def test_questions_without_keys_cannot_be_told_apart(self, store):
        async def one(value):
            return interrupt(value)

        async def node(_state):
            return {"log": list(await asyncio.gather(one("a"), one("b")))}

        policy = RetryPolicy(max_attempts=5)
        with line("g", ask=(node, {"retry": policy})).compile(checkpointer=store) as app:
            with pytest.raises(NodeFailed, match="told apart by keys") as caught:
                app.invoke({"n": 1}, thread_id="t")
        assert isinstance(caught.value.__cause__, KeyRequired)
        assert (caught.value.attempt, caught.value.code) == (1, "key_required")

    def test_nor_can_one_with_a_key_and_one_without(self, memory):
        async def node(_state, ctx):
            async def one(value, **key):
                return ctx.interrupt(value, **key)

            return {"log": list(await asyncio.gather(one("a", key="a"), one("b")))}

        with (
            line("g", ask=node).compile(checkpointer=memory) as app,
            pytest.raises(NodeFailed) as caught,
        ):
            app.invoke({"n": 1}, thread_id="t")
        assert isinstance(caught.value.__cause__, KeyRequired)

    @pytest.mark.parametrize("group", [False, True])
    def test_with_keys_all_are_open_at_once(self, store, group):
        runs = []

        async def one(key):
            return interrupt(f"{key}?", key=key)

        async def node(_state):
            runs.append(1)
            if not group:
                return {"log": list(await asyncio.gather(one("a"), one("b")))}
            async with asyncio.TaskGroup() as tasks:
                found = [tasks.create_task(one(key)) for key in "ab"]
            return {"log": [task.result() for task in found]}

        with line("g", ask=node).compile(checkpointer=store) as app:
            first, second = app.invoke({"n": 1}, thread_id="t").interrupts
            assert (first.value, second.value) == ("a?", "b?")
            outcome = app.resume({second.id: "B"}, thread_id="t")
            assert outcome.interrupts == (first,)
            assert len(runs) == 1, "only a task whose answers are complete runs again"
            assert app.resume("A", thread_id="t").state["log"] == ["A", "B"]
            assert len(runs) == 2

    def test_in_threads_of_a_node_too(self, memory):
        def node(_state, ctx):
            with ThreadPoolExecutor(2) as pool:
                asked = [pool.submit(ctx.interrupt, key, key=key) for key in "ab"]
            return {"log": [each.result() for each in asked]}

        with line("g", ask=node).compile(checkpointer=memory) as app:
            questions = app.invoke({"n": 1}, thread_id="t").interrupts
            answers = {q.id: q.value.upper() for q in questions}
            assert sorted(answers.values()) == ["A", "B"]
            assert app.resume(answers, thread_id="t").state["log"] == ["A", "B"]

    def test_one_key_side_by_side_is_one_question(self, memory):
        async def one():
            return interrupt("?", key="k")

        async def node(_state):
            return {"log": list(await asyncio.gather(one(), one()))}

        with line("g", ask=node).compile(checkpointer=memory) as app:
            assert app.invoke({"n": 1}, thread_id="t").interrupt.value == "?"
            assert app.resume("x", thread_id="t").state["log"] == ["x", "x"]

    def test_a_failure_beside_a_question_is_a_failure(self, memory):
        async def fails():
            raise ValueError("boom")

        async def one():
            return interrupt("?", key="k")

        async def node(_state):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one())
                tasks.create_task(fails())

        with line("g", ask=node).compile(checkpointer=memory) as app, pytest.raises(NodeFailed):
            app.invoke({"n": 1}, thread_id="t")

    def test_a_question_that_was_swallowed_and_another_one_say_the_cure(self, memory):
        def node(_state):
            with contextlib.suppress(BaseException):
                interrupt("a")
            interrupt("b")

        with line("g", ask=node).compile(checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match="bare except"):
                app.invoke({"n": 1}, thread_id="t")


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "says"),
        [
            (7, "the key of an interrupt is 7; give a text of 1 to 256 characters"),
            ("", "the key of an interrupt is ''; give a text"),
            ("k" * 300, "of 300 characters; give a text"),
            ("\ud800", "leave out surrogate characters"),
        ],
        ids=["number", "empty", "long", "surrogate"],
    )
    def test_an_unfit_one_fails_the_node_before_anything_is_asked(self, memory, key, says):
        def asks(_state, ctx):
            return {"log": [ctx.interrupt("?", key=key)]}

        with line("top", asks=asks).compile(checkpointer=memory) as app:
            with pytest.raises(NodeFailed, match=says):
                app.invoke({}, thread_id="t")
            assert app.get_state("t").interrupts == ()


class TestWhoseObject:
    def test_an_answer_is_never_the_callers_own_object(self, store):
        given = {"tags": ["a"]}
        with asks().compile(checkpointer=store) as app:
            app.invoke({"n": 1}, thread_id="t")
            outcome = app.resume(given, thread_id="t")
            given["tags"].append("b")
            assert outcome.state["log"] == [{"tags": ["a"]}]
            assert outcome.state["log"][0] is not given

    def test_each_attempt_has_an_object_of_its_own(self, memory):
        seen = []

        def node(_state):
            answer = interrupt("?")
            answer.append("mine")
            seen.append(list(answer))
            if len(seen) == 1:
                raise ConnectionError
            return {"log": answer}

        with line("g", ask=(node, {"retry": RetryPolicy(initial_delay=0.0)})).compile(
            checkpointer=memory
        ) as app:
            app.invoke({"n": 1}, thread_id="t")
            assert app.resume(["a"], thread_id="t").state["log"] == ["a", "mine"]


class TestLoops:
    def test_a_loop_asks_until_the_answer_is_right(self, store):
        """langgraph 73; peers 14."""

        def node(_state):
            said = "how old?"
            while not isinstance(age := interrupt(said), int):
                said = f"{age!r} is no age; how old?"
            return {"log": [age]}

        with line("g", ask=node).compile(checkpointer=store) as app:
            asked = [app.invoke({"n": 1}, thread_id="t").interrupt]
            for wrong in ("x", "y", None, "z"):
                asked.append(app.resume(wrong, thread_id="t").interrupt)
            assert [q.value for q in asked[:2]] == ["how old?", "'x' is no age; how old?"]
            assert len({q.id for q in asked}) == 5
            assert type(app.resume(42, thread_id="t")) is Completed

    def test_an_answer_over_which_the_node_fails_is_not_replaced_and_the_error_says_the_cure(
        self, memory
    ):
        def node(_state):
            return {"log": [1 / interrupt("?")]}

        with line("g", ask=node).compile(checkpointer=memory) as app:
            id_ = app.invoke({"n": 1}, thread_id="t").interrupt.id
            with pytest.raises(NodeFailed):
                app.resume(0, thread_id="t")
            with pytest.raises(AlreadyAnswered, match=r"on_unfinished='restart'.*schema=.*loop"):
                app.resume({id_: 1}, thread_id="t")
            again = app.invoke({"n": 2}, thread_id="t", on_unfinished="restart")
            assert type(again) is Interrupted
            assert app.resume(2, thread_id="t").state["log"] == [0.5]


def test_a_told_answer_is_judged_by_the_thread(store):
    with Runtime(store, graphs=[app := asks_for(bool).compile()]) as runtime:
        thread = runtime.thread("t", graph=app)
        question = thread.ask(Invoke({"n": 1})).interrupt
        with pytest.raises(InvalidAnswer):
            thread.tell(Resume({question.id: "yes"}))
        assert thread.get_state().interrupts == (question,)
