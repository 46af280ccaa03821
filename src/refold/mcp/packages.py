"""Finds the packages that the command of an MCP server needs, like `npx -y NAME` or `uvx NAME`.

They are installed once, and each later start runs the installed program directly, without
network. This module parses commands and reads what is installed; `package_install` installs.

refold does not run `npx` and `uvx`: they resolve versions at every start, so a new version
would arrive unnoticed. Each server has its own packages and its own home. In a shared cache, a
server could change the code of another one; in the user's home, it could change commands that a
shell runs. A server may write to its packages, since some store their state there, but not to
the record of what was installed. refold reads that directory only as text or with a command in
the sandbox, because a link in it could lead anywhere.
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
    """The packages that a command needs, and which of their programs the command runs.

    If `program` is "", the command runs the program of the first package. `python` is the
    Python version that the command asks for.
    """

    kind: Kind
    packages: tuple[str, ...]
    program: str = ""
    arguments: tuple[str, ...] = ()
    python: str = ""

    @property
    def fingerprint(self) -> str:
        """A hash of the fields that decide what is installed: all except `arguments`."""
        parts = (self.kind, self.packages, self.program, self.python)
        return sha256(msgspec.json.encode(parts)).hexdigest()[:16]

    @property
    def names(self) -> str:
        return " and ".join(self.packages)


class Installation(Struct, frozen=True):
    """The packages that are installed for a server.

    `command` starts the server, and lacks the arguments of the launch. `integrity` identifies
    the content of the package. It is npm's hash or commit; for Python, it is the sha256 of the
    list of files with their hashes. `own` is the directory with the code of the package that
    has the program; `installed` is in seconds since 1970. `reached` are the hosts that the
    installation reached. `refused` is a host that the packages' install scripts may not reach:
    the scripts failed, and the packages were then installed without running the scripts.
    """

    launch: str  # the fingerprint of the launch
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
        """A sentence with the package, its version, and the hosts that were reached."""
        hosts = (
            f"; the installation reached {', '.join(self.reached)}" if self.reached else ""
        )
        return f"{self.name} {self.version} is installed{hosts}"

    @property
    def programs(self) -> str:
        """The directory with the programs of all packages, which belongs on the PATH."""
        below = "node_modules/.bin" if self.kind == "node" else "venv/bin"
        return f"{self.directory}/{below}"


def launch_of(command: tuple[str, ...]) -> PackageLaunch | None:
    """Return the packages that a command like `npx NAME` needs.

    Return None for another command, for unknown options, and for packages in a local directory.
    """
    words = (os.path.basename(command[0]), *command[1:]) if command else ()
    for launcher, parse in _LAUNCHER_PARSERS.items():
        if words[: len(launcher)] == launcher:
            launch = parse(list(words[len(launcher) :]))
            if launch and any(p.startswith(_LOCAL_PREFIXES) for p in launch.packages):
                return None
            return launch
    return None


def installation(home: ServerHome, launch: PackageLaunch) -> Installation | None:
    """Return the installation for this launch; None if it or its program is missing."""
    recorded = read_record(home)
    if recorded is None or recorded.launch != launch.fingerprint or not recorded.command:
        return None
    return recorded if os.path.exists(recorded.command[-1]) else None


def read_record(home: ServerHome) -> Installation | None:
    """Return the recorded installation; None if there is none, or it cannot be read."""
    try:
        content, _ = read_regular(home.record, _MAX_RECORD_BYTES)
        return msgspec.json.decode(content, type=Installation)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None  # the packages are installed again


class _Options(Struct, frozen=True):
    """The options of a launcher such as `npx`.

    `values` maps each option that takes a value to its meaning: `-p` and `--package` both mean
    "package". `flags` are the options without a value.
    """

    values: Mapping[str, str]
    flags: frozenset[str]

    def split(self, words: list[str]) -> tuple[dict[str, list[str]], list[str]] | None:
        """Return the values of the options in `words` by meaning, and the words after them.

        Return None if an option is unknown or lacks its value.
        """
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
    """Parse two texts: `values` has words like OPTION:MEANING, `flags` has names of options."""
    meanings = dict[str, str]()
    for word in values.split():
        option, _, meaning = word.partition(":")
        meanings[option] = meaning
    return _Options(meanings, frozenset(flags.split()))


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


def _parse_node(words: list[str]) -> PackageLaunch | None:
    """Return what `npx` starts; the first word is the package if no option names one.

    Return None for an unknown option, or if there are no words besides options.
    """
    parsed = _NPX_OPTIONS.split(words)
    if parsed is None:
        return None
    options, other_words = parsed
    if not other_words:
        return None
    first, *arguments = other_words
    if packages := options.get("package"):  # then the first word is a program
        return PackageLaunch("node", tuple(packages), first, tuple(arguments))
    return PackageLaunch("node", (first,), arguments=tuple(arguments))


def _parse_npm_exec(words: list[str]) -> PackageLaunch | None:
    """Parse the words after `npm exec`, which ignores a "--" before the arguments."""
    launch = _parse_node(words)
    if launch is None or launch.arguments[:1] != ("--",):
        return launch
    return msgspec.structs.replace(launch, arguments=launch.arguments[1:])


def _parse_python(words: list[str], options: _Options) -> PackageLaunch | None:
    """Return what `uvx` or `pipx run` starts. The first word is always the program.

    The first word is also the package if no option names a package. Return None for an unknown
    option, or if there are no words besides options.
    """
    parsed = options.split(words)
    if parsed is None:
        return None
    values, other_words = parsed
    if not other_words:
        return None
    first, *arguments = other_words
    requirement = re.sub(r"@(?=\d[\w.]*$)", "==", first)  # name@1.2 is name==1.2
    program = re.split(r"[@=<>~!\[ ]", first)[0]  # without version and extras
    requirements = [*(values.get("from") or [requirement]), *values.get("with", [])]
    packages = tuple(package.removesuffix("@latest") for package in requirements)
    python = values.get("python", [""])[-1]  # the last option is valid
    return PackageLaunch("python", packages, program, tuple(arguments), python)


def _parse_uvx(words: list[str]) -> PackageLaunch | None:
    return _parse_python(words, _UVX_OPTIONS)


def _parse_pipx(words: list[str]) -> PackageLaunch | None:
    return _parse_python(words, _PIPX_OPTIONS)


# Each parser gets the words after the launcher. It returns None for an unknown option, or if no
# package is named.
_LAUNCHER_PARSERS: Mapping[tuple[str, ...], Callable[[list[str]], PackageLaunch | None]] = (
    MappingProxyType({
        ("npx",): _parse_node,
        ("npm", "exec"): _parse_npm_exec,
        ("npm", "x"): _parse_npm_exec,
        ("bunx",): _parse_node,
        ("bun", "x"): _parse_node,
        ("pnpm", "dlx"): _parse_node,
        ("uvx",): _parse_uvx,
        ("uv", "tool", "run"): _parse_uvx,
        ("pipx", "run"): _parse_pipx,
    })
)  # fmt: skip
