"""Finds the paths that a server must see in its sandbox, and advises on paths it may not use.

The sandbox hides /tmp and similar directories, where environments and programs may be
installed.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

from msgspec import Struct

from refold.mcp.servers import ServerConfig
from refold.place.sandbox_rules import REPLACED_DIRECTORIES, key_paths
from refold.values.path_names import below
from refold.values.printable_names import escape_name

# A directory with one of these contains a whole program, whose files need each other.
_ROOT_NAMES = (
    "pyvenv.cfg", "conda-meta", "package.json", "node_modules", "pyproject.toml", "setup.py",
    "Cargo.toml", "go.mod", "deno.json",
)  # fmt: skip
_MAX_SEARCHED_CHARS = 20_000
_QUOTED_PATH = re.compile(r"""['"`](/[^'"`\n]{1,4000})['"`]""")
_BARE_PATH = re.compile(r"(?<![\w.:/~@-])(/[^\s'\"`,;:()<>]+)")
_TRACE_FRAME = re.compile(r'^[ |+]*(File ".*", line \d+|at ).*$', re.MULTILINE)
_REFUSED_ERROR = re.compile(
    r"EROFS|EACCES|EPERM|read-only file system|permission denied|attempt to write a readonly "
    r"database|unable to open database|operation not permitted|os error (30|13)\b",
    re.IGNORECASE,
)
_MISSING_ERROR = re.compile(
    r"ENOENT|no such file|does not exist|not found|os error 2\b|unable to open database",
    re.IGNORECASE,
)


def visible_paths(config: ServerConfig, roots: Sequence[str], path: str) -> tuple[str, ...]:
    """Return the paths that must be visible in a server's sandbox, which hides /tmp.

    They are `roots`, the directories of the workspace, and hidden paths that the server's entry
    names. `path` is the PATH variable, in which the server's program is searched.
    """
    hidden_paths = filter(_is_hidden, _paths_in(config, path))
    needed = chain.from_iterable(map(_with_surroundings, hidden_paths))
    return (*roots, *dict.fromkeys(needed))


class PreparedServer(Struct, frozen=True):
    """A server that is ready to start: `config` has values instead of variables.

    `own` are its directories in refold's data directory, `roots` the directories of the
    workspace. With `narrow`, it can read only files that every program needs. `installed` is a
    sentence about packages that were installed for this start, or "".
    """

    config: ServerConfig
    own: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    user_home: str = "/"
    narrow: bool = False
    installed: str = ""

    @property
    def writable(self) -> tuple[str, ...]:
        """The directories outside of the workspace that the server may change."""
        return *self.own, *self.config.writable

    def roots_to_offer(self) -> tuple[str, ...]:
        """Return the directories in which the server should work; () for a remote server."""
        config = self.config
        if config.transport != "stdio":
            return ()
        directories = (*config.writable, *_directories_in_arguments(config))
        return tuple(dict.fromkeys((*self.roots, *map(os.path.realpath, directories))))

    def with_advice(self, error: str) -> str:
        """Return the error, followed by advice if it is about a path the server may not use."""
        advice = self.advice(error)
        return f"{error}\n({advice})" if advice else error

    def advice(self, error: str) -> str:
        """Return advice if the error is about a path that the server may not use, or ""."""
        if self.config.transport != "stdio":
            return ""
        text = _TRACE_FRAME.sub("", error[-_MAX_SEARCHED_CHARS:])
        is_refusal = _REFUSED_ERROR.search(text) is not None
        is_missing = _MISSING_ERROR.search(text) is not None
        if not (is_refusal or is_missing):
            return ""
        named_paths = dict.fromkeys(
            (*_QUOTED_PATH.findall(text), *_BARE_PATH.findall(text))
        )
        for named_path in named_paths or self._paths_in_entry():
            path = os.path.normpath(named_path.rstrip(".!?"))
            if is_refusal and (advice := self._refusal_advice(path)):
                return advice
            if is_missing and (advice := self._hidden_path_advice(path)):
                return advice
        return ""

    def _refusal_advice(self, path: str) -> str:
        """Return how to let the server change a path that the sandbox protects, or ""."""
        name, real = self.config.name, os.path.realpath(path)
        if not os.access(_nearest_existing(real), os.W_OK):
            return ""  # the user may not write there either
        # An entry cannot change anything about these paths.
        fixed = (*self.writable, "/dev", "/proc", *key_paths(self.user_home))
        if any(below(real, directory) for directory in fixed):
            return ""
        if any(below(real, root) for root in self.roots):
            if self.config.writes:
                return ""
            return (
                f"The MCP server {name} may not change {escape_name(path)}: "
                '"writes": true in its entry (refold mcp add --writes) lets it change files of '
                "the workspace."
            )
        return (
            f"The MCP server {name} may not change {escape_name(path)}: "
            f'"writable": ["{escape_name(self._directory(real))}"] in its entry (refold mcp add '
            "--writable DIR) lets it."
        )

    def _hidden_path_advice(self, path: str) -> str:
        """Return how to let the server see a path that the sandbox hides, or "".

        The path must exist, or its directory must exist and be hidden.
        """
        parent = os.path.dirname(path)
        exists = os.path.exists(path) or (_is_hidden(parent) and os.path.isdir(parent))
        if not (exists and _is_hidden(path)):
            return ""
        visible_places = (*self.writable, *self.config.visible)
        if any(below(os.path.realpath(path), place) for place in visible_places):
            return ""
        return (
            f"The MCP server {self.config.name} does not see {escape_name(path)}, for its sandbox "
            f'has a /tmp of its own: "writable": ["{escape_name(self._directory(path))}"] in its '
            "entry (refold mcp add --writable DIR) lets it see and change files there."
        )

    def _paths_in_entry(self) -> Iterator[str]:
        """Yield the absolute paths in the server's arguments and environment variables.

        `advice` checks these paths if an error names no path.
        """
        for word in (*self.config.command[1:], *(v for _, v in self.config.environment)):
            text = word.partition("=")[2] if word.startswith("-") else word
            if os.path.isabs(text):
                yield text

    def _directory(self, path: str) -> str:
        """Return the nearest existing directory of a path, with ~ for the user's home."""
        path = _nearest_existing(path)
        if not os.path.isdir(path):
            path = os.path.dirname(path)
        if path != self.user_home and below(path, self.user_home):
            return f"~{path.removeprefix(self.user_home)}"
        return path


