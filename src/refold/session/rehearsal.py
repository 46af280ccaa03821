"""A session that only seems to be written: what the engine records into when it is run again.

`Rehearsal` takes events and keeps them to itself; `Recalled` is a model that says again
what a journal says it said. Neither reaches a disk or a network. What is compared with
what is `replaying`'s business.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from hashlib import sha256

from refold.errors import ProviderError
from refold.journal.events import Entry, Event, ModelAnswered
from refold.journal.fold import View, apply
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Request,
    TextDelta,
    ThinkingDelta,
)
from refold.session.secrets import MASK
from refold.values.live import Live
from refold.values.messages import Image, Message, Text, Thinking, ToolCall, ToolResult

Blobs = Callable[[str], Awaitable[bytes]]


class Rehearsal:
    """Implements the engine's `Record`. `made` is all that was recorded into it.

    It begins at `view`, as the writer who began after event `since` had it.
    """

    def __init__(self, view: View, since: int, blobs: Blobs) -> None:
        self.view, self.since, self.made = view, since, list[Event]()
        self._blobs, self._fixed = blobs, False

    def go_on_at(self, view: View) -> None:
        """From here on the view is this one, whatever is recorded."""
        self.view, self._fixed = view, True

    async def __call__(self, *events: Event, kept: bool = False, by: str = "") -> View:
        self.made += events
        for event in () if self._fixed else events:
            entry = Entry(self.view.seq + 1, event, self.view.turn.now)
            self.view = apply(self.view, entry)
        return self.view

    async def weigh(
        self, news: Callable[[View], Sequence[Event]], *, kept: bool = False, by: str = ""
    ) -> bool:
        events = news(self.view)
        await self(*events)
        return bool(events)

    async def news(self, after: int) -> None:
        """There is never any: nobody else is here."""

    def tell(self, live: Live) -> None:
        """Nobody watches."""

    async def put(self, blob: bytes) -> str:
        return sha256(blob).hexdigest()

    async def put_bytes(self, blob: bytes) -> str:
        return sha256(blob).hexdigest()

    async def get(self, name: str) -> bytes:
        return await self._blobs(name)

    def unmasked(self, call: ToolCall) -> ToolCall | None:
        """The call. None for one that its writer did not have whole any more."""
        found = self.view.talk.call(call.id)
        ours = found is not None and found.called > self.since
        return call if ours or not holds_mask(call) else None


class Recalled:
    """A model that says what was recorded, once; before that `then` is called."""

    def __init__(self, words: str | ProviderError, then: Callable[[], None]) -> None:
        self._words, self._then = words, then

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self._then()
        if isinstance(self._words, ProviderError):
            raise self._words
        yield TextDelta(self._words)
        yield Done()


def holds_mask(call: ToolCall) -> bool:
    """Did it hold a secret? Then only the mask of that was kept."""
    return MASK in bytes(call.arguments)


def said_again(answer: ModelAnswered) -> Iterator[Delta]:
    """A recorded answer as a provider would bring it."""
    for index, part in enumerate(answer.message.parts):
        match part:
            case Text(text):
                yield TextDelta(text)
            case Thinking(text, wire, data):
                yield ThinkingDelta(text, wire, data)
            case ToolCall(_, name, arguments, theirs, wire, data):
                words = bytes(arguments).decode()
                yield CallDelta(index, words, theirs, name, wire, data)
            case Image() | ToolResult():
                pass
    yield Done(answer.usage, answer.stop, why=answer.why)


def sayings(message: Message) -> tuple[object, ...]:
    """What of an answer does not depend on how it was cut into pieces."""
    calls = [(c.id, c.name, bytes(c.arguments), c.theirs) for c in message.calls]
    return message.text, *calls
