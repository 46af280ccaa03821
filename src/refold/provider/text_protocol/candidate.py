"""One stretch of a response that may be a tool call, from its opening to its end.

It consumes text until it is clearly one or several calls, or plain text. It keeps
everything that it has consumed, so that plain text loses nothing. `parse` finds the
opening and decides what happens to the result.
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

# Parses from a position on; returns how far it came and whether it needs more text.
Step: TypeAlias = Callable[[str, int], tuple[int, bool]]
_Find: TypeAlias = Callable[[str, int], Opening | None]
_Part: TypeAlias = Callable[[str, int], bool]

_BLANK_PATTERN = re.compile(r"\s*")
_SEPARATOR_PATTERN = re.compile(r"[\s,;]*")
_TAGGED_SEPARATOR_PATTERN = re.compile(r"[\s,;}\]]*")  # a bracket too many is a common slip
_PARAMETER_PATTERN = re.compile(
    r"\s*<parameter=[\"']?([\w.-]+)[\"']?>\n?(.*?)\n?</parameter>", re.DOTALL
)
_MAX_HEAD_CHARS = 120  # of JSON that are looked at
_MAX_TAIL_PIECES = 64  # pieces that are searched for the end of an argument


class Candidate:
    """`sure`: its tag or fence says that it is a call. `calls` may have broken arguments.

    `unknown_tools`: it may be of a tool that was not offered. The state is "half" if it was
    sure to be a call and the response ended inside.
    """

    def __init__(self, tools: Tools, *, unknown_tools: bool) -> None:
        self.state: Literal["open", "call", "half", "text"] = "open"
        self.sure = self.tagged = False
        self.first: Opening | None = None  # the outermost delimiter
        self.fence: Opening | None = None  # the fence around it or in it
        self.calls: tuple[ParsedCall, ...] = ()
        self.scan = Scan()
        self.open_json = False  # it is text, and the JSON in `scan` has not ended
        self.rest = ""  # text after a broken call, consumed with it
        self._tools = tools
        self._open: list[Opening] = []
        self._taken: list[str] = []
        self._body: list[str] = []  # of the part that is being parsed
        self._head = _Head(tools, unknown_tools)
        self._step: Step = self._json

    @property
    def text(self) -> str:
        """All that was consumed, unchanged."""
        return "".join(self._taken + self._body)

    @property
    def whole(self) -> bool:
        """Whether a call is complete. Many models do not close its delimiter."""
        return self._step == self._scan_after_call

    def feed(self, text: str, offset: int) -> tuple[int, bool]:
        return self._step(text, offset)

    def open(self, opening: Opening, offset: int) -> tuple[int, bool]:
        self.sure = self.sure or (opening.says_call and not self._open)
        self.first = self.first or opening
        self.tagged = self.tagged or not opening.fence
        self.fence = opening if opening.fence else self.fence
        self._open.append(opening)
        self._taken.append(opening.text)
        self._step = self._scan_opening
        return offset + len(opening.text), False

    def end(self) -> None:
        """End the candidate with the response, which was not cut off."""
        if self._step == self._json and self.sure:
            self._fail()
        broken_off = "half" if self.sure else "text"
        self.state = "call" if self.whole else broken_off

    def unfinished_call(self) -> ParsedCall:
        """The unfinished call, as far as it is known."""
        return broken_call(self.text) or ParsedCall(
            _tool_name(self._open) or "unnamed", self.text
        )

    def _scan_opening(self, text: str, offset: int) -> tuple[int, bool]:
        """Scan the text between an opening and the JSON."""
        start = _end_of_match(_BLANK_PATTERN, text, offset)
        self._taken.append(text[offset:start])
        if start == len(text):
            return start, True
        within = self._open[-1]
        match text[start]:
            case "{" | "[":
                self._step = self._json
                return start, False
            case "`" if not self.fence:
                return self._open_with(
                    delimiters.fence_at, delimiters.may_be_fence, text, start
                )
            case "<" if within.name:
                self._step = self._parameters
                return start, False
            case "<":
                return self._open_with(
                    delimiters.tag_at, delimiters.may_be_tag, text, start
                )
            case _ if within.text == delimiters.MISTRAL_OPENER:
                return self._name(text, start)
            case _:
                self.state = "text"
        return start, False

    def _open_with(
        self, find: _Find, part: _Part, text: str, offset: int
    ) -> tuple[int, bool]:
        if opening := find(text, offset):
            return self.open(opening, offset)
        if part(text, offset):
            return offset, True
        self.state = "text"
        return offset, False

    def _name(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse Mistral's format: a name directly followed by its arguments."""
        if named := delimiters.bare_name_at(text, offset):
            self._open[-1] = Opening(delimiters.MISTRAL_OPENER, name=named[1])
            self._taken.append(named[0])
            return named.end(), False
        if delimiters.may_be_bare_name(text, offset):
            return offset, True
        self.state = "text"
        return offset, False

    def _json(self, text: str, offset: int) -> tuple[int, bool]:
        end = self.scan.feed(text, offset)
        self._body.append(text[offset:end])
        if not (self.sure or self._head.may_be_call(text[offset:end])):
            self.state, self.open_json = "text", self.scan.state == "open"
        elif self.scan.state == "whole":
            name, body = _tool_name(self._open), "".join(self._body)
            self._finish(*_calls(body, name, self._tools, self.sure))
        elif self.scan.state == "wrong":
            self._fail()
        return end, self.state == self.scan.state == "open"

    def _fail(self) -> None:
        body, closer = "".join(self._body), _closer(self._open) if self.sure else ""
        inner, closed, rest = body.partition(closer or "\0")
        if not (closer and closed):  # its end may still come
            self._step = self._scan_broken_tag
            self.state = "open" if closer and self.scan.state == "wrong" else "text"
            return
        broken = broken_call(inner)
        self._finish(broken)
        if broken:
            self.rest, self._taken[-1] = rest, inner + closer
            self.state = "call"

    def _scan_broken_tag(self, text: str, offset: int) -> tuple[int, bool]:
        """Scan a tag with broken JSON: once it is closed, the model can be sent the reason."""
        end, closed = self._up_to_closer(text, offset)
        if closed:
            self._finish(broken_call("".join(self._body)))
        return end, not closed

    def _parameters(self, text: str, offset: int) -> tuple[int, bool]:
        """Parse Qwen Coder's format: a tag for each argument, with its text unchanged."""
        end, closed = self._up_to_closer(text, offset)
        if not closed:
            return end, True
        if not "".join(self._body[-_MAX_TAIL_PIECES:]).rstrip().endswith("</parameter>"):
            closer = _closer(self._open)  # it was part of an argument
            self._body.append(closer)
            return end + len(closer), False
        body = "".join(self._body)
        self._finish(_with_parameters(body, self._open[-1].name, self._tools))
        return end, False

    def _up_to_closer(self, text: str, offset: int) -> tuple[int, bool]:
        end = delimiters.find_or_begin(text, offset, _closer(self._open))
        if end > offset:
            self._body.append(text[offset:end])
        return end, text.startswith(_closer(self._open), end)

    def _finish(self, *candidates: ParsedCall | None) -> None:
        calls = tuple(call for call in candidates if call)
        if not calls:
            self.state = "text"
            return
        self.calls += calls
        self._taken.append("".join(self._body))
        self._body.clear()
        self._step = self._scan_after_call

    def _scan_after_call(self, text: str, offset: int) -> tuple[int, bool]:
        """Scan the text after a complete call: its closing delimiter, or another call."""
        tagged = bool(self._open) and not self._open[-1].fence
        start = _end_of_match(
            _TAGGED_SEPARATOR_PATTERN if tagged else _SEPARATOR_PATTERN, text, offset
        )
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
        elif text[start] == "{":
            self.scan, self._step = Scan(), self._json
        elif self._open[-1].fence:
            return self._scan_fence_end(text, start)
        else:
            self._open.pop()
        return start, False

    def _close(self, mark: str, offset: int) -> tuple[int, bool]:
        if self._open and not self._open[-1].fence:
            self._open.pop()
        elif not self._open and mark in delimiters.CALL_CLOSERS:
            self.sure = True  # the server removed its opening token
        self._taken.append(mark)
        return offset + len(mark), False

    def _scan_fence_end(self, text: str, offset: int) -> tuple[int, bool]:
        closer = self._open[-1].closer
        if text.startswith(closer, offset):
            self._open.pop()
            self._taken.append(closer)
            return offset + len(closer), False
        if text[offset] == "`" and delimiters.may_be_fence(text, offset):
            return offset, True
        return self._open_with(delimiters.tag_at, delimiters.may_be_tag, text, offset)


