"""The workspace of a session: directories and files, task board, images, and rewinding.

`session.rewind` restores files, and `place` reads them.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from refold.app.app import App, snapshots_of, workspace_of
from refold.client.order_sink import SendOrder
from refold.client.protocol import Rewind, UploadFile
from refold.errors import BadInput, ToolFailed
from refold.memory.project import notes_directory, project_of
from refold.place.port import Files, Snapshots
from refold.session.session import Session as Engine
from refold.tools.contract import ImageData
from refold.values.display import Diff

if TYPE_CHECKING:
    from refold.app.entered_worktree import SessionWorktree
    from refold.app.ports_elsewhere import ListeningPort, PortsElsewhere
    from refold.client.compare_files import Since
    from refold.journal.board.board_file import TaskBoard
    from refold.place.port import Commit, FileChange
    from refold.session.upload import Upload
    from refold.tools.pdf_pages import PdfPage
    from refold.values.sheet_table import SheetTable
    from refold.views.rewind_points import (
        DriftRule,
        RewindPoint,
        RewindPreview,
        RewindReport,
        RewindScope,
    )

_PORTS_ARE_HERE = "the workspace is on this machine, and so are its servers: open their addresses directly"
_LISTING_SECONDS = 20.0
_BUSY_SECONDS = 0.003  # of listing files, after which the listing pauses
_PAUSE_SECONDS = 0.0005  # lets the event loop handle a pressed key first
# `@name` or `@"name with spaces"`, at the start of a word.
_MENTION_PATTERN = r"(?<![^\s(\[])@(?:\"([^\"]+)\"|(\S+))"
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Attachments(Struct, frozen=True):
    images: tuple[ImageData, ...] = ()
    problems: tuple[str, ...] = ()


class SessionWorkspace:
    """The workspace of one session, in its present directories."""

    def __init__(self, app: App, engine: Engine, send: SendOrder) -> None:
        self._app = app
        self._engine = engine
        self._send = send

    @property
    def directory(self) -> str:
        return self._engine.view.session.directory

    @property
    def root(self) -> str:
        """The real path of the session's directory, on the machine that has the files."""
        return _root_of(self._app, self._engine)

    @property
    def branch(self) -> str:
        """The branch that is checked out; "" without a branch or a repository."""
        from refold.prompts.repository import git_state, root_of

        greeting_of_place = workspace_of(self._app, self._engine.view).elsewhere
        if greeting_of_place is not None:
            return _branch_in(greeting_of_place().head)
        if not self.directory:
            return ""
        state = git_state(root_of(self.directory))
        return state.branch if state else ""

    @property
    def roots(self) -> tuple[str, ...]:
        """The further directories of the session."""
        return self._engine.view.session.roots

    @property
    def tasks(self) -> "TaskBoard":
        """The task board of the project. It blocks on the disk: call it in a thread."""
        from refold.journal.board.board_file import TaskBoard

        project = project_of(self._app.directory)
        directory = notes_directory(self._app.paths.data, project)
        return TaskBoard(directory, self._app.models.masks.mask_event)

    @property
    def worktree(self) -> "SessionWorktree":
        """The git worktrees of the repository. The session may work in one of them."""
        from refold.app.entered_worktree import SessionWorktree

        own = self._engine.view.session.own_directory
        return SessionWorktree(self._engine.record, own, self._app.environ)

    @property
    def files(self) -> Files:
        """The session's files, except those that a deny rule hides."""
        return workspace_of(self._app, self._engine.view).files

    @property
    def checkpoints(self) -> bool:
        """Whether files are checkpointed, so that they can be restored."""
        return self._snapshots is not None

    def images_in(self, text: str) -> Attachments:
        """Return the images that a message names, like @screenshot.png, and their
        problems.
        """
        workspace = workspace_of(self._app, self._engine.view)
        if workspace.elsewhere:
            return find_images_elsewhere(text, workspace.files)
        return find_images(text, self.directory, workspace.why_unreadable)

    def file_names(self) -> Iterator[str]:
        """Yield the names of files, relative to the directory, for completion. It blocks.
        Yield none if they are on another machine that cannot be reached.
        """
        workspace = workspace_of(self._app, self._engine.view)
        if not workspace.elsewhere:
            return file_names(self.directory or ".")
        files = workspace.files.only(())
        root = files.real(".")
        try:
            found = files.tree.walk(root, lambda: None)  # no progress is shown
        except ToolFailed:
            return iter(())
        return iter(found.paths)

    @property
    def new_ports(self) -> Sequence[int]:
        """The ports that opened on the workspace's machine since refold connected to it.

        () if the workspace is on this machine.
        """
        ports = self._app.workspace.ports
        return () if ports is None else ports.new_ports

    def list_ports(self) -> "Sequence[ListeningPort]":
        """Return the ports on which the user's programs listen on the machine of the workspace.

        It blocks. Raises `BadInput` if the workspace is on this machine.
        """
        return self._ports.all_ports()

    def open_port(self, port: int) -> "ListeningPort":
        """Forward a port of the workspace's machine to this machine, while the session is open.

        It blocks, because it may have to connect. Raises `BadInput` if that is not
        possible.
        """
        return self._ports.open(port)

    @property
    def _ports(self) -> "PortsElsewhere":
        ports = self._app.workspace.ports
        if ports is None:
            raise BadInput(_PORTS_ARE_HERE)
        return ports

    async def points(self) -> "tuple[RewindPoint, ...]":
        """Return the points to which the session can be rewound, oldest first."""
        from refold.session.rewind import rewind_points

        view = self._engine.view
        return await anyio.to_thread.run_sync(rewind_points, view, self._snapshots)

    @property
    def rewound(self) -> frozenset[int]:
        """The event numbers of the messages that a rewind removed from the conversation."""
        from refold.session.rewind import rewind_points

        points = rewind_points(self._engine.view, snapshots=None)
        return frozenset(point.seq for point in points if not point.in_conversation)

    async def preview(self, seq: int, scope: "RewindScope" = "both") -> "RewindPreview":
        """Return what `rewind` would change, without changing it."""
        from refold.session.rewind import plan_rewind, preview
        from refold.views.rewind_points import RewindPreview

        if self._snapshots is None:
            conversation = _require_conversation(scope)
            return RewindPreview(plan_rewind(self._engine.view, seq, conversation))
        return await preview(self._engine.view, self._snapshots, seq, scope)

    async def diff(
        self, since: "Since | None" = None, files: Collection[str] = ()
    ) -> tuple[Diff, ...]:
        """Return how files have changed since the moment `since` (None: the session's
        start), as diffs.

        With `files`, only these are compared; their paths are absolute, or relative to the
        workspace. Raises `BadInput` if no files are checkpointed.
        """
        from refold.client.compare_files import SESSION_START, diffs

        view, snapshots = self._engine.view, self._require_snapshots()
        root = await anyio.to_thread.run_sync(lambda: self.root)
        paths = _resolve(root, files)
        return await diffs(view, snapshots, since or SESSION_START, paths)

    async def changes(self, since: "Since | None" = None) -> "tuple[FileChange, ...]":
        """Return the files that have changed since the moment `since`, with counts of lines.

        None is the start of the session. Raises `BadInput` as `diff` does.
        """
        from refold.client.compare_files import SESSION_START, changes

        view, snapshots = self._engine.view, self._require_snapshots()
        return await changes(view, snapshots, since or SESSION_START)

    def upload_points(self, since: "Since") -> Mapping[str, int]:
        """Return, for each file that the user uploaded after `since`, the number of an event.

        A rewind to that event undoes the later changes of the file.
        """
        from refold.client.compare_files import upload_points

        return upload_points(self._engine.view, since)

    async def commits(self) -> "tuple[Commit, ...]":
        """Return the newest commits of the repository, with which files can be compared."""
        from refold.prompts.repository import head_commit, root_of

        snapshots, directory = self._snapshots, self.directory
        if snapshots is None or not directory:
            return ()
        if workspace_of(self._app, self._engine.view).elsewhere:
            head = ""  # its repository cannot be read from here: git finds the commit
        else:
            head = await anyio.to_thread.run_sync(lambda: head_commit(root_of(directory)))
        return await anyio.to_thread.run_sync(snapshots.commits, head)

    async def draw_page(self, pdf: bytes, number: int) -> "PdfPage":
        """Return page `number` of this PDF as an image; the first is 1.

        Raises `ToolFailed` if it cannot be drawn.
        """
        from refold.tools.pdf_pages import draw_page

        return await anyio.to_thread.run_sync(draw_page, pdf, number)

    async def read_sheet(self, workbook: bytes, number: int) -> "SheetTable":
        """Return the first rows of sheet `number` of this XLSX workbook; the first is 1.

        Raises `ToolFailed` if it cannot be read.
        """
        from refold.tools.spreadsheets import sheet_table

        return await anyio.to_thread.run_sync(sheet_table, workbook, number)

    async def upload(self, request: "Upload") -> str:
        """Store a file of the user, with a checkpoint before and after it. Return its path.

        Raises `BadInput` if nothing was written, and its subclass `Protected` if the file is
        protected, or if a rule forbids writing it.
        """
        result = await self._send(
            UploadFile(request.path, request.content, request.replaces, request.renames)
        )
        return result.uploaded

    async def rewind(
        self,
        seq: int,
        scope: "RewindScope" = "both",
        *,
        drift: "DriftRule" = "refuse",
        paths: Sequence[str] = (),
    ) -> "RewindReport":
        """Go back to before event `seq`: with the conversation, the files or both.

        With `paths`, only these files are restored; they are absolute, or relative to the
        workspace. `drift` says what happens to files that other programs have changed, as
        in `session.rewind`.
        """
        order = Rewind(
            to=seq,
            what=scope,
            force=drift == "overwrite",
            only=tuple(paths),
            keep_others=drift == "keep",
        )
        result = await self._send(order)
        assert result.rewound is not None, "every sink reports what was rewound"
        return result.rewound

    def _require_snapshots(self) -> Snapshots:
        """Return the snapshots. Raises `BadInput` if no files are checkpointed."""
        if (snapshots := self._snapshots) is None:
            raise BadInput(
                "no files are checkpointed here; in a repository, type !git diff"
            )
        return snapshots

    @property
    def _snapshots(self) -> Snapshots | None:
        return snapshots_of(self._app, self._engine.view)


