"""The paths that a server must see wherever they are, and advice when it may not use one.

The sandbox hides /tmp and the like, where environments and programs may be installed.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from refold.mcp.servers import ServerConfig
from refold.place.sandbox_rules import REPLACED_DIRECTORIES, key_paths
from refold.values.path_names import below
from refold.values.printable_names import escape_name

# A directory with one of these holds a whole program; its files need the rest.
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
    """Return the paths of the entry and the workspace that are below /tmp and the like.

    `path` is the PATH, in which the program may be.
    """
    hidden = dict.fromkeys(
        place
        for named in _paths_in(config, path)
        if _is_hidden(named)
        for place in _with_surroundings(named)
    )
    return (*roots, *hidden)


class PreparedServer(Struct, frozen=True):
    """A server as it is started: variables, packages and directories are in `config`.

    `own` are directories of its own, in refold's data directory; `roots` are those of the
    workspace, and `user_home` is the home of the user. `narrow`: it reads only what
    programs need. `installed` says what was installed for this start, or is "".
    """

    config: ServerConfig
    own: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    user_home: str = "/"
    narrow: bool = False
    installed: str = ""

    @property
    def writable(self) -> tuple[str, ...]:
        """The directories that it may change besides the workspace."""
        return *self.own, *self.config.writable

    def roots_to_offer(self) -> tuple[str, ...]:
        """The directories that it should work in; none for a remote server."""
        config = self.config
        if config.transport != "stdio":
            return ()
        named = map(
            os.path.realpath, (*config.writable, *_directories_in_arguments(config))
        )
        return tuple(dict.fromkeys((*self.roots, *named)))

    def with_advice(self, error: str) -> str:
        """Return the error, with advice if it is about a path the server may not use."""
        advice = self.advice(error)
        return f"{error}\n({advice})" if advice else error

    def advice(self, error: str) -> str:
        """Return advice on the path in the error if the server may not use it."""
        text = _TRACE_FRAME.sub("", error[-_MAX_SEARCHED_CHARS:])
        if self.config.transport != "stdio":
            return ""
        refused, missing = _REFUSED_ERROR.search(text), _MISSING_ERROR.search(text)
        if not (refused or missing):
            return ""
        paths = list(
            dict.fromkeys((*_QUOTED_PATH.findall(text), *_BARE_PATH.findall(text)))
        )
        paths = paths or [*self._arguments()]
        for path in paths:
            path = os.path.normpath(path.rstrip(".!?"))
            if refused and (hint := self._refusal(path)):
                return hint
            if missing and (hint := self._hidden_path_advice(path)):
                return hint
        return ""

    def _refusal(self, path: str) -> str:
        name, real = self.config.name, os.path.realpath(path)
        places = (*self.writable, "/dev", "/proc", *key_paths(self.user_home))
        # Where the user may not write either, the sandbox is not the reason.
        if not os.access(_nearest_existing(real), os.W_OK) or any(
            below(real, p) for p in places
        ):
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
        """Return advice on a path that exists, or could, and is hidden from the server."""
        places, folder = (*self.writable, *self.config.visible), os.path.dirname(path)
        exists = os.path.exists(path) or (_is_hidden(folder) and os.path.isdir(folder))
        if not (exists and _is_hidden(path)):
            return ""
        if any(below(os.path.realpath(path), place) for place in places):
            return ""
        return (
            f"The MCP server {self.config.name} does not see {escape_name(path)}, for its sandbox "
            f'has a /tmp of its own: "writable": ["{escape_name(self._directory(path))}"] in its '
            "entry (refold mcp add --writable DIR) lets it see and change files there."
        )

    def _arguments(self) -> Iterator[str]:
        """Yield paths of the entry: an error that names no path may be about one."""
        for word in (*self.config.command[1:], *(v for _, v in self.config.environment)):
            text = word.partition("=")[2] if word.startswith("-") else word
            if os.path.isabs(text):
                yield text

    def _directory(self, path: str) -> str:
        """Return the nearest existing directory, as an entry names it."""
        path = _nearest_existing(path)
        path = path if os.path.isdir(path) else os.path.dirname(path)
        if path != self.user_home and below(path, self.user_home):
            return f"~{path.removeprefix(self.user_home)}"
        return path


def _nearest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _directories_in_arguments(config: ServerConfig) -> Iterator[str]:
    """Yield the directories among its arguments: a file server works there."""
    for word in config.command[1:]:
        if os.path.isabs(word) and os.path.isdir(word):
            yield word


def _is_hidden(path: str) -> bool:
    real = os.path.realpath(path)
    return any(
        below(name, place) and name != place
        for name in (path, real)
        for place in REPLACED_DIRECTORIES
    )


def _paths_in(config: ServerConfig, path: str) -> Iterator[str]:
    if config.command and "/" not in config.command[0]:
        for directory in path.split(os.pathsep):
            program = os.path.join(directory, config.command[0])
            if os.path.isabs(directory) and os.access(program, os.X_OK):
                yield program
                break
    values = (value for _, value in config.environment)
    for word in (config.cwd, *config.command, *values):
        for text in (word, word.partition("=")[2], *word.split(os.pathsep)):
            if os.path.isabs(text) and os.path.exists(text):
                yield text


def _with_surroundings(path: str) -> Iterator[str]:
    """Yield the program or project that contains the path, also where links lead."""
    yield path if os.path.isdir(path) else _surroundings(path)
    with suppress(OSError):
        if (real := os.path.realpath(path)) != path and _is_hidden(real):
            yield real if os.path.isdir(real) else _surroundings(real)
    interpreter = os.path.join(os.path.dirname(path), "python")
    if os.path.islink(interpreter) and _is_hidden(real := os.path.realpath(interpreter)):
        yield _surroundings(real)


def _surroundings(file: str) -> str:
    """Return the outermost directory below /tmp and the like that holds the program."""
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
