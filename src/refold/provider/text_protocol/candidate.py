"""Parses a part of a response that may be a tool call, from its opening to its end.

A candidate consumes text until it is clear whether the text is one or several calls, or plain
text. It stores everything that it has consumed, so that plain text loses nothing. `parse` finds
the opening and handles the result.
"""

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from refold.provider.text_protocol import delimiters
from refold.provider.text_protocol.call_formats import (
    ParsedCall,
    Scan,
    Tools,
    arguments_in,
    broken_call,
    call_with,
    calls_in,
    may_be_call,
)
from refold.provider.text_protocol.delimiters import Opening

# Parses from a position on. Returns the position reached, and whether more text is needed.
Step: TypeAlias = Callable[[str, int], tuple[int, bool]]
_Find: TypeAlias = Callable[[str, int], Opening | None]
_MayBeginAt: TypeAlias = Callable[[str, int], bool]

_BLANK_PATTERN = re.compile(r"\s*")
_SEPARATOR_PATTERN = re.compile(r"[\s,;]*")
# an extra bracket is a common mistake
_TAGGED_SEPARATOR_PATTERN = re.compile(r"[\s,;}\]]*")
_PARAMETER_PATTERN = re.compile(
    r"\s*<parameter=[\"']?([\w.-]+)[\"']?>\n?(.*?)\n?</parameter>", re.DOTALL
)
_MAX_HEAD_CHARS = 120  # the beginning of JSON that is examined
_MAX_TAIL_PIECES = 64  # the number of pieces that are searched for the end of an argument


