"""Draws a sequence diagram of a run of a lesson, from what the model's server received."""

from collections.abc import Iterator, Sequence

from refold.learn.model_server import Json, ModelReply
from refold.views.escape import escape_to_one_line
from refold.views.wrap import cells, cut

_INNER_CELLS = 55  # the whole diagram fits a terminal of 60 columns
# What the program adds to a conversation; the answers of the model are the arrows back.
_NEW_MESSAGE_LABELS = {"user": "you", "tool": "result"}
_ARROW_LINE = "─" * (_INNER_CELLS - 2)


def draw_requests(
    program: str, requests: Sequence[Json], replies: Sequence[ModelReply]
) -> str:
    """Two lifelines, of the program and of the model, with time downwards."""
    rows = [f"{program}{'model':>{_INNER_CELLS + 2 - len(program)}}"]
    known = 0
    for number, (request, reply) in enumerate(zip(requests, replies, strict=True), 1):
        messages: list[Json] = request["messages"]
        known = known if known <= len(messages) else 0
        for message in messages[known:]:
            if label := _NEW_MESSAGE_LABELS.get(str(message.get("role"))):
                rows.append(_row(f"● {label}: ", str(message.get("content")), mark=""))
        count = "1 message" if len(messages) == 1 else f"{len(messages)} messages"
        rows += [_row(f"request {number}: ", count), f"├{_ARROW_LINE}▶ │"]
        rows += [_row("", text) for text in _reply_texts(reply)]
        rows.append(f"│ ◀{_ARROW_LINE}┤")
        known = len(messages)
    return "".join(f"   {row}\n" for row in rows)


def _row(label: str, text: str, mark: str = "│ ") -> str:
    shown = cut(escape_to_one_line(f"{mark}{label}{text}"), _INNER_CELLS)
    return shown + " " * (_INNER_CELLS + 1 - cells(shown)) + "│"


def _reply_texts(reply: ModelReply) -> Iterator[str]:
    if reply.text:
        yield reply.text
    for call in reply.calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        yield f"call {call.tool}({arguments})"
