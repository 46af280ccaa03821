"""The first run in a real terminal, where a server of models answers on this machine."""

from pathlib import Path

import pytest

from tests.cli.test_local_servers import SILENT, serving
from tests.terminal.pty_terminal import STAGE, Terminal

PROGRAM = STAGE.with_name("stage_program.py")
CTRL_D = "\x04"
MODELS = {"/api/tags": {"models": [{"name": "qwen3:8b"}, {"name": "gemma4:4b"}]}}


@pytest.mark.slow
def test_a_model_of_ollama_chosen_at_the_first_run_becomes_the_default(
    tmp_path: Path, compiled: Path
) -> None:
    with serving(MODELS) as address:
        env = {**SILENT, "OLLAMA_HOST": address, "TERM": "xterm-256color"}
        at = Terminal(PROGRAM, here=tmp_path, compiled=compiled, **env)
        at.until("Ollama on this machine")
        at.until("or q to leave")
        at.type("2")
        at.until("Esc goes back")
        at.type("2")
        at.until("ollama/gemma4:4b is now the default model")
        if at.until_sent("(default 2)", "lists the commands") == 0:  # a sandbox works here
            at.type("2")
        at.until_asked()
        at.type(CTRL_D)
        assert at.end() == 0

        again = Terminal(PROGRAM, here=tmp_path, compiled=compiled, **env)
        again.until_asked()  # and not for a model
        assert "ollama/gemma4:4b" in again.text
        again.type(CTRL_D)
        assert again.end() == 0
