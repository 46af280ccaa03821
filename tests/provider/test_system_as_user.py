"""Models without a system message get the system prompt in the first user message."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold.errors import Refused
from refold.provider.port import Provider, Request
from refold.provider.sanitize import SystemAsUser
from refold.provider.spec import Quirks
from refold.provider.text_protocol.selection import CallProtocolSelector
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, ReceivedRequest
from refold.values.growing import Log
from tests.provider.strict_servers import strict
from tests.provider.wires import (
    CAT,
    CONVERSATION,
    PICTURES,
    TOOLS,
    message,
    open_wire,
    request,
    spec_of,
    stream_deltas,
    words,
)

# Each is the message of a real server: vLLM, llama.cpp (shortened; it says 500), OpenAI, a proxy
# to Bedrock, Mistral's templates in LM Studio and vLLM, Google in both of its APIs.
REFUSALS: list[tuple[WireName, int, dict[str, Any]]] = [
    ("openai-chat", 400, {"object": "error", "message": "System role not supported", "type": "BadRequestError", "param": None, "code": 400}),
    ("openai-chat", 500, {"error": {"code": 500, "message": "\n------------\nWhile executing CallExpression at line 1, column 78 in source:\n...'system' %}{{ raise_exception('System role not supported') }}{% endif %}...\nError: Jinja Exception: System role not supported", "type": "server_error"}}),
    ("openai-chat", 400, {"error": {"message": "Unsupported value: 'messages[0].role' does not support 'system' with this model.", "type": "invalid_request_error", "param": "messages[0].role", "code": "unsupported_value"}}),
    ("openai-chat", 400, {"error": {"message": "This model doesn't support system messages. Try again without a system message or use a model that supports system messages."}}),
    ("openai-chat", 400, {"error": "Only user and assistant roles are supported!"}),
    ("openai-chat", 400, {"object": "error", "message": "Conversation roles must alternate user/assistant/user/assistant/...", "type": "invalid_request_error"}),
    ("openai-chat", 400, {"error": {"code": 400, "message": "Developer instruction is not enabled for models/gemma-3-27b-it", "status": "INVALID_ARGUMENT"}}),
    ("gemini", 400, {"error": {"code": 400, "message": "Developer instruction is not enabled for models/gemma-3-27b-it", "status": "INVALID_ARGUMENT"}}),
]  # fmt: skip
WIRES: tuple[WireName, ...] = ("openai-chat", "gemini")
SYSTEM = "Be brief. ☂"
FIRST = CONVERSATION[0].text


def refusal(wire: WireName, number: int = 0) -> Answer:
    status, data = [(s, body) for name, s, body in REFUSALS if name == wire][number]
    return Answer(json.dumps(data).encode(), status)


def converse(
    wire: WireName,
    *answers: Answer | Callable[[ReceivedRequest], Answer],
    requests: Sequence[Request],
    quirks: Quirks | None = None,
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return what was answered, and the bodies that it took."""
    spec = spec_of(wire)
    spec = replace(spec, quirks=quirks) if quirks else spec

    async def main() -> tuple[list[str], list[dict[str, Any]]]:
        async with open_wire(wire, *answers, spec=spec) as (provider, server):
            texts = [words(await stream_deltas(provider, item)) for item in requests]
            return texts, [json.loads(h.body) for h in server.heard]

    return anyio.run(main)


def conversation_in(wire: WireName, body: dict[str, Any]) -> list[Any]:
    return body["messages" if wire == "openai-chat" else "contents"]


def has_system(wire: WireName, body: dict[str, Any]) -> bool:
    if wire == "gemini":
        return "systemInstruction" in body
    return any(item["role"] == "system" for item in body["messages"])


