"""Our five wires against aimock, a third-party mock of all their servers.

`npm install --prefix .peers @copilotkit/aimock@1.43.0`, or name the place in REFOLD_PEERS.
"""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from refold.errors import Overloaded, ProviderError, Unreachable
from refold.provider.catalog import connect
from refold.provider.port import CallDelta, Delta, Done, Request, ThinkingDelta
from refold.testing.wire_answers import WireName
from refold.values.messages import ToolCall, ToolResult
from tests.provider.wires import KEY, WIRES, message, request, spec_of, stream_deltas, words

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
PROGRAM = PEERS / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
NODE = shutil.which("node") or ""

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"aimock is not in {PEERS}"),
    pytest.mark.skipif(not NODE, reason="node is not installed"),
]

FIXTURES = {
    "fixtures": [
        {"match": {"toolCallId": "call-3"}, "response": {"content": "It will rain."}},
        {
            "match": {"userMessage": "weather"},
            "response": {
                "toolCalls": [{"name": "look", "arguments": json.dumps({"where": "up ☁"})}]
            },
        },
        {
            "match": {"userMessage": "think"},
            "response": {"content": "Yes.", "reasoning": "Clouds, so rain."},
        },
        {
            "match": {"userMessage": "busy"},
            "response": {"error": {"message": "slow down", "type": "x"}, "status": 429},
        },
        {
            "match": {"userMessage": "cut"},
            "response": {"content": "A long answer that breaks off somewhere." * 9},
            "truncateAfterChunks": 3,
            "chunkSize": 5,
        },
        *(
            {
                "match": {"userMessage": said},
                "response": {"content": "Nobody reads this."},
                "chaos": {rate: 1},
            }
            for said, rate in (
                ("dropped", "dropRate"),
                ("garbled", "malformedRate"),
                ("hung up", "disconnectRate"),
                ("limited", "rateLimitRate"),
            )
        ),
        {
            "match": {"userMessage": "hello"},
            "response": {"content": "Hello! ☂ How are you?"},
        },
    ]
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps(FIXTURES), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [NODE, str(PROGRAM), "-p", str(port), "-f", str(fixtures), "--strict"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        anyio.run(_until_it_listens, port)
        yield f"http://127.0.0.1:{port}"
        server.terminate()


async def _until_it_listens(port: int) -> None:
    with anyio.fail_after(30):
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(0.05)
            else:
                return


def ask(wire: WireName, url: str, *messages: str) -> list[Delta]:
    return _read_deltas(wire, url, request(*(message("user", words) for words in messages)))


def _read_deltas(wire: WireName, url: str, asking: Request) -> list[Delta]:
    spec = spec_of(wire)
    base = url + "/v1" if wire.startswith("openai") else url

    async def main() -> list[Delta]:
        provider = connect(spec, {spec.url_env: base, spec.key_env: KEY}, idle=5)
        try:
            return await stream_deltas(provider, asking)
        finally:
            await provider.aclose()

    return anyio.run(main)


@pytest.mark.parametrize("wire", WIRES)
def test_text_is_read_from_each_wire(wire: WireName, url: str) -> None:
    deltas = ask(wire, url, "hello")

    assert words(deltas) == "Hello! ☂ How are you?"
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "end"


@pytest.mark.parametrize("wire", WIRES)
def test_calls_are_read_and_their_results_are_understood(wire: WireName, url: str) -> None:
    deltas = ask(wire, url, "weather")

    pieces = [d for d in deltas if isinstance(d, CallDelta)]
    arguments = "".join(p.arguments for p in pieces)
    assert (pieces[0].name, msgspec.json.decode(arguments)) == ("look", {"where": "up ☁"})
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].stop == "calls"

    call = ToolCall("call-3", "look", Raw(arguments.encode()), pieces[0].id)
    conversation = (message("user", "weather"), message("assistant", call))
    after = request(*conversation, message("tool", ToolResult("call-3", "clouds")))
    if wire not in ("ollama", "gemini"):  # it matches results by their id only
        assert words(_read_deltas(wire, url, after)) == "It will rain."


@pytest.mark.parametrize("wire", [w for w in WIRES if w != "ollama"])  # it misnames those
def test_thinking_is_separated_from_the_answer(wire: WireName, url: str) -> None:
    deltas = ask(wire, url, "think")

    assert words(deltas) == "Yes."
    thought = "".join(d.text for d in deltas if isinstance(d, ThinkingDelta))
    assert thought == "Clouds, so rain."


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("busy", Overloaded),
        ("cut", Unreachable),
        ("nobody wrote this", ProviderError),
        ("dropped", Overloaded),
        ("garbled", ProviderError),
        ("hung up", Unreachable),
        ("limited", Overloaded),
    ],
)
def test_each_failure_of_the_aimock_server_raises_its_error(
    wire: WireName, url: str, text: str, kind: type[ProviderError]
) -> None:
    with pytest.raises(kind):
        ask(wire, url, text)
