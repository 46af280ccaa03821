"""The messages of a conversation: text, thinking, calls and results.

Every type is a frozen value; messages with the same content are equal. JSON that refold does
not read itself stays `Raw`.
"""

from typing import Literal, TypeAlias

from msgspec import DecodeError, Raw, Struct, json


class Text(Struct, frozen=True, tag="text"):
    text: str


class Image(Struct, frozen=True, tag="image"):
    """An image. `blob` names the blob with its bytes; `media_type` is like "image/png"."""

    blob: str
    media_type: str
    name: str = ""  # the name that a person uses: a file name


class Thinking(Struct, frozen=True, tag="thinking"):
    """The thinking of a model.

    `data` is what the provider of `wire` needs back unchanged (a signature, an encrypted
    block). `wire` is the wire's name, or wire@provider. `data` is never sent to another
    provider.
    """

    text: str
    wire: str = ""
    data: Raw = Raw(b"null")


class ToolCall(Struct, frozen=True, tag="call"):
    """A call of a tool. `id` is refold's id for the call, `provider_id` the provider's.

    `data` is what the provider of `wire` needs back unchanged. `via` is the tool that the model
    called to make this call, such as `tool_call`; requests show the model a call of that tool.
    """

    id: str
    name: str
    arguments: Raw
    provider_id: str = ""
    wire: str = ""
    data: Raw = Raw(b"null")
    via: str = ""

    @property
    def plain_arguments(self) -> object:
        """The arguments, decoded from JSON; if they are not JSON, their text."""
        try:
            return json.decode(self.arguments)
        except (DecodeError, RecursionError):
            return bytes(self.arguments).decode(errors="replace")


class ToolResult(Struct, frozen=True, tag="result"):
    """The result of a call, which the model reads. A failed call has a result, too."""

    call_id: str
    text: str
    failed: bool = False
    images: tuple[Image, ...] = ()


Part: TypeAlias = Text | Image | Thinking | ToolCall | ToolResult
Role: TypeAlias = Literal["user", "assistant", "tool"]


class Message(Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([p for p in self.parts if isinstance(p, ToolCall)])

    @property
    def images(self) -> tuple[Image, ...]:
        """The images in the parts of this message and in its tool results."""
        own = tuple([p for p in self.parts if isinstance(p, Image)])
        return sum([p.images for p in self.parts if isinstance(p, ToolResult)], own)

    @property
    def text(self) -> str:
        return "".join([p.text for p in self.parts if isinstance(p, Text)])


class StoredMessage(Struct, frozen=True):
    """A message with the sequence number of its event.

    If two conversations of one session end at the same `seq`, they are equal.
    """

    seq: int
    message: Message


class SearchHit(Struct, frozen=True):
    """A message or a call, with the number of its event, as the search of the history returns
    it.
    """

    seq: int
    what: str  # "person", "assistant", "call of bash", "result of bash"
    text: str
    call: str = ""
    outside: bool = False  # `text` is from outside
