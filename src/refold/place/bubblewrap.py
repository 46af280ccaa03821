"""Builds the mounts of bubblewrap for one command, and checks that they took effect.

The whole disk is mounted read-only. If "/" itself is covered, an empty file system with only
the visible paths replaces the disk. Then some paths are covered and others are made writable,
from the root downwards, so that the rule for a deeper path wins. `sandbox_rules` decides which
paths. See bwrap(1).

bubblewrap mounts by path. Between the moment a path is resolved and the moment it is mounted,
another command can replace a directory by a link. So the mounts are compared with the plan
before the command starts.

A file with keys is covered by a regular file with one line of text. git does not accept a
device such as /dev/null as a file, so `git diff` would fail if a `.env` is tracked. A model
would take an empty file for the real content.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import TypeAlias

from refold import programs
from refold.place.mountinfo import Mount, mounts
from refold.place.sandbox_rules import REPLACED_DIRECTORIES, SandboxRules
from refold.values.path_names import below

# Programs that run as root need these capabilities, for example tar and npm.
_ROOT_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL",
)  # fmt: skip
# Names in the private directory of a session. The first three are directories, the others
# files with the content given below. The last one masks keys: git reads no device as a file.
_TMP_NAME, _VAR_TMP_NAME, _EMPTY_DIRECTORY_NAME = "tmp", "var", "empty"
_EMPTY_FILE_NAME, _MASK_NAME = "nothing", "kept"
_MASK_CONTENT = b"# Commands that run without asking do not see this file: by its name, it holds keys.\n"
_MAX_GUARD_MOUNTS = 400  # with more mounts, bubblewrap starts too slowly

_TRIAL_SECONDS = 10.0  # limits a trial that usually takes milliseconds

# The order of mounts of the same depth: the disk and temporary directories, visible paths,
# directories that must not be renamed, paths that must not be written, and paths that must not
# be read.
_BASE_ORDER, _VISIBLE_ORDER, _PIN_ORDER, _READ_ONLY_ORDER, _COVER_ORDER = range(5)

# The depth of the path, the order within that depth, and words for bubblewrap.
_Mount: TypeAlias = tuple[int, int, str, *tuple[str, ...]]


class MountPlan:
    """The mounts that bubblewrap makes for one command, in their order."""

    def __init__(self, rules: SandboxRules) -> None:
        self._rules = rules
        # Ordered by depth, and by the order within a depth.
        self._mounts = sorted(_mounts(rules), key=lambda mount: mount[:2])

    def arguments(self, bwrap: str) -> list[str]:
        """Return the command line of bubblewrap, up to the command to run.

        The command line lacks the option that names the status descriptor.
        """
        rules = self._rules
        words = [bwrap]
        for _, _, *mount in self._mounts:
            words += mount
        has_empty_disk = "/" in rules.covered
        if has_empty_disk:
            for path, target in rules.links:
                words += ["--symlink", target, path]
        # These paths become read-only last, because mount points had to be created in them
        # first.
        if has_empty_disk:
            words += ["--remount-ro", "/"]
        if rules.looking and not rules.own_tmp:
            words += ["--remount-ro", "/tmp"]
        if rules.root:
            # Root in the sandbox has no special rights, but it owns the kernel's files and
            # could write them.
            words += ["--remount-ro", "/proc"]
        words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        if not rules.network:
            words += ["--unshare-net"]
        words += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if rules.root:
            for name in _ROOT_CAPABILITIES:
                words += ["--cap-add", f"CAP_{name}"]
        return [*words, "--chdir", rules.cwd]

    def prepare_mount_check(self) -> Callable[[int], str]:
        """Return a function that checks the mounts of the sandbox's first process.

        The function gets the id of that process, which has not started the command yet. It
        returns "" if all mounts are as planned, otherwise the reason why the command must not
        start. Work that does not need the mounts is done here, before they exist.
        """
        rules = self._rules
        exact_mounts = self._exact_mounts()
        covered_mounts = set[str]()
        writable_mounts = {"/tmp", "/var/tmp", "/run", *rules.open, *rules.covered}
        for _, order, option, *paths in self._mounts:
            path = paths[-1]  # the path inside the sandbox
            if order == _COVER_ORDER:
                covered_mounts.add(path)
            if option in ("--bind", "--bind-try"):
                writable_mounts.add(path)
        # Mounts may appear below these directories at any time.
        changing = [*rules.open, "/dev"]
        if not rules.root:
            changing.append("/proc")

        def _may_be_writable(path: str) -> bool:
            if path in writable_mounts or _is_below_any(path, changing):
                return True
            return _is_closed_by_another_user(path)

        def _check_mounts(first_pid: int) -> str:
            try:
                mounted = {mount.path: mount for mount in mounts(first_pid)}
                directory = os.readlink(f"/proc/{first_pid}/cwd")
            except OSError:
                return ""  # the process has exited: its output says why
            are_in_place = (
                _is_mounted_as_planned(path, mounted, writable=is_writable)
                for path, is_writable in exact_mounts
            )
            is_as_planned = (
                directory == rules.cwd
                and covered_mounts <= mounted.keys()
                and all(are_in_place)
                and all(map(_may_be_writable, _writable_paths(mounted)))
            )
            if is_as_planned:
                return ""
            return "what lies in the workspace was renamed meanwhile"

        return _check_mounts

    def _exact_mounts(self) -> list[tuple[str, bool]]:
        """Return the guarded paths, at which a command must see the same file as on the disk.

        The bool says whether the mount at the path must be writable. Paths that are covered, or
        lie below a covered path, are left out.
        """
        rules = self._rules
        covers = {*rules.covered, *rules.hidden, *rules.unread, *rules.denied}
        exact_mounts = list[tuple[str, bool]]()
        for _, order, option, *paths in self._mounts:
            path = paths[-1]  # the path inside the sandbox
            if order in (_PIN_ORDER, _READ_ONLY_ORDER) and not _is_below_any(path, covers):
                # A path that is read-only outside the sandbox is read-only inside, too.
                is_writable = option.startswith("--bind") and not _is_read_only(path)
                exact_mounts.append((path, is_writable))
        return exact_mounts

    def shows_current_files(self, first: int) -> bool:
        """Whether the sandbox's first process still sees the current files of the disk.

        `first` is the id of that process. If a file is replaced after the mounts were made, its
        mount still shows the old file.
        """
        # A bind mount is an option, the path on the disk and the path inside the sandbox.
        bind_mounts = (words for _, _, *words in self._mounts if "bind" in words[0])
        sources = {inside: source for _, source, inside in bind_mounts}
        return all(
            _is_same_file(source, f"/proc/{first}/root{path}")
            for path, source in sources.items()
        )


def _writable_paths(mounts_by_path: Mapping[str, Mount]) -> Iterator[str]:
    return (path for path, mount in mounts_by_path.items() if mount.writable)


def _is_below_any(path: str, directories: Iterable[str]) -> bool:
    return any(below(path, directory) for directory in directories)


def _is_read_only(path: str) -> bool:
    """Whether the path is on a file system that is mounted read-only."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _is_closed_by_another_user(path: str) -> bool:
    """Whether a directory of another user, above `path`, denies us access to `path`.

    bubblewrap cannot remount what it cannot access, so mounts below such a directory stay
    writable: for example those of containers that root runs, below /var/lib. A command cannot
    access them either.
    """
    try:
        os.stat(path)
    except PermissionError:
        # The nearest directory that we can see is the one that denies access.
        for above in _directories_above(path):
            try:
                return os.stat(above).st_uid != os.geteuid()
            except PermissionError:
                continue
    except OSError:
        pass
    return False


