"""Options of one command: an input, limits, more visible directories."""

import socket
from pathlib import Path

import anyio
import pytest

from refold.place.limits import Limits
from refold.place.port import CommandExtras, Finished
from tests.place.walled import Walled, needs_bubblewrap, walled

pytestmark = pytest.mark.usefixtures("port")


def run(place: Walled, command: str, extras: CommandExtras) -> Finished:
    async def main() -> Finished:
        return await place.commands.run(
            command, cwd=str(place.root), seconds=20, extras=extras
        )

    return anyio.run(main)


@pytest.mark.parametrize("profile", ["workspace", "off"])
def test_a_command_reads_and_writes_a_socket_given_as_its_input(
    tmp_path: Path, profile: str
) -> None:
    if profile == "workspace":
        needs_bubblewrap()
    ours, theirs = socket.socketpair()
    with walled(tmp_path / "ws", profile=profile) as place, ours, theirs:
        ours.sendall(b"question\n")

        result = run(
            place,
            "read line; echo got $line; echo answer >&0",
            CommandExtras(theirs.fileno()),
        )

        assert result.text == "got question\n"
        assert ours.recv(100) == b"answer\n"


def test_a_command_without_a_given_input_reads_empty_input(tmp_path: Path) -> None:
    with walled(tmp_path / "ws", profile="off") as place:
        assert run(place, "cat; echo end", CommandExtras()).text == "end\n"


def test_limits_of_a_command_replace_the_limits_of_all_commands(tmp_path: Path) -> None:
    with walled(tmp_path / "ws", profile="off", limits=Limits(processes=500)) as place:
        forks = "for n in 1 2 3 4 5 6 7 8; do sleep 20 & done; wait"

        result = run(place, forks, CommandExtras(limits=Limits(processes=4)))

        assert result.stopped == "it ran more than 4 processes at a time"


def test_a_command_sees_only_the_hidden_directory_that_it_needs(tmp_path: Path) -> None:
    needs_bubblewrap()
    for name in ("needed", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    look = f"cat {tmp_path}/needed/a {tmp_path}/other/a"
    with walled(tmp_path / "ws") as place:
        text = run(place, look, CommandExtras(seen=(str(tmp_path / "needed"),))).text
        unseen = run(place, look, CommandExtras()).text

    assert text.startswith("needed")
    assert text.count("No such file") == 1
    assert unseen.count("No such file") == 2
