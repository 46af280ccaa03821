"""The arguments of bubblewrap for a command, and the check that they took effect.

The whole disk is visible and read-only, or, if "/" itself is masked, empty except for the
visible paths. Then some paths are masked and some opened, from the root downwards, so that
the deeper path wins. `sandbox_rules` decides which paths are masked or opened. See
bwrap(1).

bubblewrap mounts by path, and another command can exchange a directory and a link between
the moment a path is resolved and the moment it is mounted. So the mounts of the waiting
process are compared with what was intended before its command starts.

A file with keys is masked by a regular file with one line. git does not accept a device as
a file, so `git diff` failed where a `.env` was tracked; a model takes an empty file for the
real content.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

from refold import programs
from refold.place.mountinfo import Mount, mounts
from refold.place.sandbox_rules import REPLACED_DIRECTORIES, SandboxRules
from refold.values.path_names import below

# What a command that runs as root needs for tar, npm and the like, and no more.
_OF_ROOT = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL",
)  # fmt: skip
# In the private directory of a session: directories, then files with their content. The
# last replaces a file with keys: git would not accept a device as a file.
_TMP, _VAR, _EMPTY, _NOTHING, _KEPT = "tmp", "var", "empty", "nothing", "kept"
_KEPT_CONTENT = b"# Commands that run without asking do not see this file: by its name, it holds keys.\n"
_MOST_GUARDS = 400  # more would make starting too slow

_TRIAL_SECONDS = 10.0  # for a trial that usually takes milliseconds

_PIN, _SHUT, _COVER = 2, 3, 4  # the order of mounts of the same depth

_Mount: TypeAlias = tuple[int, int, str, *tuple[str, ...]]


class MountPlan:
    """What bubblewrap is to mount for one command, in this order."""

    def __init__(self, rules: SandboxRules) -> None:
        self._rules = rules
        self._mounts = sorted(_mounts(rules), key=lambda each: each[:2])

    def arguments(self, bwrap: str) -> list[str]:
        """The command line of bubblewrap, without the status descriptor and the command."""
        rules, words = self._rules, [bwrap]
        for _, _, *mount in self._mounts:
            words += mount
        bare = "/" in rules.covered
        for path, target in rules.links if bare else ():
            words += ["--symlink", target, path]
        # Only now: mount points had to be created in them first.
        for path in (
            *(("/",) if bare else ()),
            *(("/tmp",) if rules.looking and not rules.own_tmp else ()),
            # Root could write the files of the kernel, although it is root only inside.
            *(("/proc",) if rules.root else ()),
        ):
            words += ["--remount-ro", path]
        words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        words += [] if rules.network else ["--unshare-net"]
        words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        for name in _OF_ROOT if rules.root else ():
            words += ["--cap-add", f"CAP_{name}"]
        return [*words, "--chdir", rules.cwd]

    def prepare_mount_check(self) -> Callable[[int], str]:
        """A function that reports which mounts of the waiting first process are wrong.

        It returns "" if all are right. bubblewrap mounts by path, and another program may
        have put a link in the way since the path was resolved. Everything that can be
        prepared before the mounts exist is done now.
        """
        rules, expected, exact = self._rules, set[str](), list[tuple[str, bool]]()
        free = {"/tmp", "/var/tmp", "/run", *rules.open, *rules.covered}
        covers = {*rules.covered, *rules.hidden, *rules.unread, *rules.denied}
        for _, turn, word, *rest in self._mounts:
            path = rest[-1]
            if word in ("--bind", "--bind-try"):
                free.add(path)
            if turn in (_PIN, _SHUT) and not any(below(path, cover) for cover in covers):
                # What is read-only here is read-only inside, too.
                exact.append((path, word.startswith("--bind") and not _is_read_only(path)))
            elif turn == _COVER:
                expected.add(path)
        changing = (*rules.open, "/dev", *(() if rules.root else ("/proc",)))

        def _find_misplaced(first: int) -> str:
            try:
                mounted = {mount.path: mount for mount in mounts(first)}
                directory = os.readlink(f"/proc/{first}/cwd")
            except OSError:
                return ""  # it has ended: what it printed says why
            stands = (
                directory == rules.cwd
                and expected <= mounted.keys()
                and all(
                    _is_mounted_as_planned(path, mounted, writable=w) for path, w in exact
                )
                and not any(
                    mount.writable
                    and path not in free
                    and not any(below(path, place) for place in changing)
                    and not _is_closed_by_another_user(path)
                    for path, mount in mounted.items()
                )
            )
            return "" if stands else "what lies in the workspace was renamed meanwhile"

        return _find_misplaced

    def shows_current_files(self, first: int) -> bool:
        """Whether the files that are mounted for this process are the current ones.

        A file that was replaced after it was mounted is another file under the same name.
        """
        binds = {
            words[-1]: words[-2] for _, _, *words in self._mounts if "bind" in words[0]
        }
        return all(
            _is_same_file(source, f"/proc/{first}/root{path}")
            for path, source in binds.items()
        )


def _is_read_only(path: str) -> bool:
    """Whether the path is on a file system that is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _is_closed_by_another_user(path: str) -> bool:
    """Whether a directory above the path that we may not open keeps us from it.

    Mounts there stay writable, because bubblewrap cannot remount what it cannot reach: those of
    containers that root runs, below /var/lib. A command cannot reach them either.
    """
    try:
        os.stat(path)
    except PermissionError:
        for above in _directories_above(path):
            try:
                return os.stat(above).st_uid != os.geteuid()
            except PermissionError:
                continue
    except OSError:
        pass
    return False


