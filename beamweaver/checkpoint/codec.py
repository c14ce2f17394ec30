"""Values to bytes and back, exactly.

A value comes back as it went: a tuple stays a tuple, an int of any size stays that int. What cannot
come back so is refused where it is stored, with its path, its type and a cure. Nothing is imported
by a stored name, nothing is pickled: only classes that were declared in a schema or registered are made.

Not kept: that two places share one object; tracebacks, causes and contexts of exceptions.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import hashlib
import re
import typing
from typing import Any, Final, TypeVar

import msgspec

from beamweaver.checkpoint._canonical import canonical
from beamweaver.checkpoint._classes import Classes, Form, is_storable
from beamweaver.checkpoint._marks import SCALARS, WALKED, Broken, Refused, type_name
from beamweaver.checkpoint._native import Check, check_of, hints_of
from beamweaver.checkpoint._plain import PlainUnwalker, loses
from beamweaver.checkpoint._unwalk import Unwalker
from beamweaver.checkpoint._walk import Walker, is_plain
from beamweaver.checkpoint.deltas import PARTS, put_together
from beamweaver.errors import DeserializationError, SerializationError
from beamweaver.limits import DEFAULT_LIMITS, Limits

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["ChannelCodec", "Codec"]

T = TypeVar("T")
_encode: Final = msgspec.msgpack.Encoder().encode
_encode_sorted: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_WALKED_BYTE: Final = WALKED[0]
_DIGEST_BYTES: Final = 16
_SHOWN: Final = 200
_PLACE: Final = re.compile(r" - at (?:key in )?`\$(.*)`$")


class Codec:
    """Encodes and decodes values of channels, inputs, questions and answers.

    Supported are None, bool, int of any size, float, str, bytes, bytearray, list, tuple, set, frozenset,
    dict, OrderedDict, defaultdict, Counter, deque, range, complex, Fraction, Decimal, UUID, paths, date,
    time, datetime and timedelta with `timezone` or `ZoneInfo` zones, and built-in exceptions; and, of
    classes that are registered or declared in a schema: Enum, dataclass, Struct, NamedTuple, attrs,
    pydantic, exceptions.

    Args:
        types: Classes to register under their full names.
        limits: `value_depth` and `value_bytes` bound what is stored; above `value_bytes_warn` a value is
            told to `on_large`.
        on_large: Called with the path and the number of bytes of a large value, on the worker that
            encodes it.

    Example:
        >>> codec = Codec()
        >>> codec.decode(codec.encode({"seen": {1, 2}, "at": (3, 4)}))
        {'seen': {1, 2}, 'at': (3, 4)}
    """

    def __init__(
        self,
        types: Iterable[type] = (),
        *,
        limits: Limits = DEFAULT_LIMITS,
        on_large: Callable[[str, int], None] | None = None,
    ) -> None:
        self.limits = limits
        self.on_large = on_large
        self._noted = min(limits.value_bytes_warn, limits.value_bytes)
        self._depth = limits.value_depth
        self._bytes = limits.value_bytes
        self._classes = Classes()
        self._walker = Walker(self._classes, self._depth)
        self._unwalker = Unwalker(self._classes)
        self._plain_unwalker = PlainUnwalker(self._classes)
        for cls in types:
            self.register(cls)

    def register(
        self,
        cls: type[T],
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        encode: Callable[[T], object] | None = None,
        decode: Callable[[Any], T] | None = None,
    ) -> type[T]:
        """Allow instances of a class to be stored and made again.

        Args:
            cls: The class: Enum, dataclass, Struct, NamedTuple, attrs, pydantic, exception; any other
                with `encode`.
            name: What is stored for it; its module and qualified name if None. Give one where the
                class may move.
            aliases: Older names that are read as this class.
            encode: From an instance to a value that can be stored.
            decode: From that value to an instance.

        Returns:
            The class, so that this can be a decorator.

        Raises:
            TypeError: It is none of these, or only one of `encode` and `decode` is given.
            ValueError: A name stands for another class.

        Example:
            >>> class Money:
            ...     def __init__(self, cents): self.cents = cents
            >>> codec = Codec()
            >>> _ = codec.register(Money, name="money", encode=lambda m: m.cents, decode=Money)
            >>> codec.decode(codec.encode(Money(5))).cents
            5
        """
        if (encode is None) != (decode is None):
            raise TypeError(f"{type_name(cls)}: give both encode= and decode=, or neither")
        form = None if encode is None or decode is None else Form(encode, decode)
        written = name or self._classes.names.get(cls) or type_name(cls)
        self._classes.add(cls, [written, type_name(cls), *aliases], form)
        return cls

    def telling(self, on_large: Callable[[str, int], None]) -> Codec:
        """The same codec, classes that are registered later included, that tells another of large values."""
        other = copy.copy(self)
        other.on_large = on_large
        return other

    def encode(self, value: object, path: str = "$") -> bytes:
        """A value as bytes.

        Args:
            value: The value.
            path: What messages call it.

        Raises:
            SerializationError: It, or something in it, cannot be stored exactly, or it is too large.
        """
        if type(value) in SCALARS or is_plain(value, self._depth):
            try:
                data = _encode(value)
            except (OverflowError, UnicodeEncodeError):
                data = self._walked(value, path)
        else:
            data = self._walked(value, path)
        if len(data) > self._noted:
            self._note(value, path, len(data))
        return data

    def decode(self, data: bytes | memoryview, path: str = "$") -> Any:
        """The value of bytes that `encode` made.

        Raises:
            DeserializationError: They are damaged, or a class in them is unknown or has changed.
        """
        if data and data[0] == _WALKED_BYTE:
            return self._read(data, path, self.decode)
        try:
            return _decode_plain(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise _damaged(path, error) from error

    def copy(self, value: object) -> Any:
        """An equal value that shares nothing with the original: what a store would give back.

        Raises:
            SerializationError: It cannot be stored.

        Example:
            >>> Codec().copy({"at": (1, 2)})
            {'at': (1, 2)}
        """
        return self.decode(self._walked(value, "$"))

    def decode_plain(self, data: bytes | memoryview, path: str = "$") -> Any:
        """The value of bytes whose classes may have changed or be gone: what cannot be made is plain data.

        An instance of such a class is a dict of its fields. Of a channel whose type was native all is plain:
        tuples and sets are lists, dates, Decimals and UUIDs are text, an Enum's member is its value.

        Raises:
            DeserializationError: They are damaged.

        Example:
            >>> import dataclasses
            >>> @dataclasses.dataclass
            ... class Gone:
            ...     n: int
            >>> Codec().decode_plain(Codec([Gone]).encode([Gone(3)]))
            [{'n': 3}]
        """
        if data and data[0] == _WALKED_BYTE:
            return self._read(data, path, self.decode_plain, self._plain_unwalker)
        return self.decode(data, path)

    def plan(self, declared: Any = None) -> ChannelCodec:
        """The fastest exact way for a declared type; its classes are registered on the way.

        Args:
            declared: The channel's type, or None if none is declared.

        Returns:
            An encoder and decoder of that channel's values.

        Example:
            >>> ages = Codec().plan(tuple[int, ...])
            >>> ages.native, ages.decode(ages.encode((1, 2)))
            (True, (1, 2))
        """
        _declare(self, declared, set())
        check = None if declared is None else check_of(declared)
        return ChannelCodec(self, declared, check)

    def digest(self, value: object, path: str = "$") -> bytes:
        """A digest that is equal for equal values, whatever the order of mapping keys and set members.

        Raises:
            SerializationError: The value cannot be stored.
        """
        data = self._sorted(value) if is_plain(value, self._depth) else None
        if data is None:
            data = WALKED + _encode(canonical(self._tree(value, path)))
        return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()

    def tell_large(self, path: str, size: int) -> None:
        """Tell `on_large` of a value of `size` bytes, if that is large."""
        if self.on_large is not None and size > self.limits.value_bytes_warn:
            self.on_large(path, size)

    def _sorted(self, value: object) -> bytes | None:
        try:
            return _encode_sorted(value)
        except (OverflowError, UnicodeEncodeError, TypeError):
            return None  # a huge int, a lone surrogate, a key that is not text

    def _walked(self, value: object, path: str) -> bytes:
        return WALKED + _encode(self._tree(value, path))

    def _tree(self, value: object, path: str) -> Any:
        try:
            return self._walker.walk(value)
        except Refused as refused:
            raise _refusal(refused, path) from None
        except RecursionError:
            deep = Refused("it nests too deep (is it a cycle?)", type_name(type(value)))
            raise _refusal(deep, path) from None

    def _read(
        self,
        data: bytes | memoryview,
        path: str,
        decode: Callable[[bytes, str], Any],
        unwalker: Unwalker | None = None,
    ) -> Any:
        """A walked value, or one in parts, each of which `decode` decodes."""
        try:
            if data[:2] == PARTS:
                return put_together(
                    data,
                    lambda part: decode(part, path),
                    lambda keys: self.decode(keys, path),
                    plain=unwalker is not None,
                )
            return (unwalker or self._unwalker).read(memoryview(data)[1:])
        except Broken as broken:
            place = broken.path(path)
            raise DeserializationError(
                f"{place} cannot be read back: {broken.reason}", path=place, type_name=broken.kind
            ) from broken.__cause__
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise _damaged(path, error) from error

    def _note(self, value: object, path: str, size: int) -> None:
        """Tell of a large value.

        Raises:
            SerializationError: It is too large.
        """
        if size <= self._bytes:
            self.tell_large(path, size)
            return
        kind = type_name(type(value))
        raise SerializationError(
            f"{path} takes {size} bytes and may take {self._bytes}. Keep it in a file or object store and "
            "put its address in the state, or raise limits.value_bytes",
            path=path,
            type_name=kind,
        )


class ChannelCodec:
    """Encodes and decodes the values of one channel. Made by `Codec.plan`.

    Attributes:
        native: Whether values of exactly the declared type are written without being walked.
    """

    __slots__ = ("_check", "_codec", "_decode", "_exact", "_noted", "native")

    def __init__(self, codec: Codec, declared: Any, check: Check | None) -> None:
        self._codec = codec
        self._noted = codec._noted  # noqa: SLF001 one module
        self.native = check is not None
        self._exact = check if isinstance(check, frozenset) else frozenset()
        self._check = check if check is not None and not isinstance(check, frozenset) else None
        self._decode = msgspec.msgpack.Decoder(declared).decode if self.native else None

    def encode(self, value: object, path: str = "$") -> bytes:
        """A value as bytes; see `Codec.encode`."""
        if type(value) in self._exact or (self._check is not None and self._check(value)):
            try:
                data = _encode(value)
            except (OverflowError, UnicodeEncodeError):
                data = self._codec._walked(value, path)  # noqa: SLF001 one module
        elif self.native:
            data = self._codec._walked(value, path)  # noqa: SLF001 one module
        else:
            return self._codec.encode(value, path)
        if len(data) > self._noted:
            self._codec._note(value, path, len(data))  # noqa: SLF001 one module
        return data

    def decode(self, data: bytes | memoryview, path: str = "$") -> Any:
        """The value of bytes; see `Codec.decode`."""
        if data and data[0] == _WALKED_BYTE:
            return self._codec._read(data, path, self.decode)  # noqa: SLF001 one module
        if self._decode is None:
            return self._codec.decode(data, path)
        try:
            return self._decode(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise _damaged(path, error) from error

    def decode_old(self, data: bytes | memoryview, path: str = "$") -> Any:
        """The value of bytes that were encoded when the channel may have had another type.

        Returns:
            A value of the channel's type if the bytes stand for one and nothing of them is lost by that; else
            plain data, see `Codec.decode_plain`.

        Raises:
            DeserializationError: They are damaged.
        """
        codec = self._codec
        try:
            value = self.decode(data, path)
        except DeserializationError:
            return codec.decode_plain(data, path)
        if self._decode is None or type(value) in SCALARS:
            return value
        plain = codec.decode_plain(data, path)
        return plain if loses(value, plain) else value


def _no_mark(code: int, _data: memoryview) -> object:
    raise ValueError(f"a plain value has the mark {code}")


_decode_plain: Final = msgspec.msgpack.Decoder(ext_hook=_no_mark).decode


def _refusal(refused: Refused, path: str) -> SerializationError:
    place = refused.path(path)
    shown = place if len(place) <= _SHOWN else f"{place[:_SHOWN]}…"
    return SerializationError(
        f"{shown} is of type {refused.kind}, which cannot be stored: {refused.reason}",
        path=place,
        type_name=refused.kind,
    )


def _damaged(path: str, error: Exception) -> DeserializationError:
    text = str(error)
    found = _PLACE.search(text)
    place = path + found[1] if found else path
    return DeserializationError(
        f"{place} cannot be read back: {text}. If its type has changed, change the stored value by a "
        "migration",
        path=place,
        type_name="",
    )


def _declare(codec: Codec, declared: Any, seen: set[Any]) -> None:
    """Register each class that a type names, and those of its fields."""
    args = typing.get_args(declared)
    if typing.get_origin(declared) is typing.Literal:
        args = tuple(type(arg) for arg in args)
    for arg in args:
        _declare(codec, arg, seen)
    cls = typing.get_origin(declared) or declared
    if not isinstance(cls, type) or cls in seen or cls in SCALARS:
        return
    seen.add(cls)
    is_class = is_storable(cls) and cls not in codec._classes.names  # noqa: SLF001 one module
    if is_class and cls.__module__ != "builtins":
        codec.register(cls)
    has_fields = dataclasses.is_dataclass(cls) or is_storable(cls) or typing.is_typeddict(cls)
    if has_fields and not issubclass(cls, enum.Enum):
        for hint in (hints_of(cls) or {}).values():
            _declare(codec, hint, seen)
