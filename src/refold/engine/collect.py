"""The whole response to a request outside of the conversation: a summary, a leaf, a title.

`budget` reserves and settles such calls in the conversation's journal, `rlm.leaves` those of
code. A response of the conversation is an `answer_draft`.
"""

from collections.abc import Callable
from contextlib import aclosing

from msgspec import Struct

from refold.engine.answer_draft import (
    ENDLESS_RESPONSE,
    MAX_EMPTY_RESPONSES,
    MAX_RESPONSE_CHARS,
)
from refold.engine.call_cost import Charge, MeasuredCall, add_charges, charge
from refold.engine.world import Model
from refold.errors import ProviderError
from refold.provider.port import (
    Delta,
    Done,
    Dropped,
    Request,
    RequestSent,
    ResponseBytes,
    Retrying,
    TextDelta,
    ThinkingDelta,
)


class CollectedResponse(Struct, frozen=True):
    """`paid` includes responses that were dropped on the way to this one."""

    text: str
    done: Done
    paid: Charge


class Collector:
    """Asks `aide`. `wait` is called with the seconds of each wait for a busy provider."""

    def __init__(
        self, aide: Model, wait: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._aide, self._wait = aide, wait
        self._pieces: list[str] = []
        self._size = 0
        # For everything so far, even if there is no response.
        self.paid: Charge | None = None

    async def collect(self, request: Request) -> CollectedResponse:
        """The response; after an empty one the model is asked again. Raises `ProviderError`."""
        for _ in range(MAX_EMPTY_RESPONSES):
            response = await self._ask(request)
            if response.text.strip() or response.done.stop in ("length", "refused"):
                return response
        return await self._ask(request)

    async def _ask(self, request: Request) -> CollectedResponse:
        self._reset()
        try:
            async with aclosing(self._aide.provider.stream(request)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Done):
                        paid = self._add_charge(request, delta)
                        return CollectedResponse("".join(self._pieces), delta, paid)
                    self._add(delta, request)
        except ProviderError:
            if self._size:
                self._add_charge(request, Done())
            raise
        raise ProviderError("the response was cut off")

    def _reset(self) -> None:
        self._pieces, self._size = [], 0

    def _add(self, delta: Delta, request: Request) -> None:
        match delta:
            case TextDelta(text):
                self._pieces.append(text)
                self._size += len(text)
            case ThinkingDelta(text):
                self._size += len(text)
            case Retrying(seconds):
                self._wait(seconds)
            case Dropped():
                self._add_charge(request, Done())
                self._reset()
            case RequestSent() | ResponseBytes() if self._aide.trace is not None:
                self._aide.trace.add_delta(delta)
            case _:
                pass
        if self._size > MAX_RESPONSE_CHARS:
            raise ProviderError(ENDLESS_RESPONSE)

    def _add_charge(self, request: Request, done: Done) -> Charge:
        aide = self._aide
        call = MeasuredCall(
            request_size(request), self._size, len(request.pictures), request.max_output
        )
        paid = charge(done, call, aide.name, aide.price)
        self.paid = paid if self.paid is None else add_charges(self.paid, paid)
        return self.paid


def request_size(request: Request) -> int:
    """The size of a request in characters."""
    return sum(len(s.message.text) for s in request.messages) + len(request.system)
