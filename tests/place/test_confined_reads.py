"""What a read-only command, which runs without asking, can read."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.place.port import Finished
from refold.values.tools import Confinement
from tests.place.repositories import git
from tests.place.walled import Walled, home_on_disk, needs_bubblewrap, walled


@pytest.fixture
def home_place(tmp_path: Path) -> Iterator[Walled]:
    """Yield a home with a workspace in it, not below /tmp, which no command sees anyway."""
    needs_bubblewrap()
    with home_on_disk() as home:
        (home / "other").mkdir()
        (home / "other/.env").write_text("S3CRET")
        (home / "notes").write_text("S3CRET")
        with walled(home / "ws", {**os.environ, "HOME": str(home)}) as place:
            yield place


def run_reading(place: Walled, command: str, *paths: Path) -> Finished:
    async def main() -> Finished:
        return await place.commands.run(
            command, cwd=str(place.root), seconds=30, confines=Confinement(seen=tuple(map(str, paths)))
        )  # fmt: skip

    return anyio.run(main)


@pytest.mark.parametrize(
    "command",
    [
        "cat ../notes", "cat {home}/other/.env", "cat link", "cat *", "grep -r S3 .. .",
        "python3 -c 'print(open(\"{home}/notes\").read())'", "cat /proc/self/root{home}/notes",
        "cat /proc/1/root{home}/notes", "head -c 99 < link", "cd dir && cat *", "diff -N dir .",
    ],
)  # fmt: skip
def test_a_read_only_command_reads_no_file_of_the_home_by_name_or_link(
    home_place: Walled, command: str
) -> None:
    home = home_place.root.parent
    (home_place.root / "link").symlink_to(home / "notes")
    (home_place.root / "dir").symlink_to(home / "other")

    assert "S3CRET" not in run_reading(home_place, command.format(home=home)).text


@pytest.mark.skipif(os.geteuid() != 0, reason="others cannot read it anyway")
def test_a_read_only_command_cannot_read_etc_shadow(home_place: Walled) -> None:
    assert run_reading(home_place, "cat /etc/shadow").text == ""
    assert "root" in run_reading(home_place, "cat /etc/passwd").text


def test_a_read_only_command_reads_a_file_that_a_rule_allows(home_place: Walled) -> None:
    notes = home_place.root.parent / "notes"

    assert run_reading(home_place, f"cat {notes}", notes).text == "S3CRET"


def test_a_read_only_command_reads_the_workspace_and_runs_ordinary_programs(
    home_place: Walled,
) -> None:
    (home_place.root / "a.py").write_text("print(6 * 7)")
    git(home_place.root, "init", "-q")

    result = run_reading(
        home_place, "python3 a.py; git status --short; ls /usr/bin/env; sort a.py | wc -l"
    )

    assert result.text == "42\n?? a.py\n/usr/bin/env\n1\n"


def test_a_read_only_command_reaches_no_socket_of_another_program(
    home_place: Walled,
) -> None:
    """The sockets are a plain one, one that was renamed after it was bound, and one behind
    a link.
    """
    home = home_place.root.parent
    ask = "import socket,sys\nfor p in sys.argv[1:]:\n"
    ask += "  try: socket.socket(socket.AF_UNIX).connect(p); print('reached', p)\n"
    ask += "  except OSError: pass\n"
    (home_place.root / "ask.py").write_text(ask)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "plain"))
        server.listen()
        os.link(home / "plain", home / "linked")
        os.rename(home / "plain", home / "renamed")

        result = run_reading(
            home_place, f"python3 ask.py {home}/linked {home}/renamed {home}/plain"
        )

    assert result.text == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.fsmonitor", "touch {ran}; echo RAN >&2; false"),
        ("core.pager", "echo RAN"),
        ("core.hooksPath", "hooks"),
    ],
)
def test_read_only_git_runs_no_program_that_the_repository_names(
    home_place: Walled, key: str, value: str
) -> None:
    root = home_place.root
    git(root, "init", "-q")
    (root / "f").write_text("one\n")
    git(root, "add", "f")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "m")
    (root / "f").write_text("two\n")
    (root / "hooks").mkdir()
    (root / "hooks/post-index-change").write_text("#!/bin/sh\necho RAN >&2\n")
    (root / "hooks/post-index-change").chmod(0o755)
    git(root, "config", key, value.format(ran=root / "ran"))

    result = run_reading(home_place, "git status; git diff; git log; git show")

    assert "RAN" not in result.text
    assert "+two" in result.text
    subprocess.run(["git", "-C", str(root), "status"], check=False, capture_output=True)


@pytest.mark.parametrize(
    "settings",
    [
        '[filter "x"]\n\tclean = "echo RAN >&2; cat"\n\tsmudge = cat\n\trequired = true\n',
        '[diff "x"]\n\ttextconv = "echo RAN >&2; cat"\n',
        '[diff "x"]\n\tcommand = "echo RAN >&2; true"\n',
        '[diff]\n\texternal = "echo RAN >&2; true"\n',
        "[include]\n\tpath = ../more\n",
        '[includeIf "gitdir:**"]\n\tpath = ../more\n',
        '[core]\n\tbare = false\n[DIFF "x"] textconv = "echo RAN >&2; cat"\n',
    ],
)
def test_read_only_git_ignores_settings_that_name_a_program(
    home_place: Walled, settings: str
) -> None:
    root = home_place.root
    git(root, "init", "-q")
    (root / "f").write_text("one\n")
    (root / ".gitattributes").write_text("f filter=x diff=x\n")
    git(root, "add", "f")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "m")
    (root / "more").write_text('[diff "x"]\n\ttextconv = "echo RAN >&2; cat"\n')
    with (root / ".git/config").open("a") as config:
        config.write(settings)
    (root / "f").write_text("two\n")
    person = (
        ("git", "diff") if "filter" not in settings else ("git", "add", "--dry-run", "f")
    )
    outside = subprocess.run(person, cwd=root, check=False, capture_output=True, text=True)

    result = run_reading(home_place, "git status --short; git diff; git show")

    assert "RAN" in outside.stderr + outside.stdout  # it does run for a person
    assert "RAN" not in result.text
    assert "+two" in result.text
    assert " M f" in result.text


def test_read_only_git_works_in_a_repository_that_tracks_a_file_with_keys(
    home_place: Walled,
) -> None:
    root = home_place.root
    git(root, "init", "-q")
    for name in (".env", "f"):
        (root / name).write_text("one\n")
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "m")
    (root / ".env").write_text("S3CRET\n")
    (root / "f").write_text("two\n")

    result = run_reading(
        home_place, "git diff --stat && git status -s && git diff && cat .env"
    )

    assert (result.code, "S3CRET" in result.text) == (0, False)
    assert "+two" in result.text
    assert "Commands that run without asking do not see this file" in result.text
