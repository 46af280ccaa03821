"""Parses a response with calls written as text, while it streams.

Text is passed on at once; where a call may begin, it is held back until that is clear.
Calls are passed on when the response is complete, whole and in order, and never from a
response that was cut off.

Pure: text in, deltas out. `candidate` recognizes one call, `classify` decides which are
made.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Raw

from refold.provider.port import Delta
from refold.provider.text_protocol import delimiters
from refold.provider.text_protocol.call_formats import ParsedCall, Scan
from refold.provider.text_protocol.candidate import Candidate, Step
from refold.provider.text_protocol.classify import CallClassifier
from refold.provider.text_protocol.delimiters import Opening
from refold.provider.text_protocol.quoting import BEGINNINGS
from refold.values.json_check import Schema
from refold.values.tools import ToolSpec

_SPOT = re.compile(f"[{re.escape(BEGINNINGS)}]")


class StreamParser:
    """Reads one answer. `wary`: of a model that has a way of its own to call.

    A wary reading believes in no call of a tool that there is not. `schema`: what
    was asked for.
    """

    def __init__(
        self, tools: Sequence[ToolSpec], schema: bytes = b"", *, wary: bool = False
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._wary = wary
        self._schema = Raw(schema or b"null")
        self._whole: list[str] = []  # all of the answer
        self._text = "\n"  # not yet read, behind the few last characters that were
        self._at = 1
        self._step: Step = self._words
        self._attempt = Candidate(self._tools, strange=not wary)
        self._begins = True  # did the attempt begin its line?
        self._skipped, self._after_json = Scan(), self._step
        self._fence = "```"
        self._classifier = CallClassifier()
        self._margin = self._classifier.margin

    @property
    def calls(self) -> tuple[ParsedCall, ...]:
        """The calls, once it is closed: all are made, or none is and each says why."""
        return self._classifier.calls

    @property
    def said(self) -> bool:
        """Is there anything but calls, blanks and thoughts?"""
        return self._classifier.said

    def feed(self, text: str) -> Iterator[Delta]:
        """The words in it that can go out."""
        self._whole.append(text)
        self._text += text
        more = False
        while self._at < len(self._text) and not more:
            self._at, more = self._step(self._text, self._at)
        keep = max(0, self._at - delimiters.LOOKBACK)
        self._text, self._at = self._text[keep:], self._at - keep
        return self._classifier.told()

    def close(self) -> None:
        """Nothing more comes, and it came to its proper end: `calls` are all there are."""
        if self._step == self._attempted:
            self._attempt.end()
            self._settle()
        self._say_rest()
        if self.calls and self._is_answer():
            self._classifier.only_words()
        else:
            self._classifier.close()

    def end(self, *, calls: bool = True, first: int = 0) -> Iterator[Delta]:
        """What is still to be told; calls are counted from `first` on.

        Without `calls`, what would have been some is words.
        """
        if not calls:
            self._classifier.only_words()
        self._say_rest()
        yield from self._classifier.told()
        if calls:
            yield from self._classifier.called(first)

    def _is_answer(self) -> bool:
        """Is it what was asked for? Then it is no call, however much it looks like one."""
        if bytes(self._schema) == b"null":
            return False
        try:
            return not Schema(self._schema).problem("".join(self._whole))
        except ValueError:
            return False

    def _say_rest(self) -> None:
        rest, self._text = self._text[self._at :], self._text[: self._at]
        if self._step == self._attempted:
            self._classifier.say(self._attempt.text)
            self._step = self._words
        if self._step != self._ignored:
            self._classifier.say(rest)

    def _words(self, text: str, at: int) -> tuple[int, bool]:
        spot = _SPOT.search(text, at)
        upto = spot.start() if spot else len(text)
        if upto > at:
            self._classifier.say(text[at:upto])
        return self._at_spot(text, upto) if spot else (upto, False)

    def _at_spot(self, text: str, at: int) -> tuple[int, bool]:
        found = None
        if self._margin.begins and text[at] in "`~":
            found = self._at_fence(text, at)
        elif self._margin.quoted:
            pass
        elif text[at] in "<[" and not text.endswith("`", 0, at):
            found = self._at_tag(text, at)
        if not found and text[at] in "{[" and self._margin.begins:
            found = None if self._margin.quoted else self._try(None, at)
        if not found:
            self._classifier.say(text[at])
        return found or (at + 1, False)

    def _at_tag(self, text: str, at: int) -> tuple[int, bool] | None:
        if found := delimiters.opening(text, at):
            return self._indented(found, at) or self._try(found, at)
        if (
            delimiters.result(text, at)
            and self._classifier.holds
            and not (self._wary or self.said)
        ):
            self._step = self._ignored
            return at, False
        if text.startswith(delimiters.THINKS, at) and not (
            self.said or self._classifier.holds
        ):
            self._step = self._thoughts
            return at, False
        return (at, True) if delimiters.opening_part(text, at) else None

    def _indented(self, found: Opening, at: int) -> tuple[int, bool] | None:
        """A tag in a block of code, and so is the rest, be it indented or not."""
        if not self._margin.indented:
            return None
        self._classifier.say(found.text)
        self._margin.quoted = True
        return at + len(found.text), False

    def _at_fence(self, text: str, at: int) -> tuple[int, bool] | None:
        if found := delimiters.fence(text, at):
            return self._fenced(found, at)
        return (at, True) if delimiters.fence_part(text, at) else None

    def _fenced(self, found: Opening, at: int) -> tuple[int, bool]:
        if found.json and not self._margin.quoted:
            return self._try(found, at)
        self._classifier.say(found.text)
        self._fence, self._step = found.closer, self._code
        return at + len(found.text), False

    def _code(self, text: str, at: int) -> tuple[int, bool]:
        """Whatever it is, it is an example, up to the end of its fence."""
        end = delimiters.fence_end(text, at, self._fence)
        closed = end >= 0
        upto = end if closed else delimiters.fence_end_part(text, at)
        self._classifier.say(text[at:upto])
        if closed:
            self._step = self._words
        return upto, not closed

    def _thoughts(self, text: str, at: int) -> tuple[int, bool]:
        """Some servers leave them in the words. What is thought is no call."""
        upto = delimiters.begun(text, at, delimiters.THOUGHT)
        closed = text.startswith(delimiters.THOUGHT, upto)
        if closed:
            upto += len(delimiters.THOUGHT)
            self._step = self._words
        self._classifier.think(text[at:upto])
        return upto, not closed

    def _ignored(self, text: str, at: int) -> tuple[int, bool]:
        self._classifier.withhold(text[at:])
        return len(text), True

    def _try(self, found: Opening | None, at: int) -> tuple[int, bool]:
        self._attempt = Candidate(self._tools, strange=not self._wary)
        self._step, self._begins = self._attempted, self._margin.begins
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
        self._step = self._words
        self._classifier.take(found, begins=self._begins)
        if found.state == "words" and found.fence:
            self._fence, self._step = found.fence.closer, self._code
        if found.goes_on:
            self._skipped, self._after_json = found.scan, self._step
            self._step = self._json

    def _json(self, text: str, at: int) -> tuple[int, bool]:
        """JSON that is no call: what is in it is no call either."""
        end = self._skipped.feed(text, at)
        self._classifier.say(text[at:end])
        if self._skipped.state != "open":
            self._step = self._after_json
        return end, False
