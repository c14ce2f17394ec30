"""Structs that show no values of users: what is logged of them is short, and no secret."""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = ["Quiet"]


class Quiet(msgspec.Struct, eq=False):
    """Its repr has the fields that `shown` names, and no other."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown)
        return f"{type(self).__name__}({fields})"
