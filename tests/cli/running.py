"""Runs refold as a process, for tests that need one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.cli.contract import Document, check_document

LONG = 60.0  # seconds; only a program that hangs takes longer


def script(directory: Path, *lines: Document, name: str = "script.jsonl") -> str:
    path = directory / name
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    return str(path)


def call(tool: str, **arguments: Any) -> Document:
    return {"calls": [{"tool": tool, "arguments": arguments}]}


def command(*arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", "refold", *arguments)


@contextmanager
def start_refold(*arguments: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a process that is killed at the end of the test, if it still runs."""
    pipes: dict[str, Any] = {
        "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
    }  # fmt: skip
    process = subprocess.Popen(command(*arguments), **{**pipes, **options})
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()


def read_until(
    process: "subprocess.Popen[bytes]", condition: Callable[[Document], object]
) -> list[Document]:
    """Read documents up to the first for which `condition` holds."""
    documents: list[Document] = []
    assert process.stdout
    for line in process.stdout:
        documents.append(check_document(msgspec.json.decode(line)))
        if condition(documents[-1]):
            return documents
    raise AssertionError(f"it ended before: {documents}")


def read_rest(process: "subprocess.Popen[bytes]") -> tuple[list[Document], str]:
    """Read to the end; return the documents and the text on stderr."""
    out, err = process.communicate(timeout=LONG)
    return [
        check_document(msgspec.json.decode(line)) for line in out.splitlines()
    ], err.decode()


def wait_until_gone(text: str) -> bool:
    """Return whether no process with these words in its command line runs any more."""
    until_then = time.monotonic() + LONG
    while time.monotonic() < until_then:
        if not any(text.encode() in command_line for command_line in _command_lines()):
            return True
    return False


def _command_lines() -> Iterator[bytes]:
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            yield Path("/proc", process, "cmdline").read_bytes()
        except OSError:
            continue


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
