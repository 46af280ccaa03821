"""Servers that refuse what the strictest real one would, one for each wire.

Each takes a request's body and says what is wrong with it, "" if nothing.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from refold.testing.scripted import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, Heard

LEGAL = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


def strict(wire: WireName) -> Callable[[Heard], Answer]:
    def answering(heard: Heard) -> Answer:
        body = json.loads(heard.body.decode("utf-8"))
        wrong = complaint(wire, body)
        if wrong:
            said = json.dumps(
                {"error": {"type": "invalid_request_error", "message": wrong}}
            )
            return Answer(said.encode(), 400)
        return answer(wire, Reply("Fine."))

    return answering


def complaint(wire: WireName, body: dict[str, Any]) -> str:
    if bad := next(iter(_unspeakable(body)), ""):
        return f"not for a strict parser: {bad!r}"
    check = {"anthropic": _anthropic, "openai-chat": _openai, "ollama": _ollama}[wire]
    try:
        check(body["messages"])
    except AssertionError as error:
        return str(error) or "invalid"
    return ""


def _anthropic(messages: list[dict[str, Any]]) -> None:
    assert messages, "no messages"
    assert messages[0]["role"] == messages[-1]["role"] == "user", (
        "first and last are the user's"
    )
    waiting: list[str] = []
    seen: set[str] = set()
    for n, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[n % 2], "roles must alternate"
        blocks = message["content"]
        assert blocks, "an empty message"
        kinds = [b["type"] for b in blocks]
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert answered == waiting, f"called {waiting}, answered {answered}"
        assert kinds[: len(answered)] == ["tool_result"] * len(answered), (
            "results come first"
        )
        assert "thinking" not in kinds[-1], "the final block cannot be thinking"
        for block in blocks:
            if block["type"] == "text":
                assert block["text"].strip(), "text must contain non-whitespace"
            if block["type"] == "thinking":
                assert block["signature"], "thinking without its signature"
        uses = [b for b in blocks if b["type"] == "tool_use"]
        waiting = [b["id"] for b in uses]
        for use in uses:
            assert LEGAL.match(use["id"]), "an id that is not legal"
            assert LEGAL.match(use["name"]), "a name that is not legal"
            assert isinstance(use["input"], dict), "input must be an object"
        assert not seen & set(waiting), "ids must be unique"
        assert len(set(waiting)) == len(waiting), "ids must be unique"
        seen |= set(waiting)
    assert not waiting, "a call without its result"


def _openai(messages: list[dict[str, Any]]) -> None:
    assert messages, "no messages"
    assert messages[-1]["role"] in ("user", "tool"), "nothing to answer"
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result nobody waits for"
            waiting.remove(message["tool_call_id"])
            assert isinstance(message["content"], str)
            continue
        assert not waiting, f"calls without results: {waiting}"
        calls = message.get("tool_calls", [])
        assert calls or message["content"], "an empty message"
        for call in calls:
            assert call["id"] not in seen, "ids must be unique"
            assert LEGAL.match(call["function"]["name"]), "a name that is not legal"
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            seen.add(call["id"])
            waiting.append(call["id"])
    assert not waiting, f"calls without results: {waiting}"


def _ollama(messages: list[dict[str, Any]]) -> None:
    assert messages, "no messages"
    waiting: list[str] = []
    for message in messages:
        assert isinstance(message["content"], str), "content must be a string"
        if message["role"] == "tool":
            assert waiting, "a result nobody waits for"
            assert message["tool_name"] == waiting.pop(0), "another tool's result"
            continue
        assert not waiting, f"calls without results: {waiting}"
        for call in message.get("tool_calls", []):
            assert isinstance(call["function"]["arguments"], dict), "arguments: an object"
            waiting.append(call["function"]["name"])
    assert not waiting, f"calls without results: {waiting}"


def _unspeakable(value: Any) -> Iterable[str]:
    """Texts with half characters or NULs in them."""
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
            yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _unspeakable(key)
            yield from _unspeakable(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _unspeakable(inner)
