"""Which tool results can be pruned, and where a conversation may be cut. Pure.

A cut never separates a call from its result: the remaining part starts with a message of
the user, or with a response whose calls all have their results.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from refold.engine.context_usage import available_chars, chars_per_token, token_count
from refold.journal.state.conversation import IMAGE_TOKENS, MIN_PRUNED_CHARS, message_size
from refold.journal.state.fold import View
from refold.values.messages import Message, StoredMessage, ToolCall, ToolResult

_PRUNED_MARK = "[left out: "
_MESSAGES_SHARE = 0.35  # of the room that a conversation has, for the messages that stay
_PRESERVED_SHARE = 0.3  # for what the journal knows
_SUMMARY_SHARE = 0.15
_CROWDED_SHARE = 0.95  # of the window


class CompactionShares(Struct, frozen=True):
    """When to compact, and how much stays. Shares are of the context window."""

    window: int = 32_000  # tokens, where the model's own is not known
    prune: float = 0.5
    frees: float = 0.2
    results: int = 3
    compact: float = 0.8
    messages: int = 8


class CutPoint(Struct, frozen=True):
    """The messages before `index` are removed; `results` replaces long results, by call id."""

    index: int
    results: tuple[tuple[str, str], ...] = ()


def window_of(view: View, shares: CompactionShares) -> int:
    """The context window in tokens.

    A request that was refused as too long overrides the known size.
    """
    known = view.conversation.system_prompt.window or shares.window
    return min(known, max(1, token_count(view) // 2)) if view.turn.too_long else known


def max_preserved_chars(view: View, shares: CompactionShares) -> int:
    """Characters for what the journal knows."""
    return int(
        available_chars(view, window_of(view, shares), shares.compact) * _PRESERVED_SHARE
    )


def max_summary_chars(view: View, shares: CompactionShares) -> int:
    """Characters for the summary."""
    return int(
        available_chars(view, window_of(view, shares), shares.compact) * _SUMMARY_SHARE
    )


def prompt_fills_window(view: View, shares: CompactionShares) -> bool:
    """Whether the system prompt and the tools alone fill the window."""
    return view.conversation.prompt_size >= _CROWDED_SHARE * window_of(
        view, shares
    ) * chars_per_token(view)


def prunable_results(view: View, keep: int) -> tuple[tuple[str, str], ...]:
    """The results that can be pruned, all but the newest `keep`: ids and their lines."""
    calls = {c.id: c for s in view.conversation.messages for c in s.message.calls}
    newest_first = [
        r for s in reversed(view.conversation.messages) for r in _results(s.message)
    ]
    lines = (
        (r, _replacement_line(r, calls.get(r.call_id)))
        for r in newest_first[keep:]
        if _is_large(r)
    )
    return tuple(
        (r.call_id, line) for r, line in lines if r.images or len(line) < len(r.text)
    )


def max_prunable_chars(view: View) -> int:
    """An upper estimate of the characters that can be freed; cheap to compute."""
    return view.conversation.result_size + _image_chars(view, len(view.conversation.images))


def characters_freed(view: View, lines: Sequence[tuple[str, str]]) -> int:
    """Characters that replacing results by these lines would free, images included."""
    images = (len(r.images) for r in _results_of_lines(view, lines))
    return text_freed(view, lines) + _image_chars(view, sum(images))


def text_freed(view: View, lines: Sequence[tuple[str, str]]) -> int:
    """Like `characters_freed`, without images."""
    short = {id_: len(line) for id_, line in lines}
    return sum(len(r.text) - short[r.call_id] for r in _results_of_lines(view, lines))


def _results_of_lines(view: View, lines: Sequence[tuple[str, str]]) -> Iterator[ToolResult]:
    ids = {id_ for id_, _ in lines}
    results = (r for s in view.conversation.messages for r in _results(s.message))
    return (r for r in results if r.call_id in ids)


def _image_chars(view: View, count: int) -> int:
    return int(count * IMAGE_TOKENS * chars_per_token(view))


def _is_large(result: ToolResult) -> bool:
    is_long = len(result.text) > MIN_PRUNED_CHARS and not result.text.startswith(
        _PRUNED_MARK
    )
    return is_long or bool(result.images)


def find_cut(view: View, shares: CompactionShares, *, asked: bool) -> CutPoint:
    """Where to cut. With `asked`, it cuts even if there is room."""
    messages = view.conversation.messages
    max_chars = int(
        available_chars(view, window_of(view, shares), shares.compact) * _MESSAGES_SHARE
    )
    cut, size, answered = len(messages), 0, False
    for start, end in _message_groups(messages):
        unit = sum(message_size(s.message) for s in messages[start:end])
        if len(messages) - start > shares.messages and answered:
            break
        if size + unit > max_chars:
            if end - start > 1 and not answered:  # no answer to these results yet
                return CutPoint(
                    start,
                    tuple(_shorten_results(messages[end - 1].message, max_chars - size)),
                )
            break
        cut, size = start, size + unit
        answered = answered or messages[start].message.role == "assistant"
    if asked and cut == 0:  # all would stay: keep only the newest
        cut = next((start for start, _ in _message_groups(messages)), 0)
    return CutPoint(cut)


def _message_groups(messages: Sequence[StoredMessage]) -> Iterator[tuple[int, int]]:
    """The groups of messages that must stay together, newest first, each as (start, end)
    indices.
    """
    end = len(messages)
    while end > 0:
        start = end - 2 if messages[end - 1].message.role == "tool" and end > 1 else end - 1
        yield start, end
        end = start


def _results(message: Message) -> Sequence[ToolResult]:
    return [p for p in reversed(message.parts) if isinstance(p, ToolResult)]


def _replacement_line(result: ToolResult, call: ToolCall | None) -> str:
    subject = _label(call) if call else "a call"
    count = len(result.images)
    shown = f" and {count} image{'s' if count > 1 else ''}" if count else ""
    return (
        f"{_PRUNED_MARK}{len(result.text):,} characters{shown} of {subject}; history_search with call "
        f'"{result.call_id}" shows the text]'
    )


def _label(call: ToolCall) -> str:
    """The tool and its subject, in one line."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        arguments = dict[str, object]()
    about = next((v for v in arguments.values() if isinstance(v, str)), "")
    short = " ".join(about.split())
    return f"{call.name} {short[:60]}{'…' if len(short) > 60 else ''}".rstrip()


def _shorten_results(message: Message, max_chars: int) -> Iterator[tuple[str, str]]:
    """The results of one answer, each cut in the middle to its share of `max_chars`."""
    results = _results(message)
    share = max(MIN_PRUNED_CHARS, max_chars // max(1, len(results)))
    for result in results:
        if len(result.text) > share:
            half = share // 2
            note = (
                f"\n[… {len(result.text) - 2 * half:,} characters left out here to save room; "
                f'history_search with call "{result.call_id}" shows them …]\n'
            )
            yield result.call_id, result.text[:half] + note + result.text[-half:]
