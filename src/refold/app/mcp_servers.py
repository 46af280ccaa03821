"""The MCP servers of one start: finds their files, and offers their tools to each turn.

The user's own servers stand in refold's configuration directory; those of a folder count only
if the folder is trusted, and only until their file changes. Without such a file nothing of
`refold.mcp` is imported. A turn is offered the tools of the last connection; the servers
connect while the model answers the first request.
"""

import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from msgspec import Struct
from msgspec.structs import replace

from refold.agents.profile import OfferedTools, Profile, tools_of
from refold.app.launch_options import LaunchOptions
from refold.app.remote_servers import RemoteServers, RemoteTurn
from refold.app.search_places import USER_MCP_FILE
from refold.app.server_programs import ServerPrograms
from refold.app.workspace import Workspace
from refold.config.folder_settings import project_and_trust
from refold.config.paths import MCP_FILES, Paths, home
from refold.config.project import MAX_SETTINGS_BYTES, read_project
from refold.config.secret_values import (
    masks_of,
    may_be_secret,
    passwords_in,
    secrets_by_name,
)
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput, ToolFailed
from refold.mcp.servers import (
    ServerConfig,
    client_secret,
    read,
    resolve,
    variable_mark,
    variable_values,
)
from refold.provider.port import Delta, Done, Provider, Request
from refold.safe_open import read_regular
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
_MAX_CONNECT_SECONDS = 30.0  # of servers that were never connected, in a search
_WAIT_TEXT = "Tools of the MCP servers {names} are added when these have connected: search."

_NOT_CHOSEN = (
    "the MCP server {name!r} in {source} is not used: remote mode lets the provider call its tools "
    "without asking you, so only your own mcp_servers.json can choose it"
)
_NOT_INSTALLED = (
    "MCP servers are configured, but the extra is not installed: pip install 'refold[mcp]'"
)


class ServerPrompt(Struct, frozen=True):
    """A prompt template of a server. `name` is typed after a slash."""

    name: str
    usage: str
    about: str
    server: str
    remote: "RemotePrompt"


class ConfiguredServers(Struct, frozen=True):
    """The servers that count here, and sentences about those that do not.

    `remote` are those that the provider of the model connects to.
    """

    servers: tuple[ServerConfig, ...] = ()
    notices: tuple[str, ...] = ()
    remote: tuple[ServerConfig, ...] = ()


def user_file(paths: Paths) -> Path:
    return paths.config / USER_MCP_FILE


def load_servers(
    directory: str,
    paths: Paths,
    environ: Mapping[str, str],
    extra: Mapping[str, object] = MappingProxyType({}),
    *,
    trust: bool = False,
) -> ConfiguredServers:
    """The servers that count here. The user's own win over the project's of the same name.

    `extra` are servers of the program that started this session: its user configured them
    there, so they count like the user's own.
    """
    files = _load_files(directory, paths, trust=trust)
    if extra:
        content = ("the editor", json.dumps(dict(extra)).encode())
        files = replace(files, content=(*files.content, content))
    if not files.content and not files.notices:
        return ConfiguredServers()
    servers, notices = dict[str, ServerConfig](), list(files.notices)
    own = {str(user_file(paths)), "the editor"}
    for source, content in files.content:
        parsed = read(content, source)
        notices += parsed.problems
        for server in parsed.servers:
            if (known := servers.get(server.name)) is not None:
                notices.append(
                    f"the MCP server {server.name!r} in {source} is not used: {known.source} has "
                    "one of this name"
                )
                continue
            if server.remote and source not in own:
                notices.append(_NOT_CHOSEN.format(name=server.name, source=source))
                continue
            try:
                resolve(server, environ)
                if source not in own:
                    _check_variables(server, paths, environ, trust=trust)
            except BadInput as error:
                notices.append(str(error))
                continue
            servers[server.name] = server
    remote = tuple(server for server in servers.values() if server.remote)
    here = tuple(server for server in servers.values() if not server.remote)
    if here and find_spec("mcp") is None:
        here, notices = (), [*notices, _NOT_INSTALLED]
    return ConfiguredServers(here, tuple(notices), remote)


