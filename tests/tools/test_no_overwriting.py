"""In the careful shell of small models, redirections do not overwrite files."""

from pathlib import Path

import anyio
import pytest

from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.testing.places import BackgroundInMemory
from refold.tools.contract import Reply
from refold.tools.read import read_file
from refold.tools.shell import bash, without_overwriting
from refold.values.tools import Confinement


@pytest.mark.parametrize(
    ("command", "menu"),
    [
        ("echo new > menu.txt", "soup\n"),
        ("cat menu.txt | tr o u > menu.txt", "soup\n"),
        ("true && { : > menu.txt; }", "soup\n"),
        ("echo tea >> menu.txt", "soup\ntea\n"),
        ("echo tea >| menu.txt", "tea\n"),
        (
            "echo lost > /dev/null 2>&1; echo tea > other.txt; mv other.txt menu.txt",
            "tea\n",
        ),
    ],
)
def test_only_an_explicit_redirection_overwrites_an_existing_file(
    command: str, menu: str, tmp_path: Path
) -> None:
    (tmp_path / "menu.txt").write_text("soup\n")

    async def run() -> Reply:
        return await without_overwriting(bash).run(
            command,
            files=DiskFiles(tmp_path),
            commands=ShellCommands({}),
            confines=Confinement(writes=True),
            directory=tmp_path,
            progress=lambda text: None,
            background=BackgroundInMemory(),
            call="call-1",
        )

    reply = anyio.run(run)

    assert (tmp_path / "menu.txt").read_text() == menu
    assert ("cannot overwrite" in reply.text) == (menu == "soup\n")


def test_without_overwriting_leaves_tools_other_than_bash_unchanged() -> None:
    assert without_overwriting(read_file) is read_file
