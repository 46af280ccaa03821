"""What OpenAI's Responses API would stream for an answer, written by hand."""

from collections.abc import Iterator
from typing import Any

from refold.testing.scripted import Reply
from refold.testing.wire_answers import pieces, stop_of, used_by


def responses_events(reply: Reply) -> Iterator[dict[str, Any]]:
    """Its events, numbered: everything begins, comes in pieces, and is told whole."""
    for number, event in enumerate(_events(reply)):
        yield {**event, "sequence_number": number}


def _events(reply: Reply) -> Iterator[dict[str, Any]]:
    about = _about()
    begun: dict[str, Any] = {**about, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output = [*_items(reply)]
    for index, (empty, whole, told) in enumerate(output):
        at = {"output_index": index}
        yield {"type": "response.output_item.added", **at, "item": empty}
        for event in told:
            yield {**event, **at, "item_id": whole["id"]}
        yield {"type": "response.output_item.done", **at, "item": whole}
    status, more = _ends(reply)
    ended = {**about, "status": status, **more, "output": [i[1] for i in output]}
    yield {"type": f"response.{status}", "response": {**ended, "usage": _usage(reply)}}


_Item = tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]


def _items(reply: Reply) -> Iterator[_Item]:
    if reply.thinking:
        yield _reasoning(reply.thinking)
    if reply.text:
        yield _message(reply.text)
    for n, (name, arguments) in enumerate(reply.calls):
        about = {"id": f"fc_{n}", "type": "function_call", "call_id": f"call_{n}"}
        whole = {**about, "name": name, "arguments": arguments, "status": "completed"}
        kind = "response.function_call_arguments"
        told = [{"type": f"{kind}.delta", "delta": p} for p in pieces(arguments)]
        end = {"type": f"{kind}.done", "name": name, "arguments": arguments}
        yield {**whole, "arguments": "", "status": "in_progress"}, whole, [*told, end]


def _reasoning(text: str) -> _Item:
    about = {"id": "rs_0", "type": "reasoning", "encrypted_content": "c2VhbGVk"}
    part, at = {"type": "summary_text", "text": text}, {"summary_index": 0}
    kind = "response.reasoning_summary"
    told = [
        {"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}},
        *({"type": f"{kind}_text.delta", **at, "delta": p} for p in pieces(text)),
        {"type": f"{kind}_text.done", **at, "text": text},
        {"type": f"{kind}_part.done", **at, "part": part},
    ]
    return {**about, "summary": []}, {**about, "summary": [part]}, told


def _message(text: str) -> _Item:
    about = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed"}
    part: dict[str, Any] = {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": [],
    }
    at = {"content_index": 0}
    told: list[dict[str, Any]] = [
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        *(
            {"type": "response.output_text.delta", **at, "delta": p, "logprobs": []}
            for p in pieces(text)
        ),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
    ]
    empty: dict[str, Any] = {**about, "status": "in_progress", "content": []}
    return empty, {**about, "content": [part]}, told


def _about() -> dict[str, Any]:
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


def _ends(reply: Reply) -> tuple[str, dict[str, Any]]:
    reasons = {"length": "max_output_tokens", "refused": "content_filter"}
    if reason := reasons.get(stop_of(reply)):
        return "incomplete", {"incomplete_details": {"reason": reason}}
    return "completed", {}


def _usage(reply: Reply) -> dict[str, Any]:
    used = used_by(reply)
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
