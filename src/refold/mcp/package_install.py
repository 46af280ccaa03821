"""Installs the packages of an MCP server into its directory, with npm, bun, uv or pip.

The installer runs in the sandbox: it writes into that directory alone, and reaches the registries
and what the configuration of the user's package manager names. `packages` says what to install.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
from msgspec import Struct

from refold.errors import BadInput, ToolFailed, reason_of
from refold.mcp.packages import (
    Installation,
    Kind,
    PackageLaunch,
    installation,
    read_record,
)
from refold.mcp.server_home import ServerHome
from refold.place.port import CommandExtras, Commands, Finished
from refold.place.private_files import file_lock, make_directories, write
from refold.safe_open import read_regular
from refold.values.hosts import HOST_PRESETS, ReachableHosts, list_reached, rule_for
from refold.values.modes import PRIVATE_PREFIX
from refold.values.path_names import below
from refold.values.similar_names import normalize_distribution
from refold.values.text import escape_marks
from refold.values.tools import Confinement

INSTALL_SECONDS = 900.0
_HOSTS_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    # Some packages download a built program from a release, or headers to build one.
    "node": (*HOST_PRESETS["npm"], *HOST_PRESETS["github"], "nodejs.org"),
    "python": (*HOST_PRESETS["pypi"], *HOST_PRESETS["github"]),
}
_REGISTRY_VARIABLES = (
    "NPM_CONFIG_REGISTRY npm_config_registry PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_DEFAULT_INDEX "
    "UV_INDEX_URL UV_INDEX UV_EXTRA_INDEX_URL"
)
# Registries, what the user forbids to install, and headers to build with; never a key.
_HARMLESS_NPMRC = re.compile(
    r"\s*((@[^:=\s]+:)?registry|cafile|ca|strict-ssl|ignore-scripts|before|min-release-age"
    r"|legacy-peer-deps|nodedir)\s*="
)
_URL_PATTERN = re.compile(
    r"https?://(?:[^/\s@\"']*@)?([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?"
)
# Files newer than the installation that the new one lacks. They have to be newer than the
# new one, too: by that, the next update and `remove` tell them from its code.
_CARRY_OVER = """
find . -name node_modules -prune -o -type f -newermt @{seconds} -exec sh -c '
for file; do
  [ -e "$0/$file" ] || {{
    mkdir -p "$(dirname "$0/$file")" && cp -p "$file" "$0/$file" && touch -d @{later} "$0/$file"
  }}
