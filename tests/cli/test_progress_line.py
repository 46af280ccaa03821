"""The line that `refold -p` shows on stderr while a user waits at a terminal."""

import io
import json
import os
import re
import sys
from pathlib import Path

import anyio
import pexpect
import pytest

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.headless.progress_line import CountLine, ProgressLine
from refold.headless.streams import print_error
from refold.views.styled import line

ERASE_LINE = "\r\x1b[K"


def test_a_notice_erases_the_progress_line_which_is_shown_again_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    printer = Printer(err, TerminalCapabilities(False, moves=True, width=lambda: 80))

    async def scenario() -> None:
        with ProgressLine(printer).keep_below_messages():
            printer.show_status(line("1.0 s · working"))
            print_error("overloaded")
            printer.show_status(line("2.0 s · working"))

    anyio.run(scenario)

    assert err.getvalue() == (
        f"{ERASE_LINE}1.0 s · working{ERASE_LINE}refold: overloaded\n{ERASE_LINE}2.0 s · working{ERASE_LINE}"
    )
    assert sys.stderr is err


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_progress_count_is_shown_after_a_second_at_a_terminal_and_erased_at_the_end(
    monkeypatch: pytest.MonkeyPatch, *, at_terminal: bool
) -> None:
    reader, writer = os.openpty() if at_terminal else os.pipe()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("refold.headless.progress_line._is_in_foreground", bool)
    seconds = iter((0.0, 0.9, 1.1, 1.2, 1.4))
    monkeypatch.setattr(
        "refold.headless.progress_line.time.monotonic", lambda: next(seconds)
    )
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        line = CountLine("events run again")
        for done in (0, 1_000, 2_000, 3_000):
            line(done, 12_000)
        line.end()
        stream.write("|")
        stream.flush()
        shown = ""
        while not shown.endswith("|"):  # a terminal may give it in pieces
            shown += os.read(reader, 4_096).decode()
    os.close(reader)

    steps = [f"{ERASE_LINE}events run again: {n},000 of 12,000" for n in (1, 3)]
    assert re.sub(r"\x1b(\[[\d;]*m|\(B)", "", shown) == (
        f"{''.join(steps)}{ERASE_LINE}|" if at_terminal else "|"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "redirection", "shows"),
    [
        ((), ">out", True),
        (("--output-format", "json"), ">out", True),
        (("--output-format", "stream-json"), ">out", False),
        (("--display", "plain"), ">out", False),
        ((), ">out 2>err", False),
    ],
)
def test_progress_is_shown_at_a_terminal_and_stdout_has_only_the_answer(
    tmp_path: Path, flags: tuple[str, ...], redirection: str, *, shows: bool
) -> None:
    script = tmp_path / "script.jsonl"
    answers = (
        {"calls": [{"tool": "bash", "arguments": {"command": "sleep 3"}}]},
        {"text": "All is done."},
    )
    script.write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    command_line = (
        sys.executable,
        "-m",
        "refold",
        "-p",
        "go",
        "--yolo",
        "--script",
        str(script),
    )
    command = f"exec {' '.join((*command_line, *flags))} {redirection}"

    child: pexpect.spawn[str] = pexpect.spawn(
        "/bin/sh", ["-c", command], cwd=str(tmp_path), encoding="utf-8", timeout=60
    )
    shown = str(child.read())

    assert ("1 step · " in shown and "bash sleep 3" in shown) == shows
    assert shown.endswith(ERASE_LINE) if shows else shown == ""
    out = (tmp_path / "out").read_text(encoding="utf-8")
    assert "All is done." in out
    assert "\x1b" not in out
    if not flags:
        assert out == "All is done.\n"
