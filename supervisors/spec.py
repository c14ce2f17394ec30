"""Child specifications and supervisor flags, checked where they are written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec
import pykka

from supervisors.actor import Actor, Execution
from supervisors.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from supervisors.inbox import Name

__all__ = [
    "BRUTAL_KILL",
    "INFINITY",
    "AutoShutdown",
    "Backoff",
    "ChildSpec",
    "ChildType",
    "Restart",
    "ShutdownRule",
    "Strategy",
    "check_flags",
    "check_specs",
]

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]
ChildType: TypeAlias = Literal["worker", "supervisor"]
ShutdownRule: TypeAlias = float | Literal["brutal_kill"]

_RESTARTS = get_args(Restart)
_TYPES = get_args(ChildType)

BRUTAL_KILL: Literal["brutal_kill"] = "brutal_kill"
"""Shut down by a kill: no `on_stop`."""

INFINITY = math.inf
"""Wait for ever; the default, and the advice, for supervisors."""


class Backoff(msgspec.Struct, frozen=True):
    """A growing delay before restarts. It never resets the restart budget.

    Attributes:
        initial: seconds before the first restart
        factor: by how much each further delay grows
        cap: seconds that no delay exceeds; mandatory
        stable_after: seconds of life after which the delay begins anew
    """

    initial: float
    factor: float = 2.0
    cap: float = 30.0
    stable_after: float = 60.0

    def __post_init__(self) -> None:
        """Check the values."""
        _require(self.initial >= 0, "initial", self.initial, "give seconds, 0 or more")
        _require(self.factor >= 1, "factor", self.factor, "give 1 or more")
        capped = math.isfinite(self.cap) and self.cap >= self.initial
        _require(capped, "cap", self.cap, "give finite seconds, not less than `initial`")
        _require(self.stable_after > 0, "stable_after", self.stable_after, "give seconds over 0")

    def delay(self, failures: int) -> float:
        """Return the seconds to wait before the restart after `failures` failures in a row."""
        exponent = min(failures - 1, 64)
        return min(self.initial * self.factor**exponent, self.cap)


class ChildSpec(msgspec.Struct, frozen=True):
    """How a supervisor starts, restarts and ends one child (OTP's child specification).

    Attributes:
        id: names the child to its supervisor; a dynamic one makes up those that are None
        actor: a subclass of `Actor`, or of one of pykka's own actor classes (see `Hosted`)
        args: positional arguments of its `__init__`, for each incarnation anew
        kwargs: keyword arguments of its `__init__`
        restart: `permanent` (always), `transient` (after abnormal ends), `temporary` (never)
        shutdown: seconds from the exit signal to the kill, `INFINITY` or `BRUTAL_KILL`;
            None: 5 seconds for a worker, infinity for a supervisor
        type: `worker` or `supervisor`; None: by the class
        significant: its own end may end the supervisor: see `auto_shutdown`
        name: a name in the actor system, or a `Via`, which each incarnation has
        start_timeout: seconds that a start may take; None: the system's limit
        execution: `pooled`, or `thread` for a worker of its own; None: as the class says

    Raises:
        InvalidSpec: a field is wrong; it names the field, the value and the cure

    Example:
        >>> ChildSpec("db", Actor, restart="transient").shutdown_rule
        5.0
    """

    id: Hashable
    actor: type[pykka.Actor]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    restart: Restart = "permanent"
    shutdown: ShutdownRule | None = None
    type: ChildType | None = None
    significant: bool = False
    name: str | Name | None = None
    start_timeout: float | None = None
    execution: Execution | None = None

    def __post_init__(self) -> None:
        """Check the fields, in OTP's order."""
        actor: object = self.actor
        fine = isinstance(actor, type) and issubclass(actor, pykka.Actor)
        _require(fine, "actor", actor, "give a subclass of supervisors.Actor")
        _require(isinstance(self.args, tuple), "args", self.args, "give a tuple")
        _one_of("restart", self.restart, _RESTARTS)
        whole = isinstance(self.significant, bool)
        _require(whole, "significant", self.significant, "give True or False")
        if self.type is not None:
            _one_of("type", self.type, _TYPES)
        _check_shutdown(self.shutdown)
        if self.shutdown == BRUTAL_KILL and not issubclass(self.actor, Actor):
            cure = (
                "pykka's own actors cannot be killed: give seconds, or make it a supervisors.Actor"
            )
            raise InvalidSpec("shutdown", BRUTAL_KILL, cure)
        if self.significant and self.restart == "permanent":
            raise InvalidSpec(
                "significant", value=True, cure="a permanent child never ends for good: "
                "make it transient or temporary"
            )  # fmt: skip
        if self.execution is not None:
            _one_of("execution", self.execution, get_args(Execution))
        if self.start_timeout is not None:
            fine = self.start_timeout > 0
            _require(fine, "start_timeout", self.start_timeout, "give seconds over 0, or None")

    @property
    def child_type(self) -> ChildType:
        """Whether the child is a worker or a supervisor."""
        if self.type is not None:
            return self.type
        kind: ChildType = getattr(self.actor, "child_type", "worker")  # pykka's own have none
        return kind

    @property
    def shutdown_rule(self) -> ShutdownRule:
        """The shutdown that holds, with the default filled in."""
        if self.shutdown is not None:
            return self.shutdown
        return INFINITY if self.child_type == "supervisor" else 5.0


def _require(condition: bool, field: str, value: object, cure: str) -> None:
    if not condition:
        raise InvalidSpec(field, value, cure)


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidSpec(field, value, f"give one of {', '.join(allowed)}")


def _check_shutdown(value: object) -> None:
    if value is None or value == BRUTAL_KILL:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fine = number and value >= 0  # type: ignore[operator]  # it is a number by now
    _require(fine, "shutdown", value, "give seconds (0 or more), INFINITY or BRUTAL_KILL")


def check_flags(strategy: str, intensity: object, period: object, auto_shutdown: str) -> None:
    """Check the flags of a supervisor.

    Raises:
        InvalidSpec: one of them is wrong
    """
    _one_of("strategy", strategy, get_args(Strategy))
    count = isinstance(intensity, int) and not isinstance(intensity, bool) and intensity >= 0
    _require(count, "intensity", intensity, "give a whole number of restarts, 0 or more")
    number = isinstance(period, int | float) and not isinstance(period, bool)
    fine = number and math.isfinite(period) and period > 0  # type: ignore[operator, arg-type]
    _require(fine, "period", period, "give finite seconds over 0")
    _one_of("auto_shutdown", auto_shutdown, get_args(AutoShutdown))


def check_specs(specs: Iterable[ChildSpec], auto_shutdown: str = "never") -> list[ChildSpec]:
    """Check that `specs` go together under one supervisor; return them as a list.

    Raises:
        InvalidSpec: not a `ChildSpec`, an id twice or None, or significant without `auto_shutdown`
    """
    found = list(specs)
    seen: set[Hashable] = set()
    for spec in found:
        check_spec(spec, auto_shutdown)
        _require(spec.id is not None, "id", None, "give each child an id")
        _require(spec.id not in seen, "id", spec.id, "it is taken by an earlier child: rename one")
        seen.add(spec.id)
    return found


def check_spec(spec: object, auto_shutdown: str) -> None:
    """Check that `spec` is one, and suits the supervisor's `auto_shutdown`.

    Raises:
        InvalidSpec: it does not
    """
    if not isinstance(spec, ChildSpec):
        raise InvalidSpec("child", spec, "give a ChildSpec(id, actor_class, ...)")
    if spec.significant and auto_shutdown == "never":
        raise InvalidSpec(
            "significant", value=True,
            cure=f"child {spec.id!r} can end no supervisor whose auto_shutdown is 'never'",
        )  # fmt: skip
