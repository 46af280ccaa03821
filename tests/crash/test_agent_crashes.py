"""The whole agent, killed or failed by the disk at one system call after another.

Everything that it had acknowledged before must be there afterwards, in that order, and
nothing that was done may be done again.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.agents import (
    COUNTED,
    SCRIPT,
    Refold,
    Run,
    call,
    run_with_fault,
    write_lines,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed"),
]

# Every call of these kinds is struck, but `write`, which writes to no journal: every third of
# it. Faults that do not end the process are injected at every n-th call, beginning with
# another one for each kind of fault.
KILLS = (
    "pwrite64", "write", "fdatasync", "fsync", "renameat", "linkat", "ftruncate", "mkdir",
    "flock", "fchmod",
)  # fmt: skip
# These are more than a hundred: in shares, of which several are struck at the same time.
SHARES = {"pwrite64": 4, "write": 2}
STEPS = {**SHARES, "write": 6}
FAULTS = {"pwrite64": 12, "fdatasync": 4, "ftruncate": 1, "fsync": 3}
MOST = 400


@pytest.fixture
def refold(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Refold]:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield Refold(capfd)


@pytest.fixture
def fresh_places(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Yield one fresh workspace and home after the other."""

    def fresh() -> Iterator[Path]:
        for n in range(MOST):
            workspace = tmp_path / str(n) / "work"
            workspace.mkdir(parents=True)
            monkeypatch.chdir(workspace)
            monkeypatch.setenv("REFOLD_HOME", str(home / str(n)))
            # strace injects into the first process, which must not be bwrap or git.
            monkeypatch.setenv("REFOLD_SANDBOX__PROFILE", "off")
            monkeypatch.setenv("REFOLD_CHECKPOINTS", "false")
            yield workspace

    return fresh()


def session_in(home: Path) -> str:
    """Return the id of the only session there, or "" if it has not one line yet."""
    paths = [p for p in home.glob("sessions/*/events.jsonl") if b"\n" in p.read_bytes()]
    assert len(paths) <= 1
    return paths[0].parent.name if paths else ""


def assert_goes_on(run: Run, workspace: Path, refold: Refold) -> None:
    """Reopen what is left, compare it with what was printed, and finish the work."""
    id_ = session_in(Path(os.environ["REFOLD_HOME"]))
    records = [d for d in run.told if "seq" in d]
    before = refold.events(id_) if id_ else []
    heard_of = [d for d in before if records and d["seq"] >= records[0]["seq"]]
    assert records == heard_of[: len(records)], "what was told is not what is there"
    if run.code == 0 and run.told[-1]["type"] == "result":
        assert refold("sessions", "check", id_)[0] == 0
        return

    total = sum(d["type"] == "assistant_message" for d in before)
    rest = write_lines(workspace.parent / "rest.jsonl", SCRIPT[total:])
    outcome = any(d["type"] == "user_message" for d in before)
    over = any(d["type"] == "turn_end" for d in before)
    if not over:
        result = refold.continue_script(
            rest, *(["-c"] if id_ else []), *([] if outcome else ["Go"])
        )
        assert (result["outcome"], result["text"]) == ("answered", "Done.")

    id_ = id_ or session_in(Path(os.environ["REFOLD_HOME"]))
    after = refold.events(id_)
    assert after[: len(before)] == before, "the past has changed"
    assert_nothing_was_done_twice(after, workspace)
    assert refold("sessions", "check", id_)[0] == 0


def assert_nothing_was_done_twice(events: list[dict[str, Any]], workspace: Path) -> None:
    counter = workspace / "counter"
    lines = counter.read_text().splitlines() if counter.exists() else []
    assert len(lines) == len(set(lines))
    commands = {
        d["call_id"]: d["arguments"]["command"].split()[1]
        for d in events
        if d["type"] == "tool_call" and d["tool"] == "bash"
    }
    ends = [d for d in events if d["type"] == "tool_result"]
    assert len(ends) == len({d["call_id"] for d in ends}), "a call has ended twice"
    done = {commands[d["call_id"]] for d in ends
            if d["call_id"] in commands and d["outcome"] == "done"}  # fmt: skip
    in_doubt = {commands[d["call_id"]] for d in ends
                if d["call_id"] in commands and d["outcome"] in ("unknown", "stopped", "failed")}  # fmt: skip
    assert done <= set(lines) <= done | in_doubt
    assert done | in_doubt == COUNTED


