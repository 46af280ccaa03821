"""Executes the requests to a place: for files, commands, snapshots and ports.

They call the same modules as a workspace on this machine. Permission rules, masks and questions
to the user stay on the other side of the pipe.
"""

import os
import platform
import pwd
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from refold.errors import ToolFailed
from refold.place.all_paths import paths_below
from refold.place.bare_repository import bare_repository_part
from refold.place.checkpoints import Checkpoints
from refold.place.command_starter import CommandStarter
from refold.place.far.epoch import Claims, Epochs
from refold.place.far.far_call import FarCall
from refold.place.far.far_commands import run_command
from refold.place.far.port_tunnel import PortTunnel, connect_to_port, listening_ports
from refold.place.files import DiskFiles
from refold.place.limits import Limits
from refold.place.port import FileChange, FileWrite, Real, Trees
from refold.place.sandbox import Sandbox, find_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.place.snapshot_exchange import lacking_trees, open_incoming, pack_pieces
from refold.place.snapshot_repository import ScanProgress
from refold.safe_open import create_complete_file

MAX_CONTENT_AT_ONCE_BYTES = 256 * 1024  # sent with the first information about a file
_MAX_PATHS = 200_000  # the length of one listing
_MAX_IDENTITY_CHARS = 64
_PROGRESS_SECONDS = 1.0
_WATCH_SECONDS = 2.0  # between two checks for changes that happen without a request
_USUAL_PROGRAMS = ("rg", "git")
_INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")


