"""Finds files that git runs or reads because one of its settings names them.

`core.hooksPath`, `include.path`, `core.attributesFile`, filters, aliases and other programs may be in
the workspace. Then their writer decides what git runs, as with `.git/hooks`. All values of
a setting count, and all conditions of `includeIf`: which of them holds can change. What
such a program runs in turn is not followed, except for the scripts that husky's hooks
start.

`guarded_paths` finds the repositories, and guards what is found here.

Targets are mounted, compared and asked about like `.git/hooks`. Asking git for its settings
would cost milliseconds before each command; git is the oracle of the tests instead. If a
setting changed, it is restored or the user allowed it, and what it began to name is not
moved. A guarded directory that was mounted read-only for every command, and still is the
same inode, was changed by the user: those changes stay, and the result says so once in a
session.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from refold.place.gitconfig import names_no_program
from refold.safe_open import read_regular
from refold.values.path_names import below

_MAX_CONFIG_BYTES = 256 * 1024
_MAX_INCLUDES = 64  # files read for one repository
_MAX_TARGETS = 200  # files and directories that settings name
_RACY_NANOSECONDS = 50_000_000  # a later change may leave the same time

# See githooks(5).
_HOOK_NAMES = """
    applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit
    prepare-commit-msg commit-msg post-commit pre-rebase post-checkout post-merge pre-push
    pre-receive update proc-receive post-receive post-update reference-transaction
    push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman
    p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change
"""
_OF_HUSKY = "_"  # its hooks run the script of the same name in the directory above

_SECTION_HEADER = re.compile(
    r'\[([A-Za-z0-9.-]+)(?:[ \t\r\f\v]+"((?:[^"\\\n]|\\[^\n])*)")?\]'
)
_SETTING_NAME = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
_BLANK_OR_COMMENT = re.compile(r"(?:\s+|[#;][^\n]*)+")
_ESCAPE_VALUES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\", "\n": ""}
# What can be a path, or the end of one, in a command.
_SHELL_WORD = re.compile(r"[^\s\"'`;|&()<>={},]+")
_VARIABLE_PREFIX = re.compile(r"\$\w*/|\$\{\w*\}/")


class Setting(Struct, frozen=True):
    """One setting: `section` and `name` are in lower case. `value` is None if it has none."""

    section: str
    subsection: str
    name: str
    value: str | None

    @property
    def key(self) -> str:
        """As `git config --list` prints it."""
        return ".".join(filter(None, (self.section, self.subsection, self.name)))


class Repository(Struct, frozen=True):
    """`configs` are its files of settings. Git starts programs in one of `tops`."""

    configs: tuple[str, ...]
    tops: tuple[str, ...]


class GitTargets:
    """`user_files` are the user's files of settings, which apply to each repository."""

    def __init__(self, roots: Sequence[str], home: str, user_files: Sequence[str]) -> None:
        self._roots, self._home, self._user_files = tuple(roots), home, tuple(user_files)
        self._read: dict[str, tuple[tuple[int, ...], int, tuple[Setting, ...]]] = {}

    def settings(self, config: str) -> Iterator[tuple[str, Setting]]:
        """Each setting with the file it is in. Included files are followed."""
        waiting, visited = [config], set[str]()
        while waiting and len(visited) < _MAX_INCLUDES:
            file = waiting.pop()
            if file in visited:
                continue
            visited.add(file)
            for setting in self._settings_of(file):
                yield file, setting
                if included := self.file_of_include(file, setting):
                    waiting.append(included)

    def file_of_include(self, file: str, setting: Setting) -> str:
        """The file that this setting includes; "" if it is none that includes one."""
        if setting.section not in ("include", "includeif") or setting.name != "path":
            return ""
        return self._path(setting.value or "", os.path.dirname(file))

    def targets(self, repository: Repository) -> Iterator[tuple[str, str, bool]]:
        """Existing files in the workspace that a setting names.

        Each with the settings file that names it, and whether that file includes it.
        """
        left = _MAX_TARGETS
        for config in (*repository.configs, *self._user_files):
            for file, setting in self.settings(config):
                includes = bool(self.file_of_include(file, setting))
                for path, whole in self._targets(file, setting, repository.tops):
                    if not whole and not os.path.isfile(path):
                        continue
                    for step in self._links_and_target(path):
                        yield step, file, includes
                        left -= 1
                if left < 0:
                    return

    def names(self, path: str, repository: Repository) -> bool:
        """Whether a setting names this path, or a directory of hooks that it is in.

        `path` need not exist. Links in it are followed.
        """
        return any(
            path == real or (whole and below(path, real))
            for config in (*repository.configs, *self._user_files)
            for file, setting in self.settings(config)
            for target, whole in self._targets(file, setting, repository.tops)
            if any(below(real := os.path.realpath(target), root) for root in self._roots)
        )

    def worktrees(self, config: str) -> Iterator[str]:
        """The directories that `core.worktree` names."""
        for file, setting in self.settings(config):
            if setting.key == "core.worktree" and setting.value:
                yield self._path(setting.value, os.path.dirname(file))

    def _settings_of(self, file: str) -> tuple[Setting, ...]:
        try:
            about = os.stat(file)
        except OSError:
            self._read.pop(file, None)
            return ()
        state = (about.st_dev, about.st_ino, about.st_ctime_ns, about.st_size)
        known = self._read.get(file)
        if known and known[0] == state and known[1] > about.st_ctime_ns + _RACY_NANOSECONDS:
            return known[2]
        looked, settings = time.time_ns(), tuple[Setting, ...]()
        with suppress(OSError):
            data, size = read_regular(file, _MAX_CONFIG_BYTES)
            if size <= _MAX_CONFIG_BYTES:
                settings = tuple(parse_settings(data.decode(errors="surrogateescape")))
        self._read[file] = (state, looked, settings)
        return settings

    def _targets(
        self, file: str, setting: Setting, tops: Sequence[str]
    ) -> Iterator[tuple[str, bool]]:
        """Paths that the setting may name. True: it certainly does, with all that is below."""
        if not setting.value:
            return
        if included := self.file_of_include(file, setting):
            yield included, True
        elif setting.key == "core.hookspath":
            for top in tops:
                hooks = self._hooks(self._path(setting.value, top), tops)
                yield from ((path, True) for path in hooks)
        elif setting.key == "core.attributesfile":
            yield from ((self._path(setting.value, top), True) for top in tops)
        elif not names_no_program(setting.section, setting.name, setting.value):
            for top in tops:
                yield from ((path, False) for path in self._named_files(setting, top))

    def _hooks(self, directory: str, tops: Sequence[str]) -> Iterator[str]:
        if any(below(top, directory) for top in (*tops, *self._roots)):
            yield from (f"{directory}/{name}" for name in _HOOK_NAMES.split())
            return
        yield directory
        above, name = os.path.split(directory)
        if name == _OF_HUSKY:
            yield from (f"{above}/{name}" for name in _HOOK_NAMES.split())

    def _named_files(self, setting: Setting, top: str) -> Iterator[str]:
        """Files that a command names, relative to `top` or to a directory that it names."""
        value = setting.value or ""
        if setting.section == "alias" and not value.startswith("!"):
            return  # an alias of a git command
        words = [word.lstrip("!") for word in _SHELL_WORD.findall(value)]
        if words and "/" not in words[0]:
            del words[0]  # searched for in PATH
        paths = [
            self._path(_VARIABLE_PREFIX.sub("", argument, count=1), top)
            for argument in words
        ]
        paths += [
            self._path(argument.lstrip("/"), top)
            for argument in words
            if argument[0:1] == "/"
        ]
        folders = [path for path in paths if path != top and os.path.isdir(path)]
        paths += [self._path(word, folder) for folder in folders for word in words]
        yield from paths

    def _path(self, value: str, base: str) -> str:
        if value == "~" or value.startswith("~/"):
            value = self._home + value[1:]
        return os.path.normpath(os.path.join(base, value.partition("\0")[0]))

    def _links_and_target(self, path: str) -> Iterator[str]:
        """The path with links followed, and the links on the way, within the workspace."""
        for _ in range(8):
            root = next((r for r in self._roots if path != r and below(path, r)), "")
            if not root:
                return
            link = next(filter(os.path.islink, _paths_from_root(path, root)), "")
            if not link:
                if os.path.lexists(path):
                    yield path
                return
            yield link
            tail = path[len(link) :].lstrip("/")
            path = os.path.normpath(os.path.join(os.path.realpath(link), tail))


