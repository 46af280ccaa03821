"""The worker's end of the socket: one thread writes frames, and another reads them.

A frame consists of two lengths, a JSON object and bytes. Code is interrupted by asynchronous
exceptions, so the thread that runs it never writes to the socket itself.
"""

import os
import select
import struct
from collections.abc import Callable, Mapping
from itertools import count
from json import JSONDecoder, JSONEncoder
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeAlias, cast

FRAME_HEADER = struct.Struct("!II")
_CHUNK_BYTES = 1024 * 1024
# A poll does not notice that code closes the socket meanwhile, but the next one does.
_POLL_MILLISECONDS = 250
_BROKEN_CODE = 71

Message: TypeAlias = dict[str, Any]
_Piece: TypeAlias = tuple[bytes, Callable[[], None] | None]


class Link:
    """The connection to the host. `on_message` gets each message that is not a reply."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._outgoing = SimpleQueue[_Piece]()
        self._reply_queues = dict[int, SimpleQueue[Message]]()
        self._ids, self._lock = count(1), Lock()
        # Saved at the start, because code may change these modules later.
        self._encode = JSONEncoder(
            allow_nan=False, check_circular=False, ensure_ascii=False
        ).encode
        self._decode = JSONDecoder(strict=False).decode
        self._read, self._write, self._exit = os.read, os.write, os._exit

    def begin(self, on_message: Callable[[Message, bytearray], None]) -> None:
        Thread(target=self._send_all, daemon=True).start()
        Thread(target=self._receive_all, args=(on_message,), daemon=True).start()

    def send(self, message: Mapping[str, object], blob: bytes = b"") -> None:
        self._outgoing.put((self._frame(message, blob), None))

    def send_now(self, message: Mapping[str, object]) -> None:
        """Send a message. Return when the kernel has the message, or after a second."""
        until_sent = Lock()
        until_sent.acquire()
        self._outgoing.put((self._frame(message, b""), until_sent.release))
        until_sent.acquire(timeout=1)

    def call(self, name: str, arguments: str) -> Message:
        """Call a function of the host with JSON arguments, and return the reply."""
        replies = SimpleQueue[Message]()
        with self._lock:
            number = next(self._ids)
            self._reply_queues[number] = replies
        head = self._encode({"t": "call", "call": number, "name": name})
        body = f'{head[:-1]},"arguments":{arguments}}}'.encode()
        try:
            self._outgoing.put((FRAME_HEADER.pack(len(body), 0) + body, None))
            return replies.get()
        finally:
            self._reply_queues.pop(number, None)

    def close(self) -> None:
        """Close the socket in a forked process, which must not write to the host."""
        os.close(self._number)

    def _frame(self, message: Mapping[str, object], blob: bytes) -> bytes:
        # Code may have printed lone surrogates, which cannot be encoded.
        body = self._encode(message).encode(errors="replace")
        return FRAME_HEADER.pack(len(body), len(blob)) + body + blob

    def _send_all(self) -> None:
        """Write queued pieces without end. The callback of a piece is called after it."""
        try:
            while True:
                piece, callback = self._outgoing.get()
                unsent = memoryview(piece)
                while unsent:
                    sent_bytes = self._write(self._number, unsent[:_CHUNK_BYTES])
                    unsent = unsent[sent_bytes:]
                if callback:
                    callback()
        except BaseException:  # the error cannot be reported
            self._exit(_BROKEN_CODE)

    def _receive_all(self, on_message: Callable[[Message, bytearray], None]) -> None:
        """Read without end. Replies go to the calls that wait for them."""
        try:
            while True:
                body_length, blob_length = self._lengths()
                body = self._read_exactly(body_length)
                blob = self._read_exactly(blob_length)
                message = cast("Message", self._decode(body.decode()))
                if message["t"] == "reply":
                    if replies := self._reply_queues.get(message["call"]):
                        replies.put(message)
                else:
                    on_message(message, blob)
                del body, blob  # the next message may arrive much later
        except BaseException:  # the host has exited, or code has closed the socket
            self._exit(_BROKEN_CODE)

    def _lengths(self) -> tuple[int, ...]:
        return FRAME_HEADER.unpack(self._read_exactly(FRAME_HEADER.size))

    def _read_exactly(self, count: int) -> bytearray:
        """Return the next `count` bytes. Raises `EOFError` if the socket is closed."""
        data = bytearray()
        poller = select.poll()
        poller.register(self._number, select.POLLIN)
        while len(data) < count:
            if not poller.poll(_POLL_MILLISECONDS):
                continue
            piece = self._read(self._number, min(_CHUNK_BYTES, count - len(data)))
            if not piece:
                raise EOFError
            data += piece
        return data
