"""Context modes and formats for providers that take messages: a wrapper of a provider.

It sends only the messages of the mode, or all of them as one text. `command.prompt` decides which
messages these are and how a text is written; command lines use it directly. The conversation of
the session stays as it is.
"""

from collections.abc import AsyncGenerator, Sequence

from msgspec.structs import replace

from refold.provider.command.prompt import instead, transcript, whole_places, written
from refold.provider.command.spec import ConversationFormat
from refold.provider.port import Closable, Delta, Provider, Request
from refold.values.growing import Log
from refold.values.messages import Image, Message, Part, StoredMessage, Text

_WINDOW = 20  # messages
# Otherwise a model may imitate how calls are described.
_CALLS = (
    "Calls and results are described in brackets. Make a call with the tools that you are "
    "given, never as text."
)


class InContext:
    """The provider, with as much of a conversation as `wanted` says."""

    def __init__(self, inner: Provider, wanted: ConversationFormat) -> None:
        self.inner, self._wanted = inner, wanted

    def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        tools = bool(request.tools)
        messages = in_context(request.messages, self._wanted, tools=tools)
        return self.inner.stream(replace(request, messages=messages))

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()


def in_context(
    conversation: Sequence[StoredMessage], wanted: ConversationFormat, *, tools: bool
) -> Log[StoredMessage]:
    """The messages that are sent. A single message is sent as it is, in every format."""
    context, window = wanted.context or "continue", wanted.window or _WINDOW
    messages = [spoken.message for spoken in conversation]
    places = whole_places(messages, context, window)
    chosen, gap = list[StoredMessage](), list[StoredMessage]()
    for place, spoken in enumerate(conversation):
        if place not in places:
            gap.append(spoken)
            continue
        for note in instead([each.message for each in gap], context):
            chosen.append(StoredMessage(gap[-1].seq, Message("user", (Text(note.text),))))
        gap = []
        chosen.append(spoken)
    if not wanted.format or len(chosen) < 2:
        return Log(chosen)
    lines = transcript(conversation, context, window, _CALLS if tools else "")
    text = written(lines, wanted.format)
    images = (p for s in chosen for p in s.message.parts if isinstance(p, Image))
    parts: tuple[Part, ...] = (Text(text), *images)
    return Log([StoredMessage(chosen[-1].seq, Message("user", parts))])
