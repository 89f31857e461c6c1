"""Python values in, length-prefixed pickles out, and back through an unpickler that trusts nobody.

A frame is the length of its body (8 bytes, little endian), then the body: one pickle of protocol 5.
"""

from __future__ import annotations

import builtins
import io
import os
import pickle
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, Final

PICKLE_PROTOCOL: Final = 5
PLAIN_BUILTINS: Final = frozenset({"bytearray", "complex", "frozenset", "range", "set", "slice"})
"""Classes of ``builtins`` whose construction has no effect; other plain values need no class."""

_LENGTH: Final = struct.Struct("<Q")
_READ_BYTES: Final = 1 << 16
"""The capacity of a pipe on Linux. Asking for more costs 20 microseconds for memory not used."""


class UntrustedFrame(Exception):
    """These bytes are not a frame, or hold more than plain values and known dataclasses."""


def frame(value: object) -> bytes:
    """One value as a frame. Raises whatever ``pickle`` raises for a value it cannot write."""
    body = pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def write_frame(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises ``OSError`` when the other end is closed."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_bodies(descriptor: int, max_bytes: int | None = None) -> Iterator[bytes]:
    """Bodies of the frames that arrive, until the other end is closed.

    A frame cut by the end of the stream is dropped.

    Raises:
        UntrustedFrame: a frame says it is longer than ``max_bytes``.
    """
    buffered = bytearray()
    while data := os.read(descriptor, _READ_BYTES):
        buffered += data
        at = 0
        while len(buffered) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffered, at)
            if max_bytes is not None and length > max_bytes:
                raise UntrustedFrame(f"a frame of {length} bytes, more than {max_bytes}")
            end = at + _LENGTH.size + length
            if len(buffered) < end:
                break
            yield bytes(memoryview(buffered)[at + _LENGTH.size : end])
            at = end
        del buffered[:at]


def allowed_types(types: Collection[type]) -> dict[tuple[str, str], type]:
    """Dataclasses by module and name, as ``load_untrusted`` wants them."""
    assert all(map(is_dataclass, types))
    return {(kind.__module__, kind.__qualname__): kind for kind in types}


def load_untrusted(body: bytes, allowed: Mapping[tuple[str, str], type]) -> Any:
    """The value of a frame's body, made only of plain values and of ``allowed`` types.

    Raises:
        UntrustedFrame: it names anything else, or is no pickle at all.
    """
    try:
        return _Unpickler(body, allowed).load()
    except UntrustedFrame:
        raise
    except Exception as error:  # a forged pickle may fail in any way
        raise UntrustedFrame(f"not a readable pickle ({type(error).__name__})") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, body: bytes, allowed: Mapping[tuple[str, str], type]) -> None:
        super().__init__(io.BytesIO(body))
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        if module == "builtins" and name in PLAIN_BUILTINS:
            return getattr(builtins, name)
        found = self._allowed.get((module, name))
        if found is None:
            raise UntrustedFrame(f"{module[:100]}.{name[:100]} is not among the types allowed")
        return found

    def persistent_load(self, _pid: Any) -> Any:
        raise UntrustedFrame("a persistent id")
