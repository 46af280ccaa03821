"""One connection that speaks HTTP/1.1: a request out, an answer in, and again.

h11 knows the protocol; this only moves bytes for it. Time limits, and what an
answer means, are `http`'s business.
"""

import select
from collections.abc import Iterable

import anyio
import anyio.lowlevel
import h11
from anyio.abc import ByteStream, SocketAttribute

from refold.provider.failures import ResponseStart

_TAIL = 0.02  # seconds for the last few bytes of an answer that has already ended
_PIECE = 256 * 1024


class Broken(Exception):
    """The connection is of no more use. The message says what the other end did."""


class HttpConnection:
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=256 * 1024)
        self._loop = anyio.lowlevel.current_token()
        self._begun = False

    async def send(
        self,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes | None,
        idle: float,
    ) -> None:
        """Ask with a body, or, without one, only for what stands there."""
        method = "GET" if body is None else "POST"
        length = () if body is None else (("content-length", str(len(body))),)
        asked = h11.Request(method=method, target=target, headers=[*headers, *length])
        data = self._http.send(asked) + self._http.send(h11.Data(data=body or b""))
        self._http.send(h11.EndOfMessage())
        self._begun = False
        try:
            for start in range(0, len(data), _PIECE):
                with anyio.move_on_after(idle) as waiting:
                    await self._stream.send(data[start : start + _PIECE])
                if waiting.cancelled_caught:
                    raise Broken(f"has taken nothing of our request for {idle:g} s")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # it may have answered before it had heard all; `head` will tell

    async def head(self) -> ResponseStart:
        """How the answer begins."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                self._begun = True
                headers = {n.decode("ascii"): v.decode("latin-1") for n, v in event.headers}
                return ResponseStart(event.status_code, headers)
            if not isinstance(event, h11.InformationalResponse):
                raise Broken("hung up without an answer")

    async def next_chunk(self) -> bytes:
        """The next piece of the body; empty when it is over."""
        while isinstance(event := await self._event(), h11.Data):
            if event.data:
                return bytes(event.data)
        return b""

    async def ready(self) -> bool:
        """Can it be used for another request?"""
        if anyio.lowlevel.current_token() != self._loop:
            return False  # its event loop is gone, and so is whoever watched it
        try:
            with anyio.move_on_after(_TAIL):
                while self._http.their_state is h11.SEND_BODY:
                    await self._event()
            self._http.start_next_cycle()
        except (Broken, h11.LocalProtocolError):
            return False
        raw = self._stream.extra(SocketAttribute.raw_socket)
        waiting = select.poll()
        waiting.register(raw, select.POLLIN)
        return not waiting.poll(0)  # anything unasked for is the end of it

    async def aclose(self) -> None:
        if anyio.lowlevel.current_token() == self._loop:
            await anyio.aclose_forcefully(self._stream)

    async def _event(self) -> h11.Event | type[h11.PAUSED] | type[h11.NEED_DATA]:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._receive()
                if not data and not self._begun:
                    raise Broken("hung up without an answer")
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            if self._begun:
                raise Broken(f"broke off in the middle of its answer ({error})") from error
            raise Broken(f"did not answer with HTTP ({error})") from error
        return event

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive()
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise Broken(f"broke the connection ({error.__cause__ or error})") from error