def _paths_from_root(path: str, root: str) -> Iterator[str]:
    parent = root
    for name in path[len(root) :].strip("/").split("/"):
        parent = f"{parent.rstrip('/')}/{name}"
        yield parent


def user_settings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files in which git finds the settings of the user and of the machine."""
    home = environ.get("HOME", "")
    elsewhere = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    own = environ.get("GIT_CONFIG_GLOBAL")
    files = (own,) if own else (f"{elsewhere}/git/config", f"{home}/.gitconfig")
    return ("/etc/gitconfig", *files)


def parse_settings(text: str) -> Iterator[Setting]:
    """The settings of a file, up to a syntax error, for which git refuses the whole file."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section = subsection = ""
    offset = 0
    while True:
        if blank := _BLANK_OR_COMMENT.match(text, offset):
            offset = blank.end()
        if header := _SECTION_HEADER.match(text, offset):
            section, _, dotted = header[1].lower().partition(".")
            quoted = header[2]
            if quoted is not None:
                dotted += "." * bool(dotted) + re.sub(r"\\(.)", r"\1", quoted)
            subsection = dotted
            offset = header.end()
        elif name := _SETTING_NAME.match(text, offset):
            offset, value = name.end(), None
            if text[offset : offset + 1] == "=":
                value, offset = _value(text, offset + 1)
            elif text[offset : offset + 1] not in ("", "\n"):
                return
            if offset < 0:
                return
            yield Setting(section, subsection, name[1].lower(), value)
        else:
            return


def _value(text: str, offset: int) -> tuple[str, int]:
    """A value and its end; -1 for a syntax error."""
    letters, length, quoted = list[str](), 0, False
    while offset < len(text) and (letter := text[offset]) != "\n":
        offset += 1
        if letter in "#;" and not quoted:
            end = text.find("\n", offset)
            offset = len(text) if end < 0 else end
            break
        if letter == '"':
            quoted = not quoted
            length = len(letters)
            continue
        if letter == "\\":
            if text[offset : offset + 1] not in _ESCAPE_VALUES:
                return "", -1
            letter, offset = _ESCAPE_VALUES[text[offset]], offset + 1
        elif letter.isspace() and not quoted:
            letters += letter if letters else ""
            continue
        letters += letter
        length = len(letters)
    return "".join(letters[:length]), -1 if quoted else offset
