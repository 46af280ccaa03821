"""Runs a program on a screen of tmux, presses keys, and records its output with the time.

Unlike a plain pty, tmux answers the queries that programs send to a terminal at their start. It is
used in its control mode: one connection carries the keys and the output.
"""

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import join

TICKS = os.sysconf("SC_CLK_TCK")
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_CONTROL = re.compile(
    rb"\x1b(?:\[[0-9;:?<>=]*[ -/]*[@-~]|[\]P_^][^\x07\x1b]*(?:\x07|\x1b\\)|.)"
)


class Screen:
    """A screen with one program, which `start` starts, so that a clock can begin then.

    A `mark` is a position in the output, after which `until` can search.
    """

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], directory: Path,
        size: tuple[int, int] = (100, 30),
    ) -> None:  # fmt: skip
        self._name = [
            "tmux",
            "-L",
            f"refold-bench-{os.getpid()}-{id(self)}",
            "-f",
            os.devnull,
        ]
        lines = [f"{name}={value}" for name, value in environ.items()]
        line = f"read go; exec {join(['env', '-i', *lines, *command])}"
        columns, rows = map(str, size)
        self._tmux(
            "new-session",
            "-d",
            "-x",
            columns,
            "-y",
            rows,
            "-c",
            str(directory),
            "sh",
            "-c",
            line,
        )
        self._control = subprocess.Popen(
            [*self._name, "-C", "attach"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.send_command(f"refresh-client -C {columns}x{rows}")
        self._came = list[tuple[float, bytes]]()
        self._changed = threading.Condition()
        self._has_ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def start(self) -> float:
        self.pid = int(self._tmux("display-message", "-p", "#{pane_pid}"))
        return self.keys("Enter")

    def send_command(self, line: str) -> None:
        assert self._control.stdin is not None
        self._control.stdin.write(f"{line}\n".encode())
        self._control.stdin.flush()

    def keys(self, *names: str) -> float:
        """Press keys by their names for tmux. Return the time of that."""
        at = time.perf_counter()
        self.send_command(f"send-keys {join(names)}")
        return at

    def type(self, text: str) -> float:
        """Type a text. Return the time of that."""
        at = time.perf_counter()
        self.send_command(f"send-keys -l {join([text])}")
        return at

    @property
    def byte_count(self) -> int:
        """The number of bytes that the program has written so far."""
        return sum(len(data) for _, data in self._came)

    @property
    def mark(self) -> int:
        return len(self._came)

    def until(self, text: str, since: int = 0, seconds: float = 60.0) -> float:
        """Return the time at which this text had been written, since the mark `since`.

        Blanks and control sequences between its letters are ignored. Raises `RuntimeError` after
        `seconds`.
        """
        wanted, result, at = re.sub(r"\s", "", text).encode(), b"", since
        deadline = time.perf_counter() + seconds
        while True:
            with self._changed:
                while at >= len(self._came):
                    left = deadline - time.perf_counter()
                    if left <= 0 or self._has_ended:
                        raise RuntimeError(f"{text!r} never came:\n{self.text()}")
                    self._changed.wait(left)
                came, data = self._came[at]
            at += 1
            result = result[-4_000:] + data
            if wanted in re.sub(rb"\s", b"", _CONTROL.sub(b"", result)):
                return came

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def processes(self) -> Iterator[int]:
        """Yield the ids of the program and of all processes below it."""
        waiting = [self.pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += map(int, children.read_text().split())

    def ticks(self) -> int:
        """Return the CPU time of these processes so far, in units of 1/`TICKS` s."""
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in self.processes()]
        fields = [stat.rpartition(")")[2].split() for stat in stats]
        return sum(int(field[11]) + int(field[12]) for field in fields)

    def megabytes(self) -> float:
        """Return the memory of these processes. Pages that several share are counted once."""
        count = 0
        for pid in self.processes():
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            count += int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])  # type: ignore[index]
        return count / 1024

    def close(self) -> None:
        self._tmux("kill-server")
        self._control.wait()

    def _tmux(self, *text: str) -> str:
        return subprocess.run(
            [*self._name, *text], stdout=subprocess.PIPE, check=True, text=True
        ).stdout

    def _read(self) -> None:
        assert self._control.stdout is not None
        for line in self._control.stdout:
            if line.startswith(b"%output "):
                data = line.split(b" ", 2)[2].removesuffix(b"\n")
                data = _ESCAPED.sub(lambda m: bytes([int(m[1], 8)]), data)
                with self._changed:
                    self._came.append((time.perf_counter(), data))
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
