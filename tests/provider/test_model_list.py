"""The model lists of providers: requested, parsed and cached."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.errors import BadInput, ProviderError, Refused, Unreachable
from refold.provider.catalog import find
from refold.provider.known_models import PriceTier
from refold.provider.model_figures import (
    ListedModel,
    StoredModelList,
    load_list,
    store_list,
)
from refold.provider.model_list import from_anthropic, from_gemini, from_openai, list_models
from refold.provider.spec import ProviderSpec
from tests.provider.list_server import ListServer, Pages, list_server

KEY = "sk-ant-api03-not-a-real-key-000000"


def list_all_models(
    name: str, pages: Pages, path: str = ""
) -> tuple[tuple[ListedModel, ...], ListServer]:
    """Return what a provider's list comes to when its server has these pages."""
    spec = find(name)
    with list_server(pages) as server:
        environ = {spec.url_env: server.url + path, spec.key_env: KEY}
        return anyio.run(partial(list_models, spec, environ)), server


def test_anthropic_model_list_is_read_page_by_page() -> None:
    def model(name: str, **options: Any) -> dict[str, Any]:
        return {"type": "model", "id": name, "display_name": name, **options}

    models, server = list_all_models(
        "anthropic",
        {
            "/v1/models?limit=1000": {
                "data": [model("claude-b", max_input_tokens=200_000, lifecycle="active")],
                "has_more": True,
                "last_id": "claude-b",
            },
            "/v1/models?limit=1000&after_id=claude-b": {
                "data": [
                    model("claude-a", max_input_tokens=None),
                    model("claude-old", lifecycle="retired"),
                ],
                "has_more": False,
                "last_id": "claude-old",
            },
        },
    )

    assert models == (ListedModel("claude-a"), ListedModel("claude-b", 200_000))
    assert server.headers[0]["x-api-key"] == KEY
    assert "anthropic-version" in server.headers[0]
    assert "content-length" not in server.headers[0]


def test_gemini_model_list_leaves_out_models_that_do_not_write_text() -> None:
    def model(name: str, window: int, *ways: str) -> dict[str, Any]:
        return {
            "name": f"models/{name}",
            "inputTokenLimit": window,
            "supportedGenerationMethods": list(ways),
        }

    methods = ("generateContent", "countTokens")
    models, server = list_all_models(
        "gemini",
        {
            "/v1beta/models?pageSize=1000": {
                "models": [
                    model("gemini-3.8-flash", 1_048_576, *methods),
                    model("gemini-embedding-2", 8192, "embedContent"),
                    model("gemini-3.8-flash-tts", 8192, *methods),
                ],
                "nextPageToken": "a b&c",
            },
            "/v1beta/models?pageSize=1000&pageToken=a%20b%26c": {
                "models": [model("gemma-4-31b-it", 262_144, *methods)]
            },
        },
    )

    assert models == (
        ListedModel("gemini-3.8-flash", 1_048_576),
        ListedModel("gemma-4-31b-it", 262_144),
    )
    assert server.headers[0]["x-goog-api-key"] == KEY


def test_openai_model_list_leaves_out_models_whose_names_are_not_of_text_models() -> None:
    names = (
        "gpt-6.1-sol", "o3-mini", "text-embedding-3-small", "whisper-1", "tts-1-hd",
        "gpt-realtime-2", "gpt-image-2", "gpt-audio", "omni-moderation-latest", "dall-e-3",
        "gpt-4o-mini-tts", "gpt-4o-transcribe", "sora-2", "chatgpt-4o-latest",
    )  # fmt: skip
    page = {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}

    models, server = list_all_models("openai", {"/v1/models": page}, "/v1")

    assert models == (
        ListedModel("chatgpt-4o-latest"),
        ListedModel("gpt-6.1-sol"),
        ListedModel("o3-mini"),
    )
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_openrouter_model_list_has_windows_and_prices_and_is_read_page_by_page() -> None:
    architecture = {"output_modalities": ["text"]}

    def model(name: str, pricing: object, **options: Any) -> dict[str, Any]:
        return {"id": name, "context_length": 1000, "pricing": pricing, **options}

    paid = {
        "prompt": "0.000003",
        "completion": "0.000015",
        "request": "0",
        "input_cache_read": "0.0000003",
        "input_cache_write": "0.00000375",
    }
    models, server = list_all_models(
        "openrouter",
        {
            "/api/v1/models": {
                "data": [
                    model("a/paid", paid, architecture=architecture),
                    model("a/auto", {"prompt": "-1", "completion": "-1"}),
                    model("a/free", {"prompt": "0", "completion": "0"}),
                    model("a/a-call", {**paid, "request": "0.01"}),
                    model("a/odd", {"prompt": "cheap", "completion": "0"}),
                    model("a/nan", {"prompt": "nan", "completion": "inf"}),
                    model("a/cache", {**paid, "input_cache_read": "-1"}),
                    model("a/drawn", paid, architecture={"output_modalities": ["image"]}),
                ],
                "links": {"next": "https://elsewhere.example/api/v1/models?offset=6"},
            },
            "/api/v1/models?offset=6": {"data": [model("b/none", None)]},
        },
        "/api/v1",
    )

    assert models == (
        ListedModel("a/a-call", 1000),
        ListedModel("a/auto", 1000),
        ListedModel("a/cache", 1000, (PriceTier(0, 3.0, 15.0, None, 3.75),)),
        ListedModel("a/free", 1000, (PriceTier(0, 0.0, 0.0),)),
        ListedModel("a/nan", 1000),
        ListedModel("a/odd", 1000),
        ListedModel("a/paid", 1000, (PriceTier(0, 3.0, 15.0, 0.3, 3.75),)),
        ListedModel("b/none", 1000),
    )
    assert server.asked == ["GET /api/v1/models", "GET /api/v1/models?offset=6"]


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ({"context_window": 131_072, "active": True}, 131_072),  # Groq
        ({"max_context_length": 32_768, "capabilities": {"completion_chat": True}}, 32_768),
        ({"max_model_len": 4096}, 4096),  # vLLM
        ({"meta": {"n_ctx": 8192, "n_ctx_train": 32_768}}, 8192),  # llama.cpp
        ({"meta": {"n_ctx_train": 32_768}}, 0),  # its running configuration is not reported
        ({"context_length": True}, 0),
        ({"context_length": -1, "meta": None}, 0),
    ],
)
def test_each_openai_compatible_server_reports_the_window_in_its_own_field(
    model: dict[str, Any], window: int
) -> None:
    assert from_openai({"data": [{"id": "m", **model}]}).models == (
        ListedModel("m", window),
    )


