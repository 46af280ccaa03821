"""Parses the output of a program, which is plain text or JSON lines, into deltas.

It raises no errors: a problem is stored in `trouble`, and `errors` explains it.
"""

import codecs
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from refold.provider.command.json_path import JsonPath
from refold.provider.command.spec import Counts, ProgramOutput
from refold.provider.port import Delta, Done, Stop, TextDelta, ThinkingDelta
from refold.provider.sse import Lines
from refold.values.text import clean
from refold.values.usage import Usage

MAX_ANSWER_CHARS = 2 * 1024 * 1024  # characters of an answer, or bytes of a line
TOO_MUCH_OUTPUT = "it printed more than a response may have"

_ESCAPE_PATTERN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[@-Z\\^_=>78()][AB0]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
_MAX_ESCAPE_CHARS = 256
_MAX_DIGITS = 18  # a number with more digits is not a count


class ProgramOutputReader:
    """Parses a program's output. `over` says that the program's end mark has arrived."""

    def __init__(self, output: ProgramOutput) -> None:
        self._output = output
        self._lines, self._plain = Lines(), _PlainText()
        self._text_chars = self._line_bytes = 0
        self._whole = ""  # the complete response, if a line has it
        self._usage = Usage()
        self._cost: float | None = None
        self._model = ""
        self._stop: Stop = "end"
        self.over = False
        self.trouble = ""  # the failure, as the program or this reader describes it
        self.strange = ""  # the first line that is not JSON, although all should be

    @property
    def has_text(self) -> bool:
        return self._text_chars > 0 or bool(self._whole)

    def feed(self, piece: bytes) -> list[Delta]:
        """Add a piece of the output. Return the deltas that are now known."""
        if self._output.kind == "text":
            return self._nonempty_deltas([TextDelta(self._plain.feed(piece))])
        if b"\n" in piece:
            self._line_bytes = 0
        else:
            self._line_bytes += len(piece)
        if self._line_bytes > MAX_ANSWER_CHARS:
            self.trouble = TOO_MUCH_OUTPUT
            return []
        lines = self._lines.feed(piece)
        return self._nonempty_deltas(
            delta for line in lines for delta in self._parse_line(line)
        )

    def end(self) -> list[Delta]:
        """Return the deltas that are only certain at the end of the output."""
        if self._output.kind == "text":
            return self._nonempty_deltas([TextDelta(self._plain.end())])
        last_deltas = [
            delta for line in self._lines.end() for delta in self._parse_line(line)
        ]
        deltas = self._nonempty_deltas(last_deltas)
        if not self._text_chars and self._whole:
            deltas += self._nonempty_deltas([TextDelta(self._whole)])
        return deltas

    def to_done(self, stderr_tail: str = "") -> Done:
        """Return the `Done` of the response.

        `stderr_tail` is the end of the program's standard error. Token counts that some programs
        print there replace those of the standard output.
        """
        stderr_text = _ESCAPE_PATTERN.sub("", stderr_tail)
        printed_counts: dict[str, int] = {}
        for field, pattern in self._output.printed:
            numbers = re.findall(pattern, stderr_text, re.MULTILINE)
            if numbers:
                digits = numbers[-1].replace(",", "")
                printed_counts[field] = int(digits[:_MAX_DIGITS])
        usage = replace(self._usage, **printed_counts)
        return Done(usage, self._stop, self._model, cost=self._cost, by_agent=True)

    def _nonempty_deltas(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Return the deltas that are not empty, with a separator between two texts.

        Their characters are counted. If there are too many, `trouble` is set.
        """
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

    def _parse_line(self, raw: bytes) -> Iterable[Delta]:
        """Yield the deltas of a line. A line without a JSON object is stored in `strange`."""
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
        self._note_values(line)

    def _note_values(self, line: Any) -> None:
        """Store the values of a line that are not pieces of text, such as token counts."""
        output = self._output
        self._whole = _string(line, output.whole) or self._whole
        self.trouble = _string(line, output.error, any_kind=True) or self.trouble
        self._model = _string(line, output.model) or self._model
        if stop := _string(line, output.stop):
            self._stop = output.stops.get(stop, "end")
        match _first_value(line, output.cost):
            case bool():  # it is also an `int`, but not a cost
                pass
            case int() | float() as cost if cost >= 0:
                self._cost = float(cost)
            case _:
                pass
        self._usage = token_usage(line, output.counts) or self._usage
        self.over = self.over or _first_value(line, output.end) is not None


def without_lines(text: str, about_run: str) -> tuple[str, str]:
    """Split a text into the response, and the lines about the run, which match `about_run`."""
    lines = text.splitlines(keepends=True)
    run_lines = [line for line in lines if re.match(about_run, line)]
    response = "".join(line for line in lines if line not in run_lines)
    return response.strip(), "".join(run_lines)


def token_usage(line: Any, counts: Counts) -> Usage | None:
    """Return the token usage that a JSON line reports, or None if it reports none.

    If `counts.total` is larger than input and output together, the difference counts as output.
    It also counts as reasoning, unless the line reports a count of that.
    """
    reported_input = _count(line, counts.input)
    reported_output = _count(line, counts.output)
    if reported_input is None and reported_output is None:
        return None
    input_tokens, output_tokens = reported_input or 0, reported_output or 0
    total = _count(line, counts.total) or 0
    output_with_thinking = max(total - input_tokens, output_tokens)
    cached = _count(line, counts.cached) or 0
    cache_write = _count(line, counts.cache_write) or 0
    fresh = input_tokens
    if counts.inclusive:
        fresh = max(input_tokens - cached - cache_write, 0)
    reasoning = _count(line, counts.reasoning) or output_with_thinking - output_tokens
    return Usage(
        fresh, cached, cache_write, output=output_with_thinking, reasoning=reasoning
    )


class _PlainText:
    """Decodes bytes to text, without the escape sequences of a terminal.

    White space at the beginning and the end is left out, because many programs print blank lines
    around their answer.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = False
        self._rest = ""  # the start of an escape sequence
        self._blank = ""  # white space that may be at the end

    def feed(self, piece: bytes, *, last: bool = False) -> str:
        """Return the text of a piece of output, without escape sequences.

        White space at its end, or an incomplete escape sequence, waits for the next piece.
        `last` says that no other piece follows.
        """
        text = _ESCAPE_PATTERN.sub("", self._rest + self._decoder.decode(piece, last))
        self._rest = ""
        index = text.find("\x1b")
        may_be_unfinished = index >= 0 and len(text) - index <= _MAX_ESCAPE_CHARS
        if may_be_unfinished and not last:
            self._rest = text[index:]
            text = text[:index]
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
    """Decode a value of JSON. Return None if it is not valid."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # unlike other parsers, msgspec rejects half a surrogate pair
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _first_value(line: Any, paths: tuple[JsonPath, ...]) -> Any:
    values = (path.find(line) for path in paths)
    return next((value for value in values if value is not None), None)


def _string(line: Any, paths: tuple[JsonPath, ...], *, any_kind: bool = False) -> str:
    """Return the first value at these paths if it is a text, otherwise "".

    If `any_kind`, any other value is returned as JSON.
    """
    match _first_value(line, paths):
        case str(text):
            return clean(text)
        case None:
            return ""
        case other if any_kind:
            return msgspec.json.encode(other).decode()
        case _:
            return ""


def _count(line: Any, paths: tuple[JsonPath, ...]) -> int | None:
    """Return the first value at these paths if it is a token count, otherwise None."""
    match _first_value(line, paths):
        case bool():
            return None
        case int(count) if count >= 0:
            return count
        case _:
            return None
