"""The actors that scenarios play with, and the stage that knows them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from supervisors import (
    BRUTAL_KILL,
    INFINITY,
    NORMAL,
    Actor,
    ActorExit,
    ActorRef,
    ActorSystem,
    AlreadyStarted,
    CallTimeout,
    Cell,
    ChildSpec,
    Down,
    DynamicSupervisor,
    Exit,
    ExitReason,
    Future,
    Ignore,
    MonitorRef,
    Reply,
    StartError,
    Supervisor,
    terminate_child,
)
from tests.otp.wording import Boom, error_words, reason, reason_words, start_words

__all__ = ["Player", "Stage", "spec_of", "start_supervisor"]

Options = dict[str, str]


class Stage:
    """What a scenario defines, and the journal of what happens."""

    def __init__(self, system: ActorSystem) -> None:
        self.system = system
        self.supervisors: dict[str, Options] = {}
        self.children: dict[str, list[tuple[str, Options]]] = {}
        self.templates: dict[str, Options] = {}
        self.entries: list[tuple[str, str]] = []
        self._attempts: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()
        self._cells: dict[str, Cell] = {}
        self._names: dict[Any, str] = {}

    def attempt(self, label: str, options: Options) -> tuple[str, bool]:
        """Count an attempt to start `label`; return how it shall end, and whether to note it."""
        outcomes = options.get("starts", "ok").split(",")
        self._attempts[label] += 1
        number = self._attempts[label]
        noted = number <= len(outcomes) or options.get("loop", "no") == "no"
        return outcomes[min(number, len(outcomes)) - 1], noted

    def enter(self, cell: Cell, label: str, *, plain: bool = False) -> str:
        """Name an actor that is about to start, and watch for its end."""
        self._numbers[label] += not plain
        name = label if plain else f"{label}#{self._numbers[label]}"
        self._cells[label] = self._cells[name] = cell
        self._names[cell] = name
        ended = self.system.monitor_from_outside(cell)
        ended.add_done_callback(partial(self._down, name))
        return name

    def _down(self, name: str, ended: Future[Any]) -> None:
        self.note("", f"down {name} {reason_words(ended.get(), self.name)}")

    def note(self, witness: str, text: str) -> None:
        self.entries.append((witness, text))

    def cell(self, word: str) -> Cell:
        return self._cells[word]

    def ref(self, word: str) -> ActorRef[Any]:
        return self._cells[word].ref

    def name(self, who: object) -> str:
        if who is None:
            return "runner"
        return self._names[who.cell if isinstance(who, ActorRef) else who]

    def alive(self) -> list[str]:
        return sorted(name for cell, name in self._names.items() if not cell.stopped)


class Player(Actor):
    """Does what commands and calls ask of it, and notes what it sees. Its messages are tuples."""

    interruptible = True

    def __init__(self, stage: Stage, label: str, options: Options, *, plain: bool = False) -> None:
        self._stage = stage
        self._label = label
        self._options = options
        self._plain = plain
        self._monitors: dict[str, MonitorRef] = {}
        self._name = label
        self.trap_exit = options.get("trap") == "yes"

    def on_start(self) -> None:
        outcome, noted = self._stage.attempt(self._label, self._options)
        if outcome in {"error", "ignore"}:
            if noted:
                word = "fail" if outcome == "error" else "ignore"
                self._stage.note("", f"{word} {self._label}")
            raise Boom("boom") if outcome == "error" else Ignore
        kind, _, value = outcome.partition(":")
        if kind == "calls":
            self._call_supervisor()
        self._name = self._stage.enter(self.cell, self._label, plain=self._plain)
        if kind == "slow":
            self._nap(value)
        self._stage.note("", f"start {self._name}")
        if kind == "dies":
            self.handle_continue(reason(value))

    def _call_supervisor(self) -> None:
        parent: Any = self.cell.parent
        try:
            terminate_child(parent.ref, self._label)
        except Exception:
            self._stage.note("", f"fail {self._label}")
            raise

    def on_continue(self, term: Any) -> None:
        self.exit(term)

    def on_stop(self, reason: ExitReason = NORMAL) -> None:
        if self._options.get("tells") == "yes":
            self._stage.note("", f"stop {self._name} {self._words(reason)}")
        kind, _, value = self._options.get("ends", "ok").partition(":")
        if kind == "slow":
            self._nap(value)
        elif kind == "raise":
            raise Boom("boom")

    def on_receive(self, message: Any) -> Any:
        verb, *args = message
        return getattr(self, f"_do_{verb}")(*args)

    def on_signal(self, signal: Exit | Down) -> None:
        why = self._words(signal.reason)
        if isinstance(signal, Exit):
            self._note(f"EXIT {self._stage.name(signal.sender)} {why}")
            return
        self._note(f"DOWN {signal.token} {why}")
        heir = self._options.get("heir")
        if heir is not None:
            self._inherit(heir)

    def _inherit(self, name: str) -> None:
        try:
            ref = self.system.start(Player, self._stage, "heir", {}, plain=True, name=name)
        except AlreadyStarted as error:
            self._note(f"heir {error_words(error, self._stage.name)}")
        else:
            self._note(f"heir ok {self._stage.name(ref)}")

    # Calls

    def _do_echo(self, word: str) -> str:
        return word

    def _do_hang(self) -> None:
        self.defer()

    def _do_answer_exit(self, word: str) -> str:
        self.exit(reason(word))
        return "answered"

    def _do_slow(self, ms: str) -> None:
        self.system.send_after(int(ms) / 1000, self.cell, ("answer", self.defer()))

    def _do_answer(self, reply: Reply) -> None:
        self._note("slow done")
        reply.set("slow")

    # Calls and commands

    def _do_exit(self, word: str) -> None:
        self.defer()
        self.exit(reason(word))

    def _do_raise(self, word: str) -> None:
        raise Boom(word)

    # Commands

    def _do_sleep(self, ms: str) -> None:
        self._nap(ms)

    def _do_trap(self, flag: str) -> None:
        self.trap_exit = flag == "on"

    def _do_word(self, word: str) -> None:
        self._note(f"got {word}")

    def _do_link(self, other: str) -> None:
        self.link(self._stage.cell(other))

    def _do_unlink(self, other: str) -> None:
        self.unlink(self._stage.cell(other))

    def _do_monitor(self, other: str, token: str) -> None:
        self._monitors[token] = self.monitor(self._stage.cell(other), token)

    def _do_demonitor(self, token: str) -> None:
        stood = self._monitors[token].cancel()
        self._note(f"demonitor {token} {str(stood).lower()}")

    def _do_signal(self, other: str, word: str) -> None:
        signal(self.system, self._stage.cell(other), word)

    def _do_send(self, other: str, word: str) -> None:
        self._stage.cell(other).put(("word", word))

    def _do_send_exit(self, other: str, word: str, why: str) -> None:
        self._do_send(other, word)
        self.exit(reason(why))

    def _do_end_and_unlink(self, other: str, word: str) -> None:
        self._end_other(other, word)
        self._do_unlink(other)

    def _do_end_and_demonitor(self, token: str, other: str, word: str) -> None:
        self._end_other(other, word)
        self._do_demonitor(token)

    def _end_other(self, other: str, word: str) -> None:
        ended = self.system.monitor_from_outside(self._stage.cell(other))
        self._do_signal(other, word)
        ended.get()

    def _do_start_monitored(self, label: str, token: str, options: Options) -> None:
        self.system.spawn(
            Player, self._stage, label, options, plain=True, monitor=(self.cell, token)
        )

    def _do_start_supervisor(self, label: str) -> None:
        self._note(f"start_link {start_supervisor(self._stage, label, link=self.cell)}")

    def _do_call(self, other: str, request: tuple[str, ...], seconds: float, caught: bool) -> None:
        try:
            self._note(f"reply {self._stage.ref(other).ask(request, timeout=seconds)}")
        except (ActorExit, CallTimeout) as error:
            if not caught:
                raise
            self._note(error_words(error, self._stage.name))

    # Small things

    def _nap(self, ms: str) -> None:
        try:
            self.system.future().get(timeout=int(ms) / 1000)
        except CallTimeout:
            return

    def _note(self, text: str) -> None:
        self._stage.note(self._name, text)

    def _words(self, why: Any) -> str:
        return reason_words(why, self._stage.name)


class Static(Supervisor):
    """A static supervisor of a scenario."""

    def __init__(self, stage: Stage, label: str) -> None:
        self._stage = stage
        self._label = label
        options = stage.supervisors[label]
        begin(stage, self, label, options)
        flags: Any = {"intensity": 1, "period": 5, **_flags(options)}
        super().__init__(**flags)

    def children(self) -> list[ChildSpec]:
        return [
            spec_of(self._stage, child, options)
            for child, options in self._stage.children.get(self._label, [])
        ]


class Dynamic(DynamicSupervisor):
    """A dynamic supervisor of a scenario."""

    def __init__(self, stage: Stage, label: str) -> None:
        begin(stage, self, label, stage.supervisors[label])
        flags: Any = {"intensity": 1, "period": 5, **_flags(stage.supervisors[label])}
        super().__init__(**flags)


def begin(stage: Stage, actor: Actor, label: str, options: Options) -> None:
    outcome, _ = stage.attempt(label, options)
    if outcome == "ok":
        stage.note("", f"start {stage.enter(actor.cell, label)}")
        return
    stage.note("", f"{'fail' if outcome == 'error' else outcome} {label}")
    raise Boom("boom") if outcome == "error" else Ignore


def _flags(options: Options) -> dict[str, Any]:
    numbers = {"intensity", "period"}
    return {
        key: _number(value) if key in numbers else value
        for key, value in options.items()
        if key not in {"name", "starts"}
    }


def _number(word: str) -> int | str:
    try:
        return int(word)
    except ValueError:
        return word


def spec_of(stage: Stage, child: str, options: Options) -> ChildSpec:
    """Return the child specification that a scenario writes in one line."""
    kind: Any = Player
    args: tuple[Any, ...] = (stage, child, options)
    name = options.get("name")
    if "sup" in options:
        label = options["sup"]
        kind = Dynamic if label in stage.templates else Static
        args = (stage, label)
        name = stage.supervisors[label].get("name")
    given: dict[str, Any] = {key: options[key] for key in ("restart", "type") if key in options}
    if "shutdown" in options:
        given["shutdown"] = _shutdown(options["shutdown"])
    if "significant" in options:
        word = options["significant"]
        given["significant"] = {"yes": True, "no": False}.get(word, word)
    return ChildSpec(child, kind, args, name=name, **given)


def _shutdown(word: str) -> float | str:
    if word == "infinity":
        return INFINITY
    number = _number(word)
    return (
        BRUTAL_KILL if word == BRUTAL_KILL else number / 1000 if isinstance(number, int) else word
    )


def start_supervisor(stage: Stage, label: str, link: Cell | None = None) -> str:
    """Start a supervisor that has none; return the answer in words."""
    kind: Any = Dynamic if label in stage.templates else Static
    name = stage.supervisors[label].get("name")
    try:
        ref = stage.system.start(kind, stage, label, name=name, link=link)
    except Ignore:
        return "ignore"
    except StartError as error:
        return start_words(error, stage.name)
    except AlreadyStarted as error:
        return error_words(error, stage.name)
    return f"ok {stage.name(ref)}"


def signal(system: ActorSystem, cell: Cell, word: str) -> None:
    """Send an exit signal; `kill` is the one that cannot be trapped."""
    system.exit(cell, reason("killed" if word == "kill" else word))
