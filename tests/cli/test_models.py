"""`refold models`: which models are shown, with and without a network."""

import json
import os
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from refold.cli.models import Row, add_arguments, run, short_count, table_lines
from refold.errors import BadInput
from refold.provider.catalog import find
from refold.provider.known_models import PriceTier
from refold.provider.prices import Rates
from tests.provider.list_server import Pages, list_server

OPENAI: Pages = {"/models": {"data": [{"id": "gpt-6.1-sol"}, {"id": "gpt-new"}]}}
LOCAL = ["local/qwen2.5-coder-0.5b", "local/qwen2.5-coder-1.5b"]


def models(*arguments: str) -> int:
    parser = ArgumentParser()
    add_arguments(parser.add_subparsers(dest="command").add_parser("models"))
    return run(parser.parse_args(["models", *arguments]))


def rows(text: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in map(json.loads, text.splitlines())}


@pytest.fixture(autouse=True)
def nothing_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that listen on this machine are ignored."""
    for name in ("OLLAMA_HOST", "VLLM_BASE_URL", "LMSTUDIO_BASE_URL", "LLAMA_CPP_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def set_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def write_settings(text: str) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(text)


def test_models_without_a_key_lists_the_embedded_models(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert models() == 0

    output = capfd.readouterr()
    assert output.out.splitlines()[:3] == [
        "MODEL                      WINDOW      $ IN     $ OUT  FROM",
        "local/qwen2.5-coder-1.5b       8k      0.00      0.00  local not installed",
        "local/qwen2.5-coder-0.5b       8k      0.00      0.00  local not installed",
    ]
    assert "set one, such as ANTHROPIC_API_KEY" in output.out
    assert output.err == ""


def test_models_of_a_named_provider_without_a_key_are_listed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert models("anthropic") == 0

    output = capfd.readouterr().out
    assert "anthropic/claude-sonnet-5-5" in output
    assert "anthropic: not asked, there is no key in ANTHROPIC_API_KEY" in output
    assert "local/" not in output


def test_models_all_lists_every_known_provider(capfd: pytest.CaptureFixture[str]) -> None:
    assert models("--all", "--json") == 0

    providers = {row["provider"] for row in rows(capfd.readouterr().out).values()}
    assert {"anthropic", "openai", "gemini", "openrouter", "mistral", "local"} <= providers
    assert "openai-chat" not in providers  # the same server twice


def test_models_shows_the_live_list_of_a_provider_with_prices(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    with list_server(OPENAI) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert models("openai") == 0

    rows = capfd.readouterr().out.splitlines()
    assert rows[:3] == [
        "MODEL                WINDOW      $ IN     $ OUT  FROM",
        "openai/gpt-6.1-sol    1.05M     2.00+    10.00+  live",
        "openai/gpt-new      unknown   unknown   unknown  live",
    ]
    assert max(map(len, rows)) <= 80


def test_models_json_has_every_price_tier_and_null_for_unknown_values(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    with list_server(OPENAI) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models("openai", "--json")

    json_rows = rows(capfd.readouterr().out)
    time_of_list = json_rows["openai/gpt-new"].pop("at")
    assert json_rows["openai/gpt-new"] == {
        "name": "openai/gpt-new",
        "provider": "openai",
        "model": "gpt-new",
        "window": None,
        "prices": None,
        "from": "live",
        "marks": [],
    }
    assert time_of_list.endswith("Z")
    assert json_rows["openai/gpt-6.1-sol"]["prices"] == [
        {"over": 0, "input": 2.0, "output": 10.0, "cached": 0.1, "cache_write": 2.5},
        {"over": 272_000, "input": 4.0, "output": 15.0, "cached": 0.2, "cache_write": 5.0},
    ]


def test_models_list_is_cached_until_refresh(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    with list_server(OPENAI) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models("openai")
        models("openai")
        output = capfd.readouterr().out
        server.pages = {"/models": {"data": [{"id": "gpt-newer"}]}}
        models("openai", "--refresh", "--json")
        fresh = rows(capfd.readouterr().out)
        asked = server.asked

    assert len(asked) == 2
    assert "openai: its list of just now; --refresh asks again" in output
    assert [*fresh] == ["openai/gpt-newer"]


def test_models_without_network_shows_the_cached_list_and_its_age(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    with list_server(OPENAI) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models("openai")
    capfd.readouterr()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3 * 24 * 3600 + 60)

    assert models("openai") == 0

    output = capfd.readouterr()
    assert "openai/gpt-new      unknown   unknown   unknown  kept" in output.out
    assert "openai: its list of 3 days ago; --refresh asks again" in output.out
    assert output.err.startswith(f"refold: cannot reach OpenAI at {server.url}: ")


def test_models_does_not_use_the_cached_list_of_another_base_url(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    with list_server(OPENAI) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models("openai")
        capfd.readouterr()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")

    models("openai", "--json")

    assert "openai/gpt-new" not in rows(capfd.readouterr().out)


def test_models_of_a_local_server_are_not_cached_and_have_price_zero(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = {"data": [{"id": "Qwen/Q3", "max_model_len": 4096}]}
    with list_server({"/models": page}) as server:
        monkeypatch.setenv("VLLM_BASE_URL", server.url)
        models()
        models("--json")
        asked = server.asked

    output = capfd.readouterr().out
    assert "vllm/Qwen/Q3                   4k      0.00      0.00  live" in output
    assert len(asked) == 2


def test_models_shows_roles_prices_windows_and_providers_from_the_settings(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    with list_server(OPENAI) as server:
        write_settings(
            '[models]\nmain = "openai/gpt-new"\nbig = "openai/gpt-6.1-sol"\n'
            'judge = "openai/gpt-hidden"\nsmall = "local/qwen2.5-coder-0.5b"\n'
            '[prices."openai/gpt-n*"]\ninput = 0.075\noutput = 7\nwindow = 5000\n'
            f'[providers.mine]\nwire = "openai-chat"\nbase_url = "{server.url}"\n'
        )
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models()

    rows = capfd.readouterr().out.splitlines()
    assert rows[1:8] == [
        "openai/gpt-6.1-sol          1.05M     2.00+    10.00+  live  big",
        "openai/gpt-hidden         unknown   unknown   unknown  set   judge",
        "openai/gpt-new                 5k     0.075      7.00  live  main",
        "mine/gpt-6.1-sol            1.05M   unknown   unknown  live",
        "mine/gpt-new              unknown   unknown   unknown  live",
        "local/qwen2.5-coder-1.5b       8k      0.00      0.00  local not installed",
        "local/qwen2.5-coder-0.5b       8k      0.00      0.00  local small not installed",
    ]


def test_models_lists_the_other_providers_when_one_fails(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    with list_server({**OPENAI, "/bad/models": 401}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("MISTRAL_BASE_URL", f"{server.url}/bad")
        assert models() == 0

    output = capfd.readouterr()
    assert "openai-chat/gpt-new" in output.out
    assert "mistral/mistral-large-4" in output.out
    assert output.err.count("refold: ") == 1
    assert "MISTRAL_API_KEY" in output.err


def test_models_escapes_control_characters_in_model_names(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    page = {"data": [{"id": "\x1b[2Jgone\nopenai/gpt-6.1-sol  free\u202e"}]}
    with list_server({"/models": page}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models("openai")

    output = capfd.readouterr().out
    assert r"openai/\x1b[2Jgone\nopenai/gpt-6.1-sol  free\u202e" in output
    assert len(output.splitlines()) == 6  # the name has one for itself


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gemni", "there is no provider 'gemni'; did you mean gemini"),
        ("antropic", "there is no provider 'antropic'; did you mean anthropic"),
        ("zzz", "there is no provider 'zzz'; refold models --all lists them"),
    ],
)
def test_models_refuses_an_unknown_provider_and_suggests_the_nearest(
    name: str, says: str
) -> None:
    with pytest.raises(BadInput) as caught:
        models(name)

    assert str(caught.value).startswith(says)
    assert len(str(caught.value)) < 80


def test_models_marks_the_main_model_when_it_is_the_default(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings('[models]\nbig = "mistral/large"\njudge = "nobody/judge"\n')
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    model = find("mistral").model
    with list_server({"/models": {"data": [{"id": model}, {"id": "other"}]}}) as server:
        monkeypatch.setenv("MISTRAL_BASE_URL", server.url)
        models("mistral", "--json")

    json_rows = rows(capfd.readouterr().out)
    assert {name: row["marks"] for name, row in json_rows.items()} == {
        f"mistral/{model}": ["main"],
        "mistral/large": ["big"],
        "mistral/other": [],
    }


def test_models_of_a_custom_openai_address_are_listed_under_openai_chat(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, set_key: None
) -> None:
    """A server that only resembles OpenAI's is asked by the wire that most such servers
    support.
    """
    with list_server(OPENAI) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        models("--json")

    json_rows = rows(capfd.readouterr().out)
    assert {name: row["marks"] for name, row in json_rows.items() if "gpt" in name} == {
        "openai-chat/gpt-6.1-sol": ["main"],
        "openai-chat/gpt-new": [],
    }


def test_models_fails_with_a_notice_when_no_model_is_found(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert models("ollama") == 1

    output = capfd.readouterr()
    assert output.out == ""
    assert "cannot reach Ollama" in output.err
    assert "no models found" in output.err


def test_models_local_lists_the_embedded_models(capfd: pytest.CaptureFixture[str]) -> None:
    assert models("local", "--json") == 0

    assert sorted(rows(capfd.readouterr().out)) == LOCAL


def test_models_puts_a_long_name_on_its_own_line_within_80_columns() -> None:
    price = Rates((PriceTier(0, 1.0, 2.0),))
    rows = [
        Row("p", "x" * 60, "live", 1000, price, ("main",)),
        Row("p", "y" * 200, "live"),
        Row("p", "漢" * 30, "live", marks=("small", "judge")),
        Row("p", "short", "known", 999, price),
    ]

    texts = [*table_lines(rows)]

    assert texts[1] == f"p/{'x' * 60}"
    assert texts[2].split() == ["1k", "1.00", "2.00", "live", "main"]
    assert texts[3] == f"p/{'y' * 77}…"
    assert texts[5] == f"p/{'漢' * 30}"
    assert texts[7].split() == ["p/short", "999", "1.00", "2.00", "known"]
    assert max(map(len, texts)) <= 80


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (0, "unknown"), (999, "999"), (1000, "1k"), (131_072, "131k"), (999_499, "999k"),
        (999_500, "1M"), (1_048_576, "1.05M"), (2_000_000, "2M"), (10_000_000, "10M"),
    ],
)  # fmt: skip
def test_context_window_sizes_are_abbreviated(tokens: int, expected: str) -> None:
    assert short_count(tokens) == expected


def test_models_of_gemini_without_a_live_list_contain_no_claude_models(
    capfd: pytest.CaptureFixture[str],
) -> None:
    models("gemini", "--json")

    names = rows(capfd.readouterr().out)
    assert "gemini/gemini-2.5-pro" in names
    assert not [name for name in names if "claude" in name]
