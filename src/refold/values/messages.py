"""The messages of a conversation: text, thinking, calls and results.

Every type is a frozen value; messages with the same content are equal. JSON that is only
passed on stays `Raw`.
"""

from typing import Literal, TypeAlias

from msgspec import DecodeError, Raw, Struct, json


class Text(Struct, frozen=True, tag="text"):
    text: str


class Image(Struct, frozen=True, tag="image"):
    """An image. Its bytes are the blob of that name; `media_type` is as in "image/png"."""

    blob: str
    media_type: str
    name: str = ""  # as a person knows it: a file's name


class Thinking(Struct, frozen=True, tag="thinking"):
    """The thinking of a model.

    `data` is what the provider of `wire` needs back unchanged (a signature, an encrypted
    block); `wire` is its name, or wire@provider. Other providers are sent nothing of it.
    """

    text: str
    wire: str = ""
    data: Raw = Raw(b"null")


class ToolCall(Struct, frozen=True, tag="call"):
    """A call of a tool. `id` is ours, `provider_id` the provider's.

    `data` is what the provider of `wire` needs back unchanged. `via` is the tool that the
    model called to make this call, such as `tool_call`; the model sees that one.
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
        """The arguments as data, or as text if they are not JSON."""
        try:
            return json.decode(self.arguments)
        except (DecodeError, RecursionError):
            return bytes(self.arguments).decode(errors="replace")


class ToolResult(Struct, frozen=True, tag="result"):
    """The result of a call. A failure is a result, too, which the model reads."""

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
        """The images in its parts and in its results."""
        own = tuple([p for p in self.parts if isinstance(p, Image)])
        return sum([p.images for p in self.parts if isinstance(p, ToolResult)], own)

    @property
    def text(self) -> str:
        return "".join([p.text for p in self.parts if isinstance(p, Text)])


class StoredMessage(Struct, frozen=True):
    """A message with the seq of its event: same seq, same conversation up to it."""

    seq: int
    message: Message


class SearchHit(Struct, frozen=True):
    """A message or call with its sequence number, as history search returns it."""

    seq: int
    what: str  # "person", "assistant", "call of bash", "result of bash"
    text: str
    call: str = ""
    outside: bool = False  # `text` is from outside