@pytest.mark.parametrize(
    "model", [{"active": False}, {"capabilities": {"completion_chat": False}}]
)
def test_model_that_cannot_chat_is_left_out(model: dict[str, Any]) -> None:
    assert from_openai({"data": [{"id": "m", **model}]}).models == ()


def test_ollama_is_asked_for_the_window_of_each_model() -> None:
    models, server = list_all_models(
        "ollama",
        {
            "/api/tags": {"models": [{"name": n} for n in ("q:8b", "nomic:v1", "gone:1b")]},
            '/api/show {"model":"q:8b"}': {
                "model_info": {"qwen3.context_length": 40_960},
                "capabilities": ["completion", "tools"],
            },
            '/api/show {"model":"nomic:v1"}': {"capabilities": ["embedding"]},
        },
    )

    assert models == (ListedModel("gone:1b"), ListedModel("q:8b", 40_960))
    assert len(server.asked) == 4


def test_model_without_a_usable_name_is_left_out() -> None:
    odd = [{"id": ""}, {"id": None}, {"id": 3}, {}, "m", None, {"id": "x" * 201}]

    assert from_openai({"data": [*odd, {"id": "ok"}]}).models == (ListedModel("ok"),)
    assert from_anthropic({"data": None}).models == ()
    assert from_gemini({}).models == ()


def test_model_list_that_repeats_a_page_is_read_once() -> None:
    page = {"data": [{"id": "m"}], "has_more": True, "last_id": "m"}

    models, server = list_all_models(
        "anthropic",
        {"/v1/models?limit=1000": page, "/v1/models?limit=1000&after_id=m": page},
    )

    assert models == (ListedModel("m"),)
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "page",
    [
        b"[]",
        b"not json",
        b"",
        b'{"models": 3}',
        b'{"error": "no"}',
        b'"x"',
        b"\xff",
        b"[" * 9999,
    ],
)
def test_answer_that_is_not_a_model_list_is_an_error_with_the_address(page: bytes) -> None:
    with pytest.raises(
        Refused, match=r"at http://127.* /models with something other than a list"
    ):
        list_all_models("openai", {"/models": page})


def test_model_list_with_invalid_values_is_refused() -> None:
    odd = {"models": [{"name": "models/m", "supportedGenerationMethods": 3}]}

    with pytest.raises(Refused, match="other than a list of models"):
        list_all_models("gemini", {"/v1beta/models?pageSize=1000": odd})


def test_refused_model_list_request_names_the_key_variable_and_not_the_key() -> None:
    with pytest.raises(ProviderError, match="401") as error:
        list_all_models("openai", {"/models": 401})

    assert "OPENAI_API_KEY" in str(error.value)
    assert KEY not in str(error.value)


def test_model_list_of_a_server_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="OPENAI_BASE_URL"):
        anyio.run(
            partial(
                list_models,
                find("openai"),
                {"OPENAI_BASE_URL": "http://127.0.0.1:9", "OPENAI_API_KEY": KEY},
            )
        )


def test_model_list_is_not_requested_without_a_key() -> None:
    with pytest.raises(BadInput, match="set OPENAI_API_KEY"):
        anyio.run(partial(list_models, find("openai"), {}))


LIST = StoredModelList(
    1000.5, "http://x", (ListedModel("m", 7, (PriceTier(0, 1.0, 2.0),)), ListedModel("n"))
)


def test_model_list_is_stored_for_the_address_that_returned_it(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "models"

    assert load_list(directory, "a/b", "http://x") is None
    store_list(directory, "a/b", LIST)

    assert load_list(directory, "a/b", "http://x") == LIST
    assert load_list(directory, "a/b", "http://y") is None
    assert [p.name for p in directory.iterdir()] == ["a%2Fb.json"]


@pytest.mark.parametrize("text", [b"", b"{", b'{"at": "x"}', b"\xff", b"[]"])
def test_stored_model_list_that_cannot_be_read_is_ignored(
    tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "x.json").write_bytes(text)

    assert load_list(tmp_path, "x", "http://x") is None


def test_model_list_that_cannot_be_stored_causes_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    store_list(tmp_path / "file", "x", LIST)

    assert load_list(tmp_path / "file", "x", "http://x") is None


def test_provider_from_the_settings_is_listed_like_a_builtin_one() -> None:
    with list_server({"/v1/models": {"data": [{"id": "mine"}]}}) as server:
        spec = ProviderSpec("own", "openai-chat", "own", f"{server.url}/v1")
        call = anyio.run(partial(list_models, spec, {}))

    assert json.dumps([model.name for model in call]) == '["mine"]'
    assert "authorization" not in server.headers[0]
