"""The files uwsal.json and coro.json of other agent loops, as declared agents."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold.cli.main import main
from refold.declared.agent_files import parse_agent_file
from refold.declared.overlay import overlay_of
from refold.declared.variant import Declared, to_table
from refold.errors import BadInput


def agent(name: str = "uwsal.json", *, ours: bool = True, **keys: Any) -> Declared:
    text = json.dumps(keys, indent=1).encode()
    (result,) = parse_agent_file(
        text, name, f"/here/{name}", {}, pinned_files=None if ours else {}
    ).agents
    return result


def test_the_base_url_determines_the_provider() -> None:
    one = agent(
        api_key="$KEY",
        model="moonshotai/kimi-k2.5",
        base_url="https://openrouter.ai/api/v1",
    )
    other = agent(
        "coro.json", model="m", base_url="http://127.0.0.1:9/v1", protocol="openai_compat"
    )

    assert to_table(one.variant) == {
        "backend": "openrouter", "model": "moonshotai/kimi-k2.5",
        "base_url": "https://openrouter.ai/api/v1", "api_key_env": "KEY",
    }  # fmt: skip
    assert overlay_of(one).model == "openrouter/moonshotai/kimi-k2.5"
    assert (other.variant.name, overlay_of(other).model) == ("coro", "openai-chat/m")


def test_loop_limits_and_modes_are_mapped_and_zero_means_no_limit() -> None:
    loop_agent = agent(
        backend="claude-code", model="opus", context_mode="sliding", max_messages=50,
        max_chars=8000, max_words=0, max_iterations=0, timeout=300, approval_mode="auto_edit",
        tool_cache_ttl=0, token_budget=0,
    )  # fmt: skip

    assert to_table(loop_agent.variant) == {
        "backend": "claude-code", "model": "opus", "context_mode": "sliding", "max_messages": 50,
        "max_context_chars": 8000, "timeout": 300.0, "approval": "auto_edit",
    }  # fmt: skip


def test_a_backend_key_is_used_with_a_warning_and_refused_in_a_project() -> None:
    keys = {"openrouter": "or-1", "anthropic": "an-1"}
    loop_agent = agent(backend="claude", model="m", keys=keys, api_key="other")

    assert loop_agent.variant.api_key == "an-1"
    assert "has its key in the file" in overlay_of(loop_agent).notices[0]
    with pytest.raises(BadInput, match="a project must not hold a key"):
        agent(backend="claude", model="m", keys=keys, ours=False)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("mcp_servers", [{}], "uwsal.json:3: agents.uwsal.mcp_servers: it is not read from here: put"),
        ("token_budget", 5.0, "uwsal.json:3: agents.uwsal.token_budget: it is not read from here: set"),
        ("modle", "m", "uwsal.json:3: agents.uwsal.modle: there is no such key; did you mean model?"),
    ],
)  # fmt: skip
def test_unsupported_loop_key_is_an_error_with_its_line(
    key: str, value: object, expected: str
) -> None:
    with pytest.raises(BadInput) as raised:
        agent(backend="ollama", **{key: value})

    assert str(raised.value).startswith(expected)


def test_a_loop_config_can_be_imported_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    Path("coro.json").write_text('{"model": "m", "base_url": "https://api.x.ai/v1"}')

    assert main(["spec", "import", "coro.json"]) == 0
    assert main(["--agents", "coro.json", "--list-agents"]) == 0
    out = capfd.readouterr().out
    assert out.startswith('default = "coro"\n[agents.coro]\nbackend = "xai"\nmodel = "m"\n')
    assert ["coro", "Works", "with", "xai/m.", "(coro.json)"] in [
        r.split() for r in out.splitlines()
    ]
