"""The workspace of a session: its directories and files, task board, images, and rewinding.

`session.rewind` restores files, `place` reads them.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from refold.app.app import App, snapshots_of, workspace_of
from refold.client.order_sink import SendOrder
from refold.client.protocol import Rewind
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
_BUSY_SECONDS = 0.003  # after which listing pauses
_MENTION_PATTERN = r"(?<![^\s(\[])@(?:\"([^\"]+)\"|(\S+))"
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Attachments(Struct, frozen=True):
    images: tuple[ImageData, ...] = ()
    problems: tuple[str, ...] = ()


class SessionWorkspace:
    """The workspace of one session, in its present directories."""

    def __init__(self, app: App, engine: Engine, send: SendOrder) -> None:
        self._app, self._engine, self._send = app, engine, send

    @property
    def directory(self) -> str:
        return self._engine.view.session.directory

    @property
    def root(self) -> str:
        """The real path of its directory, in the place where its files are."""
        return _root_of(self._app, self._engine)

    @property
    def branch(self) -> str:
        """The branch that is checked out; "" if there is none, or no repository."""
        from refold.prompts.repository import git_state, root_of

        if place := workspace_of(self._app, self._engine.view).elsewhere:
            return _branch_in(place().head)
        state = git_state(root_of(self.directory)) if self.directory else None
        return state.branch if state else ""

    @property
    def roots(self) -> tuple[str, ...]:
        """Its further directories."""
        return self._engine.view.session.roots

    @property
    def tasks(self) -> "TaskBoard":
        """The task board of the project. It blocks on the disk: call it in a thread."""
        from refold.journal.board.board_file import TaskBoard

        places, project = self._app.paths, project_of(self._app.directory)
        return TaskBoard(
            notes_directory(places.data, project), self._app.models.masks.mask_event
        )

    @property
    def worktree(self) -> "SessionWorktree":
        """The git worktree that it works in, and the others of its repository."""
        from refold.app.entered_worktree import SessionWorktree

        own = self._engine.view.session.own_directory
        return SessionWorktree(self._engine.record, own, self._app.environ)

    @property
    def files(self) -> Files:
        """Its files, without those that a rule keeps from being read."""
        return workspace_of(self._app, self._engine.view).files

    @property
    def checkpoints(self) -> bool:
        """Whether files are checkpointed here, so that they can be restored."""
        return self._snapshots is not None

    def images_in(self, text: str) -> Attachments:
        """The images that a message names, like @screenshot.png, and their problems."""
        workspace = workspace_of(self._app, self._engine.view)
        if workspace.elsewhere:
            return find_images_elsewhere(text, workspace.files)
        return find_images(text, self.directory, workspace.why_unreadable)

    def file_names(self) -> Iterator[str]:
        """The names of its files, relative to its directory, for completion. It blocks."""
        workspace = workspace_of(self._app, self._engine.view)
        if not workspace.elsewhere:
            return file_names(self.directory or ".")
        files = workspace.files.only(())
        try:
            return iter(files.tree.walk(files.real("."), lambda: None).paths)
        except ToolFailed:  # no connection: nothing is offered
            return iter(())

    @property
    def new_ports(self) -> Sequence[int]:
        """The ports of a place elsewhere that began to listen after it connected."""
        ports = self._app.workspace.ports
        return () if ports is None else ports.new

    def list_ports(self) -> "Sequence[ListeningPort]":
        """The ports of a place elsewhere on which the user's programs listen. It blocks."""
        return self._ports.all_ports()

    def open_port(self, port: int) -> "ListeningPort":
        """Reach this port of a place elsewhere on this machine, while the session is open.

        Raises `BadInput`. It may have to connect to the place, so it blocks.
        """
        return self._ports.open(port)

    @property
    def _ports(self) -> "PortsElsewhere":
        ports = self._app.workspace.ports
        if ports is None:
            raise BadInput(_PORTS_ARE_HERE)
        return ports

    async def points(self) -> "tuple[RewindPoint, ...]":
        """The points to which the session can be rewound, oldest first."""
        from refold.session.rewind import rewind_points

        view = self._engine.view
        return await anyio.to_thread.run_sync(rewind_points, view, self._snapshots)

    @property
    def rewound(self) -> frozenset[int]:
        """The messages that a rewind took out of the conversation, by their numbers."""
        from refold.session.rewind import rewind_points

        points = rewind_points(self._engine.view, None)
        return frozenset(point.seq for point in points if not point.in_conversation)

    async def preview(self, seq: int, scope: "RewindScope" = "both") -> "RewindPreview":
        """What `rewind` would change; nothing is done."""
        from refold.session.rewind import plan_rewind, preview
        from refold.views.rewind_points import RewindPreview

        if self._snapshots is None:
            return RewindPreview(
                plan_rewind(self._engine.view, seq, _require_conversation(scope))
            )
        return await preview(self._engine.view, self._snapshots, seq, scope)

    async def diff(
        self, since: "Since | None" = None, files: Collection[str] = ()
    ) -> tuple[Diff, ...]:
        """What has changed in the workspace, in this session or since then; with `files`, no
        files but these, absolute or relative to the workspace.

        Raises `BadInput` if no files are checkpointed.
        """
        from refold.client.compare_files import SESSION_START, diffs

        view, snapshots = self._engine.view, self._require_snapshots()
        paths = _resolve(await anyio.to_thread.run_sync(lambda: self.root), files)
        return await diffs(view, snapshots, since or SESSION_START, paths)

    async def changes(self, since: "Since | None" = None) -> "tuple[FileChange, ...]":
        """Which files have changed, with counts of lines, as `diff` does."""
        from refold.client.compare_files import SESSION_START, changes

        view, snapshots = self._engine.view, self._require_snapshots()
        return await changes(view, snapshots, since or SESSION_START)

    def upload_points(self, since: "Since") -> Mapping[str, int]:
        """Files that the user uploaded since then, each with the event to which a rewind undoes
        what was changed in it.
        """
        from refold.client.compare_files import upload_points

        return upload_points(self._engine.view, since)

    async def commits(self) -> "tuple[Commit, ...]":
        """The newest commits, with which the files can be compared."""
        from refold.prompts.repository import head_commit, root_of

        snapshots, directory = self._snapshots, self.directory
        if snapshots is None or not directory:
            return ()
        if workspace_of(self._app, self._engine.view).elsewhere:
            return await anyio.to_thread.run_sync(snapshots.commits, "")
        head = await anyio.to_thread.run_sync(lambda: head_commit(root_of(directory)))
        return await anyio.to_thread.run_sync(snapshots.commits, head)

    def refusal(self, path: str) -> str:
        """Why clients may not write a file: it is protected, or a rule forbids it; or "".
        Clients are not asked to allow a write.
        """
        from refold.permissions.decide import decide
        from refold.permissions.facts import Access, Target, is_protected
        from refold.values.tools import Effect

        workspace = workspace_of(self._app, self._engine.view)
        facts, real = workspace.facts(), workspace.files.real(path)
        if any(is_protected(candidate, facts, writes=True) for candidate in (real, path)):
            return "it is protected: it holds secrets or decides what runs"
        access = Access("write_file", Effect.CHANGE, files=(Target(path, real),))
        decision = decide(access, "bypass", workspace.rules, facts)
        return decision.reason if decision.verdict == "deny" else ""

    async def draw_page(self, pdf: bytes, number: int) -> "PdfPage":
        """Draw a page of this PDF, from 1. Raises `ToolFailed`."""
        from refold.tools.pdf_pages import draw_page

        return await anyio.to_thread.run_sync(draw_page, pdf, number)

    async def read_sheet(self, workbook: bytes, number: int) -> "SheetTable":
        """Read the first rows of a sheet of this XLSX, from 1. Raises `ToolFailed`."""
        from refold.tools.spreadsheets import sheet_table

        return await anyio.to_thread.run_sync(sheet_table, workbook, number)

    async def upload(self, request: "Upload") -> str:
        """Store a file of the user, with a checkpoint before and after it. Returns the path.

        Raises `BadInput` with nothing written; for what `refusal` refuses, `Protected`.
        """
        from refold.session.upload import upload

        files = self.files.only(())
        try:
            return await upload(self._engine, files, self._snapshots, request, self.refusal)
        except ToolFailed as error:
            raise BadInput(f"{request.path!r} cannot be written: {error}") from error

    async def rewind(
        self,
        seq: int,
        scope: "RewindScope" = "both",
        *,
        drift: "DriftRule" = "refuse",
        paths: Sequence[str] = (),
    ) -> "RewindReport":
        """Go back to before event `seq`: the conversation, the files or both.

        With `paths`, no files but these, absolute or relative to the workspace. `drift`
        says what happens to files that other programs changed, as in `session.rewind`.
        """
        force, keep = drift == "overwrite", drift == "keep"
        result = await self._send(Rewind(seq, scope, force, tuple(paths), keep))
        assert result.rewound is not None, "every sink reports what was rewound"
        return result.rewound

    def _require_snapshots(self) -> Snapshots:
        if (snapshots := self._snapshots) is not None:
            return snapshots
        raise BadInput("no files are checkpointed here; in a repository, type !git diff")

    @property
    def _snapshots(self) -> Snapshots | None:
        return snapshots_of(self._app, self._engine.view)


