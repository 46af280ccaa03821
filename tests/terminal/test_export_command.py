"""`/export`: the session that one is in, as a file or on the clipboard."""

import base64
import io
import os
import re
import signal
import tarfile
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
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.console.reader import Key
from refold.errors import BadInput
from refold.terminal.run import PromptLoop
from refold.testing.providers import ScriptedProvider
from refold.views.picker import OnMove, Picker, Search, with_selection
from tests.terminal.test_conversation import Typist

CTRL_D = Key.CTRL_D


class Chooser(Typist):
    """Picks the item with this id and the value of the dial, and then types. "" leaves the
    list.
    """

    def __init__(self, id_: str, dial: str, *typed: str | Key) -> None:
        super().__init__(*typed)
        self._id, self._dial = id_, dial

    async def pick(
        self, picker: Picker, search: Search | None = None, on_move: OnMove | None = None
    ) -> Picker | None:
        return with_selection(picker, self._id, self._dial) if self._id else None


def export_session(
    directory: Path,
    *orders: str,
    keep: bool = True,
    writing: Event | None = None,
    reader: Typist | None = None,
) -> tuple[str, str]:
    """Return the id of the session that was exported so, and what the screen said.

    `writing`: set when a file is half written; then Ctrl+C is pressed.
    """
    places, out = paths(os.environ), io.StringIO()

    async def press(writing: Event) -> None:
        while not writing.is_set():
            await anyio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    async def converse() -> str:
        settings = load_folder_settings(directory, places, os.environ, {}).settings
        provider = ScriptedProvider("One **and** two.", "Fine.")
        options = LaunchOptions(directory=directory, provider=provider, keep=keep)
        launch = Launch(App(settings, places, os.environ, options))
        try:
            start = await launch.start()
            look = TerminalCapabilities(moves=isinstance(reader, Chooser))
            session, paper = Session(launch, start), Printer(out, look)
            there = PromptLoop(session, paper, reader or Typist("hello"))
            await there.run("")
            for rest in orders:
                await export(there.terminal, rest)
            if writing:
                typist = Typist("/export stopped.tar", "and you?", "/export tar there")
                there = PromptLoop(session, paper, typist)
                async with anyio.create_task_group() as group:
                    group.start_soon(press, writing)
                    await there.run("")
        finally:
            await launch.aclose()
        return session.id

    return anyio.run(converse), out.getvalue()


def test_export_writes_the_named_file_in_the_format_of_its_suffix(tmp_path: Path) -> None:
    _, screen = export_session(tmp_path, "talk.md", "talk.html", "tar talk")

    assert "One **and** two." in (tmp_path / "talk.md").read_text("utf-8")
    assert "One <strong>and</strong> two." in (tmp_path / "talk.html").read_text("utf-8")
    assert tarfile.is_tarfile(tmp_path / "talk")
    assert all(
        f"{tmp_path / name}: " in screen for name in ("talk.md", "talk.html", "talk")
    )


def test_export_overwrites_no_file_that_it_has_not_named_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")

    with pytest.raises(BadInput, match=r"mine\.txt already exists"):
        export_session(tmp_path, "mine.txt")

    assert (tmp_path / "mine.txt").read_text("utf-8") == "mine"


@pytest.mark.parametrize(("key", "written"), [("y", True), ("n", False)])
def test_export_without_a_name_writes_nothing_unasked(
    tmp_path: Path, key: str, *, written: bool
) -> None:
    id_, screen = export_session(
        tmp_path, "html", "html", reader=Typist("hello", CTRL_D, key, key)
    )

    expected = [f"refold-{id_}.html"] if written else []
    assert [path.name for path in tmp_path.iterdir()] == expected
    assert ("Nothing was written." in screen) is not written


def test_export_from_the_list_writes_to_the_file_that_the_user_named(
    tmp_path: Path,
) -> None:
    chooser = Chooser("file", "text", "hello", CTRL_D, "there/../talk")
    (tmp_path / "there").mkdir()

    export_session(tmp_path, "", reader=chooser)

    assert "One **and** two." in (tmp_path / "talk").read_text("utf-8")
    assert chooser.asked[-1] == "File: "


def test_export_to_the_clipboard_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)

    _, screen = export_session(
        tmp_path, "", reader=Chooser("clipboard", "md", "hello", CTRL_D)
    )

    (code,) = re.findall(r"\x1b\]52;c;([^\x07]*)\x07", screen)
    assert "One **and** two." in base64.b64decode(code).decode()
    assert "Sent to the clipboard" in screen
    assert list(tmp_path.iterdir()) == []


def test_export_left_at_the_list_does_nothing(tmp_path: Path) -> None:
    export_session(tmp_path, "", reader=Chooser("", "md", "hello", CTRL_D))

    assert list(tmp_path.iterdir()) == []


def test_export_of_an_unsaved_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No journal of this session is stored"):
        export_session(tmp_path, "talk.md", keep=False)


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
    _, text = export_session(tmp_path, writing=writing)

    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert "stopped\n" in text
    assert "stopped.tar" not in text
    assert text.index("stopped") < text.index("Fine.") < text.index("there: 1 session")
