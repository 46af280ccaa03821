"""Shows which parts of the next request fill the context window. Pure.

Tokens are estimated: characters, divided by the characters per token of the last response whose
tokens the provider counted. So the sum is close to the provider's count. When the window is
nearly full, the engine compacts the conversation.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from refold.journal.state.conversation import (
    IMAGE_TOKENS,
    Conversation,
    part_size,
    tool_size,
)
from refold.journal.state.fold import View
from refold.values.messages import (
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.views.escape import escape_to_one_line
from refold.views.number_format import tokens
from refold.views.styled import Line, Style, line
from refold.views.wrap import cells

_BAR_CELLS = 30
_FREE_NAME = "free"
# The names of the parts of the conversation, in the order in which they are shown.
_CONVERSATION_PARTS: tuple[str, ...] = (
    "messages",
    "responses",
    "thinking",
    "tool calls",
    "tool results",
    "reminders",
    "summary",
)


class RequestPart(Struct, frozen=True):
    """A part of the next request to the model. `tokens` is an estimate."""

    name: str
    characters: int
    tokens: int


class ContextUsage(Struct, frozen=True):
    """How full the context window is, by the parts of the next request.

    `counted` is the number of tokens that the provider counted at the last response, or 0.
    """

    model: str
    window: int  # tokens
    known: bool  # whether the window is the model's own, not an assumed one
    ratio: float  # characters per token
    prompt: tuple[RequestPart, ...]  # system prompt and tools
    conversation: tuple[RequestPart, ...]
    tools: tuple[RequestPart, ...]  # each tool; their sum is a part of `prompt`
    counted: int = 0

    @property
    def used_tokens(self) -> int:
        return sum(portion.tokens for portion in (*self.prompt, *self.conversation))

    @property
    def free_tokens(self) -> int:
        return max(0, self.window - self.used_tokens)

    def share(self, count: int) -> float:
        """Return the percentage of the context window that `count` tokens take."""
        return 100 * count / self.window if self.window else 0.0


def context_usage(view: View, default_window: int = 32_000) -> ContextUsage:
    """Return the usage of the context window by the next request.

    `default_window` is the assumed size of the window in tokens if it is unknown.
    """
    conversation, last = view.conversation, view.account.last_usage
    system_prompt = conversation.system_prompt
    prompt_sizes = [
        *_system_prompt_sizes(conversation),
        ("tools", sum(map(tool_size, system_prompt.tools))),
    ]
    sizes = _conversation_sizes(conversation)
    ratio = conversation.chars_per_token
    portions = _portions(sizes, ratio)
    if conversation.images:
        count = IMAGE_TOKENS * len(conversation.images)
        portions = (*portions, RequestPart("images", 0, count))
    return ContextUsage(
        model=system_prompt.model,
        window=system_prompt.window or default_window,
        known=bool(system_prompt.window),
        ratio=ratio,
        prompt=_portions(prompt_sizes, ratio),
        conversation=portions,
        tools=_portions(
            [(tool.name, tool_size(tool)) for tool in system_prompt.tools], ratio
        ),
        counted=last.input + last.output if last.input else 0,
    )


def context_lines(usage: ContextUsage, *, symbols: bool = True) -> list[Line]:
    """Return the usage as lines for the screen, in ASCII if `symbols` is false."""
    if not usage.used_tokens:
        return [line("Nothing has been sent to a model yet.")]
    percent = _percent(usage.share(usage.used_tokens))
    used, window = tokens(usage.used_tokens), tokens(usage.window)
    note = "" if usage.known else " (assumed: the model's own is not known)"
    head: Line = (
        ("strong", escape_to_one_line(usage.model) or "no model"),
        ("plain", f" · about {used} of {window} tokens{note} · {percent}"),
    )
    rows = [head, _bar(usage, symbols=symbols), *_rows(usage)]
    if usage.counted:
        text = f"counted by the provider at its last answer: {tokens(usage.counted)}"
        rows.append(line(text, "dim"))
    return rows


def context_document(usage: ContextUsage) -> dict[str, object]:
    """Return the usage of the context window as a JSON document."""
    return {
        "type": "context",
        "model": usage.model,
        "window": usage.window,
        "window_known": usage.known,
        "used": usage.used_tokens,
        "free": usage.free_tokens,
        "percent": round(usage.share(usage.used_tokens), 2),
        "counted": usage.counted or None,  # None: no provider has reported a count yet
        "characters_per_token": round(usage.ratio, 2),
        "parts": [_document(usage, "prompt", portion) for portion in usage.prompt]
        + [_document(usage, "conversation", portion) for portion in usage.conversation],
        "tools": usage.tools,
    }


def _document(usage: ContextUsage, group: str, portion: RequestPart) -> dict[str, object]:
    """Return the usage of one part of the request. `group` is "prompt" or "conversation"."""
    return {
        "group": group, "name": portion.name, "characters": portion.characters,
        "tokens": portion.tokens, "percent": round(usage.share(portion.tokens), 2),
    }  # fmt: skip


def _system_prompt_sizes(conversation: Conversation) -> Iterator[tuple[str, int]]:
    """Yield the name and size of each part of the system prompt.

    Text that belongs to no part is named "prompt".
    """
    sizes = dict[str, int]()
    for name, size in conversation.system_prompt.parts:
        sizes[name] = sizes.get(name, 0) + size
    # Text between the parts, or the complete text if it has none.
    unnamed_size = len(conversation.system_prompt.system) - sum(sizes.values())
    if unnamed_size > 0:
        sizes = {"prompt": 0, **sizes}  # "prompt" is the first of them
        sizes["prompt"] += unnamed_size
    yield from sizes.items()


def _conversation_sizes(conversation: Conversation) -> Sequence[tuple[str, int]]:
    """Return the name and the size in characters of each part of the conversation."""
    sizes = dict.fromkeys(_CONVERSATION_PARTS, 0)
    user_texts = {message.text for message in conversation.user_messages}
    for index, stored in enumerate(conversation.messages):
        # After a compaction the first message is the summary, which contains none of the
        # user's messages.
        has_user_text = any(
            isinstance(part, Text) and part.text in user_texts
            for part in stored.message.parts
        )
        is_compacted = conversation.compacted_size > 0
        is_summary = index == 0 and is_compacted and not has_user_text
        for part in stored.message.parts:
            name = _part_name(part, stored.message, user_texts, is_summary=is_summary)
            sizes[name] += part_size(part)
    return tuple(sizes.items())


def _part_name(
    part: Part, message: Message, user_texts: set[str], *, is_summary: bool
) -> str:
    """Return the name under which a part is counted. `user_texts` are the user's messages."""
    match part:
        case ToolCall():
            return "tool calls"
        case ToolResult():
            return "tool results"
        case Thinking():
            return "thinking"
        case Image():
            return "messages"
        case Text(text):
            if message.role == "assistant":
                return "responses"
            if text in user_texts:
                return "messages"
            return "summary" if is_summary else "reminders"


