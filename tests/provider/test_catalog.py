"""Which providers there are, where they are, and with which key they are asked."""

from contextlib import aclosing

import anyio
import pytest
from wires import heard

from refold.errors import BadInput
from refold.provider.catalog import (
    ProviderSpec,
    address,
    connect,
    find,
    has_key,
    named,
    providers,
    window_of,
)
from refold.provider.dial import place, proxy_for
from refold.testing.scripted import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server

ANTHROPIC, OPENAI, OLLAMA = providers()


def test_a_model_is_named_with_its_provider_and_may_have_slashes_itself() -> None:
    assert named("ollama/qwen3:8b") == (OLLAMA, "qwen3:8b")
    assert named("openai/meta/llama-4") == (OPENAI, "meta/llama-4")
    assert named("Anthropic") == (ANTHROPIC, ANTHROPIC.model)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("antropic/x", "no provider 'antropic'; did you mean anthropic"),
        ("zzz", "did you mean anthropic or openai-chat or openai or ollama"),
        ("ollama", "'ollama' names no model: say ollama/MODEL"),
    ],
)
def test_a_name_that_means_nothing_says_what_would(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        named(text)


def test_a_provider_of_ones_own_is_a_value() -> None:
    mine = ProviderSpec("mine", "openai-chat", "Mine", "http://127.0.0.1:1/v1", model="m")

    assert named("mine", (mine, *providers())) == (mine, "m")


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


@pytest.mark.parametrize("url", ["nonsense://x", "http://", "http://a b", "http://x:port"])
def test_an_address_that_is_none_is_quoted(url: str) -> None:
    with pytest.raises(BadInput, match=f"'{url.rstrip('/')}/*' is no address"):
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
    ],
    ids=["key", "token", "openai"],
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

    assert has_key(spec, environ)
    assert anyio.run(use)[header[0]] == header[1]


def test_windows_of_known_families_are_known_and_others_are_not_guessed() -> None:
    assert window_of(ANTHROPIC, "claude-sonnet-4-5-20250929") == 200_000
    assert window_of(ANTHROPIC, ANTHROPIC.model) == window_of(ANTHROPIC, "claude-opus-5-5")
    assert window_of(OPENAI, OPENAI.model) > 0
    assert window_of(OPENAI, "gpt-6-cyber") == window_of(OPENAI, "my-own") == 0
    assert find("openai") is not None


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api.x.com", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api.x.com", {"all_proxy": "http://p:1"}, "http://p:1"),
        (
            "https://api.x.com",
            {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.com,.x.com"},
            "",
        ),
        ("https://api.x.com", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
        (
            "https://notx.com",
            {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x.com"},
            "http://p:1",
        ),
        ("http://api.x.com", {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://p:1"}, ""),
        ("https://127.0.0.1", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://localhost:8", {"HTTPS_PROXY": "http://p:1"}, ""),
    ],
)
def test_only_tls_to_other_machines_goes_through_a_proxy(
    url: str, environ: dict[str, str], proxy: str
) -> None:
    assert proxy_for(place(url), environ) == proxy
