"""Arguments of the builder's methods, judged one by one where they are given."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, UnsetType

from beamweaver.errors import InvalidGraph
from beamweaver.graph._handlers import NODE, handler_of
from beamweaver.graph._signatures import CannotCall
from beamweaver.graph._text import nearest, shown
from beamweaver.types import Duration, RetryPolicy, TimeoutPolicy, timeouts

if TYPE_CHECKING:
    from beamweaver.graph.specs import Handler, Timeouts

__all__ = [
    "check_options",
    "edge_options",
    "end",
    "flag",
    "handler_option",
    "isolation_option",
    "key_fault",
    "name_fault",
    "names",
    "retry_option",
    "targets",
    "timeout_option",
]

_NAME_LENGTH: Final = 128
_FORBIDDEN: Final = ("\0", ":", "|")


def _refuse(what: str, fault: str) -> InvalidGraph:
    return InvalidGraph(f"{what}: {fault}", faults=(fault,))


def name_fault(name: object, what: str) -> str | None:
    """Why a name is unfit, or None."""
    if not isinstance(name, str) or not name:
        return f"{what} is {name!r}; give a str that is not empty"
    if len(name) > _NAME_LENGTH:
        return f"{what} has {len(name)} characters; give at most {_NAME_LENGTH}"
    if any(each in name for each in _FORBIDDEN):
        return f"{what} is {name!r}; leave out NUL, ':' and '|', which separate names in ids"
    if name == "<lambda>":
        return "a lambda has no name of its own; give one: add_node(name, fn)"
    if name.startswith("__"):
        return f"{what} is {name!r}; names that begin with '__' are reserved"
    return None


def key_fault(key: object) -> str | None:
    """Why a key of the state is unfit, or None."""
    if not isinstance(key, str) or not key:
        return f"the key is {key!r}; give a str that is not empty"
    if key.startswith("__"):
        return f"the key is {key!r}; names that begin with '__' are reserved"
    return None


def end(name: object, which: str, what: str) -> str:
    """One end of an edge; whether there is such a node is judged at compile."""
    if not isinstance(name, str) or not name:
        label = getattr(name, "__name__", None)
        cure = f"its name: {label!r}" if callable(name) and label else "the name of a node"
        raise _refuse(what, f"the {which} is {name!r}; give {cure}")
    return str.__str__(name)  # a member of a str Enum is its value


def names(values: object, which: str, what: str) -> tuple[str, ...]:
    """Several names."""
    if not isinstance(values, (list, tuple, set, frozenset)):
        raise _refuse(what, f"{which} is {values!r}; give a list of node names")
    return tuple(end(value, which, what) for value in values)


def targets(
    values: Mapping[Any, str] | Sequence[str] | None, what: str
) -> Mapping[Hashable, str] | None:
    """Router targets as a mapping from value to node."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        pairs = {value: end(node, f"target of {value!r}", what) for value, node in values.items()}
    else:
        pairs = {name: name for name in names(values, "targets", what)}
    if not pairs:
        raise _refuse(what, "targets is empty; name the nodes, or leave it out for any node")
    return MappingProxyType(pairs)


def retry_option(
    retries: int | None, retry: RetryPolicy | UnsetType | None, what: str
) -> RetryPolicy | UnsetType | None:
    """The policy that `retries=` or `retry=` asks for; UNSET if neither is given."""
    if retries is None:
        if retry is UNSET or retry is None or isinstance(retry, RetryPolicy):
            return retry
        raise _refuse(what, f"retry is {retry!r}; give a RetryPolicy, or retries=2")
    if retry is not UNSET:
        raise _refuse(what, "retries and retry are both given; keep one")
    if type(retries) is not int or retries < 0:
        raise _refuse(what, f"retries is {retries!r}; give an int of 0 or more")
    return RetryPolicy(max_attempts=retries + 1)


def timeout_option(
    timeout: Duration | TimeoutPolicy | UnsetType | None, what: str
) -> Timeouts | UnsetType:
    """A timeout as seconds in all and seconds without a sign of life; UNSET if it is not given."""
    if timeout is UNSET:
        return UNSET
    try:
        return timeouts(timeout, "timeout")
    except ValueError as error:
        raise _refuse(what, str(error)) from None


def handler_option(handler: Any, what: str) -> Handler | UnsetType | None:
    """An error handler, ready to be called; UNSET if it is not given."""
    if handler is UNSET or handler is None:
        return handler
    try:
        return handler_of(handler, "the error_handler", NODE)
    except CannotCall as error:
        raise _refuse(what, str(error)) from None


def flag(value: object, name: str, what: str) -> bool:
    """An option that is on or off."""
    if not isinstance(value, bool):
        raise _refuse(what, f"{name} is {shown(value)}; give True or False")
    return value


def isolation_option(value: object, what: str) -> str | None:
    """Where a node runs."""
    if value not in (None, "process"):
        raise _refuse(what, f"isolation is {shown(value)}; give 'process', or leave it out")
    return None if value is None else "process"


def edge_options(when: object, max_runs: object, default: object, what: str) -> None:
    """Judges what makes an edge more than a plain one."""
    if when is not None and not callable(when):
        raise _refuse(
            what, f"when is {shown(when)}; give a function of (state) that says True or False"
        )
    if max_runs is not None and (type(max_runs) is not int or max_runs < 1):
        raise _refuse(
            what, f"max_runs is {shown(max_runs)}; give an int of 1 or more, or leave it out"
        )
    if flag(default, "default", what) and when is not None:
        raise _refuse(
            what,
            "when and default are both given; a default edge is taken if no other is: keep one of the two",
        )


def check_options(given: Mapping[str, object], known: type, what: str) -> None:
    """Refuses keywords that a method does not have.

    Raises:
        TypeError: There is one.
    """
    every = known.__annotations__
    for name in given:
        if name not in every:
            raise TypeError(
                f"{what}: there is no option {name!r}.{nearest(name, every)} Options: {', '.join(every)}"
            )
