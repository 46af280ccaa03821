"""refold's own git repository, which stores the snapshots of a workspace.

It is in refold's data directory. git reads objects of the user's repository if they are lent,
but not its settings: no hooks, filters or conversions of line ends apply, so contents are
stored unchanged. `snapshot_root_scan` decides what is stored, `snapshot_restore` restores it, and
`snapshot_objects` reads contents.
"""

import fcntl
import os
import re
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from refold import programs
from refold.errors import ToolFailed
from refold.place.port import ReportProgress
from refold.safe_open import check_no_links, create_file, open_checked
from refold.values.printable_names import escape_name

if TYPE_CHECKING:
    from refold.place.snapshot_objects import GitBlobReader, ObjectLookup

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git knows it without storing it
OUT_OF_TIME = "out of time"
REPORT_SECONDS = 1.0  # between reports on a scan or a restore
_MAX_CALL_SECONDS = 600.0  # for one call
MAX_BORROWING_SECONDS = 60.0  # for one call that reads many objects of lenders

_CONFIG_TEXT = """\
[core]
	repositoryformatversion = 0
	sharedRepository = 0600
	bare = false
	filemode = true
	symlinks = true
	ignorecase = false
	precomposeunicode = false
	protectHFS = false
	protectNTFS = false
	autocrlf = false
	safecrlf = false
	fsmonitor = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	fsync = loose-object,pack
	fsyncMethod = batch
	looseCompression = 1
[pack]
	compression = 1
[gc]
	auto = 0
[maintenance]
	auto = false
[advice]
	detachedHead = false
"""
_ATTRIBUTES_TEXT = "* -text !crlf !eol !filter !ident !working-tree-encoding !diff !merge\n"
_INITIAL_FILES = {
    "HEAD": "ref: refs/heads/none\n",
    "config": _CONFIG_TEXT,
    "info/attributes": _ATTRIBUTES_TEXT,
}
_INITIAL_FOLDERS = ("objects", "refs", "info", "sessions")
_DISK_FULL = r"(?i)no space left|out of disk ?space|quota exceeded"