def _is_same_file(path: str, inside: str) -> bool:
    """Whether both paths lead to the same file, or neither exists."""
    try:
        outer, inner = os.lstat(path), os.lstat(inside)
    except OSError:
        return not os.path.lexists(path) and not os.path.lexists(inside)
    return os.path.samestat(outer, inner)


def _is_mounted_as_planned(
    path: str, mounts_by_path: Mapping[str, Mount], *, writable: bool
) -> bool:
    """Whether the mount at `path` shows the file at the same path of the disk.

    The mount must also be writable or read-only, as `writable` says. Without a mount, return
    True if the disk has no file at `path`.
    """
    mount = mounts_by_path.get(path)
    if mount is None:
        return not os.path.lexists(path)
    outer_path: str = next(p for p in _directories_above(path) if p in mounts_by_path)
    outer = mounts_by_path[outer_path]
    # The mount must show the same file that the outer mount has at `path`.
    relative = os.path.relpath(path, outer_path)
    expected_inside = os.path.normpath(os.path.join(outer.inside, relative))
    is_same_file = (mount.device, mount.inside) == (outer.device, expected_inside)
    return is_same_file and mount.writable == writable


def _directories_above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def tmp_directory(private: str) -> str:
    """Return the directory, in `private`, that is mounted as /tmp for commands."""
    return os.path.join(private, _TMP_NAME)


