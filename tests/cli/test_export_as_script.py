"""`refold sessions export --format script`: what the model said in a session, for `--script`."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

from refold.cli.main import main

TASK = {"prompt": "Count the tests.", "agent": "explore"}
SCRIPT: list[dict[str, object]] = [
    {"thinking": "Let me see.", "text": "I ask.", "calls": [{"tool": "task", "arguments": TASK}]},
    {"for": "Count the tests.", "calls": [{"tool": "list_files"}]},
    {"for": "Count the tests.", "text": "There are 12."},
    {"text": "12 tests."},
]  # fmt: skip


def conversation(script: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Return a session with these responses, as it is printed."""
    assert main(["-p", "How many?", "--yolo", "--script", script]) == 0
    capfd.readouterr()
    assert main(["sessions", "export", "--format", "text"]) == 0
    _, _, conversation = capfd.readouterr().out.partition("› How many?")
    return re.sub(r"[\d.]+ s\b|\S+(?=/child-1)|[\d-]{10} \d\d:\d\d", "…", conversation)


def test_a_session_exported_as_a_script_reproduces_its_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    first, again = tmp_path / "a.jsonl", tmp_path / "again" / "a.jsonl"
    again.parent.mkdir()
    first.write_text("".join(json.dumps(line) + "\n" for line in SCRIPT))

    before = conversation(str(first), capfd)
    assert main(["sessions", "export", "-o", str(again)]) == 0
    after = conversation(str(again), capfd)

    assert before == after
    assert "12 tests." in after
    assert "There are 12." in after
    assert "Let me see." in again.read_text()