def first_message(wire: WireName, body: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the role and the text of the first message."""
    first = conversation_in(wire, body)[0]
    if wire == "gemini":
        return first["role"], [part["text"] for part in first["parts"]]
    return first["role"], first["content"].split("\n\n")


@pytest.mark.parametrize(("wire", "status", "expected"), REFUSALS)
def test_model_without_system_role_gets_the_system_text_in_the_first_user_message(
    wire: WireName, status: int, expected: dict[str, Any]
) -> None:
    model_request = request(*CONVERSATION, system=f"{SYSTEM}\n", tools=TOOLS)
    no = Answer(json.dumps(expected).encode(), status)

    texts, (first, *later) = converse(
        wire, no, strict(wire), strict(wire), requests=[model_request, model_request]
    )

    assert texts == ["Fine.", "Fine."]
    assert has_system(wire, first)
    assert [has_system(wire, body) for body in later] == [False, False]
    assert first_message(wire, later[0]) == ("user", [SYSTEM, FIRST])
    assert (
        conversation_in(wire, later[0])[1:]
        == conversation_in(wire, first)[-len(conversation_in(wire, later[0])) + 1 :]
    )
    assert later[0] == later[1]


@pytest.mark.parametrize("wire", WIRES)
def test_conversation_that_begins_with_an_assistant_gets_a_user_message_first(
    wire: WireName,
) -> None:
    model_request = request(
        message("assistant", "I am back."), message("user", "?"), system=SYSTEM
    )

    _, (_, body) = converse(wire, refusal(wire), strict(wire), requests=[model_request])

    assert first_message(wire, body) == ("user", [SYSTEM])
    assert len(conversation_in(wire, body)) == 3


def test_images_of_the_first_message_are_sent_after_the_system_text() -> None:
    model_request = request(message("user", "?", CAT), system=SYSTEM, pictures=PICTURES)

    _, (_, body) = converse(
        "openai-chat",
        refusal("openai-chat"),
        strict("openai-chat"),
        requests=[model_request],
    )

    kinds = [part["type"] for part in body["messages"][0]["content"]]
    assert kinds == ["text", "text", "image_url"]


@pytest.mark.parametrize("bridged", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_request_without_system_role_only_grows_at_its_end(
    wire: WireName, bridged: bool
) -> None:
    whole = request(*CONVERSATION, message("assistant", "It rains."), system=SYSTEM)
    whole = replace(whole, messages=whole.messages.plus(whole.messages[0]))
    requests = [replace(whole, messages=Log(whole.messages[:n])) for n in (1, 3, 4, 5, 7)]
    good = [answer(wire, Reply("Yes."))] * len(requests)
    quirks = Quirks(bridged=bridged)

    _, (_, *later) = converse(wire, refusal(wire), *good, requests=requests, quirks=quirks)

    conversations = [request_messages(wire, body) for body in later]
    for before, after in pairwise(conversations):
        assert after[: len(before)] == before
        assert len(after) > len(before)


def request_messages(wire: WireName, body: dict[str, Any]) -> list[Any]:
    if wire == "gemini":
        return [(c["role"], part) for c in body["contents"] for part in c["parts"]]
    return body["messages"]


def test_changed_system_text_is_sent_in_the_first_message_from_then_on() -> None:
    requests = [request(*CONVERSATION[:1], system=text) for text in ("One.", "Two.", "")]
    good = answer("openai-chat", Reply("Yes."))

    _, (_, *later) = converse(
        "openai-chat", refusal("openai-chat"), good, good, good, requests=requests
    )

    first_messages = [first_message("openai-chat", body)[1] for body in later]
    assert first_messages == [["One.", FIRST], ["Two.", FIRST], [FIRST]]


def test_the_first_message_with_the_system_text_is_encoded_only_once() -> None:
    """A wire encodes again what is another object."""
    system_as_user, model_request = SystemAsUser(), request(*CONVERSATION, system=SYSTEM)
    shorter = replace(model_request, messages=Log(model_request.messages[:1]))

    messages = [system_as_user.apply(item).messages for item in (shorter, model_request)]

    assert messages[0][0] is messages[1][0]
    assert all(
        a is b for a, b in zip(messages[1][1:], model_request.messages[1:], strict=True)
    )


@pytest.mark.parametrize("wire", WIRES)
def test_system_role_refusal_without_a_system_text_is_raised(wire: WireName) -> None:
    with pytest.raises(Refused, match=r"System role|Developer instruction"):
        converse(wire, refusal(wire), requests=[request(*CONVERSATION[:1])])


def test_refusal_about_alternating_roles_keeps_the_system_message() -> None:
    no = {"message": "After the optional system message, conversation roles must alternate"}

    with pytest.raises(Refused, match="optional system message"):
        converse(
            "openai-chat",
            Answer(json.dumps(no).encode(), 400),
            requests=[request(*CONVERSATION[:1], system=SYSTEM)],
        )


def answer_as_gemma(request: ReceivedRequest) -> Answer:
    """Gemma 2 behind vLLM, as it is started without options."""
    body = json.loads(request.body)
    roles = [item["role"] for item in body["messages"]]
    no = ""
    if "tools" in body:
        no = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    elif "system" in roles:
        no = "System role not supported"
    elif roles != [("user", "assistant")[n % 2] for n in range(len(roles))]:
        no = "Conversation roles must alternate user/assistant/user/assistant/..."
    error = {"object": "error", "message": no, "type": "BadRequestError", "code": 400}
    return (
        Answer(json.dumps(error).encode(), 400)
        if no
        else answer(
            "openai-chat", Reply('<tool_call>{"name": "look", "arguments": {}}</tool_call>')
        )
    )


def test_model_with_neither_tools_nor_system_role_still_makes_calls() -> None:
    model_request = request(*CONVERSATION, system=SYSTEM, tools=TOOLS)

    async def main() -> tuple[str, list[dict[str, Any]]]:
        async with open_wire("openai-chat", *[answer_as_gemma] * 4) as (inner, server):
            provider: Provider = CallProtocolSelector(inner)
            stops = [(await stream_deltas(provider, model_request))[-1] for _ in range(2)]
            values = {getattr(done, "stop", "") for done in stops}
            return " ".join(values), [json.loads(h.body) for h in server.heard]

    stop, bodies = anyio.run(main)
    assert (stop, len(bodies)) == ("calls", 4)
    _, texts = first_message("openai-chat", bodies[-1])
    assert (texts[0], texts[1], texts[-1]) == (SYSTEM, "# Tools", FIRST)