def fill_private_directory(private: str) -> None:
    """Create the files and directories in `private` that mounts use as sources.

    `private` is the private directory of a session.
    """
    for name in (_TMP_NAME, _VAR_TMP_NAME, _EMPTY_DIRECTORY_NAME):
        os.makedirs(os.path.join(private, name), exist_ok=True)
    for name, content in ((_EMPTY_FILE_NAME, b""), (_MASK_NAME, _MASK_CONTENT)):
        with open(os.path.join(private, name), "wb") as file:
            file.write(content)


def tmpfs_directories(rules: SandboxRules) -> tuple[str, ...]:
    """Return the directories that a command gets as memory file systems.

    They are relative to "/".
    """
    directories = ["dev", "run"]
    if rules.own_tmp:
        directories.append("tmp")
    if rules.looking:
        directories.append("var/tmp")
    return tuple(directories)


def temporary_directory(rules: SandboxRules) -> str:
    """Return the path where a command should create temporary files."""
    return "/var/tmp" if rules.looking else "/tmp"


def _mounts(rules: SandboxRules) -> Iterator[_Mount]:
    """Yield all mounts of a command, in no particular order."""
    yield from _disk_mounts(rules)
    yield from _temporary_directory_mounts(rules)
    yield from _directory_cover_mounts(rules)
    yield from _file_cover_mounts(rules)
    for path in rules.seen:
        yield _depth(path), _VISIBLE_ORDER, "--ro-bind-try", path, path
    for path in rules.roots:
        option = "--bind" if path in rules.open else "--ro-bind"
        yield _depth(path), _VISIBLE_ORDER, option, path, path
    for path in rules.open:
        if path not in rules.roots:
            yield _depth(path), _VISIBLE_ORDER, "--bind-try", path, path
    unread = frozenset((*rules.unread, *rules.denied))
    read_only = read_only_paths(rules)
    fixed_paths = unread.union(read_only, rules.covered, REPLACED_DIRECTORIES)
    renamable = _renamable_denied_paths(rules, fixed_paths)
    for path in (
        *_directories_to_pin(read_only, rules)[:_MAX_GUARD_MOUNTS],
        *_directories_to_pin(renamable, rules)[:_MAX_GUARD_MOUNTS],
    ):
        yield _depth(path), _PIN_ORDER, "--bind-try", path, path
    for path in read_only:
        yield _depth(path), _READ_ONLY_ORDER, "--ro-bind-try", path, path
    for path, replacement in (*rules.instead, *_hidden_settings(rules)):
        yield _depth(path), _COVER_ORDER, "--ro-bind", replacement, path


def _hidden_settings(rules: SandboxRules) -> Iterator[tuple[str, str]]:
    """Yield each git settings file that a command cannot see, and the file that replaces it."""
    covered, shown = {*REPLACED_DIRECTORIES, *rules.covered}, _visible_paths(rules)
    return (
        (path, replacement)
        for path, replacement in rules.settings
        if not _is_visible(path, covered, shown)
    )


