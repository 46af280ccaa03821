"""Copies the harmless part of the user's git settings, for commands that do not see the home.

Without these settings a commit has no author, and files that the user ignores everywhere are
added. Only settings on a list are copied: none of them names a program, a file or a remote. New
versions of git add settings that run programs, so a list of settings to leave out would not
suffice. Settings for signing are copied only if commands can use the key (`signing_agent`).

git itself reads the settings, so included files count, also conditional ones. The sandbox shows
the copy in place of the originals. Variables would not do: they override the settings of the
repository, for example an e-mail address for this project.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from refold import programs
from refold.place.gitconfig import names_no_program
from refold.place.ignore_rules import excludes_of_user, git_folder, usual_excludes_file
from refold.place.sandbox_rules import SOCKET_PATH

if TYPE_CHECKING:
    from refold.place.signing_agent import SigningAgent

_GIT_SECONDS = 10.0  # for git to list the settings of a file
_MAX_SETTINGS = 1000
_MAX_KEY_CHARS = 16_384  # the size of a public key file
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
_SIGNING_SETTINGS = frozenset(
    [
        "commit.gpgsign",
        "gpg.format",
        "tag.forcesignannotated",
        "tag.gpgsign",
        "user.signingkey",
    ]
)


class SigningKey(Struct, frozen=True):
    """The public key that signs the user's commits. `content` is b"" if there is none.

    `path` is the file of the key, or "".
    """

    content: bytes
    path: str = ""

    @property
    def line(self) -> bytes:
        """The key as a line of a public key file."""
        kind_length = int.from_bytes(self.content[:4], "big")
        kind = self.content[4 : 4 + kind_length]
        return kind + b" " + b64encode(self.content) + b"\n"


class UserGitSettings:
    """The user's git settings that commands in the workspace `root` get.

    `root` decides about conditional includes. `agent` is the socket of the ssh-agent with which
    commands may sign; "" means that they may not.
    """

    def __init__(
        self, environ: Mapping[str, str], home: str, root: str, agent: str = ""
    ) -> None:
        self._environ, self._home, self._root = environ, home, root
        self._agent = agent
        self._key = SigningKey(b"")  # found by `_contents`
        self._signing: SigningAgent | None = None
        self._lock = Lock()
        # What `_state` was when the contents were made (None: never), and the contents.
        self._known: tuple[object, Sequence[tuple[str, bytes]]] = (None, ())
        self._origins = frozenset[str]()  # the files that contain the settings

    def files(self, git: str, private: str) -> Iterator[tuple[str, str]]:
        """Yield paths in the home, each with the file in `private` to show there.

        `git` is the path of the program. If it is "", because git is not installed, nothing is
        yielded.
        """
        if git and self._home:
            yield from _copies(private, self._contents(git))

    def signing_files(self, git: str, private: str) -> tuple[tuple[str, str], ...]:
        """Return the paths that signing needs, each with refold's path to show there.

        They are the agent's socket and the public key file, if there is one; () if commands
        cannot sign. The first call starts the `SigningAgent`.
        """
        if not (git and self._home):
            return ()
        self._contents(git)  # finds the key
        key = self._key
        if not key.content:
            return ()
        from refold.place.signing_agent import SigningAgent

        with self._lock:
            if self._signing is None:
                path = os.path.join(private, "agent")
                self._signing = SigningAgent(self._agent, path)
        self._signing.key = key.content
        socket = (SOCKET_PATH, self._signing.path)
        if not key.path:
            return (socket,)
        return (socket, *_copies(private, [(key.path, key.line)]))

    def close(self) -> None:
        """Close the agent that signs for commands, if one was started."""
        if self._signing is not None:
            self._signing.close()
            self._signing = None

    def _contents(self, git: str) -> Sequence[tuple[str, bytes]]:
        """Return the paths and contents of the settings files to show.

        The contents are made again only if the user's settings have changed.
        """
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
            return ()  # the next command tries again
        self._origins = frozenset(origin for origin, _ in listed)
        state = self._state()
        settings = [setting for _, setting in listed]
        if self._agent:
            self._key = _find_signing_key(settings, self._home)
        can_sign = bool(self._key.content)
        text = "".join(
            _to_settings_text(setting)
            for setting in settings
            if _is_harmless(setting) or (can_sign and _is_signing(setting))
        )
        excludes = excludes_of_user(self._environ, git)
        excludes_path = usual_excludes_file({**self._environ, "HOME": self._home})
        files = (
            (f"{self._home}/.gitconfig", text.encode(errors="surrogateescape")),
            (excludes_path, excludes),
        )
        contents = tuple((path, content) for path, content in files if path and content)
        self._known = state, contents
        return contents

    def _settings_files(self) -> Sequence[str]:
        folder = self._environ.get("XDG_CONFIG_HOME") or f"{self._home}/.config"
        return (f"{folder}/git/config", f"{self._home}/.gitconfig")

    def _list_settings(self, git: str, path: str) -> Iterator[tuple[str, str]]:
        """Yield each setting that counts in the file `path`, with the file that contains it.

        Settings in included files count, too. Raises what `programs.run` raises.
        """
        if not os.path.isfile(path):
            return
        # The repository is named for conditional includes; its own settings are not listed.
        environ = {"HOME": self._home, "LC_ALL": "C", "GIT_DIR": git_folder(self._root)}
        passed = ("PATH", "XDG_CONFIG_HOME")
        environ |= {name: self._environ[name] for name in passed if name in self._environ}
        options = ("--includes", "--show-origin", "-z", "--list")
        words = (git, "config", "--file", path, *options)
        result = programs.run(words, cwd="/", env=environ, seconds=_GIT_SECONDS)
        # The file that contains a setting, and the setting, in turn.
        fields = os.fsdecode(result.stdout).split("\0")[: 2 * _MAX_SETTINGS]
        if result.returncode == 0:
            yield from zip(fields[::2], fields[1::2], strict=False)

    def _state(self) -> object:
        origins = (origin.removeprefix("file:") for origin in self._origins)
        return [_stamp(p) for p in sorted({*origins, *self._settings_files()})]


def _copies(
    private: str, contents: Sequence[tuple[str, bytes]]
) -> Iterator[tuple[str, str]]:
    """Write each content to a file in `private`.

    Yield the path that the content is for, and the file.
    """
    for path, content in contents:
        copy = os.path.join(private, f"git-{sha256(content).hexdigest()}")
        with suppress(FileExistsError), open(copy, "xb") as file:
            file.write(content)
        yield path, copy


def _stamp(path: str) -> tuple[str, int, int, int]:
    """Return values that change with the file; zeros if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, status.st_ino, status.st_size, status.st_mtime_ns


