"""Describes responses, their usage and messages by OpenTelemetry's conventions. Pure.

The results are attributes of spans, and the JSON in them. `traces` makes the spans.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw

from refold.journal.events.kinds import ModelAnswered
from refold.values.messages import Part, Text, Thinking, ToolCall
from refold.values.usage import Usage
from refold.views.activity import Span, spent_by

Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = dict[str, Attribute]

_FINISH_REASONS = {
    "end": "stop", "calls": "tool_calls", "length": "length", "refused": "content_filter",
}  # fmt: skip


def response_attributes(end: ModelAnswered, *, content: bool) -> Attributes:
    """Return the attributes of a response. Its messages are included only with `content`."""
    finished = _FINISH_REASONS[end.stop]
    attributes: Attributes = {"gen_ai.response.finish_reasons": (finished,)}
    if end.served_by:
        attributes["gen_ai.response.model"] = end.served_by
    if end.first_piece is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = end.first_piece
    if content:
        message = output_message(end.message.parts, finished)
        attributes["gen_ai.output.messages"] = to_json([message])
    return attributes


def cost_attributes(span: Span) -> Attributes:
    """Return the usage and, if it is known, the cost; {} for a span without model responses."""
    spent = spent_by(span)
    if not spent.answers:
        return {}
    cost: Attributes = {} if spent.cost is None else {"refold.cost_usd": spent.cost}
    return usage_attributes(spent.usage) | cost


def usage_attributes(usage: Usage) -> Attributes:
    """Return the usage as attributes: the totals of input and output, then parts of these
    totals.
    """
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
    }
    parts = {
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return attributes | {name: count for name, count in parts.items() if count}


def input_message(text: str) -> dict[str, object]:
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def output_message(parts: Sequence[Part], finish_reason: str) -> dict[str, object]:
    contents = [content for part in parts for content in _part_values(part)]
    return {"role": "assistant", "parts": contents, "finish_reason": finish_reason}


def _part_values(part: Part) -> Iterator[dict[str, object]]:
    """Yield the part as the conventions write it; nothing for empty thinking and for images."""
    match part:
        case Text(text):
            yield {"type": "text", "content": text}
        case Thinking(text) if text:
            yield {"type": "reasoning", "content": text}
        case ToolCall(id_, name, arguments):
            yield {
                "type": "tool_call",
                "id": id_,
                "name": name,
                "arguments": _value(arguments),
            }
        case _:
            return


def _value(data: Raw) -> object:
    """Return the JSON that a model wrote as a value; as text if it is invalid."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return decode_json_text(data)


def decode_json_text(data: Raw) -> str:
    return bytes(data).decode("utf-8", "replace")


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
