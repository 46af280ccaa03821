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
from tests.provider.wires import heard, words

ANTHROPIC, OPENAI, GEMINI, CHAT = map(
    find, ("anthropic", "openai", "gemini", "openai-chat")
)
AZURE, OLLAMA = find("azure"), find("ollama")


def test_a_model_is_named_with_its_provider_and_may_have_slashes_itself() -> None:
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
def test_a_name_that_means_nothing_says_what_would(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_model(text)


def test_a_provider_of_ones_own_is_a_value() -> None:
    mine = ProviderSpec("mine", "openai-chat", "Mine", "http://127.0.0.1:1/v1", model="m")

    assert parse_model("mine", (mine, *providers())) == (mine, "m")


@pytest.mark.parametrize(
    ("given", "url"),
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
def test_ollama_host_is_read_as_ollama_reads_it(given: str, url: str) -> None:
    assert address(OLLAMA, {"OLLAMA_HOST": given}) == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://me:secret@api.test", "OPENAI_BASE_URL holds a user name or a password"),
        (
            "nonsense",
            "OPENAI_BASE_URL is not an address: 'nonsense'; write it with http://",
        ),
    ],
)
def test_an_address_is_whole_and_holds_no_password(url: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        address(find("openai"), {"OPENAI_BASE_URL": url})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense://x", "http://", "http://a b", "http://x:port"])
def test_an_address_that_is_none_is_quoted(url: str) -> None:
    with pytest.raises(BadInput, match=f"'{url.rstrip('/')}/*' is not a web address"):
        connect(ANTHROPIC, {"ANTHROPIC_BASE_URL": url})


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(BadInput, match="no key for Anthropic: set ANTHROPIC_API_KEY"):
        connect(ANTHROPIC, {"ANTHROPIC_API_KEY": "  "})


def test_a_server_of_ones_own_may_do_without_a_key() -> None:
    connect(OPENAI, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})


def test_a_key_with_a_line_break_inside_is_refused_and_not_shown() -> None:
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
def test_each_provider_gets_its_key_as_it_wants_it(
    spec: ProviderSpec, environ: dict[str, str], header: tuple[str, str]
) -> None:
    async def use() -> dict[str, str]:
        async with wire_server(answer(spec.wire, Reply("Yes."))) as server:
            environ_there = {**environ, spec.url_env: server.url + "/base/"}
            async with aclosing(connect(spec, environ_there)) as provider:
                await heard(provider)
            assert server.heard[0].path.startswith("/base/")
            return dict(server.heard[0].headers)

    assert anyio.run(use)[header[0]] == header[1]


def test_windows_of_known_families_are_known_and_others_are_not_guessed() -> None:
    assert window_of(ANTHROPIC, "claude-sonnet-4-5-20250929") == 200_000
    assert window_of(ANTHROPIC, ANTHROPIC.model) == window_of(ANTHROPIC, "claude-opus-5-5")
    assert window_of(OPENAI, OPENAI.model) > 0
    assert window_of(OPENAI, "gpt-6-cyber") == window_of(OPENAI, "my-own") == 0
    assert find("openai") is not None


@pytest.mark.parametrize("spec", providers(), ids=lambda spec: spec.name)
def test_every_provider_can_be_connected_and_asked(spec: ProviderSpec) -> None:
    async def use() -> str:
        replies = [answer(spec.wire, Reply("Yes."))]
        shown = [Answer(b"{}")] if spec.wire == "ollama" else []
        async with wire_server(*shown, *replies) as server:
            environ = {spec.url_env: server.url, **dict.fromkeys(spec.secret_envs, "k")}
            async with aclosing(connect(spec, environ)) as provider:
                return words(await heard(provider))

    assert anyio.run(use) == "Yes."


def test_names_and_variables_of_providers_are_their_own() -> None:
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
def test_azure_has_the_address_of_ones_own_resource(environ: dict[str, str]) -> None:
    assert address(AZURE, environ) == "https://r.openai.azure.com/openai/v1"


def test_azure_without_an_address_or_a_key_says_which_variable() -> None:
    with pytest.raises(BadInput, match="no default address: set AZURE_OPENAI_BASE_URL"):
        connect(AZURE, {"AZURE_OPENAI_API_KEY": "k"})
    with pytest.raises(BadInput, match="no key for Azure OpenAI: set AZURE_OPENAI_API_KEY"):
        connect(AZURE, {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com"})


@pytest.mark.parametrize("name", ["vllm", "lmstudio", "llama-cpp"])
def test_a_server_on_this_machine_needs_no_key_and_takes_one(name: str) -> None:
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
def test_the_limit_of_an_answer_is_called_as_each_server_calls_it(
    name: str, limit: str
) -> None:
    assert find(name).quirks.output_limit == limit
