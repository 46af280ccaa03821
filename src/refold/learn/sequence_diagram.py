"""Draws a sequence diagram of the requests that a lesson's program has sent to the model."""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from refold.learn.model_server import Json, ModelReply
from refold.views.escape import escape_to_one_line
from refold.views.wrap import cells, cut

_INNER_CELLS = 55  # the whole diagram fits a terminal of 60 columns
# The messages that the program adds to a conversation, by their role. The answers of the model
# are drawn as arrows back.
_NEW_MESSAGE_LABELS = {"user": "you", "tool": "result"}
_ARROW_LINE = "─" * (_INNER_CELLS - 2)


def draw_requests(
    program: str, requests: Sequence[Json], replies: Sequence[ModelReply]
) -> str:
    """Return a diagram as text, with a lifeline of the program and one of the model."""
    rows = [program + "model".rjust(_INNER_CELLS + 2 - len(program))]
    known_messages: list[list[Json]] = []
    is_calling = False
    for number, (request, reply) in enumerate(zip(requests, replies, strict=True), 1):
        messages: list[Json] = request["messages"]
        # A subagent sends requests between two requests of its parent. So a request continues
        # the earlier request with which it shares the most messages.
        known_count = max(
            (_common_length(messages, known) for known in known_messages), default=0
        )
        # it shares the system prompt at most
        begins_conversation = known_count <= 1
        for message in messages[known_count:]:
            label = _NEW_MESSAGE_LABELS.get(str(message.get("role")))
            if label == "you" and begins_conversation and is_calling:
                label = "task"  # an open call, `delegate`, has begun the conversation
            if label:
                rows.append(_row(f"● {label}: ", str(message.get("content")), mark=""))
        count = "1 message" if len(messages) == 1 else f"{len(messages)} messages"
        rows += [_row(f"request {number}: ", count), f"├{_ARROW_LINE}▶ │"]
        rows += [_row("", text) for text in _reply_texts(reply)]
        rows.append(f"│ ◀{_ARROW_LINE}┤")
        known_messages.append(messages)
        is_calling = bool(reply.calls)
    return "".join(f"   {row}\n" for row in rows)


def _common_length(messages: Sequence[Json], others: Sequence[Json]) -> int:
    """Return how many messages at the beginning of both lists are the same."""
    pairs = zip(messages, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _row(label: str, text: str, mark: str = "│ ") -> str:
    """Return a row of the diagram, cut or filled to its width, with a line at its end."""
    shown = cut(escape_to_one_line(f"{mark}{label}{text}"), _INNER_CELLS)
    return shown + " " * (_INNER_CELLS + 1 - cells(shown)) + "│"


def _reply_texts(reply: ModelReply) -> Iterator[str]:
    """Yield the text of an answer, if it has one, and each of its calls as a text."""
    if reply.text:
        yield reply.text
    for call in reply.calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        yield f"call {call.tool}({arguments})"
