"""Asks a model through Anthropic's Messages API."""

from typing import Any

from refold.declared.parts.context_modes import in_context
from refold.declared.parts.http_post import api_key, post
from refold.declared.parts.messages import (
    BackendError,
    Call,
    Message,
    Response,
    system_prompt,
)
from refold.declared.parts.settings import MAX_OUTPUT_TOKENS, MODEL, URL
from refold.declared.parts.tools import TOOLS, schema


def ask(messages: list[Message]) -> Response:
    """Send the conversation to the model, and return its response."""
    body = {
        "model": MODEL,
        "max_tokens": MAX_OUTPUT_TOKENS,
        "system": system_prompt(),
        "messages": to_wire(in_context(messages)),
        "tools": [
            {
                "name": name,
                "description": function.__doc__,
                "input_schema": schema(name),
            }
            for name, function in TOOLS.items()
        ],
        # What was sent once is cheaper the next time.
        "cache_control": {"type": "ephemeral"},
    }
    headers = {"x-api-key": api_key(), "anthropic-version": "2023-06-01"}
    reply = post(URL, body, headers)
    try:
        blocks, usage = reply["content"], reply["usage"]
        calls = [
            Call(block["id"], block["name"], block["input"])
            for block in blocks
            if block["type"] == "tool_use"
        ]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
    except (KeyError, TypeError) as error:
        raise BackendError(f"{URL} has answered without a message") from error
    inputs = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Response(
        Message("assistant", text, calls),
        text,
        sum(usage.get(name) or 0 for name in inputs),
        usage.get("output_tokens", 0),
    )


def to_wire(messages: list[Message]) -> list[dict[str, Any]]:
    """Return messages as the API expects them: roles alternate, results are blocks."""
    wire_messages: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if wire_messages and wire_messages[-1]["role"] == role:
            wire_messages[-1]["content"] += blocks_of(message)
        elif blocks := blocks_of(message):  # an answer can be empty
            wire_messages.append({"role": role, "content": blocks})
    return wire_messages


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """Return the text, the calls and the results of a message as content blocks."""
    blocks: list[dict[str, Any]] = []
    if message.text.strip():
        blocks.append({"type": "text", "text": message.text})
    for call in message.calls:
        use = {"id": call.id, "name": call.name, "input": call.arguments}
        blocks.append({"type": "tool_use", **use})
    for result in message.results:
        about = {"tool_use_id": result.call.id, "content": result.text}
        failed = {"is_error": True} if result.failed else {}
        blocks.append({"type": "tool_result", **about, **failed})
    return blocks
