"""A provider with several scripts, one for each talk: for sessions that have children.

Which script answers is told by the words that a talk began with, which line of it by how
far the talk is. So whoever asks again, in whatever order and after whatever crash, hears
the same; and a test sees which talks there were, and how often each was asked.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence

import anyio

from refold.errors import ProviderError
from refold.provider.port import Delta, Request
from refold.testing.scripted import Line, as_reply, deltas
from refold.values.messages import Text


class Cast:
    """`scripts` are lines by the beginning of what is said first.

    `asked` counts the requests of each talk; `holding` are beginnings of talks that get
    no answer until they are taken out of it.
    """

    def __init__(self, scripts: Mapping[str, Sequence[Line]]) -> None:
        self._scripts = scripts
        self.heard: list[Request] = []
        self.asked: dict[str, int] = {}
        self.holding: set[str] = set()
        self.waits = anyio.Event()  # somebody waits who is held

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.heard.append(request)
        name = self._name(first_words(request))
        self.asked[name] = self.asked.get(name, 0) + 1
        while name in self.holding:
            self.waits.set()
            await anyio.sleep(0.005)
        at, lines = place(request), self._scripts[name]
        if at >= len(lines):
            raise ProviderError(f"the script {name!r} has only {len(lines)} lines")
        line = lines[at]
        if isinstance(line, ProviderError):
            raise line
        for delta in deltas(as_reply(line), at):
            await anyio.lowlevel.checkpoint()
            yield delta

    def of(self, name: str) -> list[Request]:
        """The requests of this talk."""
        return [each for each in self.heard if self._name(first_words(each)) == name]

    def _name(self, words: str) -> str:
        found = [name for name in self._scripts if words.startswith(name)]
        if not found:
            raise ProviderError(f"no script begins as {words[:80]!r} does")
        return max(found, key=len)


def first_words(request: Request) -> str:
    """What was said first in the talk that this request is of."""
    messages = request.messages
    parts = messages[0].message.parts if messages else ()
    return next((part.text for part in parts if isinstance(part, Text)), "")


def place(request: Request) -> int:
    """How many answers the talk holds already."""
    return sum(each.message.role == "assistant" for each in request.messages)
