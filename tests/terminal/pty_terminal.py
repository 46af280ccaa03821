"""A program in a pseudo terminal, and the screen a person would see."""

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
_KEPT = 5_000  # lines above the screen
_PATIENCE = 60  # seconds; a busy machine takes ten


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
        self.screen = pyte.HistoryScreen(columns, rows, history=_KEPT)
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
            timeout=_PATIENCE,
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
        """What went over the top of the screen, and the screen down to its last words."""
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
        """Answer the question that waits: keys are answers once a choice is highlighted."""
        self.until("› 1 ")
        self.type(key)

    def choose(self, label: str) -> None:
        """Highlight the choice that begins so with arrows, and take it."""
        self.until("› 1 ")
        row = " ".join(self.text.split())
        number = re.search(rf"(\d) {re.escape(label)}", row)
        assert number is not None, self.text
        self.type("\x1b[B" * (int(number[1]) - 1) + "\r")

    def until(self, shown: str) -> None:
        """Wait until this can be read on the screen."""
        deadline = time.monotonic() + _PATIENCE
        while shown not in self.text:
            assert time.monotonic() < deadline, f"{shown!r} never came:\n{self.text}"
            self.read()

    @property
    def sent_bytes(self) -> int:
        """How much was written at the last key."""
        return self._sent

    def until_sent(self, *texts: str, since: int = 0) -> int:
        """Wait until one of these was written, whatever the screen made of it. Which?"""
        deadline = time.monotonic() + _PATIENCE
        while True:
            for which, text in enumerate(texts):
                if text in self.raw[since:]:
                    return which
            assert time.monotonic() < deadline, f"{texts} was not sent:\n{self.raw!r}"
            self.read()

    def until_asked(self, prompt: str = "›") -> None:
        """Wait for a prompt with nothing after it: keys typed earlier reach no editor.

        The prompt of a draft, which closes when the turn ends, is another one: it has a hint.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            above, last = ["", "", *self.text.rstrip().splitlines()][-2:]
            if last == prompt and not above.startswith(_DRAFT_HINT):
                return
            assert time.monotonic() < deadline, f"no prompt came:\n{self.text}"
            self.read()

    def until_gone(self, shown: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while shown in self.text:
            assert time.monotonic() < deadline, f"{shown!r} never went:\n{self.text}"
            self.read()

    def until_there(self, path: Path) -> None:
        """Wait until this file exists."""
        deadline = time.monotonic() + _PATIENCE
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} was never made:\n{self.text}"
            self.read()

    def end(self) -> int:
        """Wait for the program to end. Its exit code."""
        deadline = time.monotonic() + _PATIENCE
        while self.read():
            assert time.monotonic() < deadline, f"it never ended:\n{self.text}"
        self.modes = termios.tcgetattr(self.child.child_fd)[3]
        self.child.close()
        status, signal = self.child.exitstatus, self.child.signalstatus
        return status if status is not None else -(signal or 0)

    def read_slowly(self, rate: int) -> None:
        """Read as over a line that carries `rate` bytes a second."""
        before = len(self.raw)
        self.read(512)
        time.sleep((len(self.raw) - before) / rate)

    def read(self, most: int = 4096) -> bool:
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
