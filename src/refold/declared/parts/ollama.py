"""Asks a model through Ollama's API, which has its own fields for calls and results."""

from typing import Any

from refold.declared.parts.context_modes import in_context
from refold.declared.parts.http_post import post
from refold.declared.parts.messages import (
    BackendError,
    Call,
    Message,
    Response,
    system_prompt,
)
from refold.declared.parts.settings import MAX_CONTEXT_TOKENS, MODEL, URL
from refold.declared.parts.tools import TOOLS, schema


def ask(messages: list[Message]) -> Response:
    """Send the conversation to the model, and return its response."""
    body = {
        "model": MODEL,
        "stream": False,
        # Without it, the server silently cuts the conversation at a few thousand tokens.
        "options": {"num_ctx": MAX_CONTEXT_TOKENS},
        "messages": [
            {"role": "system", "content": system_prompt()},
            *(part for message in in_context(messages) for part in to_wire(message)),
        ],
        "tools": [function(name) for name in TOOLS],
    }
    reply = post(URL, body, {})
    try:
        answer = reply["message"]
        calls = [
            # Only newer servers give ids.
            Call(
                part.get("id") or f"call-{len(messages)}-{number}",
                part["function"]["name"],
                part["function"]["arguments"],
            )
            for number, part in enumerate(answer.get("tool_calls") or [])
        ]
    except (KeyError, TypeError) as error:
        raise BackendError(f"{URL} has answered without a message") from error
    text = answer.get("content") or ""
    return Response(
        Message("assistant", text, calls),
        text,
        reply.get("prompt_eval_count", 0),
        reply.get("eval_count", 0),
    )


def to_wire(message: Message) -> list[dict[str, Any]]:
    """Return a message as the API expects it: each result becomes a message."""
    if message.role == "tool":
        return [
            {
                "role": "tool",
                "tool_name": result.call.name,
                "tool_call_id": result.call.id,
                "content": result.text,
            }
            for result in message.results
        ]
    if message.role != "assistant":
        return [{"role": "user", "content": message.text}]
    answer: dict[str, Any] = {"role": "assistant", "content": message.text}
    if message.calls:
        answer["tool_calls"] = [
            {
                "id": call.id,
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    return [answer]


def function(name: str) -> dict[str, Any]:
    """Return the description of a tool as the API expects it."""
    about = {
        "name": name,
        "description": TOOLS[name].__doc__,
        "parameters": schema(name),
    }
    return {"type": "function", "function": about}
