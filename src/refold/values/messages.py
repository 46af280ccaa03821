"""The words of a conversation: what was said, thought, called and answered.

Every type here is a frozen value. Two messages that hold the same words are
equal, whoever made them; numbers, files and screens are other rooms' business.
JSON we only carry stays `Raw`: nobody here needs to look into it.
"""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct


class Text(Struct, frozen=True, tag="text"):
    text: str


class Image(Struct, frozen=True, tag="image"):
    """A picture. Its bytes are the blob of that name; `kind` is as in "image/png"."""

    blob: str
    media_type: str
    name: str = ""  # as a person knows it: a file's name


class Thinking(Struct, frozen=True, tag="thinking"):
    """What a model thought aloud.

    `data` is what the provider that `wire` stands for wants back unchanged (a
    signature, an encrypted block): the wire's own, or another as wire@provider.
    Everybody else is sent nothing of it.
    """

    text: str
    wire: str = ""
    data: Raw = Raw(b"null")


class ToolCall(Struct, frozen=True, tag="call"):
    """The model asks for a tool by name. `id` is ours, `theirs` the provider's.

    `data` is what the provider that `wire` stands for wants back unchanged with it. `via`
    is the tool that the model asked to make this call: to it, that one was called.
    """

    id: str
    name: str
    arguments: Raw
    provider_id: str = ""
    wire: str = ""
    data: Raw = Raw(b"null")
    via: str = ""


class ToolResult(Struct, frozen=True, tag="result"):
    """What a call came to. A failure is an answer too: the model reads it."""

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
        """Those in its parts, and those that its results brought."""
        own = tuple([p for p in self.parts if isinstance(p, Image)])
        return sum([p.images for p in self.parts if isinstance(p, ToolResult)], own)

    @property
    def text(self) -> str:
        return "".join([p.text for p in self.parts if isinstance(p, Text)])


class Spoken(Struct, frozen=True):
    """A message, and the seq that put it there: same seq, same talk up to it."""

    seq: int
    message: Message


# What was said or done at one place of a session, as it can be found again.


class SearchHit(Struct, frozen=True):
    """`call` is the id of the call that it came of, or ""."""

    seq: int
    what: str  # "person", "assistant", "call of bash", "result of bash"
    text: str
    call: str = ""