class FarWorkspace:
    """The workspace in the directory `root`, which may begin with `~`.

    Requests that write files, run commands or take or restore snapshots have `claims`: the
    sessions of the other side, with their epochs.
    """

    inline = frozenset(("note_change", "forget"))  # quick: they need no thread

    def __init__(
        self, root: str, sandbox: Mapping[str, Any], limits: Mapping[str, int]
    ) -> None:
        self._home = os.path.realpath(os.path.expanduser("~"))
        wanted = os.path.expanduser(root)
        self.root = os.path.realpath(wanted)
        if not os.path.isabs(wanted):
            raise ToolFailed(f"The directory {root!r} of the place is not absolute.")
        if not os.path.isdir(self.root):
            raise ToolFailed(f"There is no directory {root!r} in the place.")
        self._epochs = Epochs(os.path.join(_data_directory(self._home), "epochs"))
        self._files = DiskFiles(self.root)
        self._wanted_sandbox = sandbox
        self.starter = CommandStarter(
            os.environ,
            lambda: self._sandbox,
            Limits(disks=(self.root, "/tmp"), **limits),
        )
        self._snapshot_lock = Lock()

    @property
    def handlers(self) -> Mapping[str, Callable[..., None]]:
        """Return the method for each request."""
        return {
            "look": self._look,
            "items": self._items,
            "read": self._read,
            "put_all": self._put_all,
            "walk": self._walk,
            "ignored": self._list_ignored,
            "paths": self._paths,
            "has": self._has,
            "watch": self._watch,
            "git_part": self._git_part,
            "release": self._release,
            "run": self._run,
            "note_change": self._note_change,
            "forget": self._forget,
            "take": self._take,
            "secure": self._secure,
            "changes": self._changes,
            "patch": self._patch,
            "commits": self._commits,
            "commit_trees": self._commit_trees,
            "restore": self._restore,
            "ports": self._ports,
            "connect": self._connect,
            "lacks": self._lacks,
            "pack": self._pack,
            "unpack": self._unpack,
        }

    def describe(self) -> dict[str, Any]:
        """Return the description of the place, for permission decisions and for the model."""
        sandbox = self._sandbox
        return {
            "root": self.root,
            "identity": _identity(_data_directory(self._home)),
            "home": self._home,
            "user": _user_name(),
            "host": platform.node(),
            "system": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
            "sandbox": sandbox.kind,
            "confines": sandbox.confines,
            "notice": sandbox.notice,
            "has_network": _has_network(),
            "programs": [*filter(self.starter.has, _USUAL_PROGRAMS)],
            **self._describe_now(),
        }

    def _describe_now(self) -> dict[str, Any]:
        """Return the parts of the description that can change at any time."""
        scope = self._files.tree.scope(Real(self.root))
        return {
            "head": self._text(".git/HEAD").strip(),
            "instructions": {
                name: text for name in _INSTRUCTION_FILES if (text := self._text(name))
            },
            "scope": (scope.is_in_repository, scope.top, scope.excludes),
            "ports": listening_ports(),
        }

    def _text(self, name: str) -> str:
        """Return the text of the file `name` below the root; "" if it cannot be read."""
        try:
            path = self._files.only(()).real(name)
            return self._files.read(path, MAX_CONTENT_AT_ONCE_BYTES).decode()
        except (ToolFailed, UnicodeDecodeError):
            return ""

    def close(self) -> None:
        self.starter.close()

    @cached_property
    def _sandbox(self) -> Sandbox:
        """Return the sandbox for commands, with the profile and network that were asked for."""
        wanted, data = self._wanted_sandbox, _data_directory(self._home)
        config = SandboxConfig(
            roots=(self.root,),
            own=(data,),
            quarantine=os.path.join(data, "quarantine"),
            profile=wanted["profile"],
            network=wanted["network"],
            user_namespaces=wanted["user_namespaces"],
        )
        return find_sandbox(os.environ, config)

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        data = Path(_data_directory(self._home))
        return Checkpoints(
            [self.root], data / "checkpoints", os.environ, "place", own_paths=(data,)
        )

    def _look(self, call: FarCall, _raw: bytes, path: str, content: bool = False) -> None:
        """Send facts about a path. With `content`, also send the content of a small file."""
        real = self._files.real(path)
        kind = self._files.kind(real)
        data, size = b"", -1  # -1: no content is sent
        scope = self._files.tree.scope(real) if kind == "directory" else None
        if kind == "file" and content:
            try:
                data = self._files.read(real, MAX_CONTENT_AT_ONCE_BYTES)
                size = len(data)
            except ToolFailed:
                pass  # too large or not readable: the next request reports that
        call.send(
            "end",
            data,
            real=real,
            path_kind=kind,
            size=size,
            named_by_git=self._is_named_by_git(real),
            in_repository=scope.is_in_repository if scope else False,
            top=scope.top if scope else "",
            excludes=scope.excludes if scope else "",
        )

    def _is_named_by_git(self, real: str) -> bool:
        return bool(self._sandbox.watch.path_named_by_git([real]))

    def _git_part(self, call: FarCall, _raw: bytes, paths: list[str]) -> None:
        call.send("end", path=bare_repository_part(paths))

    def _items(self, call: FarCall, _raw: bytes, real: str) -> None:
        """Send the entries of a directory, each with whether git ignores it."""
        rules = self._files.tree.rules(Real(real))
        items = [
            (
                item.name,
                item.kind,
                item.size,
                item.modified,
                rules.ignores(item.name, directory=item.kind == "directory"),
            )
            for item in self._files.items(Real(real))
        ]
        call.send("end", items=items, ignored=rules.ignored)

    def _read(self, call: FarCall, _raw: bytes, real: str, at_most: int) -> None:
        call.send("end", self._files.read(Real(real), at_most))

    def _put_all(
        self, call: FarCall, raw: bytes, puts: list[dict[str, Any]], claims: Claims
    ) -> None:
        """Make all changes or none. `raw` has the new contents, one after the other."""
        self._epochs.check(claims)
        writes, start = list[FileWrite](), 0
        for record in puts:
            size = record.pop("size")  # None for a deletion
            content = None if size is None else raw[start : start + size]
            start += size or 0
            writes.append(FileWrite(content=content, **record))
        self._files.put_all(writes)
        call.send("end")

    def _walk(self, call: FarCall, _raw: bytes, real: str) -> None:
        """Send the files below a directory that git does not ignore, with their times."""
        stopped = Event()
        call.when_stopped(stopped.set)

        def check() -> None:
            if stopped.is_set():
                raise ToolFailed("The request was stopped.")

        walked = self._files.tree.walk(Real(real), check)
        if len(walked.paths) > _MAX_PATHS:
            raise ToolFailed(
                "There are too many files to look through: give a narrower path."
            )
        times = self._files.tree.times(Real(real), walked.paths)
        modified = [int(seconds * 1e9) for seconds in times]
        call.send("end", paths=walked.paths, modified=modified, unread=walked.unread)

    def _list_ignored(self, call: FarCall, _raw: bytes, real: str, at_most: int) -> None:
        paths = self._files.tree.with_ignored(Real(real))
        call.send("end", paths=[*islice(paths, at_most)])

    def _paths(self, call: FarCall, _raw: bytes, folder: str, at_most: int) -> None:
        """Send up to `at_most` paths below `folder`, ignored ones included."""
        call.send("end", paths=[*islice(paths_below(folder), at_most)])

    def _has(self, call: FarCall, _raw: bytes, program: str) -> None:
        call.send("end", has=self.starter.has(program))

    def _watch(self, call: FarCall, _raw: bytes) -> None:
        """Send the changeable parts of the description, now and after each change.

        This continues until the request is stopped.
        """
        stopped, before = Event(), dict[str, Any]()
        call.when_stopped(stopped.set)
        self._is_named_by_git(self.root)  # fills a cache, because the first call is slow
        while not stopped.wait(_WATCH_SECONDS if before else 0):  # 0: the first time
            description = self._describe_now()
            if description != before:
                call.send("news", **description)
                before = description
        call.send("end")

    def _release(self, call: FarCall, _raw: bytes, session: str) -> None:
        self._epochs.release(session)
        call.send("end")

    def _run(self, call: FarCall, _raw: bytes, claims: Claims, **fields: Any) -> None:
        self._epochs.check(claims)
        run_command(call, self.starter, fields)

    def _note_change(self, call: FarCall, _raw: bytes) -> None:
        self._checkpoints.note_change()
        call.send("end")

    def _forget(self, call: FarCall, _raw: bytes) -> None:
        self._checkpoints.forget()
        call.send("end")

    def _take(self, call: FarCall, _raw: bytes, claims: Claims, since: Any = None) -> None:
        """Send a snapshot of the present files, and the changes since `since`."""
        self._epochs.check(claims)
        with self._snapshot_lock:
            task = self._checkpoints.start_taking()
        self._wait(call, task)
        taken = self._checkpoints.snapshot_of_scan(task)
        call.send(
            "end",
            trees=taken.trees,
            left_out=taken.left_out,
            lost=taken.lost,
            is_behind=self._checkpoints.is_behind,
            notice=self._checkpoints.notice,
            changes=self._changes_since(since, taken.trees),
        )

    def _changes_since(self, since: Any, trees: Trees) -> "list[tuple[Any, ...]] | None":
        """Return the changes from the snapshot `since` to the snapshot `trees`.

        The other side usually needs them next. Return None if the snapshots are equal or cannot
        be compared.
        """
        if not since or _trees(since) == trees:
            return None
        try:
            return [*map(_change, self._checkpoints.changes(_trees(since), trees))]
        except ToolFailed:
            return None

    def _secure(self, call: FarCall, raw: bytes) -> None:
        """Store lent contents that the call in `raw` may delete. Send the end of the work."""
        task = self._checkpoints.start_securing(raw)
        if task is not None:
            self._wait(call, task)
            if task.error is not None:
                raise task.error
        call.send("end")

    def _wait(self, call: FarCall, task: Any) -> None:
        while not task.done.wait(_PROGRESS_SECONDS):
            call.send("progress", done=task.progress.done, total=task.progress.total)

    def _changes(self, call: FarCall, _raw: bytes, before: Any, after: Any) -> None:
        changes = self._checkpoints.changes(_trees(before), _trees(after))
        call.send("end", changes=[*map(_change, changes)])

    def _patch(
        self, call: FarCall, _raw: bytes, before: Any, after: Any, only: list[str]
    ) -> None:
        """Send the changes between two snapshots, each with its diff. `only` limits the files."""
        pairs = self._checkpoints.patch(_trees(before), _trees(after), only)
        call.send("end", changes=[(*_change(change), text) for change, text in pairs])

    def _commits(self, call: FarCall, _raw: bytes, head: str) -> None:
        commits = self._checkpoints.commits(head or self._head_commit())
        rows = [(commit.name, commit.subject, commit.at) for commit in commits]
        call.send("end", commits=rows)

    def _ports(self, call: FarCall, _raw: bytes) -> None:
        call.send("end", ports=listening_ports())

    def _connect(self, call: FarCall, _raw: bytes, port: int) -> None:
        """Transfer one connection to a port, until both directions have ended."""
        try:
            connection = connect_to_port(port)
        except OSError as error:
            raise ToolFailed(f"Port {port} of the place takes no connection.") from error
        tunnel = PortTunnel(connection, lambda raw: call.send("data", raw))
        call.when_stopped(tunnel.close)
        input_thread = Thread(target=_pass_on, args=(call, tunnel), daemon=True)
        input_thread.start()
        tunnel.run()
        call.inputs.put(None)  # ends the thread
        call.send("end")

    def _head_commit(self) -> str:
        """Return the hash of the checked-out commit; "" if it is not found."""
        head = self._text(".git/HEAD").strip()
        branch = head.removeprefix("ref: ") if head.startswith("ref: ") else ""
        if not branch:
            return head  # a commit is checked out without a branch
        if commit := self._text(f".git/{branch}").strip():
            return commit
        for line in self._text(".git/packed-refs").splitlines():
            words = line.split()
            if words[1:] == [branch]:
                return words[0]
        return ""

    def _commit_trees(self, call: FarCall, _raw: bytes, commit: str) -> None:
        call.send("end", trees=self._checkpoints.commit_trees(commit))

    def _restore(
        self,
        call: FarCall,
        _raw: bytes,
        current: Any,
        to: Any,
        only: list[str],
        claims: Claims,
    ) -> None:
        """Restore files while reporting the progress. Send the number of restored files."""
        self._epochs.check(claims)
        progress, done = ScanProgress(), Event()

        def stop() -> None:
            progress.stopped = True

        def report() -> None:
            while not done.wait(_PROGRESS_SECONDS):
                call.send("progress", done=progress.done, total=progress.total)

        call.when_stopped(stop)
        Thread(target=report, daemon=True).start()
        try:
            count = self._checkpoints.restore_now(
                _trees(current), _trees(to), only, progress
            )
        finally:
            done.set()
        call.send("end", count=count)

    def _lacks(self, call: FarCall, _raw: bytes, trees: list[str]) -> None:
        call.send("end", trees=lacking_trees(self._checkpoints.repository, trees))

    def _pack(
        self, call: FarCall, _raw: bytes, wanted: list[str], known: list[str]
    ) -> None:
        """Send the trees in `wanted`, without what is also in `known`."""
        stopped = Event()
        call.when_stopped(stopped.set)
        for piece in pack_pieces(self._checkpoints.repository, wanted, known):
            if stopped.is_set():
                raise ToolFailed("The request was stopped.")
            call.send("data", piece)
        call.send("end")

    def _unpack(self, call: FarCall, _raw: bytes) -> None:
        """Store the pack in `call.inputs`. b"" is its end; None means a stopped request."""
        call.when_stopped(lambda: call.inputs.put(None))
        with open_incoming(self._checkpoints.repository) as pack:
            call.send("ready")
            while piece := call.inputs.get():
                pack.put(piece)
                call.send("ready")
            if piece is None:
                raise ToolFailed("The request was stopped.")
            pack.finish()
        call.send("end")