@pytest.mark.parametrize(
    ("syscall", "first"),
    [(syscall, n) for syscall in KILLS for n in range(1, SHARES.get(syscall, 1) + 1)],
)
def test_an_agent_killed_at_any_system_call_resumes_from_acknowledged_events(
    syscall: str, first: int, fresh_places: Iterator[Path], refold: Refold
) -> None:
    hits = 0
    calls = range(first, MOST, STEPS.get(syscall, 1))
    for when, workspace in zip(calls, fresh_places, strict=False):
        run = run_with_fault(workspace, f"{syscall}:signal=SIGKILL:when={when}", "Go")
        assert_goes_on(run, workspace, refold)
        if not run.struck:
            break
        hits += run.code != 0

    assert hits >= 1
    assert (run.code, run.told[-1]["outcome"]) == (0, "answered")


@pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "for good"])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("syscall", FAULTS)
def test_a_failing_disk_ends_with_a_clear_error_and_a_resumable_session(
    syscall: str, error: str, lasting: str, fresh_places: Iterator[Path], refold: Refold
) -> None:
    step = FAULTS[syscall]
    # The cases of one system call begin at different calls, so that together they hit more.
    first = 1 + (len(error) + len(lasting)) % step
    for when, workspace in zip(range(first, MOST, step), fresh_places, strict=False):
        run = run_with_fault(
            workspace, f"{syscall}:error={error}:when={when}{lasting}", "Go"
        )
        ended_well = bool(run.told) and run.told[-1]["type"] == "result" and run.code == 0
        if not ended_well:
            text = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}[error]
            assert (run.code, run.err.count("\n")) == (1, 1), run.err
            assert run.err.startswith("refold: ")
            assert text in run.err
            assert not run.told or run.told[-1]["type"] == "result"
        assert_goes_on(run, workspace, refold)
        if not run.struck:
            break

    assert not run.struck


def test_a_second_process_gets_an_error_with_the_process_that_uses_the_session(
    fresh_places: Iterator[Path], refold: Refold
) -> None:
    workspace = next(fresh_places)
    path = write_lines(workspace.parent / "one.jsonl", [{"text": "Hello."}])
    refold("-p", "Hi", "--script", str(path))
    slow = write_lines(workspace.parent / "two.jsonl", [
        {"calls": [call("bash", command="echo started; sleep 60")]},
    ])  # fmt: skip
    command = [sys.executable, "-m", "refold", "-p", "-c", "Wait", "--yolo", "--script",
               str(slow), "--output-format", "stream-json", "--include-partial-messages"]  # fmt: skip

    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout
        for line in first.stdout:
            if "tool_progress" in line:
                break
        code, out, err = refold("-p", "-c", "Me too", "--script", str(path))
        list_code = refold("sessions", "list")[0]
        first.send_signal(signal.SIGTERM)
        first.stdout.read()

    assert (code, out, list_code) == (1, "", 0)
    assert f"process {first.pid}" in err
    assert err.count("\n") == 1
    assert refold("-p", "-c", "Now me", "--script", str(path))[0] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_that_ran_during_a_kill_is_not_repeated_on_resume(
    number: signal.Signals, fresh_places: Iterator[Path], refold: Refold
) -> None:
    workspace = next(fresh_places)
    lines = [
        {"calls": [call("bash", command="echo 1 >> counter; echo started; sleep 60")]},
        {"text": "Looked."},
    ]
    path = write_lines(workspace.parent / "one.jsonl", lines)
    rest = write_lines(workspace.parent / "rest.jsonl", lines[1:])
    command = [sys.executable, "-m", "refold", "-p", "Go", "--yolo", "--script", str(path),
               "--output-format", "stream-json", "--include-partial-messages"]  # fmt: skip

    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout
        for line in first.stdout:
            if "tool_progress" in line:
                break
        first.send_signal(number)
        first.stdout.read()
    result = refold.continue_script(rest, "-c")

    ends = [d for d in refold.events(result["session_id"]) if d["type"] == "tool_result"]
    assert result["text"] == "Looked."
    assert (workspace / "counter").read_text() == "1\n"
    assert [d["outcome"] for d in ends] == [
        "unknown" if number is signal.SIGKILL else "stopped"
    ]
