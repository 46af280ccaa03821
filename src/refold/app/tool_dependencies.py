"""The dependencies of a session's tools, and the tools that the session has.

They are the same for every turn. `agents.profile` decides which of the tools an agent has,
and `turn_context` has what else a turn needs.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
from msgspec import Struct

from refold.agents.child import ChildSpec
from refold.agents.children import Children
from refold.agents.profile import OfferedTools, Profile, tools_of
from refold.agents.registry import Registry
from refold.app.launch_options import LaunchOptions
from refold.app.models import Models
from refold.app.python_setup import SessionPython
from refold.app.system_prompt import SystemPromptBuilder
from refold.app.workspace import Workspace
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.engine.authorize import ParentRights
from refold.engine.decide import Policy
from refold.errors import BadInput, JournalError, ToolFailed
from refold.journal.session_index import SessionIndex
from refold.journal.state.background import BackgroundCommand
from refold.journal.state.fold import View
from refold.permissions.rules import Rule
from refold.place.handover import Handover
from refold.place.port import Commands, Files, Finished, Real, Snapshots
from refold.session.full_history import History
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.skills.catalogue import Catalogue
from refold.tools.code import Mentions, Problems, Symbols
from refold.tools.contract import Tool
from refold.tools.memory import Notebook
from refold.tools.shell import BackgroundOutput, BackgroundRequest
from refold.tools.task import AgentChoice, task, task_for
from refold.tools.web import Judge
from refold.values.claims import CheckedClaim, Claim
from refold.values.control import BoardTask, NewTask, TaskChange
from refold.values.kept_output import Printed
from refold.values.tools import IDLE, Effect

if TYPE_CHECKING:
    from refold.agents.background_commands import BackgroundCommands
    from refold.agents.team import Team
    from refold.app.entered_worktree import SessionWorktree, Workspaces
    from refold.app.live_traces import LiveTraces
    from refold.app.mcp_servers import McpServers
    from refold.app.project_memory import ProjectMemory
    from refold.app.session_hooks import ConfiguredHooks
    from refold.app.session_schedules import SessionSchedules
    from refold.code.edit_checks import EditChecks
    from refold.code.source_code import SourceCode
    from refold.journal.board.board_file import TaskBoard
    from refold.tools.page_text import SearchHits, WebPage
    from refold.web.client import WebClient

T = TypeVar("T")
_SKILL_TOOLS = ("list_skills", "read_skill")
_MEMORY_TOOLS = ("memory_write",)
# Only in the user's own session.
_USER_TOOLS = ("schedule", "enter_worktree", "exit_worktree")
_LOCAL_TOOLS = ("python", "enter_worktree", "exit_worktree")  # not in a workspace elsewhere
_BOARD_TOOLS = ("task_create", "task_get", "task_update", "task_list", "task_claim")


class SharedResources(Struct, frozen=True):
    """Shared by all sessions of one start."""

    settings: Settings
    options: LaunchOptions
    models: Models
    workspace: Workspace
    tools: tuple[Tool, ...]
    agents: Registry = Registry()
    mcp: "McpServers | None" = None
    environ: Mapping[str, str] = {}
    hooks: "ConfiguredHooks | None" = None
    policies: tuple[Policy, ...] = ()  # of plug-ins
    paths: Paths | None = None
    traces: "LiveTraces | None" = None
    workspaces: "Callable[[], Workspaces] | None" = None  # in worktrees of the repository


class SessionResources(Struct, frozen=True):
    """The resources of one session."""

    system_prompt: SystemPromptBuilder
    skills: Catalogue
    remembering: "Callable[[], ProjectMemory]"  # called late: it needs an import
    remembers: bool  # whether any notes exist here
    project: Path  # the directory for its notes and tasks
    snapshots: Snapshots | None = None  # None: files cannot be restored
    python: SessionPython | None = None
    sessions: SessionIndex | None = None  # where it is stored, if it is saved
    background: "LazyBackground | None" = None  # from its former workspace


class LazyNotebook:
    """The notes of a session, found when one is written."""

    def __init__(self, find: Callable[[], Notebook]) -> None:
        self._find = find

    async def write(self, section: str, text: str, replaces: str) -> str:
        return await self._find().write(section, text, replaces)


class LazyBoard:
    """The task board in that directory, loaded when a task is read or changed."""

    def __init__(self, project: Path, masks: Redactor) -> None:
        self._project, self._masks = project, masks
        # A task may be blocked by one that the call before it adds.
        self._in_order = anyio.Lock()

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
        try:
            async with self._in_order:
                return await anyio.to_thread.run_sync(function, self._board)
        except (BadInput, JournalError) as error:
            # A board that cannot be written must not end the session.
            raise ToolFailed(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error


class LazyWeb:
    """The web client, created when it is first used."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._of = settings, environ

    @cached_property
    def _client(self) -> "WebClient":
        from refold.web.client import WebClient

        settings, environ = self._of
        return WebClient(environ, obey_robots=settings.web.robots)

    async def fetch(self, url: str, judge: Judge) -> "WebPage":
        return await self._client.fetch(url, judge)

    async def search(self, query: str, count: int) -> "SearchHits":
        from refold.web.search import engine

        settings, environ = self._of
        service = engine(settings.web.search, environ)
        return await self._client.search(service, query, count)


