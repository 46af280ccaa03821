"""The known providers, their addresses, and the keys that they get."""

from contextlib import aclosing

import anyio
import pytest

from refold.errors import BadInput
from refold.provider.catalog import (
    ProviderSpec,
    address,
    connect,
    find,
    parse_model,
    providers,
    window_of,
)
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, wire_server
from tests.provider.wires import stream_deltas, words

ANTHROPIC, OPENAI, GEMINI, CHAT = map(
    find, ("anthropic", "openai", "gemini", "openai-chat")
)
AZURE, OLLAMA = find("azure"), find("ollama")


def test_model_name_has_a_provider_prefix_and_may_contain_slashes() -> None:
    assert parse_model("ollama/qwen3:8b") == (OLLAMA, "qwen3:8b")
    assert parse_model("openai/meta/llama-4") == (OPENAI, "meta/llama-4")
    assert parse_model("Anthropic") == (ANTHROPIC, ANTHROPIC.model)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("antropic/x", "no provider 'antropic'; did you mean anthropic"),
        ("zzz", "there is no provider 'zzz'; refold models --all lists them"),
        ("mistrel", "did you mean mistral"),
        ("ollama", "'ollama' names no model: write ollama/MODEL"),
    ],
)
def test_unknown_provider_or_missing_model_is_refused_with_a_suggestion(
    text: str, says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        parse_model(text)


def test_own_provider_is_found_by_its_name() -> None:
    mine = ProviderSpec("mine", "openai-chat", "Mine", "http://127.0.0.1:1/v1", model="m")

    assert parse_model("mine", (mine, *providers())) == (mine, "m")


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("box:99", "http://box:99"),
        (":99", "http://127.0.0.1:99"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:99", "http://127.0.0.1:99"),
        ("https://box/api/", "https://box/api"),
    ],
)
def test_ollama_host_variable_is_parsed_as_ollama_parses_it(value: str, url: str) -> None:
    assert address(OLLAMA, {"OLLAMA_HOST": value}) == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://me:secret@api.test", "OPENAI_BASE_URL holds a user name or a password"),
        (
            "nonsense",
            "OPENAI_BASE_URL is not an address: 'nonsense'; write it with http://",
        ),
    ],
)
def test_incomplete_provider_address_is_refused_without_showing_a_password(
    url: str, message: str
) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        address(find("openai"), {"OPENAI_BASE_URL": url})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense://x", "http://", "http://a b", "http://x:port"])
def test_invalid_provider_address_is_quoted_in_the_error(url: str) -> None:
    with pytest.raises(BadInput, match=f"'{url.rstrip('/')}/*' is not a web address"):
        connect(ANTHROPIC, {"ANTHROPIC_BASE_URL": url})


def test_missing_key_error_names_its_variable() -> None:
    with pytest.raises(BadInput, match="no key for Anthropic: set ANTHROPIC_API_KEY"):
        connect(ANTHROPIC, {"ANTHROPIC_API_KEY": "  "})


def test_own_server_at_another_address_needs_no_key() -> None:
    connect(OPENAI, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})


