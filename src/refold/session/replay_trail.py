"""The position of a replay, the views its loop may have seen, and its recorder.

Between what the loop sees and what it records, events from outside may arrive. So all views
since its last action are kept, and each of them is one it may have seen. `ReplayRecord`
collects what the engine records; `RecordedModel` is a provider that repeats the recorded
responses. Neither uses a disk or a network.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from hashlib import sha256

from msgspec.json import decode
from msgspec.structs import replace

from refold.engine.decide import ChosenAction, decide
from refold.engine.world import World
from refold.errors import ProviderError
from refold.journal.events.kinds import (
    AnswerRejected,
    Compacted,
    Delivered,
    Entry,
    Event,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Reserved,
    SessionResumed,
    SessionStarted,
    Settled,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import View, apply
from refold.provider.port import CallDelta, Delta, Done, Request, TextDelta, ThinkingDelta
from refold.tools.contract import ImageData
from refold.values.live import Live
from refold.values.messages import Image, Message, Text, Thinking, ToolCall, ToolResult
from refold.values.secret_mask import has_mask
from refold.views.system_prompt_diff import differences

Blobs = Callable[[str], Awaitable[bytes]]

# After these events the loop decides again: its last decision is carried out.
_ALREADY_DONE = (
    TurnStarted, ModelAsked, Delivered, AnswerRejected, Compacted, TurnEnded, ModelAnswered, ModelFailed,
    SessionStarted, SessionResumed, SystemPromptSet,
)  # fmt: skip


class ReplayRecord:
    """Implements the engine's `Record`. `made` is all that was recorded into it.

    It begins at `view`, the view of a writer that began after event `since`.
    """

    def __init__(self, view: View, since: int, blobs: Blobs) -> None:
        self.view, self.since, self.made = view, since, list[Event]()
        self._blobs, self._fixed = blobs, False

    def stay_at(self, view: View) -> None:
        """Stay at this view, whatever is recorded."""
        self.view, self._fixed = view, True

    async def __call__(self, *events: Event, kept: bool = False, author: str = "") -> View:
        self.made += events
        for event in () if self._fixed else events:
            entry = Entry(self.view.seq + 1, event, self.view.turn.now)
            self.view = apply(self.view, entry)
        return self.view

    async def append_if(
        self,
        make_events: Callable[[View], Sequence[Event]],
        *,
        kept: bool = False,
        author: str = "",
    ) -> bool:
        events = make_events(self.view)
        await self(*events)
        return bool(events)

    async def wait_for_event(self, after: int) -> None:
        """A replay has no other clients, so there are no events."""

    def publish(self, live: Live) -> None:
        """A replay has no watchers."""

    async def put(self, blob: bytes) -> str:
        return sha256(blob).hexdigest()

    async def put_bytes(self, blob: bytes) -> str:
        return sha256(blob).hexdigest()

    async def put_image(self, image: ImageData) -> tuple[Image, str]:
        return Image(await self.put_bytes(image.content), image.kind, image.name), ""

    async def get(self, name: str) -> bytes:
        return await self._blobs(name)

    def unmask(self, call: ToolCall) -> ToolCall | None:
        """The call; None if its writer no longer had the arguments unmasked."""
        open_call = self.view.conversation.call(call.id)
        is_own = open_call is not None and open_call.called > self.since
        return call if is_own or not holds_mask(call) else None


class ReplayTrail:
    """`world_for` gives the world of a turn as it would be now."""

    def __init__(self, world_for: Callable[[View], World], blobs: Blobs) -> None:
        self._world_for, self._blobs = world_for, blobs
        self.view, self.since, self._epoch = View(), 0, 0
        self._world: World | None = None  # of the turn under way
        self._seen = list[View]()  # newest last
        self._rights = list[View]()  # of this step, where rights changed
        # The view before a summary was requested, and how that request was settled.
        self.aside: tuple[View, Settled | None] | None = None
        self.briefings = list[tuple[int, str]]()

    def move_to(self, entry: Entry) -> None:
        """Continue with another writer, from its first event: it did not have the earlier views."""
        if entry.epoch != self._epoch or isinstance(entry.event, SessionResumed):
            self._epoch, self.since = entry.epoch, self.view.seq
            self._seen, self._rights = [self.view], [self.view]
            self._world = None

    def apply(self, entry: Entry) -> None:
        """Apply the recorded event."""
        event, before = entry.event, self.view
        self.view = view = apply(before, entry)
        if isinstance(event, _ALREADY_DONE):
            self._seen, self.aside = [], None
        if isinstance(event, ModelAsked) or not self._rights:
            self._rights = [view]
        elif view.rights != before.rights:
            self._rights.append(view)
        self._seen.append(view)
        match event:
            case TurnStarted() | SystemPromptSet() | TurnEnded():
                self._world = None
            case Reserved(purpose="summary"):
                self.aside = (before, None)
            case Settled() if self.aside:
                self.aside = (self.aside[0], event)
            case _:
                pass

    def world(self) -> World:
        """The dependencies of the running turn, as they would be now."""
        if self._world is None:
            # What hooks said is in the journal; none is run again.
            self._world = replace(self._world_for(self.view), hooks=None)
            if self.view.turn.seq:
                recorded, current = (
                    self.view.conversation.system_prompt,
                    self._world.system_prompt(),
                )
                known = {sentence for _, sentence in self.briefings}
                new = [item for item in differences(recorded, current) if item not in known]
                self.briefings += [(self.view.seq, sentence) for sentence in new]
        return self._world

    def choices(self) -> Iterator[tuple[View, ChosenAction | None]]:
        """Decide again on each view that the loop may have seen, newest first."""
        policies = self.world().policies
        for view in reversed(self._seen):
            yield view, decide(view, policies)

    def next_action_name(self) -> str:
        """The name of the action that would come next."""
        return choice_name(next(self.choices(), (None, None))[1])

    def views_by_rights(self) -> Iterator[View]:
        """The views whose rights may have applied, newest first."""
        return reversed(self._rights or [self.view])

    def new_record(self, view: View | None = None) -> ReplayRecord:
        return ReplayRecord(view or self.view, self.since, self._blobs)


def choice_name(choice: ChosenAction | None) -> str:
    if choice is None:
        return "nothing"
    return f"{type(choice.action).__name__} by {choice.by}"


class RecordedModel:
    """A model that gives the recorded response, once; `on_end` is called before that."""

    def __init__(self, words: str | ProviderError, on_end: Callable[[], None]) -> None:
        self._words, self._then = words, on_end

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self._then()
        if isinstance(self._words, ProviderError):
            raise self._words
        yield TextDelta(self._words)
        yield Done()


def holds_mask(call: ToolCall) -> bool:
    """Whether the call held a secret, of which only the mask is stored."""
    return has_mask(bytes(call.arguments))


def deltas_of(answer: ModelAnswered) -> Iterator[Delta]:
    """A recorded answer as the deltas of a provider."""
    for index, part in enumerate(answer.message.parts):
        match part:
            case Text(text):
                yield TextDelta(text)
            case Thinking(text, wire, data):
                yield ThinkingDelta(text, wire, data)
            case ToolCall(_, name, arguments, theirs, wire, data):
                words = bytes(arguments).decode()
                if words.startswith('"'):  # no JSON object: it was recorded as text
                    words = decode(words, type=str)
                yield CallDelta(index, words, theirs, name, wire, data)
            case Image() | ToolResult():
                pass
    yield Done(answer.usage, answer.stop, why=answer.refusal)


def comparable_content(message: Message) -> tuple[object, ...]:
    """The content of an answer that does not depend on how it was cut into pieces."""
    calls = [(c.id, c.name, bytes(c.arguments), c.provider_id) for c in message.calls]
    return message.text, *calls
