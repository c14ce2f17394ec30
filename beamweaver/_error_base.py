"""The root of all errors; users find it in `beamweaver.errors`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

__all__ = ["BeamWeaverError"]


class BeamWeaverError(Exception):
    """The root of all errors of BeamWeaver.

    Args:
        message: One sentence or more: what is wrong, where, the value, and the cure.
        **ids: What the error concerns (`thread_id`, `node`, `attempt`, …); each becomes an attribute.

    Example:
        >>> from beamweaver.errors import NodeTimeout
        >>> error = NodeTimeout("node 'a' took longer than 2 s", node="a", timeout=2)
        >>> error.code, error.node, error.timeout
        ('node_timeout', 'a', 2)
    """

    code: ClassVar[str] = "error"

    def __init_subclass__(cls) -> None:
        # Users know one module of errors, and stored failures name it.
        if cls.__module__.startswith("beamweaver._"):
            cls.__module__ = "beamweaver.errors"

    def __init__(self, message: str, **ids: Any) -> None:
        super().__init__(message)
        self.ids = ids
        for name, value in ids.items():
            setattr(self, name, value)

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self.args[0])

    def __getattr__(self, name: str) -> Any:
        # Only for names that no instance attribute answers: errors carry the ids that concern them.
        known = sorted(self.__dict__.get("ids", ()))
        raise AttributeError(f"{type(self).__name__} carries no {name!r}; it has {known}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args[0], self.ids))

    @classmethod
    def rebuilt(cls, message: str, ids: dict[str, Any]) -> Self:
        """The error again from its message and ids (what a store or a pipe kept)."""
        return cls(message, **ids)


def _rebuild(cls: type[BeamWeaverError], message: str, ids: dict[str, Any]) -> BeamWeaverError:
    return cls.rebuilt(message, ids)


BeamWeaverError.__module__ = "beamweaver.errors"