async def rewind(app: App, engine: Engine, order: Rewind) -> "RewindReport":
    """Carry out the order, as `SessionWorkspace.rewind` says."""
    from refold.session.rewind import plan_rewind, rewind
    from refold.views.rewind_points import RewindPreview, RewindReport

    snapshots = snapshots_of(app, engine.view)
    if snapshots is not None:
        root = await anyio.to_thread.run_sync(_root_of, app, engine)
        only = _resolve(root, order.only)
        drift = "keep" if order.keep_others else "overwrite" if order.force else "refuse"
        return await rewind(
            engine, snapshots, order.to, order.what, drift=drift, paths=only
        )
    scope = _require_conversation("files" if order.only else order.what)
    planned = plan_rewind(engine.view, order.to, scope)
    if not await engine.rewind(planned.mark):
        raise BadInput("a turn of this session is running: end it, then rewind")
    return RewindReport(RewindPreview(planned), undo=engine.view.seq)


def _branch_in(head: str) -> str:
    """The branch that the text of .git/HEAD names."""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""


def _root_of(app: App, engine: Engine) -> str:
    workspace = workspace_of(app, engine.view)
    if workspace.elsewhere:
        return workspace.tool_directory
    return os.path.realpath(engine.view.session.directory)


def _resolve(real: str, paths: Collection[str]) -> list[str]:
    return [os.path.normpath(os.path.join(real, path)) for path in paths]