done' {new} {{}} +
"""
_SCRIPT_ERROR = re.compile(r"(?!gyp ERR! configure|command ).*\berr(or)?\b", re.IGNORECASE)
_GYP_PREFIX = re.compile(r"gyp ERR! (stack )?")
_MAX_CONFIG_BYTES = 256 * 1024
_MAX_REASON_CHARS = 400


class Installer(Struct, frozen=True):
    """Installs packages. `hosts` are patterns of more hosts it may reach; None: all.

    `commands` makes commands that write in these directories alone. Everything that touches
    a package's files runs in their sandbox: a link there could lead anywhere.
    """

    home: ServerHome
    commands: Callable[[Sequence[str]], Commands]
    environ: Mapping[str, str]
    user_home: str
    hosts: tuple[str, ...] | None = ()

    async def install(self, launch: PackageLaunch) -> Installation:
        """Install beside the present one, and record nothing. Raises `BadInput`."""
        try:
            self.home.create()
            directory = self._new_directory()
            try:
                finished, refused = await self._run(launch, directory), ""
                attempts = finished.attempts
                if launch.kind == "node" and finished.code != 0:
                    # Packages download browsers and the like in scripts, which few servers
                    # need.
                    refused = next((a.host for a in finished.attempts if a.refused), "")
                if refused:
                    plain = await self._run(launch, directory, scripts=False)
                    attempts = (*attempts, *plain.attempts)
                    finished, refused = (
                        (plain, refused) if plain.code == 0 else (finished, "")
                    )
                if finished.code != 0:
                    raise BadInput(_install_error(launch, finished))
                result = await anyio.to_thread.run_sync(_examine, launch, directory)
                return msgspec.structs.replace(
                    result, refused=refused, reached=list_reached(attempts)
                )
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            finally:
                shutil.rmtree(directory / "cache", ignore_errors=True)
        except (OSError, ToolFailed) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            raise BadInput(f"{launch.names} cannot be installed: {why}") from error

    async def find_or_install(
        self, launch: PackageLaunch, begin: Callable[[], None]
    ) -> Installation:
        """Return the installation for this launch. `begin` is called before one is made.

        Another refold process may have made it. Raises `BadInput`.
        """
        lock = file_lock(self.home.record)
        try:
            # Another refold process may take minutes to install the same.
            await anyio.to_thread.run_sync(lock.__enter__, abandon_on_cancel=True)
        except OSError as error:
            raise BadInput(
                f"{launch.names} cannot be installed: {reason_of(error)}"
            ) from error
        try:
            if current := installation(self.home, launch):
                return current
            begin()
            new = await self.install(launch)
            await self.use_installation(new)
            return new
        finally:
            lock.__exit__(None, None, None)

    async def use_installation(self, new: Installation) -> None:
        """Make the server run this installation from now on. Raises `BadInput`."""
        before = read_record(self.home)
        if before is not None and before.name == new.name and new.kind == "node":
            await self._carry_over(before, new)
        try:
            write(self.home.record, msgspec.json.encode(new).decode())
        except OSError as error:
            raise BadInput(
                f"what was installed cannot be noted in {self.home.record}: {reason_of(error)}"
            ) from error
        # A session may still run the old one.
        current = {new.directory, before.directory if before else ""}
        for directory in self.home.packages.iterdir():
            if str(directory) not in current:
                shutil.rmtree(directory, ignore_errors=True)

    def delete_installation(self, old: Installation) -> None:
        """Delete an installation that was not wanted."""
        shutil.rmtree(old.directory, ignore_errors=True)

    def _new_directory(self) -> Path:
        directory = self.home.packages / f"{time.time_ns()}"
        make_directories(directory)
        return directory

    async def _run(
        self, launch: PackageLaunch, directory: Path, *, scripts: bool = True
    ) -> Finished:
        if launch.kind == "node":
            line, variables = self._node_line(launch, directory)
            variables |= {} if scripts else {"npm_config_ignore_scripts": "true"}
        else:
            line, variables = self._python_line(launch, directory)
        hosts = None
        if self.hosts is not None:
            registries = (*_HOSTS_OF_KIND[launch.kind], *self._own_registries())
            hosts = ReachableHosts((*registries, *self.hosts))
        variables |= {"HOME": str(directory / "cache")}
        os.makedirs(directory / "cache", exist_ok=True)
        commands = self.commands((str(directory),))
        try:
            return await commands.run(
                line,
                cwd=str(directory),
                seconds=INSTALL_SECONDS,
                confines=Confinement(writes=True, network=True, hosts=hosts),
                extras=CommandExtras(environ=variables),
            )
        finally:
            commands.close()

    async def _carry_over(self, old: Installation, installation: Installation) -> None:
        """Copy the state that a Node.js server wrote beside its code."""
        commands = self.commands((old.directory, installation.directory))
        seconds, new = int(old.installed) + 1, shlex.quote(installation.own)
        try:
            await commands.run(
                _CARRY_OVER.format(
                    seconds=seconds, new=new, later=int(installation.installed) + 3
                ),
                cwd=old.own,
                seconds=INSTALL_SECONDS,
                confines=Confinement(writes=True),
            )
        except ToolFailed:
            pass  # the old directory is gone
        finally:
            commands.close()

    def _node_line(
        self, launch: PackageLaunch, directory: Path
    ) -> tuple[str, dict[str, str]]:
        packages = shlex.join(launch.packages)
        (directory / "package.json").write_text('{"private": true}\n')
        config = directory / ".npmrc"
        config.write_text("".join(self._harmless_npmrc()))
        if self._has_program("npm"):
            line = (
                "npm install --no-fund --no-audit --no-update-notifier --loglevel=error "
                f"--prefix . -- {packages}"
            )
        elif self._has_program("bun"):
            line = f"bun add {packages}"
        else:
            raise BadInput(
                f"{packages} needs Node.js with npm, which is not installed: install it "
                "(https://nodejs.org)"
            )
        cache = str(directory / "cache")
        return line, {
            "npm_config_cache": cache,
            "npm_config_userconfig": str(config),
            "BUN_INSTALL_CACHE_DIR": cache,
        }

    def _python_line(
        self, launch: PackageLaunch, directory: Path
    ) -> tuple[str, dict[str, str]]:
        packages = shlex.join(launch.packages)
        wanted = shlex.quote(launch.python)
        if self._has_program("uv"):
            python = f" --python {wanted}" if launch.python else ""
            line = (
                f"uv venv --quiet{python} venv && uv pip install --quiet --compile-bytecode "
                f"--python venv/bin/python -- {packages}"
            )
        else:
            python = wanted if launch.python else "python3"
            python = f"python{python}" if python[0].isdigit() else python
            if not self._has_program(python):
                raise BadInput(
                    f"{packages} needs uv, or {python}: install uv "
                    "(https://docs.astral.sh/uv)"
                )
            line = (
                f"{python} -m venv venv && venv/bin/python -m pip install --quiet --no-input "
                f"--disable-pip-version-check --no-cache-dir -- {packages}"
            )
        variables = {
            "UV_CACHE_DIR": str(directory / "cache" / "uv"),
            "UV_PYTHON_INSTALL_DIR": str(directory / "python"),
        }
        for name, path in _USER_VARIABLES:
            place = os.path.join(self.user_home, path)
            if name not in self.environ and os.path.exists(place):
                variables[name] = place
        return line, variables

    def _has_program(self, program: str) -> bool:
        return self.commands(()).has(program)

    def _harmless_npmrc(self) -> Iterator[str]:
        """Yield the lines of the user's .npmrc that an installation needs, and no key."""
        for line in _read_text(os.path.join(self.user_home, ".npmrc")).splitlines():
            if _HARMLESS_NPMRC.match(line):
                yield f"{line}\n"

    def _own_registries(self) -> Iterator[str]:
        """Yield hosts of the user's own configuration, which may be private."""
        texts = [self.environ.get(name, "") for name in _REGISTRY_VARIABLES.split()]
        texts += self._harmless_npmrc()
        texts += [
            _read_text(os.path.join(self.user_home, file))
            for file in (_PIP_CONFIG, _UV_CONFIG)
        ]
        for text in texts:
            for host, port in _URL_PATTERN.findall(text):
                yield f"{PRIVATE_PREFIX}{host.lower()}{port}"


