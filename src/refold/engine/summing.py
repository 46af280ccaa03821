"""A talk is told shorter: old results as lines, or a summary of what is old.

What must not be lost comes from the journal (`carried`); a model only tells the rest. If
that fails, the oldest goes without a summary, and that is said.
"""

import msgspec

from refold.engine.carried import CARRIED, carried
from refold.engine.decide import Shrink
from refold.engine.shrinking import (
    Cut,
    carried_room,
    cut,
    freed,
    prunable,
    summary_room,
)
from refold.engine.spending import ask_beside
from refold.engine.world import Aide, Record, World
from refold.errors import ProviderError
from refold.journal.events import Compacted
from refold.journal.fold import View
from refold.journal.talk import part_size
from refold.prompts.summary import asked_for, summary_prompt
from refold.provider.port import Request
from refold.values.log import Log
from refold.values.messages import (
    Image,
    Message,
    Part,
    Spoken,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_UNKNOWN = 32_000  # tokens that a model reads of which nothing is known
_SHARE = 0.6  # of its window, for what it has to sum up
_LEAST = 200  # characters of one message that are always told


async def shrink(action: Shrink, world: World, record: Record, by: str) -> None:
    """Tell the talk shorter from here on. Records one `Compacted`, whatever comes of it."""
    match action.kind:
        case "prune":
            event = _pruned(action, record.view, world)
        case "full":
            event = await _summed_up(action, world, record)
    await record(event, by=by)


def _pruned(action: Shrink, view: View, world: World) -> Compacted:
    lines = prunable(view, world.shares.results)
    size = view.talk.size
    after = size - freed(view, lines)
    return Compacted(
        "prune", action.reason, lines, dropped=len(lines), before=size, after=after
    )


async def _summed_up(action: Shrink, world: World, record: Record) -> Compacted:
    view, shares = record.view, world.shares
    found = cut(view, shares, asked=bool(view.talk.wanted))
    size = view.talk.size
    if found.at == 0 and not found.results:
        reason = f"{action.reason}; there was nothing to make shorter"
        return Compacted("prune", reason, before=size, after=size)
    old, stay = view.talk.messages[: found.at], view.talk.messages[found.at :]
    kept = stay[0].seq if stay else 0
    summary, failed = await _summary(old, action.focus, world, record)
    why = (
        f"{len(old)} earlier messages were left out without a summary: {failed}."
        if failed
        else ""
    )
    told = carried(view, kept, carried_room(view, shares), why)
    return Compacted(
        "trim" if failed else "full",
        f"{action.reason}; no summary: {failed}" if failed else action.reason,
        found.results,
        kept,
        told,
        summary,
        dropped=len(old),
        before=size,
        after=len(told) + len(summary) + _size_after(stay, found),
    )


async def _summary(
    old: tuple[Spoken, ...], focus: str, world: World, record: Record
) -> tuple[str, str]:
    """The summary, or why there is none."""
    if not any(s.message.role == "assistant" for s in old):
        return "", ""  # only words, and those are carried
    room = summary_room(record.view, world.shares)
    aide = world.helper()
    request = _request(old, focus, room, aide)
    try:
        text = (await ask_beside(request, "summary", aide, world.budget, record)).strip()
    except ProviderError as error:
        return "", str(error)
    if not text:
        return "", "the summary was empty"
    if len(text) > min(sum(map(_size, old)), 4 * room):
        return "", "the summary was longer than what it stands for"
    text = text.replace("</summary>", "<\\/summary>")
    return f"<summary>\n{text}\n</summary>", ""


def _request(old: tuple[Spoken, ...], focus: str, room: int, aide: Aide) -> Request:
    most = int((aide.window or _UNKNOWN) * _SHARE * 3)
    words = asked_for(_told(old, most), focus, room)
    return Request(
        Log([Spoken(0, Message("user", (Text(words),)))]),
        summary_prompt(),
        model=aide.model.partition("/")[2],
        tool_choice="none",
        max_output=max(256, room // 3),
    )


def _told(old: tuple[Spoken, ...], most: int) -> str:
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
            return "" if text.startswith((CARRIED, "<reminder>")) else text
        case ToolCall(_, name, arguments):
            return f"called {name} {msgspec.json.decode(arguments)}"
        case ToolResult(_, text):
            return text
        case Thinking() | Image():
            return ""


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {text[-half:]}"


def _size(spoken: Spoken) -> int:
    return sum(map(part_size, spoken.message.parts))


def _size_after(stay: tuple[Spoken, ...], found: Cut) -> int:
    lines = dict(found.results)
    whole = sum(map(_size, stay))
    results = (p for s in stay for p in s.message.parts if isinstance(p, ToolResult))
    return whole - sum(
        len(r.text) - len(lines[r.call_id]) for r in results if r.call_id in lines
    )
