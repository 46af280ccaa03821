"""The provider port: what the engine asks of a model, and what it gets back."""

from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Raw, Struct

from refold.values.growing import Log
from refold.values.messages import StoredMessage
from refold.values.modes import Effort
from refold.values.tools import ToolSpec
from refold.values.usage import Usage

# The bytes of images, by the names of their blobs.
Pictures: TypeAlias = Mapping[str, bytes]
NO_PICTURES: Pictures = MappingProxyType({})


class HostedServer(Struct, frozen=True):
    """An MCP server that the provider connects to itself, and what lets it in."""

    name: str
    url: str
    token: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # besides the token

    def __repr__(self) -> str:
        return f"HostedServer({self.name!r}, {self.url!r}, …)"


class Request(Struct, frozen=True):
    """Everything a model needs for one response. Providers keep nothing between requests.

    `pictures` has the images that the messages name; a missing one is replaced by a
    description. Other sessions begin with the same `shared` characters of `system`, so a
    provider may keep what it computed for them. `schema`, unless it is `null`, is the JSON Schema that a response without
    calls should match; not every provider enforces it, so the caller checks. `stops` are
    texts at which a response may end, without them; not enforced either. With `trace`, the
    stream has what goes over the wire, too, as `RequestSent` and `ResponseBytes`. `hosted` are for providers
    that connect to MCP servers themselves; the others leave them out.
    """

    messages: Log[StoredMessage]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""  # the provider's own name for it
    tool_choice: Literal["auto", "none"] = "auto"
    max_output: int = 0  # tokens; 0: the wire's default
    effort: Effort = ""
    schema: Raw = Raw(b"null")
    stops: tuple[str, ...] = ()
    pictures: Pictures = NO_PICTURES
    session: str = ""  # the same for all requests of one: a key to a provider's cache
    trace: bool = False
    shared: int = 0
    temperature: float | None = None  # None: the provider's default
    hosted: tuple[HostedServer, ...] = ()


class TextDelta(Struct, frozen=True, tag_field="delta", tag="text"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="delta", tag="thinking"):
    """A piece of thinking. `data`, if present, closes the block. The provider that `wire`
    stands for needs `data` back unchanged.
    """

    text: str = ""
    wire: str = ""
    data: Raw = Raw(b"")


class CallDelta(Struct, frozen=True, tag_field="delta", tag="call"):
    """A piece of a tool call.

    The first piece of each call has `name` (and `id`, if the provider has ids); pieces with
    the same `index` belong to the same call. The provider that `wire` stands for needs
    `data` back unchanged, with the call.
    """

    index: int
    arguments: str = ""
    id: str = ""
    name: str = ""
    wire: str = ""
    data: Raw = Raw(b"")


class HostedCall(Struct, frozen=True, tag_field="delta", tag="hosted_call"):
    """The provider calls a tool of an MCP server itself. `name` has our form: mcp__….

    A `HostedResult` with its id follows, unless the response is cut off before.
    """

    id: str
    name: str


class HostedResult(Struct, frozen=True, tag_field="delta", tag="hosted_result"):
    """The arguments and the result of such a call. The provider that `wire` stands for
    needs `data` back unchanged.
    """

    id: str
    arguments: str
    text: str
    failed: bool = False
    wire: str = ""
    data: Raw = Raw(b"")


class Retrying(Struct, frozen=True, tag_field="delta", tag="retrying"):
    """The reason for a retry, for display. The request is repeated after `wait` seconds; 0: it
    was not sent yet. It will be attempt `attempt` of `attempts`; 0: attempts are not counted.
    """

    wait: float
    reason: str
    attempt: int = 0
    attempts: int = 0


class Dropped(Struct, frozen=True, tag_field="delta", tag="dropped"):
    """Discard all earlier pieces: the response failed in the middle, and another one
    follows.

    A recorder of the response records this before it reads the next delta, since the
    request is repeated then. `kind` is the class of the error.
    """

    reason: str
    kind: str


class RequestSent(Struct, frozen=True, tag_field="delta", tag="request_sent"):
    """The request that was just sent, byte for byte. Each retry has its own."""

    to: str  # "POST https://…", or a command line
    body: bytes


class ResponseBytes(Struct, frozen=True, tag_field="delta", tag="response_bytes"):
    """A piece of what was received, unchanged."""

    body: bytes


# Why a response ended. "length" is the output limit: an incomplete call does not count.
Stop: TypeAlias = Literal["end", "calls", "length", "refused"]


class Done(Struct, frozen=True, tag_field="delta", tag="done"):
    """The proper end of a response. Without one, there is no response, whatever arrived."""

    usage: Usage = Usage()
    stop: Stop = "end"
    model: str = ""  # the model that responded, if the provider reports it
    by: str = ""  # provider/model, if another model than the requested one responded
    cost: float | None = None  # US dollars, if the provider reports it
    why: str = ""  # the provider's reason for a refusal
    by_agent: bool = False  # an agent's own program: it counts many requests as one
    paused: bool = False  # by the provider, and not by a limit, where `stop` is "length"
    warning: str = ""  # for the user, about how the response was made
    refused_tools: tuple[str, ...] = ()  # left out, because the provider refuses them


Delta: TypeAlias = (
    TextDelta | ThinkingDelta | CallDelta | HostedCall | HostedResult | Retrying | Dropped | RequestSent | ResponseBytes | Done
)  # fmt: skip


class Provider(Protocol):
    """One model.

    `stream` yields deltas and, last, exactly one `Done`. It raises
    `ProviderError` and nothing else (cancellation passes through), keeps no
    conversation between calls, and never runs a tool. A stream that breaks off
    before its proper end raises, or yields `Dropped` and begins again; it never
    ends quietly.
    """

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]: ...


@runtime_checkable
class Closable(Protocol):
    """A provider with open connections. After `aclose` the next request reopens them."""

    async def aclose(self) -> None: ...


def is_response_part(delta: Delta) -> bool:
    """Return True for a part of the response: a repeat then needs a `Dropped` first."""
    return not isinstance(delta, Retrying | Dropped | RequestSent | ResponseBytes)


class Attempt:
    """What a second attempt must know of the response so far."""

    def __init__(self) -> None:
        self.begun = self.hosted = False

    def take(self, delta: Delta) -> Delta:
        if isinstance(delta, Dropped):
            self.begun = self.hosted = False
        else:
            self.begun = self.begun or is_response_part(delta)
            # The provider has called a tool of a server, and would call it again.
            self.hosted = self.hosted or isinstance(delta, HostedCall)
        return delta