class GitFailed(ToolFailed):
    """A call of git failed. `output` is what git printed to stderr."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


class TooLarge(ToolFailed):
    """The folder is too large for snapshots, so scanning it again is useless."""


class ScanProgress:
    """The progress of a scan or restore: the number of files done, and of all files.

    If `stopped` is set, a restore stops after the present file.
    """

    def __init__(self) -> None:
        self.done, self.total, self.stopped = 0, 0, False

    def add(self, count: int) -> None:
        self.done += count

    async def run_in_thread(
        self, function: Callable[[], int], report: ReportProgress | None
    ) -> int:
        """Call `function` in a thread, return its result, and call `report` each second.

        If this is cancelled, it sets `stopped` and waits until `function` returns.
        """
        import anyio

        files, failure = 0, None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, report)
            try:
                files = await anyio.to_thread.run_sync(function)
            except ToolFailed as error:  # raised below, where no exception group wraps it
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        # the group absorbed the cancellation
        await anyio.lowlevel.checkpoint_if_cancelled()
        return files

    async def _watch(self, report: ReportProgress | None) -> None:
        """Call `report` each second until this is cancelled, then set `stopped`."""
        import anyio

        try:
            while True:
                await anyio.sleep(REPORT_SECONDS)
                if report is not None:
                    report(self.done, self.total)
        finally:
            self.stopped = True


def snapshot_directory(store: Path, root: str) -> Path:
    """Return the directory, in `store`, for the snapshots of a workspace.

    `root` is the real path of its first root.
    """
    return store / sha256(os.fsencode(root)).hexdigest()[:24]


class SnapshotRepository:
    """A git repository in `directory`, which `create` creates.

    `git` is the program, and `path` the PATH that it gets. git also reads objects in the
    directories `lenders`.
    """

    def __init__(
        self, directory: Path, git: str, path: str, lenders: Sequence[str] = ()
    ) -> None:
        self.directory, self._git, self._path = directory, git, path
        self._lenders = tuple(lenders)

    def with_lenders(self, *lenders: str) -> "SnapshotRepository":
        """Return this repository with other lenders.

        Without arguments, the lenders of all its snapshots are used.
        """
        from refold.place.snapshot_lender import lenders_in

        directories = lenders or lenders_in(self.directory)
        return SnapshotRepository(self.directory, self._git, self._path, tuple(directories))

    def create(self) -> None:
        """Create the files that git needs, if they are missing. Raises `ToolFailed`."""
        try:
            self.directory.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.parent.mkdir(mode=0o700, exist_ok=True)
            for name in ("", *_INITIAL_FOLDERS):
                (self.directory / name).mkdir(mode=0o700, exist_ok=True)
            # No directory in which git writes may be a link, because git does not check
            # that.
            own = (self.directory / name for name in ("", *_INITIAL_FOLDERS))
            objects = (self.directory / "objects").iterdir()
            check_no_links(self.directory.parent, *own, *objects)
            for name, text in _INITIAL_FILES.items():
                _write(self.directory / name, text)
        except OSError as error:
            raise ToolFailed(
                f"The checkpoints in {escape_name(str(self.directory))} cannot be written: "
                f"{error.strerror}."
            ) from error

    def run(
        self,
        *arguments: str,
        folder: str,
        tree: str = "",
        index: Path | None = None,
        input_bytes: bytes = b"",
        descriptor: int | None = None,
    ) -> bytes:
        """Run git in `folder`, and return its output. Raises `GitFailed`.

        `tree` is the work tree, by default `folder`; `index` is the index file. git inherits
        `descriptor`, so a lock that it holds lasts as long as git runs.
        """
        process = self.start(
            *arguments, folder=folder, tree=tree, index=index, descriptor=descriptor
        )
        return process.read(input_bytes)

    def start(
        self,
        *arguments: str,
        folder: str,
        tree: str = "",
        index: Path | None = None,
        descriptor: int | None = None,
        inherited: Sequence[int] = (),
    ) -> "GitProcess":
        """Start git as `run` does, without waiting for it.

        git also inherits the descriptors `inherited`.
        """
        lock_descriptors = () if descriptor is None else (descriptor,)
        try:
            process = programs.start_bounded(
                (self._git, *arguments),
                cwd=folder,
                env=self._environment(tree or folder, index),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(*inherited, *lock_descriptors),
                start_new_session=True,  # Ctrl+C must not stop it
            )
        except OSError as error:
            raise GitFailed(
                f"git could not be started in {escape_name(folder)}: {error.strerror}.",
                output="",
            ) from error
        return GitProcess(process, arguments, folder)

    @contextmanager
    def blobs(self) -> Generator["GitBlobReader"]:
        """Yield a reader of stored contents, and of contents that lenders have."""
        from refold.place.snapshot_objects import GitBlobReader

        borrowing = self.with_lenders()
        with ExitStack() as stack:

            def start_lender() -> subprocess.Popen[bytes] | None:
                if not borrowing._lenders:
                    return None
                return stack.enter_context(borrowing._start_cat_file("--batch"))

            own = stack.enter_context(self._start_cat_file("--batch"))
            yield GitBlobReader(own, start_lender)

    @contextmanager
    def _start_cat_file(self, option: str) -> Generator[subprocess.Popen[bytes]]:
        """Start `git cat-file` with `option`, and kill it after the block."""
        process = programs.start_bounded(
            (self._git, "cat-file", option),
            cwd=self.directory,
            env=self._environment(tree="/", index=None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return those of `names` whose objects neither this repository nor a lender has.

        Lenders that git cannot read count as empty.
        """
        if self._lenders:  # asked only about what this repository itself lacks
            names = SnapshotRepository(self.directory, self._git, self._path).missing(names)
        if not names:
            return []
        process = self.start(
            "cat-file",
            "--batch-check=%(objectname)",
            "--buffer",
            folder=str(self.directory),
        )
        wanted = "".join(f"{name}\n" for name in names).encode()
        try:
            seconds = MAX_BORROWING_SECONDS if self._lenders else _MAX_CALL_SECONDS
            output = process.read(wanted, seconds)
        except GitFailed:
            if self._lenders:
                return list(names)
            raise
        # git prints "NAME missing" for a missing object, and only the name of another one.
        return [line.split()[0] for line in output.decode().splitlines() if " " in line]

    def lost(self, names: Sequence[str]) -> int:
        """Return how many of the contents with these names cannot be read.

        Contents of lenders are read, to check them.
        """
        lost = 0
        with self.blobs() as blobs:
            for name in self.missing(names):
                try:
                    blobs.get(name)
                except ToolFailed:
                    lost += 1
        return lost

    @contextmanager
    def lookup(self) -> Generator["ObjectLookup"]:
        """Yield a lookup that tells which objects exist. git runs until the block ends."""
        from refold.place.snapshot_objects import ObjectLookup

        with self._start_cat_file("--batch-check=%(objectname)") as process:
            yield ObjectLookup(process)

    def store_content(self, content: bytes) -> str:
        """Store `content`, and return its name."""
        output = self.run(
            "hash-object", "-w", "--stdin", folder=str(self.directory), input_bytes=content
        )
        return output.decode().strip()

    def store_files(self, numbers: Sequence[int]) -> Sequence[str]:
        """Store the contents of open files. Return the contents' names in the same order.

        `numbers` are the descriptors of the files.
        """
        process = self.start(
            "hash-object", "-w", "--no-filters", "--stdin-paths",
            folder=str(self.directory), inherited=numbers,
        )  # fmt: skip
        wanted = "".join(f"/dev/fd/{number}\n" for number in numbers)
        return process.read(wanted.encode()).decode().split()

    @contextmanager
    def lock(self, name: str) -> Generator[int]:
        """Lock the file `name` in the repository during the block. Wait until it is free.

        Yield the descriptor that holds the lock.
        """
        place = self.directory / name
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_no_links(place.parent)
            number = open_checked(place, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise ToolFailed(
                f"The checkpoints in {escape_name(str(place))} cannot be written: "
                f"{error.strerror}."
            ) from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield number
        finally:
            os.close(number)

    def _environment(self, tree: str, index: Path | None) -> Mapping[str, str]:
        """Return the environment of git, without our settings and keys."""
        variables = {} if index is None else {"GIT_INDEX_FILE": str(index)}
        if self._lenders:
            directories = ":".join(self._lenders)
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = directories
        return {
            "PATH": self._path,
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_DIR": str(self.directory),
            "GIT_WORK_TREE": tree,
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **variables,
        }


class GitProcess:
    """A running git process. Call `read` or `drop` once."""

    def __init__(
        self, process: subprocess.Popen[bytes], arguments: Sequence[str], folder: str
    ) -> None:
        self._process, self._arguments, self._folder = process, arguments, folder

    def read(self, input_bytes: bytes = b"", seconds: float = _MAX_CALL_SECONDS) -> bytes:
        """Send `input_bytes` and return the output. Raises `GitFailed` after `seconds`, too."""
        with self._process as process:
            try:
                output, complaint = process.communicate(input_bytes, timeout=seconds)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise GitFailed(
                    f"Looking at the files of {escape_name(self._folder)} took more than "
                    f"{seconds:.0f} s.",
                    OUT_OF_TIME,
                ) from error
        if process.returncode:
            why = os.fsdecode(complaint).strip()
            raise GitFailed(
                _failure_sentence(self._arguments, self._folder, why, process.returncode),
                why,
            )
        return output

    def drop(self) -> None:
        """Kill the process, and ignore its output."""
        self._process.kill()
        self._process.communicate()


def split_at_nul(output: bytes) -> Iterator[str]:
    """Yield the non-empty parts of output that git printed with -z."""
    return (os.fsdecode(piece) for piece in output.split(b"\0") if piece)


def _write(place: Path, text: str) -> None:
    """Write a text file completely or not at all, unless it has this text already."""
    try:
        if place.read_text() == text:
            return
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    temporary = place.with_name(f"{place.name}.{os.urandom(4).hex()}")
    create_file(temporary, text.encode())
    temporary.replace(place)


def _failure_sentence(
    arguments: Sequence[str], folder: str, complaint: str, code: int
) -> str:
    """Return a sentence that says which git command failed, where and why."""
    if re.search(_DISK_FULL, complaint):
        return "No snapshot of the files could be taken: the disk is full."
    # Settings such as `core.x=y` come before the name of the command.
    words = (word for word in arguments if not word.startswith("-") and "=" not in word)
    command = next(words, "")
    reason = escape_name(complaint.splitlines()[-1]) if complaint else f"code {code}"
    return f"git {command} failed on the files of {escape_name(folder)}: {reason}"
