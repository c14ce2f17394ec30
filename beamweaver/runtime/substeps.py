"""Durable sub-steps of a task: `ctx.step()`, seen from the attempt that makes them."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

from beamweaver.checkpoint.entries import Memo
from beamweaver.engine.ids import call_ordinal
from beamweaver.errors import InvalidCall, KeyRequired, SerializationError, StepChanged
from beamweaver.graph._text import shown
from beamweaver.runtime import messages as msg
from beamweaver.runtime.unawaited import Unawaited

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from beamweaver.engine.effects import Attempt
    from beamweaver.runtime.frames import Body, Frame
    from supervisors import Future

__all__ = ["GivenUp", "Opened", "SubSteps", "check_key", "refuse_inside"]

_NAME_LENGTH = 256
Ident: TypeAlias = tuple[str, int, str | None]
Kind: TypeAlias = Literal["step", "call"]
_SHOWN: Final = {
    "step": ("steps", "ctx.step({name!r}, fn, …, key=…)"),
    "call": ("calls of graph", "ctx.call(graph, input, key=…)"),
}

_HANDLER = "handler:"

_inside: ContextVar[str | None] = ContextVar("beamweaver_step", default=None)
"""The sub-step whose function runs here."""


class GivenUp(BaseException):
    """Ends the body of an attempt that was given up; what it does counts for nothing any more."""


class SubSteps:
    """What one attempt knows of the sub-steps of its task.

    A sub-step is known by name and key, or else by how many of that name have ended well before it in this
    attempt: a call that raised gives its number back, so that a loop that tries again finds its result.
    """

    __slots__ = (
        "_bytes",
        "_counts",
        "_frame",
        "_known",
        "_open",
        "attempt",
        "body",
        "unawaited",
        "under_way",
    )

    def __init__(self, frame: Frame, attempt: Attempt, body: Body) -> None:
        self._frame = frame
        self.attempt = attempt
        self.body = body
        self._known: dict[Ident, Memo] = dict(attempt.task.memos or {})
        self._bytes = sum(len(memo.value) for memo in self._known.values())
        self._counts: dict[tuple[Kind, str], int] = {}
        self._open: dict[tuple[Kind, str, str | None], object] = {}
        self.under_way: dict[Ident, Any] = {}
        """What the thread's actor was told, as long as no caller has heard the end of it: a note, or a call.

        A caller may be cut off (`asyncio.timeout`) and make the same call again, which hears it then.
        """
        self.unawaited = Unawaited()

    # The two ways to run one --------------------------------------------------------------------

    def run(self, name: str, key: str | None, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A sub-step of a sync node."""
        if inspect.iscoroutinefunction(fn):
            self._cannot_await(name)
        with Opened(self, name, key) as ident:
            digest = self._digest(name, args)
            memo = self._recorded(ident, digest)
            if memo is None:
                with _Inside(name):
                    value = fn(*args)
                if inspect.iscoroutine(value):
                    value.close()
                    self._cannot_await(name)
                memo, kept = self._note(ident, digest, value)
                kept.get()
                self.keep(ident, memo)
        return self._value(memo)

    def run_async(
        self, name: str, key: str | None, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> Coroutine[Any, Any, Any]:
        """A sub-step of an async node; a sync function runs on the loop, as if the node called it."""
        spelled = f"ctx.step({shown(name)}, …)"
        return self.unawaited.watch(self._run_async(name, key, fn, args), spelled)

    async def _run_async(
        self, name: str, key: str | None, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        with Opened(self, name, key) as begun:
            digest = self._digest(name, args)
            ident = self._after_cut_off(name, begun, digest)
            memo = self._recorded(ident, digest)
            if memo is None:
                note = self.under_way.get(ident)
                if note is None:
                    with _Inside(name):
                        value = fn(*args)
                        if inspect.isawaitable(value):
                            value = await value
                    note = self._note(ident, digest, value)
                memo, kept = note
                await kept
                self.keep(ident, memo)
        return self._value(memo)

    def _after_cut_off(self, name: str, ident: Ident, digest: bytes) -> Ident:
        """The identity of a sub-step, where the one before may have ended well and nobody heard of it.

        With the same arguments it is that one; with others it comes after it, as when the node runs again.
        """
        note = self.under_way.get(ident)
        scoped, number, key = ident
        if note is None or note[0].digest == digest or key is not None:
            return ident
        self._counts["step", name] = number + 1
        return scoped, number + 1, None

    def _cannot_await(self, name: str) -> NoReturn:
        raise InvalidCall(
            f"step {name!r} of node {self._node!r}: its function is async, and nobody awaits it in a sync "
            "node; make the node async, or the function sync"
        )

    # Before its function is called --------------------------------------------------------------

    @property
    def _node(self) -> str:
        return self.attempt.node.name

    def begin(self, what: Kind, name: str, key: str | None, mark: object) -> Ident:
        """Give a sub-step, or a call of a graph, that begins its identity.

        Raises:
            InvalidCall: Name or key is unfit, or it begins inside of another sub-step and has no key.
            KeyRequired: Another one of that name runs, and no key tells them apart.
        """
        several, spelled = _SHOWN[what]
        check_key(name, "the name of a step")
        check_key(key, f"the key of {what} {name!r}")
        if key is None:
            refuse_inside(spelled.format(name=name))
        if self._open.setdefault((what, name, key), mark) is not mark:
            with_key = "" if key is None else f" with the key {key!r}"
            raise KeyRequired(
                f"node {self._node!r} runs two {several} {name!r}{with_key} at once, and only a key tells "
                f"which result is whose: {spelled.format(name=name)} with a key of its own for each",
                node=self._node,
            )
        # What the node's error handler does is none of the node's own sub-steps.
        scoped = name if self.attempt.handles is None else f"{_HANDLER}{name}"
        number = None if key is not None else self._counts.get((what, name), 0)
        if what == "call":
            return scoped, call_ordinal(number), key
        return scoped, -1 if number is None else number, key

    def end(self, what: Kind, name: str, key: str | None, *, well: bool) -> None:
        """A sub-step or call has ended."""
        if well and key is None:
            self._counts[what, name] = self._counts.get((what, name), 0) + 1
        self._open.pop((what, name, key), None)

    def _digest(self, name: str, args: tuple[Any, ...]) -> bytes:
        try:
            return self._frame.hub.codec.digest(list(args), "args")
        except SerializationError as error:
            raise SerializationError(
                f"node {self._node!r}, step {name!r}: {error.message}; the arguments tell a changed step "
                "from an equal one: bind what cannot be stored with functools.partial or a lambda",
                **{**error.ids, "node": self._node},
            ) from error.__cause__

    def recorded(self, ident: Ident) -> Memo | None:
        """The memo of a sub-step or call, if it ended well before.

        Raises:
            InvalidCall: It did not, and the task has too many memos for another one.
        """
        memo = self._known.get(ident)
        if memo is None and ident not in self.under_way:
            self._check_room(ident[0], 0)
        return memo

    def _recorded(self, ident: Ident, digest: bytes) -> Memo | None:
        """The memo of the sub-step, if it ended well before.

        Raises:
            StepChanged: It had other arguments.
            InvalidCall: The task has too many memos for another one.
        """
        memo = self.recorded(ident)
        known = memo or self.under_way.get(ident, (None,))[0]
        if known is None or known.digest == digest:
            return memo
        name, ordinal, key = ident
        which = f"key {key!r}" if key is not None else f"number {ordinal + 1}"
        raise StepChanged(
            f"node {self._node!r} calls step {name!r} ({which}) with other arguments than those of the "
            "result that is recorded for it. Arguments must follow from the state; where the code has "
            "changed, give the step another name or key, or begin the run anew (on_unfinished='restart')",
            node=self._node,
            step_name=name,
        )

    def _check_room(self, name: str, more: int) -> None:
        limits = self._frame.hub.limits
        known = len(self._known) + len(self.under_way)
        if known >= limits.memos_a_task:
            raise InvalidCall(
                f"node {self._node!r}, step {name!r}: the task has {known} results of steps, "
                "which is limits.memos_a_task; split the node, or raise the limit"
            )
        if self._bytes + more > limits.memo_bytes_a_task:
            raise InvalidCall(
                f"node {self._node!r}, step {name!r}: the results of the task's steps would have "
                f"{self._bytes + more} bytes, and limits.memo_bytes_a_task is {limits.memo_bytes_a_task}; "
                "split the node, or keep large results elsewhere and return their address"
            )

    # After it -----------------------------------------------------------------------------------

    def _note(self, ident: Ident, digest: bytes, value: Any) -> tuple[Memo, Future[None]]:
        """Send the result to the thread's actor; the future tells when it is kept."""
        name, ordinal, key = ident
        hub = self._frame.hub
        try:
            data = hub.codec.encode(value, f"step {name}")
        except SerializationError as error:
            raise SerializationError(
                f"node {self._node!r}, {error.message}", **{**error.ids, "node": self._node}
            ) from error.__cause__
        self._check_room(name, len(data))
        if hub.fault is not None:
            hub.reached("step.ran", self._frame.thread_id)
        if not self.body.live:
            raise GivenUp
        memo = Memo(self.attempt.position, name, ordinal, key, digest, data)
        kept = hub.system.future()
        self.under_way[ident] = memo, kept
        self.body.tell(msg.Note(self.attempt, memo, kept))
        return memo, kept

    def keep(self, ident: Ident, memo: Memo) -> None:
        """A memo is in the store."""
        self._known[ident] = memo
        self.under_way.pop(ident, None)
        self._bytes += len(memo.value)
        hub = self._frame.hub
        if hub.fault is not None:
            hub.reached("step.kept", self._frame.thread_id)

    def _value(self, memo: Memo) -> Any:
        return self._frame.hub.codec.decode(memo.value, f"step {memo.name}")


class Opened:
    """The time in which a sub-step or a call of a graph runs."""

    __slots__ = ("_key", "_name", "_steps", "_what")

    def __init__(self, steps: SubSteps, name: str, key: str | None, what: Kind = "step") -> None:
        self._steps = steps
        self._name = name
        self._key = key
        self._what = what

    def __enter__(self) -> Ident:
        return self._steps.begin(self._what, self._name, self._key, self)

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._steps.end(self._what, self._name, self._key, well=kind is None)


class _Inside:
    """The time in which the function of a sub-step runs."""

    __slots__ = ("_name", "_token")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._token = _inside.set(self._name)

    def __exit__(self, *_error: object) -> None:
        _inside.reset(self._token)


def refuse_inside(what: str) -> None:
    """Refuse what is told apart by its order alone inside of a sub-step: the order changes with its memo.

    Raises:
        InvalidCall: The function of a sub-step calls.
    """
    name = _inside.get()
    if name is not None:
        raise InvalidCall(
            f"{what} is called inside of step {name!r}: when that step is not run again, what follows "
            "would be counted otherwise; call it between steps, or give it a key="
        )


def check_key(key: object, what: str) -> None:
    """Judge a name or key that is to be stored; None is no key.

    Raises:
        InvalidCall: It is no text, empty, too long, or cannot be stored.
    """
    if key is None and what.startswith("the key"):
        return
    if not isinstance(key, str) or not 0 < len(key) <= _NAME_LENGTH:
        value = shown(key)
        if isinstance(key, str) and key:
            value = f"{key[:40]!r}…, of {len(key)} characters"
        raise InvalidCall(f"{what} is {value}; give a text of 1 to {_NAME_LENGTH} characters")
    if any("\ud800" <= char <= "\udfff" for char in key):
        raise InvalidCall(
            f"{what} is {key!r}; leave out surrogate characters, which no store takes"
        )
