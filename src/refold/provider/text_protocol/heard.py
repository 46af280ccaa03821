"""An answer of a model that writes its calls as text, read as it comes in.

Words go out at once; from where a call may begin, text is held back until it is
clear what it is. Calls go out when the answer has come to its proper end, whole
and in their order, and never from one that was cut off.

What is a call, and what only looks like one:

* In a tag (<tool_call>, <function=…>, [TOOL_CALLS], a ```tool_call fence …) it is
  a call wherever it stands, even of a tool there is not, even with arguments that
  are no JSON: the answer to it will tell the model. It only has to be whole. A tag
  in `quotes`, or in a fence of another language, is an example.
* Bare, or in a ```json fence, it must have the shape of a call, of a tool that was
  offered, with nothing beside it; and it must begin the answer or end it. With words
  before and after it, it is an example in an explanation, and stays words.
* Once it has called, a model that goes on to write the result itself is making it
  up: from there on nothing is heard.

Pure: text in, deltas out. What is within one call is `attempt`'s business.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from refold.provider.port import CallDelta, Delta, TextDelta
from refold.provider.text_protocol import marks
from refold.provider.text_protocol.attempt import Attempt, Step
from refold.provider.text_protocol.marks import Opening
from refold.provider.text_protocol.scan import Scan
from refold.provider.text_protocol.shapes import Call, answers
from refold.values.tools import ToolSpec

_SPOT = re.compile(r"[<\[{`]")


class _Held(Struct):
    """What was taken out of the words: `text` as it stood, `calls` as it was meant."""

    text: list[str]
    calls: tuple[Call, ...]
    sure: bool  # words that follow do not make an example of it


class Reading:
    """Reads one answer. `wary`: of a model that has a way of its own to call.

    A wary reading looks for a bare call only where the answer begins, of no tool
    that there is not, and believes in none that is not the last thing said. With a
    `schema`, what has its names is the answer that was asked for.
    """

    def __init__(
        self, tools: Sequence[ToolSpec], schema: bytes = b"", *, wary: bool = False
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._wary = wary
        self._schema: Any = msgspec.json.decode(schema or b"null")
        self._text = "\n"  # not yet read, behind the few last characters that were
        self._at = 1
        self._step: Step = self._words
        self._attempt = Attempt(self._tools, strange=not wary)
        self._skipped, self._after_json = Scan(), self._step
        self._out: list[str] = []
        self._held: list[_Held] = []
        self._said = False  # anything but blanks, calls and thoughts

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls so far, if nothing more should come."""
        return tuple(call for held in self._held for call in held.calls)

    @property
    def said(self) -> bool:
        return self._said

    def feed(self, text: str) -> Iterator[Delta]:
        """The words in it that can go out."""
        self._text += text
        more = False
        while self._at < len(self._text) and not more:
            self._at, more = self._step(self._text, self._at)
        keep = max(0, self._at - marks.LOOKBACK)
        self._text, self._at = self._text[keep:], self._at - keep
        return self._told()

    def close(self) -> None:
        """Nothing more comes, and it came to its proper end: `calls` are all there are."""
        if self._step == self._attempted:
            self._attempt.end()
            self._settle()
        self._say_rest()

    def end(self, *, calls: bool = True, first: int = 0) -> Iterator[Delta]:
        """What is still to be told; calls are counted from `first` on.

        Without `calls`, what would have been some is words.
        """
        if not calls:
            for held in self._held:
                self._out += held.text
            self._held.clear()
        self._say_rest()
        yield from self._told()
        for index, call in enumerate(self.calls, first):
            yield CallDelta(index, name=call.name)
            yield CallDelta(index, call.arguments)

    def _say_rest(self) -> None:
        rest, self._text = self._text[self._at :], self._text[: self._at]
        if self._step == self._attempted:
            self._say(self._attempt.text)
            self._step = self._words
        if self._step != self._ignored:
            self._say(rest)

    def _told(self) -> Iterator[Delta]:
        words, self._out = "".join(self._out), []
        if words:
            yield TextDelta(words)

    def _words(self, text: str, at: int) -> tuple[int, bool]:
        spot = _SPOT.search(text, at)
        upto = spot.start() if spot else len(text)
        if upto > at:
            self._say(text[at:upto])
        return self._at_spot(text, upto) if spot else (upto, False)

    def _at_spot(self, text: str, at: int) -> tuple[int, bool]:
        found = None
        if text[at] in "<[" and not text.endswith("`", 0, at):
            found = self._at_tag(text, at)
        if not found and marks.begins_line(text, at):
            found = self._at_line(text, at)
        if not found:
            self._say(text[at])
        return found or (at + 1, False)

    def _at_tag(self, text: str, at: int) -> tuple[int, bool] | None:
        if found := marks.opening(text, at):
            return self._try(found, at)
        if marks.result(text, at) and self._held and not self._wary:
            self._step = self._ignored
            return at, False
        if text.startswith(marks.THINKS, at) and not (self._said or self._held):
            self._step = self._thoughts
            return at, False
        return (at, True) if marks.opening_part(text, at) else None

    def _at_line(self, text: str, at: int) -> tuple[int, bool] | None:
        if text[at] in "{[" and not (self._wary and self._said):
            return self._try(None, at)
        if found := marks.fence(text, at):
            return self._fenced(found, at)
        return (at, True) if marks.fence_part(text, at) else None

    def _fenced(self, found: Opening, at: int) -> tuple[int, bool]:
        if found.json and not (self._wary and self._said):
            return self._try(found, at)
        self._say(found.text)
        self._step = self._code
        return at + len(found.text), False

    def _code(self, text: str, at: int) -> tuple[int, bool]:
        """Whatever it is, it is an example, up to the end of its fence."""
        if found := marks.fence_end(text, at):
            self._say(text[at : found.end()])
            self._step = self._words
            return found.end(), False
        part = marks.fence_end_part(text, at)
        upto = part.start() if part else len(text)
        self._say(text[at:upto])
        return upto, True

    def _thoughts(self, text: str, at: int) -> tuple[int, bool]:
        """Some servers leave them in the words. What is thought is no call."""
        upto = marks.begun(text, at, marks.THOUGHT)
        closed = text.startswith(marks.THOUGHT, upto)
        if closed:
            upto += len(marks.THOUGHT)
            self._step = self._words
        self._out.append(text[at:upto])
        return upto, not closed

    def _ignored(self, text: str, at: int) -> tuple[int, bool]:
        return len(text), True

    def _try(self, found: Opening | None, at: int) -> tuple[int, bool]:
        self._attempt = Attempt(self._tools, strange=not self._wary)
        self._step = self._attempted
        return self._attempt.open(found, at) if found else (at, False)

    def _attempted(self, text: str, at: int) -> tuple[int, bool]:
        at, more = self._attempt.feed(text, at)
        if self._attempt.state == "open":
            return at, more
        bare = self._attempt.state == "call" and not self._attempt.sure
        self._settle()
        if bare and text.startswith("{", at):  # another one on the same line
            return self._try(None, at)
        return at, False

    def _settle(self) -> None:
        """It is clear what it was."""
        found = self._attempt
        strange = any(call.strange for call in found.calls)
        if found.state == "call" and not found.sure and answers(found.text, self._schema):
            self._step = self._words
            self._say(found.text)
            return
        if found.state == "call" and not (strange and self._said):
            sure = found.sure or not (self._said or strange)
            sure = sure and not self._wary
            self._held.append(_Held([found.text], found.calls, sure))
            self._step = self._words
            self._say(found.spare)
            return
        self._say(found.text)
        self._step = self._code if found.fenced else self._words
        if found.goes_on:
            self._skipped, self._after_json = found.scan, self._step
            self._step = self._json

    def _json(self, text: str, at: int) -> tuple[int, bool]:
        """JSON that is no call: what is in it is no call either."""
        end = self._skipped.feed(text, at)
        self._say(text[at:end])
        if self._skipped.state != "open":
            self._step = self._after_json
        return end, False

    def _say(self, words: str) -> None:
        last = self._held[-1] if self._held else None
        if not words.strip():
            if last and not last.sure:
                last.text.append(words)  # if that turns out to be words, they go together
            elif words:
                self._out.append(words)
            return
        for held in self._held:
            if not held.sure:
                self._out += held.text
        self._held = [held for held in self._held if held.sure]
        self._said = True
        self._out.append(words)
