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


class LineTooLong(ValueError):
    """Raised if a line or an event is longer than the limit."""


class Lines:
    """Splits bytes into lines, without their ends. A line is returned when it is complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes. Return the lines that they complete, without their line ends."""
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
        *whole, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return whole

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
        self._lines, self._data = Lines(), list[bytes]()
        self._first = True
        self._of_body = of_body or json_values
        self._body: WholeBody | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk of the stream. Return the data of the events that it completes."""
        if self._body is not None:
            return self._body.feed(chunk)
        events: list[bytes] = []
        for line in self._lines.feed(chunk):
            if self._body is not None:
                self._body.feed(line + b"\n")
                continue
            if self._first and line:  # some servers begin with a byte order mark
                line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
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
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                self._data.append(b"")
        return events

    def end(self) -> list[bytes]:
        """Return the data of the last events, or of all if the stream is one body of JSON."""
        events = self.feed(b"\n" if any(self._lines.end()) else b"")
        if self._body is not None:
            return [event for body in self._body.end() for event in self._of_body(body)]
        return [*events, *(last for last in self._take_event() if _is_complete(last))]

    def _take_event(self) -> list[bytes]:
        """Return the data of the event that ends here, or [] if it has none."""
        data, self._data = b"\n".join(self._data), []
        return [data] if data.strip() else []


def json_values(body: bytes) -> list[bytes]:
    """Split a body into JSON values: one value, the items of an array, or a value per line.

    If the body is not JSON, return it unchanged.
    """
    for text in (body, b"[" + b",".join(filter(None, body.splitlines())) + b"]"):
        try:
            if text.lstrip().startswith(b"["):
                return [bytes(raw) for raw in msgspec.json.decode(text, type=list[Raw])]
            msgspec.json.decode(text)
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
