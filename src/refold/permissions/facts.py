"""What a call would access, the facts about the workspace, and which files are protected.

A decision depends on these alone; the caller collects them. Protected files hold secrets or decide
what runs, and are asked about in every mode. They are recognized by name, whether they exist or not:
`values.path_names` has the names, for the sandbox, too. `shell` finds out whether a command names
one.
"""

import re
from collections.abc import Callable, Sequence
from posixpath import join, normpath

from msgspec import Struct

from refold.values.modes import Verdict
from refold.values.path_names import KEYS_REASON, below, guard_reason
from refold.values.tools import Confinement, Effect

# Commands create these all the time, so no sandbox prevents it.
_KEY_FILES = r".+\.(?:pem|key|p12|pfx|ppk|kdbx|keystore|jks)"
_RUN_LATER = ("/.husky/", "/library/launchagents/")


class Target(Struct, frozen=True):
    """A file that a call names, and its real path: absolute, links followed."""

    path: str
    real: str


class Access(Struct, frozen=True):
    """What a call would do, as far as permission is concerned.

    `subject` is what the call is about if that is not a file: a command line, an address.
    With `command` it is a command line, whatever the tool is called.
    `cwd` is where a command runs, absolute; "" for the first root.
    """

    tool: str
    effect: Effect
    subject: str = ""
    files: tuple[Target, ...] = ()
    cwd: str = ""
    network: bool = False  # a command that needs the network
    hosts: tuple[str, ...] = ()  # the hosts that it names: patterns of `values.hosts`
    private: bool = False  # the host of a web address resolves to a private IP address
    command: bool = False


def normalize_path(path: str) -> str:
    """Normalize a path for file systems without links."""
    return normpath(join("/", path))


def no_urls() -> Sequence[str]:
    """The default of `Facts.git_urls`: no repository has a remote."""
    return ()


def no_part(paths: Sequence[str]) -> str:
    """The default of `Facts.bare_repository_part`: no directory is a repository."""
    return ""


def keep_all() -> None:
    """The default of `Facts.renew`: each path is resolved when it is asked for."""


class Facts(Struct, frozen=True):
    """The facts about the workspace that permissions depend on.

    `roots` are the directories of the workspace, absolute and with links resolved; relative
    paths start from the first. `own` are directories of refold's own: keys, settings,
    sessions. `follow` resolves a path: absolute, links and `..` followed; it need not
    exist. `renew` makes it forget what it has resolved before. With `sandboxed` a command can be kept from writing; then it may read and run
    what is in `shared`, which are directories in `own`. `trees` are directories in `own`,
    too, with files of the user. With `asks_after_outside_text`, a change is asked about once
    the model has `read_outside_text` that the user has not answered for. `bare_repository_part` names, of
    paths that a call writes, one by which git would run a program in a directory that is a
    repository, or becomes one by them, without being called `.git`; "" if there is none. `tracked_keys` names a file that git
    has, and that commands which run without asking do not see; "" if there is none. With
    `filters_hosts` a command can be kept to named hosts; `git_urls` are those of the remotes.
    """

    roots: tuple[str, ...] = ("/",)
    home: str = ""
    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    sandboxed: bool = False
    asks_after_outside_text: bool = False
    read_outside_text: bool = False
    follow: Callable[[str], str] = normalize_path
    renew: Callable[[], None] = keep_all
    bare_repository_part: Callable[[Sequence[str]], str] = no_part
    tracked_keys: Callable[[], str] = str
    filters_hosts: bool = False
    git_urls: Callable[[], Sequence[str]] = no_urls

    def outside(self, real: str) -> bool:
        """Whether this path, links followed, is outside of all roots."""
        return not any(below(real, root) for root in self.roots)


class Decision(Struct, frozen=True):
    """A verdict. `rule` in `source` decided, or, if that is "", the cause in `reason`.

    With `once`, the user may allow only this one call. `outside`: it asks because the model
    has read text from outside.
    """

    verdict: Verdict
    rule: str = ""
    source: str = ""
    reason: str = ""
    once: bool = False
    outside: bool = False
    confines: Confinement = Confinement()


def is_protected(path: str, facts: Facts, *, writes: bool) -> bool:
    """Whether every mode asks about this file. `path` is absolute."""
    theirs = any(below(path, tree) for tree in facts.trees)
    if not theirs and any(below(path, own) for own in facts.own):
        return True
    small = path.casefold()
    reason = guard_reason(path.split("/"))
    if reason == KEYS_REASON or re.fullmatch(_KEY_FILES, small.rpartition("/")[2]):
        return True
    if not writes:
        return False
    later = any(name in small + "/" for name in _RUN_LATER)
    return bool(reason) or later or bool(facts.bare_repository_part((path,)))
