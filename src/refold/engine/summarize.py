"""Compacts a conversation: prunes old tool results, or replaces old messages by a summary.

Facts that must not be lost are taken from the journal (`preserved`); a model summarizes only
the rest. If the model fails, the previous summary stays, the removed messages get no summary,
and the user gets a notice.
"""

import re

from msgspec.structs import replace

from refold.engine.budget import ask_outside_conversation
from refold.engine.context_usage import chars_per_token
from refold.engine.decide import CompactConversation
from refold.engine.preserved import PRESERVED_START, make_preserved_text
from refold.engine.prune import (
    find_cut,
    max_preserved_chars,
    max_summary_chars,
    prompt_fills_window,
    prunable_results,
    text_freed,
)
from refold.engine.world import Model, Record, World
from refold.errors import ProviderError
from refold.journal.events.kinds import Compacted
from refold.journal.state.conversation import message_size
from refold.journal.state.fold import View
from refold.prompts.summary import summary_prompt, summary_request
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

_DEFAULT_WINDOW_TOKENS = 32_000  # of an unknown model
_INPUT_SHARE = 0.6  # of the model's window, for the text to summarize
_MAX_CHARS_PER_TOKEN = 3.0  # for that text
_TASK_CHARS = 1_500  # of the task itself
_THINKING_TOKENS = 2_000
_MIN_OUTPUT_TOKENS = 256  # for a summary, without thinking
_SUMMARY_CHARS_PER_TOKEN = 3  # a low number, so that the tokens suffice for the summary
_MAX_OVERLENGTH = 4  # a summary of more than this many times its maximum is not used
_MIN_MESSAGE_CHARS = 200  # of a message that are always included
_MIN_SUMMARY_CHARS = 400  # a shorter summary would be useless
_SUMMARY_START = "<summary>\n"
_TAG_PATTERN = re.compile(r"<(/?)(summary|reminder)>", re.IGNORECASE)
_ESCAPED_TAG = r"<\\\1\2>"
_ESCAPED_TAG_PATTERN = re.compile(r"<\\(/?)(summary|reminder)>", re.IGNORECASE)


async def compact_conversation(
    action: CompactConversation, world: World, record: Record, author: str
) -> None:
    """Compact the conversation and record one `Compacted`, even if the model gives no summary.

    Do nothing while a call is open, or if a hook blocks the compaction. Record nothing if the
    conversation was rewound meanwhile, because the messages to keep no longer exist.
    """
    before = record.view.conversation
    if before.calls:
        return
    if world.hooks is not None and action.kind == "full":
        from refold.engine.run_hooks import run_before_compaction

        if await run_before_compaction(action.wanted, action.focus, world, record):
            return
    match action.kind:
        case "prune":
            event = _prune(action, record.view, world)
        case "full":
            event = await _replace_by_summary(action, world, record)

    def make_events(view: View) -> tuple[Compacted, ...]:
        """Return the compaction; none if the messages have changed since it was computed."""
        is_unchanged = (
            view.conversation.messages is before.messages and not view.conversation.calls
        )
        return (replace(event, focus=action.focus),) if is_unchanged else ()

    await record.append_if(make_events, author=author)


def _prune(action: CompactConversation, view: View, world: World) -> Compacted:
    """Return the compaction that replaces old results by one line each."""
    lines = prunable_results(view, keep=world.shares.results)
    size = view.conversation.size
    return Compacted(
        "prune",
        action.reason,
        pruned=lines,
        dropped=len(lines),
        size_before=size,
        size_after=size - text_freed(view, lines),
    )


async def _replace_by_summary(
    action: CompactConversation, world: World, record: Record
) -> Compacted:
    """Return the compaction that replaces the older messages by a summary of them."""
    view, shares = record.view, world.shares
    cut = find_cut(view, shares, asked=action.wanted)
    size = view.conversation.size
    if cut.index == 0 and not cut.results:
        reason = f"{action.reason}; there was nothing to compact"
        return Compacted("prune", reason, size_before=size, size_after=size)
    messages = view.conversation.messages
    old, kept = messages[: cut.index], messages[cut.index :]
    first_seq = kept[0].seq if kept else 0
    summary, failure = await _ask_for_summary(old, action, world, record)
    kind, reason, note = "full", action.reason, ""
    if failure:
        kind, reason = "trim", f"{action.reason}; no summary: {failure}"
        note = f"{len(old)} earlier messages were left out without a summary: {failure}."
    preserved = make_preserved_text(
        record.view, first_seq, max_preserved_chars(view, shares), note
    )
    size_of_kept = _size(kept) - text_freed(view, cut.results)
    return Compacted(
        kind,
        reason,
        pruned=cut.results,
        first_kept=first_seq,
        preserved=preserved,
        summary=summary,
        dropped=len(old),
        size_before=size,
        size_after=len(preserved) + len(summary) + size_of_kept,
    )


