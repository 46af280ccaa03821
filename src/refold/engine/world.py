"""The dependencies of a turn, and the recorder as the engine sees it.

`World` is built at the beginning of each turn by the code that opened the session. `Record`
is the session's recorder: the engine acts only on what is recorded. `Shared` is the state
that all sessions of one tree share while they run.
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
    async def get(self, name: str) -> bytes:
        """Return the content of a blob."""
        ...


class ImageCache:
    """Caches the images of a conversation, because each request contains all of them again."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}

    async def read(self, names: Sequence[str], blobs: Blobs) -> Pictures:
        """Return the bytes of these blobs, by name.

        Missing blobs are left out: the request then describes the image in words.
        """
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
        self._written = dict[str, tuple[str, str]]()  # by file: hash and writer
        self._root_turn = 0  # the event that began it
        self._child_counts = dict[str, int]()  # of each agent, in that turn

    def lock(self, file: str) -> anyio.Lock:
        """Return the lock that must be held while this file (a real path) is changed."""
        return self._locks.setdefault(file, anyio.Lock())

    def record_write(self, file: str, sha256: str, writer: str) -> None:
        """Record who wrote a file.

        `file` is the printable form of the file's real path, `writer` the address of the agent,
        `sha256` the hash of the content. The writer of a file whose name has unprintable
        characters cannot be looked up.
        """
        self._written[file] = (sha256, writer)

    def begin_root_turn(self, seq: int) -> None:
        """Reset the counts of children if event `seq` begins a new turn of the root."""
        if seq != self._root_turn:
            self._root_turn = seq
            self._child_counts.clear()

    def set_child_count(self, parent: str, count: int) -> None:
        """Set the number of children that the agent at `parent` has started.

        This is called before the start of each child is recorded.
        """
        self._child_counts[parent] = count

    def child_count_of_others(self, parent: str) -> int:
        """Return how many children other agents have started in this turn of the root.

        `parent` is the address of the agent whose children are not counted.
        """
        return sum(
            count for address, count in self._child_counts.items() if address != parent
        )

    def other_writer(self, file: str, known_hash: str, address: str) -> str:
        """Return the agent that wrote the file last, if the agent at `address` does not know
        that version.

        Return "" if that agent wrote the file itself, or if `known_hash` is the newest version.
        """
        if file not in self._written:
            return ""
        sha256, writer = self._written[file]
        return "" if writer == address or sha256 == known_hash else writer


def unknown_price(model: str, usage: Usage) -> float | None:
    """Return None: the price is unknown. That is not a price of zero."""
    return None


class Model(Struct, frozen=True):
    """A model, and the provider to which its requests are sent.

    `price` returns US dollars, or None if the price is unknown. With a `trace`, requests and
    responses are logged byte for byte.
    """

    provider: Provider
    name: str = ""  # provider/model
    window: int = 0  # tokens; 0: unknown
    price: Callable[[str, Usage], float | None] = unknown_price
    trace: Trace | None = None  # the request log of the session
    temperature: float | None = None  # for calls outside of the conversation


class SystemPrompt(Struct, frozen=True):
    """What a model gets besides the conversation and the tools, and the form of its
    responses.
    """

    agent: str = ""  # the agent of the session
    system: str = ""
    # The parts of `system`: their names and their characters.
    parts: tuple[tuple[str, int], ...] = ()
    effort: Effort = ""
    max_output: int = 0  # tokens of one response; 0: the provider's default
    schema: Raw = Raw(b"null")  # the schema that the final answer must match
    temperature: float | None = None  # None: the provider's default


class BudgetGrant(Protocol):
    """The grant that is a child's budget, and the parent's budget behind the grant."""

    @property
    def share_left(self) -> float:
        """Return the remaining share of the budget behind the grant, 0 to 1."""
        ...

    async def request_more(self, need: Estimate, usage: BudgetUsed) -> Budget | None:
        """Return a larger total grant, which covers `usage` and, in addition, `need`.

        Returns None if the parent has too little left.
        """
        ...


class Background(Protocol):
    """Runs work in the background while a turn lasts, such as subagents and Python code."""

    def __call__(self) -> AbstractAsyncContextManager[None]: ...


class Hooks(Protocol):
    """The user's hooks, as configured for a session. `engine.run_hooks` runs them."""

    def hooks_for(self, event: HookEvent, *names: str) -> "Sequence[Hook]":
        """Return the hooks of this event whose matcher fits one of these names. Pure."""
        ...

    async def run(self, hook: "Hook", about: Mapping[str, object]) -> "HookAnswer":
        """Run a hook to its end, within its time limit.

        An error becomes part of the result.
        """
        ...


class EditChecks(Protocol):
    """Finds the problems that an edit has caused.

    It checks files before the edit and again after it, each time for a few seconds at most.
    """

    async def begin(self, files: Sequence[str]) -> Callable[[], Awaitable[str]] | None:
        """Check these files before they are changed.

        Returns a function to call after the change: its result is the new problems as text,
        or "". Returns None if nothing is checked.
        """
        ...


class FolderInstructions(Protocol):
    """The instructions of the folder in which a session works."""

    async def approve(self, changes: Sequence[Diff]) -> None:
        """Record that the user was shown these changes and allowed them."""
        ...

    async def instructions_below(
        self, files: Sequence[str], known_files: Collection[str]
    ) -> InstructionsFound | None:
        """Return the instructions for these files (real paths), except the
        `known_files`.
        """
        ...


