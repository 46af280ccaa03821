"""The MCP servers of one start: connects to them, and offers their tools to each turn.

`mcp_files` finds the files that configure the servers. Without one of these files, the modules
of `refold.mcp` that connect are not imported. A turn is offered the tools that were known at
the last connection; the servers connect while the model answers the first request.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from msgspec import Struct
from msgspec.structs import replace

from refold.agents.profile import OfferedTools, Profile, tools_of
from refold.app.launch_options import LaunchOptions
from refold.app.mcp_files import ConfiguredServers, load_servers
from refold.app.remote_servers import RemoteServers, RemoteTurn
from refold.app.server_programs import ServerPrograms
from refold.app.workspace import Workspace
from refold.config.paths import Paths, home
from refold.config.secret_values import passwords_in, secrets_by_name
from refold.errors import BadInput, ToolFailed
from refold.mcp.servers import client_secret, variable_values
from refold.provider.port import Delta, Done, Provider, Request
from refold.tools.contract import Context, Reply, Tool
from refold.tools.tool_search import search_tools, tool_search
from refold.values.log_level import WriteLog
from refold.values.tools import Effect

if TYPE_CHECKING:
    from refold.mcp.as_tools import ServerTools
    from refold.mcp.connections import Connections, ServerStatus
    from refold.mcp.manifests import RemotePrompt

EVERY_MCP_TOOL = "mcp__*"
_PROMPT_PREFIX = "/mcp__"
_MAX_TOOLS_SHARE = 0.1  # of the window: tools that need more are deferred
_CHARS_PER_TOKEN = 4  # of a schema in one token
# The time for which a search waits for servers that were never connected.
_MAX_CONNECT_SECONDS = 30.0
_WAIT_TEXT = "Tools of the MCP servers {names} are added when these have connected: search."


class ServerPrompt(Struct, frozen=True):
    """A prompt template of a server. The user calls it by `name` after a slash."""

    name: str
    usage: str
    about: str
    server: str
    remote: "RemotePrompt"


class McpServers:
    """The MCP servers of one start. Call `close` in a thread.

    `learn` is called with secrets that no journal may contain.
    """

    def __init__(
        self,
        configured: ConfiguredServers,
        workspace: Workspace,
        paths: Paths,
        environ: Mapping[str, str],
        log: WriteLog,
        learn: Callable[..., None],
    ) -> None:
        self._configured, self._workspace, self._paths = configured, workspace, paths
        self._environ, self._log, self._learn = environ, log, learn
        for server in (*configured.servers, *configured.remote):
            values = variable_values(server, environ)
            learn(
                client_secret(server, environ),
                *secrets_by_name(values, (home(environ), *workspace.roots)),
                *passwords_in(value for _, value in values),
            )
        self.programs = ServerPrograms(workspace, paths, environ)
        self.remote = RemoteServers(configured.remote, environ)
        # The tools, and the ids of the manifests from which they were made.
        self._offered: tuple[object, ServerTools] | None = None
        self._reported = set[str]()  # sentences that the user has seen

    @cached_property
    def connections(self) -> "Connections":
        """Return the connections to all configured servers, which are made at the first use."""
        from refold.config.mcp_tokens import grant_store
        from refold.mcp.connections import Connections, McpContext
        from refold.mcp.manifests import Manifests

        grants = grant_store(self._paths, self._learn)
        context = McpContext(
            self.programs.commands,
            self.programs.prepare,
            self._log,
            grants,
            self._environ,
            no_namespaces=not self._workspace.sandbox.config.user_namespaces,
        )
        return Connections(
            self._configured.servers,
            Manifests(manifests_in(self._paths)),
            context,
        )

    def notices(self) -> tuple[str, ...]:
        """Return notices for the user about servers that are not used, and tools that are
        blocked.
        """
        installing = self.programs.pending_installs(self._configured.servers)
        notices = (*self._configured.notices, *installing, *self._problems())
        self._reported.update(notices)
        return notices

    def _problems(self, *, with_servers: bool = False) -> tuple[str, ...]:
        """Return a sentence about each tool that cannot be used.

        If `with_servers`, also return a sentence about each server that cannot be used.
        """
        statuses = self.connections.statuses()
        sentences = [status.blocked_sentence for status in statuses]
        if with_servers:
            sentences += self.connections.reports
            sentences += [status.lost_sentence for status in statuses]
        return (*self._tools().refused, *filter(None, sentences))

    def _new_problems(self) -> str:
        """Return the sentences of `_problems` that were not reported yet, as one text."""
        news = [
            text for text in self._problems(with_servers=True) if text not in self._reported
        ]
        self._reported.update(news)
        return "; ".join(news)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The known tools of all servers."""
        tools = self._tools().tools
        manifests = (self.connections.manifest(s.name) for s in self._configured.servers)
        if any(manifest.offer.resources for manifest in manifests):
            return (*tools, self._resources)
        return tools

    @cached_property
    def _resources(self) -> Tool:
        from refold.mcp.as_tools import resource_tool

        return resource_tool(self.connections.read)

    def offer(
        self,
        agent: Profile,
        own_tools: Sequence[Tool],
        allowed: Callable[[str], bool],
        window: int,
    ) -> OfferedTools:
        """Return the tools of a turn: those of the agent, and those of the servers.

        `allowed` decides by name whether the session may have the tool of a server. If the
        tools take too much of the `window` (in tokens), they are deferred.
        """
        from refold.mcp.as_tools import tool_characters

        remote = tuple(tool for tool in self.tools if allowed(tool.name))
        max_chars = window * _MAX_TOOLS_SHARE * _CHARS_PER_TOKEN
        is_large = tool_characters(remote) > max_chars
        pending = self.connections.never_connected if allowed(EVERY_MCP_TOOL) else ()
        if is_large:
            agent = replace(agent, deferred=(*agent.deferred, EVERY_MCP_TOOL))
        offered = tools_of(agent, (*own_tools, *remote))
        if not pending or Effect.RUN not in agent.effects:
            return offered
        return self._with_pending(offered, pending, allowed)

    def wrap(self, provider: Provider, turn: RemoteTurn | None) -> Provider:
        """Return a provider that connects the servers while it answers its first request.

        If `turn` is given, the requests of the provider also name the servers in remote mode
        that the turn may use.
        """
        # A subagent has no `turn` here: the user's own turns report all problems.
        news = self._new_problems if turn else lambda: ""
        connecting = _ConnectingProvider(provider, self.connections.begin, news)
        return self.remote.wrap(connecting, turn) if turn else connecting

    def explain_missing(self, name: str) -> str:
        """Return why the tool `name` of a server is missing, for the model that called it.
        Return "" if no server could have it.
        """
        from refold.mcp.connections import explain_missing

        return explain_missing(name, self.connections.statuses(), self._tools().refused)

    def statuses(self) -> "tuple[ServerStatus, ...]":
        """Return the state of each server in use."""
        return self.connections.statuses()

    def prompts(self) -> tuple[ServerPrompt, ...]:
        """Return the known prompt templates of all servers."""
        from refold.mcp.as_tools import tool_name

        return tuple(
            ServerPrompt(
                tool_name(server.name, prompt.name).lower(),
                " ".join(f"<{argument}>" for argument in prompt.arguments),
                prompt.description,
                server.name,
                prompt,
            )
            for server in self._configured.servers
            for prompt in self.connections.manifest(server.name).offer.prompts
        )

    async def expand_command(self, typed: str) -> str | None:
        """Return the text of the prompt that `/mcp__… words` calls; None for other input.

        Servers that were never connected get some time to connect. Raises `BadInput` for an
        unknown prompt, and for the same reasons as `expand`.
        """
        name, _, words = typed.strip().partition(" ")
        if not name.startswith(_PROMPT_PREFIX):
            return None
        if self.connections.never_connected:
            await self.connections.wait_until_settled(_MAX_CONNECT_SECONDS)
        prompts = {f"/{prompt.name}": prompt for prompt in self.prompts()}
        if name not in prompts:
            names = ", ".join(prompts) or "the servers here have none"
            raise BadInput(
                f"there is no prompt {name!r} of an MCP server; there are: {names}"
            )
        return await self.expand(prompts[name], words)

    async def expand(self, prompt: ServerPrompt, text: str) -> str:
        """Request the text of a prompt from its server.

        Each word of `text` is an argument, and the last argument gets the rest. Raises
        `BadInput` if an argument is missing, or if the server does not respond.
        """
        names = prompt.remote.arguments
        values = text.split(maxsplit=len(names) - 1) if names else []
        arguments = dict(zip(names, values, strict=False))
        missing = [name for name in prompt.remote.required if name not in arguments]
        if missing:
            raise BadInput(
                f"/{prompt.name} takes {prompt.usage}: {' and '.join(missing)} is missing"
            )
        try:
            return await self.connections.prompt(
                prompt.server, prompt.remote.name, arguments
            )
        except ToolFailed as error:
            raise BadInput(str(error)) from error

    def accept(self, name: str) -> None:
        """Accept the changed tools of a server, after the user has seen them.

        This blocks until the change is on the disk. Raises `BadInput` for an unknown server.
        """
        if name not in {server.name for server in self._configured.servers}:
            raise BadInput(f"there is no MCP server {name!r} here")
        self.connections.accept(name)

    def close(self) -> None:
        if "connections" in self.__dict__:
            self.connections.close()

    def _with_pending(
        self, offer: OfferedTools, pending: Sequence[str], allowed: Callable[[str], bool]
    ) -> OfferedTools:
        """Return `offer` with a search tool that first waits for the servers in `pending`.

        The servers in `pending` were never connected, so their tools are not known. `allowed`
        decides by name which of their tools are added.
        """
        known = {tool.name for tool in (*offer.active, *offer.deferred)}

        def find_more() -> tuple[Tool, ...]:
            return tuple(t for t in self.tools if t.name not in known and allowed(t.name))

        deferred = _GrowingTools(offer.deferred, find_more)

        async def search(context: Context, **arguments: object) -> Reply:
            await self.connections.wait_until_settled(_MAX_CONNECT_SECONDS, context)
            return await tool_search.run(**{**arguments, "deferred": deferred})

        signature = replace(tool_search.signature(), context="context")
        changes: dict[str, object] = {"run": search, "signature": lambda: signature}
        more = _WAIT_TEXT.format(names=", ".join(pending))
        searches = tuple(
            replace(tool, **changes) if tool.name == tool_search.name else tool
            for tool in search_tools(offer.deferred, more)
        )
        search_names = {tool.name for tool in searches}
        active = tuple(tool for tool in offer.active if tool.name not in search_names)
        return OfferedTools((*active, *searches), deferred)

    def _tools(self) -> "ServerTools":
        """Return the tools of all servers, built again only if a manifest has changed."""
        from refold.mcp.as_tools import as_tools

        servers = {server.name: server for server in self._configured.servers}
        manifests = {name: self.connections.manifest(name) for name in servers}
        ids = tuple(map(id, manifests.values()))
        if self._offered is None or self._offered[0] != ids:
            offers = {name: manifest.usable for name, manifest in manifests.items()}
            is_confined = partial(self.programs.is_confined, servers)
            self._offered = ids, as_tools(offers, self.connections.call, is_confined)
        return self._offered[1]


