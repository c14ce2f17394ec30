"""What cannot be stored or read exactly is refused, with path, type and cure."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import enum
import socket
import threading
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamweaver.checkpoint import Codec
from beamweaver.checkpoint._marks import Mark
from beamweaver.errors import DeserializationError, SerializationError
from beamweaver.limits import Limits
from tests.checkpoint.shapes import TYPES, Box, Color, Handle, Item, Outer, Point, State


class Sub(dict):
    pass


class Text(str):
    __slots__ = ()


class OddZone(dt.tzinfo):
    def utcoffset(self, _when):
        return dt.timedelta(0)


def local():
    return 1


REFUSED = [
    (
        {"items": [1, 2, 3, {"phase": lambda: 0}]},
        "$.items[3].phase",
        "function",
        "code cannot be stored",
    ),
    ({"f": local}, "$.f", "function", "code cannot be stored"),
    ({"c": Handle}, "$.c", "type", "code cannot be stored"),
    ([len], "$[0]", "builtin_function_or_method", "code cannot be stored"),
    ({"h": Handle(1)}, "$.h", "tests.checkpoint.shapes.Handle", "register the class"),
    ({"o": object()}, "$.o", "object", "register the class"),
    ({"two words": object()}, "$['two words']", "object", "register"),
    ({5: object()}, "$[5]", "object", "register"),
    ({(1, 2): object()}, "$[(1, 2)]", "object", "register"),
    ({Handle(1): 1}, None, "tests.checkpoint.shapes.Handle", "register"),
    ({"s": {Handle(1)}}, "$.s{*}", "tests.checkpoint.shapes.Handle", "register"),
    ({"i": Item({"x": object()})}, "$.i.phase.x", "object", "register"),
    ({"d": Sub()}, "$.d", "tests.checkpoint.test_codec_refusals.Sub", "convert it: dict(value)"),
    (
        {"d": Text("x")},
        "$.d",
        "tests.checkpoint.test_codec_refusals.Text",
        "convert it: str(value)",
    ),
    ({"g": (x for x in ())}, "$.g", "generator", "open it in the node"),
    ({"l": threading.Lock()}, "$.l", "_thread.lock", "open it in the node"),
    ({"f": collections.defaultdict(local)}, "$.f", "collections.defaultdict", "its factory"),
    (
        {"t": dt.datetime(2024, 1, 1, tzinfo=OddZone())},
        "$.t",
        "datetime.datetime",
        "use zoneinfo.ZoneInfo",
    ),
    ([(1, (2, (3, object())))], "$[0][1][1][1]", "object", "register"),
    ({"e": ValueError(object())}, "$.e.args[0]", "object", "register"),
]


@pytest.mark.parametrize(
    ("value", "path", "kind", "cure"), REFUSED, ids=[row[2] + str(row[1]) for row in REFUSED]
)
def test_a_value_that_cannot_be_stored_is_refused_with_path_type_and_cure(value, path, kind, cure):
    """Peers 54."""
    with pytest.raises(SerializationError) as caught:
        Codec(TYPES).encode(value)

    assert caught.value.path == path or path is None
    assert caught.value.type_name == kind
    assert caught.value.path in str(caught.value)
    assert cure in str(caught.value)


def test_the_path_begins_where_the_caller_says():
    with pytest.raises(SerializationError) as caught:
        Codec().encode([object()], "state.items")

    assert caught.value.path == "state.items[0]"


def test_an_open_socket_is_refused_as_a_handle():
    with socket.socket() as handle, pytest.raises(SerializationError, match="open it in the node"):
        Codec().encode(handle)


@pytest.mark.parametrize("value", [Color.RED, Point(1), Outer.Inner.ONE, Item(1)])
def test_a_class_that_is_not_registered_is_refused_with_the_way_to_register_it(value):
    with pytest.raises(SerializationError, match=rf"Codec\(types=\[{type(value).__name__}\]\)"):
        Codec().encode({"x": value})


def test_a_digest_refuses_as_storing_does():
    with pytest.raises(SerializationError) as caught:
        Codec().digest({"x": object()})

    assert caught.value.path == "$.x"


def test_a_field_that_is_not_set_is_refused():
    item = Item(1)
    del item.phase
    with pytest.raises(SerializationError, match="its field 'phase' is not set"):
        Codec(TYPES).encode(item)


def test_attributes_on_a_built_in_container_are_refused():
    value = collections.OrderedDict()
    value.extra = 1
    with pytest.raises(SerializationError, match="'extra'"):
        Codec().encode(value)


class TestBounds:
    @pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"k": x}, Box])
    def test_what_nests_too_deep_is_refused(self, wrap):
        """Peers 55: 1000-deep nesting."""
        value: Any = 1
        for _ in range(1000):
            value = wrap(value)
        with pytest.raises(SerializationError, match="nests"):
            Codec(TYPES).encode(value)

    @pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"k": x}, Box])
    def test_what_nests_as_deep_as_allowed_comes_back(self, wrap):
        codec = Codec(TYPES)
        value: Any = 1
        for _ in range(codec.limits.value_depth):
            value = wrap(value)

        assert codec.encode(codec.decode(codec.encode(value))) == codec.encode(value)
        assert codec.digest(value) == codec.digest(codec.decode(codec.encode(value)))

    def test_a_cycle_is_refused(self):
        value: list[Any] = []
        value.append(value)
        with pytest.raises(SerializationError, match="is it a cycle"):
            Codec().encode(value)

    @pytest.mark.parametrize("value", ["x" * 2_000, ["x" * 2_000], ("x" * 2_000,)])
    @pytest.mark.parametrize("declared", [None, str, list[str]])
    def test_a_value_above_the_limit_is_refused(self, value, declared):
        plan = Codec(limits=Limits(value_bytes=1_000)).plan(declared)
        with pytest.raises(SerializationError, match="may take 1000"):
            plan.encode(value)


class TestRenames:
    """Peers 53: a class that was renamed between storing and reading."""

    def stored(self):
        return Codec([Item, Outer.Inner]).encode({"items": [1, 2, 3, Item(Outer.Inner.ONE)]})

    def test_a_class_that_is_gone_is_named_with_its_path(self):
        with pytest.raises(DeserializationError) as caught:
            Codec([Item]).decode(self.stored(), "state")

        assert caught.value.path == "state.items[3].phase"
        assert caught.value.type_name == "tests.checkpoint.shapes.Outer.Inner"
        assert "aliases=" in str(caught.value)

    def test_an_alias_reads_what_the_old_name_wrote(self):
        class Renamed(enum.Enum):
            ONE = (1, 2)

        codec = Codec([Item])
        codec.register(Renamed, aliases=["tests.checkpoint.shapes.Outer.Inner"])

        assert codec.decode(self.stored())["items"][3].phase is Renamed.ONE

    def test_a_name_of_ones_own_outlives_a_move(self):
        old, new = Codec(), Codec()
        old.register(Point, name="point")

        @dataclasses.dataclass
        class Moved:
            x: int
            y: int

        new.register(Moved, name="point")

        assert new.decode(old.encode(Point(1, 2))) == Moved(1, 2)

    def test_a_member_that_is_gone_is_named(self):
        class Shrunk(enum.Enum):
            TWO = 2

        codec = Codec([Item])
        codec.register(Shrunk, aliases=["tests.checkpoint.shapes.Outer.Inner"])
        with pytest.raises(DeserializationError, match="no member 'ONE'"):
            codec.decode(self.stored())


def made(kind, fields):
    """A class of a kind with these fields, each an int with an optional default."""
    if kind == "dataclass":
        rows = [
            (name, int, dataclasses.field(default=value)) if value is not None else (name, int)
            for name, value in fields.items()
        ]
        return dataclasses.make_dataclass("Made", rows)
    if kind == "struct":
        rows = [
            (name, int, value) if value is not None else (name, int)
            for name, value in fields.items()
        ]
        return msgspec.defstruct("Made", rows)
    made = NamedTuple("Made", [(name, int) for name in fields])
    made._field_defaults = {name: value for name, value in fields.items() if value is not None}
    return made


@pytest.mark.parametrize("kind", ["dataclass", "struct", "named tuple"])
class TestChangedFields:
    def read(self, kind, before, after):
        old, new = made(kind, before), made(kind, after)
        writer, reader = Codec(), Codec()
        writer.register(old, name="made")
        reader.register(new, name="made")
        return reader.decode(writer.encode([old(**dict.fromkeys(before, 1))]))[0]

    def test_a_field_that_came_later_takes_its_default(self, kind):
        value = self.read(kind, {"a": None}, {"a": None, "b": 7})

        assert (value.a, value.b) == (1, 7)

    def test_a_field_that_came_later_without_a_default_is_named(self, kind):
        with pytest.raises(DeserializationError, match=r"lacks the fields \['b'\]"):
            self.read(kind, {"a": None}, {"a": None, "b": None})

    def test_a_field_that_is_gone_is_named_and_not_dropped(self, kind):
        with pytest.raises(DeserializationError, match=r"has the fields \['b'\]"):
            self.read(kind, {"a": None, "b": None}, {"a": None})


def marked(code, *items):
    return b"\xc1" + msgspec.msgpack.encode([msgspec.msgpack.Ext(int(code), b""), *items])


class TestHostileRecords:
    """Peers 58: default deny; only registered classes are ever called."""

    @pytest.mark.parametrize(
        "name", ["os.system", "posix.system", "builtins.eval", "subprocess.Popen", "", "list"]
    )
    @pytest.mark.parametrize("mark", [Mark.OBJECT, Mark.ENUM])
    def test_a_class_that_is_not_registered_is_never_made(self, name, mark):
        with pytest.raises(DeserializationError) as caught:
            Codec(TYPES).decode(marked(mark, name, {"command": "true"}))

        assert caught.value.type_name == name

    @pytest.mark.parametrize("name", ["os.system", "eval", "SystemExit", "Handle", "type"])
    @pytest.mark.parametrize("mark", [Mark.DEFAULT_DICT, Mark.EXCEPTION, Mark.PATH])
    def test_no_name_leads_to_anything_else(self, name, mark):
        with pytest.raises(DeserializationError):
            Codec(TYPES).decode(marked(mark, name, {"args": ["true"], "attributes": {}}))

    @pytest.mark.parametrize("mark", list(Mark))
    @pytest.mark.parametrize(
        "items",
        [
            (),
            (None,),
            ("x",),
            (b"x",),
            (1,),
            ([],),
            ({},),
            ("x", "y"),
            (2**40, 0, 1.5),
            (None, None, None, None),
        ],
        ids=repr,
    )
    def test_a_mark_with_wrong_contents_is_refused_or_harmless(self, mark, items):
        with contextlib.suppress(DeserializationError):
            Codec(TYPES).decode(marked(mark, *items))

    def test_a_text_that_would_be_parsed_for_ever_is_refused(self):
        with pytest.raises(DeserializationError):
            Codec().decode(marked(Mark.FRACTION, "1e999999999"))

    def test_a_zone_that_is_a_path_is_refused(self):
        with pytest.raises(DeserializationError):
            Codec().decode(marked(Mark.ZONE, "../../etc/passwd"))

    @pytest.mark.parametrize(
        "data", [b"", b"\xc1", b"\xc1\xc1", b"\xff\xff", b"\x91" * 200_000, b"\xd9ab"]
    )
    @pytest.mark.parametrize("declared", [None, list[int]])
    def test_bytes_that_are_no_value_are_refused(self, data, declared):
        with pytest.raises(DeserializationError):
            Codec().plan(declared).decode(data)

    def test_a_walked_value_that_nests_for_ever_is_refused(self):
        with pytest.raises(DeserializationError):
            Codec().decode(b"\xc1" + b"\x91" * 100_000 + b"\xc0")

    def test_an_unknown_mark_is_of_a_newer_version(self):
        with pytest.raises(DeserializationError, match="upgrade beamweaver"):
            Codec().decode(marked(99))

    def test_a_mark_where_no_mark_belongs_is_refused(self):
        mark = msgspec.msgpack.Ext(int(Mark.TUPLE), b"")
        with pytest.raises(DeserializationError, match="a mark stands"):
            Codec().decode(b"\xc1" + msgspec.msgpack.encode([1, mark]))

    def test_a_mark_in_a_plain_value_is_refused(self):
        mark = msgspec.msgpack.Ext(int(Mark.TUPLE), b"")
        with pytest.raises(DeserializationError):
            Codec().decode(msgspec.msgpack.encode([mark, 1]))

    @pytest.mark.slow
    @settings(deadline=None, max_examples=300)
    @given(st.binary(max_size=60))
    def test_any_bytes_are_a_value_or_refused(self, data):
        for prefix in (b"", b"\xc1"):
            with contextlib.suppress(DeserializationError):
                Codec(TYPES).decode(prefix + data)


class TestRegistering:
    def test_a_class_that_cannot_be_taken_apart_needs_both_functions(self):
        with pytest.raises(TypeError, match="encode= and decode="):
            Codec([Handle])
        with pytest.raises(TypeError, match="both"):
            Codec().register(Handle, encode=vars)

    def test_a_class_with_functions_of_its_own_comes_back(self):
        codec = Codec()
        codec.register(
            Handle, encode=lambda handle: (handle.number,), decode=lambda state: Handle(*state)
        )

        assert codec.decode(codec.encode({"h": Handle(7)}))["h"].number == 7

    def test_what_such_a_function_returns_must_be_storable_itself(self):
        codec = Codec()
        codec.register(Handle, encode=lambda handle: object(), decode=Handle)
        with pytest.raises(SerializationError) as caught:
            codec.encode({"h": Handle(7)})

        assert caught.value.path == "$.h"

    def test_two_classes_of_one_name_are_refused(self):
        codec = Codec()
        codec.register(Point, name="same")
        with pytest.raises(ValueError, match="'same' stands for"):
            codec.register(Item, name="same")

    def test_a_class_that_is_defined_again_takes_the_place_of_the_old_one(self):
        """A notebook's cell that is run twice."""

        def define():
            @dataclasses.dataclass
            class Cell:
                n: int

            return Cell

        old, new = define(), define()
        codec = Codec([old])
        data = codec.encode(old(1))
        codec.register(new)

        assert type(codec.decode(data)) is new

    def test_registering_is_a_decorator(self):
        codec = Codec()

        @codec.register
        class Mood(enum.Enum):
            GOOD = 1

        assert codec.decode(codec.encode(Mood.GOOD)) is Mood.GOOD

    def test_a_plan_registers_the_classes_that_a_type_names(self):
        codec = Codec()
        codec.plan(State)

        assert codec.decode(codec.encode([Item(1), Color.RED])) == [Item(1), Color.RED]

    def test_a_plan_leaves_a_name_that_was_given_before(self):
        codec = Codec()
        codec.register(Point, name="point")
        codec.plan(list[Point])

        assert b"point" in codec.encode(Point(1))
        assert b"shapes" not in codec.encode(Point(1))


class TestLargeValues:
    def test_a_value_above_the_limit_of_warning_is_told_with_its_path_and_size(self):
        told = []
        codec = Codec(
            limits=Limits(value_bytes_warn=10),
            on_large=lambda path, size: told.append((path, size)),
        )
        codec.encode("x" * 9, "$.small")
        codec.encode("x" * 20, "$.large")
        codec.plan(str).encode("x" * 30, "$.planned")

        assert told == [("$.large", 21), ("$.planned", 31)]

    def test_a_value_that_is_too_large_is_refused_and_not_told(self):
        told = []
        limits = Limits(value_bytes_warn=10, value_bytes=20)
        codec = Codec(limits=limits, on_large=lambda *large: told.append(large))
        with pytest.raises(SerializationError):
            codec.encode("x" * 30)

        assert told == []
