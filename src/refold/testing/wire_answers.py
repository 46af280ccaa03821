"""Writes a scripted response in the bytes that each provider would send.

It converts a `Reply` of the scripted provider to the stream of a wire. So the same script
serves a scripted provider and a real client; our tests also pass these streams to the official
clients.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from refold.testing.providers import Reply
from refold.testing.wire_server import Answer
from refold.values.usage import Usage

WireName: TypeAlias = Literal[
    "anthropic", "openai-responses", "openai-chat", "gemini", "ollama"
]

SSE = {"content-type": "text/event-stream; charset=utf-8"}
NDJSON = {"content-type": "application/x-ndjson"}


def answer(wire: WireName, reply: Reply) -> Answer:
    """Return the HTTP answer with which the provider of `wire` would stream the reply."""
    to_events, encode, headers = _wire_format(wire)
    body = b"".join(encode(event) for event in to_events(reply))
    if wire == "openai-chat":
        body += b"data: [DONE]\n\n"
    return Answer(body, headers=headers)


def sse(event: dict[str, Any]) -> bytes:
    """Return the bytes of a server-sent event, whose name is its "type" if it has one."""
    data = b"data: " + msgspec.json.encode(event) + b"\n\n"
    if "type" not in event:
        return data
    return b"event: " + event["type"].encode() + b"\n" + data


def ndjson(event: dict[str, Any]) -> bytes:
    return msgspec.json.encode(event) + b"\n"


def anthropic_events(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the events that Anthropic would stream for the reply."""
    used = usage_of(reply)
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
    """Yield the chunks that OpenAI's chat completions would stream for the reply."""

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
    used = usage_of(reply)
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
    """Yield the lines that Ollama would stream for the reply."""
    about = {"model": "llama-1", "created_at": "2026-01-01T00:00:00Z"}

    def part(message: dict[str, Any]) -> dict[str, Any]:
        whole = {"role": "assistant", "content": "", **message}
        return {**about, "message": whole, "done": False}

    for piece in pieces(reply.thinking):
        yield part({"thinking": piece})
    for piece in pieces(reply.text):
        yield part({"content": piece})
    for name, arguments in reply.calls:
        function = {"name": name, "arguments": msgspec.Raw(arguments.encode())}
        yield part({"tool_calls": [{"function": function}]})
    used = usage_of(reply)
    yield {
        **about,
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "length" if stop_of(reply) == "length" else "stop",
        "prompt_eval_count": used.input,
        "eval_count": used.output,
    }


_Encode: TypeAlias = Callable[[dict[str, Any]], bytes]
_Events: TypeAlias = Callable[[Reply], Iterator[dict[str, Any]]]


def _wire_format(name: WireName) -> tuple[_Events, _Encode, dict[str, str]]:
    """Return the functions that make and encode the events of a wire, and its HTTP headers."""
    match name:
        case "anthropic":
            return anthropic_events, sse, SSE
        case "openai-chat":
            return openai_events, sse, SSE
        case "ollama":
            return ollama_events, ndjson, NDJSON
        case "openai-responses":
            return responses_events, sse, SSE
        case "gemini":
            return gemini_events, sse, SSE


def _anthropic_blocks(
    reply: Reply,
) -> Iterator[tuple[dict[str, Any], list[dict[str, str]]]]:
    """Yield each content block in its empty state, and the deltas that fill it."""
    if reply.thinking:
        thought = [
            {"type": "thinking_delta", "thinking": p} for p in pieces(reply.thinking)
        ]
        signature = {"type": "signature_delta", "signature": "c2lnbmVk"}
        block = {"type": "thinking", "thinking": "", "signature": ""}
        yield block, [*thought, signature]
    if reply.text:
        deltas = [{"type": "text_delta", "text": p} for p in pieces(reply.text)]
        yield {"type": "text", "text": ""}, deltas
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
    """Yield the text in pieces of three characters."""
    return (text[start : start + 3] for start in range(0, len(text), 3))


def usage_of(reply: Reply) -> Usage:
    return reply.usage or Usage(fresh=10, output=5)


def stop_of(reply: Reply) -> str:
    return reply.stop or ("calls" if reply.calls else "end")


