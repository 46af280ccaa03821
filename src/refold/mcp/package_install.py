"""Installs the packages of an MCP server with npm, bun, uv or pip, into the server's directory.

The installer runs in the sandbox. It can write only to that directory, and reach only the
registries and the hosts that the user has configured. `packages` decides what to install.
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
from itertools import dropwhile, takewhile
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
# Registries, packages that the user forbids to install, and headers to build with; never a
# key.
_HARMLESS_NPMRC = re.compile(
    r"\s*((@[^:=\s]+:)?registry|cafile|ca|strict-ssl|ignore-scripts|before|min-release-age"
    r"|legacy-peer-deps|nodedir)\s*="
)
# The host and the port of a URL, which may contain a user name and a password.
_URL_PATTERN = re.compile(
    r"https?://(?:[^/\s@\"']*@)?([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?"
)
# Copies files newer than the old installation that the new one lacks. Their times must also
# be newer than the new installation, because the next update and `remove` distinguish them
# from its code by that.
_COPY_SCRIPT = """
find . -name node_modules -prune -o -type f -newermt @{seconds} -exec sh -c '
for file; do
  [ -e "$0/$file" ] || {{
    mkdir -p "$(dirname "$0/$file")" && cp -p "$file" "$0/$file" && touch -d @{later} "$0/$file"
  }}
done' {new} {{}} +
"""
# A line in which npm shows an error of a package's script, but not what it ran.
_SCRIPT_ERROR = re.compile(r"(?!gyp ERR! configure|command ).*\berr(or)?\b", re.IGNORECASE)
_GYP_PREFIX = re.compile(r"gyp ERR! (stack )?")
_MAX_CONFIG_BYTES = 256 * 1024
_MAX_REASON_CHARS = 400


class Installer(Struct, frozen=True):
    """Installs packages by running npm, bun, uv or pip in a sandbox.

    Besides registries, the sandbox permits the host patterns `hosts`; None permits all hosts.
    `commands` returns a sandbox whose commands can write only to the given directories. All
    access to a package's files happens in it, because a link in a package could lead anywhere.
    """

    home: ServerHome
    commands: Callable[[Sequence[str]], Commands]
    environ: Mapping[str, str]
    user_home: str
    hosts: tuple[str, ...] | None = ()

    async def install(self, launch: PackageLaunch) -> Installation:
        """Install into a new directory. Raises `BadInput`.

        The server continues to run the old installation until `use_installation`.
        """
        try:
            self.home.create()
            directory = self._new_directory()
            try:
                finished = await self._run(launch, directory)
                attempts = finished.attempts
                refused_host = next((a.host for a in attempts if a.refused), "")
                needless_host = ""  # refused, and not needed to install without scripts
                if launch.kind == "node" and finished.code != 0 and refused_host:
                    # Scripts of packages download browsers, for example. Few servers need them.
                    retry = await self._run(launch, directory, scripts=False)
                    attempts = (*attempts, *retry.attempts)
                    if retry.code == 0:
                        finished, needless_host = retry, refused_host
                if finished.code != 0:
                    raise BadInput(_install_error(launch, finished))
                result = await anyio.to_thread.run_sync(_examine, launch, directory)
                return msgspec.structs.replace(
                    result, refused=needless_host, reached=list_reached(attempts)
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
        """Return the installation for this launch, and install first if there is none.

        `begin` is called before an installation starts. Raises `BadInput`.
        """
        lock = file_lock(self.home.record)
        try:
            # Another refold process may take minutes to install the same packages.
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
        """Record that the server runs this installation from now on. Raises `BadInput`.

        All installations except this one and the previous one are deleted.
        """
        old = read_record(self.home)
        if old is not None and old.name == new.name and new.kind == "node":
            await self._copy_state(old, new)
        try:
            write(self.home.record, msgspec.json.encode(new).decode())
        except OSError as error:
            raise BadInput(
                f"what was installed cannot be noted in {self.home.record}: {reason_of(error)}"
            ) from error
        # A session may still run the old installation.
        in_use = {new.directory, old.directory if old else ""}
        for directory in self.home.packages.iterdir():
            if str(directory) not in in_use:
                shutil.rmtree(directory, ignore_errors=True)

    def delete_installation(self, old: Installation) -> None:
        """Delete an installation that the user rejected."""
        shutil.rmtree(old.directory, ignore_errors=True)

    def _new_directory(self) -> Path:
        """Make an empty directory for an installation, named by the current time."""
        directory = self.home.packages / f"{time.time_ns()}"
        make_directories(directory)
        return directory

    async def _run(
        self, launch: PackageLaunch, directory: Path, *, scripts: bool = True
    ) -> Finished:
        """Run the installer in the sandbox. With `scripts`, packages' scripts run, too."""
        if launch.kind == "node":
            line, variables = self._node_line(launch, directory)
            if not scripts:
                variables["npm_config_ignore_scripts"] = "true"
        else:
            line, variables = self._python_line(launch, directory)
        hosts = None
        if self.hosts is not None:
            registries = (*_HOSTS_OF_KIND[launch.kind], *self._own_registries())
            hosts = ReachableHosts((*registries, *self.hosts))
        variables["HOME"] = str(directory / "cache")
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

    async def _copy_state(self, old: Installation, new: Installation) -> None:
        """Copy what a Node.js server has written beside its code to the new installation."""
        commands = self.commands((old.directory, new.directory))
        script = _COPY_SCRIPT.format(
            seconds=int(old.installed) + 1,
            new=shlex.quote(new.own),
            later=int(new.installed) + 3,
        )
        try:
            await commands.run(
                script,
                cwd=old.own,
                seconds=INSTALL_SECONDS,
                confines=Confinement(writes=True),
            )
        except ToolFailed:
            pass  # the old directory does not exist
        finally:
            commands.close()

    def _node_line(
        self, launch: PackageLaunch, directory: Path
    ) -> tuple[str, dict[str, str]]:
        """Return the command line that installs npm packages, and variables for it."""
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
        """Return the command line that installs Python packages, and variables for it."""
        packages = shlex.join(launch.packages)
        version = shlex.quote(launch.python)
        if self._has_program("uv"):
            option = f" --python {version}" if launch.python else ""
            line = (
                f"uv venv --quiet{option} venv && uv pip install --quiet --compile-bytecode "
                f"--python venv/bin/python -- {packages}"
            )
        else:
            python = version if launch.python else "python3"
            if python[0].isdigit():  # a version such as 3.12
                python = f"python{python}"
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
        for name, relative_path in _USER_VARIABLES:
            path = os.path.join(self.user_home, relative_path)
            if name not in self.environ and os.path.exists(path):
                variables[name] = path
        return line, variables

    def _has_program(self, program: str) -> bool:
        return self.commands(()).has(program)

    def _harmless_npmrc(self) -> Iterator[str]:
        """Yield the needed lines of the user's .npmrc. None of them contains a key."""
        for line in _read_text(os.path.join(self.user_home, ".npmrc")).splitlines():
            if _HARMLESS_NPMRC.match(line):
                yield f"{line}\n"

    def _own_registries(self) -> Iterator[str]:
        """Yield the hosts of registries in the user's configuration, which may be private."""
        texts = [self.environ.get(name, "") for name in _REGISTRY_VARIABLES.split()]
        texts += self._harmless_npmrc()
        for file in (_PIP_CONFIG, _UV_CONFIG):
            texts.append(_read_text(os.path.join(self.user_home, file)))
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
    """Return the beginning of a text file; "" if the file cannot be read."""
    try:
        content, _ = read_regular(Path(path), _MAX_CONFIG_BYTES)
        return content.decode(errors="replace")
    except OSError:
        return ""


