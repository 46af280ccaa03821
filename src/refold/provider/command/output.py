"""Parses what a program prints into deltas: plain text, or JSON lines.

It never raises: a problem is reported in `trouble`, and `errors` explains it.
"""

import codecs
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.provider.command.spec import Counts, JsonPath, ProgramOutput
from refold.provider.port import Delta, Done, Stop, TextDelta, ThinkingDelta
from refold.provider.sse import Lines
from refold.values.text import clean
from refold.values.usage import Usage

MAX_ANSWER_CHARS = 2 * 1024 * 1024  # of an answer, or bytes of a line
TOO_MUCH_OUTPUT = "it printed more than a response may have"

_ESCAPE_PATTERN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and moves of the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[@-Z\\^_=>78()][AB0]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_MAX_ESCAPE_CHARS = 256
_MAX_DIGITS = 18  # of a number; more are no count


class ProgramOutputReader:
    """Parses what is printed. `over`: the program has marked its output as complete."""

    def __init__(self, output: ProgramOutput) -> None:
        self._output = output
        self._lines, self._plain = Lines(), _Plain()
        self._text_chars = self._unended = 0
        self._whole = ""
        self._usage, self._cost, self._model = Usage(), None, ""
        self._stop: Stop = "end"
        self.over = False
        self.trouble = ""  # the failure, as the program or this reader describes it
        self.strange = ""  # the first line that is not JSON, though all should be

    @property
    def has_text(self) -> bool:
        return self._text_chars > 0 or bool(self._whole)

    def feed(self, piece: bytes) -> list[Delta]:
        if self._output.kind == "text":
            return self._text([TextDelta(self._plain.feed(piece))])
        self._unended = self._unended + len(piece) if b"\n" not in piece else 0
        if self._unended > MAX_ANSWER_CHARS:
            self.trouble = TOO_MUCH_OUTPUT
            return []
        lines = self._lines.feed(piece)
        return self._text(delta for line in lines for delta in self._line(line))

    def end(self) -> list[Delta]:
        """The remaining deltas, which are certain only at the end of the output."""
        if self._output.kind == "text":
            return self._text([TextDelta(self._plain.end())])
        last_deltas = [delta for line in self._lines.end() for delta in self._line(line)]
        deltas = self._text(last_deltas)
        if not self._text_chars and self._whole:
            deltas += self._text([TextDelta(self._whole)])
        return deltas

    def to_done(self, stderr_tail: str = "") -> Done:
        """`stderr_tail`: the end of what was printed on standard error."""
        stderr_tail = _ESCAPE_PATTERN.sub("", stderr_tail)
        counts = {
            field: int(numbers[-1].replace(",", "")[:_MAX_DIGITS])
            for field, pattern in self._output.printed
            if (numbers := re.findall(pattern, stderr_tail, re.MULTILINE))
        }
        usage = replace(self._usage, **counts)
        return Done(usage, self._stop, self._model, cost=self._cost, by_agent=True)

    def _text(self, deltas: Iterable[Delta]) -> list[Delta]:
        """The deltas that are not empty, with the separator between two texts."""
        pieces: list[Delta] = []
        for delta in deltas:
            match delta:
                case TextDelta(""):
                    continue
                case TextDelta(text):
                    between = self._output.between if self._text_chars else ""
                    self._text_chars += len(text)
                    pieces.append(TextDelta(between + text))
                case _:
                    pieces.append(delta)
        if self._text_chars > MAX_ANSWER_CHARS:
            self.trouble = TOO_MUCH_OUTPUT
        return pieces

    def _line(self, raw: bytes) -> Iterable[Delta]:
        if not raw.strip():
            return
        line = _decode(raw)
        if not isinstance(line, dict):
            self.strange = self.strange or raw[:200].decode("utf-8", "replace")
            return
        output = self._output
        if thought := _string(line, output.thinking):
            yield ThinkingDelta(thought)
        if text := _string(line, output.text):
            yield TextDelta(text)
        self._note(line)

    def _note(self, line: Any) -> None:
        """Store what a line reports besides text."""
        output = self._output
        self._whole = _string(line, output.whole) or self._whole
        self.trouble = _string(line, output.error, any_kind=True) or self.trouble
        self._model = _string(line, output.model) or self._model
        if stop := _string(line, output.stop):
            self._stop = output.stops.get(stop, "end")
        match _first_value(line, output.cost):
            case bool() | None:
                pass
            case float() | int() as cost if cost >= 0:
                self._cost = float(cost)
            case _:
                pass
        self._usage = token_usage(line, output.counts) or self._usage
        self.over = self.over or _first_value(line, output.end) is not None


def without_lines(text: str, about_run: str) -> tuple[str, str]:
    """The response, and the lines about the run that a program printed among it."""
    lines = text.splitlines(keepends=True)
    about = [line for line in lines if re.match(about_run, line)]
    response = "".join(line for line in lines if line not in about)
    return response.strip(), "".join(about)


def token_usage(line: Any, counts: Counts) -> Usage | None:
    """The token counts of a line; None if it has none."""
    read, written = _count(line, counts.input), _count(line, counts.output)
    if read is None and written is None:
        return None
    total = _count(line, counts.total) or 0
    output = max(total - (read or 0), written or 0)
    cached = _count(line, counts.cached) or 0
    cache_write = _count(line, counts.cache_write) or 0
    fresh = read or 0
    if counts.inclusive:
        fresh = max(fresh - cached - cache_write, 0)
    thought = output - (written or 0)
    reasoning = _count(line, counts.reasoning) or thought
    return Usage(fresh, cached, cache_write, output, reasoning)


class _Plain:
    """Decodes bytes to text, without the escape sequences of a terminal.

    Blank space at the beginning and the end is left out: programs put their
    answer on lines of its own.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = False
        self._rest = ""  # the start of an escape
        self._blank = ""  # blank space that may be the end

    def feed(self, piece: bytes, *, last: bool = False) -> str:
        text = _ESCAPE_PATTERN.sub("", self._rest + self._decoder.decode(piece, last))
        index, self._rest = text.find("\x1b"), ""
        if not last and 0 <= len(text) - index <= _MAX_ESCAPE_CHARS and index >= 0:
            text, self._rest = text[:index], text[index:]
        text = text.replace("\x1b", "")
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        text = self._blank + text
        visible = text.rstrip()
        self._blank = text[len(visible) :]
        return visible

    def end(self) -> str:
        return self.feed(b"", last=True)


def _decode(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # half a character is valid JSON to everybody but msgspec
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _first_value(line: Any, places: tuple[JsonPath, ...]) -> Any:
    values = (place.find(line) for place in places)
    return next((value for value in values if value is not None), None)


def _string(line: Any, places: tuple[JsonPath, ...], *, any_kind: bool = False) -> str:
    match _first_value(line, places):
        case str(text):
            return clean(text)
        case None:
            return ""
        case other if any_kind:
            return msgspec.json.encode(other).decode()
        case _:
            return ""


def _count(line: Any, places: tuple[JsonPath, ...]) -> int | None:
    match _first_value(line, places):
        case bool():
            return None
        case int(count) if count >= 0:
            return count
        case _:
            return None
