"""The dependencies of a turn, and the recorder as the engine sees it.

`World` is built at the beginning of each turn by the code that opened the session. `Record`
is the session's recorder: nothing is true before it is recorded. `Shared` is what all
sessions of one tree share while they run.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec import Raw, Struct, field

from refold.engine.authorize import ParentRights, PreparedCalls
from refold.engine.decide import Policy
from refold.engine.prune import CompactionShares
from refold.engine.request_log import Trace
from refold.errors import JournalError
from refold.journal.events.kinds import Event, InstructionsFound, SystemPromptSet
from refold.journal.state.fold import BudgetUsed, View
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule
from refold.place.port import Commands, Files, Snapshots
from refold.provider.port import Pictures, Provider
from refold.tools.contract import ImageData, Tool
from refold.values.display import Diff
from refold.values.live import Live
from refold.values.messages import Image, ToolCall
from refold.values.modes import Effort, HookEvent, Mode
from refold.values.usage import NO_LIMIT, Budget, Estimate, Usage

if TYPE_CHECKING:
    from refold.engine.result_cache import ResultCache
    from refold.hooks.answers import HookAnswer
    from refold.hooks.configuration import Hook


class Blobs(Protocol):
    async def get(self, name: str) -> bytes: ...


class ImageCache:
    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}

    async def read(self, names: Sequence[str], blobs: Blobs) -> Pictures:
        """The bytes of these blobs. Missing ones are left out; wires describe them."""
        for name in names:
            if name not in self._images:
                try:
                    self._images[name] = await blobs.get(name)
                except JournalError:
                    continue
        return {name: self._images[name] for name in names if name in self._images}


class Shared:
    """State shared by a session and all sessions below it."""

    def __init__(self) -> None:
        self._locks = dict[str, anyio.Lock]()
        self._written = dict[str, tuple[str, str]]()
        self._turn, self._born = 0, dict[str, int]()

    def lock(self, file: str) -> anyio.Lock:
        """The lock to hold while this file (a real path) is changed."""
        return self._locks.setdefault(file, anyio.Lock())

    def record_write(self, file: str, sha256: str, writer: str) -> None:
        """Record who wrote a file. `file` is its printed real path, `writer` an address,
        `sha256` its content.

        A name with unprintable characters is not found again: no writer is named for it.
        """
        self._written[file] = (sha256, writer)

    def begin_root_turn(self, seq: int) -> None:
        """Reset the child counts, which apply to one turn of the root."""
        if seq != self._turn:
            self._turn = seq
            self._born.clear()

    def set_child_count(self, parent: str, count: int) -> None:
        """Set the number of children of `parent` (an address), before each is recorded."""
        self._born[parent] = count

    def child_count_of_others(self, parent: str) -> int:
        """The number of children of all other agents, in this turn of the root."""
        return sum(count for address, count in self._born.items() if address != parent)

    def other_writer(self, file: str, known: str, me: str) -> str:
        """The other agent that wrote the file last, if `me` lacks that version; or ""."""
        sha256, writer = self._written.get(file, (known, me))
        return writer if writer != me and sha256 != known else ""


def unknown_price(model: str, usage: Usage) -> float | None:
    """The price of a model without known prices: None, not zero."""
    return None


class Model(Struct, frozen=True):
    """A model, and the provider that requests are sent to.

    `price` gives US dollars, or None if it is not known. With a `trace`, requests and
    responses are logged as sent.
    """

    provider: Provider
    name: str = ""  # provider/model
    window: int = 0  # tokens; 0: unknown
    price: Callable[[str, Usage], float | None] = unknown_price
    trace: Trace | None = None  # the one of the session
    temperature: float | None = None  # for calls outside of the conversation


class SystemPrompt(Struct, frozen=True):
    """What a model gets besides the conversation and the tools, and how it must answer."""

    agent: str = ""  # the session's own name
    system: str = ""
    parts: tuple[tuple[str, int], ...] = ()  # what `system` is made of: names, characters
    effort: Effort = ""
    max_output: int = 0  # tokens of one answer; 0: as the provider has it
    schema: Raw = Raw(b"null")  # that the final answer has to match
    temperature: float | None = None  # None: as the provider has it


class BudgetGrant(Protocol):
    """Where the budget of a child comes from."""

    @property
    def share_left(self) -> float:
        """The share of the budget behind the grant that is left, 0 to 1."""
        ...

    async def request_more(self, need: Estimate, usage: BudgetUsed) -> Budget | None:
        """Return a larger total grant, so that `need` fits in addition to `usage`.

        Returns None if nothing is left.
        """
        ...


class Background(Protocol):
    """What runs in the background of a turn, for as long as the turn lasts: subagents."""

    def __call__(self) -> AbstractAsyncContextManager[None]: ...


class Hooks(Protocol):
    """The user's hooks, as they are configured for a session. `engine.run_hooks` runs them."""

    def hooks_for(self, event: HookEvent, *names: str) -> "Sequence[Hook]":
        """The hooks of this event whose matcher fits one of these names. Pure."""
        ...

    async def run(self, hook: "Hook", about: Mapping[str, object]) -> "HookAnswer":
        """Run a hook to its end, within its time limit. Raises nothing of its own."""
        ...