def _trees(pairs: list[list[str]]) -> Trees:
    return tuple((root, tree) for root, tree in pairs)


def _change(change: FileChange) -> tuple[Any, ...]:
    return change.path, change.kind, change.added, change.removed


def _data_directory(home: str) -> str:
    """Return the directory of the place in which refold stores its own files."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data_home):
        data_home = os.path.join(home, ".local/share")
    return os.path.join(data_home, "refold-place")


def _identity(directory: str) -> str:
    """Return a random text that stays the same while the place keeps its files.

    The text is stored in `directory`, so a new container gets another text. Return "" if the
    text cannot be read.
    """
    path = Path(directory, "identity")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            create_complete_file(path, os.urandom(16).hex().encode())
        return path.read_text()[:_MAX_IDENTITY_CHARS]
    return ""


def _has_network() -> bool:
    """Whether this machine has a route to others; True if the routes cannot be read."""
    try:
        with open("/proc/net/route") as file:
            rows = file.read().splitlines()[1:]  # below the names of the columns
            devices = [row.split()[0] for row in rows]
        with suppress(FileNotFoundError), open("/proc/net/ipv6_route") as file:
            devices += [row.split()[-1] for row in file]  # no names of columns
    except (OSError, IndexError):
        return True
    return any(device != "lo" for device in devices)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # in a container, the user's number may be unknown
        return str(os.geteuid())


def _pass_on(call: FarCall, tunnel: PortTunnel) -> None:
    """Pass input on to the tunnel until there is a None, which means the end."""
    while True:
        raw = call.inputs.get()
        if raw is None:
            return
        tunnel.on_frame(raw)
