"""The log: limited in size, without secrets, shared by processes, never in the way."""

import json
import multiprocessing
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.cli.crash_report import report_of
from refold.cli.main import main
from refold.errors import Overloaded, ProviderError, Refused
from refold.logs.logbook import (
    MAX_LOG_BYTES,
    Entry,
    Logbook,
    Tail,
    at_least,
    entries,
    files,
)
from refold.provider.port import Request
from refold.provider.retry import Backoff, RetryingProvider
from refold.session.redactor import Redactor
from refold.testing.providers import ScriptedProvider
from refold.values.growing import Log
from refold.values.log_level import Level


def book(state: Path, threshold: str = "debug", *secrets: str) -> Logbook:
    return Logbook(state, threshold, Redactor(secrets).mask)  # pyright: ignore[reportArgumentType]


def logged_messages(state: Path) -> list[str]:
    """Return what was written, without time and process."""
    return [
        re.sub(r"\S+ (\S+) \d+ ", r"\1 ", entry.text, count=1) for entry in entries(state)
    ]


def test_a_log_line_has_time_level_process_session_and_message(tmp_path: Path) -> None:
    book(tmp_path / "state")("warning", "It rains.", "a-session")
    book(tmp_path / "state")("info", "Nobody's.")

    text = (tmp_path / "state/refold.log").read_text()

    timestamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}"
    assert re.fullmatch(
        rf"{timestamp} warning {os.getpid()} a-session It rains\.\n{timestamp} info {os.getpid()} - Nobody's\.\n",
        text,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("error", ["error"]),
        ("off", []),
    ],
)
def test_log_entries_below_the_log_level_are_not_written(
    tmp_path: Path, threshold: str, expected: list[str]
) -> None:
    log = book(tmp_path, threshold)
    levels: tuple[Level, ...] = ("debug", "info", "warning", "error")
    for level in levels:
        log(level, "x")

    assert [entry.level for entry in entries(tmp_path)] == expected
    assert (tmp_path / "refold.log").exists() == bool(expected)


def test_log_file_and_its_directories_are_readable_only_by_their_owner(
    tmp_path: Path,
) -> None:
    book(tmp_path / "a/state")("info", "x")

    modes = [
        stat.S_IMODE((tmp_path / p).stat().st_mode)
        for p in ("a", "a/state", "a/state/refold.log")
    ]

    assert modes == [0o700, 0o700, 0o600]


def test_log_masks_secrets_and_escapes_control_characters(tmp_path: Path) -> None:
    shaped = "sk-ant-" + "x" * 30
    book(tmp_path, "debug", "my-own-key")(
        "error", f"\x1b[2Jmy-own-key {shaped}\rgone\nmore"
    )

    (message,) = logged_messages(tmp_path)

    assert "my-own-key" not in message
    assert shaped not in message
    assert "\x1b" not in message
    assert "\r" not in message
    assert message.endswith("gone\n    more")