def _is_same_file(path: str, inside: str) -> bool:
    try:
        outer, inner = os.lstat(path), os.lstat(inside)
    except OSError:
        return not os.path.lexists(path) and not os.path.lexists(inside)
    return os.path.samestat(outer, inner)


def _is_mounted_as_planned(
    path: str, mounts_by_path: Mapping[str, Mount], *, writable: bool
) -> bool:
    """Whether what is mounted at `path` is what the disk has there."""
    mount = mounts_by_path.get(path)
    if mount is None:
        return not os.path.lexists(path)
    around: str = next(p for p in _directories_above(path) if p in mounts_by_path)
    base = mounts_by_path[around]
    inside = os.path.normpath(os.path.join(base.inside, os.path.relpath(path, around)))
    same = (mount.device, mount.inside) == (base.device, inside)
    return same and mount.writable == writable


def _directories_above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def tmp_directory(private: str) -> str:
    """The directory that a command sees as /tmp."""
    return os.path.join(private, _TMP)


def fill_private_directory(private: str) -> None:
    """Create what mounts need in the private directory of a session."""
    for name in (_TMP, _VAR, _EMPTY):
        os.makedirs(os.path.join(private, name), exist_ok=True)
    for name, content in ((_NOTHING, b""), (_KEPT, _KEPT_CONTENT)):
        with open(os.path.join(private, name), "wb") as file:
            file.write(content)


def tmpfs_directories(rules: SandboxRules) -> tuple[str, ...]:
    """Directories of a command that are in memory, without the first slash."""
    own = (("tmp",) if rules.own_tmp else (), ("var/tmp",) if rules.looking else ())
    return ("dev", "run", *chain.from_iterable(own))


def temporary_directory(rules: SandboxRules) -> str:
    """The directory for a command's temporary files."""
    return "/var/tmp" if rules.looking else "/tmp"


def _mounts(rules: SandboxRules) -> Iterator[_Mount]:
    """Each mount with its depth and its order among mounts of the same depth."""
    yield from _disk_mounts(rules)
    yield from _cover_mounts(rules)
    for path in rules.seen:
        yield _depth(path), 1, "--ro-bind-try", path, path
    for path in rules.roots:
        word = "--bind" if path in rules.open else "--ro-bind"
        yield _depth(path), 1, word, path, path
    for path in rules.open:
        if path not in rules.roots:
            yield _depth(path), 1, "--bind-try", path, path
    unread = frozenset((*rules.unread, *rules.denied))
    shut = read_only_paths(rules)
    still = _denied_and_renamable(
        rules, unread.union(shut, rules.covered, REPLACED_DIRECTORIES)
    )
    for path in (
        *_directories_to_pin(shut, rules)[:_MOST_GUARDS],
        *_directories_to_pin(still, rules)[:_MOST_GUARDS],
    ):
        yield _depth(path), _PIN, "--bind-try", path, path
    for path in shut:
        yield _depth(path), _SHUT, "--ro-bind-try", path, path
    for path, ours in (*rules.instead, *_hidden_settings(rules)):
        yield _depth(path), _COVER, "--ro-bind", ours, path


def _hidden_settings(rules: SandboxRules) -> Iterator[tuple[str, str]]:
    """The settings whose own files the command does not see."""
    covered, shown = {*REPLACED_DIRECTORIES, *rules.covered}, _visible_paths(rules)
    return (
        (path, ours)
        for path, ours in rules.settings
        if not _is_visible(path, covered, shown)
    )


def read_only_paths(rules: SandboxRules) -> list[str]:
    """Paths that are mounted read-only over the workspace, up to `_MOST_GUARDS`."""
    unread = frozenset((*rules.unread, *rules.denied))
    return [path for path in rules.shut if not _is_below_covered(path, unread)][
        :_MOST_GUARDS
    ]


def _disk_mounts(rules: SandboxRules) -> Iterator[_Mount]:
    if "/" not in rules.covered:
        yield 0, 0, "--ro-bind", "/", "/"
    yield _depth("/dev"), 0, "--dev", "/dev"
    yield _depth("/proc"), 0, "--proc", "/proc"
    # A process that writes the memory of the first process, bubblewrap, could survive us.
    empty = os.path.join(rules.private, _EMPTY)
    for path, blank in (("/proc/1/mem", "/dev/null"), ("/proc/1/task", empty)):
        yield _depth(path), 0, "--ro-bind", blank, path