async def rewind(app: App, engine: Engine, order: Rewind) -> "RewindReport":
    """Carry out the order as `SessionWorkspace.rewind` describes it.

    If no files are checkpointed, only the conversation can go back.
    """
    from refold.session import rewind as session_rewind
    from refold.views.rewind_points import RewindPreview, RewindReport

    snapshots = snapshots_of(app, engine.view)
    if snapshots is not None:
        root = await anyio.to_thread.run_sync(_root_of, app, engine)
        return await session_rewind.rewind(
            engine,
            snapshots,
            order.to,
            order.what,
            drift=_drift_rule(order),
            paths=_resolve(root, order.only),
        )
    # `only` names files.
    scope = _require_conversation("files" if order.only else order.what)
    planned = session_rewind.plan_rewind(engine.view, order.to, scope)
    if not await engine.rewind(planned.mark):
        raise BadInput("a turn of this session is running: end it, then rewind")
    return RewindReport(RewindPreview(planned), undo=engine.view.seq)


def _drift_rule(order: Rewind) -> "DriftRule":
    """Return what happens to files that other programs have changed."""
    if order.keep_others:
        return "keep"
    return "overwrite" if order.force else "refuse"


async def upload(app: App, engine: Engine, order: UploadFile) -> str:
    """Carry out the order, as `SessionWorkspace.upload` says."""
    from refold.session import upload as uploads

    files = workspace_of(app, engine.view).files.only(())
    request = uploads.Upload(order.path, order.content, order.replaces, order.renames)
    snapshots = snapshots_of(app, engine.view)
    refusal = partial(_refusal, app, engine)
    try:
        return await uploads.upload(engine, files, snapshots, request, refusal)
    except ToolFailed as error:
        raise BadInput(f"{order.path!r} cannot be written: {error}") from error