def project_servers(directory: Path, paths: Paths) -> tuple[ServerConfig, ...]:
    """The servers in files of this folder, whether they count or not."""
    source = read_project(directory, paths.settings)
    return tuple(
        server
        for file in source.files
        if file.name in MCP_FILES
        for server in read(file.content, os.path.join(source.folder, file.name)).servers
    )


def variables_to_allow(
    server: ServerConfig, paths: Paths, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """What the user must allow for a project's server: variables that are set, and directories
    that it may change.
    """
    names = [name for name in server.variables if name in environ] + [*server.writable]
    if not names:
        return ()
    allowed = TrustedFolders(paths.folders).variables(os.path.dirname(server.source))
    return tuple(name for name in names if variable_mark(server, name) not in allowed)


def _check_variables(
    server: ServerConfig, paths: Paths, environ: Mapping[str, str], *, trust: bool
) -> None:
    """Raise `BadInput` for a project's server that would get what the user did not allow.

    With `trust` the user trusts the folder for this start, without having seen the variables.
    """
    names = variables_to_allow(server, paths, environ)
    if names and trust:
        masks = masks_of(environ, paths)
        names = tuple(
            n for n in names if n in server.writable or may_be_secret(n, environ[n], masks)
        )
    if names:
        gets = " and ".join(f"${{{n}}}" for n in names if n not in server.writable)
        opens = " and ".join(n for n in names if n in server.writable)
        wants = {f"get your {gets}": gets, f"change files in {opens}": opens}
        wants_text = " and ".join(want for want, named in wants.items() if named)
        raise BadInput(
            f"the MCP server {server.name!r} in {server.source} is off: it would {wants_text}; to "
            f"allow it: refold mcp allow {server.name} {' '.join(names)}"
        )


class McpServers:
    """Close it in a thread. `learn` is called with secrets that no journal may contain."""

    def __init__(
        self,
        here: ConfiguredServers,
        workspace: Workspace,
        paths: Paths,
        environ: Mapping[str, str],
        log: WriteLog,
        learn: Callable[..., None],
    ) -> None:
        self._here, self._workspace, self._paths = here, workspace, paths
        self._environ, self._log, self._learn = environ, log, learn
        for server in (*here.servers, *here.remote):
            values = variable_values(server, environ)
            learn(
                client_secret(server, environ),
                *secrets_by_name(values, (home(environ), *workspace.roots)),
                *passwords_in(value for _, value in values),
            )
        self.programs = ServerPrograms(workspace, paths, environ)
        self.remote = RemoteServers(here.remote, environ)
        self._offered: tuple[object, ServerTools] | None = None
        self._told = set[str]()  # sentences that were reported to the user

    @cached_property
    def connections(self) -> "Connections":
        from refold.config.mcp_tokens import grant_store
        from refold.mcp.connections import Connections, McpContext
        from refold.mcp.manifests import Manifests

        grants = grant_store(self._paths, self._learn)
        outside = McpContext(
            self.programs.commands,
            self.programs.prepare,
            self._log,
            grants,
            self._environ,
            no_namespaces=not self._workspace.sandbox.config.user_namespaces,
        )
        return Connections(
            self._here.servers, Manifests(manifests_in(self._paths)), outside
        )

    def notices(self) -> tuple[str, ...]:
        """What the user should know: servers that are off, tools that are blocked."""
        installing = self.programs.pending_installs(self._here.servers)
        notices = (*self._here.notices, *installing, *self._problems())
        self._told.update(notices)
        return notices

    def _problems(self, *, lost: bool = False) -> tuple[str, ...]:
        """A sentence about each unusable tool, and with `lost` each unusable server."""
        statuses = self.connections.statuses()
        gone = (*self.connections.reports, *(status.lost_sentence for status in statuses))
        blocked = (status.blocked_sentence for status in statuses)
        return (*self._tools().refused, *filter(None, (*blocked, *(gone if lost else ()))))

    def _new_problems(self) -> str:
        """The sentences of `_problems` that were not reported yet."""
        news = [text for text in self._problems(lost=True) if text not in self._told]
        self._told.update(news)
        return "; ".join(news)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The known tools of all servers."""
        offer = self._tools()
        if not any(
            self.connections.manifest(s.name).offer.resources for s in self._here.servers
        ):
            return offer.tools
        return (*offer.tools, self._resources)

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
        """The tools of a turn. `allowed` says whether the session may have a server's tool."""
        from refold.mcp.as_tools import tool_characters

        remote = tuple(tool for tool in self.tools if allowed(tool.name))
        large = tool_characters(remote) > window * _MAX_TOOLS_SHARE * _CHARS_PER_TOKEN
        pending = self.connections.never_connected if allowed(EVERY_MCP_TOOL) else ()
        if large:
            agent = replace(agent, deferred=(*agent.deferred, EVERY_MCP_TOOL))
        offered = tools_of(agent, (*own_tools, *remote))
        if not pending or Effect.RUN not in agent.effects:
            return offered
        return self._with_pending(offered, pending, allowed)

    def wrap(self, provider: Provider, turn: RemoteTurn | None) -> Provider:
        """Wrap a provider: its first request also connects the servers. In a turn that may
        use servers in remote mode, its requests name them.
        """
        news = self._new_problems if turn else lambda: ""
        connecting = _ConnectingProvider(provider, self.connections.begin, news)
        return self.remote.wrap(connecting, turn) if turn else connecting

    def explain_missing(self, name: str) -> str:
        """Why a tool of a server is missing, for the model that called it, or ""."""
        from refold.mcp.connections import explain_missing

        return explain_missing(name, self.connections.statuses(), self._tools().refused)

    def statuses(self) -> "tuple[ServerStatus, ...]":
        """The servers that count here, as they are now."""
        return self.connections.statuses()

    def prompts(self) -> tuple[ServerPrompt, ...]:
        """The known prompt templates of all servers."""
        from refold.mcp.as_tools import tool_name

        return tuple(
            ServerPrompt(
                tool_name(one.name, prompt.name).lower(),
                " ".join(f"<{argument}>" for argument in prompt.arguments),
                prompt.description,
                one.name,
                prompt,
            )
            for one in self._here.servers
            for prompt in self.connections.manifest(one.name).offer.prompts
        )

    async def expand_command(self, typed: str) -> str | None:
        """The text of the prompt that `/mcp__… words` calls; None for other input.

        Servers that were never connected are connected first. Raises `BadInput` if there is no
        such prompt, or like `expand`.
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
        """The text of the prompt, from its server. Each word is an argument, and the last
        argument takes the rest. Raises `BadInput` if one is missing, or the server does not answer.
        """
        names = prompt.remote.arguments
        values = text.split(maxsplit=len(names) - 1) if names else []
        pairs = dict(zip(names, values, strict=False))
        if left := [name for name in prompt.remote.required if name not in pairs]:
            raise BadInput(
                f"/{prompt.name} takes {prompt.usage}: {' and '.join(left)} is missing"
            )
        try:
            return await self.connections.prompt(prompt.server, prompt.remote.name, pairs)
        except ToolFailed as error:
            raise BadInput(str(error)) from error

    def accept(self, name: str) -> None:
        """Accept the changed tools of this server, which the user has seen. Waits for a
        disk. Raises `BadInput` if there is no such server.
        """
        if name not in {one.name for one in self._here.servers}:
            raise BadInput(f"there is no MCP server {name!r} here")
        self.connections.accept(name)

    def close(self) -> None:
        if "connections" in self.__dict__:
            self.connections.close()

    def _with_pending(
        self, offer: OfferedTools, pending: Sequence[str], allowed: Callable[[str], bool]
    ) -> OfferedTools:
        """Add a search that waits for the servers that were never connected."""
        known = {tool.name for tool in (*offer.active, *offer.deferred)}

        def find_more() -> tuple[Tool, ...]:
            return tuple(t for t in self.tools if t.name not in known and allowed(t.name))

        deferred = _GrowingTools(offer.deferred, find_more)

        async def search(context: Context, **arguments: object) -> Reply:
            await self.connections.wait_until_settled(_MAX_CONNECT_SECONDS, context)
            return await tool_search.run(**{**arguments, "deferred": deferred})

        signature = replace(tool_search.signature(), context="context")
        pausing: dict[str, object] = {"run": search, "signature": lambda: signature}
        more = _WAIT_TEXT.format(names=", ".join(pending))
        searches = tuple(
            replace(tool, **pausing) if tool.name == tool_search.name else tool
            for tool in search_tools(offer.deferred, more)
        )
        names = {tool.name for tool in searches}
        active = tuple(tool for tool in offer.active if tool.name not in names)
        return OfferedTools((*active, *searches), deferred)

    def _tools(self) -> "ServerTools":
        from refold.mcp.as_tools import as_tools

        servers = {one.name: one for one in self._here.servers}
        manifests = {name: self.connections.manifest(name) for name in servers}
        key = tuple(map(id, manifests.values()))
        if self._offered is None or self._offered[0] != key:
            offers = {name: one.usable for name, one in manifests.items()}
            confined = partial(self.programs.is_confined, servers)
            self._offered = key, as_tools(offers, self.connections.call, confined)
        return self._offered[1]


def servers_for(
    options: LaunchOptions,
    workspace: Workspace,
    paths: Paths,
    environ: Mapping[str, str],
    log: WriteLog,
    learn: Callable[..., None],
) -> McpServers:
    """The servers of a start with these options."""
    extra, trust = options.mcp_servers, options.trust
    directory = os.path.realpath(options.directory)
    servers = load_servers(directory, paths, environ, extra, trust=trust)
    return McpServers(servers, workspace, paths, environ, log, learn)


def manifests_in(paths: Paths) -> Path:
    return paths.data / "mcp"


class _Files(Struct, frozen=True):
    content: tuple[tuple[str, bytes], ...] = ()
    notices: tuple[str, ...] = ()


def _load_files(directory: str, paths: Paths, *, trust: bool) -> _Files:
    """The configuration files that count here, by name, the user's own first."""
    own, content, notices = user_file(paths), list[tuple[str, bytes]](), list[str]()
    try:
        content.append((str(own), read_regular(own, MAX_SETTINGS_BYTES)[0]))
    except FileNotFoundError:
        pass
    except OSError as error:
        notices.append(f"{own} cannot be read: {error.strerror}")
    names = [n for n in MCP_FILES if os.path.lexists(os.path.join(directory, n))]
    if not names or os.path.realpath(directory) == os.path.realpath(paths.config):
        return _Files(tuple(content), tuple(notices))
    source, state = project_and_trust(Path(directory), paths, trust=trust)
    if state == "trusted":
        content += [
            (os.path.join(source.folder, file.name), file.content)
            for file in source.files
            if file.name in MCP_FILES
        ]
    return _Files(tuple(content), tuple(notices))


class _ConnectingProvider:
    """Wraps a provider. `begin` is called at the first delta, when the request was sent. A
    text from `news` is added to the response as a warning.
    """

    def __init__(
        self, provider: Provider, begin: Callable[[], None], news: Callable[[], str]
    ) -> None:
        self._provider, self._begin, self._news = provider, begin, news

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
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
    """A sequence of deferred tools that may grow during a turn."""

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
