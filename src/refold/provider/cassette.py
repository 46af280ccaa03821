"""Records model calls in a file, and replays them without a model.

`Recording` and `Replaying` are providers. `Recording` must wrap retries and fallbacks, so that
the file contains what the engine received. `Replaying` answers a call that equals the recorded
one, and refuses any other with the first difference. The bytes of a trace are not recorded.
`cassette_format` reads and writes the lines.
"""

import json
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import cast

from refold.errors import BadInput, ProviderError, Refused, reason_of
from refold.provider.cassette_format import (
    FORMAT_VERSION,
    Mask,
    Plain,
    PlainRequests,
    RecordedRequest,
    Response,
    error_of,
    no_mask,
    read,
    to_line,
)
from refold.provider.port import (
    Closable,
    Delta,
    Done,
    Provider,
    Request,
    RequestSent,
    ResponseBytes,
)
from refold.provider.script import play
from refold.values.growing import Log
from refold.values.messages import StoredMessage


class CassetteWriter:
    """Writes the calls of any number of models to a new file that only its owner can read.

    Each call is one line, and its response another. A line is written completely before the
    caller continues, so a crash loses no earlier line. `mask` removes secrets from each text.
    Raises `BadInput` if the file exists or cannot be created.
    """

    def __init__(self, file: Path, mask: Mask = no_mask) -> None:
        self._file, self._mask = file, mask
        self._requests = PlainRequests(mask)
        self._calls = 0
        self._broken = ""  # the reason why writing stopped
        self._create()

    def ask(self, request: Request) -> int:
        """Write a call, and return its number. The line of the response repeats the number.

        Raises `Refused` if this or an earlier line could not be written, because a recording
        with a missing call would be useless.
        """
        self._calls += 1
        self._write(to_line(self._requests.change(self._calls, request)))
        return self._calls

    def answer(self, response: Response) -> None:
        """Write the response to a call. Raises `Refused` if this or an earlier line failed."""
        self._write(to_line(response, self._mask))

    def _create(self) -> None:
        """Create the file with its first line. Raises `BadInput`, also if the file exists."""
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise BadInput(
                f"the cassette {self._file} exists already: name a new file, or remove it"
            ) from error
        except OSError as error:
            raise BadInput(
                f"the cassette {self._file} cannot be made: {reason_of(error)}"
            ) from error
        os.close(descriptor)
        self._write(to_line({"cassette": FORMAT_VERSION}))

    def _write(self, line: bytes) -> None:
        """Append a line. After a failure, raise `Refused`, also for each later line."""
        if self._broken:
            raise Refused(self._broken)
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND)
            try:
                while line:
                    written_bytes = os.write(descriptor, line)
                    line = line[written_bytes:]
            finally:
                os.close(descriptor)
        except OSError as error:
            self._broken = (
                f"the cassette {self._file} cannot be written: {reason_of(error)}; it holds what came "
                "before: record to a new file"
            )
            raise Refused(self._broken) from error


