"""Finds files in the workspace that git runs or reads because a setting names them.

Such settings are `core.hooksPath`, `include.path`, `core.attributesFile`, filters, aliases and
others that name programs. A command that can write a named file decides what git runs, as with
`.git/hooks`. Therefore `guarded_paths`, which finds the repositories, guards these files, too:
they are mounted read-only, compared after each command, and need approval to be changed.

All values of a setting count, and all conditions of `includeIf`, because a condition can become
true later. Files that a named program runs in turn are not found, except for the scripts that
husky's hooks start. git is not asked for its settings, because that would cost milliseconds
before each command; the tests compare our results with git's.

Two kinds of changes are not undone, and the result of a command mentions them once in a
session. A new file is left if only a changed setting names it: that change was undone, or the
user allowed it. A change in a guarded directory is left if no command can have made it, because
the directory was mounted read-only for all commands and still has the same inode.
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
_MAX_FOLLOWED_LINKS = 8  # from a path that a setting names
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
# husky's hooks run the script of the same name in the directory above
_HUSKY_DIRECTORY = "_"

_SECTION_HEADER = re.compile(
    r'\[([A-Za-z0-9.-]+)(?:[ \t\r\f\v]+"((?:[^"\\\n]|\\[^\n])*)")?\]'
)
_SETTING_NAME = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
_BLANK_OR_COMMENT = re.compile(r"(?:\s+|[#;][^\n]*)+")
_ESCAPE_VALUES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\", "\n": ""}
# A word of a command that can be a path, or the end of one.
_SHELL_WORD = re.compile(r"[^\s\"'`;|&()<>={},]+")
_VARIABLE_PREFIX = re.compile(r"\$\w*/|\$\{\w*\}/")


class Setting(Struct, frozen=True):
    """One git setting. `section` and `name` are in lower case.

    `value` is None for a line with only a name, which git takes as true.
    """

    section: str
    subsection: str
    name: str
    value: str | None

    @property
    def key(self) -> str:
        """The full name of the setting, as `git config --list` prints it."""
        return ".".join(filter(None, (self.section, self.subsection, self.name)))


class Repository(Struct, frozen=True):
    """A repository: its settings files, and the directories from which git starts programs."""

    configs: tuple[str, ...]
    tops: tuple[str, ...]


class GitTargets:
    """Finds the files in `roots` that git settings name.

    `user_files` are the user's settings files, which apply to all repositories, and `home` is
    what `~` means in them.
    """

    def __init__(self, roots: Sequence[str], home: str, user_files: Sequence[str]) -> None:
        self._roots, self._home, self._user_files = tuple(roots), home, tuple(user_files)
        # By file: its state, the time when it was read, and its settings.
        self._cache: dict[str, tuple[tuple[int, ...], int, tuple[Setting, ...]]] = {}

    def settings(self, config: str) -> Iterator[tuple[str, Setting]]:
        """Yield all settings in the file `config` and in the files that it includes.

        With each setting comes the file that contains it.
        """
        files_to_read, visited = [config], set[str]()
        while files_to_read and len(visited) < _MAX_INCLUDES:
            file = files_to_read.pop()
            if file in visited:
                continue
            visited.add(file)
            for setting in self._settings_of(file):
                yield file, setting
                if included := self.file_of_include(file, setting):
                    files_to_read.append(included)

    def file_of_include(self, file: str, setting: Setting) -> str:
        """Return the file that `setting` includes; "" if it is not an include.

        `file` is the settings file that contains `setting`.
        """
        if setting.section not in ("include", "includeif") or setting.name != "path":
            return ""
        return self._path(setting.value or "", os.path.dirname(file))

    def targets(self, repository: Repository) -> Iterator[tuple[str, str, bool]]:
        """Yield the existing workspace paths that settings of a repository name.

        Links that lead to them are yielded, too. With each path come the settings file that
        names it, and whether the setting is an include. After `_MAX_TARGETS` paths, no further
        settings are read.
        """
        count = 0
        for config in (*repository.configs, *self._user_files):
            for file, setting in self.settings(config):
                is_include = bool(self.file_of_include(file, setting))
                for path, is_certain in self._targets(file, setting, repository.tops):
                    if not is_certain and not os.path.isfile(path):
                        continue
                    for link_or_target in self._links_and_target(path):
                        yield link_or_target, file, is_include
                        count += 1
                if count > _MAX_TARGETS:
                    return

    def names(self, path: str, repository: Repository) -> bool:
        """Whether a setting of a repository names `path` or a directory above it.

        A directory does not count if the setting is a command. `path` is real and need not
        exist.
        """
        for config in (*repository.configs, *self._user_files):
            for file, setting in self.settings(config):
                for target, is_certain in self._targets(file, setting, repository.tops):
                    real = os.path.realpath(target)
                    if not any(below(real, root) for root in self._roots):
                        continue
                    if path == real or (is_certain and below(path, real)):
                        return True
        return False

    def worktrees(self, config: str) -> Iterator[str]:
        """Yield the directories that `core.worktree` names."""
        for file, setting in self.settings(config):
            if setting.key == "core.worktree" and setting.value:
                yield self._path(setting.value, os.path.dirname(file))

    def _settings_of(self, file: str) -> tuple[Setting, ...]:
        """Return the settings in a file, without those in included files; () if unreadable.

        The file is not read again if it has certainly not changed.
        """
        try:
            status = os.stat(file)
        except OSError:
            self._cache.pop(file, None)
            return ()
        state = (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size)
        if file in self._cache:
            cached_state, cached_ns, cached_settings = self._cache[file]
            is_settled = cached_ns > status.st_ctime_ns + _RACY_NANOSECONDS
            if is_settled and cached_state == state:
                return cached_settings
        read_ns = time.time_ns()
        settings = tuple[Setting, ...]()
        with suppress(OSError):
            data, size = read_regular(file, _MAX_CONFIG_BYTES)
            if size <= _MAX_CONFIG_BYTES:
                settings = tuple(parse_settings(data.decode(errors="surrogateescape")))
        self._cache[file] = (state, read_ns, settings)
        return settings

    def _targets(
        self, file: str, setting: Setting, tops: Sequence[str]
    ) -> Iterator[tuple[str, bool]]:
        """Yield the paths that `setting`, in `file`, may name, each with a bool.

        True means that the setting certainly names the path, with all below it. False means
        that the setting is a command, and one of its words could be the path.
        """
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
        """Yield the hooks directory, and scripts beside it that husky's hooks start.

        If the directory contains a checkout or a workspace root, it cannot be guarded as a
        whole: yield only the paths in it that have the names of hooks.
        """
        if any(below(top, directory) for top in (*tops, *self._roots)):
            yield from (f"{directory}/{name}" for name in _HOOK_NAMES.split())
            return
        yield directory
        above, directory_name = os.path.split(directory)
        if directory_name == _HUSKY_DIRECTORY:
            yield from (f"{above}/{name}" for name in _HOOK_NAMES.split())

    def _named_files(self, setting: Setting, top: str) -> Iterator[str]:
        """Yield the paths that the words of a command in `setting` may name.

        A relative path may start from `top`, or from a directory that another word names.
        """
        value = setting.value or ""
        if setting.section == "alias" and not value.startswith("!"):
            return  # the alias is a git command
        words = [word.lstrip("!") for word in _SHELL_WORD.findall(value)]
        if words and "/" not in words[0]:
            del words[0]  # git searches for this program in PATH
        paths = [self._path(_VARIABLE_PREFIX.sub("", word, count=1), top) for word in words]
        # A leading "/" may be the rest of `$(command)/path`.
        paths += [
            self._path(word.lstrip("/"), top) for word in words if word.startswith("/")
        ]
        folders = [path for path in paths if path != top and os.path.isdir(path)]
        paths += [self._path(word, folder) for folder in folders for word in words]
        yield from paths

    def _path(self, value: str, base: str) -> str:
        """Return the absolute path for `value`, which may begin with `~`.

        A relative path starts from `base`.
        """
        if value == "~" or value.startswith("~/"):
            value = self._home + value[1:]
        path, _, _ = value.partition("\0")  # the system ends a path there
        return os.path.normpath(os.path.join(base, path))

    def _links_and_target(self, path: str) -> Iterator[str]:
        """Yield each link that leads on from `path`, and the existing path at the end.

        Nothing outside the workspace is yielded or followed.
        """
        for _ in range(_MAX_FOLLOWED_LINKS):
            root = next((r for r in self._roots if path != r and below(path, r)), "")
            if not root:
                return
            first_link = next(filter(os.path.islink, _paths_from_root(path, root)), "")
            if not first_link:
                if os.path.lexists(path):
                    yield path
                return
            yield first_link
            tail = path[len(first_link) :].lstrip("/")
            path = os.path.normpath(os.path.join(os.path.realpath(first_link), tail))


def _paths_from_root(path: str, root: str) -> Iterator[str]:
    """Yield the paths below `root` that lead to `path`, from the shortest to `path` itself."""
    current = root
    for name in path[len(root) :].strip("/").split("/"):
        current = f"{current.rstrip('/')}/{name}"
        yield current


def user_settings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of the git settings files of the machine and of the user."""
    if own_file := environ.get("GIT_CONFIG_GLOBAL"):
        return ("/etc/gitconfig", own_file)
    home = environ.get("HOME", "")
    config_home = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return ("/etc/gitconfig", f"{config_home}/git/config", f"{home}/.gitconfig")


