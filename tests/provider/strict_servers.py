"""Has a server for each wire that refuses the requests that the strictest real server refuses."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from typing import Any

from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, ReceivedRequest

PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
GEMINI = {"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
LEGAL = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


def strict(wire: WireName) -> Callable[[ReceivedRequest], Answer]:
    def answering(request: ReceivedRequest) -> Answer:
        body = json.loads(request.body.decode("utf-8"))
        wrong = rejection_reason(wire, body)
        if wrong:
            text = json.dumps(
                {"error": {"type": "invalid_request_error", "message": wrong}}
            )
            return Answer(text.encode(), 400)
        return answer(wire, Reply("Fine."))

    return answering


def rejection_reason(wire: WireName, body: dict[str, Any]) -> str:
    """Return what is wrong with the body of a request, or ""."""
    if bad := next(iter(_invalid_unicode(body)), ""):
        return f"not for a strict parser: {bad!r}"
    check, name = {
        "anthropic": (_check_anthropic, "messages"),
        "openai-responses": (_check_responses, "input"),
        "openai-chat": (_check_openai, "messages"),
        "gemini": (_check_gemini, "contents"),
        "ollama": (_check_ollama, "messages"),
    }[wire]
    try:
        check(body[name])
    except (AssertionError, ValueError) as error:
        return str(error) or "invalid"
    return ""


def _check_anthropic(messages: list[dict[str, Any]]) -> None:
    assert messages, "no messages"
    assert messages[0]["role"] == messages[-1]["role"] == "user", (
        "first and last are the user's"
    )
    waiting: list[str] = []
    texts: set[str] = set()
    for n, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[n % 2], "roles must alternate"
        blocks = message["content"]
        assert blocks, "an empty message"
        kinds = [b["type"] for b in blocks]
        tool_use_ids = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert tool_use_ids == waiting, f"called {waiting}, answered {tool_use_ids}"
        assert kinds[: len(tool_use_ids)] == ["tool_result"] * len(tool_use_ids), (
            "results come first"
        )
        assert "thinking" not in kinds[-1], "the final block cannot be thinking"
        for block in blocks:
            if block["type"] == "text":
                assert block["text"].strip(), "text must contain non-whitespace"
            if block["type"] == "thinking":
                assert block["signature"], "thinking without its signature"
            if block["type"] == "tool_result":
                _check_anthropic_result(block)
            if block["type"] == "image":
                assert message["role"] == "user", "only people show pictures"
                _check_anthropic_image(block)
        uses = [b for b in blocks if b["type"] == "tool_use"]
        waiting = [b["id"] for b in uses]
        for use in uses:
            assert LEGAL.match(use["id"]), "an id that is not legal"
            assert LEGAL.match(use["name"]), "a name that is not legal"
            assert isinstance(use["input"], dict), "input must be an object"
        assert not texts & set(waiting), "ids must be unique"
        assert len(set(waiting)) == len(waiting), "ids must be unique"
        texts |= set(waiting)
    assert not waiting, "a call without its result"


def _check_anthropic_result(block: dict[str, Any]) -> None:
    inner = block.get("content", "")
    assert inner or not block.get("is_error"), (
        "content cannot be empty if `is_error` is true"
    )
    for item in inner if isinstance(inner, list) else []:
        if item["type"] == "text":
            assert item["text"].strip(), "text must contain non-whitespace"
        else:
            assert not block.get("is_error"), (
                "all content must be type `text` if `is_error` is true"
            )
            _check_anthropic_image(item)


def _check_anthropic_image(block: dict[str, Any]) -> None:
    assert block["type"] == "image", f"no such block: {block['type']}"
    assert block["source"]["type"] == "base64"
    assert block["source"]["media_type"] in PICTURES, "not a kind of picture"
    b64decode(block["source"]["data"], validate=True)


def _check_data_url(url: str) -> None:
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    assert kind in PICTURES, "not a kind of picture"
    b64decode(data, validate=True)


def _check_content(content: Any, text: str, image: str) -> None:
    """Check a message of the user: text, or a list of texts and images."""
    assert content, "an empty message"
    if isinstance(content, str):
        assert content.strip(), "an empty message"
        return
    for part in content:
        if part["type"] == text:
            assert part["text"].strip(), "empty words"
            continue
        assert part["type"] == image, f"no such part: {part['type']}"
        url = part["image_url"]
        _check_data_url(url["url"] if image == "image_url" else url)


def _check_openai(messages: list[dict[str, Any]]) -> None:
    assert messages, "no messages"
    assert messages[-1]["role"] in ("user", "tool"), "nothing to answer"
    waiting: list[str] = []
    texts: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result nobody waits for"
            waiting.remove(message["tool_call_id"])
            assert isinstance(message["content"], str), "a result holds only text"
            continue
        assert not waiting, f"calls without results: {waiting}"
        calls = message.get("tool_calls", [])
        if message["role"] == "user":
            _check_content(message["content"], "text", "image_url")
        else:
            assert isinstance(message["content"], str | None), "only people show pictures"
        assert calls or message["content"], "an empty message"
        for call in calls:
            assert call["id"] not in texts, "ids must be unique"
            assert LEGAL.match(call["function"]["name"]), "a name that is not legal"
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            texts.add(call["id"])
            waiting.append(call["id"])
    assert not waiting, f"calls without results: {waiting}"


def _check_responses(items: list[dict[str, Any]]) -> None:
    assert items, "no items"
    waiting: list[str] = []
    texts: set[str] = set()
    for n, item in enumerate(items):
        kind = item["type"]
        assert "id" not in item or kind == "reasoning", "stored items cannot be named"
        if kind == "function_call_output":
            assert item["call_id"] in waiting, "a result nobody waits for"
            waiting.remove(item["call_id"])
            if not isinstance(item["output"], str):
                _check_content(item["output"], "input_text", "input_image")
            continue
        if kind == "function_call":
            assert item["call_id"] not in texts, "ids must be unique"
            assert LEGAL.match(item["name"]), "a name that is not legal"
            assert isinstance(json.loads(item["arguments"]), dict)
            texts.add(item["call_id"])
            waiting.append(item["call_id"])
            continue
        if kind == "reasoning":
            assert item["encrypted_content"], "not stored here"
            follows = items[n + 1] if n + 1 < len(items) else {"type": "nothing"}
            ours = follows.get("role") == "assistant"
            assert ours or follows["type"] in ("reasoning", "function_call"), (
                "without its required following item"
            )
            continue
        assert kind == "message", f"no such item: {kind}"
        assert not waiting, f"calls without results: {waiting}"
        if item["role"] == "user":
            _check_content(item["content"], "input_text", "input_image")
        else:
            assert item["content"].strip(), "an empty message"
        assert item.get("phase", "commentary") in ("commentary", "final_answer")
        assert item["role"] == "assistant" or "phase" not in item
    assert not waiting, f"calls without results: {waiting}"
    last = items[-1]
    assert last["type"] == "function_call_output" or last.get("role") == "user", (
        "nothing to answer"
    )


def _check_gemini(contents: list[dict[str, Any]]) -> None:
    assert contents, "no contents"
    assert contents[0]["role"] == contents[-1]["role"] == "user", (
        "first and last are the user's"
    )
    waiting: list[dict[str, Any]] = []
    for n, content in enumerate(contents):
        assert content["role"] == ("user", "model")[n % 2], "roles must alternate"
        parts = content["parts"]
        assert parts, "an empty content"
        for part in parts:
            data = {"text", "functionCall", "functionResponse", "inlineData"} & set(part)
            assert len(data) == 1, "a part is one thing"
            outcome = [part] if "inlineData" in part else []
            for item in outcome + part.get("functionResponse", {}).get("parts", []):
                assert content["role"] == "user", "only people show pictures"
                assert item["inlineData"]["mimeType"] in GEMINI, "not a kind of picture"
                b64decode(item["inlineData"]["data"], validate=True)
            assert part.get("text") != "" or "thoughtSignature" in part, "empty words"
        result = [p["functionResponse"] for p in parts if "functionResponse" in p]
        assert len(result) == len(waiting), "as many responses as calls"
        for call, response in zip(waiting, result, strict=True):
            assert call["name"] == response["name"], "another function's response"
            assert call.get("id") == response.get("id"), "another call's response"
            assert isinstance(response["response"], dict), "response must be an object"
        assert not result or all("functionResponse" in p for p in parts[: len(result)])
        calls = [p for p in parts if "functionCall" in p]
        assert not calls or calls[0].get("thoughtSignature"), "missing a thought_signature"
        waiting = [p["functionCall"] for p in calls]
        for call in waiting:
            assert LEGAL.match(call["name"]), "a name that is not legal"
            assert isinstance(call["args"], dict), "args must be an object"
    assert not waiting, "a call without its response"


def _check_ollama(messages: list[dict[str, Any]]) -> None:
    assert messages, "no messages"
    waiting: list[str] = []
    for message in messages:
        assert isinstance(message["content"], str), "content must be a string"
        for image in message.get("images", []):
            assert message["role"] != "assistant", "only people show pictures"
            b64decode(image, validate=True)
        if message["role"] == "tool":
            assert waiting, "a result nobody waits for"
            assert message["tool_name"] == waiting.pop(0), "another tool's result"
            continue
        assert not waiting, f"calls without results: {waiting}"
        for call in message.get("tool_calls", []):
            assert isinstance(call["function"]["arguments"], dict), "arguments: an object"
            waiting.append(call["function"]["name"])
    assert not waiting, f"calls without results: {waiting}"


def _invalid_unicode(value: Any) -> Iterable[str]:
    """Yield the texts with NULs or lone surrogates."""
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
            yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _invalid_unicode(key)
            yield from _invalid_unicode(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _invalid_unicode(inner)
