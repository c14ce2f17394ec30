"""Partition supervisors: N children of one kind, and a key to choose one by.

For what would be a bottleneck as one actor: a dynamic supervisor, a cache, a registry of names.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from supervisors.errors import InvalidSpec, NoProc
from supervisors.requests import delete_child, start_child, terminate_child
from supervisors.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from supervisors.mailbox import Cell
    from supervisors.ref import ActorRef
    from supervisors.spec import ChildSpec

__all__ = ["PartitionSupervisor", "partition", "partitions", "resize"]


class PartitionSupervisor(Supervisor):
    """Supervises `count` children of one spec, with the ids 0 to count - 1.

    Args:
        spec: of each child; its id is replaced
        count: how many; the number of cores by default
        with_args: returns the arguments of the child with a number, given those of the spec
        **flags: as for `Supervisor`

    Example:
        >>> from supervisors import Actor, ActorSystem, ChildSpec, PartitionSupervisor, partition
        >>> with ActorSystem() as system:
        ...     shards = system.start(PartitionSupervisor, ChildSpec(None, Actor), 4)
        ...     partition(shards, "order-17") == partition(shards, "order-17")
        True
    """

    def __init__(
        self,
        spec: ChildSpec,
        count: int | None = None,
        *,
        with_args: Callable[[tuple[Any, ...], int], tuple[Any, ...]] | None = None,
        **flags: Any,
    ) -> None:
        """Check the number."""
        super().__init__((), **flags)
        number = (os.cpu_count() or 1) if count is None else count
        if number < 0:
            raise InvalidSpec("count", number, "give 0 or more partitions")
        self.count = number
        self._spec = spec
        self._with_args = with_args

    def children(self) -> Sequence[ChildSpec]:
        """Return a spec for each partition."""
        return [self.spec_of(number) for number in range(self.count)]

    def spec_of(self, number: int) -> ChildSpec:
        """Return the spec of partition `number`."""
        args = self._spec.args
        if self._with_args is not None:
            args = self._with_args(args, number)
        return msgspec.structs.replace(self._spec, id=number, args=args)

    def cell_of(self, number: int) -> Cell | None:
        """Return the cell of partition `number`, from any thread."""
        child = self._children.get(number)
        run = None if child is None else child.run
        return None if run is None or run.ended is not None else run.cell


def _actor(supervisor: ActorRef[Any]) -> PartitionSupervisor:
    actor = supervisor.cell.actor
    if not isinstance(actor, PartitionSupervisor):
        raise NoProc(supervisor)
    return actor


def partition(supervisor: ActorRef[Any], key: Hashable) -> ActorRef[Any]:
    """Return the child that `key` belongs to: `abs(key) % count` for a whole number, else a hash.

    The hash of text and bytes is the same in every process.

    Raises:
        NoProc: there is no partition, or it is being restarted
    """
    actor = _actor(supervisor)
    if actor.count == 0:
        raise NoProc(f"{supervisor} has no partitions, so {key!r}")
    number = _number(key) % actor.count
    cell = actor.cell_of(number)
    if cell is None:
        raise NoProc(f"partition {number} of {supervisor}")
    return cell.ref


def _number(key: Hashable) -> int:
    if isinstance(key, int):
        return abs(key)
    if isinstance(key, str):
        return zlib.crc32(key.encode())
    if isinstance(key, bytes):
        return zlib.crc32(key)
    return abs(hash(key))


def partitions(supervisor: ActorRef[Any]) -> int:
    """Return how many partitions there are."""
    return _actor(supervisor).count


def resize(supervisor: ActorRef[Any], count: int, *, timeout: float | None = None) -> None:
    """Change the number of partitions: keys move; those that are too many end.

    Args:
        supervisor: a `PartitionSupervisor`
        count: 0 or more
        timeout: seconds to wait for each start or end
    """
    if count < 0:
        raise InvalidSpec("count", count, "give 0 or more partitions")
    actor = _actor(supervisor)
    before = actor.count
    for number in range(before, count):
        start_child(supervisor, actor.spec_of(number), timeout=timeout)
    actor.count = count
    for number in range(count, before):
        terminate_child(supervisor, number, timeout=timeout)
        delete_child(supervisor, number, timeout=timeout)