class LazyCode:
    """The source code of a workspace, for sessions that ask about it.

    `files` are the agent's: answers omit what it may not read.
    """

    def __init__(self, shared: SharedResources, files: Files) -> None:
        self._shared, self._files = shared, files
        self._made: SourceCode | None = None
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
        from refold.app.repository_maps import outline_for_agent

        own = self._shared
        places = own.workspace, own.paths, own.environ
        return await outline_for_agent(*places, self._files, focus, tokens)

    async def begin(self, files: Sequence[str]) -> Callable[[], Awaitable[str]] | None:
        """Implements `engine.world.EditChecks`."""
        mode = self._shared.settings.code.after_edit
        if mode == "off" or (mode == "auto" and not self._shared.workspace.reads_code):
            return None
        if self._checks is None:
            from refold.code.edit_checks import EditChecks

            code = await self._code()
            self._checks = EditChecks(code, self._files, starts=mode == "on")
        return await self._checks.begin(files)

    async def _code(self) -> "SourceCode":
        if self._made is None:
            from refold.code.source_code import SourceCode

            log = self._shared.models.connections.log
            place = await anyio.to_thread.run_sync(self._shared.workspace.code, log)
            self._made = SourceCode(place, self._files)
        return self._made


class LazySchedules:
    """The schedules of the user, for a session that adds one."""

    def __init__(self, shared: SharedResources, record: Recorder) -> None:
        self._of = shared, record

    async def add(self, call: str, prompt: str, when: str, every: str) -> str:
        return await self._schedules.add(call, prompt, when, every)

    @cached_property
    def _schedules(self) -> "SessionSchedules":
        from refold.app.session_schedules import SessionSchedules

        shared, record = self._of
        if shared.paths is None:
            raise ToolFailed("This session is not saved, so it cannot schedule anything.")
        return SessionSchedules(
            shared.paths, shared.environ, shared.settings, shared.options, record
        )


class LazyWorktrees:
    """The worktree of a session, for one that enters or leaves one."""

    def __init__(self, shared: SharedResources, record: Recorder) -> None:
        self._of = shared, record

    async def enter(self, name: str, branch: str, call: str) -> str:
        return await self._worktree.enter(name, branch, call)

    async def describe_loss(self) -> tuple[str, str]:
        return await self._worktree.describe_loss()

    async def leave(self, *, remove: bool, call: str) -> str:
        return await self._worktree.leave(remove=remove, call=call)

    @cached_property
    def _worktree(self) -> "SessionWorktree":
        from refold.app.entered_worktree import SessionWorktree

        shared, record = self._of
        own = record.view.session.own_directory
        return SessionWorktree(record, own, shared.environ)


