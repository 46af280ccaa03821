"""Recognizes thinking that a model writes into its text, between tags.

Local models are often served without a parser that separates thinking from text. Only tags at
the beginning of a response count, because a later tag is something that the model writes about.
`text_protocol` reads calls from a text, not thinking.
"""

from collections.abc import Iterable, Iterator

from refold.provider.port import Delta, Done, TextDelta, ThinkingDelta

_CLOSING_TAGS = {
    "<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>",
    "<reasoning>": "</reasoning>", "<seed:think>": "</seed:think>", "[THINK]": "[/THINK]",
    "<mm:think>": "</mm:think>",
    "◁think▷": "◁/think▷", "<|START_THINKING|>": "<|END_THINKING|>",
}  # fmt: skip


class ThinkTags:
    """Separates thinking from text in the deltas of one response."""

    def __init__(self) -> None:
        # Whether the rest is passed on, because it contains no thinking.
        self._passed = False
        self._held = ""  # the beginning of the text, or of a possible closing tag
        # The tag that ends the present thinking, or "" outside of thinking.
        self._closer = ""
        self._tagged = False  # whether a tag was found; white space after it is not text
        self._thought: list[str] = []  # the thinking so far

    def split(self, deltas: Iterable[Delta]) -> Iterator[Delta]:
        """Yield the next deltas of the response, with thinking separated from text."""
        for delta in deltas:
            if self._passed:
                yield delta
            else:
                yield from self._split(delta)

    def _split(self, delta: Delta) -> Iterator[Delta]:
        """Yield the deltas for a delta of the response, whose text may be thinking."""
        match delta:
            case TextDelta(text):
                self._held += text
                yield from self._scan_thinking() if self._closer else self._scan_beginning()
            case ThinkingDelta():
                yield delta
            case Done():
                yield from self._end(delta)
                yield delta
            case _:  # a call ends unclosed thinking
                yield from self._release()
                yield delta

    def _scan_beginning(self) -> Iterator[Delta]:
        """Decide whether the text at the beginning is thinking, and yield what is clear."""
        text = self._held.lstrip()
        for opener, closer in _CLOSING_TAGS.items():
            if text.startswith(closer):  # the opening tag was part of the prompt
                self._held = text[len(closer) :]
                self._tagged = True
                yield from self._scan_beginning()
                return
            if text.startswith(opener):
                self._held = text[len(opener) :]
                self._tagged = True
                self._closer = closer
                yield from self._scan_thinking()
                return
        tags = (*_CLOSING_TAGS, *_CLOSING_TAGS.values())
        may_become_tag = any(tag.startswith(text) for tag in tags)
        if not may_become_tag:
            yield from self._release()

    def _scan_thinking(self) -> Iterator[Delta]:
        """Yield the thinking that has arrived. After its closing tag, continue with text."""
        thought, closer, rest = self._held.partition(self._closer)
        if not closer:
            # The end of the text may be the beginning of the closing tag, so it is held back.
            end = len(thought) - _beginning_at_end(thought, self._closer)
            rest = thought[end:]
            thought = thought[:end]
        self._held = rest
        if thought:
            self._thought.append(thought)
            yield ThinkingDelta(thought)
        if closer:
            self._closer = ""
            yield from self._scan_beginning()

    def _release(self) -> Iterator[Delta]:
        """Yield what was held back, and pass on all later deltas unchanged."""
        self._passed = True
        if self._closer:
            yield from self._flush_thinking()
        else:
            text = self._held.lstrip() if self._tagged else self._held
            if text:
                yield TextDelta(text)
        self._held = ""

    def _flush_thinking(self) -> Iterator[Delta]:
        if self._held:
            self._thought.append(self._held)
            yield ThinkingDelta(self._held)

    def _end(self, done: Done) -> Iterator[Delta]:
        """Yield what was held back, at the end of the response.

        If the closing tag of the thinking is missing, the thinking is yielded again as text.
        """
        unclosed = bool(self._closer) and done.stop == "end"
        yield from self._release()
        if unclosed:
            yield TextDelta("".join(self._thought).strip())


def _beginning_at_end(text: str, tag: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
