"""The settings of models over HTTP: a key is checked, stored, and never sent back."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.config import credentials
from refold.config.paths import paths
from refold.server.listening import ListenOptions
from refold.testing import model_hub
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from tests.provider.list_server import list_server
from tests.provider.local.made_up import gguf
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
KEY = "words-of-mine-0123456789"
KEY_PATH = "/api/settings/providers/groq/key"


@pytest.fixture
async def groq(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WireServer]:
    """Yield a server that takes one key only."""

    def reply(request: ReceivedRequest) -> Answer:
        good = request.headers.get("authorization") == f"Bearer {KEY}"
        return Answer(b'{"data": [{"id": "m"}]}') if good else Answer(b"{}", status=401)

    async with wire_server(reply) as model_server:
        monkeypatch.setenv("GROQ_BASE_URL", model_server.url)
        yield model_server


def own_models(directory: Path, **options: Any) -> Any:
    """Return a server whose conversations use the model of the settings."""
    return open_server(directory, provider=lambda: None, **options)


async def row(client: Client, name: str) -> dict[str, Any]:
    rows = (await client.ask("GET", "/api/settings/providers")).json
    return next(row for row in rows if row["name"] == name)


def stored_keys() -> dict[str, str]:
    return credentials.read(paths(os.environ).credentials)


async def test_a_conversation_without_a_model_is_refused_by_kind_until_a_key_is_stored(
    tmp_path: Path, groq: WireServer
) -> None:
    async with own_models(tmp_path) as client:
        refused = await client.ask("POST", "/api/conversations", {})
        before = (await client.ask("GET", "/api/settings/model")).json
        stored = await client.ask("PUT", KEY_PATH, {"key": f" {KEY}\n"})
        begun = await client.ask("POST", "/api/conversations", {})

    assert (refused.status, refused.json["kind"]) == (400, "NoModel")
    assert (before["model"], before["problem"]) == ("", refused.json["reason"])
    assert (stored.status, stored.json["stored"]) == (200, True)
    assert stored.json["model"].startswith("groq/")
    assert begun.status == 201
    assert stored_keys() == {"groq": KEY}


async def test_a_stored_key_is_never_sent_back(tmp_path: Path, groq: WireServer) -> None:
    async with own_models(tmp_path) as client:
        stored = await client.ask("PUT", KEY_PATH, {"key": KEY})
        rows = await client.ask("GET", "/api/settings/providers")
        shown = await row(client, "groq")
        checked = await client.ask("POST", "/api/settings/providers/groq/check", {})
        removed = await client.ask("DELETE", KEY_PATH)
        after = await row(client, "groq")

    for answer in (stored, rows, checked, removed):
        assert KEY.encode() not in answer.body
    assert (shown["source"], shown["ends"]) == ("file", "…6789")
    assert checked.json == {"good": True, "text": "the key …6789 (file) is accepted"}
    assert removed.json["places"] == [str(paths(os.environ).credentials)]
    assert (after["source"], stored_keys()) == ("", {})


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("another-key-9999-0000", "the key …0000 was not accepted: Groq"),
        ("sk-ant-api03-0123456789", "this is a key for anthropic: it was not sent"),
        ("export OPENAI_API_KEY=k", "this is not a key: it is a whole `NAME=key`"),
    ],
)
async def test_a_key_that_its_provider_does_not_take_is_not_stored(
    tmp_path: Path, groq: WireServer, key: str, reason: str
) -> None:
    async with own_models(tmp_path) as client:
        refused = await client.ask("PUT", KEY_PATH, {"key": key, "unchecked": True})

    assert refused.status == 400
    assert refused.json["reason"].startswith(reason)
    assert stored_keys() == {}


async def test_a_key_that_could_not_be_checked_is_stored_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_BASE_URL", "http://127.0.0.1:9")
    async with own_models(tmp_path) as client:
        first = await client.ask("PUT", KEY_PATH, {"key": KEY})
        keys = stored_keys()
        second = await client.ask("PUT", KEY_PATH, {"key": KEY, "unchecked": True})

    assert (first.json["stored"], keys) == (False, {})
    assert "was not tried: " in first.json["text"]
    assert (second.json["stored"], stored_keys()) == (True, {"groq": KEY})


async def test_no_key_is_taken_over_traffic_that_others_can_read(
    tmp_path: Path, groq: WireServer
) -> None:
    listening = ListenOptions(host="0.0.0.0", names=("127.0.0.1",))
    async with own_models(tmp_path, listening=listening) as client:
        client.netloc = f"127.0.0.1:{client.netloc.rpartition(':')[2]}"
        refused = await client.ask("PUT", KEY_PATH, {"key": KEY})

    assert refused.status == 400
    assert "can be read on its way" in refused.json["reason"]
    assert (stored_keys(), groq.heard) == ({}, [])


async def test_an_idle_conversation_uses_a_new_api_key_in_its_next_turn(
    tmp_path: Path, groq: WireServer
) -> None:
    credentials.store(paths(os.environ).credentials, "groq", "expired-key-0000")
    async with own_models(tmp_path, flags={"model": "groq/m"}) as client:
        id_ = await client.begin()
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Hi", client_key="a")
            await read_until(socket, "result")
            stored = await client.ask("PUT", KEY_PATH, {"key": KEY})
            await socket.wait_closed()
        used = len(groq.heard)
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Again", client_key="b")
            while len(groq.heard) == used:
                await socket.recv()

    assert (stored.json["stored"], socket.close_code) == (True, 1000)
    assert groq.heard[-1].headers["authorization"] == f"Bearer {KEY}"


async def test_the_default_model_is_written_to_the_settings_of_the_user(
    tmp_path: Path, groq: WireServer
) -> None:
    credentials.store(paths(os.environ).credentials, "groq", KEY)
    async with own_models(tmp_path) as client:
        chosen = await client.ask("PUT", "/api/settings/model", {"model": "groq/m"})
        wrong = await client.ask("PUT", "/api/settings/model", {"model": "nobody/m"})

    assert (chosen.status, chosen.json["model"], chosen.json["problem"]) == (
        200,
        "groq/m",
        "",
    )
    assert 'model = "groq/m"' in paths(os.environ).settings.read_text()
    assert (wrong.status, "nobody" in wrong.json["reason"]) == (400, True)


async def test_a_model_of_a_server_on_this_machine_is_offered_and_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server({"/api/tags": {"models": [{"name": "tiny"}]}}) as ollama:
        monkeypatch.setenv("OLLAMA_HOST", ollama.url)
        async with own_models(tmp_path) as client:
            listed = (await client.ask("GET", "/api/settings/embedded")).json
            chosen = await client.ask(
                "PUT", "/api/settings/model", {"model": "ollama/tiny"}
            )

    assert listed["servers"] == [{"label": "Ollama", "models": ["ollama/tiny"]}]
    assert (chosen.json["model"], chosen.json["problem"]) == ("ollama/tiny", "")


async def test_an_unknown_provider_or_embedded_model_is_not_found(tmp_path: Path) -> None:
    async with own_models(tmp_path) as client:
        answers = [
            await client.ask("PUT", "/api/settings/providers/nobody/key", {"key": KEY}),
            await client.ask("POST", "/api/settings/embedded/nothing", {}),
            await client.ask("DELETE", "/api/settings/embedded/nothing"),
        ]

    assert [answer.status for answer in answers] == [404, 404, 404]


async def test_an_embedded_model_is_downloaded_with_progress_and_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gguf(layers=2, template="{{ messages }}") + b"\0" * 4000
    path = "/api/settings/embedded/smollm3-3b"
    with model_hub({"ggml-org/SmolLM3-3B-GGUF": {"SmolLM3-Q4_K_M.gguf": model}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        async with own_models(tmp_path) as client:
            before = (await client.ask("GET", path)).json
            begun = await client.ask("POST", path, {})
            while not (ended := (await client.ask("GET", path)).json)["download"]["ended"]:
                await anyio.sleep(0.02)
            offered = (await client.ask("GET", "/api/settings/model")).json
            removed = await client.ask("DELETE", path)
            after = (await client.ask("GET", "/api/settings/embedded")).json

    assert (before["installed"], before["download"], begun.status) == (False, None, 202)
    assert (ended["installed"], ended["download"]["problem"]) == (True, "")
    assert ended["download"]["done"] == len(model)
    assert "local/smollm3-3b" in (offered["model"], *offered["names"])
    assert removed.status == 204
    row = next(row for row in after["models"] if row["name"] == "smollm3-3b")
    assert (row["installed"], row["download"]) == (False, None)


async def test_a_failed_model_download_reports_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/api/settings/embedded/gemma-3-4b-it"
    with model_hub({}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        async with own_models(tmp_path) as client:
            await client.ask("POST", path, {})
            while not (ended := (await client.ask("GET", path)).json)["download"]["ended"]:
                await anyio.sleep(0.02)

    assert "there is no model 'ggml-org/gemma-3-4b-it-GGUF'" in ended["download"]["problem"]