_PIP_CONFIG, _UV_CONFIG = ".config/pip/pip.conf", ".config/uv/uv.toml"
_USER_VARIABLES = (
    ("PYENV_ROOT", ".pyenv"),
    ("PIP_CONFIG_FILE", _PIP_CONFIG),
    ("UV_CONFIG_FILE", _UV_CONFIG),
)


def _read_text(path: str) -> str:
    try:
        return read_regular(Path(path), _MAX_CONFIG_BYTES)[0].decode(errors="replace")
    except OSError:
        return ""


def _examine(launch: PackageLaunch, directory: Path) -> Installation:
    """Examine what was installed. Raises `BadInput` if it has no program to run."""
    examine = _examine_node if launch.kind == "node" else _examine_python
    return msgspec.structs.replace(examine(launch, directory), installed=time.time())


def _examine_node(launch: PackageLaunch, directory: Path) -> Installation:
    modules = directory / "node_modules"
    wanted = _read_json(directory / "package.json").get("dependencies", {})
    others = list[str]()
    for name in cast("dict[str, Any]", wanted):
        about = _read_json(modules / name / "package.json")
        programs: Any = about.get("bin") or {}
        if isinstance(programs, str):
            programs = {name.rpartition("/")[2]: programs}
        script = _choose(programs, launch.program or name.rpartition("/")[2])
        path = os.path.realpath(modules / name / script)
        if not script or not below(path, str(directory)) or not os.path.isfile(path):
            others += sorted(programs)
            continue
        lock = _read_json(directory / "package-lock.json").get("packages", {})
        locked = cast("dict[str, Any]", lock).get(f"node_modules/{name}", {})
        return Installation(
            launch=launch.fingerprint,
            kind="node",
            name=name,
            version=str(about.get("version", "")),
            integrity=str(locked.get("integrity") or locked.get("resolved", "")),
            command=_command(path),
            directory=str(directory),
            own=str(modules / name),
        )
    raise BadInput(_no_program_error(launch, others))


def _choose(programs: Mapping[str, str], program: str) -> str:
    if program in programs:
        return programs[program]
    return next(iter(programs.values())) if len(programs) == 1 else ""


def _command(path: str) -> tuple[str, ...]:
    """Return the command of a script by its first line, without npm's shell wrapper."""
    with open(path, "rb") as file:
        first = file.readline(200).strip()
    plain = path.endswith((".js", ".mjs", ".cjs")) and not first.startswith(b"#!")
    return ("node", path) if plain or first == b"#!/usr/bin/env node" else (path,)


