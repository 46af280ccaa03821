"""What each provider would send for an answer: the bytes, written by hand.

From a `Reply` of the scripted provider to the stream of a wire, so that one
script drives a scripted provider and a real client alike. Official clients
read these streams too, in our tests: they are not only what we think they are.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from refold.testing.scripted import Reply
from refold.testing.wire_server import Answer
from refold.values.usage import Usage

WireName: TypeAlias = Literal[
    "anthropic", "openai-responses", "openai-chat", "gemini", "ollama"
]

SSE = {"content-type": "text/event-stream; charset=utf-8"}
NDJSON = {"content-type": "application/x-ndjson"}


def answer(wire: WireName, reply: Reply) -> Answer:
    """`reply` as the provider of that wire would stream it."""
    events, framed, headers = _wire(wire)
    body = b"".join(framed(event) for event in events(reply))
    if wire == "openai-chat":
        body += b"data: [DONE]\n\n"
    return Answer(body, headers=headers)


def sse(event: dict[str, Any]) -> bytes:
    """One server-sent event; named by its type, if it has one."""
    data = b"data: " + msgspec.json.encode(event) + b"\n\n"
    return b"event: " + event["type"].encode() + b"\n" + data if "type" in event else data


def ndjson(event: dict[str, Any]) -> bytes:
    return msgspec.json.encode(event) + b"\n"


def anthropic_events(reply: Reply) -> Iterator[dict[str, Any]]:
    used = used_by(reply)
    read = {
        "input_tokens": used.fresh,
        "cache_read_input_tokens": used.cached,
        "cache_creation_input_tokens": used.cache_write,
        "output_tokens": 1,
    }
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-1",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": read,
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "ping"}
    for index, (block, deltas) in enumerate(_anthropic_blocks(reply)):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stops = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens"}
    yield {
        "type": "message_delta",
        "delta": {
            "stop_reason": stops.get(stop_of(reply), "refusal"),
            "stop_sequence": None,
        },
        "usage": {
            "output_tokens": used.output,
            "output_tokens_details": {"thinking_tokens": used.reasoning},
        },
    }
    yield {"type": "message_stop"}


def openai_events(reply: Reply) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**about, "choices": [choice], "usage": None}

    about = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-1"}
    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(reply.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in pieces(reply.text):
        yield chunk({"content": piece})
    for n, (name, arguments) in enumerate(reply.calls):
        function = {"name": name, "arguments": ""}
        call = {"index": n, "id": f"call_{n}", "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
        for piece in pieces(arguments):
            yield chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
    stops = {"end": "stop", "calls": "tool_calls", "length": "length"}
    yield chunk({}, stops.get(stop_of(reply), "content_filter"))
    used = used_by(reply)
    usage = {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {
            "cached_tokens": used.cached,
            "cache_write_tokens": used.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": used.reasoning},
    }
    yield {**about, "choices": [], "usage": usage}


def ollama_events(reply: Reply) -> Iterator[dict[str, Any]]:
    about = {"model": "llama-1", "created_at": "2026-01-01T00:00:00Z"}

    def part(message: dict[str, Any]) -> dict[str, Any]:
        said = {"role": "assistant", "content": "", **message}
        return {**about, "message": said, "done": False}

    for piece in pieces(reply.thinking):
        yield part({"thinking": piece})
    for piece in pieces(reply.text):
        yield part({"content": piece})
    for name, arguments in reply.calls:
        function = {"name": name, "arguments": msgspec.Raw(arguments.encode())}
        yield part({"tool_calls": [{"function": function}]})
    used = used_by(reply)
    yield {
        **about,
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "length" if stop_of(reply) == "length" else "stop",
        "prompt_eval_count": used.input,
        "eval_count": used.output,
    }


_Framed: TypeAlias = Callable[[dict[str, Any]], bytes]
_Events: TypeAlias = Callable[[Reply], Iterator[dict[str, Any]]]


def _wire(name: WireName) -> tuple[_Events, _Framed, dict[str, str]]:
    match name:
        case "anthropic":
            return anthropic_events, sse, SSE
        case "openai-chat":
            return openai_events, sse, SSE
        case "ollama":
            return ollama_events, ndjson, NDJSON
        case "openai-responses":
            from refold.testing.wire_answers_responses import responses_events

            return responses_events, sse, SSE
        case "gemini":
            from refold.testing.wire_answers_gemini import gemini_events

            return gemini_events, sse, SSE


def _anthropic_blocks(
    reply: Reply,
) -> Iterator[tuple[dict[str, Any], list[dict[str, str]]]]:
    if reply.thinking:
        thought = [
            {"type": "thinking_delta", "thinking": p} for p in pieces(reply.thinking)
        ]
        signature = {"type": "signature_delta", "signature": "c2lnbmVk"}
        block = {"type": "thinking", "thinking": "", "signature": ""}
        yield block, [*thought, signature]
    if reply.text:
        said = [{"type": "text_delta", "text": p} for p in pieces(reply.text)]
        yield {"type": "text", "text": ""}, said
    for n, (name, arguments) in enumerate(reply.calls):
        block: dict[str, Any] = {
            "type": "tool_use",
            "id": f"toolu_{n}",
            "name": name,
            "input": {},
        }
        kind = "input_json_delta"
        yield block, [{"type": kind, "partial_json": p} for p in ("", *pieces(arguments))]


def pieces(text: str) -> Iterator[str]:
    return (text[at : at + 3] for at in range(0, len(text), 3))


def used_by(reply: Reply) -> Usage:
    return reply.usage or Usage(fresh=10, output=5)


def stop_of(reply: Reply) -> str:
    return reply.stop or ("calls" if reply.calls else "end")
