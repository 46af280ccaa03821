"""Reads what comes back on a connection: how a response begins, and its body as it arrives.

`http` sends requests, and loads this when the first has been sent: no request waits for h11 then,
which large clients use inside and which needs a tenth of their import time.
"""

import re
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence

import h11

from refold.provider.connect import Broken
from refold.provider.error_mapping import ResponseStart

_CHUNK_SIZE_PATTERN = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;.*)?")
# The headers that h11 needs of a request. It would check all others again each time.
_PROTOCOL_HEADERS = ("host", "connection", "upgrade", "expect")
_LIST_HEADERS = ("link", "www-authenticate")
_MAX_LINE_BYTES = 64 * 1024
_MAX_UNPACKED_BYTES = 1024 * 1024  # that are unpacked in one go
_GZIP_OR_ZLIB_BITS = zlib.MAX_WBITS | 32
_RAW_DEFLATE_BITS = -zlib.MAX_WBITS  # what some servers mean by "deflate"


class ResponseReader:
    """Reads responses. `receive` returns new bytes, or b"" at the end of the connection."""

    def __init__(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._receive = receive
        self._http = _new_cycle()
        self._body: ChunkedBody | None = None  # of the current response, if it is chunked
        self._begun = False
        # The event that `next_chunk` read after the pieces that it joined.
        self._next: h11.Event | Broken | None = None

    async def read_head(
        self, method: str, target: str, headers: Sequence[tuple[str, str]]
    ) -> ResponseStart:
        """Read the beginning of the response to this request, which was sent."""
        # The response depends on the head of the request, not on its body.
        protocol_headers = [
            header for header in headers if header[0].lower() in _PROTOCOL_HEADERS
        ]
        self._http.send(h11.Request(method=method, target=target, headers=protocol_headers))
        self._http.send(h11.EndOfMessage())
        self._begun, self._next, self._body = False, None, None
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                self._begun = True
                answer_headers = _headers(event)
                if event.status_code == 200 and "transfer-encoding" in answer_headers:
                    self._body = ChunkedBody(self._http.trailing_data[0])
                return ResponseStart(event.status_code, answer_headers)
            if not isinstance(event, h11.InformationalResponse):
                raise Broken("hung up without an answer")

    def read_available(self) -> bytes:
        """The part of a chunked body that has arrived."""
        return self._body.content() if self._body else b""

    async def next_chunk(self) -> bytes:
        """The part of the body that arrived since the last call; empty at its end."""
        if self._body:
            return await self._content(self._body)
        while isinstance(event := await self._event(), h11.Data):
            if event.data:
                return b"".join([event.data, *self._next_pieces()])
        return b""

    async def _content(self, body: "ChunkedBody") -> bytes:
        while not (content := body.content()) and not body.over:
            if body.wrong:
                raise Broken(f"broke off in the middle of its answer ({body.wrong})")
            if not (data := await self._receive()):
                raise Broken("broke off in the middle of its answer (the end is missing)")
            body.add(data)
        return content

    def _next_pieces(self) -> Iterator[bytes]:
        """Pieces that arrived with the last one: some servers send one for each word."""
        try:
            while isinstance(event := self._http.next_event(), h11.Data):
                yield event.data
        except h11.RemoteProtocolError as error:
            self._next = self._to_broken(error)
        else:
            if isinstance(event, h11.Event):
                self._next = event

    def start_next(self) -> bool:
        """Prepare for the next response. False if the connection cannot be used again."""
        if self._body is None:
            try:
                self._http.start_next_cycle()
            except h11.LocalProtocolError:
                return False
            return True
        if self._http.our_state is h11.MUST_CLOSE or not self._body.ends_cleanly:
            return False
        self._http, self._body = _new_cycle(), None
        return True

    @property
    def has_tail(self) -> bool:
        """Return True if more of the response has to be read."""
        if self._body:
            return not self._body.over
        return self._http.their_state is h11.SEND_BODY

    async def _event(self) -> h11.Event | type[h11.PAUSED] | type[h11.NEED_DATA]:
        if (pending := self._next) is not None:
            self._next = None
            if isinstance(pending, Broken):
                raise pending
            return pending
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._receive()
                if not data and not self._begun:
                    raise Broken("hung up without an answer")
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise self._to_broken(error) from error
        return event

    def _to_broken(self, error: h11.RemoteProtocolError) -> "Broken":
        if self._begun:
            return Broken(f"broke off in the middle of its answer ({error})")
        return Broken(f"sent something that is not HTTP ({error})")


def _headers(response: h11.Response) -> dict[str, str]:
    """The headers. The last of repeated ones counts, unless the header is a list."""
    headers = dict[str, str]()
    for name, value in (
        (n.decode("ascii"), v.decode("latin-1")) for n, v in response.headers
    ):
        listed = name in _LIST_HEADERS and name in headers
        headers[name] = f"{headers[name]}, {value}" if listed else value
    return headers


def _new_cycle() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=256 * 1024)