def _portions(sizes: Iterable[tuple[str, int]], ratio: float) -> tuple[RequestPart, ...]:
    """Return the parts of a request that are not empty, from their sizes in characters.

    `ratio` is the number of characters per token.
    """
    return tuple(
        RequestPart(name, size, max(1, round(size / ratio))) for name, size in sizes if size
    )


def _rows(usage: ContextUsage) -> Iterator[Line]:
    """Yield a line for each part of the next request, and one for the free space."""
    portions = [(_display_name(part, usage), part.tokens) for part in usage.prompt]
    portions += [(part.name, part.tokens) for part in usage.conversation]
    portions.append((_FREE_NAME, usage.free_tokens))
    width = max(cells(name) for name, _ in portions)
    for name, count in portions:
        pad = " " * (width - cells(name))
        share = _percent(usage.share(count))
        style: Style = "dim" if name == _FREE_NAME else "plain"
        yield line(f"  {name}{pad}  {tokens(count):>8}  {share:>6}", style)


def _display_name(portion: RequestPart, usage: ContextUsage) -> str:
    """Return the name of a part of the prompt. The name of the tools has their number."""
    if portion.name == "tools":
        return f"tools ({len(usage.tools)})"
    return escape_to_one_line(portion.name)


def _bar(usage: ContextUsage, *, symbols: bool) -> Line:
    """Return a bar with the shares of the prompt and tools, of the conversation, and of free
    space.
    """
    full, empty = ("█", "░") if symbols else ("#", ".")

    def bar_length(portions: Iterable[RequestPart]) -> int:
        share = usage.share(sum(portion.tokens for portion in portions))
        return min(_BAR_CELLS, round(share * _BAR_CELLS / 100))

    prompt_cells = max(1, bar_length(usage.prompt)) if usage.prompt else 0
    used_cells = max(prompt_cells, bar_length((*usage.prompt, *usage.conversation)))
    return (
        ("plain", "  "), ("accent", full * prompt_cells), ("person", full * (used_cells - prompt_cells)),
        ("dim", empty * (_BAR_CELLS - used_cells)),
    )  # fmt: skip


def _percent(share: float) -> str:
    """Return `share`, a number from 0 to 100, as a text such as "12%"."""
    if not share:
        return "0%"
    if share >= 10:
        return f"{round(share)}%"
    return f"{share:.1f}%" if share >= 0.1 else "<0.1%"