def _cover_mounts(rules: SandboxRules) -> Iterator[_Mount]:
    covered, shown = {*REPLACED_DIRECTORIES, *rules.covered}, _visible_paths(rules)
    parts = (_VAR, _EMPTY, _NOTHING, _KEPT)
    var, empty, nothing, private = (os.path.join(rules.private, name) for name in parts)
    shared = ("--tmpfs",) if rules.own_tmp else ("--bind", tmp_directory(rules.private))
    yield _depth("/tmp"), 0, *shared, "/tmp"
    ours = ("--tmpfs",) if rules.looking else ("--bind", var)
    yield _depth("/var/tmp"), 0, *ours, "/var/tmp"
    yield _depth("/run"), 0, "--tmpfs", "/run"
    for path in rules.covered:
        if path == "/":
            continue
        if _is_visible(os.path.dirname(path), covered, shown):
            # What is shown inside a covered directory needs a place to be mounted.
            inside = (*shown, *(hidden for hidden, _ in _hidden_settings(rules)))
            is_parent = any(inner.startswith(path + "/") for inner in inside)
            words = ("--tmpfs", path) if is_parent else ("--ro-bind", empty, path)
            # A guarded directory that is also covered is mounted last: covering hides it, too.
            yield _depth(path), _COVER, words[0], *words[1:]
    unread = dict.fromkeys((*rules.unread, *rules.denied))
    # A socket is covered like what a rule denies; a file with keys must be a file for git.
    keys = [p for p in rules.unread if p not in rules.denied and os.path.isfile(p)]
    blanks = {**dict.fromkeys(rules.hidden, nothing), **dict.fromkeys(unread, "/dev/null")}
    for path, blank in {**blanks, **dict.fromkeys(keys, private)}.items():
        if _is_visible(path, covered, shown) and not _is_below_covered(path, unread.keys()):
            cover = empty if os.path.isdir(path) else blank
            yield _depth(path), _COVER, "--ro-bind", cover, path


def _visible_paths(rules: SandboxRules) -> set[str]:
    disk = () if "/" in rules.covered else ("/",)
    return {*disk, *rules.roots, *rules.seen, *rules.open}


def _is_below_covered(path: str, covered_paths: Set[str]) -> bool:
    """Whether `path` is in a directory that is covered as a whole: no mount is possible there."""
    return not _is_visible(os.path.dirname(path), covered_paths, {"/"})


def _denied_and_renamable(rules: SandboxRules, covered_paths: Set[str]) -> list[str]:
    """Denied paths that a command could reach by renaming a directory above them."""
    shown = _visible_paths(rules)
    return [
        path
        for path in rules.denied
        if any(below(path, root) for root in rules.open)
        and _is_visible(os.path.dirname(path), covered_paths, shown)
    ]


def _directories_to_pin(protected_paths: Sequence[str], rules: SandboxRules) -> list[str]:
    """Directories above shut paths: a mount point cannot be renamed."""
    pins = dict[str, None]()
    for path in protected_paths:
        above = os.path.dirname(path)
        while above not in rules.open and above != "/":
            pins[above] = None
            above = os.path.dirname(above)
    return list(pins)


def _is_visible(path: str, covered_paths: Set[str], visible_paths: Set[str]) -> bool:
    while path not in visible_paths:
        if path in covered_paths:
            return False
        path = os.path.dirname(path)
    return True


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")


def why_unusable(bwrap: str) -> str:
    """Return why bubblewrap fails in a trial, or "".

    A successful trial is not repeated while the program is unchanged; a failed one is.
    """
    if not bwrap:
        return "bubblewrap (bwrap) is not installed"
    try:
        _run_trial(bwrap, os.stat(bwrap).st_mtime_ns)
    except (OSError, programs.TimedOut) as error:
        return f"bubblewrap does not start ({error})"
    except _TrialFailed as error:
        return f"bubblewrap does not work here ({error})"
    return ""


class _TrialFailed(Exception):
    pass


@lru_cache(maxsize=4)  # exceptions are not cached
def _run_trial(bwrap: str, modified_ns: int) -> None:
    trial = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    trial += ["--tmpfs", "/run", "--unshare-pid", "--unshare-net", "--die-with-parent"]
    words = [*trial, "--", "/bin/bash", "-c", "exit 0"]
    run = programs.run(
        words, _TRIAL_SECONDS, cwd="/", env=programs.without_loader_variables(os.environ)
    )
    if run.returncode != 0:
        errors = run.stderr.decode(errors="replace").strip().splitlines()
        last = errors[-1].removeprefix("bwrap: ") if errors else f"code {run.returncode}"
        raise _TrialFailed(last)


def is_setuid(bwrap: str) -> bool:
    try:
        return bool(os.stat(bwrap).st_mode & stat.S_ISUID)
    except OSError:  # missing: starting it reports that
        return False


def start_failure(status: bytes, output: bytes) -> str:
    """Why bubblewrap itself could not start; "" if it did: then it reports the end."""
    if b"exit-code" in status:
        return ""
    lines = output.decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("bwrap: ")]
    return errors[-1].removeprefix("bwrap: ") if errors else ""
