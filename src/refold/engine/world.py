"""What a turn may touch, and how it says what happened. Both are handed to it.

`World` is put together once, by whoever opens the session. `Record` is the
session's recorder, as the engine sees it: the only way to make anything true.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Raw, Struct, field

from refold.engine.album import Album
from refold.engine.decide import Policy
from refold.engine.judging import Above
from refold.engine.prepared import PreparedCalls
from refold.engine.shared import Shared
from refold.engine.shrinking import Shares
from refold.engine.tracing import Trace
from refold.journal.events import Briefed, Event
from refold.journal.fold import View
from refold.journal.used import Used
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule
from refold.place.port import Snapshots
from refold.provider.port import Provider
from refold.tools.contract import Tool
from refold.values.budget import NO_LIMIT, Budget, Estimate
from refold.values.effort import Effort
from refold.values.live import Live
from refold.values.messages import ToolCall
from refold.values.rights import Mode
from refold.values.usage import Usage


def unknown_price(model: str, usage: Usage) -> float | None:
    """Nobody told us any prices. Unknown is not zero."""
    return None


class Mind(Struct, frozen=True):
    """A model, and the way to it.

    `price` gives US dollars, or None where it is not known. With a `trace`, calls are
    taken down as they go over the wire.
    """

    provider: Provider
    model: str = ""  # provider/model
    window: int = 0  # tokens; 0: unknown
    price: Callable[[str, Usage], float | None] = unknown_price
    trace: Trace | None = None  # the one of the session


class Brief(Struct, frozen=True):
    """What a model is told besides the talk and the tools, and how it is to answer."""

    agent: str = ""  # who works, by name
    system: str = ""
    parts: tuple[tuple[str, int], ...] = ()  # what `system` is made of: names, characters
    effort: Effort = ""
    max_output: int = 0  # tokens of one answer; 0: as the provider has it
    schema: Raw = Raw(b"null")  # that the final answer has to match


class Purse(Protocol):
    """Where the budget of a child comes from."""

    @property
    def left(self) -> float:
        """The share of what it all comes from that is left, 0 to 1."""
        ...

    async def draw(self, need: Estimate, used: Used) -> Budget | None:
        """All that the child may use up, all in all, so that `need` fits in beside `used`.

        None: there is no more.
        """
        ...


class Beside(Protocol):
    """What is at work beside a turn, for as long as the turn lasts: children."""

    def __call__(self) -> AbstractAsyncContextManager[None]: ...


class Lineage(Struct, frozen=True):
    """Where in a tree of sessions one is, and what it has of those above it."""

    address: str = "root"
    above: Above | None = None  # whose child this is,
    purse: Purse | None = None  # and who pays for it
    shared: Shared = field(default_factory=Shared)  # with the whole tree


class World(Struct, frozen=True):
    """`facts` are asked for at each verdict: what a machine can do may be found out late.
    With `snapshots`, files can be taken back to how they were before a step.

    With `attended` false nobody can be asked: what would ask is denied.
    """

    mind: Mind
    tools: tuple[Tool, ...] = ()
    policies: tuple[Policy, ...] = ()
    rules: Sequence[Rule] = ()
    reading: tuple[Rule, ...] = ()  # of its agent and of all above: what keeps from it
    mode: Mode = "default"  # unless the session has one of its own
    attended: bool = True
    house: Mapping[str, object] = {}  # what tools may ask for by name
    facts: Callable[[], Facts] = Facts
    snapshots: Snapshots | None = None
    brief: Brief = Brief()
    deferred: tuple[Tool, ...] = ()  # the model knows their names, and asks for the rest
    longest_result: int = 30_000  # characters the model sees of one call
    aide: Callable[[], Mind] | None = None  # for what stands beside the talk; None: `mind`
    budget: Budget = NO_LIMIT  # of a turn, unless the session has one of its own
    shares: Shares = Shares()
    watches: bool = False  # what others did to known files, when a turn begins
    album: Album = field(default_factory=Album)
    lineage: Lineage = field(default_factory=Lineage)
    beside: Beside | None = None
    prepared: PreparedCalls = field(default_factory=PreparedCalls)  # the calls under way

    def tool(self, name: str) -> Tool | None:
        every = (*self.tools, *self.deferred)
        return next((t for t in every if t.spec.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that can be called, be they told whole or only by name."""
        return tuple(t.spec.name for t in (*self.tools, *self.deferred))

    def helper(self) -> Mind:
        """Who is asked beside the talk: for summaries, memory, leaves."""
        return self.mind if self.aide is None else self.aide()

    def briefing(self) -> Briefed:
        mind, brief = self.mind, self.brief
        return Briefed(
            brief.system,
            tuple(tool.spec for tool in self.tools),
            mind.model,
            mind.window,
            brief.max_output,
            brief.effort,
            brief.schema,
            brief.parts,
            brief.agent,
        )


class Record(Protocol):
    """Calling it writes the events, all or none, and returns the view after them.

    With `kept`, it returns when they would survive a power cut. Writing cannot
    be cancelled half-way: what was done gets told, even while a turn is stopped.
    """

    @property
    def view(self) -> View: ...
    @property
    def since(self) -> int: ...  # what stands later than this, this writer wrote
    async def __call__(self, *events: Event, kept: bool = False, by: str = "") -> View: ...
    async def weigh(
        self, news: Callable[[View], Sequence[Event]], *, kept: bool = False, by: str = ""
    ) -> bool:
        """Record what `news` makes of the view, with nothing in between. Was it anything?"""
        ...

    async def news(self, after: int) -> None:
        """Return when something stands in the journal later than `after`."""
        ...

    def tell(self, live: Live) -> None:
        """Say something to whoever is watching; it is not recorded."""
        ...

    async def put(self, blob: bytes) -> str:
        """Keep a blob of words, secrets masked, and give its name."""
        ...

    async def put_bytes(self, blob: bytes) -> str:
        """Keep a blob exactly as it is, and give its name."""
        ...

    async def get(self, name: str) -> bytes:
        """A blob's bytes. Raises `JournalError` where there is none of that name."""
        ...

    def unmasked(self, call: ToolCall) -> ToolCall | None:
        """The call as the model made it. None: it held a secret we do not keep."""
        ...
