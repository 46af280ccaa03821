"""Does a response consist of calls written as text, although native tools were offered?

Most responses show with their first word that they do not. The parser, with all its
patterns, is loaded only for the others.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from refold.provider.port import CallDelta, Delta, Done, Request, Retrying, TextDelta
from refold.provider.text_protocol.quoting import BEGINNINGS

if TYPE_CHECKING:
    from refold.provider.text_protocol.parse import StreamParser


class Watching:
    """Passes the answer on, and holds back only what may be such a call.

    `notice` is told where it was one: `found`.
    """

    def __init__(self, request: Request, notice: str) -> None:
        self._request, self._notice = request, notice
        self._reading: StreamParser | None = None
        self._passes = not request.tools or request.tool_choice == "none"
        self.found = False

    def add(self, delta: Delta) -> Iterator[Delta]:
        if self._passes:
            yield delta
            return
        match delta:
            case TextDelta(text):
                yield from self._heard(text)
            case CallDelta():
                yield from self._passed()  # it can do it its own way
                yield delta
            case Done() if self._reading is not None:
                yield from self._ended(delta, self._reading)
            case _:
                yield delta

    def _heard(self, text: str) -> Iterator[Delta]:
        first = text.lstrip()[:1]
        if self._reading is None and first and first not in BEGINNINGS:
            self._passes = True
            yield TextDelta(text)
            return
        self._reading = reading = self._reading or self._new()
        yield from reading.feed(text)
        if reading.said:
            yield from self._passed()

    def _passed(self) -> Iterator[Delta]:
        """Nothing is held back any more."""
        self._passes = True
        if self._reading is not None:
            yield from self._reading.end(calls=False)

    def _ended(self, done: Done, reading: "StreamParser") -> Iterator[Delta]:
        from refold.provider.text_protocol.call_formats import fits

        tools = {tool.name: tool for tool in self._request.tools}
        if done.stop in ("end", "calls"):
            reading.close()
            calls = reading.calls
            fit = all(fits(call, tools) for call in calls)
            self.found = bool(calls) and fit and not reading.said
        if self.found:
            yield Retrying(0.0, self._notice)
            done = replace(done, stop="calls")
        yield from reading.end(calls=self.found)
        yield done

    def _new(self) -> "StreamParser":
        from refold.provider.text_protocol.parse import StreamParser

        return StreamParser(self._request.tools, bytes(self._request.schema), wary=True)
