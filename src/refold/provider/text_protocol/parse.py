"""Parses a response with tool calls that are written as text, while it streams.

Text is passed on at once. At a possible beginning of a call it is held back until it is clear
whether there is a call. Calls are passed on at the end of the response, in order; those in a
response that was cut off are not.

Pure: text goes in, and deltas come out. `candidate` recognizes one call, `quoting` recognizes
quotes, and `CallClassifier` decides which calls are made.
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
    """Parses one response, piece by piece.

    `native` says that the model was offered native tools, so a call of an unknown tool counts
    as text. `schema` is the schema that the response must match, or b"". Methods that parse
    return the next offset, and whether they need more text.
    """

    def __init__(
        self, tools: Sequence[ToolSpec], schema: bytes = b"", *, native: bool = False
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._native = native
        self._schema = Raw(schema or b"null")
        self._response: list[str] = []
        # The text to parse, after the last parsed characters, because delimiters look back.
        self._text, self._offset = "\n", 1
        self._step: Step = self._scan_text
        self._candidate = Candidate(self._tools, unknown_tools=not native)
        self._begins_line = True  # whether the candidate begins a line
        self._json_scan, self._step_after_json = Scan(), self._step
        self._fence = "```"
        self._classifier = CallClassifier()
        self._quoting = self._classifier.quoting

    @property
    def calls(self) -> tuple[ParsedCall, ...]:
        """The calls of a closed parser. Either all are made, or each has a reason why not."""
        return self._classifier.calls

    @property
    def has_text(self) -> bool:
        """Whether the response has anything besides calls, white space and thinking."""
        return self._classifier.has_text

    def feed(self, text: str) -> Iterator[Delta]:
        """Parse more text, and yield the text that need not be held back."""
        self._response.append(text)
        self._text += text
        needs_more = False
        while self._offset < len(self._text) and not needs_more:
            self._offset, needs_more = self._step(self._text, self._offset)
        # Drop the parsed text, except the characters to look back at.
        start = max(0, self._offset - delimiters.LOOKBACK_CHARS)
        self._text = self._text[start:]
        self._offset -= start
        return self._classifier.take_text()

    def close(self) -> None:
        """Decide which calls are made. Call this at the end of a complete response."""
        if self._step == self._scan_candidate:
            self._candidate.end()
            self._end_candidate()
        self._add_rest()
        if self.calls and self._matches_schema():
            self._classifier.drop_calls()
        else:
            self._classifier.close()

    def end(self, *, calls: bool = True, first: int = 0) -> Iterator[Delta]:
        """Yield the deltas that are still held back. Calls are numbered from `first` on.

        If not `calls`, yield them as text.
        """
        if not calls:
            self._classifier.drop_calls()
        self._add_rest()
        yield from self._classifier.take_text()
        if calls:
            yield from self._classifier.call_deltas(first)

    def _matches_schema(self) -> bool:
        """Whether the response matches the requested schema, and so is not a call."""
        if bytes(self._schema) == b"null":
            return False
        try:
            return not Schema(self._schema).problem("".join(self._response))
        except ValueError:
            return False

    def _add_rest(self) -> None:
        """Add the text that was not parsed yet, except results that the model made up."""
        rest = self._text[self._offset :]
        self._text = self._text[: self._offset]
        if self._step == self._scan_candidate:
            self._classifier.add_text(self._candidate.text)
            self._step = self._scan_text
        if self._step != self._scan_made_up_result:
            self._classifier.add_text(rest)

    # Each step parses from an offset on. It returns the offset reached, and whether more text
    # is needed. A step may return None if it does not apply at the offset.

    def _scan_text(self, text: str, offset: int) -> tuple[int, bool]:
        """Add the text before the next possible beginning of a call, and scan from there."""
        match = _BEGINNING_PATTERN.search(text, offset)
        end = match.start() if match else len(text)
        if end > offset:
            self._classifier.add_text(text[offset:end])
        return self._scan_beginning(text, end) if match else (end, False)

    def _scan_beginning(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse the text at a character that may begin a fence, a tag or JSON.

        Return the next offset, and whether more text is needed.
        """
        char = text[offset]
        at_line_start = self._quoting.at_line_start
        may_be_call = not self._quoting.quoted
        follows_backtick = text.endswith("`", 0, offset)
        result = None  # set by the first step that applies here
        if at_line_start and char in "`~":
            result = self._scan_fence(text, offset)
        elif char in "<[" and may_be_call and not follows_backtick:
            result = self._scan_tag(text, offset)
        if result is None and char in "{[" and at_line_start and may_be_call:
            result = self._try_candidate(opening=None, offset=offset)
        if result is not None:
            return result
        self._classifier.add_text(char)
        return offset + 1, False

    def _scan_tag(self, text: str, offset: int) -> tuple[int, bool] | None:
        """Parse a tag of a call, a made-up result or thinking. Return None for other text.

        Otherwise return the next offset, and whether more text is needed.
        """
        if opening := delimiters.tag_at(text, offset):
            if self._quoting.is_indented:
                return self._skip_indented(opening, offset)
            return self._try_candidate(opening, offset)
        # If a model writes a result itself after its calls, it is making the result up.
        has_only_calls = self._classifier.has_calls and not self.has_text
        if has_only_calls and not self._native and delimiters.is_result_at(text, offset):
            self._step = self._scan_made_up_result
            return offset, False
        is_at_start = not (self.has_text or self._classifier.has_calls)
        if is_at_start and text.startswith(delimiters.THINK_OPENER, offset):
            self._step = self._scan_thinking
            return offset, False
        return (offset, True) if delimiters.may_be_tag(text, offset) else None

    def _skip_indented(self, opening: Opening, offset: int) -> tuple[int, bool]:
        """Skip a tag that begins an indented code block. Return the next offset, and False.

        The lines up to the next blank line then count as quoted, even if they are not indented.
        """
        self._classifier.add_text(opening.text)
        self._quoting.quoted = True
        return offset + len(opening.text), False

    def _scan_fence(self, text: str, offset: int) -> tuple[int, bool] | None:
        """Parse the start of a fence, which may contain a call. Return None for other text.

        Otherwise return the next offset, and whether more text is needed.
        """
        opening = delimiters.fence_at(text, offset)
        if opening is None:
            return (offset, True) if delimiters.may_be_fence(text, offset) else None
        if opening.json and not self._quoting.quoted:
            return self._try_candidate(opening, offset)
        self._classifier.add_text(opening.text)
        self._fence, self._step = opening.closer, self._scan_in_fence
        return offset + len(opening.text), False

    def _scan_in_fence(self, text: str, offset: int) -> tuple[int, bool]:
        """Skip an example, up to the end of its fence.

        Return the next offset, and whether more text is needed.
        """
        end = delimiters.fence_end(text, offset, self._fence)
        closed = end >= 0
        stop_offset = end if closed else delimiters.may_be_fence_end(text, offset)
        self._classifier.add_text(text[offset:stop_offset])
        if closed:
            self._step = self._scan_text
        return stop_offset, not closed

    def _scan_thinking(self, text: str, offset: int) -> tuple[int, bool]:
        """Skip thinking, which some servers leave in the text. It contains no calls.

        Return the next offset, and whether more text is needed.
        """
        end = delimiters.find_or_begin(text, offset, delimiters.THINK_CLOSER)
        closed = text.startswith(delimiters.THINK_CLOSER, end)
        if closed:
            end += len(delimiters.THINK_CLOSER)
            self._step = self._scan_text
        self._classifier.add_thinking(text[offset:end])
        return end, not closed

    def _scan_made_up_result(self, text: str, offset: int) -> tuple[int, bool]:
        """Hold back all text after a result that the model made up.

        Return the next offset, and whether more text is needed.
        """
        self._classifier.hold(text[offset:])
        return len(text), True

    def _try_candidate(self, opening: Opening | None, offset: int) -> tuple[int, bool]:
        """Begin a candidate: text after the tag or fence `opening`, or bare JSON if that is
        None.

        Return the next offset, and whether more text is needed.
        """
        self._candidate = Candidate(self._tools, unknown_tools=not self._native)
        self._step = self._scan_candidate
        self._begins_line = self._quoting.at_line_start
        return self._candidate.open(opening, offset) if opening else (offset, False)

    def _scan_candidate(self, text: str, offset: int) -> tuple[int, bool]:
        """Continue the candidate. When it ends, pass it to the classifier."""
        offset, needs_more = self._candidate.feed(text, offset)
        if self._candidate.state == "open":
            return offset, needs_more
        was_bare_call = self._candidate.state == "call" and not self._candidate.sure
        self._end_candidate()
        if was_bare_call and text.startswith("{", offset):  # another call on the same line
            return self._try_candidate(opening=None, offset=offset)
        return offset, False

    def _end_candidate(self) -> None:
        """Pass the candidate to the classifier, and choose how the text after it is parsed."""
        candidate = self._candidate
        self._step = self._scan_text
        self._classifier.add(candidate, begins_line=self._begins_line)
        if candidate.state == "text" and candidate.fence:
            # It is an example in a code block, whose end has not been reached.
            self._fence = candidate.fence.closer
            self._step = self._scan_in_fence
        if candidate.open_json:
            # The rest of the JSON comes first, and then the step that was chosen above.
            self._json_scan = candidate.scan
            self._step_after_json = self._step
            self._step = self._scan_json

    def _scan_json(self, text: str, offset: int) -> tuple[int, bool]:
        """Skip JSON that is not a call, because it contains no calls either.

        Return the next offset, and False: a part of the JSON can be skipped before the rest arrives.
        """
        end = self._json_scan.feed(text, offset)
        self._classifier.add_text(text[offset:end])
        if self._json_scan.state != "open":
            self._step = self._step_after_json
        return end, False


