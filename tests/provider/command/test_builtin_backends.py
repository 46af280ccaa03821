"""The built-in backends: what is run, and what is refused."""

import shlex
from pathlib import Path

import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from refold.errors import BadInput
from refold.provider.command.backend import ProgramPrompt, prepare_run
from refold.provider.command.backends import (
    builtin_specs,
    connect,
    find,
    own_server,
    parse_name,
)
from refold.provider.command.output import token_usage
from refold.provider.port import Done
from refold.values.usage import Usage
from tests.provider.command.fakes import (
    ask,
    make_command_line,
    request,
    words,
    write_shell_program,
)


def line(name: str, model: str, tmp_path: Path, effort: str = "") -> str:
    words = ProgramPrompt("the prompt", "the system", model, effort)
    place = prepare_run(find(name), "/bin/prog", words, {"HOME": str(tmp_path)})
    place.clear()
    return shlex.join(place.argv).replace(str(place.directory), "/run")


def test_claude_is_started_without_tools_settings_servers_and_sessions(
    tmp_path: Path,
) -> None:
    assert line("claude-code", "opus", tmp_path, "max") == snapshot(
        "/bin/prog -p --output-format stream-json --verbose --include-partial-messages --system-prompt-file /run/system.md --tools '' --restricted --strict-mcp-config --setting-sources '' --disable-slash-commands --no-chrome --no-session-persistence --permission-mode dontAsk --permission-prompts none --model opus --effort max"
    )


def test_codex_is_started_without_tools_settings_and_sessions(tmp_path: Path) -> None:
    assert line("codex-cli", "gpt-6.1-sol", tmp_path, "max") == snapshot(
        "/bin/prog exec --json --ephemeral --ignore-user-config --ignore-rules --skip-git-repo-check --sandbox read-only --color never -c 'model_instructions_file=\"/run/system.md\"' -c 'web_search=\"disabled\"' -c agents.enabled=false -c skills.include_instructions=false -c include_permissions_instructions=false -c include_environment_context=false -c include_apps_instructions=false -c include_collaboration_mode_instructions=false -c project_doc_max_bytes=0 -c check_for_update_on_startup=false -c features.shell_tool=false -c features.unified_exec=false -c features.code_mode_host=false -c features.multi_agent=false -c features.multi_agent_v2=false -c features.goals=false -c features.hooks=false -c features.plugins=false -c features.remote_plugin=false -c features.apps=false -c features.browser_use=false -c features.browser_use_external=false -c features.in_app_browser=false -c features.computer_use=false -c features.image_generation=false -c features.view_image=false -c features.skill_search=false -c features.shell_snapshot=false -c features.sleep_tool=false -c features.tool_suggest=false -c features.standalone_web_search=false -c features.memories=false --model gpt-6.1-sol -c 'model_reasoning_effort=\"xhigh\"'"
    )


def test_gemini_is_started_without_tools_extensions_and_servers(tmp_path: Path) -> None:
    assert line("gemini-cli", "gemini-2.5-pro", tmp_path) == snapshot(
        "/bin/prog --output-format stream-json --prompt '' --policy /run/no_tools.toml --admin-policy /run/no_tools.toml --extensions none --allowed-mcp-server-names none --skip-trust --approval-mode default --model gemini-2.5-pro"
    )


def test_ollama_is_asked_for_its_model(tmp_path: Path) -> None:
    assert line("ollama-cli", "qwen3:4b", tmp_path) == snapshot(
        "/bin/prog run qwen3:4b --nowordwrap --hidethinking --verbose"
    )


def test_program_without_a_model_name_gets_no_model_argument(tmp_path: Path) -> None:
    assert "--model" not in line("codex-cli", "", tmp_path)