class EditChecks(Protocol):
    """Finds what an edit has broken. Neither of its steps takes more than some seconds."""

    async def begin(self, files: Sequence[str]) -> Callable[[], Awaitable[str]] | None:
        """Check these files before they are changed. The result, called afterwards, returns
        the new problems as text, or "". Returns None if nothing is checked.
        """
        ...


class FolderInstructions(Protocol):
    """The instructions of the folder that a session works in."""

    async def approve(self, changes: Sequence[Diff]) -> None:
        """Note that the user was shown these changes and allowed them."""
        ...

    async def instructions_below(
        self, files: Sequence[str], known_files: Collection[str]
    ) -> InstructionsFound | None:
        """The instructions for these files (real paths) that are not `known_files` yet."""
        ...


class Lineage(Struct, frozen=True):
    """The place of a session in its tree, and what it gets from its ancestors."""

    address: str = "root"
    parent: ParentRights | None = None  # whose child this is,
    grant: BudgetGrant | None = None  # and who pays for it
    shared: Shared = field(default_factory=Shared)  # with the whole tree


class World(Struct, frozen=True):
    """The dependencies of a turn.

    `facts` is called at each verdict, because facts about the machine may arrive late.
    With `snapshots`, files can be restored to what they were before a step. With
    `attended` false no user can be asked: what would ask is denied. `tool_dependencies`
    are for tools alone; what the engine itself needs is a field.
    """

    model: Model
    tools: tuple[Tool, ...] = ()
    policies: tuple[Policy, ...] = ()
    rules: Sequence[Rule] = ()
    read_rules: tuple[Rule, ...] = ()  # of its agent and of all above, which restrict it
    mode: Mode = "default"  # unless the session has one of its own
    attended: bool = True
    files: Files | None = None  # of the workspace; None: there is none
    commands: Commands | None = None
    tool_dependencies: Mapping[str, object] = {}  # what else tools may ask for by name
    facts: Callable[[], Facts] = Facts
    snapshots: Snapshots | None = None
    prompt: SystemPrompt = SystemPrompt()
    deferred: Sequence[Tool] = ()  # the model knows their names, and asks for the rest
    longest_result: int = 30_000  # characters the model sees of one call
    # For calls outside the conversation; None: `model`.
    helper_model: Callable[[], Model] | None = None
    budget: Budget = NO_LIMIT  # of a turn, unless the session has one of its own
    shares: CompactionShares = CompactionShares()
    watches: bool = False  # what others did to known files, when a turn begins
    images: ImageCache = field(default_factory=ImageCache)
    results: "ResultCache | None" = None  # None: every call is executed
    lineage: Lineage = field(default_factory=Lineage)
    background: Background | None = None
    prepared: PreparedCalls = field(default_factory=PreparedCalls)  # the calls under way
    hooks: Hooks | None = None  # None: none is configured
    edit_checks: EditChecks | None = None
    instructions: FolderInstructions | None = None
    # Why a tool of this name is not there.
    explain_missing: Callable[[str], str] = lambda _: ""
    # Sentences about resources that have changed since the session read them, each once.
    take_resource_news: Callable[[], tuple[str, ...]] = tuple

    def tool(self, name: str) -> Tool | None:
        for every in (self.tools, self.deferred):
            for tool in every:
                if tool.name == name:
                    return tool
        return None

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of all tools that can be called, deferred ones included."""
        return tuple(t.name for t in (*self.tools, *self.deferred))

    def helper(self) -> Model:
        """The model for calls outside of the conversation: summaries, memory, leaves."""
        return self.model if self.helper_model is None else self.helper_model()

    def system_prompt(self) -> SystemPromptSet:
        model, brief = self.model, self.prompt
        return SystemPromptSet(
            brief.system,
            tuple(tool.spec for tool in self.tools),
            model.name,
            model.window,
            brief.max_output,
            brief.effort,
            brief.schema,
            brief.parts,
            brief.agent,
            brief.temperature,
        )


class Record(Protocol):
    """Writes the events, all or none, and returns the view after them.

    With `kept`, it returns once they would survive a power failure. Writing cannot be
    cancelled half-way: an effect that happened is recorded, even while a turn is being
    stopped.
    """

    @property
    def view(self) -> View: ...
    @property
    def since(self) -> int: ...  # later entries are by this writer
    async def __call__(
        self, *events: Event, kept: bool = False, author: str = ""
    ) -> View: ...
    async def append_if(
        self,
        make_events: Callable[[View], Sequence[Event]],
        *,
        kept: bool = False,
        author: str = "",
    ) -> bool:
        """Record the events that `make_events` returns for the view, atomically. Return
        False if it returns none.
        """
        ...

    async def wait_for_event(self, after: int) -> None:
        """Return once the journal has an event later than `after`."""
        ...

    def publish(self, live: Live) -> None:
        """Send something to the watchers; it is not recorded."""
        ...

    async def put(self, blob: bytes) -> str:
        """Keep a text as a blob, with secrets masked, and return its name."""
        ...

    async def put_bytes(self, blob: bytes) -> str:
        """Keep a blob exactly as it is, and return its name."""
        ...

    async def put_image(self, image: ImageData) -> tuple[Image, str]:
        """Store an image, fit to be sent; also says what was changed. Raises `BadInput`."""
        ...

    async def get(self, name: str) -> bytes:
        """A blob's bytes. Raises `JournalError` if there is none with that name."""
        ...

    def unmask(self, call: ToolCall) -> ToolCall | None:
        """The call as the model made it; None if it held a secret, which is not stored."""
        ...
