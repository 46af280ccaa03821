"""Files, commands and snapshots over a pipe do what they do on this machine, and survive cuts."""

import os
import random
import signal
import sys
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path

import anyio
import pytest

from refold.errors import ConnectionLost, ToolFailed
from refold.place.port import CommandExtras
from refold.values.kept_output import Printed
from tests.place.places import (
    SHELL_ARGV,
    WRITING_CONFINEMENT,
    Place,
    installed,
    old_python,
    open_place,
)

pytestmark = pytest.mark.slow  # each connection sends the program


@pytest.fixture
def local(tmp_path: Path) -> Generator[Place]:
    with open_place(SHELL_ARGV, tmp_path) as place:
        yield place


@pytest.mark.parametrize("kind", ["command", "ssh", "installed", "old-python"])
def test_files_commands_and_snapshots_work_in_each_kind_of_workspace_elsewhere(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    argv, name = SHELL_ARGV, os.fsdecode(b"b\xe4r.txt")  # not UTF-8
    if kind == "ssh":
        argv = request.getfixturevalue("sshd")
    elif kind == "installed":
        argv = installed()
    elif kind == "old-python":
        argv = old_python(tmp_path / "bin")

    async def change_and_restore(place: Place) -> int:
        before = await place.snapshots.take()
        finished = await place.commands.run(
            "rm a.txt; echo out; echo err >&2; exit 3",
            cwd=str(place.directory), seconds=30, confines=WRITING_CONFINEMENT,
        )  # fmt: skip
        assert (finished.code, finished.start) == (3, b"out\nerr\n")
        assert not (place.directory / "a.txt").exists()
        place.snapshots.note_change()
        after = await place.snapshots.take()
        return await place.snapshots.restore(after.trees, before.trees)

    with open_place(argv, tmp_path) as place:
        files = place.files
        (place.directory / "a.txt").write_text("old\n")

        files.write(files.real("a.txt"), b"new\n", expect=sha256(b"old\n").hexdigest())
        files.write(files.real(f"sub/{name}"), b"b", expect="")

        assert files.read(files.real("a.txt")) == b"new\n"
        assert (place.directory / "sub" / name).read_text() == "b"
        assert [item.name for item in files.items(files.real("."))] == ["a.txt", "sub"]
        paths = files.tree.walk(files.real("."), lambda: None).paths
        assert paths == ["a.txt", f"sub/{name}"]
        assert anyio.run(change_and_restore, place) == 1
        assert files.read(files.real("a.txt")) == b"new\n"


def test_elsewhere_a_link_that_changed_after_the_decision_is_not_followed(
    local: Place,
) -> None:
    (local.directory / "a.txt").write_text("allowed")
    (local.directory / "link").symlink_to("a.txt")
    real = local.files.real("link")
    (local.directory / "a.txt").unlink()
    (local.directory / "a.txt").symlink_to("/etc/passwd")

    with pytest.raises(ToolFailed):
        local.files.only([real]).read(real)


def test_long_output_elsewhere_keeps_its_end_and_is_counted_completely(
    local: Place,
) -> None:
    finished = local.run("head -c 40000000 /dev/zero | tr '\\0' x; echo end")

    assert finished.total_bytes == 40_000_004
    assert finished.end.endswith(b"xend\n")


def test_keys_of_this_machine_are_not_in_the_environment_elsewhere(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret-of-this-machine")

    finished = local.run("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; env")

    assert b"sk-secret-of-this-machine" not in finished.start


@pytest.mark.parametrize("seed", range(2))
def test_a_connection_lost_during_a_command_elsewhere_is_reported_and_made_again(
    tmp_path: Path, seed: int
) -> None:
    """The program in the place is killed; what it began is not done twice."""
    chance, number = random.Random(seed), tmp_path / "pid"
    argv = ("/bin/sh", "-c", f"echo $$ > {number}; exec sh")
    printed = Printed()

    async def use_place(place: Place, marks: Path) -> None:
        async with anyio.create_task_group() as group:

            async def cut() -> None:
                with anyio.fail_after(60):
                    while not printed.start:
                        await anyio.sleep(0.01)
                await anyio.sleep(chance.random() / 20)
                os.kill(int(number.read_text()), signal.SIGKILL)

            group.start_soon(cut)
            with pytest.raises(ConnectionLost, match="may or may not"):
                await place.commands.run(
                    f"echo began >> {marks}; echo began; sleep 60; echo ended >> {marks}",
                    cwd=str(place.directory), seconds=None, confines=WRITING_CONFINEMENT,
                    extras=CommandExtras(printed=printed),
                )  # fmt: skip

    with open_place(argv, tmp_path) as place:
        marks = place.directory / "marks"
        place.run("true")
        anyio.run(use_place, place, marks)

        assert place.run("echo again").start == b"again\n"
        assert marks.read_text() == "began\n"
        assert place.pipe.connections == 2


def test_elsewhere_a_command_of_a_lower_epoch_is_refused_after_a_higher_one(
    local: Place, tmp_path: Path
) -> None:
    old, new = local, Place(SHELL_ARGV, local.directory, tmp_path / "data")
    old.pipe.claim("session", lambda: 4)
    new.pipe.claim("session", lambda: 5)
    assert old.run("echo 4").start == b"4\n"
    assert new.run("echo 5").start == b"5\n"

    with pytest.raises(ToolFailed):
        old.run("echo late > late")
    with pytest.raises(ToolFailed, match="higher epoch"):
        old.run("echo late > late")

    assert not (old.directory / "late").exists()
    new.pipe.close()


def test_a_missing_python_elsewhere_is_an_error_that_offers_an_image(
    tmp_path: Path,
) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    (empty / "sh").symlink_to("/bin/sh")
    place = Place(("/usr/bin/env", f"PATH={empty}", "sh"), tmp_path, tmp_path / "data")

    with pytest.raises(ToolFailed, match=r"has no Python.*python:3-slim"):
        place.files.real("a")


def test_an_incomplete_python_elsewhere_is_an_error_with_the_missing_package(
    tmp_path: Path,
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c "
        '"import sys; sys.modules[\'shutil\'] = None; exec(sys.argv[1])" "$4"\n'
    )
    (programs / "python3").chmod(0o755)
    argv = "/usr/bin/env", f"PATH={programs}:/usr/bin:/bin", "sh"

    with (
        open_place(argv, tmp_path) as place,
        pytest.raises(ToolFailed, match=r"no module shutil.*install the package python3"),
    ):
        _ = place.pipe.greeting


def test_a_python3_that_is_a_script_starts_no_program_of_the_workspace(
    tmp_path: Path,
) -> None:
    programs, shims = tmp_path / "work/bin", tmp_path / "shims"
    shims.mkdir()
    # As the scripts of pyenv, it finds bash by its name.
    (shims / "python3").write_text(f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    (shims / "python3").chmod(0o755)
    (tmp_path / "link").symlink_to(programs)
    path = f"{tmp_path}/link:bin:{programs}:{shims}:/usr/bin:/bin"

    with open_place(("/usr/bin/env", f"PATH={path}", "/bin/sh"), tmp_path) as place:
        programs.mkdir()
        for name in ("bash", "readlink"):
            (programs / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
            (programs / name).chmod(0o755)

        assert place.pipe.greeting

        (programs / "bash").unlink()
        assert f":{programs}:{shims}:".encode() in place.run("echo $PATH").start

    assert not (tmp_path / "started").exists()


def test_an_old_python_elsewhere_is_an_error_with_the_required_version(
    tmp_path: Path,
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(
        "#!/bin/sh\n"
        'exec python3.11 -c \'import sys; sys.version_info = (3, 6); sys.version = "3.6.15 x"; '
        'exec(sys.argv[1])\' "$4"\n'
    )
    (programs / "python3").chmod(0o755)
    argv = "/usr/bin/env", f"PATH={programs}:{os.environ['PATH']}", "sh"
    (tmp_path / "work").mkdir()
    place = Place(argv, tmp_path / "work", tmp_path / "data")

    with pytest.raises(
        ToolFailed, match=r"its python3 is Python 3\.6\.15, and refold needs 3\.8"
    ):
        place.files.real("a")


@pytest.mark.parametrize(
    "greeting", ["refold-place-is-installed\\n\\377\\377\\377\\377\\377", "hello"]
)
def test_a_workspace_elsewhere_with_an_invalid_greeting_cannot_be_reached(
    tmp_path: Path, greeting: str
) -> None:
    place = Place(("/bin/sh", "-c", f"printf '{greeting}'"), tmp_path, tmp_path / "data")

    with pytest.raises(ToolFailed, match="cannot be reached"):
        place.files.real("a")
