"""Dependencies of tools that are loaded when a tool first uses them.

Each class has the methods of a port of `tools`. Its first call imports the implementation, so a
session that fetches no page imports no web client. `tool_dependencies` gives these objects to
the tools.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio

from refold.app.shared_resources import SharedResources
from refold.config.settings import Settings
from refold.engine.authorize import ParentRights
from refold.errors import BadInput, JournalError, ToolFailed
from refold.journal.session_index import SessionIndex
from refold.journal.state.background import BackgroundCommand
from refold.place.port import Commands, Files, Finished, Real
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.tools.code import Mentions, Problems, Symbols
from refold.tools.memory import Notebook
from refold.tools.shell import BackgroundOutput, BackgroundRequest
from refold.tools.web import Judge
from refold.values.claims import CheckedClaim, Claim
from refold.values.control import BoardTask, NewTask, TaskChange
from refold.values.kept_output import Printed

if TYPE_CHECKING:
    from refold.agents.background_commands import BackgroundCommands
    from refold.app.entered_worktree import SessionWorktree
    from refold.app.session_schedules import SessionSchedules
    from refold.code.edit_checks import EditChecks
    from refold.code.source_code import SourceCode
    from refold.journal.board.board_file import TaskBoard
    from refold.place.handover import Handover
    from refold.tools.page_text import SearchHits, WebPage
    from refold.web.client import WebClient

T = TypeVar("T")


class LazyNotebook:
    """The notes of a session. They are loaded when the session writes a note."""

    def __init__(self, find: Callable[[], Notebook]) -> None:
        self._find = find

    async def write(self, section: str, text: str, replaces: str) -> str:
        return await self._find().write(section, text, replaces)


class LazyBoard:
    """The task board of a project. It is loaded when a task is read or changed."""

    def __init__(self, project: Path, masks: Redactor) -> None:
        self._project, self._masks = project, masks
        # Calls run in order: a task may be blocked by a task that the call before it adds.
        self._lock = anyio.Lock()

    async def add(self, task: NewTask, author: str, key: str) -> BoardTask:
        return await self._run_in_thread(lambda board: board.add(task, author, key))

    async def change(self, id_: int, change: TaskChange, author: str) -> BoardTask:
        return await self._run_in_thread(lambda board: board.change(id_, change, author))

    async def claim(self, id_: int, author: str, key: str) -> BoardTask:
        return await self._run_in_thread(lambda board: board.claim(id_, author, key))

    async def task(self, id_: int) -> BoardTask:
        return await self._run_in_thread(lambda board: board.read().task(id_))

    async def tasks(self) -> Sequence[BoardTask]:
        return await self._run_in_thread(lambda board: board.read().tasks)

    @cached_property
    def _board(self) -> "TaskBoard":
        from refold.journal.board.board_file import TaskBoard

        return TaskBoard(self._project, self._masks.mask_event)

    async def _run_in_thread(self, function: "Callable[[TaskBoard], T]") -> T:
        """Return the result of `function` for the board. Raises `ToolFailed` for its errors."""
        try:
            async with self._lock:
                return await anyio.to_thread.run_sync(function, self._board)
        except (BadInput, JournalError) as error:
            # A board that cannot be written must not end the session.
            text = str(error)
            raise ToolFailed(f"{text[:1].upper()}{text[1:]}.") from error


class LazyWeb:
    """The web client. It is created when it is first used."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings, self._environ = settings, environ

    @cached_property
    def _client(self) -> "WebClient":
        from refold.web.client import WebClient

        return WebClient(self._environ, obey_robots=self._settings.web.robots)

    async def fetch(self, url: str, judge: Judge) -> "WebPage":
        return await self._client.fetch(url, judge)

    async def search(self, query: str, count: int) -> "SearchHits":
        """Return at most `count` hits of the search service that the settings name."""
        from refold.web.search import choose_engine

        service = choose_engine(self._settings.web.search, self._environ)
        return await self._client.search(service, query, count)


class LazyCode:
    """Answers questions about the source code of a workspace.

    `files` has the files that the agent may read; answers omit all others.
    """

    def __init__(self, shared: SharedResources, files: Files) -> None:
        self._shared, self._files = shared, files
        self._loaded: SourceCode | None = None
        self._checks: EditChecks | None = None

    async def list_symbols(self, file: Real, query: str) -> Symbols:
        return await (await self._code()).list_symbols(file, query)

    async def find_symbols(self, query: str) -> Symbols:
        return await (await self._code()).find_symbols(query)

    async def mentions(self, file: Real, line: int, symbol: str) -> Mentions:
        return await (await self._code()).mentions(file, line, symbol)

    async def problems(self, files: Sequence[Real]) -> Problems:
        return await (await self._code()).problems(files)

    async def outline(self, focus: Sequence[str], tokens: int) -> str:
        """Return the map of the workspace about `focus`, in at most `tokens` tokens."""
        from refold.app.repository_maps import outline_for_agent

        shared = self._shared
        return await outline_for_agent(
            shared.workspace, shared.paths, shared.environ, self._files, focus, tokens
        )

    async def begin(self, files: Sequence[str]) -> Callable[[], Awaitable[str]] | None:
        """Check these files before they are changed.

        Return a function to call after the change: its result is the new problems as text, or
        "". Return None if edits are not checked.
        """
        mode = self._shared.settings.code.after_edit
        if mode == "off" or (mode == "auto" and not self._shared.workspace.reads_code):
            return None
        if self._checks is None:
            from refold.code.edit_checks import EditChecks

            code = await self._code()
            self._checks = EditChecks(code, self._files, starts=mode == "on")
        return await self._checks.begin(files)

    async def _code(self) -> "SourceCode":
        """Return the source code of the workspace, which is loaded once."""
        if self._loaded is None:
            from refold.code.source_code import SourceCode

            log = self._shared.models.connections.log
            place = await anyio.to_thread.run_sync(self._shared.workspace.code, log)
            self._loaded = SourceCode(place, self._files)
        return self._loaded


