"""Signals to a task without a terminal: it ends soon, as interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold.headless.stop_signals import StopSignals
from tests.cli.contract import documents
from tests.cli.running import (
    SIGNALS,
    call,
    command,
    read_rest,
    read_until,
    script,
    start_refold,
    wait_until_gone,
)

STREAM = ("--output-format", "stream-json", "--include-partial-messages")
pytestmark = pytest.mark.slow


def write_waiting_script(directory: Path, seconds: str) -> str:
    """Return a script whose command runs that long; the number tells its processes apart."""
    return script(
        directory, call("bash", command=f"echo begun; sleep {seconds}"), {"text": "x"}
    )


def has_kind(kind: str) -> Any:
    return lambda document: document["type"] == kind


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("format_", ["text", "json", "stream-json"])
def test_a_signal_ends_the_turn_as_interrupted_and_stops_its_command(
    tmp_path: Path, number: signal.Signals, format_: str
) -> None:
    seconds = f"7{number:03}{len(format_):02}"
    watch = tmp_path / "begun"
    line = call("bash", command=f"touch begun; sleep {seconds}")
    flags = ("--yolo", "--output-format", format_)
    with start_refold(
        "-p", "Hi", "--script", script(tmp_path, line), *flags, cwd=tmp_path
    ) as process:
        while not watch.exists():
            assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert wait_until_gone(f"sleep\0{seconds}")
    if format_ == "text":
        assert (out, err.decode()) == (
            b"",
            f"refold: interrupted: stopped by {number.name}\n",
        )
        return
    last = documents(out.decode())[-1]
    assert (last["type"], last["outcome"]) == ("result", "interrupted")
    assert last["reason"] == f"stopped by {number.name}"


def test_a_stopped_turn_is_recorded_and_can_be_resumed(tmp_path: Path) -> None:
    line = write_waiting_script(tmp_path, "7200")
    with start_refold(
        "-p", "Hi", "--script", line, "--yolo", *STREAM, cwd=tmp_path
    ) as process:
        read_until(process, has_kind("tool_progress"))
        process.send_signal(signal.SIGTERM)
        read_rest(process)
    again = script(tmp_path, {"text": "On it goes."}, name="again.jsonl")

    done = subprocess.run(
        command("-p", "-c", "--script", again), cwd=tmp_path, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = subprocess.run(
        command("sessions", "show", "last", "--json"), cwd=tmp_path, capture_output=True,
        text=True, check=True,
    ).stdout  # fmt: skip

    assert (done.returncode, done.stdout) == (0, "On it goes.\n")
    ends = [
        d["outcome"]
        for d in map(json.loads, output.splitlines())
        if d["type"] == "turn_end"
    ]
    assert ends == ["interrupted", "answered"]


def test_a_second_signal_during_a_turn_still_yields_an_interrupted_result(
    tmp_path: Path,
) -> None:
    script_path = script(tmp_path, {"text": "slow", "pause": 60})
    with start_refold(
        "-p", "Hi", "--script", script_path, *STREAM, cwd=tmp_path
    ) as process:
        read_until(process, has_kind("turn_start"))
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        result, _ = read_rest(process)

    assert (process.returncode, result[-1]["outcome"]) == (130, "interrupted")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_reading_stdin_yields_a_result_without_a_session(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The prompt still arrives through stdin, so no session has begun."""
    pipe = {"stdin": subprocess.PIPE}
    with start_refold("-p", "--output-format", "json", cwd=tmp_path, **pipe) as process:
        while not is_waiting(process.pid):
            assert process.poll() is None
        process.send_signal(number)
        result, err = read_rest(process)

    assert (process.returncode, len(result), err) == (130, 1, "")
    assert (result[0]["outcome"], result[0]["session_id"]) == ("interrupted", "")
    assert result[0]["reason"] == f"stopped by {number.name}"


