"""Parses HTTP responses: the head, and the body while it arrives.

`http` sends requests, and loads this module after it has sent the first one, so that no request
waits for the import of h11. Large clients use h11, too; its import takes a tenth of the time of
theirs.
"""

import re
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence

import h11

from refold.provider.connect import Broken
from refold.provider.error_mapping import ResponseStart

_CHUNK_SIZE_PATTERN = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;.*)?")
# The request headers that h11 needs. It would check all others again each time.
_PROTOCOL_HEADERS = ("host", "connection", "upgrade", "expect")
_LIST_HEADERS = ("link", "www-authenticate")
_MAX_LINE_BYTES = 64 * 1024
_MAX_UNPACKED_BYTES = 1024 * 1024  # limit for unpacking at once
_MAX_START_BYTES = 1_000  # of a packed body, after which its format counts as certain
_GZIP_OR_ZLIB_BITS = zlib.MAX_WBITS | 32
_RAW_DEFLATE_BITS = -zlib.MAX_WBITS  # the format that some servers call "deflate"


class ResponseReader:
    """Reads the responses of one connection, one after the other.

    `receive` returns new bytes, or b"" when the connection was closed.
    """

    def __init__(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._receive = receive
        self._http = _new_cycle()
        # the body of the current response, if it is chunked
        self._body: ChunkedBody | None = None
        self._has_head = False  # whether the head of the response has arrived
        # The event that `next_chunk` read after the pieces that it joined.
        self._read_ahead: h11.Event | Broken | None = None

    async def read_head(
        self, method: str, target: str, headers: Sequence[tuple[str, str]]
    ) -> ResponseStart:
        """Read the head of the response to the request that was sent last.

        The arguments describe the request, because the format of a response depends on it.
        """
        # h11 must have seen the request before it can parse the response. The request was sent
        # without h11, so only the part of its head that matters is repeated here, and what h11
        # would send is dropped.
        protocol_headers = [
            (name, value) for name, value in headers if name.lower() in _PROTOCOL_HEADERS
        ]
        self._http.send(h11.Request(method=method, target=target, headers=protocol_headers))
        self._http.send(h11.EndOfMessage())
        self._has_head = False
        self._read_ahead = None
        self._body = None
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                self._has_head = True
                response_headers = _headers(event)
                if event.status_code == 200 and "transfer-encoding" in response_headers:
                    body_so_far, _ = self._http.trailing_data
                    self._body = ChunkedBody(body_so_far)
                return ResponseStart(event.status_code, response_headers)
            if not isinstance(event, h11.InformationalResponse):
                raise Broken("hung up without an answer")

    def read_available(self) -> bytes:
        """Return the part of a chunked body that has arrived; b"" for any other body."""
        return self._body.content() if self._body else b""

    async def next_chunk(self) -> bytes:
        """Wait for more of the body, and return it, or b"" at the end of the body."""
        if self._body:
            return await self._next_content(self._body)
        while isinstance(event := await self._next_event(), h11.Data):
            if event.data:  # an empty piece would mean the end
                return b"".join([event.data, *self._next_pieces()])
        return b""

    async def _next_content(self, body: "ChunkedBody") -> bytes:
        """Return the next content of a chunked body, or b"" at its end. Raises `Broken`."""
        while True:
            content = body.content()
            if content or body.over:
                return content
            if body.wrong:
                raise Broken(f"broke off in the middle of its answer ({body.wrong})")
            data = await self._receive()
            if not data:
                raise Broken("broke off in the middle of its answer (the end is missing)")
            body.add(data)

    def _next_pieces(self) -> Iterator[bytes]:
        """Yield the pieces that have arrived together with the piece that was just read.

        The caller joins them, because some servers send a piece for each word.
        """
        try:
            while isinstance(event := self._http.next_event(), h11.Data):
                yield event.data
        except h11.RemoteProtocolError as error:
            self._read_ahead = self._to_broken(error)
        else:
            if isinstance(event, h11.Event):  # and not `NEED_DATA` or `PAUSED`
                self._read_ahead = event

    def start_next(self) -> bool:
        """Prepare for the next response. Return False if the connection cannot be used again."""
        if self._body is None:  # h11 has read the whole response
            try:
                self._http.start_next_cycle()
            except h11.LocalProtocolError:
                return False
            return True
        if self._http.our_state is h11.MUST_CLOSE or not self._body.ends_cleanly:
            return False
        self._http = _new_cycle()
        self._body = None
        return True

    @property
    def has_tail(self) -> bool:
        """Whether the end of the body has not been read yet."""
        if self._body:
            return not self._body.over
        return self._http.their_state is h11.SEND_BODY

    async def _next_event(self) -> h11.Event | type[h11.PAUSED] | type[h11.NEED_DATA]:
        """Return the next event: one that was read ahead, or the one that arrives next.

        Raises `Broken`.
        """
        if (pending := self._read_ahead) is not None:
            self._read_ahead = None
            if isinstance(pending, Broken):
                raise pending
            return pending
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._receive()
                if not data and not self._has_head:
                    raise Broken("hung up without an answer")
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise self._to_broken(error) from error
        return event

    def _to_broken(self, error: h11.RemoteProtocolError) -> "Broken":
        """Return the error for data that is not valid HTTP, before or after the head."""
        if self._has_head:
            return Broken(f"broke off in the middle of its answer ({error})")
        return Broken(f"sent something that is not HTTP ({error})")


def _headers(response: h11.Response) -> dict[str, str]:
    """Return the headers of a response by name.

    Repeated headers that are lists are joined; of any others, the last one counts.
    """
    headers = dict[str, str]()
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        if name in headers and name in _LIST_HEADERS:
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def _new_cycle() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=256 * 1024)