def servers_for(
    options: LaunchOptions,
    workspace: Workspace,
    paths: Paths,
    environ: Mapping[str, str],
    log: WriteLog,
    learn: Callable[..., None],
) -> McpServers:
    """Return the servers of a start with these options."""
    extra, trust = options.mcp_servers, options.trust
    directory = os.path.realpath(options.directory)
    servers = load_servers(directory, paths, environ, extra, trust=trust)
    return McpServers(servers, workspace, paths, environ, log, learn)


def manifests_in(paths: Paths) -> Path:
    return paths.data / "mcp"


class _ConnectingProvider:
    """A provider that also connects the servers, while it answers its first request.

    It calls `begin` at each delta. Text from `news` is added to the response as a warning.
    """

    def __init__(
        self, provider: Provider, begin: Callable[[], None], news: Callable[[], str]
    ) -> None:
        self._provider, self._begin, self._news = provider, begin, news

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of the provider, with news about the servers in the last delta."""
        deltas = self._provider.stream(request)
        try:
            async for delta in deltas:
                self._begin()
                if isinstance(delta, Done) and (news := self._news()):
                    warning = "; ".join(filter(None, (delta.warning, news)))
                    delta = replace(delta, warning=warning)
                yield delta
        finally:
            await deltas.aclose()


class _GrowingTools(Sequence[Tool]):
    """A sequence of deferred tools that grows when servers connect during a turn."""

    def __init__(self, tools: Sequence[Tool], later: Callable[[], Sequence[Tool]]) -> None:
        self._known, self._later = tools, later

    def __len__(self) -> int:
        return len(self._known) + len(self._later())

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tool]: ...
    def __getitem__(self, index: int | slice) -> Tool | Sequence[Tool]:
        return (*self._known, *self._later())[index]
