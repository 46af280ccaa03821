"""Compaction: prunes old tool results, or replaces old messages by a summary.

What must not be lost comes from the journal (`preserved`); a model summarizes only the
rest. If that fails, the previous summary stays, the rest is dropped without one, and the
user is told.
"""

import re

from msgspec.structs import replace

from refold.engine.budget import ask_outside_conversation
from refold.engine.context_usage import ratio
from refold.engine.decide import CompactConversation
from refold.engine.preserved import PRESERVED_START, preserved_text
from refold.engine.prune import (
    find_cut,
    preserved_room,
    prompt_fills_window,
    prunable,
    summary_room,
    text_freed,
)
from refold.engine.world import Model, Record, World
from refold.errors import ProviderError
from refold.journal.events.kinds import Compacted
from refold.journal.state.conversation import message_size
from refold.journal.state.fold import View
from refold.prompts.summary import asked_for, summary_prompt
from refold.provider.port import Request
from refold.values.growing import Log
from refold.values.messages import (
    Image,
    Message,
    Part,
    StoredMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_UNKNOWN = 32_000  # tokens that a model reads of which nothing is known
_SHARE = 0.6  # of its window, for what it has to sum up
_DENSE = 3.0  # characters of a token there, at most
_ASIDE = 1_500  # characters of the task itself
_THOUGHT = 2_000  # tokens
_LEAST = 200  # characters of one message that are always told
_WORTH = 400  # characters; a shorter summary says nothing
_BEGINS = "<summary>\n"
_TAGS = re.compile(r"<(/?)(summary|reminder)>", re.IGNORECASE)
_TAMED = r"<\\\1\2>"
_WAS_TAMED = re.compile(r"<\\(/?)(summary|reminder)>", re.IGNORECASE)


async def compact_conversation(
    action: CompactConversation, world: World, record: Record, by: str
) -> None:
    """Compact the conversation. Records one `Compacted`, whatever the outcome.

    It records none while a call is open, or if the conversation was rewound meanwhile: what
    would stay no longer exists.
    """
    before = record.view.conversation
    if before.calls:
        return
    if world.hooks is not None and action.kind == "full":
        from refold.engine.run_hooks import before_compaction

        if await before_compaction(action.wanted, action.focus, world, record):
            return
    match action.kind:
        case "prune":
            event = _pruned(action, record.view, world)
        case "full":
            event = await _summed_up(action, world, record)

    def make_events(view: View) -> tuple[Compacted, ...]:
        same = view.conversation.messages is before.messages and not view.conversation.calls
        return (replace(event, focus=action.focus),) if same else ()

    await record.append_if(make_events, by=by)


def _pruned(action: CompactConversation, view: View, world: World) -> Compacted:
    lines = prunable(view, world.shares.results)
    size = view.conversation.size
    after = size - text_freed(view, lines)
    return Compacted(
        "prune",
        action.reason,
        lines,
        dropped=len(lines),
        size_before=size,
        size_after=after,
    )


async def _summed_up(
    action: CompactConversation, world: World, record: Record
) -> Compacted:
    view, shares = record.view, world.shares
    found = find_cut(view, shares, asked=action.wanted)
    size = view.conversation.size
    if found.at == 0 and not found.results:
        reason = f"{action.reason}; there was nothing to compact"
        return Compacted("prune", reason, size_before=size, size_after=size)
    old, stay = (
        view.conversation.messages[: found.at],
        view.conversation.messages[found.at :],
    )
    kept = stay[0].seq if stay else 0
    summary, failed = await _summary(old, action, world, record)
    why = (
        f"{len(old)} earlier messages were left out without a summary: {failed}."
        if failed
        else ""
    )
    told = preserved_text(record.view, kept, preserved_room(view, shares), why)
    return Compacted(
        "trim" if failed else "full",
        f"{action.reason}; no summary: {failed}" if failed else action.reason,
        found.results,
        kept,
        told,
        summary,
        dropped=len(old),
        size_before=size,
        size_after=len(told) + len(summary) + _size(stay) - text_freed(view, found.results),
    )


async def _summary(
    old: tuple[StoredMessage, ...],
    action: CompactConversation,
    world: World,
    record: Record,
) -> tuple[str, str]:
    """The summary, and why there is no new one; then the previous one stays."""
    view, room = record.view, summary_room(record.view, world.shares)
    before = _before(old)
    if not any(s.message.role == "assistant" for s in old):
        return before, ""  # only words, and those are carried
    if not action.wanted and len(short := _told(old, 2 * room + _LEAST)) <= room:
        return _tagged(short), ""  # a summary could not be shorter
    if not action.wanted and (room < _WORTH or prompt_fills_window(view, world.shares)):
        return before, "there is no room for one"
    aide = world.helper()
    request = _request(old, action.focus, room, aide, view)
    try:
        said = await ask_outside_conversation(
            request, "summary", aide, world.budget, record, world.lineage.grant
        )
        text = said.strip()
    except ProviderError as error:
        return before, str(error)
    if not text:
        return before, "the summary was empty"
    if len(text) > min(_size(old), 4 * room):
        return before, "the summary was longer than what it stands for"
    return _tagged(text), ""


def _tagged(text: str) -> str:
    """As material: no tag in it ends this one, or begins one of ours."""
    return f"{_BEGINS}{_TAGS.sub(_TAMED, text)}\n</summary>"


def without_tags(summary: str) -> str:
    """The model's own words of a summary as it is recorded."""
    inside = summary.removeprefix(_BEGINS).removesuffix("\n</summary>")
    return _WAS_TAMED.sub(r"<\1\2>", inside)


def _before(old: tuple[StoredMessage, ...]) -> str:
    """The summary at the beginning of the part that is removed, or ""."""
    parts = old[0].message.parts if old else ()
    match parts:
        case (Text(first), Text(text)) if first.startswith(PRESERVED_START):
            return text if text.startswith(_BEGINS) else ""
        case _:
            return ""


def _request(
    old: tuple[StoredMessage, ...], focus: str, room: int, aide: Model, view: View
) -> Request:
    window = aide.window or _UNKNOWN
    most = int(window * _SHARE * min(ratio(view), _DENSE)) - _ASIDE
    words = asked_for(_told(old, max(most, _ASIDE)), focus, room)
    # A model that thinks first needs room for that, too; but all has to fit its window.
    output = max(256, room // 3) + min(_THOUGHT, int(window * (1 - _SHARE) / 2))
    return Request(
        Log([StoredMessage(0, Message("user", (Text(words),)))]),
        summary_prompt(),
        model=aide.name.partition("/")[2],
        tool_choice="none",
        max_output=min(output, int(window * (1 - _SHARE))),
    )


def _told(old: tuple[StoredMessage, ...], most: int) -> str:
    """The messages as text, each cut more the more there are, and the oldest before all."""
    longest = most
    while True:
        lines = [line for s in old for line in _lines(s.message, longest)]
        size = sum(len(line) + 1 for line in lines)
        if size <= most or longest <= _LEAST:
            break
        longest = max(_LEAST, longest // 2)
    while size > most and len(lines) > 1:
        size -= len(lines.pop(1)) + 1  # the first says what it is all about
    return "\n".join(lines)


def _lines(message: Message, longest: int) -> list[str]:
    who = {"user": "person", "assistant": "assistant", "tool": "result"}[message.role]
    return [
        f"{who}: {_cut(text, longest)}" for part in message.parts if (text := _words(part))
    ]


def _words(part: Part) -> str:
    match part:
        case Text(text):
            # What the journal carries is told again, and reminders were for then.
            return "" if text.startswith((PRESERVED_START, "<reminder>")) else text
        case ToolCall(_, name, arguments):
            return f"called {name} {bytes(arguments).decode(errors='replace')}"
        case ToolResult(_, text, images=images):
            return " ".join([text, *map(_shown, images)])
        case Image():
            return _shown(part)
        case Thinking():
            return ""


def _shown(image: Image) -> str:
    return f"[an image: {image.name or image.media_type}]"


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {text[-half:]}"


def _size(messages: tuple[StoredMessage, ...]) -> int:
    return sum(message_size(each.message) for each in messages)
