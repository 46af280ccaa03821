"""An answer of a model that was offered tools: is all of it calls, written as words?"""

from collections.abc import Iterator

from msgspec.structs import replace

from refold.provider.port import CallDelta, Delta, Done, Request, Retrying, TextDelta
from refold.provider.text_protocol.heard import Reading
from refold.provider.text_protocol.shapes import fits


class Watching:
    """Passes the answer on, and holds back only what may be such a call.

    `notice` is told where it was one: `found`.
    """

    def __init__(self, request: Request, notice: str) -> None:
        self._request, self._notice = request, notice
        self._reading = Reading(request.tools, bytes(request.schema), wary=True)
        self._passes = not request.tools or request.tool_choice == "none"
        self.found = False

    def add(self, delta: Delta) -> Iterator[Delta]:
        if self._passes:
            yield delta
            return
        match delta:
            case TextDelta(text):
                yield from self._reading.feed(text)
                if self._reading.said:
                    yield from self._reading.end(calls=False)
                    self._passes = True
            case CallDelta():
                yield from self._reading.end(calls=False)
                self._passes = True  # it can do it its own way
                yield delta
            case Done():
                yield from self._ended(delta)
            case _:
                yield delta

    def _ended(self, done: Done) -> Iterator[Delta]:
        tools = {tool.name: tool for tool in self._request.tools}
        if done.stop in ("end", "calls"):
            self._reading.close()
            calls = self._reading.calls
            fit = all(fits(call, tools) for call in calls)
            self.found = bool(calls) and fit and not self._reading.said
        if self.found:
            yield Retrying(0.0, self._notice)
            done = replace(done, stop="calls")
        yield from self._reading.end(calls=self.found)
        yield done
