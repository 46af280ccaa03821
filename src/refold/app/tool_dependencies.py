"""The tools that a session has, and their dependencies.

Both are the same for every turn. `lazy_dependencies` has the dependencies that are loaded late,
`agents.profile` decides which of the tools an agent has, and `turn_context` has everything else
that a turn needs.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from refold.agents.child import ChildSpec
from refold.agents.children import Children
from refold.agents.profile import OfferedTools, Profile, tools_of
from refold.app.lazy_dependencies import (
    LazyBackground,
    LazyBoard,
    LazyChecks,
    LazyCode,
    LazyNotebook,
    LazySchedules,
    LazyWeb,
    LazyWorktrees,
)
from refold.app.python_setup import SessionPython
from refold.app.shared_resources import SharedResources
from refold.app.system_prompt import SystemPromptBuilder
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View
from refold.permissions.rules import Rule
from refold.place.port import Commands, Files, Snapshots
from refold.session.full_history import History
from refold.session.recorder import Recorder
from refold.skills.catalogue import Catalogue
from refold.tools.contract import Tool
from refold.tools.task import AgentChoice, task, task_for
from refold.values.tools import IDLE, Effect

if TYPE_CHECKING:
    from refold.agents.team import Team
    from refold.app.project_memory import ProjectMemory

_SKILL_TOOLS = ("list_skills", "read_skill")
_MEMORY_TOOLS = ("memory_write",)
# Tools that only the user's own session has.
_USER_TOOLS = ("schedule", "enter_worktree", "exit_worktree")
_LOCAL_TOOLS = ("python", "enter_worktree", "exit_worktree")  # not in a workspace elsewhere
_BOARD_TOOLS = ("task_create", "task_get", "task_update", "task_list", "task_claim")


class SessionResources(Struct, frozen=True):
    """The resources of one session."""

    system_prompt: SystemPromptBuilder
    skills: Catalogue
    # A function, so that the module of the memory is imported only when it is needed.
    load_memory: "Callable[[], ProjectMemory]"
    has_notes: bool  # whether this project has any notes
    project: Path  # the directory for its notes and tasks
    snapshots: Snapshots | None = None  # None: files cannot be restored
    python: SessionPython | None = None
    sessions: SessionIndex | None = None  # where the session is stored, if it is saved
    # The background commands of a session that has moved here from another workspace.
    background: LazyBackground | None = None


class ToolDependencies:
    """The dependencies of the tools of the session `id_` with the journal `record`.

    `child` has the limits of a subagent; it is None for the user's session.
    """

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
        """Return the files and commands of the workspace for the tools of this session.

        They leave out the files that the rules `read_rules` forbid to read.
        """
        workspace = self._shared.workspace
        if not read_rules:
            return workspace.files, workspace.commands
        return workspace.files_and_commands(read_rules)

    def by_name(self, files: Files, *, teams: bool) -> Mapping[str, object]:
        """Return the dependencies of tools except files and commands, by parameter name.

        `files` has the files that the tools can read. With `teams`, the tools of a team are
        included.
        """
        values = self._all_dependencies
        if teams:
            values = {**values, "team": self._team}
        if files is self._shared.workspace.files:
            return values
        return {**values, **self._file_readers(files), **self._shared.options.dependencies}

    @cached_property
    def _team(self) -> "Team":
        """Return the team that the session leads, or in which it is a teammate."""
        from refold.agents.team import LEAD_NAME, Team

        if self._child is not None and self._child.team is not None:
            return self._child.team
        return Team(self._record, LEAD_NAME, self._children.spawn)

    @cached_property
    def _all_dependencies(self) -> Mapping[str, object]:
        """Return what tools need, by the names of their parameters."""
        workspace = self._shared.workspace
        return {
            **self._file_readers(workspace.files),
            "blobs": self._record,
            "history": History(self._record),
            "memory": LazyNotebook(
                lambda: self._resources.load_memory().notebook(self._id)
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
        """Return the dependencies of tools that read files only as `files` allows."""
        return {
            "code": LazyCode(self._shared, files),
            "checks": LazyChecks(self._record, files, self._resources.sessions),
            "skills": self._resources.skills.with_restrictions(files.why_unreadable),
        }

    def edit_checks(self, files: Files) -> LazyCode:
        """Return the checker that finds errors after an edit.

        `files` has the files that this session may read.
        """
        return LazyCode(self._shared, files)

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that can be used in this session.

        Disabled tools are left out, and so are tools that need a user if none can be asked.
        """
        settings, options = self._shared.settings, self._shared.options
        child = self._child
        off = set[str]()
        if not self._choices:
            off.add(task.name)
        if not settings.skills:
            off.update(_SKILL_TOOLS)
        if not (settings.memory and options.takes_notes):
            off.update(_MEMORY_TOOLS)
        if not options.keep:
            off.update(_BOARD_TOOLS)
        if not options.keep or child is not None:
            off.update(_USER_TOOLS)
        if self._shared.workspace.elsewhere:
            off.update(_LOCAL_TOOLS)
        return tuple(
            task_for(self._choices) if tool is task else tool
            for tool in self._shared.tools
            if tool.name not in off
            and (options.attended or tool.effect is not Effect.ASK)
            and (child is None or tool.name in child.tools)
        )

    def teams(self, view: View) -> bool:
        """Whether the session may lead a team, or is a member of a team."""
        if self._child is not None:
            return self._child.team is not None
        if self._board is None:  # a team needs a task board
            return False
        chosen = view.rights.teams
        return self._shared.settings.subagents.teams if chosen is None else chosen

    @cached_property
    def _team_tools(self) -> tuple[Tool, ...]:
        """Return the tools of a team: for the leader all except `IDLE`.

        A subagent has those that its parent has given it.
        """
        from refold.tools.team import TEAM_TOOLS

        child, tool_names = self._child, self._shared.options.tool_names
        tools = list[Tool]()
        for tool in TEAM_TOOLS:
            if tool_names is not None and tool.name not in tool_names:
                continue
            has_tool = tool.name != IDLE if child is None else tool.name in child.tools
            if has_tool:
                tools.append(tool)
        return tuple(tools)

    def offer(self, agent: Profile, window: int, *, teams: bool) -> OfferedTools:
        """Return the tools that this agent has in a turn, including those of MCP servers.

        `window` is the model's context window in tokens. With `teams`, the tools of a team are
        included.
        """
        shared, child = self._shared, self._child
        own = (*self.tools, *self._team_tools) if teams else self.tools
        if shared.mcp is None:
            return tools_of(agent, own)
        tool_names = shared.options.tool_names

        def is_allowed(name: str) -> bool:
            """Return whether this session may have a tool of an MCP server."""
            stands_for_all = name == "mcp__*"  # also for tools that are not known yet
            if child is not None and not stands_for_all and name not in child.tools:
                return False
            return tool_names is None or any(
                fnmatchcase(name, pattern) for pattern in tool_names
            )

        window_tokens = window or shared.settings.context.default_window_tokens
        return shared.mcp.offer(agent, own, is_allowed, window_tokens)

    @cached_property
    def _choices(self) -> tuple[AgentChoice, ...]:
        """Return the agents to which the session may give tasks."""
        position = self._children.position
        if position.depth >= position.deepest:
            return ()
        agents = self._shared.agents.profiles_for("child")
        return tuple(AgentChoice(agent.name, agent.description) for agent in agents)
