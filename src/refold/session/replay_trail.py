"""The position of a replay, the views that its loop may have seen, and its recorder.

Between the moment when the loop reads the view and the moment when it records its action,
events from outside may arrive. So the loop may have decided on any view since its last action,
and all of these views are stored. `ReplayRecord` collects what the engine records;
`RecordedModel` is a provider that repeats the recorded responses. Neither uses a disk or a
network.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct
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

# After one of these events the loop decides again: its last decision was carried out.
_ALREADY_DONE = (
    TurnStarted, ModelAsked, Delivered, AnswerRejected, Compacted, TurnEnded, ModelAnswered, ModelFailed,
    SessionStarted, SessionResumed, SystemPromptSet,
)  # fmt: skip


class ReplayRecord:
    """Implements the engine's `Record`. `made` has all events that were recorded here.

    The record begins at `view`. `since` is the number of the last event of the previous
    writer. The writer that is replayed knew only the secrets of calls after `since`.
    """

    def __init__(self, view: View, since: int, blobs: Blobs) -> None:
        self.view = view
        self.since = since
        self.made = list[Event]()
        self._blobs = blobs
        self._fixed = False  # whether events leave the view unchanged

    def stay_at(self, view: View) -> None:
        """Keep this view from now on, whatever is recorded."""
        self.view = view
        self._fixed = True

    async def __call__(self, *events: Event, kept: bool = False, author: str = "") -> View:
        """Store the events, and apply them to the view, unless `stay_at` has fixed it."""
        self.made += events
        if self._fixed:
            return self.view
        for event in events:
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
        """Return at once: a replay has no other clients, so no other event will be
        recorded.
        """

    def publish(self, live: Live) -> None:
        """Do nothing: a replay has no watchers."""

    async def put(self, blob: bytes) -> str:
        """Return the name that the blob would have. Nothing is stored."""
        return sha256(blob).hexdigest()

    async def put_bytes(self, blob: bytes) -> str:
        """Return the name that the blob would have. Nothing is stored."""
        return sha256(blob).hexdigest()

    async def put_image(self, image: ImageData) -> tuple[Image, str]:
        return Image(await self.put_bytes(image.content), image.kind, image.name), ""

    async def get(self, name: str) -> bytes:
        return await self._blobs(name)

    def unmask(self, call: ToolCall) -> ToolCall | None:
        """Return the call; None if its secrets were masked for its writer, too."""
        open_call = self.view.conversation.call(call.id)
        is_own = open_call is not None and open_call.called > self.since
        return call if is_own or not holds_mask(call) else None


class SummaryRequest(Struct, frozen=True):
    """A request for a summary. `before` is the view before the request.

    `settled` is the event that ended the request; None while the request is open.
    """

    before: View
    settled: Settled | None = None


class ReplayTrail:
    """The views of a replay. `world_for` returns the world that a turn would have now."""

    def __init__(self, world_for: Callable[[View], World], blobs: Blobs) -> None:
        self._world_for = world_for
        self._blobs = blobs
        self.view = View()
        self.since = 0  # the last event of another writer, by its number
        self._epoch = 0
        self._world: World | None = None  # of the running turn
        self._seen = list[View]()  # newest last
        self._rights_views = list[View]()  # views of this step at which rights changed
        self.summary_request: SummaryRequest | None = None  # since the last decision
        # How the system prompt differs now: the number of an event, and a sentence about the
        # prompt that follows the event.
        self.briefings = list[tuple[int, str]]()

    def move_to(self, entry: Entry) -> None:
        """Forget the earlier views if this is the first event of another writer.

        The other writer did not see the earlier views.
        """
        if entry.epoch != self._epoch or isinstance(entry.event, SessionResumed):
            self._epoch = entry.epoch
            self.since = self.view.seq
            self._seen = [self.view]
            self._rights_views = [self.view]
            self._world = None

    def apply(self, entry: Entry) -> None:
        """Apply the recorded event to the view, and store the views that the loop may have
        seen.
        """
        event = entry.event
        before = self.view
        view = apply(before, entry)
        self.view = view
        if isinstance(event, _ALREADY_DONE):
            self._seen = list[View]()
            self.summary_request = None
        self._seen.append(view)
        if isinstance(event, ModelAsked) or not self._rights_views:  # a new step begins
            self._rights_views = [view]
        elif view.rights != before.rights:
            self._rights_views.append(view)
        match event:
            case TurnStarted() | SystemPromptSet() | TurnEnded():
                self._world = None
            case Reserved(purpose="summary"):
                self.summary_request = SummaryRequest(before)
            case Settled() if self.summary_request:
                self.summary_request = replace(self.summary_request, settled=event)
            case _:
                pass

    def world(self) -> World:
        """Return the dependencies of the running turn, as they would be now."""
        if self._world is None:
            # The journal has the outcomes of hooks; no hook is run again.
            self._world = replace(self._world_for(self.view), hooks=None)
            if self.view.turn.seq:
                recorded = self.view.conversation.system_prompt
                current = self._world.system_prompt()
                reported = {sentence for _, sentence in self.briefings}
                sentences = differences(recorded, current)
                new = [sentence for sentence in sentences if sentence not in reported]
                self.briefings += [(self.view.seq, sentence) for sentence in new]
        return self._world

    def choices(self) -> Iterator[tuple[View, ChosenAction | None]]:
        """Yield each view that the loop may have seen, newest first, with the decision on it.

        The decision None means that nothing is left to do.
        """
        policies = self.world().policies
        for view in reversed(self._seen):
            yield view, decide(view, policies)

    def next_action_name(self) -> str:
        """Return the name of the action that would come next."""
        for _, choice in self.choices():
            return choice_name(choice)
        return choice_name(None)

    def views_by_rights(self) -> Iterator[View]:
        """Yield the views whose rights may have been in force, newest first."""
        return reversed(self._rights_views or [self.view])

    def new_record(self, view: View | None = None) -> ReplayRecord:
        return ReplayRecord(view or self.view, self.since, self._blobs)


def choice_name(choice: ChosenAction | None) -> str:
    """Return the name of the action with its policy, or "nothing"."""
    if choice is None:
        return "nothing"
    return f"{type(choice.action).__name__} by {choice.by}"


class RecordedModel:
    """A model that answers a request with the recorded text or error, after calling
    `on_end`.
    """

    def __init__(self, words: str | ProviderError, on_end: Callable[[], None]) -> None:
        self._words = words
        self._on_end = on_end

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the recorded text as one delta, or raise the recorded error."""
        self._on_end()
        if isinstance(self._words, ProviderError):
            raise self._words
        yield TextDelta(self._words)
        yield Done()


def holds_mask(call: ToolCall) -> bool:
    """Whether the call contained a secret, of which only the mask is stored."""
    return has_mask(bytes(call.arguments))


def deltas_of(answer: ModelAnswered) -> Iterator[Delta]:
    """Yield the deltas from which a provider would have made a recorded response."""
    for index, part in enumerate(answer.message.parts):
        match part:
            case Text(text):
                yield TextDelta(text)
            case Thinking(text, wire, data):
                yield ThinkingDelta(text, wire, data)
            case ToolCall(_, name, arguments, provider_id, wire, data):
                text = bytes(arguments).decode()
                if text.startswith('"'):  # not a JSON object, so it was recorded as text
                    text = decode(text, type=str)
                yield CallDelta(index, text, provider_id, name, wire, data)
            case Image() | ToolResult():
                pass
    yield Done(answer.usage, answer.stop, why=answer.refusal)


def comparable_content(message: Message) -> tuple[object, ...]:
    """Return the content of a response, with texts in a row joined, for a comparison."""
    calls = [(c.id, c.name, bytes(c.arguments), c.provider_id) for c in message.calls]
    return message.text, *calls