def _nearest_existing(path: str) -> str:
    """Return the path if it exists, otherwise the nearest directory above it that does."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _directories_in_arguments(config: ServerConfig) -> Iterator[str]:
    """Yield the server's arguments that are directories, such as those of a file server."""
    for word in config.command[1:]:
        if os.path.isabs(word) and os.path.isdir(word):
            yield word


def _is_hidden(path: str) -> bool:
    """Return whether the sandbox hides the path, or the target if the path is a link."""
    real = os.path.realpath(path)
    return any(
        below(name, place) and name != place
        for name in (path, real)
        for place in REPLACED_DIRECTORIES
    )


def _paths_in(config: ServerConfig, path: str) -> Iterator[str]:
    """Yield the existing paths that the server's entry names, and the path of its program.

    A program without a directory is searched in `path`, the PATH variable.
    """
    if config.command and "/" not in config.command[0]:
        for directory in path.split(os.pathsep):
            program = os.path.join(directory, config.command[0])
            if os.path.isabs(directory) and os.access(program, os.X_OK):
                yield program
                break
    values = (value for _, value in config.environment)
    for word in (config.cwd, *config.command, *values):
        # A word may be a path, an option such as --db=/tmp/x, or a list such as /tmp/a:/tmp/b.
        _, _, option_value = word.partition("=")
        listed_paths = word.split(os.pathsep)
        for text in (word, option_value, *listed_paths):
            if os.path.isabs(text) and os.path.exists(text):
                yield text


def _with_surroundings(path: str) -> Iterator[str]:
    """Yield the directories that must be visible so that the file `path` can be used.

    The first is the directory of its program or project, or `path` itself if it is a directory.
    If `path` is a link, the same follows for its target. If a Python interpreter beside `path`
    is a link, the directory of its target's program follows. Targets that are not hidden are
    left out.
    """
    yield path if os.path.isdir(path) else _surroundings(path)
    with suppress(OSError):
        real = os.path.realpath(path)
        if real != path and _is_hidden(real):
            yield real if os.path.isdir(real) else _surroundings(real)
    interpreter = os.path.join(os.path.dirname(path), "python")
    if os.path.islink(interpreter):
        real_interpreter = os.path.realpath(interpreter)
        if _is_hidden(real_interpreter):
            yield _surroundings(real_interpreter)


def _surroundings(file: str) -> str:
    """Return the directory of the whole program or project to which a file belongs.

    If the directory of `file` is not hidden, return `file`. Otherwise, return the outermost
    hidden directory above `file` with a file like pyproject.toml. If no directory has such a
    file, return the directory of `file`, or the parent of a directory called `bin`.
    """
    best = parent = os.path.dirname(file)
    if not _is_hidden(parent):
        return file
    if os.path.basename(parent) in ("bin", "sbin") and _is_hidden(os.path.dirname(parent)):
        best = os.path.dirname(parent)
    while _is_hidden(parent):
        if any(os.path.exists(os.path.join(parent, name)) for name in _ROOT_NAMES):
            best = parent
        parent = os.path.dirname(parent)
    return best
