"""Parses a response with calls written as text, while it streams.

Text is passed on at once; where a call may begin, it is held back until that is clear.
Calls are passed on when the response is complete, whole and in order, and never from a
response that was cut off.

Pure: text in, deltas out. `candidate` recognizes one call, `quoting` what is quoted;
here it is decided which calls are made (`CallClassifier`).
"""

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from refold.provider.port import CallDelta, Delta, TextDelta
from refold.provider.text_protocol import delimiters
from refold.provider.text_protocol.call_formats import (
    TEXT_WIRE,
    ParsedCall,
    Scan,
    is_example,
    to_unmade_call,
)
from refold.provider.text_protocol.candidate import Candidate, Step
from refold.provider.text_protocol.delimiters import Opening
from refold.provider.text_protocol.quoting import CALL_BEGINNINGS, QuoteState
from refold.values.json_check import Schema
from refold.values.tools import ToolSpec

QUOTED_REASON = (
    "It was not made, nor any other call of that answer: with words after it, beside it "
    "on its line or before its fence, it may be only quoted. To make it, reply with the "
    "call and nothing else. To show a call, write `> ` before each of its lines."
)
BROKEN_OFF_REASON = (
    "It was not made, nor any other call of that answer: it breaks off before its end. "
    "Write it whole."
)
_BEGINNING_PATTERN = re.compile(f"[{re.escape(CALL_BEGINNINGS)}]")


