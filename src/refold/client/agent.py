"""refold as a library: build an agent, run turns, watch them, answer for the user.

    from refold import Agent, Effect, Reply, tool

    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        "Say what the weather is in a city."
        return Reply(f"rain in {city}")

    agent = Agent(model="anthropic/claude-sonnet-5-5", tools=[weather])
    print(agent.run("Do I need an umbrella in Oslo?").text)

There is no global state: agents with different homes can exist side by side. `run` is a
thin synchronous wrapper; everything else is async.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias, cast

import anyio
import msgspec
from msgspec import Raw, Struct

from refold.agents.profile import Profile
from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.session_index import session_index
from refold.client.catalogue import SessionCatalogue
from refold.client.launch import Launch
from refold.client.questions import Approve
from refold.client.result import Result
from refold.client.resume import SessionDirectory, find_directory
from refold.client.session import Session
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import Paths, paths
from refold.errors import BadInput
from refold.journal.catalogue.session_card import Card
from refold.journal.session_index import SessionIndex
from refold.provider.port import Provider
from refold.tools.contract import Tool
from refold.values.modes import Effort, HookEvent, Mode

# A hook function may be async; then it returns an awaitable.
HookFunction: TypeAlias = Callable[[Mapping[str, object]], object]


class Agent(Struct, frozen=True, kw_only=True):
    """An agent as a value: its model, tools, rights and directory.

    `tools` are added to the built-in tools; with `builtin=False` they replace the built-in
    tools. Parameters of a tool after a `*` are taken from `dependencies`, by name. `settings`
    are those of config.toml, by dotted key; `mcp_servers` is the table `mcpServers` of an
    .mcp.json. `approve` is called for each call that no rule covers: it returns True to allow
    the call, False or a reason to refuse it. Without `approve` such calls are refused.
    `approve` is also called with the model's own questions, and then returns a list with an
    answer to each question. `system_prompt` replaces the agent's prompt. `home` is the
    directory of sessions and settings (default: as for the command line); with
    `persist=False` sessions stay in memory only. `agent` is the name of the profile that runs
    the session, and `agents` are profiles in addition to the built-in ones and those in
    folders. `schema` is a JSON Schema that final answers have to match: see `Result.data`.
    `hooks` maps events to functions: each function takes and returns the same data as a hook
    of hooks.json, and may be async.
    """

    model: str = ""
    agent: str = ""
    agents: Sequence[Profile] = ()
    effort: Effort = ""
    schema: Mapping[str, object] | None = None
    tools: Sequence[Tool] = ()
    builtin: bool = True
    dependencies: Mapping[str, object] = {}
    mode: Mode | None = None
    directory: str | Path = "."
    system_prompt: str = ""
    approve: Approve | None = None
    provider: Provider | None = None
    home: str | Path = ""
    persist: bool = True
    settings: Mapping[str, object] = {}
    mcp_servers: Mapping[str, object] = {}
    hooks: Mapping[HookEvent, HookFunction | Sequence[HookFunction]] = {}

    def run(self, text: str) -> Result:
        """Run one turn in a new session, and return its result. For programs without async."""
        try:
            anyio.lowlevel.current_token()
        except RuntimeError:  # no event loop runs here
            pass
        else:
            raise BadInput(
                "Agent.run starts an event loop, and one runs here already: use "
                "`async with agent.session() as session:` and `await session.run(…)`"
            )
        return anyio.run(self._run_turn, text)

    @asynccontextmanager
    async def session(self, id_: str = "") -> AsyncGenerator[Session, None]:
        """Open a new session, or the one with this id; close it at the end of the `with`.

        A resumed session keeps its model and mode, unless this agent sets them. A resumed
        session works in its own directories, even if this agent has another directory.
        """
        index = session_index(self._paths)
        full_id = index.find(id_).id if id_ else ""
        launch = Launch(self._app(index, full_id), self._flags)
        try:
            if full_id:
                opened = await launch.resume(full_id)
            else:
                opened = await launch.start()
            session = Session(launch, opened, self.approve)
            if full_id:  # a new session has the values of this agent already
                await self._set_choices(session)
            yield session
        finally:
            await launch.aclose()

    async def _set_choices(self, session: Session) -> None:
        """Set the choices of this agent in a resumed session. The session keeps all other
        choices.
        """
        if self.model:
            await session.set_model(self.model)
        if self.effort:
            await session.set_effort(self.effort)
        if self.agent:
            await session.set_agent(self.agent)
        if self.mode:
            await session.set_mode(self.mode)

    async def sessions(self) -> Sequence[Card]:
        """Return the sessions of the agent's directory that have messages, newest first."""
        if not self.persist:
            return ()
        app = self._app()
        return await SessionCatalogue(app.home, app.directory).sessions()

    async def _run_turn(self, text: str) -> Result:
        async with self.session() as session:
            await session.run(text)
            return await session.run_woken()

    @property
    def _flags(self) -> Mapping[str, object]:
        """The settings of this agent, by dotted key.

        They also apply when a session continues in another directory.
        """
        return {
            "agent": self.agent or None,
            "effort": self.effort or None,
            "permission_mode": self.mode,
            **self.settings,
        }

    @property
    def _environ(self) -> Mapping[str, str]:
        own = {"REFOLD_HOME": str(self.home)} if self.home else {}
        return {**os.environ, **own}

    @property
    def _paths(self) -> Paths:
        return paths(self._environ)

    def _app(self, sessions: SessionIndex | None = None, resumed: str = "") -> App:
        """Return the `App` for the directory of the session `resumed`.

        Without a session, or if its directory no longer exists, the `App` is for the agent's
        own directory.
        """
        own_directory = Path(self.directory).absolute()
        if sessions is not None and resumed:
            place = find_directory(sessions, resumed, own_directory)
        else:
            place = SessionDirectory(own_directory)
        if not place.directory.is_dir():
            raise BadInput(f"directory={str(self.directory)!r}: there is no such directory")
        _expect_stream(self.provider)
        loaded = load_folder_settings(
            place.directory, self._paths, self._environ, self._flags
        )
        options = LaunchOptions(
            directory=place.directory,
            more_roots=place.roots,
            notices=place.notices,
            model=self.model,
            attended=self.approve is not None,
            own_system=self.system_prompt,
            keep=self.persist,
            given=loaded.limits_of_flags,
            provider=self.provider,
            tools=_all_tools(self.tools, builtin=self.builtin),
            dependencies=self.dependencies,
            mcp_servers=self.mcp_servers,
            hooks={**self.hooks},
            agents=tuple(self.agents),
            schema=None if self.schema is None else Raw(msgspec.json.encode(self.schema)),
        )
        return App(loaded.settings, self._paths, self._environ, options)


