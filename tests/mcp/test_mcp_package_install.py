"""What the installer of MCP packages passes to npm and uv, and why it says that one failed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.errors import BadInput
from refold.mcp.package_install import Installer
from refold.mcp.packages import Installation, launch_of
from refold.mcp.server_home import ServerHome
from refold.place.port import Commands, Finished
from refold.testing.places import ScriptedCommands
from refold.values.display import HostAttempt

GYP = """npm error code 1
npm error path /x/node_modules/a/node_modules/node-pty
npm error command failed
npm error command sh -c node scripts/prebuild.js || node-gyp rebuild
npm error \x1b[32m> Checking prebuilds...
npm error gyp info it worked if it ends with ok
npm error gyp ERR! configure error
npm error gyp ERR! stack Error: Could not find any Python
npm error gyp ERR! stack installation to use
npm error gyp ERR! stack at go (/usr/lib/install.js:244:21)
npm error gyp ERR! not ok
"""
LINES = ("npx -y server", "uvx server")


class Installing(ScriptedCommands):
    """npm and uv; one installs what `act` puts into the directory."""

    def __init__(self, act: Callable[[Path], Finished]) -> None:
        super().__init__({}, ("npm", "uv"))
        self._act = act

    async def run(self, command: str, *, cwd: str, **rest: Any) -> Finished:
        return self._act(Path(cwd))

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> Commands:
        return self


def install(tmp_path: Path, line: str, act: Callable[[Path], Finished]) -> Installation:
    installing = Installing(act)

    def commands(_: Sequence[str]) -> Commands:
        return installing

    home = ServerHome(tmp_path / "server")
    installer = Installer(home, commands, {}, str(tmp_path / "user"))
    launch = launch_of(tuple(line.split()))
    assert launch
    return anyio.run(installer.install, launch)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def with_programs(*names: str) -> Callable[[Path], Finished]:
    """Install the package `server`, which has these programs."""

    def act(directory: Path) -> Finished:
        write(directory / "package.json", '{"dependencies": {"server": "1"}}')
        modules = directory / "node_modules" / "server"
        programs = ", ".join(f'"{name}": "{name}.js"' for name in names)
        write(modules / "package.json", f'{{"version": "1", "bin": {{{programs}}}}}')
        packages = directory / "venv" / "lib" / "python3.11" / "site-packages"
        entries = "\n".join(f"{name} = server:main" for name in names)
        write(
            packages / "server-1.dist-info" / "entry_points.txt",
            f"[console_scripts]\n{entries}",
        )
        write(
            packages / "other-1.dist-info" / "entry_points.txt",
            "[console_scripts]\nother = x:y",
        )
        for name in names:
            write(modules / f"{name}.js", "")
            write(directory / "venv" / "bin" / name, "")
        return Finished(0, b"")

    return act


@pytest.mark.parametrize("line", LINES)
def test_an_installed_package_runs_its_program(tmp_path: Path, line: str) -> None:
    command = " ".join(install(tmp_path, line, with_programs("server", "more")).command)

    assert command.startswith(str(tmp_path / "server")) or command.startswith("node ")
    assert command.endswith(("/venv/bin/server", "/node_modules/server/server.js"))


def test_hosts_that_an_installation_reached_stand_in_its_record(tmp_path: Path) -> None:
    attempts = (
        HostAttempt("registry.npmjs.org", 443),
        HostAttempt("files.example", 443, refused="no rule names it", kind="unnamed"),
        HostAttempt("github.com", 443),
    )
    runs = [
        Finished(1, b"", attempts=attempts[:2]),
        Finished(0, b"", attempts=attempts[2:]),
    ]

    def act(directory: Path) -> Finished:
        with_programs("server")(directory)
        return runs.pop(0)

    installed = install(tmp_path, LINES[0], act)

    assert installed.refused == "files.example"
    assert installed.sentence == (
        "server 1 is installed; the installation reached github.com, registry.npmjs.org"
    )


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (LINES[0], "npx -y --package server one"),
        (LINES[1], "uvx --from server one"),
    ],
)
def test_a_package_with_several_programs_lists_them_and_how_to_choose_one(
    tmp_path: Path, line: str, advice: str
) -> None:
    with pytest.raises(BadInput) as error:
        install(tmp_path, line, with_programs("two", "one"))

    assert f"it has 'one', 'two'; name one, as in {advice}" in str(error.value)


def test_a_failed_install_script_is_named_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        install(tmp_path, LINES[0], lambda _: Finished(1, GYP.encode()))

    script = "the install script of node-pty failed: Error: Could not find any Python"
    assert str(error.value).endswith(f"{script} installation to use")


def test_npm_gets_limits_and_headers_from_the_npmrc_of_the_user_but_no_key(
    tmp_path: Path,
) -> None:
    lines = (
        "ignore-scripts=true",
        "min-release-age = 7",
        "nodedir=/usr",
        "@x:registry=https://x",
    )
    write(
        tmp_path / "user" / ".npmrc",
        "\n".join((*lines, "//x/:_authToken=k", "script-shell=/x")),
    )
    read = list[str]()

    def act(directory: Path) -> Finished:
        read.extend((directory / ".npmrc").read_text().splitlines())
        return with_programs("server")(directory)

    install(tmp_path, LINES[0], act)

    assert read == list(lines)