def read_only_paths(rules: SandboxRules) -> list[str]:
    """Return the first `_MAX_GUARD_MOUNTS` paths that are mounted read-only."""
    unread = frozenset((*rules.unread, *rules.denied))
    paths = [path for path in rules.shut if not _is_below_covered(path, unread)]
    return paths[:_MAX_GUARD_MOUNTS]


def _disk_mounts(rules: SandboxRules) -> Iterator[_Mount]:
    """Yield the mounts of the whole disk, which is read-only, and of /dev and /proc."""
    if "/" not in rules.covered:
        yield _depth("/"), _BASE_ORDER, "--ro-bind", "/", "/"
    yield _depth("/dev"), _BASE_ORDER, "--dev", "/dev"
    yield _depth("/proc"), _BASE_ORDER, "--proc", "/proc"
    # A process that writes the memory of the first process, bubblewrap, could survive us.
    empty_directory = os.path.join(rules.private, _EMPTY_DIRECTORY_NAME)
    for path, cover in (("/proc/1/mem", "/dev/null"), ("/proc/1/task", empty_directory)):
        yield _depth(path), _BASE_ORDER, "--ro-bind", cover, path


def _directory_cover_mounts(rules: SandboxRules) -> Iterator[_Mount]:
    """Yield the mounts that hide the content of directories."""
    covered, shown = {*REPLACED_DIRECTORIES, *rules.covered}, _visible_paths(rules)
    empty_directory = os.path.join(rules.private, _EMPTY_DIRECTORY_NAME)
    inner_paths = (*shown, *(path for path, _ in _hidden_settings(rules)))
    for path in rules.covered:
        # Nothing is mounted at "/", and a path in a covered directory is covered with it.
        if path == "/" or not _is_visible(os.path.dirname(path), covered, shown):
            continue
        # A cover is mounted after a read-only mount of the same directory, so it wins.
        # A path that is visible inside a covered directory needs a mount point there.
        needs_mount_points = any(inner.startswith(path + "/") for inner in inner_paths)
        if needs_mount_points:
            yield _depth(path), _COVER_ORDER, "--tmpfs", path
        else:
            yield _depth(path), _COVER_ORDER, "--ro-bind", empty_directory, path


def _file_cover_mounts(rules: SandboxRules) -> Iterator[_Mount]:
    """Yield the mounts that hide files, and directories that must not be read."""
    covered, shown = {*REPLACED_DIRECTORIES, *rules.covered}, _visible_paths(rules)
    empty_directory = os.path.join(rules.private, _EMPTY_DIRECTORY_NAME)
    unread = dict.fromkeys((*rules.unread, *rules.denied))
    # A socket is covered like a denied path; a file with keys must remain a file for git.
    key_files = [p for p in rules.unread if p not in rules.denied and os.path.isfile(p)]
    # A later cover replaces an earlier one of the same path.
    file_covers = dict.fromkeys(rules.hidden, f"{rules.private}/{_EMPTY_FILE_NAME}")
    file_covers |= dict.fromkeys(unread, "/dev/null")
    file_covers |= dict.fromkeys(key_files, f"{rules.private}/{_MASK_NAME}")
    for path, file_cover in file_covers.items():
        if _is_visible(path, covered, shown) and not _is_below_covered(path, unread.keys()):
            cover = empty_directory if os.path.isdir(path) else file_cover
            yield _depth(path), _COVER_ORDER, "--ro-bind", cover, path