def _examine_python(launch: PackageLaunch, directory: Path) -> Installation:
    program, others = directory / "venv" / "bin" / launch.program, list[str]()
    for about in sorted(
        (directory / "venv").glob("lib*/python*/site-packages/*.dist-info")
    ):
        entries = configparser.ConfigParser(strict=False, delimiters=("=",))
        with suppress(configparser.Error):
            entries.read_string(_read_text(str(about / "entry_points.txt")))
        name, _, version = about.name.removesuffix(".dist-info").rpartition("-")
        if (
            not entries.has_option("console_scripts", launch.program)
            or not program.exists()
        ):
            if _is_package(name, launch) and entries.has_section("console_scripts"):
                others += sorted(entries["console_scripts"])
            continue
        lines = _read_text(str(about / "RECORD")).splitlines()
        # Ignore what differs from one installation to the next.
        content = "\n".join(x for x in lines if ".dist-info/" not in x and x[:3] != "../")
        return Installation(
            launch=launch.fingerprint,
            kind="python",
            name=name.replace("_", "-"),
            version=version,
            integrity=f"sha256-{sha256(content.encode()).hexdigest()}",
            command=(str(program),),
            directory=str(directory),
            own=str(about.parent),
        )
    raise BadInput(_no_program_error(launch, others))


def _is_package(name: str, launch: PackageLaunch) -> bool:
    """Return whether the command names this distribution, and does not only need it."""
    names = (re.split(r"[@=<>~!;\[ ]", package)[0] for package in launch.packages)
    return normalize_distribution(name) in map(normalize_distribution, names)


def _no_program_error(launch: PackageLaunch, programs: Iterable[str]) -> str:
    program = f" {launch.program!r}" if launch.program else ""
    why = f"{launch.names} was installed, but has no program{program} to start"
    if not (names := sorted(set(programs))):
        return why
    launcher = "npx -y --package" if launch.kind == "node" else "uvx --from"
    return (
        f"{why}: it has {', '.join(map(repr, names))}; name one, as in "
        f"{launcher} {launch.packages[0]} {names[0]}"
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _install_error(launch: PackageLaunch, finished: Finished) -> str:
    lines = [line.strip() for line in finished.text.splitlines() if line.strip()]
    reason = _reason(lines) if not finished.stopped else finished.stopped
    refused = [attempt for attempt in finished.attempts if attempt.refused]
    if refused:  # the installer reports only that something is missing
        rule = rule_for(refused[0])
        permits = f"; the rule {rule} in permissions.allow permits it" if rule else ""
        reason = f"{refused[0].refused}{permits}"
    return (
        f"{launch.names} could not be installed, which needs the network once: "
        f"{escape_marks(reason)[:_MAX_REASON_CHARS]}"
    )


def _reason(lines: list[str]) -> str:
    """Return the installer's reason, without its codes."""
    npm = [
        line.removeprefix("npm error ") for line in lines if line.startswith("npm error")
    ]
    if "command failed" in npm:
        return _script_reason(npm)
    for line in npm:
        if not re.match(r"(code|errno|syscall|path|command) |npm error$", line):
            return re.sub(r"^(E?\d+|network) ", "", line)
    begins = ("ERROR:", "error:", "×", "Caused by", "Error:")
    starts = [n for n, line in enumerate(lines) if line.startswith(begins)]
    if starts:
        return " ".join(lines[starts[0] : starts[0] + 4])
    return lines[-1] if lines else "it printed no reason"


def _script_reason(npm: list[str]) -> str:
    """Return why a package could not be built: the error that its script printed."""
    path = next((line for line in npm if line.startswith("path ")), "")
    package = path.rpartition("node_modules/")[2] or "a package"
    errors = [n for n, line in enumerate(npm) if _SCRIPT_ERROR.match(line)]
    lines = npm[errors[0] :] if errors else npm[-1:]
    error = " ".join(_GYP_PREFIX.sub("", line) for line in takewhile(_is_message, lines))
    return f"the install script of {package} failed: {error}"


def _is_message(line: str) -> bool:
    """Return whether the line belongs to an error, and not to its trace."""
    return not line.startswith(
        ("gyp ERR! stack at ", "gyp ERR! System", "gyp ERR! not ok", "at ")
    )