def test_the_log_stays_short_and_drops_the_oldest_entries(tmp_path: Path) -> None:
    log = book(tmp_path)
    for number in range(5 * MAX_LOG_BYTES // 20_000):
        log("info", f"{number} " + "x" * 19_900)

    numbers = [int(entry.text.split()[4]) for entry in entries(tmp_path)]
    sizes = [file.stat().st_size for file in files(tmp_path)]

    assert sorted(os.listdir(tmp_path)) == ["refold.log", "refold.log.1", "refold.log.2"]
    assert max(sizes) <= MAX_LOG_BYTES
    assert numbers == list(range(numbers[0], 5 * MAX_LOG_BYTES // 20_000))
    assert len(numbers) > 2 * MAX_LOG_BYTES // 20_000


def test_log_is_rotated_when_another_process_inherited_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = list[int]()
    real_open = os.open

    def inherit_descriptor(
        *arguments: Any, **options: Any
    ) -> int:  # as a fork at this moment does
        number = real_open(*arguments, **options)
        theirs.append(os.dup(number))
        return number

    log = book(tmp_path)
    monkeypatch.setattr(os, "open", inherit_descriptor)
    for _ in range(4 * MAX_LOG_BYTES // 20_000):
        log("info", "x" * 19_900)
    monkeypatch.undo()
    for number in theirs:
        os.close(number)

    assert max(file.stat().st_size for file in tmp_path.iterdir()) <= MAX_LOG_BYTES


def _write_many(state: Path, who: int) -> None:
    log = book(state)
    for number in range(300):
        log("info", f"{who} {number} " + "x" * 3_000)


@pytest.mark.slow
def test_concurrent_processes_write_complete_log_lines_and_lose_none(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_write_many, args=(tmp_path, who)) for who in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    parts = [tuple(map(int, entry.text.split()[4:6])) for entry in entries(tmp_path)]

    assert all(entry.text.endswith("x" * 3_000) for entry in entries(tmp_path))
    for who in range(3):
        numbers = [number for one, number in parts if one == who]
        assert numbers == list(range(numbers[0], 300))


@pytest.mark.parametrize("way", ["a file", "a link", "a pipe", "a directory"])
def test_writing_to_an_unusable_log_returns_false_without_an_exception(
    tmp_path: Path, way: str
) -> None:
    state = tmp_path / "state"
    if way == "a file":
        state.write_text("")
    else:
        state.mkdir()
        log = state / "refold.log"
        match way:
            case "a link":
                log.symlink_to("/dev/full")
            case "a pipe":
                os.mkfifo(log)
            case _:
                log.mkdir()

    assert book(state).write("error", "x") is False


def test_tail_of_the_log_follows_entries_across_rotated_files(tmp_path: Path) -> None:
    log, large = book(tmp_path), "x" * 19_000
    log("info", "before")
    tail = Tail(tmp_path)
    log_entries: list[Entry] = []
    for number in range(MAX_LOG_BYTES // 10_000):
        log("info", f"{number} {large}")
        log_entries += tail.news()
    tail.close()

    assert [int(entry.text.split()[4]) for entry in log_entries] == list(
        range(MAX_LOG_BYTES // 10_000)
    )


def test_a_log_entry_of_several_lines_is_read_as_one_entry(tmp_path: Path) -> None:
    log = book(tmp_path)
    log("error", "first\nsecond")
    log("info", "third")

    errors = at_least(entries(tmp_path), "warning")

    assert [error.text.split(" - ")[1] for error in errors] == ["first\n    second"]


def test_logs_command_shows_the_newest_entries_of_a_level(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = book(home / "refold")
    log("info", "one")
    log("error", "two")
    log("warning", "three")

    codes = [main(["logs", "-n", "2", "--level", "warning"]), main(["logs", "--path"])]

    out, err = capfd.readouterr()
    assert (codes, err) == ([0, 0], "")
    assert re.sub(r"\S+ (\S+) \d+ - ", r"\1 ", out) == (
        f"error two\nwarning three\n{home}/refold/refold.log\n"
    )


def test_logs_command_does_not_wait_for_a_log_file_that_is_a_pipe(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (home / "refold").mkdir()
    os.mkfifo(home / "refold/refold.log")

    assert main(["logs"]) == 0
    assert capfd.readouterr().err.startswith("refold: there is nothing in ")


def test_logs_follow_ends_when_its_stdout_is_closed(home: Path) -> None:
    book(home / "refold")("info", "one")

    following = subprocess.Popen(
        [sys.executable, "-m", "refold", "logs", "-f"], stdout=subprocess.PIPE
    )
    with following:
        assert following.stdout is not None
        assert following.stdout.readline().endswith(b" - one\n")
        following.stdout.close()

        assert following.wait(60) == 1


def test_logs_command_reports_an_empty_log_in_one_sentence(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs"]) == 0
    assert capfd.readouterr() == (
        "", f"refold: there is nothing in {home}/refold/refold.log\n",
    )  # fmt: skip


# Its contents. ------------------------------------------------------------------------


def test_log_records_open_and_exit_of_each_session(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"text": "Good morning."}))

    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        main(["-p", "hello", "--script", str(script)])
        main(["-p", "hello", "--script", str(script), "--log-level", "error"])

    (session, other) = sorted(os.listdir(home / "refold/sessions"))
    lines = [
        line for line in logged_messages(home / "refold") if not line.startswith("warning")
    ]
    assert [line.split(" by ")[0] for line in lines] in (
        [f"info {one} opened in {tmp_path}", f"info {one} left"] for one in (session, other)
    )


def test_log_records_provider_retries_and_errors() -> None:
    logged: list[tuple[str, str, str]] = []

    def tell(level: Level, text: str, session: str = "") -> None:
        logged.append((level, text, session))

    async def at_once(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    def ask(*faults: ProviderError) -> None:
        inner = ScriptedProvider(*faults, "Yes.")
        patient = RetryingProvider(
            inner, Backoff(retries=1), sleep=at_once, dice=lambda: 1.0, write_log=tell
        )

        async def all_of_it() -> None:
            request = Request(Log(), model="big", session="s-1")
            async for _ in patient.stream(request):
                pass

        anyio.run(all_of_it)

    ask(Overloaded("busy"))
    with pytest.raises(Refused):
        ask(Refused("no such model"))

    assert logged == [
        ("warning", "big: busy; retrying in 1.0 s", "s-1"),
        ("error", "big: no such model", "s-1"),
    ]


BROKEN = """
import sys
from refold.cli import main, tour

def broken(found):
    raise ZeroDivisionError(sys.argv[1] + " by nothing\\n\\x1b[2J")

tour.run = broken
main.run(sys.argv[2:])
"""


def run_broken_command(text: str, *arguments: str) -> tuple[int, str, str]:
    """Run a command of refold that is broken, and return what the user reads."""
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, text, *arguments],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_an_internal_error_prints_one_sentence_and_logs_the_traceback(
    home: Path, canary: str
) -> None:
    code, out, err = run_broken_command(canary, "tour")

    (message,) = logged_messages(home / "refold")
    assert (code, out) == (1, "")
    assert err == (
        "refold: internal error: ZeroDivisionError: [secret] by nothing\\n"
        f"\\x1b[2J; the details are in {home}/refold/refold.log\n"
    )
    assert message.startswith("error - Traceback (most recent call last):\n")
    assert canary not in message
    assert "\x1b" not in message


@pytest.mark.slow
def test_an_internal_error_prints_the_traceback_when_the_log_is_off(
    home: Path, canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_LOG_LEVEL", "off")

    code, out, err = run_broken_command(canary, "tour")

    assert (code, out) == (1, "")
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.endswith("ZeroDivisionError: [secret] by nothing\n\\x1b[2J\n")
    assert not (home / "refold").exists()


@pytest.mark.parametrize("flag", [("--no-session",), ("--log-level", "off")])
def test_no_session_flag_writes_no_log(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"text": "Good morning."}))
    arguments = ("-p", "hello", "--script", str(script), *flag)

    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        main(arguments)
    report = report_of(ZeroDivisionError(), arguments)

    assert report == "ZeroDivisionError"
    assert not (home / "refold/refold.log").exists()
    assert (home / "refold").exists() is (flag != ("--no-session",))