class _HeldCall(Struct):
    """Calls that are held back. If they are not made, their text is passed on."""

    text: list[str]
    calls: tuple[ParsedCall, ...]
    in_place: bool  # the call is made, if no text follows
    is_reported: bool  # the reason is reported to the model, if text follows


class CallClassifier:
    """Decides whether the calls of a response are made: either all of them, or none.

    A call is made if it begins its line, only calls and white space follow it, and it is

    - in a tag or a fence for calls. It may then be of an unknown tool or have broken arguments,
      which its result reports;
    - or bare: JSON of an offered tool, in the exact form of a call;
    - or in another fence (```json), with which the response begins.

    All other calls are text. The model gets the reason (`QUOTED_REASON`, `BROKEN_OFF_REASON`)
    unless the response clearly shows an example: a quote, code, a bare call between sentences.
    Quoted text is never passed to this class, nor is JSON inside other JSON.
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
        """The calls that are certainly not made, and then those that are held back."""
        return (
            *self._unmade,
            *(call for held_call in self._held for call in held_call.calls),
        )

    def add_text(self, text: str) -> None:
        """Add text that is not a call. Unless it is blank, held-back calls become text."""
        self.quoting.feed(text)
        if not text.strip():
            if self._held:
                self.hold(text)
            elif text:
                self._out.append(text)
            return
        reported = [held_call for held_call in self._held if held_call.is_reported]
        self._release(report=reported)
        self.has_text = True
        self._out.append(text)

    def add_thinking(self, text: str) -> None:
        self._out.append(text)

    def hold(self, text: str) -> None:
        """Hold back text that follows a call. It is passed on together with that call."""
        self._held[-1].text.append(text)

    def add(self, candidate: Candidate, *, begins_line: bool) -> None:
        """Add a finished candidate: hold back its calls, or pass it on as text."""
        # After text, a fence that is not marked as a call shows an example.
        opening = candidate.first
        is_in_plain_fence = opening is not None and opening.fence and not opening.says_call
        in_example_fence = self.has_text and is_in_plain_fence
        in_place = begins_line and not in_example_fence
        if candidate.state == "call" and not self._is_example(candidate, in_example_fence):
            may_be_bare = not self.has_text and not _is_unknown(candidate)
            is_reported = in_place and (candidate.sure or may_be_bare)
            held_call = _HeldCall(
                [candidate.text],
                candidate.calls,
                in_place=in_place,
                is_reported=is_reported,
            )
            self._held.append(held_call)
            self.add_text(candidate.rest)
            return
        self.add_text(candidate.text)
        if candidate.state == "half" and in_place:
            self._unmade.append(
                to_unmade_call(candidate.unfinished_call(), BROKEN_OFF_REASON)
            )

    def close(self) -> None:
        """Decide, at the end of the response, whether all its calls are made or none."""
        if self._unmade or not all(held_call.in_place for held_call in self._held):
            self._release(report=self._held)

    def drop_calls(self) -> None:
        self._unmade.clear()
        self._release(report=())

    def take_text(self) -> Iterator[Delta]:
        """Yield the text that is not held back."""
        text = "".join(self._out)
        self._out = []
        if text:
            yield TextDelta(text)

    def call_deltas(self, first: int) -> Iterator[Delta]:
        """Yield the calls, numbered from `first` on. A call that is not made has a reason."""
        for index, call in enumerate(self.calls, first):
            if call.why:
                why = Raw(msgspec.json.encode(call.why))
                yield CallDelta(index, name=call.name, wire=TEXT_WIRE, data=why)
            else:
                yield CallDelta(index, name=call.name)
            yield CallDelta(index, call.arguments)

    def _release(self, report: Sequence[_HeldCall]) -> None:
        """Pass on all held-back calls as text. Those in `report` are reported to the model."""
        self._unmade += [
            to_unmade_call(call, QUOTED_REASON)
            for held_call in report
            for call in held_call.calls
        ]
        for held_call in self._held:
            self._out += held_call.text
        self._held.clear()

    def _is_example(self, candidate: Candidate, in_fence: bool) -> bool:
        """Whether a candidate is only an example.

        The call in our prompt is an example. After text, so is a call of an unknown tool, or a
        tag in a plain fence.
        """
        if any(map(is_example, candidate.calls)):
            return True
        is_tagged_in_fence = candidate.tagged and in_fence
        return self.has_text and (is_tagged_in_fence or _is_unknown(candidate))


def _is_unknown(candidate: Candidate) -> bool:
    """Whether a candidate has a call without a tag whose tool is unknown."""
    return any(call.unknown_tool for call in candidate.calls)