def test_key_with_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(BadInput, match="OPENAI_API_KEY holds a character") as caught:
        connect(OPENAI, {"OPENAI_API_KEY": "sk-abc\nsk-def"})

    assert "abc" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "environ", "header"),
    [
        (ANTHROPIC, {"ANTHROPIC_API_KEY": "k \n"}, ("x-api-key", "k")),
        (ANTHROPIC, {"ANTHROPIC_AUTH_TOKEN": "t"}, ("authorization", "Bearer t")),
        (OPENAI, {"OPENAI_API_KEY": "k"}, ("authorization", "Bearer k")),
        (GEMINI, {"GEMINI_API_KEY": "k"}, ("x-goog-api-key", "k")),
        (GEMINI, {"GOOGLE_API_KEY": "k"}, ("x-goog-api-key", "k")),
        (AZURE, {"AZURE_OPENAI_API_KEY": "k"}, ("api-key", "k")),
        (find("groq"), {"GROQ_API_KEY": "k"}, ("authorization", "Bearer k")),
    ],
    ids=["key", "token", "openai", "gemini", "google", "azure", "groq"],
)
def test_each_provider_gets_its_key_in_its_own_header(
    spec: ProviderSpec, environ: dict[str, str], header: tuple[str, str]
) -> None:
    async def main() -> dict[str, str]:
        async with wire_server(answer(spec.wire, Reply("Yes."))) as server:
            environ_there = {**environ, spec.url_env: server.url + "/base/"}
            async with aclosing(connect(spec, environ_there)) as provider:
                await stream_deltas(provider)
            assert server.heard[0].path.startswith("/base/")
            return dict(server.heard[0].headers)

    assert anyio.run(main)[header[0]] == header[1]


def test_context_windows_of_known_model_families_are_listed_and_others_unknown() -> None:
    assert window_of(ANTHROPIC, "claude-sonnet-4-5-20250929") == 200_000
    assert window_of(ANTHROPIC, ANTHROPIC.model) == window_of(ANTHROPIC, "claude-opus-5-5")
    assert window_of(OPENAI, OPENAI.model) > 0
    assert window_of(OPENAI, "gpt-6-cyber") == window_of(OPENAI, "my-own") == 0
    assert find("openai") is not None


@pytest.mark.parametrize("spec", providers(), ids=lambda spec: spec.name)
def test_every_provider_can_be_connected_and_answers(spec: ProviderSpec) -> None:
    async def main() -> str:
        replies = [answer(spec.wire, Reply("Yes."))]
        answers = [Answer(b"{}")] if spec.wire == "ollama" else []
        async with wire_server(*answers, *replies) as server:
            environ = {spec.url_env: server.url, **dict.fromkeys(spec.secret_envs, "k")}
            async with aclosing(connect(spec, environ)) as provider:
                return words(await stream_deltas(provider))

    assert anyio.run(main) == "Yes."


def test_provider_names_are_unique_and_each_has_its_own_variables() -> None:
    known = providers()
    names = [name for spec in known for name in (spec.name, *spec.aliases)]

    assert len(set(names)) == len(names)
    assert all(spec.url_env and (spec.key_env or spec.name == "ollama") for spec in known)
    assert parse_model("google") == (GEMINI, GEMINI.model)


@pytest.mark.parametrize(
    "environ",
    [
        {"AZURE_OPENAI_BASE_URL": "https://r.openai.azure.com/openai/v1/"},
        {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/"},
        {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/openai/v1"},
    ],
)
def test_azure_address_comes_from_the_resource_of_the_user(environ: dict[str, str]) -> None:
    assert address(AZURE, environ) == "https://r.openai.azure.com/openai/v1"


def test_azure_without_an_address_or_key_names_the_missing_variable() -> None:
    with pytest.raises(BadInput, match="no default address: set AZURE_OPENAI_BASE_URL"):
        connect(AZURE, {"AZURE_OPENAI_API_KEY": "k"})
    with pytest.raises(BadInput, match="no key for Azure OpenAI: set AZURE_OPENAI_API_KEY"):
        connect(AZURE, {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com"})


@pytest.mark.parametrize("name", ["vllm", "lmstudio", "llama-cpp"])
def test_local_server_needs_no_key_but_accepts_one(name: str) -> None:
    spec = find(name)

    connect(spec, {})
    assert spec.key_env in spec.secret_envs


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("openai-chat", "max_completion_tokens"),
        ("azure", "max_completion_tokens"),
        ("mistral", "max_tokens"),
        ("vllm", "max_tokens"),
    ],
)
def test_output_limit_field_has_the_name_that_each_server_uses(
    name: str, limit: str
) -> None:
    assert find(name).quirks.output_limit == limit
