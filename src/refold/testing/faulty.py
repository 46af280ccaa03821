"""A provider that fails where you say: after the n-th delta of an answer.

    FaultyProvider("a long answer", fault=Overloaded("busy"), after=3)

It breaks the promises a provider makes, one at a time, so that whatever stands
above can be shown to hold all the same.
"""

from collections.abc import AsyncGenerator
from typing import Literal, TypeAlias

import anyio

from refold.errors import ProviderError
from refold.provider.port import CallDelta, Delta, Request
from refold.testing.scripted import Line, Reply, as_reply, deltas

# "silence": no Done, no error. "hang": never goes on. "same ids": every call comes
# under one id. "garbled": arguments break off in the middle, and still it ends well.
Fault: TypeAlias = ProviderError | Literal["silence", "hang", "same ids", "garbled"]


class FaultyProvider:
    """Says `line` to the first `times` requests with the fault, to later ones without."""

    def __init__(self, line: Line, *, fault: Fault, after: int = 0, times: int = 1) -> None:
        if isinstance(line, ProviderError):
            raise TypeError("the line is what it says; give the error as `fault`")
        self._reply = as_reply(line)
        self._fault, self._after, self._times = fault, after, times
        self.heard: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.heard.append(request)
        faulty = len(self.heard) <= self._times
        reply = self._reply
        if faulty and self._fault == "garbled":
            cut = tuple((name, arguments[:-1]) for name, arguments in reply.calls)
            reply = Reply(reply.text, cut, reply.thinking, reply.stop, reply.usage)
        said = deltas(reply, len(self.heard) - 1)
        for n, delta in enumerate(said):
            await anyio.lowlevel.checkpoint()
            if faulty and n == self._after:
                if isinstance(self._fault, ProviderError):
                    raise self._fault
                if self._fault == "silence":
                    return
                if self._fault == "hang":
                    await anyio.sleep_forever()
            yield _renamed(delta) if faulty and self._fault == "same ids" else delta


def _renamed(delta: Delta) -> Delta:
    match delta:
        case CallDelta(index, arguments, id_, name) if id_:
            return CallDelta(index, arguments, "theirs", name)
        case _:
            return delta