def _refusal(app: App, engine: Engine, path: str) -> str:
    """Return why clients may not write a file; "" if they may.

    A file may be protected, or a rule may forbid it. The user is not asked.
    """
    from refold.permissions.decide import decide
    from refold.permissions.facts import Access, Target, is_protected
    from refold.values.tools import Effect

    workspace = workspace_of(app, engine.view)
    facts = workspace.facts()
    real = workspace.files.real(path)  # links followed
    if is_protected(real, facts, writes=True) or is_protected(path, facts, writes=True):
        return "it is protected: it holds secrets or decides what runs"
    access = Access("write_file", Effect.CHANGE, files=(Target(path, real),))
    # In this mode nothing but a rule denies a call, and nothing asks.
    decision = decide(access, "bypass", workspace.rules, facts)
    return decision.reason if decision.verdict == "deny" else ""


def _branch_in(head: str) -> str:
    """Return the name of the branch in the text of .git/HEAD; "" if it names a commit."""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""


def _root_of(app: App, engine: Engine) -> str:
    """Return the directory in which tools work, as a real path if it is here."""
    workspace = workspace_of(app, engine.view)
    if workspace.elsewhere:
        return workspace.tool_directory
    return os.path.realpath(engine.view.session.directory)


def _resolve(root: str, paths: Collection[str]) -> list[str]:
    return [os.path.normpath(os.path.join(root, path)) for path in paths]


