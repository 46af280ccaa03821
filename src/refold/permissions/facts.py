"""Defines what permission decisions depend on: the access of a call, and facts about the
workspace.

It also recognizes protected files, which hold secrets or decide what runs, and need approval in
every mode. They are recognized by name, even if they do not exist. `values.path_names` has the
names, which the sandbox uses as well. The caller collects the facts; the package `shell` finds
the files that a command names.
"""

import re
from collections.abc import Callable, Sequence
from posixpath import join, normpath

from msgspec import Struct

from refold.values.modes import Verdict
from refold.values.path_names import KEYS_REASON, below, guard_reason
from refold.values.tools import Confinement, Effect

# Names of files with private keys and certificates.
_KEY_FILES = r".+\.(?:pem|key|p12|pfx|ppk|kdbx|keystore|jks)"
# Folders whose files other programs run later.
_RUN_LATER = ("/.husky/", "/library/launchagents/")


class Target(Struct, frozen=True):
    """A file that a call names. `real` is its absolute path, with links resolved."""

    path: str
    real: str


class Access(Struct, frozen=True):
    """What a call would access.

    `subject` is what the call is about if that is not a file, such as an address. If `command`
    is set, it is a command line, whatever the tool is called. `cwd` is the absolute path of the
    directory in which a command runs; "" means the first root.
    """

    tool: str
    effect: Effect
    subject: str = ""
    files: tuple[Target, ...] = ()
    cwd: str = ""
    network: bool = False  # the command needs the network
    hosts: tuple[str, ...] = ()  # the hosts that the call names: patterns of `values.hosts`
    private: bool = False  # the host of a web address resolves to a private IP address
    command: bool = False


def normalize_path(path: str) -> str:
    """Return the absolute path without `.`, `..` and double slashes. Links are not resolved."""
    return normpath(join("/", path))


def no_urls() -> Sequence[str]:
    """Return no URLs. This is the default of `Facts.git_urls`."""
    return ()


def no_part(paths: Sequence[str]) -> str:
    """Return "": no path is part of a repository.

    This is the default of `Facts.bare_repository_part`.
    """
    return ""


def keep_all() -> None:
    """Do nothing: the default of `Facts.renew`, for a `follow` that remembers nothing."""


class Facts(Struct, frozen=True):
    """The facts about the workspace that permissions depend on.

    `roots` are the directories of the workspace, absolute and with links resolved. Relative
    paths start from the first. `movable_root` is a directory that other workers of a cluster
    have under other paths. `own` are refold's own directories, with keys, settings and
    sessions. Parts of these directories are `shared`, which sandboxed commands may read and
    run, and `trees`, which have files of the user. `follow` makes a path absolute and resolves
    `..` and links, even if no file exists there. It may remember results, which `renew`
    discards.

    If `sandboxed`, a command can be prevented from writing. If `filters_hosts`, it can be
    prevented from reaching unnamed hosts. `git_urls` returns the URLs of the git remotes.
    `read_outside_text`: the model has read text from outside, and the user has sent nothing
    since. If `asks_after_outside_text`, the user is then asked about changes.

    git runs programs that the files of a repository name, and some files make any directory a
    repository. `bare_repository_part` gets the paths that a call writes, and returns one of
    these files, or "". `tracked_keys` returns a file with secret keys that git tracks, or "".
    Commands that run without asking do not see this file.
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
    movable_root: str = ""

    def outside(self, real: str) -> bool:
        """Whether a path, with links resolved, is outside of all roots."""
        return not any(below(real, root) for root in self.roots)


class Decision(Struct, frozen=True):
    """Whether a call may run, and why.

    `rule` is the rule that decided, and `source` says where it is defined. If no rule decided,
    `rule` is "" and `reason` says why. `once`: the user may allow only this one call.
    `outside`: the user is asked because the model has read text from outside.
    """

    verdict: Verdict
    rule: str = ""
    source: str = ""
    reason: str = ""
    once: bool = False
    outside: bool = False
    confines: Confinement = Confinement()


def is_protected(path: str, facts: Facts, *, writes: bool) -> bool:
    """Whether access to the file at this absolute path needs approval in every mode.

    Access to refold's own files and to files with keys always needs approval. If the call
    `writes` the file, access to files that decide what runs later needs approval, too.
    """
    is_users_file = any(below(path, tree) for tree in facts.trees)
    if not is_users_file and any(below(path, own) for own in facts.own):
        return True
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    guard = guard_reason(path.split("/"))
    if guard == KEYS_REASON or re.fullmatch(_KEY_FILES, name):
        return True
    if not writes:
        return False
    if guard or any(folder in folded + "/" for folder in _RUN_LATER):
        return True
    return bool(facts.bare_repository_part((path,)))
