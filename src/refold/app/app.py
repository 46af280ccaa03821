"""One start of refold: opens sessions, and closes the resources that they use.

`session_opener` builds the parts of a session, and `turn_context` the dependencies of each
turn.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from refold.agents.profile import CodeLimits, CodeSettings
from refold.agents.registry import Registry, choose_agent, registry
from refold.app.launch_options import LaunchOptions
from refold.app.models import Models
from refold.app.policies import POLICY_GROUP, load_policies, policies
from refold.app.python_setup import check_engine
from refold.app.search_places import has_hook_files, has_mcp_files, skill_scope
from refold.app.session_index import session_index
from refold.app.session_opener import SessionOpener, Storage
from refold.app.shared_resources import SharedResources
from refold.app.system_prompt import SessionGround, SystemPromptBuilder
from refold.app.tool_dependencies import SessionResources
from refold.app.turn_context import MovingTurnContext, TurnContext, agent_of, model_of
from refold.app.workspace import Workspace, WorkspaceDirectories, check_tools
from refold.config.credentials import read as stored_keys
from refold.config.paths import Paths, home
from refold.config.secret_values import passwords_in, secrets_by_name
from refold.config.settings import Settings
from refold.engine.decide import Policy
from refold.errors import BadInput
from refold.journal.events.kinds import LAST_SESSION
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore, Store
from refold.memory.project import PendingSessions, has_notes, notes_directory, project_of
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule
from refold.place.port import Snapshots
from refold.plugins import find_plugins, plugins_of_group
from refold.rlm.rate_limit import RateLimit
from refold.session.recorder import Recorder
from refold.session.session import Session, SessionOptions
from refold.skills.catalogue import Catalogue
from refold.skills.directories import SkillScope as SkillsAround
from refold.tools.builtin import TOOLS_GROUP, builtin, load_tools
from refold.tools.contract import Tool
from refold.values.log_level import WriteLog
from refold.values.modes import Mode

if TYPE_CHECKING:
    from refold.app.entered_worktree import Workspaces
    from refold.app.live_traces import LiveTraces
    from refold.app.mcp_servers import McpServers
    from refold.app.project_memory import ProjectMemory
    from refold.app.session_hooks import ConfiguredHooks
    from refold.journal.fork import Fork
    from refold.skills.slash_commands import Shortcuts


class App:
    """One start of refold. `start` and `resume` open sessions; `aclose` closes everything."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        options: LaunchOptions,
        before: Models | None = None,  # the models of the app that this one replaces
    ) -> None:
        if not options.keep:  # without stored sessions, no log is stored either
            settings = replace(settings, log_level="off")
        self.settings, self.paths, self.options = settings, paths, options
        self.environ = environ
        self.directory = os.path.realpath(options.directory)
        self.home = options.sessions or session_index(paths)
        keys = stored_keys(paths.credentials)
        self.models = Models(settings, paths, environ, keys, options, before)
        _learn_secrets(self)
        own_tools = (
            (*builtin(), *options.more_tools) if options.tools is None else options.tools
        )
        plugin_tools, more_policies, self._plugin_notices = _load_plugins(
            options, own_tools, self.log
        )
        self.tools = _find_tools((*own_tools, *plugin_tools), options.tool_names)
        self.workspace = _open_workspace(self)
        check_tools(self.workspace.rules, (*builtin(), *self.tools))
        policies(settings, options.schema)  # so that an invalid schema raises now
        check_engine(settings.python)
        self.agents.find(settings.agent, "main")
        self.system_prompt.check()
        self.mcp = self._mcp_servers()
        self.hooks = _hooks(self)
        self.traces = _live_traces(self)
        # The workspaces in worktrees that sessions enter. Most starts need none.
        self.workspaces = cache(partial(_worktree_workspaces, self))
        self._shared = SharedResources(
            settings, options, self.models, self.workspace, self.tools, self.agents, self.mcp,
            environ, self.hooks, more_policies, paths, self.traces, self.workspaces,
        )  # fmt: skip
        self._rate = RateLimit(settings.python.calls_per_minute)
        self._snapshots: dict[str, Snapshots | None] = {}
        self._opened: MovingTurnContext | None = None  # the context of the newest session

    @cached_property
    def system_prompt(self) -> SystemPromptBuilder:
        """The builder for those parts of the system prompt that depend on the folder."""
        return self._build_system_prompt()

    def reread_instructions(self) -> None:
        """From the next turn on, use the versions of instruction files that are trusted now."""
        self.system_prompt.reread()
        if self._opened is not None:
            self._opened.reread_instructions()

    @cached_property
    def skills(self) -> Catalogue:
        return Catalogue(self._resources)

    @cached_property
    def agents(self) -> Registry:
        """The agents that are available here, adapted to the settings of this start."""
        known = partial(_names_of, (*builtin(), *self.tools))
        return registry(
            self._resources, known, code_settings(self.settings), self.options.agents
        )

    def shortcuts(self, reserved_names: Collection[str]) -> "Shortcuts":
        """Return the templates, commands and skills behind `/name words`.

        `reserved_names` are the names of built-in commands.
        """
        from refold.skills.slash_commands import Shortcuts

        return Shortcuts(self.skills, self._resources, reserved_names)

    @cached_property
    def _resources(self) -> SkillsAround:
        prompt = self.system_prompt
        return skill_scope(
            self.directory,
            self.paths,
            self.environ,
            trusted=prompt.trust_root,
            trusted_text=prompt.trusted_text,
        )

    @cached_property
    def project_memory(self) -> "ProjectMemory":
        """The notes of this project. `memory` is imported only if notes are enabled."""
        from refold.app.project_memory import ProjectMemory

        return ProjectMemory(self.paths.data, self.directory, self.home, self.models.masks)

    async def start(self, id_: str = "", claim: int = 0) -> tuple[str, Session]:
        """Start a session in the directory of the options. Return its id and the session.

        `claim` is the number under which a host gave this process the session, or else 0.
        """
        id_ = id_ or self.home.new_id(time.time())
        session = await self._open(
            id_,
            self.home.store if self.options.keep else _memory_stores(),
            read_only=bool(claim),  # then it is locked below, with its claim
        )
        if claim:
            session.record.claim = claim
            await session.record.open()
        if self.settings.agent != "main":
            await choose_agent(session.inbox, self.agents, self.settings.agent)
        return id_, session

    async def resume(self, id_: str, *, read_only: bool = False) -> Session:
        """Resume a session. Raises `Held` while another process writes it.

        With `read_only`, other processes may write the session until its first event here.
        """
        root, slash, _ = id_.partition("/")
        if slash:
            raise BadInput(
                f"{id_} is a subagent and resumes with its parent: resume {root}, or read it "
                f"with refold show {id_}"
            )
        return await self._open(id_, self.home.store, read_only=read_only)

    async def fork(self, id_: str, at: int | None = None) -> "Fork":
        """Copy a session up to the event `at` into a new session, which is not opened.

        Raises `BadInput` for an unknown event, or if sessions are not saved.
        """
        if not self.options.keep:
            raise BadInput("this session is not saved, so there is nothing to fork")
        return await anyio.to_thread.run_sync(self.home.fork, id_, at, time.time())

    def newest_session(self) -> str:
        """Return the id of the session that was used last in this directory.

        Raises `BadInput` if there is none.
        """
        return self.home.resolve(LAST_SESSION, self.options.directory).id

    def model_of(self, view: View) -> str:
        """Return the next turn's model: the user's choice, the last one, or the default."""
        return model_of(self.models, view, agent_of(view, self.agents))

    @property
    def log(self) -> WriteLog:
        """The function that writes a line about refold's own work to the log."""
        return self.models.connections.log

    @property
    def rules(self) -> Sequence[Rule]:
        return self.workspace.rules

    @property
    def mode(self) -> Mode:
        """The permission mode for sessions whose user has not chosen a mode."""
        return self.settings.permission_mode

    def facts(self) -> Facts:
        """Return the facts about the workspace that permission decisions depend on."""
        return self.workspace.facts()

    def why_unreadable(self, path: str) -> str:
        """Return why a deny rule forbids reading this file, or "" if none does."""
        return self.workspace.why_unreadable(path)

    def notices(self) -> tuple[str, ...]:
        """Return notices for the user at the start, mainly about missing protection."""
        all_snapshots = filter(None, self._snapshots.values())
        traces_problem = self.traces.problem if self.traces else ""
        for missing in self.workspace.notices():
            self.log("warning", missing)
        return (
            *self.options.notices,
            *self.workspace.notices(),
            *filter(None, (snapshots.notice for snapshots in all_snapshots)),
            *self.system_prompt.notices(),
            *(self._opened.notices() if self._opened else ()),
            *self.agents.notices(),
            *(self.mcp.notices() if self.mcp else ()),
            *(self.hooks.notices(self.tools, self.directory) if self.hooks else ()),
            *self._plugin_notices,
            *filter(None, (traces_problem, self._quota_notice())),
            *(self.skills.notices() if self.settings.skills else ()),
        )

    def _quota_notice(self) -> str:
        if not self.paths.measured_size.exists():
            return ""
        # Imported late: most starts do not need it.
        from refold.app.storage_quota import quota_notice

        return quota_notice(self.paths, self.settings.storage.quota_gb)

    def snapshots(self, session: str) -> Snapshots | None:
        """Return the snapshots of the session's own directory.

        Return None if its files cannot be restored.
        """
        if session not in self._snapshots:
            snapshots = self.workspace.snapshots(session) if self.options.keep else None
            self._snapshots[session] = snapshots
        return self._snapshots[session]

    @property
    def makes_notes(self) -> bool:
        """Whether refold makes notes of sessions of this start."""
        return self.settings.memory and self.options.keep and not self.models.has_script

    def queue_for_notes(self, session: str) -> None:
        """Queue a session, so that notes are made of it after it is closed."""
        if self.makes_notes:
            PendingSessions(notes_directory(self.paths.data, self._project)).put(session)

    @cached_property
    def _project(self) -> Path:
        return project_of(self.directory)

    async def aclose(self) -> None:
        for id_ in self._snapshots:
            self.log("info", "left", id_)
        try:
            await self.workspace.settle()
        finally:  # this must not wait: a cancelled wait would leave a sandbox behind
            self.workspace.close()
        if self.workspaces.cache_info().currsize:  # only if they were used
            self.workspaces().close()
        if self.traces is not None:
            await self.traces.aclose()
        await self.models.aclose()
        if self.mcp is not None:
            await anyio.to_thread.run_sync(self.mcp.close)

    @property
    def all_tools(self) -> tuple[Tool, ...]:
        """The tools that a session may have, including the known tools of MCP servers."""
        return (*self.tools, *(self.mcp.tools if self.mcp else ()))

    def turn_context(self, record: Recorder, id_: str) -> TurnContext:
        """Return the context that a turn of this session would get now.

        The session need not be open.
        """
        return self._opener(self.home.store).turn_context(record, id_)

    def _opener(self, store: Callable[[str], Store]) -> SessionOpener:
        # Each session reads the folders itself, so that a later reading does not change its
        # prompt.
        system_prompt = self._build_system_prompt() if self._opened else self.system_prompt
        resources = SessionResources(
            system_prompt,
            self.skills,
            load_memory=lambda: self.project_memory,
            has_notes=has_notes(self.paths.data, self.directory, self._project),
            project=notes_directory(self.paths.data, self._project),
        )
        storage = Storage(self.paths, self.environ, self.home, store, self._rate)
        return SessionOpener(self._shared, resources, storage)

    async def _open(
        self, id_: str, store: Callable[[str], Store], *, read_only: bool = False
    ) -> Session:
        settings, options = self.settings, self.options
        session_options = SessionOptions(
            mode=settings.permission_mode,
            question=settings.limits.question_seconds or None,
            remember=settings.memory and options.takes_notes,
            given=options.given,
            checks=options.checks,
            schedule=options.schedule,
        )
        snapshots = self.snapshots(id_)
        session, self._opened = await self._opener(store).open(
            id_, snapshots, session_options, read_only=read_only
        )
        return session

    def _mcp_servers(self) -> "McpServers | None":
        """Return the MCP servers. If none is configured, return None and import nothing."""
        servers = self.options.mcp_servers
        if not servers and not has_mcp_files(self.directory, self.paths):
            return None
        from refold.app.mcp_servers import servers_for

        learn = self.models.masks.learn
        return servers_for(
            self.options, self.workspace, self.paths, self.environ, self.log, learn
        )

    def _build_system_prompt(self) -> SystemPromptBuilder:
        ground = SessionGround(
            roots=self.workspace.roots,
            trust=self.options.trust,
            like=self.options.like,
            why_unreadable=self.workspace.files.why_unreadable,
            elsewhere=self.workspace.elsewhere,
        )
        return SystemPromptBuilder(self.settings, self.paths, self.environ, ground)