def test_ollama_output_gives_text_and_token_counts(tmp_path: Path) -> None:
    program = write_shell_program(
        tmp_path,
        "printf 'pulling\\033[K\\n' >&2; printf 'Hello!\\n\\n'; cat >&2 <<'END'\n"
        "total duration:       1.2s\nprompt eval count:    26 token(s)\n"
        "eval count:           298 token(s)\neval rate: 48 tokens/s\nEND",
    )
    spec = replace(find("ollama-cli"), argv=(str(program), *find("ollama-cli").argv[1:]))

    deltas = ask(make_command_line(spec, "qwen3:4b"), request("Hi"))

    assert (words(deltas), deltas[-1]) == (
        "Hello!",
        Done(Usage(fresh=26, output=298), by_agent=True),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("claude-code/opus", ("claude-code", "opus")),
        ("claude-code", ("claude-code", "sonnet")),
        ("codex-cli", ("codex-cli", "")),
        ("Gemini-CLI/gemini-2.5-pro", ("gemini-cli", "gemini-2.5-pro")),
        ("ollama-cli/hf.co/x/y:q4", ("ollama-cli", "hf.co/x/y:q4")),
        ("coro", ("coro", "")),
        ("anthropic/claude-1", None),
        ("", None),
    ],
)
def test_command_line_backends_are_selected_by_model_names(
    text: str, expected: tuple[str, str] | None
) -> None:
    answer = parse_name(text)

    assert (answer and (answer[0].name, answer[1])) == expected


def test_ollama_needs_a_model() -> None:
    with pytest.raises(
        BadInput, match="'ollama-cli' names no model: write ollama-cli/MODEL"
    ):
        parse_name("ollama-cli")


def test_model_name_that_begins_with_a_dash_is_refused() -> None:
    with pytest.raises(BadInput, match="a model's name cannot begin with -"):
        parse_name("ollama-cli/--experimental")


def test_unknown_command_line_error_suggests_the_nearest_name() -> None:
    with pytest.raises(
        BadInput, match="no command line 'claude'; did you mean claude-code"
    ):
        find("claude")


def test_program_with_tools_that_cannot_be_switched_off_is_refused() -> None:
    with pytest.raises(BadInput, match=r"coro uses tools of its own .* read-only sandbox"):
        connect(find("coro"), "", environ={})


@pytest.mark.parametrize("spec", [s for s in builtin_specs() if s.tools != "on"])
def test_missing_program_error_says_how_to_install_it(spec: object) -> None:
    assert spec in builtin_specs()
    name = getattr(spec, "name", "")

    with pytest.raises(BadInput) as raised:
        connect(find(name), "", environ={"PATH": "/nowhere"})

    assert str(raised.value).endswith(f"is not installed here: {find(name).install}")


def test_each_builtin_backend_but_coro_documents_how_its_tools_are_switched_off() -> None:
    assert [s.name for s in builtin_specs() if not s.tools_off_by] == ["coro"]
    assert find("coro").tools == "on"


def test_gemini_cli_thinking_tokens_are_computed_from_the_total() -> None:
    line = msgspec.json.decode(
        b'{"type":"result","status":"success","stats":{"total_tokens":150,'
        b'"input_tokens":100,"output_tokens":9,"cached":30,"input":70,"tool_calls":0}}'
    )

    usage = token_usage(line, find("gemini-cli").output.counts)

    assert usage == Usage(fresh=70, cached=30, output=50, reasoning=41)


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("box", 1234, "box:1234"),
        ("box", 0, "box"),
        ("", 1234, "127.0.0.1:1234"),
        ("::1", 1234, "[::1]:1234"),
        ("[::1]", 0, "[::1]"),
    ],
)
def test_host_and_port_options_set_the_server_address_of_ollama(
    host: str, port: int, address: str
) -> None:
    assert own_server("Ollama-CLI/qwen3", host, port) == {"OLLAMA_HOST": address}


def test_host_option_is_refused_for_a_program_that_chooses_its_own_server() -> None:
    with pytest.raises(BadInput, match="Codex asks servers of its own choice: --host"):
        own_server("codex-cli", "box", 0)
    with pytest.raises(
        BadInput, match=r"do not apply to 'command/mine': .* \[commands.NAME\]"
    ):
        own_server("command/mine", "box", 0)


def test_host_option_of_a_model_that_is_not_a_program_is_left_to_its_provider() -> None:
    assert own_server("ollama/qwen3", "box", 0) is None