def _examine(launch: PackageLaunch, directory: Path) -> Installation:
    """Return what was installed in a directory. Raises `BadInput` if it has no program to run."""
    examine = _examine_node if launch.kind == "node" else _examine_python
    return msgspec.structs.replace(examine(launch, directory), installed=time.time())


def _examine_node(launch: PackageLaunch, directory: Path) -> Installation:
    """Describe the first installed npm package that has the program to run."""
    modules = directory / "node_modules"
    packages = _read_json(directory / "package.json").get("dependencies", {})
    other_programs = list[str]()
    for name in cast("dict[str, Any]", packages):
        manifest = _read_json(modules / name / "package.json")
        programs: Any = manifest.get("bin") or {}
        if isinstance(programs, str):
            programs = {_name_in_scope(name): programs}
        script = _choose_script(programs, launch.program or _name_in_scope(name))
        path = os.path.realpath(modules / name / script)
        if not script or not below(path, str(directory)) or not os.path.isfile(path):
            other_programs += sorted(programs)
            continue
        lock = _read_json(directory / "package-lock.json").get("packages", {})
        locked = cast("dict[str, Any]", lock).get(f"node_modules/{name}", {})
        return Installation(
            launch=launch.fingerprint,
            kind="node",
            name=name,
            version=str(manifest.get("version", "")),
            integrity=str(locked.get("integrity") or locked.get("resolved", "")),
            command=_command(path),
            directory=str(directory),
            own=str(modules / name),
        )
    raise BadInput(_no_program_error(launch, other_programs))