def _open_workspace(app: App) -> Workspace:
    """Make the workspace in which the session starts."""
    roots = WorkspaceDirectories(app.options.directory, app.options.more_roots)
    find = app.models.masks.pieces
    make = _elsewhere_factory(app) or Workspace
    workspace = make(app.settings, app.paths, app.environ, roots, find_secrets=find)
    workspace.use_editor(app.options.editor)
    return workspace


def _elsewhere_factory(app: App) -> Callable[..., Workspace] | None:
    """Return a factory of workspaces on another machine or in a container.

    Return None if the app's directory does not stand for such a place.
    """
    if os.path.dirname(app.directory) != os.path.realpath(app.paths.places):
        return None
    from refold.app.workspace_elsewhere import WorkspaceElsewhere
    from refold.place.elsewhere.directory import address_in

    address = address_in(app.paths.places, app.directory)
    return partial(WorkspaceElsewhere, address) if address else None


def _learn_secrets(app: App) -> None:
    """Mask the values of variables with secret names, and passwords in other variables."""
    around = home(app.environ), app.directory
    app.models.masks.learn(
        *secrets_by_name(app.environ.items(), around), *passwords_in(app.environ.values())
    )


def workspace_of(app: App, view: View) -> Workspace:
    """Return the workspace in which a session works now."""
    session = view.session
    return app.workspaces().workspace_of(session) if session.worktree else app.workspace


