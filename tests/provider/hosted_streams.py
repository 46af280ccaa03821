"""Contains answers, written by hand, in which a provider called a tool of an MCP server itself.

In `test_peer_hosted_mcp`, the official clients read them.
"""

from typing import Any

from refold.testing.wire_answers import SSE, WireName, sse
from refold.testing.wire_server import Answer

USE: dict[str, Any] = {
    "type": "mcp_tool_use", "id": "mcptoolu_1", "name": "search", "server_name": "docs",
    "input": {"query": "rain"},
}  # fmt: skip
RESULT: dict[str, Any] = {
    "type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False,
    "content": [{"type": "text", "text": "It rains.", "citations": None}],
}  # fmt: skip
LISTED: dict[str, Any] = {
    "id": "mcpl_1", "type": "mcp_list_tools", "server_label": "docs",
    "tools": [{"name": "search", "input_schema": {"type": "object"}, "description": "Search."}],
}  # fmt: skip
CALL: dict[str, Any] = {
    "id": "mcp_1", "type": "mcp_call", "server_label": "docs", "name": "search",
    "arguments": '{"query":"rain"}', "output": "It rains.", "error": None, "status": "completed",
}  # fmt: skip


def anthropic_answer(
    text: str = "Rain.", *, stop: str = "end_turn", result: dict[str, Any] | None = RESULT
) -> Answer:
    """Return an answer with a call, its result unless None, and a text unless ""."""
    data: dict[str, Any] = {"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1", "content": [],
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }}  # fmt: skip
    pieces = ('{"query"', ': "rain"}')
    events: list[dict[str, Any]] = [
        data,
        {"type": "content_block_start", "index": 0, "content_block": {**USE, "input": {}}},
        *(
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
    ]  # fmt: skip
    if result is not None:
        events += [
            {"type": "content_block_start", "index": 1, "content_block": result},
            {"type": "content_block_stop", "index": 1},
        ]
    if text:
        delta = {"type": "text_delta", "text": text}
        events += [
            {"type": "content_block_start", "index": 2,
             "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 2, "delta": delta},
            {"type": "content_block_stop", "index": 2},
        ]  # fmt: skip
    events += [
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None},
         "usage": {"output_tokens": 20}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return Answer(b"".join(map(sse, events)), headers=SSE)


def openai_answer(text: str = "Rain.", *, call: dict[str, Any] = CALL) -> Answer:
    """Return a list of tools, a call, and a text."""
    result: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }  # fmt: skip
    data = {**call, "arguments": "", "output": None, "status": "in_progress"}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**LISTED, "tools": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": LISTED},
        {"type": "response.output_item.added", "output_index": 1, "item": data},
        {"type": "response.mcp_call_arguments.delta", "output_index": 1, "item_id": "mcp_1",
         "delta": call["arguments"]},
        {"type": "response.mcp_call_arguments.done", "output_index": 1, "item_id": "mcp_1",
         "arguments": call["arguments"]},
        {"type": "response.mcp_call.completed", "output_index": 1, "item_id": "mcp_1"},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.output_item.added", "output_index": 2, "item": {**result, "content": []}},
        {"type": "response.output_text.delta", "output_index": 2, "content_index": 0,
         "item_id": "msg_1", "delta": text, "logprobs": []},
        {"type": "response.output_item.done", "output_index": 2, "item": result},
        {"type": "response.completed", "response": {
            "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-1",
            "status": "completed", "output": [LISTED, call, result], "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [],
            "usage": {"input_tokens": 9, "output_tokens": 20, "total_tokens": 29,
                      "input_tokens_details": {"cached_tokens": 0},
                      "output_tokens_details": {"reasoning_tokens": 0}},
        }},
    ]  # fmt: skip
    numbered = ({**event, "sequence_number": n} for n, event in enumerate(events))
    return Answer(b"".join(map(sse, numbered)), headers=SSE)


ANSWERS: dict[WireName, Answer] = {
    "anthropic": anthropic_answer(), "openai-responses": openai_answer(),
}  # fmt: skip
