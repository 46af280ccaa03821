"""Runs a whole agent in a process, in which strace injects a fault, and continues it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from refold.cli.main import main


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


def count(n: int) -> dict[str, Any]:
    return call("bash", command=f"echo {n} >> counter")


def script() -> list[dict[str, Any]]:
    """Return the script of a model whose calls leave a trace each time they run."""
    lines = [{"calls": [call("write_file", path="notes.txt", content="seen 0\n")]}]
    for n in range(1, 6):
        lines += [
            {"calls": [count(n)]},
            {"calls": [call("read_file", path="notes.txt")]},
            {"calls": [call("edit_file", path="notes.txt", old=f"seen {n - 1}", new=f"seen {n}")]},
        ]  # fmt: skip
    return [*lines, {"calls": [count(n) for n in (6, 7, 8, 9)]}, {"text": "Done."}]


SCRIPT = script()
COUNTED = {str(n) for n in range(1, 10)}


class Run(NamedTuple):
    """The exit code of a run, its output, and whether a fault was injected (`struck`)."""

    code: int
    told: list[dict[str, Any]]
    err: str
    struck: bool


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run_with_fault(workspace: Path, inject: str, *arguments: str) -> Run:
    """Run the script in `workspace`, with a fault injected by strace."""
    log = workspace.parent / "strace.txt"
    # With --seccomp-bpf, strace would not count the calls, and strike the first one or none.
    trace = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={inject.split(':')[0]}"]
    program = [sys.executable, "-m", "refold", "-p", *arguments, "--yolo"]
    path = write_lines(workspace.parent / "script.jsonl", SCRIPT)
    done = subprocess.run(
        [*trace, "-e", f"inject={inject}", *program, "--script", str(path),
         "--output-format", "stream-json"],
        cwd=workspace, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    text = log.read_text()
    whole = done.stdout[: done.stdout.rfind("\n") + 1].splitlines()
    events = [json.loads(line) for line in whole]
    return Run(
        done.returncode,
        events,
        _without_notice(done.stderr),
        "INJECTED" in text or "SIGKILL" in text,
    )


def _without_notice(err: str) -> str:
    """Drop the notice that the sandbox is off, because it is off in these tests."""
    lines = err.splitlines(keepends=True)
    return "".join(line for line in lines if "The sandbox is off" not in line)


class Refold:
    """Runs command lines of refold in this process, which is quicker than a process for each."""

    def __init__(self, capfd: Any) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capfd.readouterr()
        code = main(arguments)
        return code, *self._capfd.readouterr()

    def events(self, id_: str) -> list[dict[str, Any]]:
        _, out, err = self("sessions", "show", id_, "--json")
        assert not err
        documents = [json.loads(line) for line in out.splitlines()]
        extra = ("at", "by", "cause")
        return [{k: v for k, v in item.items() if k not in extra} for item in documents]

    def continue_script(self, script: Path, *text: str) -> dict[str, Any]:
        """Continue with the rest of the script, to the end. Return the result."""
        code, out, err = self(
            "-p", *text, "--yolo", "--script", str(script), "--output-format", "json"
        )
        lines = _without_notice(err).splitlines()
        other = [line for line in lines if "damaged at its end" not in line]
        assert (code, other) == (0, []), f"{code} {err}{out}"
        data: dict[str, Any] = json.loads(out)
        return data
