"""Runs a program in a pseudo terminal, and has the screen that a person would see."""

import os
import re
import sys
import termios
import time
from pathlib import Path

import pexpect
import pyte

STAGE = Path(__file__).with_name("stage.py")
CTRL_C, ENTER, ESC = "\x03", "\r", "\x1b"
_DRAFT_HINT = "Enter: send at the next step"
_MAX_HISTORY_LINES = 5_000  # lines above the screen
_MAX_WAIT_SECONDS = 60  # a busy machine takes ten


class Terminal:
    def __init__(
        self,
        program: Path,
        *arguments: str,
        directory: Path,
        size: tuple[int, int] = (40, 80),
        compiled: Path,
        **env: str,
    ) -> None:
        rows, columns = size
        self.raw, self.modes, self._sent = "", 0, 0
        self.screen = pyte.HistoryScreen(columns, rows, history=_MAX_HISTORY_LINES)
        self._stream = pyte.Stream(self.screen)
        environment = {**os.environ, "TERM": "xterm-256color", **env}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(compiled)
        self.child = pexpect.spawn(
            *_find_program(program, arguments),
            cwd=str(directory),
            env=environment,  # type: ignore[arg-type]
            dimensions=size,
            encoding="utf-8",
            timeout=_MAX_WAIT_SECONDS,
        )
        self.child.delaybeforesend = None

    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    @property
    def paper(self) -> list[str]:
        """The rows that left the screen at the top, and the screen down to its last text."""
        width = self.screen.columns
        above = [
            "".join(row[x].data for x in range(width)).rstrip()
            for row in self.screen.history.top
        ]
        return "\n".join([*above, *self.rows]).rstrip("\n").split("\n")

    def type(self, text: str) -> None:
        self._sent = len(self.raw)
        self.child.send(text)

    def answer(self, key: str) -> None:
        """Answer the waiting question: wait until a choice is highlighted, and press the key."""
        self.until("› 1 ")
        self.type(key)

    def choose(self, label: str) -> None:
        """Highlight the choice that begins with this label, with arrows, and take it."""
        self.until("› 1 ")
        row = " ".join(self.text.split())
        number = re.search(rf"(\d) {re.escape(label)}", row)
        assert number is not None, self.text
        self.type("\x1b[B" * (int(number[1]) - 1) + "\r")

    def until(self, shown: str) -> None:
        """Wait until this text is on the screen."""
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while shown not in self.text:
            assert time.monotonic() < deadline, f"{shown!r} never came:\n{self.text}"
            self.read()

    @property
    def sent_bytes(self) -> int:
        """The number of characters that the program had written at the last key."""
        return self._sent

    def wait_for_text(self, *texts: str, since: int = 0) -> int:
        """Wait until one of these texts was written after `since`. Return the index of the text.

        It is searched in the raw output, not on the screen.
        """
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while True:
            for which, text in enumerate(texts):
                if text in self.raw[since:]:
                    return which
            assert time.monotonic() < deadline, f"{texts} was not sent:\n{self.raw!r}"
            self.read()

    def wait_for_prompt(self, prompt: str = "›") -> None:
        """Wait for an empty prompt, because keys that are typed earlier reach no editor.

        The prompt of a draft, which closes when the turn ends, does not count. It has a hint.
        """
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while True:
            above, last = ["", "", *self.text.rstrip().splitlines()][-2:]
            if last == prompt and not above.startswith(_DRAFT_HINT):
                return
            assert time.monotonic() < deadline, f"no prompt came:\n{self.text}"
            self.read()

    def wait_until_gone(self, shown: str) -> None:
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while shown in self.text:
            assert time.monotonic() < deadline, f"{shown!r} never went:\n{self.text}"
            self.read()

    def wait_for_path(self, path: Path) -> None:
        """Wait until this file exists."""
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} was never made:\n{self.text}"
            self.read()

    def end(self) -> int:
        """Wait until the program exits. Return its exit code, or minus the signal that killed it."""
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while self.read():
            assert time.monotonic() < deadline, f"it never ended:\n{self.text}"
        self.modes = termios.tcgetattr(self.child.child_fd)[3]
        self.child.close()
        status, signal = self.child.exitstatus, self.child.signalstatus
        return status if status is not None else -(signal or 0)

    def read_slowly(self, rate: int) -> None:
        """Read as over a connection with `rate` bytes a second."""
        before = len(self.raw)
        self.read(512)
        time.sleep((len(self.raw) - before) / rate)

    def read(self, most: int = 4096) -> bool:
        """Read for a moment. Return False if the program has closed its terminal."""
        try:
            piece = self.child.read_nonblocking(most, timeout=0.05)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += piece
        self._stream.feed(piece)
        return True


def _find_program(program: Path, arguments: tuple[str, ...]) -> tuple[str, list[str]]:
    if program.suffix == ".py":
        return sys.executable, [str(program), *arguments]
    return str(program), list(arguments)
