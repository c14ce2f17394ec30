"""The history of a thread: its checkpoints as people see them, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beamweaver.errors import InvalidCall
from beamweaver.graph._text import listed, nearest, shown
from beamweaver.runtime.env import GraphCodec
from beamweaver.runtime.options import METADATA, TAGS
from beamweaver.runtime.reading import ReadEnv, folded, metadata_of, seq_of, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.records import ThreadImage
    from beamweaver.graph.compiled import CompiledGraph
    from beamweaver.types import ThreadState

__all__ = ["check_limit", "read_history"]


def read_history(
    store: Checkpointer,
    codec: Any,
    find: Callable[[str, str], CompiledGraph],
    thread_id: str,
    *,
    limit: int | None,
    before: str | None,
    filter: Mapping[str, Any] | None,  # noqa: A002 - LangGraph's name
) -> Iterator[ThreadState]:
    """The thread's checkpoints, newest first; arguments are judged at once, the store is read when asked.

    Args:
        store: Where the thread is.
        codec: Decodes its values.
        find: From a thread and the name of its graph to that graph.
        thread_id: The thread.
        limit: How many at the most.
        before: Only what is older than this checkpoint.
        filter: What the metadata of each must have; of `"tags"` some are enough.

    Raises:
        InvalidCall: An argument is wrong. That a filter names a key which no checkpoint has is known, and
            raised, when all of them were read.
    """
    check_limit(limit)
    if not isinstance(filter, Mapping | None):
        raise InvalidCall(
            f"filter is {shown(filter)}; give a dict of what the metadata must have, such as "
            "{'source': 'loop'}"
        )
    wanted = dict(filter or {})
    unfit = [key for key in wanted if not isinstance(key, str)]
    if unfit:
        raise InvalidCall(
            f"filter names {unfit[0]!r}; give keys of the metadata: {', '.join(METADATA)}, or what calls "
            "noted by metadata= and tags="
        )
    at = seq_of(before, "before")
    images = store.history(thread_id, before=at, limit=None if wanted else limit)
    return _states(images, codec, find, wanted, limit, whole=before is None)


def check_limit(limit: object) -> None:
    """Judge how many states are asked for.

    Raises:
        InvalidCall: It is no number from 0.
    """
    fit = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    if limit is not None and not fit:
        raise InvalidCall(f"limit is {limit!r}; give a number from 0, or None for all")


def _states(
    images: Iterator[ThreadImage],
    codec: Any,
    find: Callable[[str, str], CompiledGraph],
    wanted: Mapping[str, Any],
    limit: int | None,
    *,
    whole: bool,
) -> Iterator[ThreadState]:
    plans: GraphCodec | None = None
    left = limit
    seen: set[str] = set()
    while left is None or left > 0:
        image = next(images, None)
        if image is None:
            if whole:
                _refuse_unknown(wanted, seen)
            return
        if plans is None:
            graph = find(image.row.thread_id, image.row.graph)
            plans = GraphCodec(codec, graph)
            env = ReadEnv(codec, plans)
        if wanted:
            metadata = metadata_of(image, env, raw=True)
            seen.update(metadata)
            if not _fits(metadata, wanted):
                continue
        state, error = folded(image, codec, plans, raw=True)
        yield snapshot(graph, image, state, env, raw=True, graph_error=error)
        left = None if left is None else left - 1


def _refuse_unknown(wanted: Mapping[str, Any], seen: set[str]) -> None:
    """Refuse a filter by a key that no checkpoint of the thread has.

    Raises:
        InvalidCall: There is one.
    """
    for key in wanted:
        if seen and key not in {*seen, TAGS}:
            raise InvalidCall(
                f"filter names {key!r}, which no checkpoint of the thread has in its metadata."
                f"{nearest(key, sorted(seen))} Those are: {listed(sorted(seen))}"
            )


def _fits(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(_has(metadata, key, value) for key, value in wanted.items())


def _has(metadata: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether the metadata has it; of tags each one that is wanted."""
    if key == TAGS and isinstance(value, (list, tuple)):
        return set(value) <= set(metadata.get(TAGS, ()))
    return key in metadata and bool(metadata[key] == value)
