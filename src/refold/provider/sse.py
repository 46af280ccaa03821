"""Splits a byte stream into lines, into server-sent events, or into one complete body.

It follows the WHATWG rules: a line ends with CR, LF or both, an event ends with an empty line,
and lines that start with a colon only keep the connection alive. Each wire parses its own
events.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

_MAX_EVENT_BYTES = 64 * 1024 * 1024  # the length of one line or event; no model sends more
_JSON_STARTS = (b"{", b"[")  # no line of an event stream begins like this


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineTooLong(ValueError):
    """Raised if a line or an event is longer than the limit."""


class Lines:
    """Splits bytes into lines, without their ends. A line is returned when it is complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        r"""Add bytes. Return the lines that they complete, without their line ends.

        Lines end with \n, \r or \r\n, which may be split between two chunks.
        """
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        elif chunk:
            self._after_cr = False
        self._rest += chunk
        if b"\n" not in chunk:
            if len(self._rest) > _MAX_EVENT_BYTES:
                raise LineTooLong
            return []
        *complete_lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return complete_lines

    def end(self) -> list[bytes]:
        """Return the text after the last line end as a line, or [] if there is none."""
        return [bytes(self._rest)] if self._rest else []


class Events:
    """Splits a stream into server-sent events, and returns the data of each complete event.

    Some servers omit the empty line after the last event, so its data also counts if it is
    complete JSON. If the body begins as JSON, the server did not stream; `of_body` converts the
    body to events.
    """

    def __init__(self, of_body: "Callable[[bytes], list[bytes]] | None" = None) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []  # the data lines of the event that has begun
        self._at_start = True
        self._of_body = of_body or json_values
        self._body: WholeBody | None = None  # set if the server does not stream

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk of the stream. Return the data of the events that it completes.

        If the body begins as JSON, it is one body and no stream, and only `end` returns events.
        """
        if self._body is not None:
            return self._body.feed(chunk)
        events: list[bytes] = []
        for line in self._lines.feed(chunk):
            if self._body is not None:
                self._body.feed(line + b"\n")
                continue
            if self._at_start and line:
                self._at_start = False
                line = line.removeprefix(_BYTE_ORDER_MARK)  # some servers send it
                if line.lstrip()[:1] in _JSON_STARTS:
                    self._body = WholeBody()
                    self._body.feed(line + b"\n")
                    continue
            if not line:
                events += self._take_event()
            elif line.startswith(b"data:"):
                if self._data and _is_complete(self._data[-1]):
                    # some servers omit the empty line between events
                    events += self._take_event()
                self._data.append(line.removeprefix(b"data:").removeprefix(b" "))
            elif line == b"data":
                self._data.append(b"")
        return events

    def end(self) -> list[bytes]:
        """Return the data of the last events, or of all if the stream is one body of JSON.

        Data that was cut off is left out.
        """
        has_open_line = any(self._lines.end())
        events = self.feed(b"\n" if has_open_line else b"")
        if self._body is not None:
            bodies = self._body.end()
            return [event for body in bodies for event in self._of_body(body)]
        events += [data for data in self._take_event() if _is_complete(data)]
        return events

    def _take_event(self) -> list[bytes]:
        """Return the data of the event that ends here, or [] if it has none."""
        data = b"\n".join(self._data)
        self._data = []
        return [data] if data.strip() else []


def json_values(body: bytes) -> list[bytes]:
    """Split a body into JSON values: one value, the items of an array, or a value per line.

    If the body is not JSON, return it unchanged.
    """
    lines = [line for line in body.splitlines() if line]
    lines_as_array = b"[" + b",".join(lines) + b"]"
    for text in (body, lines_as_array):
        try:
            if text.lstrip().startswith(b"["):
                return [bytes(raw) for raw in msgspec.json.decode(text, type=list[Raw])]
            msgspec.json.decode(text)  # raises an error if it is not JSON
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        return [text]
    return [body]  # the reader reports the error


def _is_complete(data: bytes) -> bool:
    """Whether the data of an event is JSON or [DONE], and so is not cut off."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data == b"[DONE]"
    return True


class WholeBody:
    """Collects the complete body of a server that does not stream, as one event."""

    def __init__(self) -> None:
        self._all = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes, and return [], because only `end` returns the body."""
        self._all += chunk
        if len(self._all) > _MAX_EVENT_BYTES:
            raise LineTooLong
        return []

    def end(self) -> list[bytes]:
        return [bytes(self._all)] if self._all.strip() else []