class StreamParser:
    """Parses one response.

    `native`: the model was offered native tools; then a call of an unknown tool counts as
    text. `schema`: what the response has to match, if anything.
    """

    def __init__(
        self, tools: Sequence[ToolSpec], schema: bytes = b"", *, native: bool = False
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._native = native
        self._schema = Raw(schema or b"null")
        self._response: list[str] = []
        # The text to parse, after the last parsed characters: delimiters look back.
        self._text, self._at = "\n", 1
        self._step: Step = self._scan_text
        self._candidate = Candidate(self._tools, unknown_tools=not native)
        self._begins_line = True  # whether the candidate does
        self._json_scan, self._after_json = Scan(), self._step
        self._fence = "```"
        self._classifier = CallClassifier()
        self._quoting = self._classifier.quoting

    @property
    def calls(self) -> tuple[ParsedCall, ...]:
        """The calls of a closed parser: all are made, or none is and each has a reason."""
        return self._classifier.calls

    @property
    def has_text(self) -> bool:
        """Whether there is anything but calls, white space and thinking."""
        return self._classifier.has_text

    def feed(self, text: str) -> Iterator[Delta]:
        """The text that can be passed on."""
        self._response.append(text)
        self._text += text
        needs_more = False
        while self._at < len(self._text) and not needs_more:
            self._at, needs_more = self._step(self._text, self._at)
        keep = max(0, self._at - delimiters.LOOKBACK_CHARS)
        self._text, self._at = self._text[keep:], self._at - keep
        return self._classifier.take_text()

    def close(self) -> None:
        """Decide which calls are made: the response is complete."""
        if self._step == self._scan_candidate:
            self._candidate.end()
            self._end_candidate()
        self._add_rest()
        if self.calls and self._matches_schema():
            self._classifier.drop_calls()
        else:
            self._classifier.close()

    def end(self, *, calls: bool = True, first: int = 0) -> Iterator[Delta]:
        """The deltas that are still held back; calls are numbered from `first` on.

        Without `calls`, they are passed on as text.
        """
        if not calls:
            self._classifier.drop_calls()
        self._add_rest()
        yield from self._classifier.take_text()
        if calls:
            yield from self._classifier.call_deltas(first)

    def _matches_schema(self) -> bool:
        """Return True if the response matches the requested schema: then it is not a
        call."""
        if bytes(self._schema) == b"null":
            return False
        try:
            return not Schema(self._schema).problem("".join(self._response))
        except ValueError:
            return False

    def _add_rest(self) -> None:
        rest, self._text = self._text[self._at :], self._text[: self._at]
        if self._step == self._scan_candidate:
            self._classifier.add_text(self._candidate.text)
            self._step = self._scan_text
        if self._step != self._scan_made_up_result:
            self._classifier.add_text(rest)

    # Each step parses from `at` on, and returns how far it came and whether it needs more.

    def _scan_text(self, text: str, offset: int) -> tuple[int, bool]:
        match = _BEGINNING_PATTERN.search(text, offset)
        end = match.start() if match else len(text)
        if end > offset:
            self._classifier.add_text(text[offset:end])
        return self._scan_beginning(text, end) if match else (end, False)

    def _scan_beginning(self, text: str, offset: int) -> tuple[int, bool]:
        progress = None
        if self._quoting.at_line_start and text[offset] in "`~":
            progress = self._scan_fence(text, offset)
        elif self._quoting.quoted:
            pass
        elif text[offset] in "<[" and not text.endswith("`", 0, offset):
            progress = self._scan_tag(text, offset)
        if not progress and text[offset] in "{[" and self._quoting.at_line_start:
            progress = None if self._quoting.quoted else self._try_candidate(None, offset)
        if not progress:
            self._classifier.add_text(text[offset])
        return progress or (offset + 1, False)

    def _scan_tag(self, text: str, offset: int) -> tuple[int, bool] | None:
        if opening := delimiters.tag_at(text, offset):
            return self._skip_indented(opening, offset) or self._try_candidate(
                opening, offset
            )
        # After its calls, a model that writes a result itself is making it up.
        after_calls = self._classifier.has_calls and not (self._native or self.has_text)
        if after_calls and delimiters.result_at(text, offset):
            self._step = self._scan_made_up_result
            return offset, False
        begins = not (self.has_text or self._classifier.has_calls)
        if begins and text.startswith(delimiters.THINK_OPENER, offset):
            self._step = self._scan_thinking
            return offset, False
        return (offset, True) if delimiters.may_be_tag(text, offset) else None

    def _skip_indented(self, opening: Opening, offset: int) -> tuple[int, bool] | None:
        """A tag in an indented code block: the rest belongs to the block, indented or not."""
        if not self._quoting.is_indented:
            return None
        self._classifier.add_text(opening.text)
        self._quoting.quoted = True
        return offset + len(opening.text), False

    def _scan_fence(self, text: str, offset: int) -> tuple[int, bool] | None:
        opening = delimiters.fence_at(text, offset)
        if opening is None:
            return (offset, True) if delimiters.may_be_fence(text, offset) else None
        if opening.json and not self._quoting.quoted:
            return self._try_candidate(opening, offset)
        self._classifier.add_text(opening.text)
        self._fence, self._step = opening.closer, self._scan_in_fence
        return offset + len(opening.text), False

    def _scan_in_fence(self, text: str, offset: int) -> tuple[int, bool]:
        """Skip an example, up to the end of its fence."""
        end = delimiters.fence_end(text, offset, self._fence)
        closed = end >= 0
        stop_offset = end if closed else delimiters.may_be_fence_end(text, offset)
        self._classifier.add_text(text[offset:stop_offset])
        if closed:
            self._step = self._scan_text
        return stop_offset, not closed

    def _scan_thinking(self, text: str, offset: int) -> tuple[int, bool]:
        """Skip thinking, which some servers leave in the text. It contains no calls."""
        end = delimiters.find_or_begin(text, offset, delimiters.THINK_CLOSER)
        closed = text.startswith(delimiters.THINK_CLOSER, end)
        if closed:
            end += len(delimiters.THINK_CLOSER)
            self._step = self._scan_text
        self._classifier.add_thinking(text[offset:end])
        return end, not closed

    def _scan_made_up_result(self, text: str, offset: int) -> tuple[int, bool]:
        self._classifier.hold(text[offset:])
        return len(text), True

    def _try_candidate(self, opening: Opening | None, offset: int) -> tuple[int, bool]:
        self._candidate = Candidate(self._tools, unknown_tools=not self._native)
        self._step, self._begins_line = self._scan_candidate, self._quoting.at_line_start
        return self._candidate.open(opening, offset) if opening else (offset, False)

    def _scan_candidate(self, text: str, offset: int) -> tuple[int, bool]:
        offset, needs_more = self._candidate.feed(text, offset)
        if self._candidate.state == "open":
            return offset, needs_more
        bare = self._candidate.state == "call" and not self._candidate.sure
        self._end_candidate()
        if bare and text.startswith("{", offset):  # another one on the same line
            return self._try_candidate(None, offset)
        return offset, False

    def _end_candidate(self) -> None:
        candidate = self._candidate
        self._step = self._scan_text
        self._classifier.add(candidate, begins_line=self._begins_line)
        if candidate.state == "text" and candidate.fence:
            self._fence, self._step = candidate.fence.closer, self._scan_in_fence
        if candidate.open_json:
            self._json_scan, self._after_json = candidate.scan, self._step
            self._step = self._scan_json

    def _scan_json(self, text: str, offset: int) -> tuple[int, bool]:
        """Skip JSON that is not a call: it contains no calls either."""
        end = self._json_scan.feed(text, offset)
        self._classifier.add_text(text[offset:end])
        if self._json_scan.state != "open":
            self._step = self._after_json
        return end, False


class _HeldCall(Struct):
    """A call that is held back, with the text that it becomes if it is not made."""

    text: list[str]
    calls: tuple[ParsedCall, ...]
    in_place: bool  # made, if no text follows
    meant: bool  # reported to the model, if text follows


class CallClassifier:
    """Decides which calls of a response are made: all of them, or none.

    A call is made if it begins its line, only calls and white space follow, and it is in
    a tag; or bare, of an offered tool and in the exact shape of a call; or in another
    fence (```json), if the response begins with that. A call in a tag may be of an unknown
    tool or have broken arguments: its result tells the model.

    All other calls are text. The model gets the reason (`QUOTED_REASON`,
    `BROKEN_OFF_REASON`) unless the response clearly shows an example: a quote, code, a bare
    call between sentences. What is quoted never gets here, nor does JSON inside other JSON.
    """

    def __init__(self) -> None:
        self.quoting = QuoteState()
        self.has_text = False
        self._out: list[str] = []
        self._held: list[_HeldCall] = []
        self._unmade: list[ParsedCall] = []

    @property
    def has_calls(self) -> bool:
        return bool(self._held)

    @property
    def calls(self) -> tuple[ParsedCall, ...]:
        return (
            *self._unmade,
            *(call for held_call in self._held for call in held_call.calls),
        )

    def add_text(self, text: str) -> None:
        self.quoting.feed(text)
        if not text.strip():
            if self._held:
                self.hold(text)
            elif text:
                self._out.append(text)
            return
        self._release(report=[held_call for held_call in self._held if held_call.meant])
        self.has_text = True
        self._out.append(text)

    def add_thinking(self, text: str) -> None:
        self._out.append(text)

    def hold(self, text: str) -> None:
        """Hold back text that follows a call; it is released with that call."""
        self._held[-1].text.append(text)

    def add(self, candidate: Candidate, *, begins_line: bool) -> None:
        """Add a complete candidate: hold back its calls, or pass it on as text."""
        # After text, a fence that does not say that it holds a call shows an example.
        first = candidate.first
        in_fence = bool(self.has_text and first and first.fence and not first.says_call)
        in_place = begins_line and not in_fence
        if candidate.state == "call" and not self._is_example(candidate, in_fence):
            is_call = in_place and (
                candidate.sure or not (self.has_text or _unknown(candidate))
            )
            self._held.append(
                _HeldCall([candidate.text], candidate.calls, in_place, is_call)
            )
            self.add_text(candidate.rest)
            return
        self.add_text(candidate.text)
        if candidate.state == "half" and in_place:
            self._unmade.append(
                to_unmade_call(candidate.unfinished_call(), BROKEN_OFF_REASON)
            )

    def close(self) -> None:
        """Decide at the end of the response: all its calls are made, or none."""
        if self._unmade or not all(held_call.in_place for held_call in self._held):
            self._release(report=self._held)

    def drop_calls(self) -> None:
        self._unmade.clear()
        self._release(report=())

    def take_text(self) -> Iterator[Delta]:
        """The text that is not held back."""
        text, self._out = "".join(self._out), []
        if text:
            yield TextDelta(text)

    def call_deltas(self, first: int) -> Iterator[Delta]:
        for index, call in enumerate(self.calls, first):
            if call.why:
                why = Raw(msgspec.json.encode(call.why))
                yield CallDelta(index, name=call.name, wire=TEXT_WIRE, data=why)
            else:
                yield CallDelta(index, name=call.name)
            yield CallDelta(index, call.arguments)

    def _release(self, report: Sequence[_HeldCall]) -> None:
        """Pass on as text what is held back; the calls to `report` are reported to the
        model."""
        self._unmade += [
            to_unmade_call(call, QUOTED_REASON)
            for held_call in report
            for call in held_call.calls
        ]
        for held_call in self._held:
            self._out += held_call.text
        self._held.clear()

    def _is_example(self, candidate: Candidate, in_fence: bool) -> bool:
        """Whether the candidate is our own example, or has an unknown tool or a fenced tag
        after text.
        """
        shown = self.has_text and (_unknown(candidate) or (candidate.tagged and in_fence))
        return shown or any(map(is_example, candidate.calls))


def _unknown(candidate: Candidate) -> bool:
    """Whether the candidate has a call of an unknown tool without a tag."""
    return any(call.unknown_tool for call in candidate.calls)