class ChunkedBody:
    """A body in chunks (RFC 9112, 7.1): `add` what arrived, ask for its `content`.

    h11 would make an event of each chunk, and many servers send one for each word. `wrong`
    says what did not match the format; what arrived before it is content all the same.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = 0  # bytes of the chunk that is read
        self._closes = False  # whether the line end after the chunk comes next
        self._last = False  # whether the empty chunk, the last one, has arrived
        self.over, self.wrong = False, ""

    @property
    def ends_cleanly(self) -> bool:
        """Return True if it is over and nothing follows it."""
        return self.over and not self._data

    def add(self, data: bytes) -> None:
        self._data += data

    def content(self) -> bytes:
        """The content that is complete by now and was not returned yet."""
        data, offset, pieces = self._data, 0, list[bytes]()
        while not self.over and not self.wrong:
            if self._left:
                piece = data[offset : offset + self._left]
                offset, self._left = offset + len(piece), self._left - len(piece)
                pieces.append(piece)
                self._closes = not self._left
                if self._left:
                    break
            if self._closes:
                if len(data) - offset < 2:
                    break
                self._closes, closing, offset = False, data[offset : offset + 2], offset + 2
                if closing != b"\r\n":
                    self.wrong = "a chunk is longer than it says"
                    break
            end = data.find(b"\r\n", offset)
            if end < 0:
                self.wrong = (
                    "a line never ends" if len(data) - offset > _MAX_LINE_BYTES else ""
                )
                break
            self._parse_line(data[offset:end])
            offset = end + 2
        self._data = data[offset:]
        return b"".join(pieces)

    def _parse_line(self, line: bytes) -> None:
        """The size of a chunk, or, behind the last, a field or the empty line."""
        if self._last:
            self.over = not line
        elif size := _CHUNK_SIZE_PATTERN.fullmatch(line):
            self._left = int(size[1], 16)
            self._last = not self._left
        else:
            self.wrong = f"this is not the size of a chunk: {line[:40]!r}"


class Unpacker:
    """Unpacks a body in pieces that are not large: a few bytes may expand to gigabytes.

    We ask for plain bytes; some proxies pack them all the same.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding, self._begun = encoding.strip().lower(), False
        self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB_BITS) if self._encoding else None
        self.rest = b""  # packed bytes that come before any new ones

    def unpack(self, data: bytes) -> bytes:
        """Unpack `data` up to a maximum size; `rest` is what is left. Raises `Broken`."""
        if self._zlib is None or self._encoding == "identity":
            return data
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise Broken(
                f"compressed its answer as {self._encoding!r}, which was not requested"
            )
        try:
            chunk = self._zlib.decompress(data, _MAX_UNPACKED_BYTES)
        except zlib.error as error:
            if self._encoding == "deflate" and not self._begun:
                self._begun, self._zlib = True, zlib.decompressobj(_RAW_DEFLATE_BITS)
                return self.unpack(data)
            raise Broken(f"sent a body that cannot be decompressed ({error})") from error
        self._begun, self.rest = self._begun or bool(chunk), self._zlib.unconsumed_tail
        return chunk