def _is_harmless(setting: str) -> bool:
    """Whether `setting`, which is a name, a line end and a value, may be copied."""
    key, _, value = setting.partition("\n")
    section, _, name = key.partition(".")
    if not _is_printable(setting):
        return False
    if key in _HARMLESS_SETTINGS:
        return True
    if section not in _DISPLAY_SECTIONS or not name.replace("-", "").isalnum():
        return False
    return section == "advice" or names_no_program(section, name, value)


def _is_signing(setting: str) -> bool:
    return setting.partition("\n")[0] in _SIGNING_SETTINGS and _is_printable(setting)


def _is_printable(setting: str) -> bool:
    return setting.partition("\n")[2].replace("\t", " ").isprintable()


def _find_signing_key(settings: Sequence[str], home: str) -> SigningKey:
    """Return the SSH key that the settings name. Of a key file, only the public part is read.

    If the settings name no key, the content of the result is b"".
    """
    values = dict[str, str]()
    for setting in settings:
        name, _, value = setting.partition("\n")
        values[name] = value
    key_setting = values.get("user.signingkey", "")
    if values.get("gpg.format") != "ssh" or not key_setting:
        return SigningKey(b"")
    literal = key_setting.removeprefix("key::")
    _, _, content_in_setting = literal.partition(" ")
    if content_in_setting:  # the setting is the key itself, not the path of a file
        return SigningKey(_public_key(literal))
    key_path = key_setting
    if key_setting.startswith("~/"):
        key_path = home + key_setting.removeprefix("~")
    public_path = key_path if key_path.endswith(".pub") else f"{key_path}.pub"
    folder, name = os.path.split(public_path)
    try:
        with open(public_path, encoding="ascii") as file:
            content = _public_key(file.read(_MAX_KEY_CHARS))
    except (OSError, ValueError):
        return SigningKey(b"")
    return SigningKey(content, os.path.join(os.path.realpath(folder), name))


def _public_key(text: str) -> bytes:
    """Return the key in a line of a public key file, as agents write it; b"" if invalid."""
    kind, _, rest = text.strip().partition(" ")
    try:
        content = b64decode(rest.partition(" ")[0], validate=True)
    except ValueError:
        return b""
    header = len(kind).to_bytes(4, "big") + kind.encode(errors="replace")
    return content if content.startswith(header) else b""


def _to_settings_text(setting: str) -> str:
    """Return a setting, whose name and value a line end separates, as lines of a file."""
    key, line_end, value = setting.partition("\n")
    section, _, name = key.partition(".")
    line = name
    if line_end:  # a setting without a value has none
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        line = f'{name} = "{escaped}"'
    return f"[{section}]\n\t{line}\n"
