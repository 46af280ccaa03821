"""The interface of a provider: the request that it gets, and the deltas that it yields."""

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
    """An MCP server to which the provider itself connects, with credentials for it."""

    name: str
    url: str
    token: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # headers besides the token

    def __repr__(self) -> str:
        return f"HostedServer({self.name!r}, {self.url!r}, …)"


class Request(Struct, frozen=True):
    """Everything that a model needs for one response.

    `pictures` has the images that the messages name; a missing image is replaced by a
    description. The first `shared` characters of `system` are the same in other sessions, so a
    provider may cache what it computed for them. `schema`, unless it is `null`, is the JSON
    Schema that a response without calls should match, and `stops` are texts before which a
    response should end; not every provider enforces them, so the caller checks. With `trace`,
    the stream also contains the data as sent and received, as `RequestSent` and
    `ResponseBytes`. `hosted` is for providers that connect to MCP servers themselves; others
    ignore it. A provider stores no conversation between requests.
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
    # the same for all requests of one session: a key for a provider's cache
    session: str = ""
    trace: bool = False
    shared: int = 0
    temperature: float | None = None  # None: the provider's default
    hosted: tuple[HostedServer, ...] = ()


class TextDelta(Struct, frozen=True, tag_field="delta", tag="text"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="delta", tag="thinking"):
    """A piece of thinking. If it has `data`, it is the last piece of a block.

    `data` must be sent back unchanged, but only to a provider of the wire `wire`.
    """

    text: str = ""
    wire: str = ""
    data: Raw = Raw(b"")


class CallDelta(Struct, frozen=True, tag_field="delta", tag="call"):
    """A piece of a tool call.

    Pieces with the same `index` belong to the same call. The first of them has `name` (and
    `id`, if the provider has ids). `data` must be sent back with the call, unchanged, but only
    to a provider of the wire `wire`.
    """

    index: int
    arguments: str = ""
    id: str = ""
    name: str = ""
    wire: str = ""
    data: Raw = Raw(b"")


class HostedCall(Struct, frozen=True, tag_field="delta", tag="hosted_call"):
    """The provider itself calls a tool of an MCP server. `name` begins with mcp__.

    A `HostedResult` with the same id follows, unless the response is cut off before.
    """

    id: str
    name: str


class HostedResult(Struct, frozen=True, tag_field="delta", tag="hosted_result"):
    """The arguments and the result of a `HostedCall`.

    `data` must be sent back unchanged, but only to a provider of the wire `wire`.
    """

    id: str
    arguments: str
    text: str
    failed: bool = False
    wire: str = ""
    data: Raw = Raw(b"")


class Retrying(Struct, frozen=True, tag_field="delta", tag="retrying"):
    """A notice, for display, that a request will be sent again, and why.

    `wait` is the time in seconds until then. `attempt` and `attempts` count all attempts for
    the request; 0 means that they are not counted.
    """

    wait: float
    reason: str
    attempt: int = 0
    attempts: int = 0


class Dropped(Struct, frozen=True, tag_field="delta", tag="dropped"):
    """All earlier deltas are invalid, because the response failed. A new response follows.

    `kind` is the class of the error. A caller that records responses must record the failed
    response before it reads the next delta, because only then the request is sent again.
    """

    reason: str
    kind: str


class RequestSent(Struct, frozen=True, tag_field="delta", tag="request_sent"):
    """The request that was just sent, byte for byte. Each retry yields one, too."""

    to: str  # "POST https://…", or a command line
    body: bytes


class ResponseBytes(Struct, frozen=True, tag_field="delta", tag="response_bytes"):
    """A piece of the received bytes, unchanged."""

    body: bytes


# Why a response ended. "length" is the output limit, at which an incomplete call is not
# made.
Stop: TypeAlias = Literal["end", "calls", "length", "refused"]


class Done(Struct, frozen=True, tag_field="delta", tag="done"):
    """The last delta of a complete response. A response without it does not count."""

    usage: Usage = Usage()
    stop: Stop = "end"
    model: str = ""  # the model that responded, if the provider reports it
    by: str = ""  # provider/model, if another model than the requested one responded
    cost: float | None = None  # US dollars, if the provider reports it
    why: str = ""  # the provider's reason for a refusal
    # an agent's own program responded, which counts many requests as one
    by_agent: bool = False
    # whether the provider paused, if `stop` is "length", instead of reaching a limit
    paused: bool = False
    warning: str = ""  # a sentence for the user about how the response was made
    # tools that were left out, because the provider refuses them
    refused_tools: tuple[str, ...] = ()


Delta: TypeAlias = (
    TextDelta | ThinkingDelta | CallDelta | HostedCall | HostedResult | Retrying | Dropped | RequestSent | ResponseBytes | Done
)  # fmt: skip


class Provider(Protocol):
    """Access to one or more models.

    `stream` yields deltas and, last, exactly one `Done`. It raises only `ProviderError` (and
    passes cancellation on), stores no conversation between calls, and never runs a tool. If a
    response breaks off, it raises an error, or yields `Dropped` and begins again; it never just
    ends.
    """

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]: ...


@runtime_checkable
class Closable(Protocol):
    """A provider with open connections, which `aclose` closes and the next request reopens."""

    async def aclose(self) -> None: ...


def is_response_part(delta: Delta) -> bool:
    """Whether a delta is part of the response, so that a repeat needs a `Dropped` first."""
    return not isinstance(delta, Retrying | Dropped | RequestSent | ResponseBytes)


class Attempt:
    """Observes the deltas of a response, to decide whether the request may be sent again."""

    def __init__(self) -> None:
        self.begun = self.hosted = False

    def take(self, delta: Delta) -> Delta:
        """Observe a delta, and return it unchanged. `Dropped` resets the state."""
        if isinstance(delta, Dropped):
            self.begun = self.hosted = False
        else:
            self.begun = self.begun or is_response_part(delta)
            # The provider has called a tool of a server, and would call it again in a
            # retry.
            self.hosted = self.hosted or isinstance(delta, HostedCall)
        return delta
