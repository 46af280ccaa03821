"""Measures the time from the command line to the prompt, in a pseudo terminal.

It is compared with the least that a prompt can cost: a Python that loads the same line editor
and shows a prompt. With --against, another tree of refold's sources (its src/) is run in turn
with this one, so that other load falls on both.

Usage: python -m bench.prompt [-n 10] [--against DIRECTORY]
"""

import argparse
import os
import pty
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench import table

SHOWN = "›".encode()
LEAST = "from prompt_toolkit import PromptSession; PromptSession('› ').prompt()"
_MAX_START_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10, help="runs of each (10)")
    parser.add_argument("--against", type=Path, help="src/ of another tree")
    chosen = parser.parse_args()
    report(chosen.n, chosen.against)


def report(times: int, against: Path | None = None) -> None:
    refold = ("-m", "refold", "-m", "openai-chat/mock-model")
    data: dict[str, tuple[tuple[str, ...], Path | None]] = {
        "floor": (("-c", LEAST), None),
        "refold": (refold, None),
        **({"against": (refold, against)} if against else {}),
    }
    took: dict[str, list[float]] = {name: [] for name in data}
    for _ in range(times):
        for name, (arguments, sources) in data.items():
            took[name].append(start_once(arguments, sources))
    table.compare(f"start to prompt, {times} runs each, in turn", took)


def start_once(arguments: tuple[str, ...], sources: Path | None = None) -> float:
    """Return the seconds until the prompt is on the screen, in an empty home."""
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as home:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "REFOLD_HOME": f"{home}/refold",
            "REFOLD_NO_BACKGROUND": "1",
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PROMPT_TOOLKIT_NO_CPR": "1",  # no terminal here reports where the cursor is
            "OPENAI_API_KEY": "sk-nobody",
            **({"PYTHONPATH": str(sources)} if sources else {}),
        }
        began = time.monotonic()
        pid, screen = pty.fork()
        if pid == 0:
            os.chdir(home)
            os.execve(sys.executable, [sys.executable, *arguments], environ)
        try:
            return _time_of_prompt(screen, began) - began
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(screen)


def _time_of_prompt(screen: int, began: float) -> float:
    data = b""
    while select.select(
        [screen], [], [], max(0, began + _MAX_START_SECONDS - time.monotonic())
    )[0]:
        try:
            piece = os.read(screen, 65_536)
        except OSError:  # the program has exited
            break
        data += piece
        if SHOWN in data:
            return time.monotonic()
    raise SystemExit(f"no prompt came: {data.decode(errors='replace')[-2000:]}")


if __name__ == "__main__":
    main()
