"""Frames between a worker and us: two lengths, a JSON object, bytes. And what they say.

What comes from a worker was perhaps written by code that found its socket: lengths are
looked at before anything is kept, and only what is of one of these types is heard. What
to do with one is `worker`'s business.
"""

import socket
import struct
from collections.abc import Mapping
from typing import TypeAlias

import anyio
import msgspec
from anyio import lowlevel
from msgspec import Struct

from refold.rlm.port import WorkerLost

HEADER = struct.Struct("!II")
LONGEST = 64 * 1024 * 1024  # bytes of a message of the worker's
LONGEST_BLOB = 264 * 1024 * 1024  # bytes of a snapshot, with its table and its parts
_LARGEST = 1 << 32  # that a length can say
_AT_ONCE = 256 * 1024

Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Closed(WorkerLost):
    """Its end of the connection is closed: most likely it has ended."""


class Ready(Struct, frozen=True, tag_field="t", tag="ready", forbid_unknown_fields=True):
    """It can be told what to do."""


class Called(Struct, frozen=True, tag_field="t", tag="call", forbid_unknown_fields=True):
    """Code calls a function of the host."""

    call: int
    name: str
    arguments: dict[str, object]


class Printed(
    Struct, frozen=True, tag_field="t", tag="printed", forbid_unknown_fields=True
):
    text: str


class Finaled(Struct, frozen=True, tag_field="t", tag="final", forbid_unknown_fields=True):
    """`value` is JSON, `text` what the cell had printed until then."""

    value: str
    text: str


class Part(Struct, frozen=True, tag_field="t", tag="part", forbid_unknown_fields=True):
    """One of the parts of a snapshot that is on its way, as the bytes of the frame."""

    name: str


class Done(Struct, frozen=True, tag_field="t", tag="done", forbid_unknown_fields=True):
    """The answer to a request, with what that kind of request asks for."""

    id: int
    text: str = ""
    failed: bool = False
    kept: Pairs = ()
    lost: Pairs = ()
    parts: tuple[str, ...] = ()


FromWorker: TypeAlias = Ready | Called | Printed | Finaled | Part | Done


def framed(message: Mapping[str, object], blob: bytes = b"") -> bytes:
    """Raises `ValueError` for what is too long to be said."""
    said = msgspec.json.encode(message)
    if max(len(said), len(blob)) >= _LARGEST:
        raise ValueError("a value for the Python worker has more than 4 GB")
    return HEADER.pack(len(said), len(blob)) + said + blob


class Frames:
    """Our end. One task reads and one writes. All raise `WorkerLost`."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._read = bytearray()
        self.longest_blob = 0  # that is heard: nothing sends one unasked
        self._decode = msgspec.json.Decoder(FromWorker).decode

    async def read(self) -> tuple[FromWorker, bytes]:
        said, blob = HEADER.unpack(await self._exactly(HEADER.size))
        if said > LONGEST or blob > self.longest_blob:
            raise WorkerLost(
                f"The Python worker announced a message of {said + blob:,} bytes, "
                f"and may send {LONGEST + self.longest_blob:,}."
            )
        try:
            message = self._decode(await self._exactly(said))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WorkerLost(
                f"The Python worker said something that makes no sense: {error}."
            ) from error
        return message, bytes(await self._exactly(blob))

    async def write(self, frame: bytes) -> None:
        left = memoryview(frame)
        while left:
            try:
                left = left[self._end.send(left[:_AT_ONCE]) :]
            except BlockingIOError:
                await anyio.wait_writable(self._end)
            except OSError as error:
                raise Closed("The Python worker hears nothing any more.") from error

    async def _exactly(self, many: int) -> bytearray:
        while len(self._read) < many:
            try:
                piece = self._end.recv(_AT_ONCE)
            except BlockingIOError:
                await anyio.wait_readable(self._end)
                continue
            except OSError:
                piece = b""
            if not piece:
                raise Closed("The Python worker has closed its connection.")
            self._read += piece
            # Somebody who never stops talking is not to hold up everybody else.
            await lowlevel.checkpoint()
        found = self._read[:many]
        del self._read[:many]
        return found
