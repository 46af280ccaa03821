"""What of an answer is words, and what of it is calls.

What is a call, and what only looks like one, because it was quoted:

* A call begins its line, and nothing but calls and blank space comes after it. It is
  in a tag (<tool_call>, <function=…>, [TOOL_CALLS], a ```tool_call fence …), even of a
  tool there is not, even with arguments that are no JSON: the answer to it will tell
  the model. Or it is bare, and then it must have the shape of a call, of a tool that
  was offered, with nothing beside it. Words may come before both.
* A fence of another kind (```json, ``` …) with calls in it is a call if the answer
  begins with it. Behind words it shows something.
* In a quote (>), in code (indented, `inline` or in a fence), and in JSON of another
  kind nothing is a call.
* Made or shown, nobody can say: a call with words after it, one behind words on its
  line, one in such a fence at the end of an answer, and a tag that the answer ends in.
  None of these is made, nor any other call of the answer. They stay words, and come
  out once more as calls that cannot be run, so that the model is told why.
* With words on both sides, within its line or without a tag, it is clearly shown, and
  so is a tag in a fence behind words: words, and nobody has to be told.
* An answer that fits the schema that was asked for is that, and no call.
* Once it has called, a model that goes on to write the result itself is making it
  up: from there on nothing is heard. Where words came first, those are words too.

Where to look for calls is `heard`'s business.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from refold.provider.port import CallDelta, Delta, TextDelta
from refold.provider.text_protocol.call_formats import WIRE, ParsedCall, is_example, unmade
from refold.provider.text_protocol.candidate import Candidate
from refold.provider.text_protocol.quoting import QuoteState

QUOTED = (
    "It was not made, nor any other call of that answer: with words after it, beside it "
    "on its line or before its fence, it may be only quoted. To make it, reply with the "
    "call and nothing else. To show a call, write `> ` before each of its lines."
)
BROKEN_OFF = (
    "It was not made, nor any other call of that answer: it breaks off before its end. "
    "Write it whole."
)


class _Held(Struct):
    """What was taken out of the words: `text` as it stood, `calls` as it was meant."""

    text: list[str]
    calls: tuple[ParsedCall, ...]
    placed: bool  # may it be made?
    plain: bool  # was it meant, so that its maker is told that words came after it?


class CallClassifier:
    """Words go out when they are said. Calls are held back: they may be words yet."""

    def __init__(self) -> None:
        self.margin = QuoteState()
        self.said = False  # anything but blanks, calls and thoughts
        self._out: list[str] = []
        self._held: list[_Held] = []
        self._unmade: list[ParsedCall] = []

    @property
    def holds(self) -> bool:
        return bool(self._held)

    @property
    def calls(self) -> tuple[ParsedCall, ...]:
        return (*self._unmade, *(call for held in self._held for call in held.calls))

    def say(self, words: str) -> None:
        self.margin.feed(words)
        if not words.strip():
            if self._held:
                self.withhold(words)  # if that is words, they go together
            elif words:
                self._out.append(words)
            return
        self._quote([held for held in self._held if held.plain])
        self.said = True
        self._out.append(words)

    def think(self, words: str) -> None:
        self._out.append(words)

    def withhold(self, words: str) -> None:
        """They follow a call. If that is words, so are they."""
        self._held[-1].text.append(words)

    def take(self, found: Candidate, *, begins: bool) -> None:
        """An attempt that is at its end. `begins`: did it begin its line?"""
        in_fence = self._shown_in_fence(found)
        if found.state == "call" and not self._is_shown(found):
            strange = any(call.strange for call in found.calls)
            placed = begins and not in_fence
            plain = placed and (found.sure or not (self.said or strange))
            self._held.append(_Held([found.text], found.calls, placed, plain))
            self.say(found.spare)
            return
        self.say(found.text)
        if found.state == "half" and begins and not in_fence:
            self._unmade.append(unmade(found.half(), BROKEN_OFF))

    def close(self) -> None:
        """The answer is at its proper end: all its calls are made, or none."""
        if self._unmade or not all(held.placed for held in self._held):
            self._quote(self._held)

    def only_words(self) -> None:
        self._unmade.clear()
        self._quote(())

    def told(self) -> Iterator[Delta]:
        """The words that can go out."""
        words, self._out = "".join(self._out), []
        if words:
            yield TextDelta(words)

    def called(self, first: int) -> Iterator[Delta]:
        for index, call in enumerate(self.calls, first):
            if call.why:
                why = Raw(msgspec.json.encode(call.why))
                yield CallDelta(index, name=call.name, wire=WIRE, data=why)
            else:
                yield CallDelta(index, name=call.name)
            yield CallDelta(index, call.arguments)

    def _quote(self, told: Sequence[_Held]) -> None:
        """What is held back was words after all. Whoever made those `told` hears why."""
        self._unmade += [unmade(call, QUOTED) for held in told for call in held.calls]
        for held in self._held:
            self._out += held.text
        self._held.clear()

    def _is_shown(self, found: Candidate) -> bool:
        """Is it the example we gave, or a call that is clearly one?"""
        strange = any(call.strange for call in found.calls)
        tag_in_fence = found.tagged and self._shown_in_fence(found)
        shown = self.said and (strange or tag_in_fence)
        return shown or any(map(is_example, found.calls))

    def _shown_in_fence(self, found: Candidate) -> bool:
        """Does it stand, behind words, in a fence that does not say that it is a call?"""
        first = found.first
        return bool(self.said and first and first.fence and not first.says_call)