class LazyBackground:
    """The background commands of a session: loaded when one is started or asked about."""

    def __init__(self, record: Recorder, above: ParentRights | None = None) -> None:
        self._record, self._above = record, above
        self._made: BackgroundCommands | None = None
        self._movable: dict[str, Handover] = {}  # of the calls of `bash` that run

    async def start(
        self, call_id: str, request: BackgroundRequest, commands: Commands
    ) -> str:
        return await self._commands.start(call_id, request, commands)

    @contextmanager
    def movable(self, call_id: str) -> Generator[Handover]:
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
        """Move the command of this call of `bash` to the background; "" moves all that run.

        Return False if no such command runs. Raises `BadInput` if too many run there.
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
        if self._made is not None:
            await self._made.close()

    @property
    def _commands(self) -> "BackgroundCommands":
        if self._made is None:
            from refold.agents.background_commands import BackgroundCommands

            self._made = BackgroundCommands(self._record, self._above)
        return self._made


class LazyChecks:
    """The check of claims, loaded when a claim is made."""

    def __init__(
        self, record: Recorder, files: Files, sessions: SessionIndex | None
    ) -> None:
        self._over = record, files, sessions

    async def check(self, claims: Sequence[Claim]) -> Sequence[CheckedClaim]:
        from refold.claims.check import Checking

        return await Checking(*self._over).check(claims)


class ToolDependencies:
    """Dependencies of the session `id_` with the journal `record`; `child` limits them."""

    def __init__(
        self,
        shared: SharedResources,
        resources: SessionResources,
        record: Recorder,
        id_: str,
        children: Children,
        child: ChildSpec | None,
    ) -> None:
        self._shared, self._resources = shared, resources
        self._record, self._id = record, id_
        self._children, self._child = children, child
        self.background = resources.background or LazyBackground(
            record, child.parent if child else None
        )
        self._board = None
        if shared.options.keep:
            self._board = LazyBoard(resources.project, shared.models.masks)
        children.board = self._board

    def files_and_commands(self, read_rules: Sequence[Rule] = ()) -> tuple[Files, Commands]:
        """Files and commands of the workspace, without the files that these rules deny."""
        workspace = self._shared.workspace
        if not read_rules:
            return workspace.files, workspace.commands
        return workspace.files_and_commands(read_rules)

    def by_name(self, files: Files, *, teams: bool) -> Mapping[str, object]:
        """Further dependencies of tools by name; `files` is what they can read."""
        values = self._all_dependencies
        if teams:
            values = {**values, "team": self._team}
        if files is self._shared.workspace.files:
            return values
        return {**values, **self._file_readers(files), **self._shared.options.dependencies}

    @cached_property
    def _team(self) -> "Team":
        from refold.agents.team import LEAD_NAME, Team

        if self._child is not None and self._child.team is not None:
            return self._child.team
        return Team(self._record, LEAD_NAME, self._children.spawn)

    @cached_property
    def _all_dependencies(self) -> Mapping[str, object]:
        workspace = self._shared.workspace
        return {
            **self._file_readers(workspace.files),
            "blobs": self._record,
            "history": History(self._record),
            "memory": LazyNotebook(
                lambda: self._resources.remembering().notebook(self._id)
            ),
            "board": self._board,
            "directory": Path(workspace.tool_directory),
            "children": self._children,
            "background": self.background,
            "repl": self._resources.python,
            "schedules": LazySchedules(self._shared, self._record),
            "worktrees": LazyWorktrees(self._shared, self._record),
            "web": LazyWeb(self._shared.settings, self._shared.environ),
            **self._shared.options.dependencies,
        }

    def _file_readers(self, files: Files) -> Mapping[str, object]:
        return {
            "code": LazyCode(self._shared, files),
            "checks": LazyChecks(self._record, files, self._resources.sessions),
            "skills": self._resources.skills.with_restrictions(files.why_unreadable),
        }

    def edit_checks(self, files: Files) -> LazyCode:
        """Finds errors after an edit; `files` is what this session may read."""
        return LazyCode(self._shared, files)

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that can be used here.

        Tools that are off are left out, and without a user those that need one.
        """
        settings, options = self._shared.settings, self._shared.options
        child = self._child
        off = {
            *(() if self._choices else (task.name,)),
            *(() if settings.skills else _SKILL_TOOLS),
            *(() if settings.memory and options.takes_notes else _MEMORY_TOOLS),
            *(() if options.keep else _BOARD_TOOLS),
            *(() if options.keep and child is None else _USER_TOOLS),
            *(_LOCAL_TOOLS if self._shared.workspace.elsewhere else ()),
        }
        return tuple(
            task_for(self._choices) if tool is task else tool
            for tool in self._shared.tools
            if tool.name not in off
            and (options.attended or tool.effect is not Effect.ASK)
            and (child is None or tool.name in child.tools)
        )

    def teams(self, view: View) -> bool:
        """Whether the session may lead a team, or is in one."""
        if self._board is None or self._child is not None:
            return self._child is not None and self._child.team is not None
        chosen = view.rights.teams
        return self._shared.settings.subagents.teams if chosen is None else chosen

    @cached_property
    def _team_tools(self) -> tuple[Tool, ...]:
        from refold.tools.team import TEAM_TOOLS

        child, named = self._child, self._shared.options.tool_names
        return tuple(
            tool
            for tool in TEAM_TOOLS
            if (named is None or tool.name in named)
            and (tool.name != IDLE if child is None else tool.name in child.tools)
        )

    def offer(self, agent: Profile, window: int, *, teams: bool) -> OfferedTools:
        """The tools of a turn of this agent, those of MCP servers included."""
        shared, child = self._shared, self._child
        own = (*self.tools, *self._team_tools) if teams else self.tools
        if shared.mcp is None:
            return tools_of(agent, own)
        named = shared.options.tool_names

        def is_allowed(name: str) -> bool:
            if child is not None and name not in child.tools and name != "mcp__*":
                return False
            return named is None or any(fnmatchcase(name, pattern) for pattern in named)

        window_tokens = window or shared.settings.context.default_window_tokens
        return shared.mcp.offer(agent, own, is_allowed, window_tokens)

    @cached_property
    def _choices(self) -> tuple[AgentChoice, ...]:
        """The agents to which the session may give work."""
        position = self._children.position
        if position.depth >= position.deepest:
            return ()
        every = self._shared.agents.profiles_for("child")
        return tuple(AgentChoice(agent.name, agent.description) for agent in every)
