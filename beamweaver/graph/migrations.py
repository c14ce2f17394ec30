"""How stored threads of older versions of a graph become threads of this one.

Example:
    >>> step = Migration(state=lambda values: {"total": 0, **values}, rename={"pay": "charge"})
    >>> step.new_node("pay"), step.new_state({"url": "/"})
    ('charge', {'total': 0, 'url': '/'})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from beamweaver.graph._text import listed, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Migration", "migration_faults", "migrations_from"]

Change: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One step from a version of a graph to the next one, taken when the head of a thread is loaded.

    A node and a key may have the same name, so each has its own rule: nodes are renamed and dropped by name,
    keys by the two functions. These are quick and only work out values, as reducers do. What one of them
    raises is `MigrationFailed`, and leaves the thread as it was.

    A function gets each value in the type that its key has in this code, if the stored value fits it and
    loses nothing by that. Else it gets plain data: an instance of a class that has changed, or is gone, is a
    dict of its fields. What it returns may be plain data too; it is made into the types of the keys.

    Args:
        state: From the values of the old version to those of the new one; gets a dict of its own, in which a
            key that nothing wrote is absent.
        update: The same for updates that wait: pending results, overlays of Sends, queued inputs; an update
            has only some of the keys.
        rename: Old name to new name of nodes, in tasks, joins and namespaces. A task keeps its id, and
            with it its questions and its idempotency key.
        drop: Nodes that are gone. A task that is pending there, or asks, or has failed, is dropped; what a
            finished one gave stays, and leads nowhere but where its own `goto` and `Send`s say.
    """

    state: Change | None = None
    update: Change | None = None
    rename: Mapping[str, str] = MappingProxyType({})
    drop: tuple[str, ...] = ()

    def new_node(self, name: str) -> str | None:
        """The name of a node in the next version; None if it is dropped."""
        return None if name in self.drop else self.rename.get(name, name)

    def new_state(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a state in the next version."""
        return dict(values if self.state is None else self.state(dict(values)))

    def new_update(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """An update in the next version."""
        return dict(values if self.update is None else self.update(dict(values)))


def migrations_from(
    migrations: Mapping[int, Migration], stored: int, version: int
) -> tuple[Migration, ...]:
    """The steps that lead from a stored version to the code's one, in order.

    A version without a migration needs none: its threads are good for the next one as they are.

    Args:
        migrations: By the version that they lead away from.
        stored: The version of the stored thread.
        version: The version of the code.
    """
    return tuple(migrations[step] for step in range(stored, version) if step in migrations)


def migration_faults(migrations: object, version: int, nodes: Iterable[str]) -> Iterator[str]:
    """What is wrong with the `migrations=` of a graph.

    Args:
        migrations: What the user gave.
        version: The version of the graph.
        nodes: Its nodes.
    """
    if not isinstance(migrations, Mapping):
        yield f"migrations is {shown(migrations)}; give a dict such as {{1: Migration(rename={{...}})}}"
        return
    for step, migration in migrations.items():
        what = f"migrations[{step!r}]"
        if type(step) is not int or not 1 <= step < version:
            yield f"{what}: {_versions(version)}"
        if not isinstance(migration, Migration):
            yield f"{what} is {shown(migration)}; give a Migration"
            continue
        parts = list(_parts(what, migration))
        yield from parts
        if not parts and step == version - 1:
            yield from _names(what, migration, list(nodes))


def _versions(version: int) -> str:
    if version == 1:
        return "the graph's version is 1, so no thread is older; give Graph(version=2) or more"
    return f"a migration leads away from an older version; give 1 to {version - 1} as its key"


def _parts(what: str, migration: Migration) -> Iterator[str]:
    rename: object = migration.rename
    drop: object = migration.drop
    for name in ("state", "update"):
        change = getattr(migration, name)
        if change is not None and not callable(change):
            yield f"{what}: {name} is {shown(change)}; give a function from a dict to a dict"
    if not isinstance(rename, Mapping):
        yield f"{what}: rename is {shown(rename)}; give a dict from old to new name"
    elif len(set(rename.values())) < len(rename):
        yield f"{what}: rename gives two nodes the same new name; give each its own"
    if not isinstance(drop, (tuple, list)):
        yield f"{what}: drop is {shown(drop)}; give a tuple of names"


def _names(what: str, migration: Migration, nodes: list[str]) -> Iterator[str]:
    """The last step leads to the nodes that the graph has now."""
    for old, new in migration.rename.items():
        if new not in nodes:
            yield (
                f"{what}: rename of {old!r} to {new!r}, and there is no such node."
                f"{nearest(new, nodes)} Nodes: {listed(nodes)}"
            )
        if old in migration.drop:
            yield f"{what}: {old!r} is renamed and dropped; keep one of the two"
    for name in migration.drop:
        if name in nodes:
            yield f"{what}: drop of {name!r}, which the graph still has; take it out of drop"