class LazySchedules:
    """The schedules of the user. They are loaded when the session adds a schedule."""

    def __init__(self, shared: SharedResources, record: Recorder) -> None:
        self._shared, self._record = shared, record

    async def add(self, call: str, prompt: str, when: str, every: str) -> str:
        return await self._schedules.add(call, prompt, when, every)

    @cached_property
    def _schedules(self) -> "SessionSchedules":
        """Return the schedules of the session. Raises `ToolFailed` if it is not saved."""
        from refold.app.session_schedules import SessionSchedules

        shared = self._shared
        if shared.paths is None:
            raise ToolFailed("This session is not saved, so it cannot schedule anything.")
        return SessionSchedules(
            shared.paths, shared.environ, shared.settings, shared.options, self._record
        )


class LazyWorktrees:
    """The worktree of a session. It is loaded when the session enters or leaves a worktree."""

    def __init__(self, shared: SharedResources, record: Recorder) -> None:
        self._shared, self._record = shared, record

    async def enter(self, name: str, branch: str, call: str) -> str:
        return await self._worktree.enter(name, branch, call)

    async def describe_loss(self) -> tuple[str, str]:
        return await self._worktree.describe_loss()

    async def leave(self, *, remove: bool, call: str) -> str:
        return await self._worktree.leave(remove=remove, call=call)

    @cached_property
    def _worktree(self) -> "SessionWorktree":
        from refold.app.entered_worktree import SessionWorktree

        own_directory = self._record.view.session.own_directory
        return SessionWorktree(self._record, own_directory, self._shared.environ)


class LazyBackground:
    """The background commands of a session.

    They are loaded when a command is started, or when a method asks about a command.
    """

    def __init__(self, record: Recorder, above: ParentRights | None = None) -> None:
        self._record, self._above = record, above
        self._loaded: BackgroundCommands | None = None
        # The running calls of `bash` that can be moved.
        self._movable: dict[str, Handover] = {}

    async def start(
        self, call_id: str, request: BackgroundRequest, commands: Commands
    ) -> str:
        return await self._commands.start(call_id, request, commands)

    @contextmanager
    def movable(self, call_id: str) -> "Generator[Handover]":
        """Return a context in which the command of a call can be moved to the background."""
        from refold.place.handover import Handover  # not before a command runs

        handover = self._movable[call_id] = Handover()
        try:
            yield handover
        finally:
            del self._movable[call_id]

    async def adopt(
        self, call_id: str, request: BackgroundRequest, so_far: Finished, printed: Printed
    ) -> str:
        return await self._commands.adopt(call_id, request, so_far, printed)

    def move(self, call_id: str = "") -> bool:
        """Move the command of a call of `bash` to the background; "" moves all running
        commands.

        Return False if no command runs. Raises `BadInput` if too many run in the background.
        """
        handovers = [item for id_, item in self._movable.items() if call_id in ("", id_)]
        if handovers and (full := self._commands.refusal()):
            raise BadInput(f"{full}: stop one first")
        for item in handovers:
            item.request()
        return bool(handovers)

    async def output(self, name: str, *, all_of_it: bool = False) -> BackgroundOutput:
        return await self._commands.output(name, all_of_it=all_of_it)

    async def stop(self, name: str, *, silent: bool = False) -> bool:
        return await self._commands.stop(name, silent=silent)

    async def read_tail(self, name: str, max_bytes: int) -> str:
        return await self._commands.read_tail(name, max_bytes)

    def all_commands(self) -> Sequence[BackgroundCommand]:
        return self._record.view.background.commands

    async def close(self) -> None:
        if self._loaded is not None:
            await self._loaded.close()

    @property
    def _commands(self) -> "BackgroundCommands":
        if self._loaded is None:
            from refold.agents.background_commands import BackgroundCommands

            self._loaded = BackgroundCommands(self._record, self._above)
        return self._loaded


class LazyChecks:
    """The check of claims. It is loaded when a claim is made."""

    def __init__(
        self, record: Recorder, files: Files, sessions: SessionIndex | None
    ) -> None:
        self._dependencies = record, files, sessions

    async def check(self, claims: Sequence[Claim]) -> Sequence[CheckedClaim]:
        from refold.claims.check import Checking

        return await Checking(*self._dependencies).check(claims)
