"""Whatever goes wrong, stdout has what the format promises, and nothing else."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, wire_server
from tests.cli.contract import documents
from tests.cli.running import LONG, call, command, script

FORMATS = ("text", "json", "stream-json")
Case = Callable[[Path], tuple[Sequence[str], dict[str, str]]]


def no_key(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    return ("Hi", "-m", "openai/gpt-4o"), {}


def nobody_listens(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    data = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    return ("Hi", "-m", "openai/gpt-4o", "--timeout", "0.3"), data


def no_answers(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    return ("Hi", "--script", script(directory)), {}


def no_script(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    return ("Hi", "--script", "none.jsonl"), {}


def no_session(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    return ("Hi", "-r", "2020", "--script", script(directory, {"text": "x"})), {}


def steps(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    lines = call("list_files", path="."), {"text": "One look."}
    return ("Hi", "--script", script(directory, *lines), "--max-turns", "1"), {}


def time_is_over(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    return (
        "Hi",
        "--script",
        script(directory, {"text": "a", "pause": 60}),
        "--timeout",
        "0.2",
    ), {}


def run_with_denials(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    lines = [call("bash", command=f"touch {n}") for n in range(3)]
    return ("Hi", "--script", script(directory, *lines)), {}


def no_home(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    (directory / "file").write_text("x")
    home = {"REFOLD_HOME": str(directory / "file/refold")}
    return ("Hi", "--script", script(directory, {"text": "x"})), home


def odd_words(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    """A name that is not UTF-8 is repeated in the error."""
    return (
        "Hi",
        "-r",
        os.fsdecode(b"\xff\x1b[31m"),
        "--script",
        script(directory, {"text": "x"}),
    ), {}


def no_name(directory: Path) -> tuple[Sequence[str], dict[str, str]]:
    """A start without a session name, where no user can pick one."""
    return ("Hi", "-r", "--script", script(directory, {"text": "x"})), {}


CASES: dict[Case, tuple[int, str]] = {
    no_key: (1, "failed"), nobody_listens: (3, "cancelled"), no_answers: (1, "failed"),
    no_script: (1, "failed"), no_session: (1, "failed"), steps: (2, "step_limit"),
    time_is_over: (3, "cancelled"), run_with_denials: (4, "denied"), no_home: (1, "failed"),
    odd_words: (1, "failed"), no_name: (1, "failed"),
}  # fmt: skip


def run(
    directory: Path, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command("-p", *arguments), cwd=directory, env={**os.environ, **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_outcome_is_reported_on_stdout_in_the_chosen_format(
    tmp_path: Path, case: Case, format_: str
) -> None:
    flags, environment = case(tmp_path)
    code, outcome = CASES[case]

    done = run(tmp_path, *flags, "--output-format", format_, **environment)

    assert done.returncode == code
    assert all(line.startswith("refold: ") for line in done.stderr.splitlines())
    if format_ == "text":
        assert done.stdout in ("", "One look.\n")
        return
    json_documents = documents(done.stdout)
    kinds = [document["type"] for document in json_documents]
    assert kinds.count("result") == 1
    assert kinds[-1] == "result"
    assert kinds[0] == ("result" if len(kinds) == 1 else "system")
    assert (json_documents[-1]["outcome"], format_ != "json" or len(kinds) == 1) == (
        outcome,
        True,
    )
    if outcome == "failed":
        assert json_documents[-1]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_an_unknown_flag_is_reported_only_on_stderr(tmp_path: Path, format_: str) -> None:
    done = run(tmp_path, "Hi", "--nonsense", "--output-format", format_)

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"refold: .*--nonsense.*\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-", "2>/dev/full"])
def test_print_mode_works_with_closed_stdin_or_stderr(
    tmp_path: Path, closed: str, format_: str
) -> None:
    """A denial would be reported on stderr."""
    script_path = script(tmp_path, call("bash", command="touch a"), {"text": "I may not."})
    command_line = [
        *command("-p", "Hi", "--script", script_path),
        "--output-format",
        format_,
    ]

    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command_line], cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (4, done.stderr if "2>" not in closed else "")
    if format_ == "text":
        assert done.stdout == "I may not.\n"
    else:
        assert documents(done.stdout)[-1]["text"] == "I may not."


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("stdout", [">&-", ">&- 2>&-", ">/dev/full"])
def test_unwritable_stdout_yields_at_most_one_sentence_on_stderr(
    tmp_path: Path, stdout: str, format_: str
) -> None:
    script_path = script(tmp_path, {"text": "Hello."})
    command_line = [
        *command("-p", "Hi", "--script", script_path),
        "--output-format",
        format_,
    ]

    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {stdout}', "sh", *command_line], cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    output = subprocess.run(
        command("sessions", "list", "--json"), cwd=tmp_path, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip

    full = "full" in stdout
    text = "refold: the output cannot be written: No space left on device\n" if full else ""
    # A turn is stopped when its stream is not read; the other two formats write at the end.
    stopped = format_ == "stream-json"
    assert (done.stderr, done.returncode) == (text, 130 if stopped and not full else 1)
    (row,) = map(json.loads, output.splitlines())
    assert row["outcome"] == ("cancelled" if stopped else "answered")


@pytest.mark.slow
def test_stream_json_input_reports_a_full_disk_in_one_sentence(tmp_path: Path) -> None:
    script_path = script(tmp_path, {"text": "Hello."})
    formats = ("--input-format", "stream-json", "--output-format", "stream-json")

    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("Hi", "--script", script_path, *formats), cwd=tmp_path, stdout=full,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=LONG, check=False,
        )  # fmt: skip

    data = b"refold: the output cannot be written: No space left on device\n"
    assert (done.stderr, done.returncode) == (data, 1)


@pytest.mark.slow
def test_endless_stdin_is_refused(tmp_path: Path) -> None:
    script_path = script(tmp_path, {"text": "Hello."})

    with open("/dev/zero", "rb") as endless:
        done = subprocess.run(
            command("-p", "--script", script_path, "--output-format", "json"), cwd=tmp_path,
            stdin=endless, capture_output=True, text=True, timeout=LONG, check=False,
        )  # fmt: skip

    (document,) = documents(done.stdout)
    assert document["reason"].startswith(
        "stdin holds more than 32 MiB, which is too long for a model"
    )
    assert done.returncode == 1


@pytest.mark.slow
def test_a_reader_that_closes_after_one_line_stops_the_turn_without_an_error(
    tmp_path: Path,
) -> None:
    script_path = script(tmp_path, {"text": "Hello.", "pause": 0.01}, {"text": "x"})
    command_line = [
        *command("-p", "Hi", "--script", script_path),
        "--output-format",
        "stream-json",
    ]

    done = subprocess.run(
        ["bash", "-c", '"$@" | head -n 1; exit ${PIPESTATUS[0]}', "bash", *command_line], cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip

    (first,) = documents(done.stdout)
    assert (first["type"], done.returncode, done.stderr) == ("system", 130, "")


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "stream-json"])
def test_an_unwritable_journal_yields_a_failed_result(tmp_path: Path, format_: str) -> None:
    """No file may grow beyond a few thousand bytes, as on a full disk."""
    script_path = script(tmp_path, call("think", thought="x" * 90_000), {"text": "Hello."})
    limited = "import os, resource, signal, sys; "
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)); "
    limited += (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = command("-p", "Hi", "--script", script_path, "--output-format", format_)

    done = subprocess.run(
        [sys.executable, "-c", limited, *words], cwd=tmp_path, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip

    json_documents = documents(done.stdout)
    assert (done.returncode, json_documents[-1]["type"], json_documents[-1]["outcome"]) == (
        1,
        "result",
        "failed",
    )
    assert "refold: " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [b"\0 and \xff\xfe", b"x" * 10_000_000, b"\xef\xbb\xbfmarked"],
    ids=["odd", "large", "marked"],
)
def test_arbitrary_bytes_on_stdin_become_the_message(tmp_path: Path, value: bytes) -> None:
    script_path = script(tmp_path, {"text": "Hello."})

    done = subprocess.run(
        command("-p", "--script", script_path, "--output-format", "stream-json"), cwd=tmp_path,
        input=value, capture_output=True, timeout=LONG, check=False,
    )  # fmt: skip

    json_documents = documents(done.stdout.decode())
    assert (done.returncode, json_documents[-1]["text"]) == (0, "Hello.")
    assert json_documents[1]["text"] == value.decode("utf-8-sig", errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_retry_is_reported_on_stderr(tmp_path: Path, output_format: str) -> None:
    async def run() -> "subprocess.CompletedProcess[bytes]":
        busy = Answer(b"{}", status=503)
        yes = answer("openai-chat", Reply("Yes."))
        async with wire_server(busy, yes) as server:
            environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "nobody"}
            return await anyio.run_process(
                command(
                    "-p", "Hi", "-m", "openai-chat/some", "--output-format", output_format
                ),
                cwd=tmp_path,
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                check=False,
            )

    done = anyio.run(run)

    assert done.returncode == 0
    assert done.stderr.decode().count("; trying again in ") == 1
