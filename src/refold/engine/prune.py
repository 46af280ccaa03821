"""Finds the tool results that can be pruned, and where a conversation may be cut. Pure.

A cut never separates a call from its result. The part after it starts with a message of the
user, or with a response whose calls all have their results.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from refold.engine.context_usage import available_chars, chars_per_token, token_count
from refold.journal.state.conversation import IMAGE_TOKENS, MIN_PRUNED_CHARS, message_size
from refold.journal.state.fold import View
from refold.values.messages import Message, StoredMessage, ToolCall, ToolResult

_PRUNED_MARK = "[left out: "
_MESSAGES_SHARE = 0.35  # of the space for a conversation, for the messages that stay
_PRESERVED_SHARE = 0.3  # of that space, for the preserved text from the journal
_SUMMARY_SHARE = 0.15
_MAX_SUBJECT_CHARS = 60  # of the subject of a call, in the line that replaces its result
_CROWDED_SHARE = 0.95  # of the window


class CompactionShares(Struct, frozen=True):
    """How full the window is when a conversation is compacted, and how much of it stays.

    Shares are fractions of the context window.
    """

    window: int = 32_000  # tokens, if the model's own window is unknown
    prune: float = 0.5  # results are pruned when the window is this full
    frees: float = 0.2  # results are pruned only if this share is freed
    results: int = 3  # the number of newest results that are not pruned
    compact: float = 0.8  # messages are summarized when the window is this full
    messages: int = 8  # the number of newest messages that may stay


class CutPoint(Struct, frozen=True):
    """Where to cut: the messages before `index` are removed.

    `results` maps call ids to the shortened form of long results.
    """

    index: int
    results: tuple[tuple[str, str], ...] = ()


def window_of(view: View, shares: CompactionShares) -> int:
    """Return the context window in tokens.

    If a request was refused as too long, the window is at most half of the conversation.
    """
    window = view.conversation.system_prompt.window or shares.window
    if view.turn.too_long:
        window = min(window, max(1, token_count(view) // 2))
    return window


def max_preserved_chars(view: View, shares: CompactionShares) -> int:
    """Return the maximum length, in characters, of the text that `preserved` makes."""
    space = available_chars(view, window_of(view, shares), shares.compact)
    return int(space * _PRESERVED_SHARE)


def max_summary_chars(view: View, shares: CompactionShares) -> int:
    """Return the maximum length of the summary, in characters."""
    space = available_chars(view, window_of(view, shares), shares.compact)
    return int(space * _SUMMARY_SHARE)


def prompt_fills_window(view: View, shares: CompactionShares) -> bool:
    """Whether the system prompt and the tools alone fill the window."""
    window_chars = window_of(view, shares) * chars_per_token(view)
    return view.conversation.prompt_size >= _CROWDED_SHARE * window_chars


def prunable_results(view: View, keep: int) -> tuple[tuple[str, str], ...]:
    """Return the results that can be pruned, as call ids with the lines that replace them.

    The newest `keep` results are not pruned.
    """
    messages = view.conversation.messages
    calls = {call.id: call for stored in messages for call in stored.message.calls}
    newest_first = list[ToolResult]()
    for stored in reversed(messages):
        newest_first += _results(stored.message)
    lines = list[tuple[str, str]]()
    for result in newest_first[keep:]:
        if _is_large(result):
            line = _replacement_line(result, calls.get(result.call_id))
            if result.images or len(line) < len(result.text):
                lines.append((result.call_id, line))
    return tuple(lines)


def max_prunable_chars(view: View) -> int:
    """Return an upper bound of the characters that pruning can free. It is computed quickly."""
    return view.conversation.result_size + _image_chars(view, len(view.conversation.images))


def characters_freed(view: View, lines: Sequence[tuple[str, str]]) -> int:
    """Return how many characters are freed, images included, if these lines replace results.

    `lines` has pairs of a call id and its line.
    """
    images = (len(r.images) for r in _results_of_lines(view, lines))
    return text_freed(view, lines) + _image_chars(view, sum(images))


def text_freed(view: View, lines: Sequence[tuple[str, str]]) -> int:
    """Return how many characters are freed, without counting images."""
    short = {id_: len(line) for id_, line in lines}
    return sum(len(r.text) - short[r.call_id] for r in _results_of_lines(view, lines))


def _results_of_lines(view: View, lines: Sequence[tuple[str, str]]) -> Iterator[ToolResult]:
    """Return the results that `lines`, pairs of call id and text, replace."""
    ids = {id_ for id_, _ in lines}
    results = (r for s in view.conversation.messages for r in _results(s.message))
    return (r for r in results if r.call_id in ids)


def _image_chars(view: View, count: int) -> int:
    return int(count * IMAGE_TOKENS * chars_per_token(view))


def _is_large(result: ToolResult) -> bool:
    """Whether pruning the result saves something: it has images, or is long and not
    pruned yet.
    """
    if result.images:
        return True
    is_pruned = result.text.startswith(_PRUNED_MARK)
    return len(result.text) > MIN_PRUNED_CHARS and not is_pruned


def find_cut(view: View, shares: CompactionShares, *, asked: bool) -> CutPoint:
    """Return where to cut the conversation: the newest messages that fit stay.

    Results that do not fit, but to which the model has not responded yet, stay in a shortened
    form. If the compaction was `asked` for, messages are removed even if all could stay.
    """
    messages = view.conversation.messages
    space = available_chars(view, window_of(view, shares), shares.compact)
    max_chars = int(space * _MESSAGES_SHARE)
    cut = len(messages)
    kept_chars = 0
    has_response = False  # whether a response of the model is among the messages that stay
    for start, end in _message_groups(messages):
        would_be_too_many = len(messages) - start > shares.messages
        if would_be_too_many and has_response:
            break
        chars_left = max_chars - kept_chars
        group_chars = sum(message_size(s.message) for s in messages[start:end])
        if group_chars > chars_left:
            has_results = end - start > 1  # a response and the results of its calls
            if has_results and not has_response:
                results = messages[end - 1].message
                return CutPoint(start, tuple(_shorten_results(results, chars_left)))
            break
        cut = start
        kept_chars += group_chars
        has_response = has_response or messages[start].message.role == "assistant"
    if asked and cut == 0:  # everything would stay, so keep only the newest messages
        cut = next((start for start, _ in _message_groups(messages)), 0)
    return CutPoint(cut)


def _message_groups(messages: Sequence[StoredMessage]) -> Iterator[tuple[int, int]]:
    """Yield the groups of messages that must stay together, newest first, as (start,
    end) indices.
    """
    end = len(messages)
    while end > 0:
        start = end - 1
        if messages[start].message.role == "tool" and start > 0:
            start -= 1  # results stay with the response that made the calls
        yield start, end
        end = start


def _results(message: Message) -> Sequence[ToolResult]:
    """Return the tool results in a message, the last one first."""
    return [p for p in reversed(message.parts) if isinstance(p, ToolResult)]


def _replacement_line(result: ToolResult, call: ToolCall | None) -> str:
    """Return the line that replaces a pruned result, and says how to read the result again."""
    subject = _label(call) if call else "a call"
    count = len(result.images)
    shown = f" and {count} image{'s' if count > 1 else ''}" if count else ""
    return (
        f"{_PRUNED_MARK}{len(result.text):,} characters{shown} of {subject}; history_search with call "
        f'"{result.call_id}" shows the text]'
    )


def _label(call: ToolCall) -> str:
    """Return the tool and the subject of a call in one line.

    The subject is the first argument that is a text, such as a path or a command.
    """
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        arguments = dict[str, object]()
    first_text = next((v for v in arguments.values() if isinstance(v, str)), "")
    subject = " ".join(first_text.split())
    if len(subject) > _MAX_SUBJECT_CHARS:
        subject = f"{subject[:_MAX_SUBJECT_CHARS]}…"
    return f"{call.name} {subject}".rstrip()


def _shorten_results(message: Message, max_chars: int) -> Iterator[tuple[str, str]]:
    """Yield the results of one response, each cut in the middle to its share of
    `max_chars`.
    """
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