class ChunkedBody:
    """Decodes a body in chunks (RFC 9112, 7.1): `add` received bytes, then take the `content`.

    h11 would create an event for each chunk, and many servers send a chunk for each word.
    `wrong` describes an error in the format. The content before an error is returned
    nevertheless.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._chunk_bytes_left = 0
        self._expects_line_end = False  # whether the line end after the chunk is expected
        self._has_last_chunk = False  # the last chunk is empty
        self.over, self.wrong = False, ""

    @property
    def ends_cleanly(self) -> bool:
        """Whether the body is complete and no further bytes have arrived after it."""
        return self.over and not self._data

    def add(self, data: bytes) -> None:
        self._data += data

    def content(self) -> bytes:
        """Return the decoded content that was not returned before."""
        data = self._data
        offset = 0
        pieces: list[bytes] = []
        while not self.over and not self.wrong:
            if self._chunk_bytes_left:
                piece = data[offset : offset + self._chunk_bytes_left]
                pieces.append(piece)
                offset += len(piece)
                self._chunk_bytes_left -= len(piece)
                if self._chunk_bytes_left:  # the rest of the chunk has not arrived
                    break
                self._expects_line_end = True
            if self._expects_line_end:
                line_end = data[offset : offset + 2]
                if len(line_end) < 2:
                    break
                self._expects_line_end = False
                offset += 2
                if line_end != b"\r\n":
                    self.wrong = "a chunk is longer than it says"
                    break
            end = data.find(b"\r\n", offset)
            if end < 0:
                if len(data) - offset > _MAX_LINE_BYTES:
                    self.wrong = "a line never ends"
                break
            self._parse_line(data[offset:end])
            offset = end + 2
        self._data = data[offset:]
        return b"".join(pieces)

    def _parse_line(self, line: bytes) -> None:
        """Parse a line: the size of a chunk, or after the last chunk a trailer or an empty
        line.
        """
        if self._has_last_chunk:
            self.over = not line
        elif size := _CHUNK_SIZE_PATTERN.fullmatch(line):
            self._chunk_bytes_left = int(size[1], 16)
            self._has_last_chunk = not self._chunk_bytes_left
        else:
            self.wrong = f"this is not the size of a chunk: {line[:40]!r}"


class Unpacker:
    """Decompresses a body in pieces of limited size: a few bytes may expand to gigabytes.

    refold asks for uncompressed bytes, but some proxies compress them nevertheless.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        self._is_format_certain = False
        self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB_BITS) if self._encoding else None
        self._start = b""  # the packed bytes until the format is certain
        self.rest = b""  # packed bytes to process before any new ones

    def unpack(self, data: bytes) -> bytes:
        """Decompress `data` up to a maximum size, and store the rest. Raises `Broken`."""
        if self._zlib is None or self._encoding == "identity":
            return data
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise Broken(
                f"compressed its answer as {self._encoding!r}, which was not requested"
            )
        if not self._is_format_certain:
            self._start += data
        try:
            chunk = self._zlib.decompress(data, _MAX_UNPACKED_BYTES)
        except zlib.error as error:
            # Some servers mean raw deflate, without the head of zlib.
            if self._encoding == "deflate" and not self._is_format_certain:
                self._is_format_certain = True
                self._zlib = zlib.decompressobj(_RAW_DEFLATE_BITS)
                return self.unpack(self._start)
            raise Broken(f"sent a body that cannot be decompressed ({error})") from error
        if chunk or len(self._start) > _MAX_START_BYTES:
            self._is_format_certain = True
            self._start = b""
        self.rest = self._zlib.unconsumed_tail
        return chunk
