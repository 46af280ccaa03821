"""Collects the whole response to a request outside of the conversation, such as for a summary
or a title.

The cost of these requests is recorded in the conversation's journal: by `budget`, and by
`rlm.leaf_calls` for requests of code. `answer_draft` collects the conversation's own responses.
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
    """A complete response.

    `paid` is the charge for this response and for the responses that were dropped before it.
    """

    text: str
    done: Done
    paid: Charge


class Collector:
    """Sends requests to `model`.

    `on_wait` is called with the seconds of each wait for a busy provider.
    """

    def __init__(
        self, model: Model, on_wait: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._model, self._on_wait = model, on_wait
        self._pieces: list[str] = []
        self._size = 0
        # The charge so far, even if no response was complete.
        self.paid: Charge | None = None

    async def collect(self, request: Request) -> CollectedResponse:
        """Return the complete response to `request`. Raises `ProviderError`.

        After an empty response, the request is sent again, but only `MAX_EMPTY_RESPONSES` times.
        The last response is returned even if it is empty.
        """
        for _ in range(MAX_EMPTY_RESPONSES):
            response = await self._ask(request)
            # These two explain an empty response, and a repetition would end the same way.
            if response.text.strip() or response.done.stop in ("length", "refused"):
                return response
        return await self._ask(request)

    async def _ask(self, request: Request) -> CollectedResponse:
        """Send the request once, and return its response. Charges are recorded even if it
        fails.
        """
        self._reset()
        try:
            async with aclosing(self._model.provider.stream(request)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Done):
                        paid = self._add_charge(request, delta)
                        return CollectedResponse("".join(self._pieces), delta, paid)
                    self._add(delta, request)
        except ProviderError:
            if self._size:  # the part that was received is billed, too
                self._add_charge(request, Done())
            raise
        raise ProviderError("the response was cut off")

    def _reset(self) -> None:
        self._pieces, self._size = [], 0

    def _add(self, delta: Delta, request: Request) -> None:
        """Add a delta. Raises `ProviderError` if the response is too large."""
        match delta:
            case TextDelta(text):
                self._pieces.append(text)
                self._size += len(text)
            case ThinkingDelta(text):
                self._size += len(text)
            case Retrying(seconds):
                self._on_wait(seconds)
            case Dropped():
                self._add_charge(request, Done())
                self._reset()
            case RequestSent() | ResponseBytes() if self._model.trace is not None:
                self._model.trace.add_delta(delta)
            case _:
                pass
        if self._size > MAX_RESPONSE_CHARS:
            raise ProviderError(ENDLESS_RESPONSE)

    def _add_charge(self, request: Request, done: Done) -> Charge:
        """Add what this attempt cost, and return what all attempts have cost."""
        model = self._model
        call = MeasuredCall(
            sent_chars=request_size(request),
            received_chars=self._size,
            images=len(request.pictures),
            limit=request.max_output,
        )
        attempt = charge(done, call, model.name, model.price)
        self.paid = attempt if self.paid is None else add_charges(self.paid, attempt)
        return self.paid


def request_size(request: Request) -> int:
    """Return the size of a request in characters."""
    return sum(len(s.message.text) for s in request.messages) + len(request.system)