class Recording:
    """Wraps `inner`, and writes each call and its response to `tape`."""

    def __init__(self, inner: Provider, tape: CassetteWriter) -> None:
        self.inner, self._tape = inner, tape

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response, and record it, also if it fails or its reader stops."""
        number = self._tape.ask(request)
        deltas: list[Delta] = []
        ended = False
        try:
            async with aclosing(self.inner.stream(request)) as stream:
                async for delta in stream:
                    if not isinstance(delta, RequestSent | ResponseBytes):
                        deltas.append(delta)
                    ended = isinstance(delta, Done)
                    yield delta
        except ProviderError as error:
            self._note(
                Response(answered=number, deltas=tuple(deltas), error=error_of(error))
            )
            raise
        except BaseException:  # the consumer stopped reading, or everything is cancelled
            self._note(Response(answered=number, deltas=tuple(deltas), stopped=not ended))
            raise
        self._tape.answer(Response(answered=number, deltas=tuple(deltas)))

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _note(self, response: Response) -> None:
        """Write a response that ended in an exception. Errors of the write are ignored."""
        with suppress(Refused):  # the next `ask` raises it
            self._tape.answer(response)


class Replaying:
    """A provider that replays the recorded responses of a file, in the order of their calls.

    The n-th call must equal the n-th recorded call, except for the fields in `ignoring`; calls
    that were recorded at the same time may come in any order. A call that does not match raises
    `Refused`, and its response stays available. Raises `BadInput` if the file is not a
    cassette.
    """

    def __init__(
        self, file: Path, ignoring: frozenset[str] = frozenset(), mask: Mask = no_mask
    ) -> None:
        if unknown := ignoring - set(Request.__struct_fields__):
            raise BadInput(f"a request has no {', '.join(sorted(unknown))} to ignore")
        self._file, self._ignoring = file, ignoring
        recordings = read(file, "cassette")
        self._recorded, self._broken_at = recordings.requests, recordings.broken_at
        self._responses = {r.answered: r for r in recordings.responses}
        self._requests = PlainRequests(mask)
        self._indices_left = list(range(len(self._recorded)))  # of the calls to replay

    @property
    def calls_left(self) -> int:
        """The number of recorded calls that have not been replayed yet."""
        return len(self._indices_left)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        response = self._answer(request)
        call = f"the cassette {self._file}, call {response.answered}"
        async with aclosing(play(response, response.answered - 1, call)) as deltas:
            async for delta in deltas:
                yield delta

    def _answer(self, request: Request) -> Response:
        """Consume the recorded call that equals the request, and return its response.

        The next call is tried first, then the calls that were recorded at the same time. Raises
        `Refused` if no recorded call is left. Also raises `Refused` if no tried call equals the
        request; the message then has the first difference from the next call.
        """
        actual = self._requests.plain(request)
        if not self._indices_left:
            raise Refused(self._end_of_cassette_message())
        expected = self._recorded[self._indices_left[0]]
        for index in self._indices_left:
            recorded = self._recorded[index]
            began_later = recorded.line > expected.answered_at
            if began_later:
                break
            if first_difference(recorded, actual, self._ignoring) is None:
                self._indices_left.remove(index)
                if "messages" not in self._ignoring:
                    self._requests.share_messages(request.session, actual, recorded)
                number = recorded.number
                # A call without a response was stopped before one arrived.
                stopped = Response(answered=number, stopped=True)
                return self._responses.get(number, stopped)
        difference = first_difference(expected, actual, self._ignoring)
        raise Refused(f"the cassette {self._file}, call {expected.number}: {difference}")

    def _end_of_cassette_message(self) -> str:
        count = len(self._recorded)
        ends = f"; it is cut off in line {self._broken_at}" if self._broken_at else ""
        return (
            f"the cassette {self._file} holds {count} call{'' if count == 1 else 's'}, and "
            f"one more was requested{ends}"
        )


# They belong to the run, not to the conversation: a replay may be traced, and no server is hosted.
_UNRECORDED_FIELDS = ("trace", "hosted")


def first_difference(
    recorded: RecordedRequest, actual: RecordedRequest, ignoring: frozenset[str]
) -> str | None:
    """Describe the first difference between two requests, or return None if they are equal.

    The fields in `ignoring` are not compared.
    """
    # Defaults for fields that are newer than the recording.
    default = PlainRequests().plain(Request(Log[StoredMessage]())).fields
    for name in Request.__struct_fields__:
        if name in ignoring or name in _UNRECORDED_FIELDS:
            continue
        if name == "messages":
            if recorded.messages == actual.messages:
                continue
            recorded_value: Plain = list(recorded.messages)
            actual_value: Plain = list(actual.messages)
        else:
            recorded_value = recorded.fields.get(name, default[name])
            actual_value = actual.fields.get(name)
        if (difference := _find_difference(name, recorded_value, actual_value)) is not None:
            path, was, now = difference
            return f"{path}: recorded {_excerpt(was, now)}, asked {_excerpt(now, was)}"
    return None


_MISSING_VALUE = object()
_MAX_EXCERPT_CHARS = 60  # of a value in a message
_EXCERPT_CHARS_BEFORE = 20  # the equal ones that are shown before the difference


def _find_difference(path: str, was: Plain, now: Plain) -> tuple[str, Plain, Plain] | None:
    """Return the path, the recorded value and the present value of the first difference.

    Return None if the values `was` and `now` are equal.
    """
    pairs: Iterator[tuple[str, Plain, Plain]]
    kinds: set[type[object]] = {type(was), type(now)}
    if kinds == {dict}:
        old, new = cast("dict[str, Plain]", was), cast("dict[str, Plain]", now)
        pairs = (
            (
                _member_path(path, name),
                old.get(name, _MISSING_VALUE),
                new.get(name, _MISSING_VALUE),
            )
            for name in {**old, **new}
        )
    elif kinds == {list}:
        both = zip_longest(
            cast("list[Plain]", was), cast("list[Plain]", now), fillvalue=_MISSING_VALUE
        )
        pairs = ((f"{path}[{n}]", *pair) for n, pair in enumerate(both))
    else:
        return None if was == now else (path, was, now)
    for pair in pairs:
        if (difference := _find_difference(*pair)) is not None:
            return difference
    return None


def _member_path(path: str, name: str) -> str:
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]"


def _excerpt(value: Plain, other: Plain) -> str:
    """Return a short excerpt of `value`, around the point where it differs from `other`."""
    if value is _MISSING_VALUE:
        return "nothing"
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        is_short = len(text) <= _MAX_EXCERPT_CHARS
        return text if is_short else f"{text[: _MAX_EXCERPT_CHARS - 1]}…"
    common = 0  # the number of characters with which both begin
    if isinstance(other, str):
        pairs = zip(value, other, strict=False)
        equal_pairs = takewhile(lambda pair: pair[0] == pair[1], pairs)
        common = sum(1 for _ in equal_pairs)
    start = max(common - _EXCERPT_CHARS_BEFORE, 0)
    end = common - _EXCERPT_CHARS_BEFORE + _MAX_EXCERPT_CHARS
    before = "…" if start else ""
    after = "…" if end < len(value) else ""
    return repr(f"{before}{value[start:end]}{after}")
