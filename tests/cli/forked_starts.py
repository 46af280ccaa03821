"""Starts `refold` many times for the price of one import.

A process imports refold once, and forks for each start. Tests of imports or of the standard streams
of a start use `tests.cli.running` instead.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LONG = 60  # seconds; only a program that hangs takes longer


class ForkedStarts:
    def __init__(self, forks: "subprocess.Popen[str]") -> None:
        self._forks = forks

    def run(
        self, directory: Path, environ: Mapping[str, str], *arguments: str
    ) -> tuple[int, str]:
        """Run refold with these arguments. Return its exit code and its output."""
        text = json.dumps([str(directory), dict(environ), arguments])
        assert self._forks.stdin
        assert self._forks.stdout
        self._forks.stdin.write(f"{text}\n")
        self._forks.stdin.flush()
        code, result = json.loads(self._forks.stdout.readline())
        return code, result


@contextmanager
def forked_starts() -> Iterator[ForkedStarts]:
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:
        yield ForkedStarts(forks)


def serve() -> None:
    from refold.app import app
    from refold.cli.subcommands import SUBCOMMANDS
    from refold.headless import print as headless

    assert app
    assert headless
    for subcommand in SUBCOMMANDS.values():
        subcommand.load()
    for line in sys.stdin:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(reading)
            start(writing, *json.loads(line))
        os.close(writing)
        with open(reading, encoding="utf-8", errors="replace") as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), text]), flush=True)


def start(output: int, here: str, environ: dict[str, str], arguments: list[str]) -> None:
    from refold.cli.main import run

    signal.alarm(LONG)
    os.chdir(here)
    os.environ.clear()
    os.environ.update(environ)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.stdin = open(0)  # noqa: SIM115  # the end of the process closes it
    run(arguments)


if __name__ == "__main__":
    serve()