def parse_settings(text: str) -> Iterator[Setting]:
    """Yield the settings in the text of a git settings file, in their order.

    Stop at the first syntax error, because git refuses such a file.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section = subsection = ""
    offset = 0
    while True:
        if blank := _BLANK_OR_COMMENT.match(text, offset):
            offset = blank.end()
        if header := _SECTION_HEADER.match(text, offset):
            # A subsection is written as [section.subsection] or [section "subsection"].
            section, _, subsection = header[1].lower().partition(".")
            if header[2] is not None:
                unquoted = re.sub(r"\\(.)", r"\1", header[2])
                subsection = f"{subsection}.{unquoted}" if subsection else unquoted
            offset = header.end()
        elif name := _SETTING_NAME.match(text, offset):
            offset = name.end()
            value = None
            next_letter = text[offset : offset + 1]
            if next_letter == "=":
                value, offset = _value(text, offset + 1)
                if offset < 0:  # a syntax error in the value
                    return
            elif next_letter not in ("", "\n"):
                return
            yield Setting(section, subsection, name[1].lower(), value)
        else:
            return


def _value(text: str, offset: int) -> tuple[str, int]:
    """Parse the value at `offset`. Return it, and the offset after it; -1 for a syntax error."""
    letters = list[str]()
    is_quoted = False
    trimmed_length = 0  # of the value without the blanks at its end
    while offset < len(text) and (letter := text[offset]) != "\n":
        offset += 1
        if letter in "#;" and not is_quoted:  # a comment
            end = text.find("\n", offset)
            offset = len(text) if end < 0 else end
            break
        if letter == '"':
            is_quoted = not is_quoted
            trimmed_length = len(letters)
            continue
        if letter == "\\":
            escaped = text[offset : offset + 1]
            if escaped not in _ESCAPE_VALUES:
                return "", -1
            letter = _ESCAPE_VALUES[escaped]
            offset += 1
        elif letter.isspace() and not is_quoted:
            if letters:  # blanks at the beginning are left out
                letters.append(letter)
            continue
        letters.append(letter)
        trimmed_length = len(letters)
    if is_quoted:  # the closing quote is missing
        return "", -1
    return "".join(letters[:trimmed_length]), offset
