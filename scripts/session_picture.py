"""Record the session that the README shows: `python -m scripts.session_picture SESSION.cast`.

refold really runs, in a terminal of 80 columns, with responses from a script. The recording is an
asciicast; svg-term draws it:

    npx svg-term-cli@2.1.1 --in SESSION.cast --out docs/images/session.svg --window --no-cursor
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pexpect

COLUMNS, ROWS = 80, 20
MAX_IDLE_SECONDS = 1.2  # longer pauses of the recording are cut
END_SECONDS = 4.0  # how long the last screen is shown before the animation begins again
FILES = {
    "greet.py": 'def greet(name):\n    return "hello"\n',
    "test_greet.py": "import unittest\n\nfrom greet import greet\n\n\n"
    "class Test(unittest.TestCase):\n    def test_name(self):\n"
    '        self.assertEqual(greet("Ada"), "hello, Ada")\n',
}
EDIT = {"path": "greet.py", "old": 'return "hello"', "new": 'return f"hello, {name}"'}
RESPONSES: tuple[dict[str, object], ...] = (
    {"text": "I read it first.", "pause": 0.04,
     "calls": [{"tool": "read_file", "arguments": {"path": path}} for path in FILES]},
    {"text": "The name is not used.", "pause": 0.04,
     "calls": [{"tool": "edit_file", "arguments": EDIT}]},
    {"text": "", "calls": [{"tool": "bash", "arguments": {"command": "python3 -m unittest -q"}}]},
    {"text": "`greet` says the name now, and its test passes.", "pause": 0.05},
)  # fmt: skip
GAP = r"(?:\x1b\[[0-9;?]*[A-Za-z]| )+"  # between two words that are drawn
TASK = "greet people by their name"
QUESTION = f"and{GAP}stop"
# The text that must be on the screen, and what is typed after that.
STEPS = (
    ("› ", f"{TASK}\r"),
    (QUESTION, "y"),
    (QUESTION, "y"),
    (f"its{GAP}test{GAP}passes", ""),
)


def record(directory: Path) -> str:
    """Drive a session in `directory`. Return the asciicast of its terminal."""
    for name, text in FILES.items():
        (directory / name).write_text(text, encoding="utf-8")
    script = directory.parent / "demo"
    script.write_text("".join(f"{json.dumps(line)}\n" for line in RESPONSES), "utf-8")
    environment = os.environ | {
        "HOME": str(directory.parent), "TERM": "xterm-256color"}  # fmt: skip
    terminal: pexpect.spawn[str] = pexpect.spawn(
        sys.executable, ["-m", "refold", "--script", str(script)], cwd=str(directory),
        env=environment, dimensions=(ROWS, COLUMNS), encoding="utf-8", timeout=60,
    )  # fmt: skip
    recorder = Recorder()
    terminal.logfile_read = recorder
    for result, typed in STEPS:
        terminal.expect(result)
        if typed:
            wait(terminal, 1.0)
        for key in typed:
            terminal.send(key)
            wait(terminal, 0.06)
    wait(terminal, 1.0)
    terminal.close(force=True)
    return recorder.cast()


def wait(terminal: "pexpect.spawn[str]", seconds: float) -> None:
    """Read what the terminal prints, for this number of seconds."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        terminal.expect([pexpect.TIMEOUT, ".+"], timeout=left)


class Recorder:
    """A file in memory, to which pexpect writes everything that it reads."""

    def __init__(self) -> None:
        self._pieces = list[tuple[float, str]]()

    def write(self, text: str) -> None:
        self._pieces.append((time.monotonic(), text))

    def flush(self) -> None:
        """Do nothing: everything is in memory."""

    def cast(self) -> str:
        rows: list[object] = [{"version": 2, "width": COLUMNS, "height": ROWS}]
        at, before = 0.0, self._pieces[0][0]
        for now, text in self._pieces:
            at, before = at + min(now - before, MAX_IDLE_SECONDS), now
            rows.append([round(at, 3), "o", text])
        rows.append([round(at + END_SECONDS, 3), "o", " "])
        return "".join(f"{json.dumps(row)}\n" for row in rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "greeting"
        workspace.mkdir()
        Path(sys.argv[1]).write_text(record(workspace), encoding="utf-8")