def _tool_name(openings: list[Opening]) -> str:
    return openings[-1].name if openings else ""


def _closer(openings: list[Opening]) -> str:
    return next((o.closer for o in reversed(openings) if not o.fence), "")


class _Head:
    """The beginning of JSON, which may show that it is not a call and need not be held
    back."""

    def __init__(self, tools: Tools, unknown_tools: bool) -> None:
        self._tools, self._unknown_tools = tools, unknown_tools
        self._text = ""

    def may_be_call(self, piece: str) -> bool:
        if len(self._text) >= _MAX_HEAD_CHARS:
            return True
        self._text += piece[: _MAX_HEAD_CHARS - len(self._text)]
        return may_be_call(self._text, self._tools, unknown_tools=self._unknown_tools)


def _calls(body: str, name: str, tools: Tools, sure: bool) -> tuple[ParsedCall, ...]:
    if name:
        return (ParsedCall(name, arguments_in(body)),)
    if calls := calls_in(body, tools, tagged=sure):
        return calls
    broken = broken_call(body) if sure else None
    return (broken,) if broken else ()


def _with_parameters(body: str, name: str, tools: Tools) -> ParsedCall | None:
    arguments, end = dict[str, str](), 0
    while parameter := _PARAMETER_PATTERN.match(body, end):
        arguments[parameter[1]], end = parameter[2], parameter.end()
    return None if body[end:].strip() else call_with(name, arguments, tools)


def _end_of_match(pattern: re.Pattern[str], text: str, offset: int) -> int:
    match = pattern.match(text, offset)
    return match.end() if match else offset
