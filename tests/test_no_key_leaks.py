"""A provider's key goes to the provider and nowhere else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journal.journals import text_in


@pytest.mark.slow
def test_the_provider_key_is_hidden_from_commands_and_the_journal(
    tmp_path: Path, canary: str
) -> None:
    """The journal does not contain it even when the model writes it into a call."""
    call = {"tool": "bash", "arguments": {"command": f"env; echo given {canary}"}}
    answers = [{"text": "I look.", "calls": [call]}, {"text": "Done."}]
    script = tmp_path / "answers"
    script.write_text("\n".join(json.dumps(answer) for answer in answers), encoding="utf-8")

    done = subprocess.run(
        [
            *(sys.executable, "-m", "refold", "-p", "look", "--yolo"),
            *("--script", str(script), "--output-format", "stream-json"),
        ],
        cwd=tmp_path,
        env={**os.environ, "ANTHROPIC_API_KEY": canary, "OPENAI_API_KEY": canary},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    events = [json.loads(line) for line in done.stdout.splitlines()]
    (result,) = [item["text"] for item in events if item["type"] == "tool_result"]
    journal = next((Path(os.environ["REFOLD_HOME"])).rglob("events.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "ANTHROPIC_API_KEY" not in result
    assert "given " in result
    assert canary not in done.stdout + done.stderr
    assert canary not in text_in(journal)