def _require_conversation(scope: "RewindScope") -> "RewindScope":
    """Return the scope `conversation`, also for `both`, because no files are checkpointed.

    Raises `BadInput` for the scope `files`.
    """
    if scope == "files":
        raise BadInput(
            "no files are checkpointed here, so only the conversation can be rewound"
        )
    return "conversation"


def find_images(
    text: str, directory: str, why_unreadable: Callable[[str], str]
) -> Attachments:
    """Return the images that `text` names, relative to `directory`.

    A file that looks like an image but cannot be shown is reported as a problem, and not
    sent. `why_unreadable` returns why a rule forbids reading a file, or "".
    """
    images: list[ImageData] = []
    problems: list[str] = []
    for name in _names_in(text):
        path = Path(directory, Path(name).expanduser())
        if not _is_image_name(name) or not path.is_file():
            continue
        if why := why_unreadable(str(path)):
            problems.append(f"{name!r} was not sent: {why}")
            continue
        from refold.tools.images import image_file  # late: few messages name one

        try:
            images.append(image_file(path, name))
        except BadInput as error:
            problems.append(str(error))
    return Attachments(tuple(images), tuple(problems))


def find_images_elsewhere(text: str, files: Files) -> Attachments:
    """Return the images that `text` names, as `find_images` does, from files on another
    machine.
    """
    from refold.tools.images import MAX_FILE_BYTES, image_data

    images: list[ImageData] = []
    problems: list[str] = []
    for name in _names_in(text):
        if not _is_image_name(name):
            continue
        try:
            workspace_files = files.only(())  # no files outside of the workspace
            real = workspace_files.real(name)
            if workspace_files.kind(real) != "file":
                continue
            why = workspace_files.outside(real) or workspace_files.why_unreadable(real)
            if why:
                problems.append(f"{name!r} was not sent: {why}")
                continue
            content = workspace_files.read(real, MAX_FILE_BYTES)
            images.append(image_data(content, name))
        except (BadInput, ToolFailed) as error:
            problems.append(str(error))
    return Attachments(tuple(images), tuple(problems))


def _names_in(text: str) -> Iterator[str]:
    """Yield the names of files in a message, as in `@a.png` and `@"b c.png"`."""
    if "@" not in text:
        return
    for quoted, plain in re.findall(_MENTION_PATTERN, text):
        yield quoted or plain.rstrip(".,;:!?)")


def _is_image_name(name: str) -> bool:
    return name.lower().endswith(_IMAGE_SUFFIXES)


def file_names(directory: str) -> Iterator[str]:
    """Yield the paths of the files in a directory, relative to it, for completion.

    Files that git ignores are left out. It blocks, with pauses for other threads. Raises
    `OSError`, also if it takes too long.
    """
    from refold.place.file_walk import walk

    root = os.path.realpath(directory)
    until = time.monotonic() + _LISTING_SECONDS
    paused = time.monotonic()

    def on_step() -> None:
        """Raise `TimeoutError` after the time limit, and let other threads run now and then."""
        nonlocal paused
        now = time.monotonic()
        if now > until:
            raise TimeoutError
        if now > paused + _BUSY_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            paused = time.monotonic()

    for path in walk(root, on_step):
        yield path[len(root) :].lstrip("/")
