"""Values by version, and values that are stored as what was added to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamweaver.checkpoint.codec import Codec
from beamweaver.checkpoint.conformance._check import Place, check, expect, raises
from beamweaver.checkpoint.conformance._kit import begun, step, values, write
from beamweaver.checkpoint.deltas import appended, join, keys_removed, keys_set, replaced
from beamweaver.checkpoint.records import Chain, DeltaRow
from beamweaver.errors import CorruptRecord

if TYPE_CHECKING:
    from beamweaver.checkpoint.base import Checkpointer
    from beamweaver.checkpoint.deltas import Operation
    from beamweaver.checkpoint.records import Commit

_CODEC = Codec()


def _delta(base: int, *operations: Operation) -> DeltaRow:
    return DeltaRow(base, join(operations))


def _added(thread_id: str, seq: int, base: int, items: list[object]) -> Commit:
    """A step that adds to the list `log`."""
    delta = _delta(base, appended(_CODEC.encode(items)))
    return step(thread_id, seq, writes={}, deltas={"log": delta})


def _value(store: Checkpointer, channel: str, seq: int | None = None) -> object:
    found = values(store, "t", seq)
    return None if found is None else _CODEC.decode(found[channel])


@check("deltas")
def a_channel_keeps_its_value_until_it_is_written_again(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, writes={"a": b"a0", "b": b"b0"}))
    write(store, epoch, step("t", 1, writes={"a": b"a1"}), step("t", 2, writes={}))
    expect(values(place.reopened(store), "t"), {"a": b"a1", "b": b"b0"})


@check("deltas")
def a_value_is_its_snapshot_with_the_deltas_on_it(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, writes={"log": _CODEC.encode([0])}))
    write(store, epoch, _added("t", 1, 0, [1]), step("t", 2), _added("t", 3, 1, [(2,), {3}]))
    store = place.reopened(store)
    expect(_value(store, "log"), [0, 1, (2,), {3}])
    expect(_value(store, "log", 2), [0, 1], "an older one")
    image = store.load("t")
    chain = image.chains["log"] if image is not None else Chain(0)
    expect((chain.snapshot, chain.count), (len(_CODEC.encode([0])), 2), "the chain")


@check("deltas")
def keys_are_set_and_removed_and_items_replaced(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    encode = _CODEC.encode
    first = {"log": encode([0, 1, 2]), "map": encode({"a": 1, "b": 2}), "set": encode({1, 2})}
    write(store, epoch, step("t", 0, writes=first))
    changes = {
        "log": _delta(0, replaced([0, 2], encode(["x", "y"])), appended(encode([3]))),
        "map": _delta(0, keys_set(encode({"c": 3, "a": 9})), keys_removed(encode(["b"]))),
        "set": _delta(0, keys_removed(encode([1])), keys_set(encode({5}))),
    }
    write(store, epoch, step("t", 1, writes={}, deltas=changes))
    expect(_value(store, "log"), ["x", 1, "y", 3])
    expect(_value(store, "map"), {"a": 9, "c": 3})
    expect(_value(store, "set"), {2, 5})


@check("deltas")
def a_fork_goes_on_from_its_own_deltas(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, writes={"log": _CODEC.encode([0])}))
    write(store, epoch, _added("t", 1, 0, [1]), _added("t", 2, 1, [2]))
    delta = _delta(1, appended(_CODEC.encode(["fork"])))
    write(store, epoch, step("t", 3, parent=1, branch="c", writes={}, deltas={"log": delta}))
    expect(_value(store, "log"), [0, 1, "fork"])
    expect(_value(store, "log", 2), [0, 1, 2], "the other branch")


@check("deltas")
def a_long_chain_reads_as_its_value_under_full_and_partial_maps(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, writes={"log": _CODEC.encode([0]), "z": b"z"}))
    commits = [_added("t", seq, seq - 1, [seq]) for seq in range(1, 130)]
    for seq in (64, 128):
        commits[seq - 1] = _with_versions(commits[seq - 1], {"log": seq, "z": 0})
    write(store, epoch, *commits)
    expect(_value(store, "log"), list(range(130)))
    found = [image.since_full for image in store.history("t", limit=3)]
    expect(found, [1, 0, 63], "the distance from the last full map")


def _with_versions(commit: Commit, versions: dict[str, int]) -> Commit:
    checkpoint = commit.record.checkpoint
    deltas = {} if checkpoint is None else checkpoint.deltas
    return step(commit.thread_id, commit.record.seq, writes={}, deltas=deltas, versions=versions)


@check("deltas")
def a_delta_on_what_does_not_exist_is_an_error_and_no_value(place: Place) -> None:
    store = place.open()
    epoch = begun(store)
    write(store, epoch, step("t", 0, writes={}))
    write(store, epoch, _added("t", 1, 0, [1]))
    raises(CorruptRecord, lambda: store.load("t"), "a load of it")
    write(store, epoch, step("t", 2, parent=0, writes={}))
    expect(values(store, "t"), {}, "the values of another branch")
