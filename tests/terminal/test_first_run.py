"""The first run in a real terminal, where a server of models answers on this machine."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from tests.cli.test_local_servers import SILENT, serve
from tests.sandbox_notice import sandbox_notice
from tests.terminal.pty_terminal import STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
CTRL_D, ENTER = "\x04", "\r"
MODELS = {"/api/tags": {"models": [{"name": "qwen3:8b"}, {"name": "gemma4:4b"}]}}


@pytest.mark.slow
def test_a_model_of_ollama_chosen_at_the_first_run_becomes_the_default(
    tmp_path: Path, compiled: Path
) -> None:
    with serve(MODELS) as address:
        env = {**SILENT, "OLLAMA_HOST": address, "TERM": "xterm-256color"}
        terminal = Terminal(PROGRAM, directory=tmp_path, compiled=compiled, **env)
        terminal.until("Ollama on this machine")
        terminal.choose("Ollama on this machine")
        terminal.until("1 ollama/qwen3:8b")
        terminal.choose("ollama/gemma4:4b")
        terminal.until("ollama/gemma4:4b is now the default model")
        if (
            terminal.wait_for_text("esc later", "lists the commands") == 0
        ):  # a sandbox works here
            terminal.answer(ENTER)
        terminal.wait_for_prompt()
        terminal.type(CTRL_D)
        assert terminal.end() == 0

        again = Terminal(PROGRAM, directory=tmp_path, compiled=compiled, **env)
        again.wait_for_prompt()  # and not for a model
        assert "ollama/gemma4:4b" in again.text
        again.type(CTRL_D)
        assert again.end() == 0


@pytest.fixture
def start_with_key(tmp_path: Path, compiled: Path) -> Callable[..., Terminal]:
    """Starts refold where the environment has a key."""
    env = {**SILENT, "ANTHROPIC_API_KEY": "sk-ant-of-a-test", "TERM": "xterm-256color"}

    def start(*flags: str) -> Terminal:
        return Terminal(
            PROGRAM, *flags, directory=tmp_path, compiled=compiled, size=(40, 90), **env
        )

    return start


@pytest.mark.slow
@pytest.mark.skipif(bool(sandbox_notice()), reason="mode sandbox is not offered here")
def test_the_mode_is_asked_for_once_where_the_environment_has_a_key(
    start_with_key: Callable[..., Terminal],
) -> None:
    terminal = start_with_key()
    terminal.until("What may refold do without asking?")
    terminal.until("› 1 ask before each edit")
    terminal.type("2" + ENTER)
    terminal.until("Mode sandbox is now the default.")
    terminal.wait_for_prompt("sandbox ›")
    terminal.type(CTRL_D)
    assert terminal.end() == 0

    again = start_with_key()
    again.wait_for_prompt("sandbox ›")
    assert "without asking?" not in again.text
    again.type(CTRL_D)
    assert again.end() == 0


@pytest.mark.slow
def test_rules_of_claude_code_are_listed_with_what_counts_until_they_are_decided_on(
    start_with_key: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / ".claude").mkdir()
    settings = tmp_path / ".claude/settings.json"
    settings.write_text(
        '{"permissions": {"allow": ["Bash(make:*)"], "deny": ["Read(./secrets/**)"]}}'
    )
    for answer, allowed in (("\x1b", 0), ("y", 1), ("", 1)):
        terminal = start_with_key("--permission-mode", "default")
        if answer:
            terminal.until("allow  bash(make:*)  (counts once you import it)")
            terminal.until("deny   read(./secrets/**)  (counts already)")
            terminal.answer(answer)
        terminal.wait_for_prompt()
        terminal.type(CTRL_D)

        assert terminal.end() == 0
        assert ("Claude Code has permission rules" in terminal.text) == bool(answer)
        here = load_folder_settings(tmp_path, paths(os.environ), os.environ, {})
        assert len(here.settings.permissions.allow) == allowed


@pytest.mark.slow
def test_a_message_typed_at_the_trust_question_is_sent_when_the_session_starts(
    tmp_path: Path, compiled: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "script").write_text('{"text": "Fixed."}\n')
    terminal = Terminal(
        PROGRAM, "--script", "script", directory=tmp_path, compiled=compiled
    )
    terminal.until("Trust this folder?")
    terminal.until("› 1 not now")
    terminal.type("fix it" + ENTER)
    terminal.until("Your message is sent when the session starts.")
    terminal.wait_for_text("› 1 not now", since=terminal.sent_bytes)
    terminal.type("sk-ant-of-mine" + ENTER)
    terminal.until("it was dropped")
    terminal.answer("y")
    terminal.until("Fixed.")
    terminal.wait_for_prompt()
    terminal.type(CTRL_D)

    assert terminal.end() == 0
    assert "› fix it" in "\n".join(terminal.paper)
    assert "sk-ant" not in terminal.raw
