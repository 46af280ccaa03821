"""The packages that the command of an MCP server names, like `npx -y NAME` and `uvx NAME`.

They are installed once, and each later start runs the installed program directly, without
network. This module parses commands and reads what is installed; `package_install`
installs.

`npx` and `uvx` are not run, because they resolve versions at every start, so a new version
would arrive unseen. Each server has packages and a home of its own: with a shared cache a
server could change the code of another, and with the user's home what a shell runs. A
server may write to its packages, since some keep their state there, but not to the note of
what was installed. refold only reads that directory as text or handles it by a command in
the sandbox: a link there could lead anywhere.
"""

import os
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from refold.mcp.server_home import ServerHome
from refold.safe_open import read_regular

Kind: TypeAlias = Literal["node", "python"]

_MAX_RECORD_BYTES = 64 * 1024
_LOCAL_PREFIXES = (".", "/", "~", "file:")


class PackageLaunch(Struct, frozen=True):
    """What a command needs: packages, and the program of them that it runs.

    `program` "": that of the first package. `python`: the version that it asks for.
    """

    kind: Kind
    packages: tuple[str, ...]
    program: str = ""
    arguments: tuple[str, ...] = ()
    python: str = ""

    @property
    def fingerprint(self) -> str:
        parts = (self.kind, self.packages, self.program, self.python)
        return sha256(msgspec.json.encode(parts)).hexdigest()[:16]

    @property
    def names(self) -> str:
        return " and ".join(self.packages)


class Installation(Struct, frozen=True):
    """What is installed for a server. `command` starts it, without its arguments.

    `integrity` is npm's hash or commit of the package, or the sha256 of the list of its
    files and their hashes. `own` is the directory of the first package itself; `installed`
    is in seconds since 1970. `refused` is a host that the scripts of the packages may not
    reach: they failed, and the packages were installed without running them. `reached` are
    the hosts that the installation reached through the filter.
    """

    launch: str  # its fingerprint
    kind: Kind
    name: str
    version: str
    integrity: str
    command: tuple[str, ...]
    directory: str
    own: str
    installed: float = 0.0
    refused: str = ""
    reached: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Say what was installed, and where it came from."""
        hosts = (
            f"; the installation reached {', '.join(self.reached)}" if self.reached else ""
        )
        return f"{self.name} {self.version} is installed{hosts}"

    @property
    def programs(self) -> str:
        """The directory of the programs of all packages, which launchers put on the PATH."""
        below = "node_modules/.bin" if self.kind == "node" else "venv/bin"
        return f"{self.directory}/{below}"


def launch_of(command: tuple[str, ...]) -> PackageLaunch | None:
    """Return what the command needs installed; None for others, or unknown options."""
    words = (os.path.basename(command[0]), *command[1:]) if command else ()
    for beginning, parse in _LAUNCHER_PARSERS.items():
        if words[: len(beginning)] == beginning:
            launch = parse(list(words[len(beginning) :]))
            local = launch and any(p.startswith(_LOCAL_PREFIXES) for p in launch.packages)
            return None if local else launch
    return None


def installation(home: ServerHome, launch: PackageLaunch) -> Installation | None:
    """Return the installation for this launch, or None."""
    if (known := read_record(home)) is None or known.launch != launch.fingerprint:
        return None
    return known if all(map(os.path.exists, known.command[-1:])) else None


def read_record(home: ServerHome) -> Installation | None:
    try:
        content, _ = read_regular(home.record, _MAX_RECORD_BYTES)
        return msgspec.json.decode(content, type=Installation)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None  # it is installed again


class _Options(Struct, frozen=True):
    """The options of a launcher: those with a value, by meaning, and those without."""

    values: Mapping[str, str]
    flags: frozenset[str]

    def split(self, words: list[str]) -> tuple[dict[str, list[str]], list[str]] | None:
        """Split option values from the words after them. None: an option is unknown."""
        values = dict[str, list[str]]()
        while words and words[0].startswith("-"):
            word = words.pop(0)
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name in self.values:
                if not equals:
                    if not words:
                        return None
                    value = words.pop(0)
                values.setdefault(self.values[name], []).append(value)
            elif word not in self.flags:
                return None
        return values, words


def _options(values: str, flags: str) -> _Options:
    pairs = [(word.split(":")[0], word.split(":")[1]) for word in values.split()]
    return _Options(dict(pairs), frozenset(flags.split()))


_NPX_OPTIONS = _options(
    "-p:package --package:package",
    "-y --yes -q --quiet --silent --prefer-offline --prefer-online --no-audit --no-fund --bun "
    "--verbose",
)
_UVX_OPTIONS = _options(
    "--from:from --with:with -w:with --python:python -p:python",
    "-q --quiet --isolated --refresh --no-cache -n --native-tls --no-progress --offline "
    "--no-config --managed-python --no-env-file",
)
_PIPX_OPTIONS = _options("--spec:from --python:python", "-q --quiet --no-cache --verbose")


def _node(words: list[str]) -> PackageLaunch | None:
    if (split := _NPX_OPTIONS.split(words)) is None:
        return None
    values, rest = split
    packages = values.get("package", [])
    if packages and rest:
        return PackageLaunch("node", tuple(packages), rest[0], tuple(rest[1:]))
    return PackageLaunch("node", (rest[0],), "", tuple(rest[1:])) if rest else None


def _npm_exec(words: list[str]) -> PackageLaunch | None:
    launch = _node(words)
    if launch is None or launch.arguments[:1] != ("--",):
        return launch
    return msgspec.structs.replace(launch, arguments=launch.arguments[1:])


def _python(words: list[str], options: _Options) -> PackageLaunch | None:
    split = options.split(words)
    if split is None or not split[1]:
        return None
    values, (first, *rest) = split
    requirement = re.sub(r"@(?=\d[\w.]*$)", "==", first).removesuffix("@latest")
    program = re.split(r"[@=<>~!\[ ]", first)[0]
    packages = (*(values.get("from") or [requirement]), *values.get("with", []))
    packages = tuple(package.removesuffix("@latest") for package in packages)
    python = "".join(values.get("python", [])[-1:])
    return PackageLaunch("python", packages, program, tuple(rest), python)


def _uvx(words: list[str]) -> PackageLaunch | None:
    return _python(words, _UVX_OPTIONS)


def _pipx(words: list[str]) -> PackageLaunch | None:
    return _python(words, _PIPX_OPTIONS)


_LAUNCHER_PARSERS: Mapping[tuple[str, ...], Callable[[list[str]], PackageLaunch | None]] = (
    MappingProxyType({
        ("npx",): _node,
        ("npm", "exec"): _npm_exec,
        ("npm", "x"): _npm_exec,
        ("bunx",): _node,
        ("bun", "x"): _node,
        ("pnpm", "dlx"): _node,
        ("uvx",): _uvx,
        ("uv", "tool", "run"): _uvx,
        ("pipx", "run"): _pipx,
    })
)  # fmt: skip