def gemini_events(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the chunks that Gemini would stream for the reply, each with the usage so far.

    Each call is one chunk; only the first call has a signature.
    """
    used = usage_of(reply)
    counts = {
        "promptTokenCount": used.input,
        "cachedContentTokenCount": used.cached,
        "totalTokenCount": used.input + used.output,
    }
    about = {"modelVersion": "gemini-1", "responseId": "r-1"}
    for part in _parts(reply):
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0}
        yield {"candidates": [candidate], "usageMetadata": counts, **about}
    stops = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS"}
    last = {
        "content": {"role": "model", "parts": [{"text": ""}]},
        "finishReason": stops.get(stop_of(reply), "SAFETY"),
        "index": 0,
    }
    written = {
        "candidatesTokenCount": used.output - used.reasoning,
        "thoughtsTokenCount": used.reasoning,
    }
    yield {"candidates": [last], "usageMetadata": {**counts, **written}, **about}


def _parts(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the parts of a Gemini response."""
    for piece in pieces(reply.thinking):
        yield {"text": piece, "thought": True}
    for piece in pieces(reply.text):
        yield {"text": piece}
    for n, (name, arguments) in enumerate(reply.calls):
        call = {"id": f"g-{n}", "name": name, "args": msgspec.Raw(arguments.encode())}
        signed = {} if n else {"thoughtSignature": "c2lnbmVk"}
        yield {"functionCall": call, **signed}


def responses_events(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the numbered events that OpenAI's Responses API would stream for the reply.

    Each item begins, arrives in pieces, and is then repeated in full.
    """
    for number, event in enumerate(_events(reply)):
        yield {**event, "sequence_number": number}


def _events(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the events of `responses_events`, without their numbers."""
    about = _response_fields()
    begun: dict[str, Any] = {**about, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output = [*_items(reply)]
    for index, (empty, whole, events) in enumerate(output):
        position = {"output_index": index}
        yield {"type": "response.output_item.added", **position, "item": empty}
        for event in events:
            yield {**event, **position, "item_id": whole["id"]}
        yield {"type": "response.output_item.done", **position, "item": whole}
    status, more = _status_and_details(reply)
    items = [whole for _, whole, _ in output]
    ended = {**about, "status": status, **more, "output": items}
    yield {"type": f"response.{status}", "response": {**ended, "usage": _usage(reply)}}


# an item when it begins, the complete item, and the events between
_Item = tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]


def _items(reply: Reply) -> Iterator[_Item]:
    """Yield each output item in its empty state, in its complete state, and its events."""
    if reply.thinking:
        yield _reasoning(reply.thinking)
    if reply.text:
        yield _message(reply.text)
    for n, (name, arguments) in enumerate(reply.calls):
        about = {"id": f"fc_{n}", "type": "function_call", "call_id": f"call_{n}"}
        whole = {**about, "name": name, "arguments": arguments, "status": "completed"}
        kind = "response.function_call_arguments"
        deltas = [{"type": f"{kind}.delta", "delta": p} for p in pieces(arguments)]
        end = {"type": f"{kind}.done", "name": name, "arguments": arguments}
        yield {**whole, "arguments": "", "status": "in_progress"}, whole, [*deltas, end]


def _reasoning(text: str) -> _Item:
    about = {"id": "rs_0", "type": "reasoning", "encrypted_content": "c2VhbGVk"}
    part, position = {"type": "summary_text", "text": text}, {"summary_index": 0}
    kind = "response.reasoning_summary"
    events = [
        {"type": f"{kind}_part.added", **position, "part": {**part, "text": ""}},
        *({"type": f"{kind}_text.delta", **position, "delta": p} for p in pieces(text)),
        {"type": f"{kind}_text.done", **position, "text": text},
        {"type": f"{kind}_part.done", **position, "part": part},
    ]
    return {**about, "summary": []}, {**about, "summary": [part]}, events


def _message(text: str) -> _Item:
    about = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed"}
    part: dict[str, Any] = {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": [],
    }
    position = {"content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.content_part.added", **position, "part": {**part, "text": ""}},
        *(
            {"type": "response.output_text.delta", **position, "delta": p, "logprobs": []}
            for p in pieces(text)
        ),
        {"type": "response.output_text.done", **position, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **position, "part": part},
    ]
    empty: dict[str, Any] = {**about, "status": "in_progress", "content": []}
    return empty, {**about, "content": [part]}, events


def _response_fields() -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-1",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }


def _status_and_details(reply: Reply) -> tuple[str, dict[str, Any]]:
    """Return the status and, if the response is incomplete, a field with the reason."""
    reasons = {"length": "max_output_tokens", "refused": "content_filter"}
    if reason := reasons.get(stop_of(reply)):
        return "incomplete", {"incomplete_details": {"reason": reason}}
    return "completed", {}


def _usage(reply: Reply) -> dict[str, Any]:
    used = usage_of(reply)
    return {
        "input_tokens": used.input,
        "input_tokens_details": {
            "cached_tokens": used.cached,
            "cache_write_tokens": used.cache_write,
        },
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.input + used.output,
    }
