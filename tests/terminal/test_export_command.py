"""`/export`: the session that one is in, as a file."""

import io
import os
import signal
import time
from itertools import count
from pathlib import Path
from threading import Event

import anyio
import pytest
from anyio.from_thread import check_cancelled

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.launch import Launch
from refold.client.session import Session
from refold.commands.export import run as export
from refold.config.folder_settings import load_here
from refold.config.paths import paths
from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.errors import BadInput
from refold.terminal.run import PromptLoop
from refold.testing.providers import ScriptedProvider
from tests.terminal.test_conversation import Typist


def exported(
    here: Path, *orders: str, keep: bool = True, writing: Event | None = None
) -> tuple[str, str]:
    """The id of the session that was exported so, and what the screen said.

    `writing`: set when a file is half written; then Ctrl+C is pressed.
    """
    places, out = paths(os.environ), io.StringIO()

    async def press(writing: Event) -> None:
        while not writing.is_set():
            await anyio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    async def converse() -> str:
        settings = load_here(here, places, os.environ, {}).settings
        provider = ScriptedProvider("One **and** two.", "Fine.")
        options = LaunchOptions(directory=here, provider=provider, keep=keep)
        launch = Launch(App(settings, places, os.environ, options))
        try:
            opened = await launch.start()
            session, paper = Session(launch, opened), Printer(out, TerminalCapabilities())
            there = PromptLoop(session, paper, Typist("hello"))
            await there.run("")
            for rest in orders:
                await export(there.terminal, rest)
            if writing:
                typist = Typist("/export tar", "and you?", "/export tar there")
                there = PromptLoop(session, paper, typist)
                async with anyio.create_task_group() as group:
                    group.start_soon(press, writing)
                    await there.run("")
        finally:
            await launch.aclose()
        return session.id

    return anyio.run(converse), out.getvalue()


def test_export_writes_to_the_directory_of_the_session_and_names_the_file(
    tmp_path: Path,
) -> None:
    id_, said = exported(tmp_path, "", "html", "tar")

    files = {p.suffix: p for p in tmp_path.iterdir() if p.name.startswith("refold-")}
    assert {p.name for p in files.values()} == {
        f"refold-{id_}.md",
        f"refold-{id_}.html",
        f"refold-{id_}.tar",
    }
    assert "One **and** two." in files[".md"].read_text("utf-8")
    assert "One <strong>and</strong> two." in files[".html"].read_text("utf-8")
    assert all(str(path) in said for path in files.values())


def test_export_overwrites_only_its_own_earlier_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")

    with pytest.raises(BadInput, match=r"mine\.txt already exists"):
        exported(tmp_path, "", "", "mine.txt")

    assert (tmp_path / "mine.txt").read_text("utf-8") == "mine"
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".md", ".txt"]


def test_export_of_an_unsaved_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not saved"):
        exported(tmp_path, "", keep=False)


def test_ctrl_c_stops_an_export_without_a_file_and_the_session_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, pieces = Event(), count(1)
    deadline = time.monotonic() + 60

    def before_each_piece() -> None:
        check_cancelled()
        if next(pieces) == 2:
            writing.set()
            while time.monotonic() < deadline:
                check_cancelled()
                time.sleep(0.01)

    place = "refold.commands.export.check_cancelled"
    monkeypatch.setattr(place, before_each_piece)
    id_, said = exported(tmp_path, writing=writing)

    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert "stopped\n" in said
    assert f"refold-{id_}.tar" not in said
    assert said.index("stopped") < said.index("Fine.") < said.index("there: 1 session")