def _name_in_scope(package: str) -> str:
    """Return the name of an npm package without its scope: "server" for @scope/server."""
    return package.rpartition("/")[2]


def _choose_script(programs: Mapping[str, str], program: str) -> str:
    """Return the script of `program`, or else the only script; "" if neither exists."""
    if program in programs:
        return programs[program]
    return next(iter(programs.values())) if len(programs) == 1 else ""


def _command(path: str) -> tuple[str, ...]:
    """Return the command that runs a script: with node, or by the script's first line."""
    with open(path, "rb") as file:
        first_line = file.readline(200).strip()
    if first_line == b"#!/usr/bin/env node":
        return "node", path
    if path.endswith((".js", ".mjs", ".cjs")) and not first_line.startswith(b"#!"):
        return "node", path
    return (path,)


def _examine_python(launch: PackageLaunch, directory: Path) -> Installation:
    """Describe the first installed Python package that has the program to run."""
    venv = directory / "venv"
    program = venv / "bin" / launch.program
    other_programs: list[str] = []
    for about in sorted(venv.glob("lib*/python*/site-packages/*.dist-info")):
        entries = configparser.ConfigParser(strict=False, delimiters=("=",))
        with suppress(configparser.Error):
            entries.read_string(_read_text(str(about / "entry_points.txt")))
        name, _, version = about.name.removesuffix(".dist-info").rpartition("-")
        has_program = entries.has_option("console_scripts", launch.program)
        if not has_program or not program.exists():
            if _is_package(name, launch) and entries.has_section("console_scripts"):
                other_programs += sorted(entries["console_scripts"])
            continue
        lines = _read_text(str(about / "RECORD")).splitlines()
        # Ignore lines that differ between two installations of the same files.
        content = "\n".join(
            line for line in lines if ".dist-info/" not in line and line[:3] != "../"
        )
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
    raise BadInput(_no_program_error(launch, other_programs))


def _is_package(name: str, launch: PackageLaunch) -> bool:
    """Return whether the launch names this Python package, not one that depends on it."""
    for package in launch.packages:
        distribution = re.split(r"[@=<>~!;\[ ]", package)[0]  # without version and extras
        if normalize_distribution(distribution) == normalize_distribution(name):
            return True
    return False


def _no_program_error(launch: PackageLaunch, programs: Iterable[str]) -> str:
    """Say that a package lacks the program to start, and which programs it has."""
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
    """Return the JSON object in a file; {} if there is none, or it cannot be read."""
    try:
        value: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _install_error(launch: PackageLaunch, finished: Finished) -> str:
    """Return why an installation failed, with a rule that would permit a refused host."""
    lines = [line.strip() for line in finished.text.splitlines() if line.strip()]
    reason = finished.stopped or _reason(lines)
    refused = next((attempt for attempt in finished.attempts if attempt.refused), None)
    if refused:  # the installer only reports that something is missing
        rule = rule_for(refused)
        advice = f"; the rule {rule} in permissions.allow permits it" if rule else ""
        reason = f"{refused.refused}{advice}"
    return (
        f"{launch.names} could not be installed, which needs the network once: "
        f"{escape_marks(reason)[:_MAX_REASON_CHARS]}"
    )


def _reason(lines: list[str]) -> str:
    """Return the reason of a failure from the output of npm, bun, uv or pip."""
    npm_lines = [
        line.removeprefix("npm error ") for line in lines if line.startswith("npm error")
    ]
    if "command failed" in npm_lines:
        return _script_reason(npm_lines)
    for line in npm_lines:
        if not re.match(r"(code|errno|syscall|path|command) |npm error$", line):
            return re.sub(r"^(E?\d+|network) ", "", line)
    for number, line in enumerate(lines):
        if line.startswith(("ERROR:", "error:", "×", "Caused by", "Error:")):
            return " ".join(lines[number : number + 4])  # the reason may be in a later line
    return lines[-1] if lines else "it printed no reason"


def _script_reason(npm_lines: list[str]) -> str:
    """Return a sentence with the error that the install script of a package printed."""
    path = next((line for line in npm_lines if line.startswith("path ")), "")
    package = path.rpartition("node_modules/")[2] or "a package"
    from_error_on = [*dropwhile(lambda line: not _SCRIPT_ERROR.match(line), npm_lines)]
    lines = from_error_on or npm_lines[-1:]
    error = " ".join(_GYP_PREFIX.sub("", line) for line in takewhile(_is_message, lines))
    return f"the install script of {package} failed: {error}"


def _is_message(line: str) -> bool:
    """Return whether the line belongs to an error message, and not to a trace."""
    return not line.startswith(
        ("gyp ERR! stack at ", "gyp ERR! System", "gyp ERR! not ok", "at ")
    )
