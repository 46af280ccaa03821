"""`refold replay` on sessions on the disk."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.cli.main import main
from refold.config.paths import paths
from refold.journal.events import codec
from refold.journal.journal_directory import JournalDirectory

CAPFD = pytest.CaptureFixture[str]
LINES: tuple[dict[str, Any], ...] = (
    {"calls": [{"tool": "read_file", "arguments": {"path": "a.txt"}}]},
    {"calls": [{"tool": "write_file", "arguments": {"path": "b.txt", "content": "hi\n"}}]},
    {"text": "Done."},
)


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory in which a session has been, and nothing on stdin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    (tmp_path / "a.txt").write_text("hello\n")
    script = tmp_path / "script.jsonl"
    script.write_bytes(b"\n".join(msgspec.json.encode(line) for line in LINES))
    assert main(["-p", "Go", "--script", str(script)]) == 0
    return tmp_path


def run_replay(capfd: CAPFD, *text: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main(["replay", *text])
    output = capfd.readouterr()
    return code, output.out, output.err


def only_session() -> str:
    (session,) = JournalDirectory(paths(os.environ).data / "sessions").sessions()
    return session.id


def newest_session() -> str:
    return next(iter(JournalDirectory(paths(os.environ).data / "sessions").sessions())).id


def rewrite_journal(journal: bytes, old: bytes, new: bytes) -> bytes:
    """Another journal, with a good chain."""
    head, lines = codec.Head(), list[bytes]()
    for entry, _ in codec.decode(journal.splitlines()):
        data = codec.dump(entry.event).replace(old, new)
        line, head = codec.encode(entry, head, data)
        lines.append(line + b"\n")
    return b"".join(lines)


def write_settings(text: str) -> None:
    file = paths(os.environ).settings
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_replay_without_run_prints_the_conversation(capfd: CAPFD) -> None:
    code, out, err = run_replay(capfd, only_session())

    assert (code, err) == (0, "")
    assert "‹ Done." in out
    main(["sessions", "show", only_session()])
    assert capfd.readouterr().out == out


def test_replay_with_run_agrees_for_unchanged_code_and_writes_nothing(capfd: CAPFD) -> None:
    journal = paths(os.environ).data / "sessions" / only_session() / "events.jsonl"
    before = journal.read_bytes()

    code, out, err = run_replay(capfd, "--run")

    assert (code, err) == (0, "")
    assert out == f"{only_session()}: 3 steps, 14 events reproduced, all agree\n"
    assert journal.read_bytes() == before


def test_replay_under_other_rules_reports_event_step_field_and_both_values(
    capfd: CAPFD,
) -> None:
    write_settings('[permissions]\ndeny = ["read_file"]\n')

    code, out, _ = run_replay(capfd, "--run", "--all")

    assert code == 1
    assert out.splitlines()[:3] == [
        "event 8, turn 3, step 1: Judged.verdict",
        "  then  allow",
        "  now   deny",
    ]


def test_replay_with_another_step_limit_reports_a_divergence(capfd: CAPFD) -> None:
    write_settings("[limits]\nsteps = 2\nwrap_up_steps = 0\n")

    code, out, _ = run_replay(capfd, "--run", "--json")

    data = json.loads(out)
    first = data["divergences"][0]
    assert code == 1
    assert (first["step"], first["event"], first["field"], first["then"]) == (
        3,
        "ModelAsked",
        "notes",
        [],
    )
    assert "step limit" in first["now"][0]


def test_replay_with_tools_again_runs_read_only_tools_again(
    workspace: Path, capfd: CAPFD
) -> None:
    (workspace / "a.txt").write_text("changed\n")

    recorded = run_replay(capfd, "--run")
    again = run_replay(capfd, "--run", "--tools", "again")

    assert recorded[0] == 0
    assert again[0] == 1
    assert "hello" in again[1]
    assert "changed" in again[1]


def test_a_changed_model_setup_is_reported_and_fails_a_strict_replay(
    capfd: CAPFD,
) -> None:
    write_settings("[limits]\noutput_tokens = 999\n")

    lenient = run_replay(capfd, "--run")
    strict = run_replay(capfd, "--run", "--strict")

    assert (lenient[0], strict[0]) == (0, 1)
    assert (
        "the setup of the model differs at event 4: max_output: none, now 999\n"
        in lenient[1]
    )


@pytest.mark.parametrize(
    "flags",
    [
        ["--deny", "read_file", "--allow", "write_file"],
        ["--ask", "read_file"],
        ["--max-turns", "2"],
        ["--permission-mode", "default"],
    ],
    ids=" ".join,
)
def test_a_replay_uses_the_flags_of_each_start(
    workspace: Path, capfd: CAPFD, flags: list[str]
) -> None:
    """A flag no longer holds after the session was resumed without it."""
    write_settings('permission_mode = "accept-edits"\n')
    again = ["--script", str(workspace / "script.jsonl")]
    main(["-p", "Go", *again, *flags])
    session = newest_session()
    main(["-p", "Go on", "-r", session, *again])

    code, out, err = run_replay(capfd, session, "--run", "--all")

    assert (code, err) == (0, "")
    assert out.endswith("all agree\n")


def test_replay_with_run_has_the_added_directories_of_the_session(
    workspace: Path, capfd: CAPFD
) -> None:
    write_settings("checkpoints = false\n")
    other = workspace.parent / "other"
    other.mkdir()
    (other / "x.txt").write_text("there\n")
    script = workspace / "script.jsonl"
    call = {"tool": "read_file", "arguments": {"path": str(other / "x.txt")}}
    script.write_bytes(msgspec.json.encode({"calls": [call]}) + b'\n{"text": "So."}')
    main(["-p", "Go", "--script", str(script), "--add-dir", str(other)])

    code, out, _ = run_replay(capfd, newest_session(), "--run", "--all")

    assert (code, out.splitlines()[-1].endswith("all agree")) == (0, True)


def test_replay_reports_a_recorded_rule_that_is_invalid_now(
    capfd: CAPFD, workspace: Path
) -> None:
    """A journal from another version of refold may have such a rule."""
    main(["-p", "Go", "--script", str(workspace / "script.jsonl"), "--deny", "read_file"])
    session = newest_session()
    journal = (
        JournalDirectory(paths(os.environ).data / "sessions").path(session) / "events.jsonl"
    )
    journal.write_bytes(
        rewrite_journal(journal.read_bytes(), b'"read_file"]', b'"reed_file"]')
    )

    code, _, err = run_replay(capfd, session, "--run")

    assert code == 1
    assert err.startswith(
        f"refold: {session} cannot be run again: the rule 'reed_file' names no tool"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--tools", "again"], "need --run"),
        (["--all"], "need --run"),
        (["nothing", "--run"], "there is no session 'nothing'"),
    ],
)
def test_an_invalid_replay_command_is_refused(
    capfd: CAPFD, words: list[str], why: str
) -> None:
    code, _, err = run_replay(capfd, *words)

    assert code == 1
    assert why in err


def test_a_damaged_journal_is_replayed_up_to_the_damage(capfd: CAPFD) -> None:
    journal = paths(os.environ).data / "sessions" / only_session() / "events.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(b'"Done."', b'"Gone."'))

    code, out, err = run_replay(capfd, only_session(), "--run")

    assert code == 1
    assert "all agree" in out
    assert "is damaged" in err