def _require_conversation(scope: "RewindScope") -> "RewindScope":
    """What to rewind without checkpoints: only the conversation. Raises `BadInput`."""
    if scope == "files":
        raise BadInput(
            "no files are checkpointed here, so only the conversation can be rewound"
        )
    return "conversation"


def find_images(
    text: str, directory: str, why_unreadable: Callable[[str], str]
) -> Attachments:
    """The images that `text` names, relative to `directory`.

    A name that looks like an image but cannot be shown is a problem, and not sent.
    `why_unreadable` returns why a rule forbids reading a file, or "".
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
        try:
            from refold.tools.images import image_file  # few messages name one

            images.append(image_file(path, name))
        except BadInput as error:
            problems.append(str(error))
    return Attachments(tuple(images), tuple(problems))


def find_images_elsewhere(text: str, files: Files) -> Attachments:
    """As `find_images`, of files that are not on this machine."""
    from refold.tools.images import MAX_FILE_BYTES, image_data

    images, problems = list[ImageData](), list[str]()
    for name in filter(_is_image_name, _names_in(text)):
        try:
            own = files.only(())
            real = own.real(name)
            if own.kind(real) != "file":
                continue
            if why := own.outside(real) or own.why_unreadable(real):
                problems.append(f"{name!r} was not sent: {why}")
                continue
            images.append(image_data(own.read(real, MAX_FILE_BYTES), name))
        except (BadInput, ToolFailed) as error:
            problems.append(str(error))
    return Attachments(tuple(images), tuple(problems))


def _names_in(text: str) -> Iterator[str]:
    for quoted, plain in re.findall(_MENTION_PATTERN, text) if "@" in text else ():
        yield quoted or plain.rstrip(".,;:!?)")


def _is_image_name(name: str) -> bool:
    return name.lower().endswith(_IMAGE_SUFFIXES)


def file_names(directory: str) -> Iterator[str]:
    """The files of a directory, relative to it, as they are listed: for completion.

    Files that git ignores are left out. Waits for a disk; raises `OSError`.
    """
    from refold.place.file_walk import walk

    root = os.path.realpath(directory)
    until = time.monotonic() + _LISTING_SECONDS
    paused = time.monotonic()

    def on_step() -> None:
        nonlocal paused
        if (now := time.monotonic()) > until:
            raise TimeoutError
        if now > paused + _BUSY_SECONDS:
            time.sleep(0.0005)  # a key pressed meanwhile has priority
            paused = time.monotonic()

    for path in walk(root, on_step):
        yield path[len(root) :].lstrip("/")