def snapshots_of(app: App, view: View) -> Snapshots | None:
    """Return the snapshots of the place where a session works now, or None without any."""
    session = view.session
    if session.worktree is None or not app.options.keep:
        return app.snapshots(session.id)
    return app.workspaces().snapshots(session, session.id)


def _worktree_workspaces(app: App) -> "Workspaces":
    from refold.app.entered_worktree import Workspaces

    return Workspaces(app.settings, app.paths, app.environ, app.workspace)


def _load_plugins(
    options: LaunchOptions, own_tools: Sequence[Tool], log: WriteLog
) -> tuple[tuple[Tool, ...], tuple[Policy, ...], tuple[str, ...]]:
    """Load the tools and policies of packages. Also return why others were left out.

    A program that passes tools of its own gets nothing from installed packages.
    """
    plugins = find_plugins(TOOLS_GROUP, POLICY_GROUP) if options.tools is None else ()
    tools, tool_problems = load_tools(
        plugins_of_group(TOOLS_GROUP, plugins), _names_of(own_tools)
    )
    plugin_policies, policy_problems = load_policies(
        plugins_of_group(POLICY_GROUP, plugins), log
    )
    return tools, plugin_policies, (*tool_problems, *policy_problems)


def _hooks(app: App) -> "ConfiguredHooks | None":
    """Return the hooks. If no file or program has hooks, return None and import nothing."""
    if not (app.options.hooks or has_hook_files(app.directory, app.paths)):
        return None
    from refold.app.session_hooks import ConfiguredHooks, load_hooks
    from refold.hooks.configuration import HookFile

    trust, functions = app.options.trust, app.options.hooks
    hooks = load_hooks(app.directory, app.paths, trust=trust, functions=functions)
    if hooks == HookFile():
        return None
    return ConfiguredHooks(hooks, app.environ, app.models.masks.mask)