def _expect_stream(provider: Provider | None) -> None:
    """Raise `BadInput` if `stream` of the provider has no `yield`, which is easily
    forgotten.
    """
    from inspect import iscoroutinefunction

    if provider is not None and iscoroutinefunction(provider.stream):
        raise BadInput(
            f"`stream` of the provider {type(provider).__name__} has no `yield`: "
            "it has to yield pieces of the answer, and `Done()` as the last"
        )


def _all_tools(tools: Sequence[Tool], *, builtin: bool) -> tuple[Tool, ...]:
    """Return `tools`, with the built-in tools in front if `builtin`.

    Raises `BadInput` for an item that is not a tool, and for two tools with one name.
    """
    from refold.tools.builtin import builtin as builtin_tools

    all_tools = (*(builtin_tools() if builtin else ()), *tools)
    objects = cast("Sequence[object]", all_tools)  # the caller may have no type checker
    if wrong := [item for item in objects if not isinstance(item, Tool)]:
        raise BadInput(
            f"{wrong[0]!r} is not a tool: put @tool(Effect.LOOK), or what it does, above it"
        )
    for tool in tools:
        tool.signature()  # raises for a wrong type, before a session begins
    names = [tool.name for tool in all_tools]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate:
        raise BadInput(f"there are two tools named {duplicate!r}: rename one of them")
    return all_tools
