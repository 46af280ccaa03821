"""`--fork`: the session continues in a copy, and the original is unchanged."""

import io
import json
import os
import sys
from pathlib import Path

import msgspec
import pytest

from refold.cli.main import main
from refold.config.paths import paths
from refold.journal.journal_directory import JournalDirectory
from tests.sandbox_notice import without_sandbox_notice

CAPFD = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory to work in, and nothing on stdin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    return tmp_path


def run_script(capfd: CAPFD, answer: str, *text: str) -> tuple[int, str, str]:
    script = Path("script.jsonl")
    script.write_bytes(msgspec.json.encode({"text": answer}))
    capfd.readouterr()
    code = main(["-p", *text, "--script", str(script)])
    output = capfd.readouterr()
    return code, output.out, output.err


def sessions() -> dict[str, bytes]:
    home = JournalDirectory(paths(os.environ).data / "sessions")
    return {s.id: (home.path(s.id) / "events.jsonl").read_bytes() for s in home.sessions()}


def test_fork_continues_the_newest_session_in_a_copy_and_keeps_the_original(
    capfd: CAPFD,
) -> None:
    run_script(capfd, "One.", "first")
    ((old, before),) = sessions().items()

    code, out, err = run_script(capfd, "Two.", "-c", "--fork", "second")

    now = sessions()
    (new,) = set(now) - {old}
    assert (code, out) == (0, "Two.\n")
    assert without_sandbox_notice(err) == (
        f"{new}: forked from {old} at event {len(before.splitlines())}\n"
    )
    assert now[old] == before
    assert now[new].startswith(before)
    assert main(["sessions", "check", new]) == 0
    assert main(["replay", new, "--run"]) == 0
    capfd.readouterr()
    main(["sessions", "show", new])
    output = capfd.readouterr().out
    assert [word in output for word in ("first", "One.", "second", "Two.")] == [True] * 4


def test_fork_at_an_event_omits_later_messages(capfd: CAPFD) -> None:
    run_script(capfd, "One.", "first")
    run_script(capfd, "Two.", "-c", "second")
    ((old, _),) = sessions().items()

    code, out, _ = run_script(
        capfd,
        "Three.",
        "-r",
        old,
        "--fork",
        "--at",
        "8",
        "third",
        "--output-format",
        "json",
    )

    new = json.loads(out)["session_id"]
    capfd.readouterr()
    main(["sessions", "show", new])
    output = capfd.readouterr().out
    assert code == 0
    assert [word in output for word in ("first", "second", "third")] == [True, False, True]


def test_fork_at_a_turn_omits_later_turns(capfd: CAPFD) -> None:
    run_script(capfd, "One.", "first")
    run_script(capfd, "Two.", "-c", "second")
    ((old, before),) = sessions().items()

    code, _, err = run_script(capfd, "Three.", "-c", "--fork", "--turn", "1", "third")

    (new,) = set(sessions()) - {old}
    end = before[: before.index(b"TurnEnded")].count(b"\n") + 1
    assert (code, f"{new}: forked from {old} at event {end}\n" in err) == (0, True)
    main(["sessions", "show", new])
    output = capfd.readouterr().out
    assert [word in output for word in ("first", "second", "third")] == [True, False, True]


def test_continue_flag_resumes_the_fork_which_was_used_last(capfd: CAPFD) -> None:
    run_script(capfd, "One.", "first")
    run_script(capfd, "Two.", "-c", "--fork", "second")
    forks = sessions()

    run_script(capfd, "Three.", "-c", "third")

    changed = [id_ for id_, lines in sessions().items() if forks[id_] != lines]
    ((fork, _),) = [(i, text) for i, text in forks.items() if b'"kind":"Forked"' in text]
    assert changed == [fork]


def test_memory_notes_of_a_fork_are_taken_only_from_messages_after_the_fork(
    workspace: Path, capfd: CAPFD
) -> None:
    from tests.memory.workplace import Workplace

    place = Workplace(workspace)
    run_script(capfd, "One.", "always answer in German")
    run_script(capfd, "Two.", "-c", "--fork", "use pnpm for packages")
    ((fork, _),) = [(i, t) for i, t in sessions().items() if b'"kind":"Forked"' in t]

    _, small = place.learn_with_answers(fork, '{"notes": []}')

    text = small.heard[0].messages[0].message.text
    assert "pnpm" in text
    assert "German" not in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--fork", "x"], "--fork copies a session: say which, with -c or -r ID"),
        (["-c", "--at", "3", "x"], "--at needs --fork"),
        (["-c", "--fork", "--at", "0", "x"], "'0' is not an event"),
        (["-c", "--fork", "--at", "999", "x"], "has no event 999: give one from 1 to"),
        (["-c", "--turn", "3", "x"], "--turn needs --fork"),
        (["-c", "--fork", "--turn", "9", "x"], "has no turn 9: 1 turn has ended"),
        (
            ["-c", "--fork", "--at", "3", "--turn", "1", "x"],
            "not allowed with argument --at",
        ),
        (["-c", "--fork", "--no-session", "x"], "--no-session keeps no journal"),
    ],
)
def test_contradictory_or_impossible_fork_flags_are_refused(
    capfd: CAPFD, words: list[str], why: str
) -> None:
    run_script(capfd, "One.", "first")
    before = sessions()

    code, _, err = run_script(capfd, "Two.", *words)

    assert code == 1
    assert why in err
    assert sessions() == before


def test_resume_reports_changes_of_the_prompt_since_the_session_was_left(
    workspace: Path, capfd: CAPFD
) -> None:
    run_script(capfd, "One.", "--trust", "first")
    same = run_script(capfd, "Two.", "--trust", "-c", "second")
    (workspace / "AGENTS.md").write_text("Be brief.\n")

    other = run_script(capfd, "Three.", "--trust", "-c", "third")
    again = run_script(capfd, "Four.", "--trust", "-c", "fourth")

    assert [without_sandbox_notice(one[2]) for one in (same, again)] == ["", ""]
    assert "refold: since this session was left: system text, instructions: 0" in other[2]