def _live_traces(app: App) -> "LiveTraces | None":
    """Return the exporter of traces. If it is not configured, return None and import nothing."""
    otel = app.settings.otel
    if not otel.endpoint or not app.options.keep:
        return None
    from refold.app.live_traces import LiveTraces, trace_targets

    targets = trace_targets(otel, app.environ)
    return LiveTraces(targets, content=otel.content, log=app.log) if targets else None


def _find_tools(tools: tuple[Tool, ...], names: tuple[str, ...] | None) -> tuple[Tool, ...]:
    """Return the named tools; all for None. Raises `BadInput` for an unknown name."""
    if names is None:
        return tools
    known = _names_of(tools)
    for name in names:
        if name not in known and not name.startswith("mcp__"):
            from refold.values.similar_names import similar

            suggestions = similar(name, sorted(known), 1)
            hint = f"there are {', '.join(sorted(known))}"
            if suggestions:
                hint = f"did you mean {suggestions[0]}?"
            raise BadInput(f"there is no tool {name!r}; {hint}")
    return tuple(tool for tool in tools if tool.name in names)


def _names_of(tools: Sequence[Tool]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools)


def _memory_stores() -> Callable[[str], Store]:
    """Return a function that returns the store in memory for the id of a session."""
    stores = dict[str, Store]()
    return lambda id_: stores.setdefault(id_, MemoryStore())


def code_settings(settings: Settings) -> CodeSettings:
    """Return the limits for agents that act by writing code."""
    python = settings.python
    code_limits = CodeLimits(
        fan_out=python.fan_out,
        at_once=python.max_concurrent,
        depth=python.rlm_depth,
        cell=python.cell_seconds,
        call=python.call_seconds,
    )
    return CodeSettings(code_limits, python.rlm_steps)
