"""A resumed session: what is restored, what no longer exists, and the notices."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal

from refold.cli.main import main
from refold.journal.journal_directory import JournalDirectory
from refold.session.recorder import Recorder
from tests.cli.contract import documents
from tests.sandbox_notice import without_sandbox_notice


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory to work in, and nothing on stdin."""
    path = tmp_path / "here"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    (tmp_path / "script.jsonl").write_bytes(b'{"text": "Hello."}')
    return path


def run_session(directory: Path, *flags: str, text: str = "Hi", answers: Any = None) -> int:
    path = directory.parent / "script.jsonl"
    if answers:
        path.write_bytes(b"\n".join(msgspec.json.encode(answer) for answer in answers))
    return main(["-p", text, "--script", str(path), *flags])


def only_session() -> Path:
    (path,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*")
    return path


def events(kind: str) -> list[dict[str, Any]]:
    lines = (only_session() / "events.jsonl").read_text().splitlines()
    return [item["data"] for item in map(json.loads, lines) if item["kind"] == kind]


def test_a_resumed_session_works_in_its_own_directories(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, other = tmp_path / "more", tmp_path / "other"
    more.mkdir()
    other.mkdir()
    run_session(directory, "--add-dir", str(more))
    monkeypatch.chdir(other)
    write = {"calls": [{"tool": "write_file", "arguments": {
        "path": str(more / "a.txt"), "content": "x"}}]}  # fmt: skip

    flags = ("-r", only_session().name, "--permission-mode", "accept-edits")
    code = run_session(directory, *flags, answers=[write, {"text": "Done."}])

    assert (code, (more / "a.txt").read_text()) == (0, "x")
    assert events("SessionStarted")[0]["roots"] == [str(more)]
    assert [(e["directory"], e["roots"]) for e in events("SessionResumed")] == [
        ("", [str(more)])
    ]


def test_a_security_profile_changes_the_mode_of_a_resumed_session(directory: Path) -> None:
    run_session(directory, "--permission-mode", "accept-edits")
    write = {
        "calls": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]
    }

    run_session(
        directory,
        "-c",
        "--security-profile",
        "paranoid",
        answers=[write, {"text": "Done."}],
    )

    assert not (directory / "a.txt").exists()


def test_resume_continues_in_the_current_directory_if_the_original_is_gone(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    more = tmp_path / "more"
    more.mkdir()
    run_session(directory, "--add-dir", str(more))
    more.rmdir()
    directory.rename(tmp_path / "renamed")
    monkeypatch.chdir(tmp_path / "renamed")
    capfd.readouterr()

    pwd = {"calls": [{"tool": "bash", "arguments": {"command": "pwd > where"}}]}
    code = run_session(
        directory, "-r", only_session().name, "--yolo", answers=[pwd, {"text": "Done."}]
    )

    new = str(tmp_path / "renamed")
    assert code == 0
    assert without_sandbox_notice(capfd.readouterr().err).splitlines() == [
        f"refold: {directory}, where this session worked, does not exist any more: it continues in {new}",
        f"refold: {more} belonged to this session and does not exist any more: it continues without",
    ]
    assert (tmp_path / "renamed/where").read_text().strip() == new
    assert [(e["directory"], e["roots"]) for e in events("SessionResumed")] == [(new, [])]
    # It belongs here from now on.
    assert run_session(directory, "-c") == 4  # its one call is denied


def test_mode_bypass_is_not_resumed(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_session(directory, "--yolo")
    touch = {"calls": [{"tool": "bash", "arguments": {"command": "touch a"}}]}
    capfd.readouterr()

    run_session(
        directory, "-c", "--output-format", "json", answers=[touch, {"text": "I may not."}]
    )
    out, err = capfd.readouterr()
    run_session(directory, "-c", answers=[{"text": "Hello."}])
    again = capfd.readouterr().err

    err = without_sandbox_notice(err)
    assert [d["tool"] for d in documents(out)[0]["denials"]] == ["bash"]
    assert not (directory / "a").exists()
    assert err.splitlines()[0] == (
        "refold: this session was in mode bypass; it asks again now, "
        "unless --yolo is given again"
    )
    assert without_sandbox_notice(again) == ""


def test_resume_with_yolo_again_prints_no_notice_of_the_mode(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_session(directory, "--yolo")
    touch = {"calls": [{"tool": "bash", "arguments": {"command": "touch a"}}]}
    capfd.readouterr()

    run_session(directory, "-c", "--yolo", answers=[touch, {"text": "Done."}])

    err = without_sandbox_notice(capfd.readouterr().err)
    assert (err, (directory / "a").exists()) == ("", True)


def test_resume_replaces_an_unavailable_model_with_a_notice(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    main(["-p", "Hi", "-m", "openai/gpt-4o", "--timeout", "0.05"])
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    capfd.readouterr()

    none = main(["-p", "Again", "-c"])
    without = capfd.readouterr().err
    monkeypatch.setenv("REFOLD_MODELS__MAIN", "ollama/llama4")
    main(["-p", "Again", "-c", "--timeout", "0.05"])
    lines = capfd.readouterr().err.splitlines()
    main(["-p", "Again", "-c", "--timeout", "0.05"])
    later = capfd.readouterr().err

    assert (none, "there is no key for OpenAI" in without) == (1, True)
    assert lines[0].startswith(
        "refold: openai/gpt-4o, the model of this session, is not available: there is no key"
    )
    assert lines[0].endswith(". Using ollama/llama4")
    assert [e["model"] for e in events("ModelChosen")] == ["ollama/llama4"]
    assert "openai/gpt-4o, the model" not in later


def test_resume_reports_a_missing_agent_and_a_changed_version_of_refold(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(os.environ["REFOLD_HOME"], "agents")
    folder.mkdir(parents=True)
    (folder / "poet.md").write_text(
        "---\nname: poet\ndescription: rhymes\n---\nYou rhyme.\n"
    )
    with monkeypatch.context() as then:
        then.setattr("refold.app.session_opener.__version__", "0.0.9")
        assert run_session(directory, "--agent", "poet") == 0
    (folder / "poet.md").unlink()
    capfd.readouterr()

    assert run_session(directory, "-c") == 0

    err = capfd.readouterr().err
    assert "the agent 'poet' of this session no longer exists: main is used instead" in err
    assert "since this session was left: refold 0.0.9, now " in err


def test_resume_of_a_session_open_elsewhere_names_its_process_and_fork_works(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_session(directory)
    session = only_session()

    with start_blocking_portal() as other:  # who writes need not be another process
        record = Recorder(JournalDirectory(session.parent).store(session.name))
        other.call(record.open)
        capfd.readouterr()

        codes = (
            run_session(directory, "-c", "--output-format", "json"),
            run_session(directory, "-c", "--fork"),
        )

        other.call(record.close)
    assert codes == (1, 0)
    out, err = capfd.readouterr()
    failed, answer = out.splitlines()
    (document,) = documents(failed + "\n")
    assert f"is being written by process {os.getpid()} on " in document["reason"]
    assert answer == "Hello."
    assert f"forked from {session.name} at event" in err
