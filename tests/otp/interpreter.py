"""Runs a scenario on `supervisors`: one OS thread, an order drawn from a seed, a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from supervisors import (
    Actor,
    ActorExit,
    ActorRef,
    ActorSystem,
    CallTimeout,
    ChildInfo,
    ChildSpec,
    CountChildren,
    DeleteChild,
    Event,
    Future,
    GetChildSpec,
    Ignore,
    Limits,
    NoProc,
    RestartChild,
    StartChild,
    StartError,
    SupervisorsError,
    TerminateChild,
    WhichChildren,
    count_children,
    delete_child,
    get_child_spec,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from supervisors.testing import DeterministicScheduler, leaks
from tests.otp.players import Player, Stage, signal, spec_of, start_supervisor
from tests.otp.scenario import Scenario, Step
from tests.otp.trace import Trace
from tests.otp.wording import error_words, reason, spec_words, start_words

__all__ = ["run"]

_REQUESTS: dict[str, tuple[Callable[..., Any], type]] = {
    "start_child": (start_child, StartChild),
    "terminate_child": (terminate_child, TerminateChild),
    "restart_child": (restart_child, RestartChild),
    "delete_child": (delete_child, DeleteChild),
    "get_childspec": (get_child_spec, GetChildSpec),
    "which": (which_children, WhichChildren),
    "order": (which_children, WhichChildren),
    "count": (count_children, CountChildren),
    "specs": (count_children, CountChildren),
}


def run(scenario: Scenario, seed: int = 0) -> Trace:
    """Return the trace of `scenario`.

    Raises:
        AssertionError: the system held something back at its end
    """
    events: list[Event] = []
    # OTP waits without bound after a kill; here the grace is as short as it can be
    limits = Limits(kill_grace=0.0001)
    scheduler = DeterministicScheduler(seed, max_steps=20_000)
    system = ActorSystem(scheduler, on_event=events.append, limits=limits)
    with system:
        trace = Run(system).play(scenario)
    held = [line for line in leaks(system) if "abandoned" not in line]
    assert held == [], f"{scenario.title}: {held}"
    return trace


class Client(Actor):
    """Asks supervisors at a later time."""

    def on_receive(self, message: Any) -> None:
        message()


class Run:
    """One run of one scenario."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._scheduler: Any = system.scheduler
        self._stage = Stage(system)
        self._timers: dict[str, Any] = {}
        self._settles = True
        self._unordered = False
        self._verbs: dict[str, Callable[..., str | None]] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if "_do_" in name
        }

    def play(self, scenario: Scenario) -> Trace:
        trace: Trace = []
        for step in scenario.steps():
            if self._define(step):
                continue
            quick = step.words[0] == "quick"
            result = self._perform(step.words[1:] if quick else step.words, step.options)
            lines = [] if result is None else [f"= {result}".rstrip()]
            if self._settles and not quick:
                self._scheduler.settle()
                lines += self._observed()
            trace.append((step.line, lines))
        trace.append(("end", self._ending()))
        return trace

    def _define(self, step: Step) -> bool:
        verb, *args = step.words
        stage = self._stage
        if verb == "unordered":
            self._unordered = True
        elif verb in {"supervisor", "dynamic"}:
            stage.supervisors[args[0]] = step.options
            if verb == "dynamic":
                stage.templates.setdefault(args[0], {})
        elif verb == "template":
            stage.templates[args[0]] = step.options
        elif verb == "child":
            stage.children.setdefault(args[0], []).append((args[1], step.options))
        else:
            return False
        return True

    def _observed(self) -> list[str]:
        entries = list(self._stage.entries)
        self._stage.entries.clear()
        tree = [text for witness, text in entries if not witness]
        witnesses = sorted({witness for witness, _ in entries if witness})
        return (sorted(tree) if self._unordered else tree) + [
            f"{witness}: {text}" for witness in witnesses for who, text in entries if who == witness
        ]

    def _ending(self) -> list[str]:
        stage = self._stage
        alive = stage.alive()
        supervisors = [name for name in alive if name.partition("#")[0] in stage.supervisors]
        lines = [
            f"{question} {name}: {self._api((question, name), {})}".rstrip()
            for name in supervisors
            for question in ("which", "count")
        ]
        names = [(name, self._system.whereis(name)) for name in self._system.names()]
        taken = sorted(f"{name}={stage.name(ref)}" for name, ref in names if ref is not None)
        return [*lines, " ".join(["alive", *alive]), " ".join(["names", *taken])]

    def _perform(self, words: tuple[str, ...], options: dict[str, str]) -> str | None:
        verb = self._verbs.get(words[0])
        if verb is None:
            return self._api(words, options)
        return verb(*words[1:], **({"options": options} if options else {}))

    # Steps

    def _do_start(self, label: str) -> str:
        return start_supervisor(self._stage, label)

    def _do_start_by(self, who: str, label: str) -> None:
        self._tell(who, "start_supervisor", label)

    def _do_process(self, label: str, options: dict[str, str] | None = None) -> str | None:
        given = options or {}
        name = given.get("name")
        try:
            self._system.start(Player, self._stage, label, given, plain=True, name=name)
        except Ignore:
            return "ignore"
        except StartError as error:
            return start_words(error, self._stage.name)
        except SupervisorsError as error:
            return error_words(error, self._stage.name)
        return None

    def _tell(self, who: str, *command: Any) -> None:
        self._stage.cell(who).put(command)

    def _do_exit(self, who: str, why: str) -> None:
        self._tell(who, "exit", why)

    def _do_raise(self, who: str, word: str) -> None:
        self._tell(who, "raise", word)

    def _do_kill(self, who: str) -> None:
        signal(self._system, self._stage.cell(who), "kill")

    def _do_signal(self, sender: str, who: str, why: str) -> None:
        if sender == "runner":
            signal(self._system, self._stage.cell(who), why)
        else:
            self._tell(sender, "signal", who, why)

    def _do_sleep(self, who: str, ms: str) -> None:
        self._tell(who, "sleep", ms)

    def _do_trap(self, who: str, flag: str) -> None:
        self._tell(who, "trap", flag)

    def _do_link(self, who: str, other: str) -> None:
        self._tell(who, "link", other)

    def _do_unlink(self, who: str, other: str) -> None:
        self._tell(who, "unlink", other)

    def _do_monitor(self, who: str, other: str, token: str) -> None:
        self._tell(who, "monitor", other, token)

    def _do_demonitor(self, who: str, token: str) -> None:
        self._tell(who, "demonitor", token)

    def _do_end_and_unlink(self, who: str, other: str, why: str) -> None:
        self._tell(who, "end_and_unlink", other, why)

    def _do_end_and_demonitor(self, who: str, token: str, other: str, why: str) -> None:
        self._tell(who, "end_and_demonitor", token, other, why)

    def _do_start_monitored(
        self, who: str, label: str, token: str, options: dict[str, str] | None = None
    ) -> None:
        self._tell(who, "start_monitored", label, token, options or {})

    def _do_send(self, sender: str, who: str, word: str) -> None:
        if sender == "runner":
            self._tell(who, "word", word)
        else:
            self._tell(sender, "send", who, word)

    def _do_send_exit(self, sender: str, who: str, word: str, why: str) -> None:
        self._tell(sender, "send_exit", who, word, why)

    def _do_send_after(self, ms: str, who: str, word: str, token: str) -> None:
        target = self._stage.cell(who)
        self._timers[token] = self._system.send_after(int(ms) / 1000, target, ("word", word))

    def _do_cancel(self, token: str) -> str:
        return str(self._timers[token].cancel()).lower()

    def _do_call(
        self, caller: str, who: str, *request: str, options: dict[str, str] | None = None
    ) -> str | None:
        given = options or {}
        seconds = int(given.get("timeout", "5000")) / 1000
        if caller != "runner":
            caught = given.get("caught") != "no"
            self._tell(caller, "call", who, request, seconds, caught)
            return None
        try:
            return f"reply {self._stage.ref(who).ask(request, timeout=seconds)}"
        except (ActorExit, CallTimeout) as error:
            return error_words(error, self._stage.name)

    def _do_advance(self, ms: str) -> None:
        self._scheduler.run_for(int(ms) / 1000)

    def _do_align(self, ms: str) -> None:
        now = round(self._system.clock.monotonic() * 1000)
        self._scheduler.run_for((int(ms) - now) % 1000 / 1000)

    def _do_await(self, *words: str) -> None:
        text = " ".join(words)
        while not any(text in {entry, f"{who}: {entry}"} for who, entry in self._stage.entries):
            assert self._scheduler.step() or self._scheduler.jump(), f"{text!r} never happened"

    def _do_settles(self, flag: str) -> None:
        self._settles = flag == "on"

    def _do_whereis(self, name: str) -> str:
        ref = self._system.whereis(name)
        return "undefined" if ref is None else self._stage.name(ref)

    def _do_async(self, client: str, *words: str, options: dict[str, str] | None = None) -> None:
        self._later(client, words, options or {})

    def _do_after(
        self, ms: str, client: str, *words: str, options: dict[str, str] | None = None
    ) -> None:
        asks = partial(self._later, client, words, options or {})
        self._system.send_after(int(ms) / 1000, self._system.start(Client), asks)

    # What supervisors are asked

    def _later(self, client: str, words: tuple[str, ...], options: dict[str, str]) -> None:
        verb, who, *rest = words
        stage = self._stage
        if verb in {"kill", "signal", "exit", "call"}:
            if verb == "signal":
                words = ("signal", "runner", who, *rest)
            self._perform(words, options)
            stage.note(client, "done")
            return
        answer: Future[Any]
        if verb == "stop":
            answer = stage.ref(who).stop(block=False, reason=reason(rest[0]))
        else:
            request = _REQUESTS[verb][1](*self._arguments(verb, who, rest, options))
            answer = stage.ref(who).ask(request, block=False)
        answer.add_done_callback(
            lambda found: stage.note(client, self._answered(verb, who, found.get))
        )

    def _api(self, words: tuple[str, ...], options: dict[str, str]) -> str:
        verb, who, *rest = words
        if verb == "stop":
            return self._answered(
                verb, who, lambda: self._stage.ref(who).stop(reason=reason(rest[0]))
            )
        ask = _REQUESTS[verb][0]
        return self._answered(
            verb, who, lambda: ask(self._stage.ref(who), *self._arguments(verb, who, rest, options))
        )

    def _arguments(
        self, verb: str, who: str, rest: list[str], options: dict[str, str]
    ) -> tuple[Any, ...]:
        if verb == "start_child":
            return (self._spec(who, rest[0], options),)
        return tuple(self._key(word) for word in rest)

    def _spec(self, who: str, label: str, options: dict[str, str]) -> ChildSpec:
        template = self._stage.templates.get(who.partition("#")[0])
        if template is None:
            return spec_of(self._stage, label, options)
        return replace(spec_of(self._stage, label, template), id=None)  # as in OTP, which has none

    def _key(self, word: str) -> str | ActorRef[Any]:
        return self._stage.ref(word[1:]) if word[0] == "@" else word

    def _answered(self, verb: str, who: str, get: Callable[[], Any]) -> str:
        try:
            value = get()
        except SupervisorsError as error:
            return error_words(error, self._stage.name)
        if verb in {"start_child", "restart_child"}:
            return f"ok {'undefined' if value is None else self._stage.name(value)}"
        if verb == "get_childspec":
            return spec_words(value)
        if verb == "stop":
            return "ok" if value else error_words(NoProc(who), self._stage.name)
        if verb in {"which", "order"}:
            return self._children(verb, who, value)
        if verb in {"count", "specs"}:
            return self._counts(verb, who, value)
        return "ok"

    def _children(self, verb: str, who: str, found: list[Any]) -> str:
        if verb == "order":
            return " ".join(info.id for info in found)
        dynamic = who.partition("#")[0] in self._stage.templates
        return " ".join(
            sorted(
                f"{'' if dynamic else f'{info.id}='}{self._state(info)}/{info.type}"
                for info in found
            )
        )

    def _state(self, info: ChildInfo) -> str:
        if info.state == "running":
            return self._stage.name(info.ref)
        # in the middle of an attempt OTP answers nobody; between two, it says "restarting"
        return "restarting" if info.state == "starting" and info.restarts else info.state

    def _counts(self, verb: str, who: str, found: Any) -> str:
        if verb == "specs":
            return str(found.specs)
        dynamic = who.partition("#")[0] in self._stage.templates
        keys = [*([] if dynamic else ["specs"]), "active", "supervisors", "workers"]
        return " ".join(f"{key}={getattr(found, key)}" for key in keys)