def _temporary_directory_mounts(rules: SandboxRules) -> Iterator[_Mount]:
    """Yield the mounts of /tmp, /var/tmp and /run.

    A memory file system lives as long as the command; the other directories, which are in the
    private directory, live as long as the session.
    """
    session_tmp = ("--bind", tmp_directory(rules.private))
    tmp = ("--tmpfs",) if rules.own_tmp else session_tmp
    yield _depth("/tmp"), _BASE_ORDER, *tmp, "/tmp"
    session_var_tmp = ("--bind", os.path.join(rules.private, _VAR_TMP_NAME))
    var_tmp = ("--tmpfs",) if rules.looking else session_var_tmp
    yield _depth("/var/tmp"), _BASE_ORDER, *var_tmp, "/var/tmp"
    yield _depth("/run"), _BASE_ORDER, "--tmpfs", "/run"


def _visible_paths(rules: SandboxRules) -> set[str]:
    """Return the paths whose content a command sees, unless a deeper path is covered."""
    disk = () if "/" in rules.covered else ("/",)
    return {*disk, *rules.roots, *rules.seen, *rules.open}


def _is_below_covered(path: str, covered_paths: Set[str]) -> bool:
    """Whether a directory above `path` is covered, so that nothing can be mounted there."""
    return not _is_visible(os.path.dirname(path), covered_paths, {"/"})


def _renamable_denied_paths(rules: SandboxRules, fixed_paths: Set[str]) -> list[str]:
    """Return the denied paths below writable directories.

    A command could rename a directory above such a path, and open the file by its new path.
    Paths below one of `fixed_paths`, which a command cannot rename, are left out.
    """
    shown = _visible_paths(rules)
    return [
        path
        for path in rules.denied
        if any(below(path, root) for root in rules.open)
        and _is_visible(os.path.dirname(path), fixed_paths, shown)
    ]


def _directories_to_pin(protected_paths: Sequence[str], rules: SandboxRules) -> list[str]:
    """Return the directories between protected paths and the writable directories above them.

    These directories are mounted, because a command cannot rename a mount point.
    """
    pins = dict[str, None]()
    for path in protected_paths:
        above = os.path.dirname(path)
        while above not in rules.open and above != "/":
            pins[above] = None
            above = os.path.dirname(above)
    return list(pins)


def _is_visible(path: str, covered_paths: Set[str], visible_paths: Set[str]) -> bool:
    """Whether `path` is visible. The nearest path in a set decides: `path` or one above.

    If both sets contain that path, it is visible. One of the sets must contain "/".
    """
    while path not in visible_paths:
        if path in covered_paths:
            return False
        path = os.path.dirname(path)
    return True


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")


def why_unusable(bwrap: str) -> str:
    """Try to start bubblewrap. Return why it fails; "" if it works.

    After a success, it is not tried again until the program file changes. After a failure, each
    call tries again.
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
    """Run an empty command in bubblewrap. Raises an error if that fails.

    `modified_ns` is part of the cache key, so that a changed program is tried again.
    """
    trial = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    trial += ["--tmpfs", "/run", "--unshare-pid", "--unshare-net", "--die-with-parent"]
    words = [*trial, "--", "/bin/bash", "-c", "exit 0"]
    run = programs.run(
        words, _TRIAL_SECONDS, cwd="/", env=programs.without_loader_variables(os.environ)
    )
    if run.returncode != 0:
        errors = run.stderr.decode(errors="replace").strip().splitlines()
        if errors:
            raise _TrialFailed(errors[-1].removeprefix("bwrap: "))
        raise _TrialFailed(f"code {run.returncode}")


def is_setuid(bwrap: str) -> bool:
    """Whether the program file runs with the rights of its owner. False if it is missing."""
    try:
        return bool(os.stat(bwrap).st_mode & stat.S_ISUID)
    except OSError:  # missing: starting it reports that
        return False


def start_failure(status: bytes, output: bytes) -> str:
    """Return the error with which bubblewrap did not start the command.

    Return "" if `status` (JSON from its status descriptor) has an exit code, or if `output` has
    no message of bubblewrap. `output` is what bubblewrap and the command printed.
    """
    if b"exit-code" in status:
        return ""
    lines = output.decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("bwrap: ")]
    return errors[-1].removeprefix("bwrap: ") if errors else ""
