"""Passes the bytes of a command on, as a connection that can be slow and can be killed.

    python -m bench.relay DELAY_SECONDS PID_FILE COMMAND [ARGUMENT ...]

Each direction is delayed by this time, without a limit of the bytes on the way. To kill this process
is like killing ssh: both sides see the end of their pipes.
"""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from refold.place.far.frames import write_all

_COPY_BYTES = 64 * 1024


def relay_argv(delay_seconds: float, pid_file: Path, *argv: str) -> tuple[str, ...]:
    """Return the command of a place behind a relay."""
    return (
        sys.executable,
        "-m",
        "bench.relay",
        str(delay_seconds),
        str(pid_file),
        *argv,
    )


def _pass_on(reading: int, writing: int, delay_seconds: float) -> None:
    pieces = SimpleQueue[tuple[float, bytes]]()

    def write() -> None:
        data = b"not the end"
        while data:
            due, data = pieces.get()
            time.sleep(max(0.0, due - time.monotonic()))
            with suppress(OSError):  # the reader has closed it
                write_all(writing, data)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    data = b"not the end"
    while data:
        data = os.read(reading, _COPY_BYTES)
        pieces.put((time.monotonic() + delay_seconds, data))
    writer.join()


def main() -> None:
    delay_seconds, pid_file, *argv = float(sys.argv[1]), *sys.argv[2:]
    Path(pid_file).write_text(str(os.getpid()))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        forward = 0, os.dup(command.stdin.fileno()), delay_seconds
        command.stdin.close()
        threading.Thread(target=_pass_on, args=forward, daemon=True).start()
        _pass_on(command.stdout.fileno(), 1, delay_seconds)


if __name__ == "__main__":
    main()
