"""Runs whole sessions at a terminal, of a real app with its files. The user types from a list."""

import io
import os
from pathlib import Path

import anyio

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.launch import Launch
from refold.client.session import Session
from refold.commands.table import names
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.journal.journal_directory import JournalDirectory
from refold.terminal.run import PromptLoop
from refold.testing.providers import Line, ScriptedProvider
from tests.sandbox_notice import sandbox_notice
from tests.terminal.test_conversation import Typed, Typist

HOSTILE = "\x1b]0;me\x07\u202e" + "x" * 10_000 + "\nsecond line \x9b2J"


class TerminalDriver:
    """Drives terminals in one folder. `ids` are the opened sessions, in their order."""

    def __init__(self, directory: Path, look: TerminalCapabilities | None = None) -> None:
        self.here, self.look = directory, look or TerminalCapabilities()
        self.ids = list[str]()
        self.asked = list[str]()

    def tell(
        self, *typed: Typed, answers: tuple[Line, ...] = (), keep: bool = True
    ) -> list[str]:
        """Type this in a new session. Return the lines that were printed after the greeting."""
        out = io.StringIO()
        anyio.run(self._converse, Typist(*typed), answers, out, keep)
        rows = out.getvalue().split("\n")[2 + self._rows_of_notice :]
        return [row for row in rows if row]

    @property
    def _rows_of_notice(self) -> int:
        """Return how many rows of the greeting say that no sandbox works here."""
        out = io.StringIO()
        if notice := sandbox_notice():
            Printer(out, self.look).print_text(notice, "warn")
        return out.getvalue().count("\n")

    async def _converse(
        self, typist: Typist, answers: tuple[Line, ...], out: io.StringIO, keep: bool
    ) -> None:
        places = paths(os.environ)
        settings = load_folder_settings(self.here, places, os.environ, {}).settings
        options = LaunchOptions(
            directory=self.here,
            provider=ScriptedProvider(*answers),
            attended=True,
            watched=True,
            keep=keep,
        )
        app = App(settings, places, os.environ, options)
        launch = Launch(app, {}, commands=names, notes=True)
        try:
            session = Session(launch, await launch.start())
            self.ids.append(session.id)
            paper = Printer(out, self.look)
            assert await PromptLoop(session, paper, typist).run("") == 0
        finally:
            await launch.aclose()
            launch.finish_notes()
            self.asked = typist.asked

    @property
    def home(self) -> JournalDirectory:
        return JournalDirectory(paths(os.environ).data / "sessions")