class Lineage(Struct, frozen=True):
    """The position of a session in the tree of subagents, and what it gets from its
    ancestors.
    """

    address: str = "root"
    # The rights of the session of which this one is a child.
    parent: ParentRights | None = None
    grant: BudgetGrant | None = None  # the source of its budget
    shared: Shared = field(default_factory=Shared)  # shared by the whole tree


class World(Struct, frozen=True):
    """The dependencies of a turn.

    `facts` is called at each verdict, because facts about the machine may arrive late. With
    `snapshots`, files can be restored to their state before a step. If `attended` is false,
    no user can be asked, and calls that need a question are denied. `tool_dependencies` are
    for tools alone; everything that the engine needs is a field.
    """

    model: Model
    tools: tuple[Tool, ...] = ()
    policies: tuple[Policy, ...] = ()
    rules: Sequence[Rule] = ()
    # Rules about reading of its agent, and of the agents of its ancestors, which restrict it.
    read_rules: tuple[Rule, ...] = ()
    mode: Mode = "default"  # of sessions that have not set one
    attended: bool = True
    files: Files | None = None  # of the workspace; None: the session has none
    commands: Commands | None = None
    # More objects that tools may request by name.
    tool_dependencies: Mapping[str, object] = {}
    facts: Callable[[], Facts] = Facts
    snapshots: Snapshots | None = None
    prompt: SystemPrompt = SystemPrompt()
    # Tools of which the model gets only the names, until it requests them.
    deferred: Sequence[Tool] = ()
    longest_result: int = 30_000  # characters of one result for the model
    # The model for calls outside of the conversation; None: `model`.
    helper_model: Callable[[], Model] | None = None
    budget: Budget = NO_LIMIT  # of a turn, if the session has not set one
    shares: CompactionShares = CompactionShares()
    # Whether a turn begins with a search for files that others changed.
    watches: bool = False
    images: ImageCache = field(default_factory=ImageCache)
    results: "ResultCache | None" = None  # None: every call is executed
    lineage: Lineage = field(default_factory=Lineage)
    background: Background | None = None
    # The calls that have not ended.
    prepared: PreparedCalls = field(default_factory=PreparedCalls)
    hooks: Hooks | None = None  # None: none is configured
    edit_checks: EditChecks | None = None
    instructions: FolderInstructions | None = None
    # Returns the reason why no tool of this name exists.
    explain_missing: Callable[[str], str] = lambda _: ""
    # Returns sentences about resources that changed since the session read them, each once.
    take_resource_news: Callable[[], tuple[str, ...]] = tuple

    def tool(self, name: str) -> Tool | None:
        """Return the tool with this name, also a deferred one; None if there is none."""
        for tools in (self.tools, self.deferred):
            for tool in tools:
                if tool.name == name:
                    return tool
        return None

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of all tools that can be called, deferred ones included."""
        return tuple(t.name for t in (*self.tools, *self.deferred))

    def helper(self) -> Model:
        """Return the model for calls outside of the conversation, such as summaries."""
        return self.model if self.helper_model is None else self.helper_model()

    def system_prompt(self) -> SystemPromptSet:
        """Return the system prompt, the tools and the options of all requests, as an event."""
        model, prompt = self.model, self.prompt
        return SystemPromptSet(
            system=prompt.system,
            tools=tuple(tool.spec for tool in self.tools),
            model=model.name,
            window=model.window,
            max_output=prompt.max_output,
            effort=prompt.effort,
            schema=prompt.schema,
            parts=prompt.parts,
            agent=prompt.agent,
            temperature=prompt.temperature,
        )


class Record(Protocol):
    """The recorder. A call writes all of its events or none, and returns the view after
    them.

    With `kept`, the call returns once the events would survive a power failure. Writing cannot
    be cancelled half-way: an effect that happened is recorded, even while a turn is being
    stopped.
    """

    @property
    def view(self) -> View:
        """Return the view after the last recorded event."""
        ...

    @property
    def since(self) -> int: ...  # the events after this number are by this writer
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
        """Record the events that `make_events` returns for the view, atomically.

        Return False if `make_events` returns no events.
        """
        ...

    async def wait_for_event(self, after: int) -> None:
        """Return once the journal has an event later than `after`."""
        ...

    def publish(self, live: Live) -> None:
        """Send something to the watchers, without recording it."""
        ...

    async def put(self, blob: bytes) -> str:
        """Store a text as a blob, with secrets masked, and return the name of the blob."""
        ...

    async def put_bytes(self, blob: bytes) -> str:
        """Store bytes as a blob, unchanged, and return the name of the blob."""
        ...

    async def put_image(self, image: ImageData) -> tuple[Image, str]:
        """Store an image in a form that can be sent, and return it with a note.

        The note says how it was converted; "" if it was not. Raises `BadInput`.
        """
        ...

    async def get(self, name: str) -> bytes:
        """Return the bytes of a blob. Raises `JournalError` if it does not exist."""
        ...

    def unmask(self, call: ToolCall) -> ToolCall | None:
        """Return the call with its secrets, as the model made it.

        Return None if the secrets are no longer known.
        """
        ...
