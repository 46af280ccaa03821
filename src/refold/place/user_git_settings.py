"""The harmless part of the user's settings for git, for commands that do not see the home.

Without it a commit has no author, and files that the user ignores everywhere are added. Only listed
settings are passed on: none names a program, a file or a remote, and none signs, because the key
cannot be reached. git reads the files, so what they include counts, also by condition. What they
contain is written to a copy, which a sandbox shows in their place.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

from refold import programs
from refold.place.gitconfig import names_no_program
from refold.place.ignore_rules import excludes_of_user, git_folder, usual_excludes_file

_GIT_SECONDS = 10.0  # for git to list the settings of a file
_MAX_SETTINGS = 1000
_DISPLAY_SECTIONS = ("advice", "color", "column", "diff", "log", "status")
_HARMLESS_SETTINGS = frozenset(
    [
        "user.name",
        "user.email",
        "user.useconfigonly",
        "author.name",
        "author.email",
        "committer.name",
        "committer.email",
        "apply.whitespace",
        "branch.autosetupmerge",
        "branch.autosetuprebase",
        "branch.sort",
        "commit.cleanup",
        "commit.status",
        "commit.verbose",
        "core.abbrev",
        "core.autocrlf",
        "core.commentchar",
        "core.commentstring",
        "core.eol",
        "core.precomposeunicode",
        "core.quotepath",
        "core.safecrlf",
        "core.whitespace",
        "fetch.prune",
        "fetch.prunetags",
        "i18n.commitencoding",
        "i18n.logoutputencoding",
        "init.defaultbranch",
        "merge.conflictstyle",
        "merge.ff",
        "merge.log",
        "merge.renames",
        "merge.stat",
        "pull.ff",
        "pull.rebase",
        "push.autosetupremote",
        "push.default",
        "push.followtags",
        "rebase.abbreviatecommands",
        "rebase.autosquash",
        "rebase.autostash",
        "rebase.stat",
        "rebase.updaterefs",
        "rerere.autoupdate",
        "rerere.enabled",
        "safe.barerepository",
        "safe.directory",
        "stash.showpatch",
        "stash.showstat",
        "tag.sort",
        "versionsort.suffix",
    ]
)


class UserGitSettings:
    """`root` is the workspace, for settings that are included for some repositories only."""

    def __init__(self, environ: Mapping[str, str], home: str, root: str) -> None:
        self._environ, self._home, self._root = environ, home, root
        self._known: tuple[object, Sequence[tuple[str, bytes]]] = (None, ())
        self._origins = frozenset[str]()  # the files that the settings stand in

    def files(self, git: str, private: str) -> Iterator[tuple[str, str]]:
        """Paths in the home, and the copies in `private` that are shown there.

        `git` is the program; "" if there is none.
        """
        for path, content in self._contents(git) if git and self._home else ():
            copy = os.path.join(private, f"git-{sha256(content).hexdigest()}")
            with suppress(FileExistsError), open(copy, "xb") as file:
                file.write(content)
            yield path, copy

    def _contents(self, git: str) -> Sequence[tuple[str, bytes]]:
        known, contents = self._known
        if known is not None and known == self._state():
            return contents
        try:
            listed = [
                pair
                for path in self._settings_files()
                for pair in self._list_settings(git, path)
            ]
        except (OSError, programs.TimedOut):
            return ()  # and the next command tries again
        self._origins = frozenset(origin for origin, _ in listed)
        state = self._state()
        text = "".join(
            _to_settings_text(setting) for _, setting in listed if _is_harmless(setting)
        )
        excludes = excludes_of_user(self._environ, git)
        pairs = (
            (f"{self._home}/.gitconfig", text.encode(errors="surrogateescape")),
            (usual_excludes_file({**self._environ, "HOME": self._home}), excludes),
        )
        contents = tuple((path, content) for path, content in pairs if path and content)
        self._known = state, contents
        return contents

    def _settings_files(self) -> Sequence[str]:
        folder = self._environ.get("XDG_CONFIG_HOME") or f"{self._home}/.config"
        return (f"{folder}/git/config", f"{self._home}/.gitconfig")

    def _list_settings(self, git: str, path: str) -> Iterator[tuple[str, str]]:
        """Each setting of a file, after the file that it stands in. Raises as `programs.run`."""
        if not os.path.isfile(path):
            return
        # The repository is named for conditions; its own settings are not listed.
        environ = {"HOME": self._home, "LC_ALL": "C", "GIT_DIR": git_folder(self._root)}
        passed = ("PATH", "XDG_CONFIG_HOME")
        environ |= {name: self._environ[name] for name in passed if name in self._environ}
        words = (
            git,
            "config",
            "--file",
            path,
            "--includes",
            "--show-origin",
            "-z",
            "--list",
        )
        result = programs.run(words, cwd="/", env=environ, seconds=_GIT_SECONDS)
        fields = os.fsdecode(result.stdout).split("\0")[: 2 * _MAX_SETTINGS]
        if result.returncode == 0:
            yield from zip(fields[::2], fields[1::2], strict=False)

    def _state(self) -> object:
        origins = (origin.removeprefix("file:") for origin in self._origins)
        return [_stamp(p) for p in sorted({*origins, *self._settings_files()})]


def _stamp(path: str) -> tuple[str, int, int, int]:
    try:
        stat = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _is_harmless(setting: str) -> bool:
    """`setting` is a name and, on the lines after it, its value."""
    key, _, value = setting.partition("\n")
    section, _, name = key.partition(".")
    if not value.replace("\t", " ").isprintable():
        return False
    return key in _HARMLESS_SETTINGS or (
        section in _DISPLAY_SECTIONS
        and name.replace("-", "").isalnum()
        and (section == "advice" or names_no_program(section, name, value))
    )


def _to_settings_text(setting: str) -> str:
    key, has_value, value = setting.partition("\n")
    section, _, name = key.partition(".")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f"[{section}]\n\t{name}" + (f' = "{escaped}"\n' if has_value else "\n")
