"""Asks a model through OpenAI's Chat Completions API, or a server compatible with it."""

import json
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
from refold.declared.parts.settings import MODEL, URL
from refold.declared.parts.tools import TOOLS, schema


def ask(messages: list[Message]) -> Response:
    """Send the conversation to the model, and return its response."""
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": system_prompt()},
            *(part for message in in_context(messages) for part in to_wire(message)),
        ],
        "tools": [function(name) for name in TOOLS],
    }
    reply = post(URL, body, {"Authorization": f"Bearer {api_key()}"})
    try:
        answer: dict[str, Any] = reply["choices"][0]["message"]
        tool_calls: list[dict[str, Any]] = answer.get("tool_calls") or []
        calls = [call_of(part) for part in tool_calls]
    except (KeyError, IndexError, TypeError) as error:
        raise BackendError(f"{URL} has answered without a message") from error
    text = answer.get("content") or ""
    usage: dict[str, Any] = reply.get("usage") or {}
    return Response(
        Message("assistant", text, calls),
        text,
        usage.get("prompt_tokens", 0),
        usage.get("completion_tokens", 0),
    )


def to_wire(message: Message) -> list[dict[str, Any]]:
    """Return a message as the API expects it: each result becomes a message."""
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": result.call.id, "content": result.text}
            for result in message.results
        ]
    if message.role != "assistant":
        return [{"role": "user", "content": message.text}]
    answer: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    if message.calls:
        answer["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for call in message.calls
        ]
    return [answer]


def call_of(message: dict[str, Any]) -> Call:
    """Return a call of the model. If its arguments are not JSON, it has a `mistake`."""
    name, text = message["function"]["name"], message["function"]["arguments"]
    try:
        arguments: dict[str, Any] = dict(json.loads(text or "{}"))
    except (ValueError, TypeError) as error:
        return Call(
            message["id"], name, {}, f"The arguments are no JSON object: {error}."
        )
    return Call(message["id"], name, arguments)


def function(name: str) -> dict[str, Any]:
    """Return the description of a tool as the API expects it."""
    about = {
        "name": name,
        "description": TOOLS[name].__doc__,
        "parameters": schema(name),
    }
    return {"type": "function", "function": about}