class Candidate:
    """A part of a response that may be a call. `sure` says that a tag or fence marks it.

    `unknown_tools` says whether a tool that was not offered may be called. `calls` may have
    broken arguments. The state is "half" if it was certainly a call but the response ended
    inside it. Methods that parse return the next offset, and whether they need more text.
    """

    def __init__(self, tools: Tools, *, unknown_tools: bool) -> None:
        self.state: Literal["open", "call", "half", "text"] = "open"
        self.sure = self.tagged = False
        self.first: Opening | None = None  # the outermost delimiter
        self.fence: Opening | None = None  # the fence around it or inside it
        self.calls: tuple[ParsedCall, ...] = ()
        self.scan = Scan()
        self.open_json = False  # it is plain text, and the JSON in `scan` has not ended
        self.rest = ""  # text after a broken call, consumed with it
        self._tools = tools
        self._open: list[Opening] = []
        self._taken: list[str] = []
        self._body: list[str] = []  # pieces of the part that is being parsed
        self._head = _Head(tools, unknown_tools)
        self._step: Step = self._scan_json

    @property
    def text(self) -> str:
        """The text that was consumed so far, unchanged."""
        return "".join(self._taken + self._body)

    @property
    def whole(self) -> bool:
        """Whether a call is complete, even if its tag or fence is not closed."""
        return self._step == self._scan_after_call

    def feed(self, text: str, offset: int) -> tuple[int, bool]:
        return self._step(text, offset)

    def open(self, opening: Opening, offset: int) -> tuple[int, bool]:
        """Begin a tag or fence in which a call may follow.

        Return the offset after the opening, and False: no more text is needed.
        """
        is_outermost = not self._open
        self.sure = self.sure or (is_outermost and opening.says_call)
        self.first = self.first or opening
        if opening.fence:
            self.fence = opening
        else:
            self.tagged = True
        self._open.append(opening)
        self._taken.append(opening.text)
        self._step = self._scan_opening
        return offset + len(opening.text), False

    def end(self) -> None:
        """Set the final state, because the response ends here and was not cut off."""
        if self._step == self._scan_json and self.sure:
            self._handle_broken_json()
        if self.whole:
            self.state = "call"
        else:
            self.state = "half" if self.sure else "text"

    def unfinished_call(self) -> ParsedCall:
        """Return the unfinished call with the parts that have arrived."""
        return broken_call(self.text) or ParsedCall(
            _tool_name(self._open) or "unnamed", self.text
        )

    def _scan_opening(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse the text between an opening and the JSON.

        Return the next offset, and whether more text is needed.
        """
        start = _end_of_match(_BLANK_PATTERN, text, offset)
        self._taken.append(text[offset:start])
        if start == len(text):
            return start, True
        within = self._open[-1]
        match text[start]:
            case "{" | "[":
                self._step = self._scan_json
                return start, False
            case "`" if not self.fence:
                return self._open_with(
                    delimiters.fence_at, delimiters.may_be_fence, text, start
                )
            case "<" if within.name:
                self._step = self._parse_parameters
                return start, False
            case "<":
                return self._open_with(
                    delimiters.tag_at, delimiters.may_be_tag, text, start
                )
            case _ if within.text == delimiters.MISTRAL_OPENER:
                return self._parse_bare_name(text, start)
            case _:
                self.state = "text"
        return start, False

    def _open_with(
        self, find: _Find, may_begin: _MayBeginAt, text: str, offset: int
    ) -> tuple[int, bool]:
        """Begin the tag or fence at the offset. If there is none, this is not a call.

        Return the next offset, and whether more text is needed.
        """
        if opening := find(text, offset):
            return self.open(opening, offset)
        if may_begin(text, offset):
            return offset, True
        self.state = "text"
        return offset, False

    def _parse_bare_name(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse Mistral's format: a tool's name directly followed by its arguments.

        Return the next offset, and whether more text is needed.
        """
        if match := delimiters.bare_name_at(text, offset):
            self._open[-1] = Opening(delimiters.MISTRAL_OPENER, name=match[1])
            self._taken.append(match[0])
            return match.end(), False
        if delimiters.may_be_bare_name(text, offset):
            return offset, True
        self.state = "text"
        return offset, False

    def _scan_json(self, text: str, offset: int) -> tuple[int, bool]:
        """Consume JSON up to its end, or until it is clear that it is not a call.

        Return the next offset, and whether more text is needed.
        """
        end = self.scan.feed(text, offset)
        self._body.append(text[offset:end])
        if not (self.sure or self._head.may_be_call(text[offset:end])):
            self.state = "text"
            self.open_json = self.scan.state == "open"
        elif self.scan.state == "whole":
            calls = _calls(
                "".join(self._body), _tool_name(self._open), self._tools, sure=self.sure
            )
            self._finish(*calls)
        elif self.scan.state == "wrong":
            self._handle_broken_json()
        needs_more = self.state == "open" and self.scan.state == "open"
        return end, needs_more

    def _handle_broken_json(self) -> None:
        """Convert broken JSON to a call, whose result reports that; or treat it as plain text.

        Wrong JSON waits for its closing delimiter. At the end of the response, the JSON may be
        only unfinished; `end` then sets the final state.
        """
        body = "".join(self._body)
        closer = _closer(self._open) if self.sure else ""
        if not closer or closer not in body:
            self._step = self._scan_broken_tag
            waits_for_closer = closer and self.scan.state == "wrong"
            self.state = "open" if waits_for_closer else "text"
            return
        inner, _, rest = body.partition(closer)
        broken = broken_call(inner)
        self._finish(broken)
        if broken:
            self._taken[-1] = inner + closer  # `_finish` has stored the whole body there
            self.rest = rest
            self.state = "call"

    def _scan_broken_tag(self, text: str, offset: int) -> tuple[int, bool]:
        """Consume a tag with broken JSON, up to its closing tag.

        Return the next offset, and whether more text is needed.
        """
        end, closed = self._up_to_closer(text, offset)
        if closed:
            self._finish(broken_call("".join(self._body)))
        return end, not closed

    def _parse_parameters(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse Qwen Coder's format: a tag for each argument, with its text unchanged.

        Return the next offset, and whether more text is needed.
        """
        end, closed = self._up_to_closer(text, offset)
        if not closed:
            return end, True
        tail = "".join(self._body[-_MAX_TAIL_PIECES:])
        if not tail.rstrip().endswith("</parameter>"):
            closer = _closer(self._open)  # the delimiter was part of an argument
            self._body.append(closer)
            return end + len(closer), False
        body = "".join(self._body)
        self._finish(_with_parameters(body, self._open[-1].name, self._tools))
        return end, False

    def _up_to_closer(self, text: str, offset: int) -> tuple[int, bool]:
        """Consume text up to the closing tag. Return its end, and whether the tag follows."""
        closer = _closer(self._open)
        end = delimiters.find_or_begin(text, offset, closer)
        if end > offset:
            self._body.append(text[offset:end])
        return end, text.startswith(closer, end)

    def _finish(self, *parsed: ParsedCall | None) -> None:
        """Add the calls that were parsed. If there are none, the candidate is plain text."""
        calls = tuple(call for call in parsed if call)
        if not calls:
            self.state = "text"
            return
        self.calls += calls
        self._taken.append("".join(self._body))
        self._body.clear()
        self._step = self._scan_after_call

    def _scan_after_call(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse the text after a complete call: its closing delimiter, or another call.

        Return the next offset, and whether more text is needed.
        """
        is_in_tag = bool(self._open) and not self._open[-1].fence
        separator = _TAGGED_SEPARATOR_PATTERN if is_in_tag else _SEPARATOR_PATTERN
        start = _end_of_match(separator, text, offset)
        self._taken.append(text[offset:start])
        if start == len(text):
            return start, True
        if text[start] in "<[":
            if match := delimiters.closer_at(text, start):
                return self._close(match[0], start)
            if delimiters.may_be_closer(text, start):
                return start, True
        if not self._open:
            self.state = "call"
        elif text[start] == "{":  # another call
            self.scan = Scan()
            self._step = self._scan_json
        elif self._open[-1].fence:
            return self._scan_fence_end(text, start)
        else:  # the model has not closed its tag
            self._open.pop()
        return start, False

    def _close(self, mark: str, offset: int) -> tuple[int, bool]:
        """Consume the closing delimiter `mark`. Return the offset after it, and False.

        False means that no more text is needed.
        """
        if self._open and not self._open[-1].fence:
            self._open.pop()
        elif not self._open and mark in delimiters.CALL_CLOSERS:
            self.sure = True  # the server removed the opening token
        self._taken.append(mark)
        return offset + len(mark), False

    def _scan_fence_end(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse the text after a call in a fence: the end of the fence, or another tag.

        Return the next offset, and whether more text is needed.
        """
        closer = self._open[-1].closer
        if text.startswith(closer, offset):
            self._open.pop()
            self._taken.append(closer)
            return offset + len(closer), False
        if text[offset] == "`" and delimiters.may_be_fence(text, offset):
            return offset, True
        return self._open_with(delimiters.tag_at, delimiters.may_be_tag, text, offset)


def _tool_name(openings: list[Opening]) -> str:
    """Return the tool that the innermost tag or fence names, or ""."""
    return openings[-1].name if openings else ""


def _closer(openings: list[Opening]) -> str:
    """Return the text that closes the innermost tag, or "" if there is none."""
    closers = (opening.closer for opening in reversed(openings) if not opening.fence)
    return next(closers, "")


class _Head:
    """The beginning of a JSON text, which may show that the text is not a call."""

    def __init__(self, tools: Tools, unknown_tools: bool) -> None:
        self._tools, self._unknown_tools = tools, unknown_tools
        self._text = ""

    def may_be_call(self, piece: str) -> bool:
        """Add a piece of the JSON. Return False if the JSON can no longer be a call.

        Only the first `_MAX_HEAD_CHARS` characters are examined; a later piece returns True.
        """
        if len(self._text) >= _MAX_HEAD_CHARS:
            return True
        self._text += piece[: _MAX_HEAD_CHARS - len(self._text)]
        return may_be_call(self._text, self._tools, unknown_tools=self._unknown_tools)


def _calls(body: str, name: str, tools: Tools, *, sure: bool) -> tuple[ParsedCall, ...]:
    """Return the calls in a JSON text, or () if there are none.

    If `name`, the tool in the delimiter, is not "", the text has only its arguments. If `sure`,
    broken JSON becomes a call, too.
    """
    if name:
        return (ParsedCall(name, arguments_in(body)),)
    if calls := calls_in(body, tools, tagged=sure):
        return calls
    broken = broken_call(body) if sure else None
    return (broken,) if broken else ()


def _with_parameters(body: str, name: str, tools: Tools) -> ParsedCall | None:
    """Return a call with `<parameter=…>` tags as arguments, or None for other text."""
    arguments = dict[str, str]()
    end = 0
    while parameter := _PARAMETER_PATTERN.match(body, end):
        key, value = parameter.groups()
        arguments[key] = value
        end = parameter.end()
    has_other_text = bool(body[end:].strip())
    return None if has_other_text else call_with(name, arguments, tools)


def _end_of_match(pattern: re.Pattern[str], text: str, offset: int) -> int:
    match = pattern.match(text, offset)
    return match.end() if match else offset
