"""Model calls recorded in a file, and replayed without a model.

`Recording` and `Replaying` are providers. `Recording` belongs outside of retries and
fallbacks, so that the file has what the engine received. A replay is strict: it answers
a call that equals the recorded one and refuses any other, naming the first difference.
Bytes of a trace are not recorded. `cassette_format` reads and writes the lines.
"""

import json
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from itertools import zip_longest
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
    """A new file to which calls are written, by any number of models.

    Only its owner can read it. A call is one line when it is made and one when it is
    answered, each written completely before anything continues, so after a crash everything
    before it is there. `mask` gets every piece of text and returns what may be written of
    it. Raises `BadInput` if the file exists.
    """

    def __init__(self, file: Path, mask: Mask = no_mask) -> None:
        self._file, self._mask = file, mask
        self._requests = PlainRequests(mask)
        self._calls = 0
        self._broken = ""  # why writing stopped
        self._create()

    def ask(self, request: Request) -> int:
        """Write this call, and return the number that its answer refers to.

        Raises `Refused` if the file cannot be written, or could not be before: a recording
        with a missing call would be useless.
        """
        self._calls += 1
        self._write(to_line(self._requests.change(self._calls, request)))
        return self._calls

    def answer(self, response: Response) -> None:
        """Write the response. Raises `Refused` as `ask` does."""
        self._write(to_line(response, self._mask))

    def _create(self) -> None:
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
        if self._broken:
            raise Refused(self._broken)
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_APPEND)
            try:
                while line:
                    line = line[os.write(file, line) :]
            finally:
                os.close(file)
        except OSError as error:
            self._broken = (
                f"the cassette {self._file} cannot be written: {reason_of(error)}; it holds what came "
                "before: record to a new file"
            )
            raise Refused(self._broken) from error


class Recording:
    """`inner`, with each of its calls written to `tape`."""

    def __init__(self, inner: Provider, tape: CassetteWriter) -> None:
        self.inner, self._tape = inner, tape

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
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
            self._note(Response(answered=number, deltas=(*deltas,), error=error_of(error)))
            raise
        except BaseException:  # the consumer stopped, or everything is cancelled
            self._note(Response(answered=number, deltas=(*deltas,), stopped=not ended))
            raise
        self._tape.answer(Response(answered=number, deltas=(*deltas,)))

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _note(self, response: Response) -> None:
        """Record a response that ended in an exception. A failed write must not hide the exception."""
        with suppress(Refused):  # the next `ask` raises it
            self._tape.answer(response)


class Replaying:
    """Replay the responses in `file`, in the order in which their calls were made.

    The n-th call must equal the n-th recorded one, except for the fields of the request in
    `ignoring`. Only calls that ran at the same time when they were recorded may come in
    another order. A mismatch raises `Refused` and uses nothing up. Raises `BadInput` if the
    file is not a cassette.
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
        self._left = list(range(len(self._recorded)))

    @property
    def calls_left(self) -> int:
        """The number of recorded calls that were not replayed yet."""
        return len(self._left)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        response = self._answer(request)
        call = f"the cassette {self._file}, call {response.answered}"
        async with aclosing(play(response, response.answered - 1, call)) as deltas:
            async for delta in deltas:
                yield delta

    def _answer(self, request: Request) -> Response:
        actual = self._requests.plain(request)
        if not self._left:
            raise Refused(self._end_of_cassette_message())
        expected = self._recorded[self._left[0]]
        for index in self._left:
            recorded = self._recorded[index]
            if recorded.line > expected.answered_at:
                break
            if self._difference(recorded, actual) is None:
                self._left.remove(index)
                if "messages" not in self._ignoring:
                    self._requests.share_messages(request.session, actual, recorded)
                number = recorded.number
                return self._responses.get(number) or Response(
                    answered=number, stopped=True
                )
        difference = self._difference(expected, actual)
        raise Refused(f"the cassette {self._file}, call {expected.number}: {difference}")

    def _difference(self, recorded: RecordedRequest, actual: RecordedRequest) -> str | None:
        return first_difference(recorded, actual, self._ignoring)

    def _end_of_cassette_message(self) -> str:
        count = len(self._recorded)
        ends = f"; it is cut off in line {self._broken_at}" if self._broken_at else ""
        return (
            f"the cassette {self._file} holds {count} call{'' if count == 1 else 's'}, and "
            f"one more was requested{ends}"
        )


def first_difference(
    recorded: RecordedRequest, actual: RecordedRequest, ignoring: frozenset[str]
) -> str | None:
    """The first difference of `actual` from `recorded`, by order of fields, or None."""
    # For fields younger than it.
    default = PlainRequests().plain(Request(Log[StoredMessage]())).fields
    for name in Request.__struct_fields__:
        if name in ignoring or name in ("trace", "hosted"):
            continue
        if name == "messages":
            if recorded.messages == actual.messages:
                continue
            recorded_value: Plain = list(recorded.messages)
            actual_value: Plain = list(actual.messages)
        else:
            recorded_value = recorded.fields.get(name, default[name])
            actual_value = actual.fields.get(name)
        if (difference := _difference(name, recorded_value, actual_value)) is not None:
            path, was, now = difference
            return f"{path}: recorded {_excerpt(was, now)}, asked {_excerpt(now, was)}"
    return None


_MISSING_VALUE = object()


def _difference(path: str, was: Plain, now: Plain) -> tuple[str, Plain, Plain] | None:
    pairs: Iterator[tuple[str, Plain, Plain]]
    kinds: set[type[object]] = {type(was), type(now)}
    if kinds == {dict}:
        old, new = cast("dict[str, Plain]", was), cast("dict[str, Plain]", now)
        pairs = (
            (f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]",
             old.get(name, _MISSING_VALUE), new.get(name, _MISSING_VALUE))
            for name in {**old, **new}
        )  # fmt: skip
    elif kinds == {list}:
        both = zip_longest(
            cast("list[Plain]", was), cast("list[Plain]", now), fillvalue=_MISSING_VALUE
        )
        pairs = ((f"{path}[{n}]", *pair) for n, pair in enumerate(both))
    else:
        return None if was == now else (path, was, now)
    return next((different for pair in pairs if (different := _difference(*pair))), None)


def _excerpt(value: Plain, other: Plain) -> str:
    """A short excerpt of `value`, from where it differs from `other`."""
    if value is _MISSING_VALUE:
        return "nothing"
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 60 else f"{text[:59]}…"
    differs = 0
    if isinstance(other, str):
        pairs = zip(value, other, strict=False)
        differs = next(
            (n for n, (a, b) in enumerate(pairs) if a != b), min(len(value), len(other))
        )
    start = max(differs - 20, 0)
    cut = value[start : differs + 40]
    before, after = "…" if start else "", "…" if differs + 40 < len(value) else ""
    return repr(f"{before}{cut}{after}")
