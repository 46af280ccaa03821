"""Opens places at the end of a pipe, on this machine: behind a shell, or over SSH.

A test opens a place with `open_place`. A test that needs a missing program is skipped with a reason.
"""

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.place.elsewhere.address import PlaceAddress
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_commands import PlaceCommands
from refold.place.elsewhere.place_files import PlaceFiles
from refold.place.elsewhere.place_snapshots import PlaceSnapshots
from refold.place.limits import Limits
from refold.place.port import CommandExtras, Finished
from refold.values.kept_output import Printed
from refold.values.tools import Confinement

WRITING_CONFINEMENT = Confinement(writes=True)
SHELL_ARGV = ("sh",)
_SSHD = "/usr/sbin/sshd"
CONFINED_SETTINGS = {"profile": "workspace", "network": False, "user_namespaces": False}
# Where pyenv and uv put the versions of Python.
_PYTHON_FOLDERS = (".pyenv/versions/*/bin", ".local/share/uv/python/*/bin")
_OLD_PYTHONS = ("python3.8", "python3.9", "python3.10")


class Place:
    """A place in a directory of this machine, at the other end of a pipe."""

    def __init__(
        self,
        argv: tuple[str, ...],
        directory: Path,
        data: Path,
        sandbox: Mapping[str, Any] = CONFINED_SETTINGS,
        limits: Limits | None = None,
    ) -> None:
        self.directory = directory
        address = PlaceAddress("cmd:test", "cmd", argv, str(directory))
        environ = {
            **os.environ, "XDG_DATA_HOME": str(data), "LC_TEST_HOME": os.environ["HOME"]
        }  # fmt: skip
        limits = limits or Limits()
        numbers = {"processes": limits.processes, "memory": limits.memory}
        self.pipe = Pipe(address, PlaceSettings(sandbox, numbers), environ)
        self.files = PlaceFiles(
            self.pipe, os.path.realpath(directory), resolved_seconds=0.0
        )
        self.commands = PlaceCommands(self.pipe, limits, self.files.forget)
        self.snapshots = PlaceSnapshots(self.pipe, self.files.forget)

    def run(
        self, command: str, seconds: float | None = 30, printed: Printed | None = None
    ) -> Finished:
        async def main() -> Finished:
            return await self.commands.run(
                command,
                cwd=str(self.directory),
                seconds=seconds,
                confines=WRITING_CONFINEMENT,
                extras=CommandExtras(printed=printed),
            )

        return anyio.run(main)


@contextmanager
def open_place(argv: tuple[str, ...], tmp_path: Path) -> Generator[Place]:
    directory = tmp_path / "work"
    directory.mkdir()
    place = Place(argv, directory, tmp_path / "data")
    try:
        yield place
    finally:
        place.pipe.close()


def installed() -> tuple[str, ...]:
    """Return the command that reaches a place in which refold is installed."""
    program = f"exec {shlex.quote(sys.executable)} -m refold place --stdio"
    return "/bin/sh", "-c", program


def old_python(folder: Path) -> tuple[str, ...]:
    """Return the command of a shell whose `python3` is the oldest supported one that is here."""
    home = pwd.getpwuid(os.getuid()).pw_dir  # HOME is that of the test
    for name in _OLD_PYTHONS:
        patterns = (f"{home}/{places}/{name}" for places in _PYTHON_FOLDERS)
        programs = (shutil.which(name), *(path for one in patterns for path in glob(one)))
        for program in filter(None, programs):
            # pyenv has programs for versions that are not installed, too; they fail.
            if subprocess.run(
                [program, "-c", ""], capture_output=True, check=False
            ).returncode:
                continue
            folder.mkdir(exist_ok=True)
            (folder / "python3").symlink_to(os.path.realpath(program))
            return "/usr/bin/env", f"PATH={folder}:/usr/bin:/bin", "sh"
    pytest.skip(
        f"there is no {', '.join(_OLD_PYTHONS)}, neither on PATH nor of pyenv or uv (optional)"
    )


def has_sshd() -> bool:
    return os.path.exists(_SSHD) and shutil.which("ssh-keygen") is not None


@contextmanager
def run_sshd(folder: Path) -> Generator[tuple[str, ...]]:
    """Run an SSH server on loopback. Yield the command that reaches a shell there.

    All commands share one connection, so keys are exchanged once, and not for each test.
    """
    if not has_sshd():
        pytest.skip("openssh-server is not installed")
    for key in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True
        )
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nAcceptEnv *\nMaxSessions 100\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    server = subprocess.Popen(
        [_SSHD, "-D", "-e", "-f", folder / "config"], stderr=subprocess.PIPE
    )
    assert server.stderr is not None
    while b"listening" not in (line := server.stderr.readline()):
        if not line:
            pytest.skip("sshd does not run here")
    options = (
        "-F", "none", "-i", f"{folder}/user", "-p", str(port),
        "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new",
        "-o", f"UserKnownHostsFile={folder}/known", "-o", "LogLevel=ERROR",
        "-o", f"ControlPath={folder}/shared", "-o", "SendEnv=XDG_* LC_*",
    )  # fmt: skip
    # The shared connection prints a line when it is ready, and ends with its input.
    shared = subprocess.Popen(
        ["ssh", "-T", "-M", *options, "127.0.0.1", "echo ready; exec cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert shared.stdin is not None
    assert shared.stdout is not None
    try:
        if shared.stdout.readline() != b"ready\n":
            pytest.skip("ssh does not connect to sshd here")
        yield ("ssh", "-T", *options, "127.0.0.1", 'HOME="$LC_TEST_HOME" exec sh')
    finally:
        shared.stdin.close()
        shared.wait()
        shared.stdout.close()
        server.terminate()
        server.wait()
        server.stderr.close()
