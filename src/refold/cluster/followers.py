"""Passes the documents that a `Bus` receives to the followers of their session in this
process.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import anyio
from anyio.abc import ObjectReceiveStream
from anyio.streams.memory import MemoryObjectSendStream

_MAX_WAITING = 1_000  # documents for one follower; further ones are lost


class Followers:
    """The streams of all followers of sessions in this process, by session."""

    def __init__(self) -> None:
        self._streams = dict[str, set[MemoryObjectSendStream[bytes]]]()

    @property
    def sessions(self) -> Sequence[str]:
        return tuple(self._streams)

    def count(self, session: str) -> int:
        return len(self._streams.get(session, ()))

    def pass_on(self, session: str, document: bytes) -> None:
        for stream in self._streams.get(session, ()):
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                stream.send_nowait(document)

    @contextmanager
    def receive(self, session: str) -> Generator[ObjectReceiveStream[bytes]]:
        """Yield a stream of the documents of the session that arrive within the block."""
        send, receive = anyio.create_memory_object_stream[bytes](_MAX_WAITING)
        streams = self._streams.setdefault(session, set())
        streams.add(send)
        try:
            with receive:
                yield receive
        finally:
            send.close()
            streams.discard(send)
            if not streams:
                self._streams.pop(session, None)