def is_waiting(process: int) -> bool:
    """Return whether it is likely to read stdin. Then nothing is loaded any more."""
    try:
        return Path(f"/proc/{process}/wchan").read_text() in ("pipe_read", "anon_pipe_read")
    except OSError:
        return True


def test_a_signal_before_the_session_starts_is_raised_as_an_interrupt() -> None:
    stops = StopSignals()
    before = {item: signal.getsignal(item) for item in SIGNALS}
    try:
        stops.listen()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM"):
            stops.raise_interrupts()
    finally:
        for signals, handler in before.items():
            signal.signal(signals, handler)


def test_sighup_is_ignored_under_nohup(tmp_path: Path) -> None:
    script_path = script(
        tmp_path, call("bash", command="touch begun; sleep 0.5"), {"text": "Done."}
    )
    ignoring = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    ignoring += "os.execv(sys.argv[1], sys.argv[1:])"
    words = command("-p", "Hi", "--script", script_path, "--yolo")
    with subprocess.Popen(
        [sys.executable, "-c", ignoring, *words], cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, "Done.\n")


@pytest.mark.parametrize("format_", ["text", "json", "stream-json"])
def test_a_signal_ends_a_task_whose_stdout_is_not_read(
    tmp_path: Path, format_: str
) -> None:
    script_path = script(tmp_path, {"text": "x" * 90_000})
    flags = ("--output-format", format_, "--script", script_path)
    with start_refold("-p", "Hi", *flags, cwd=tmp_path) as process:
        assert process.stdout
        process.stdout.read(1)  # it writes by now, and more than goes into a pipe
        process.send_signal(signal.SIGTERM)

        assert process.wait(60) == 130


COMPACT = ("--input-format", "stream-json", "--output-format", "stream-json")


def test_a_signal_during_an_approval_request_yields_an_interrupted_result(
    tmp_path: Path,
) -> None:
    script_path = script(tmp_path, call("write_file", path="a", content="x"), {"text": "x"})
    pipe = {"stdin": subprocess.PIPE}
    with start_refold(
        *COMPACT, "Write", "--script", script_path, cwd=tmp_path, **pipe
    ) as process:
        read_until(process, has_kind("tool_approval_request"))
        process.send_signal(signal.SIGHUP)
        result, _ = read_rest(process)

    assert (process.returncode, result[-1]["type"]) == (130, "result")
    assert (result[-1]["outcome"], (tmp_path / "a").exists()) == ("interrupted", False)


def test_a_signal_stops_a_running_compaction_with_an_interrupted_result(
    tmp_path: Path,
) -> None:
    """The compaction runs between two turns; the last document is a result there, too."""
    script_path = script(tmp_path, {"text": "One."}, {"text": "In short", "pause": 60})
    pipe = {"stdin": subprocess.PIPE}
    with start_refold(
        *COMPACT, "Hi", "--script", script_path, cwd=tmp_path, **pipe
    ) as process:
        read_until(process, has_kind("result"))
        assert process.stdin
        process.stdin.write(b'{"type": "compact"}\nno order\n')
        process.stdin.flush()
        read_until(process, has_kind("error"))  # the first order was taken by then
        process.send_signal(signal.SIGTERM)
        result, _ = read_rest(process)

    assert process.returncode == 130
    assert (result[-1]["type"], result[-1]["outcome"]) == ("result", "interrupted")
    assert result[-1]["reason"] == "stopped by SIGTERM"


def test_a_signal_before_the_first_order_yields_an_interrupted_result(
    tmp_path: Path,
) -> None:
    pipe = {"stdin": subprocess.PIPE}
    script_path = script(tmp_path, {"text": "One."})
    with start_refold(*COMPACT, "--script", script_path, cwd=tmp_path, **pipe) as process:
        read_until(process, has_kind("system"))
        process.send_signal(signal.SIGINT)
        result, _ = read_rest(process)

    assert (process.returncode, [d["outcome"] for d in result]) == (130, ["interrupted"])