async def _ask_for_summary(
    old: tuple[StoredMessage, ...],
    action: CompactConversation,
    world: World,
    record: Record,
) -> tuple[str, str]:
    """Return the summary and "", or the previous summary and the reason why no new one
    was made.
    """
    view = record.view
    max_chars = max_summary_chars(view, world.shares)
    previous_summary = _previous_summary(old)
    if not any(s.message.role == "assistant" for s in old):
        # Only messages of the user are removed, and those are preserved.
        return previous_summary, ""
    if not action.wanted:
        # The limit is far above `max_chars`: a text that was cut to it is not taken for a short
        # one.
        old_text = _messages_text(old, 2 * max_chars + _MIN_MESSAGE_CHARS)
        if len(old_text) <= max_chars:
            return _tag_summary(old_text), ""  # a summary could not be shorter
        if max_chars < _MIN_SUMMARY_CHARS or prompt_fills_window(view, world.shares):
            return previous_summary, "there is no room for one"
    model = world.helper()
    request = _request(old, action.focus, max_chars, model, view)
    try:
        response = await ask_outside_conversation(
            request, "summary", model, world.budget, record, world.lineage.grant
        )
    except ProviderError as error:
        return previous_summary, str(error)
    summary = response.strip()
    if not summary:
        return previous_summary, "the summary was empty"
    if len(summary) > min(_size(old), _MAX_OVERLENGTH * max_chars):
        return previous_summary, "the summary was longer than what it stands for"
    return _tag_summary(summary), ""


def _tag_summary(text: str) -> str:
    """Return the text in summary tags, with the tags inside of it escaped."""
    return f"{_SUMMARY_START}{_TAG_PATTERN.sub(_ESCAPED_TAG, text)}\n</summary>"


def without_tags(summary: str) -> str:
    """Return the summary as the model wrote it, without the tags with which it is
    recorded.
    """
    inside = summary.removeprefix(_SUMMARY_START).removesuffix("\n</summary>")
    return _ESCAPED_TAG_PATTERN.sub(r"<\1\2>", inside)


def _previous_summary(old: tuple[StoredMessage, ...]) -> str:
    """Return the summary with which the `old` messages begin; "" if they begin with none."""
    parts = old[0].message.parts if old else ()
    match parts:
        case (Text(first), Text(text)) if first.startswith(PRESERVED_START):
            return text if text.startswith(_SUMMARY_START) else ""
        case _:
            return ""


def _request(
    old: tuple[StoredMessage, ...], focus: str, char_limit: int, model: Model, view: View
) -> Request:
    """Return the request for a summary of the `old` messages, small enough for the window."""
    window = model.window or _DEFAULT_WINDOW_TOKENS
    token_chars = min(chars_per_token(view), _MAX_CHARS_PER_TOKEN)
    max_chars = int(window * _INPUT_SHARE * token_chars) - _TASK_CHARS
    text = _messages_text(old, max(max_chars, _TASK_CHARS))
    task = summary_request(text, focus, char_limit)
    # Thinking also needs output tokens, but everything must fit the window.
    window_left = window * (1 - _INPUT_SHARE)
    summary_tokens = max(_MIN_OUTPUT_TOKENS, char_limit // _SUMMARY_CHARS_PER_TOKEN)
    thinking_tokens = min(_THINKING_TOKENS, int(window_left / 2))
    message = Message("user", (Text(task),))
    return Request(
        Log([StoredMessage(seq=0, message=message)]),
        system=summary_prompt(),
        model=model.name.partition("/")[2],
        tool_choice="none",
        max_output=min(summary_tokens + thinking_tokens, int(window_left)),
    )


def _messages_text(old: tuple[StoredMessage, ...], max_chars: int) -> str:
    """Return the messages as text of at most `max_chars`.

    Long messages are cut. If that is not enough, the oldest messages except the first are left
    out.
    """
    max_message_chars = max_chars
    while True:
        lines = [line for s in old for line in _lines(s.message, max_message_chars)]
        size = sum(len(line) + 1 for line in lines)
        if size <= max_chars or max_message_chars <= _MIN_MESSAGE_CHARS:
            break
        max_message_chars = max(_MIN_MESSAGE_CHARS, max_message_chars // 2)
    while size > max_chars and len(lines) > 1:
        oldest_line = lines.pop(1)  # after the first message, which states the task
        size -= len(oldest_line) + 1
    return "\n".join(lines)


def _lines(message: Message, max_chars: int) -> list[str]:
    """Return a line for each part of the message that has a text.

    Each line begins with the speaker, and its text is cut to about `max_chars`.
    """
    speaker = {"user": "person", "assistant": "assistant", "tool": "result"}[message.role]
    return [
        f"{speaker}: {_shorten(text, max_chars)}"
        for part in message.parts
        if (text := _part_text(part))
    ]


def _part_text(part: Part) -> str:
    """Return a part as text for the summary; "" if the part is left out."""
    match part:
        case Text(text):
            # Preserved text is repeated anyway, and reminders are outdated by now.
            return "" if text.startswith((PRESERVED_START, "<reminder>")) else text
        case ToolCall(_, name, arguments):
            return f"called {name} {bytes(arguments).decode(errors='replace')}"
        case ToolResult(_, text, images=images):
            return " ".join([text, *map(_image_text, images)])
        case Image():
            return _image_text(part)
        case Thinking():
            return ""


def _image_text(image: Image) -> str:
    return f"[an image: {image.name or image.media_type}]"


def _shorten(text: str, max_chars: int) -> str:
    """Return the text; if it is longer than `max_chars`, only its beginning and its end."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]} … {text[-half:]}"


def _size(messages: tuple[StoredMessage, ...]) -> int:
    return sum(message_size(stored.message) for stored in messages)
