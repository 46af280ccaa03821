"""Decides which MCP servers the model's provider connects to itself (remote mode).

The requests of a turn name the servers that the provider, the mode, the rules, the hooks and
the agent all allow. A notice says why any other server is left out. The provider makes their
calls while the model responds, so no rule can judge a call. Therefore only the user's own file
can choose remote mode, and a server is left out if any rule denies one of its tools or asks
about it. `mcp.servers` reads the files, `mcp_servers` has the servers that refold connects to,
and `provider.hosted_mcp` encodes servers for a provider.
"""

from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from refold.agents.profile import Profile, may_use
from refold.errors import BadInput
from refold.hooks.configuration import Hook, matching_hooks
from refold.mcp.servers import ServerConfig, resolve
from refold.permissions.rules import Rule, is_about, our_tool_name
from refold.provider.port import Delta, HostedServer, Provider, Request
from refold.values.modes import Mode
from refold.values.tools import Effect

# The modes in which the provider may call tools.
_CALLING_MODES: frozenset[Mode] = frozenset(
    {"default", "accept-edits", "sandbox", "bypass"}
)
_ANY_TOOL = "mcp__{}__any"
_BEARER_PREFIX = "bearer "


class RemoteTurn(Struct, frozen=True):
    """The facts about a turn that decide which servers the provider connects to.

    `host` is the name of the provider if it connects to MCP servers itself, otherwise "".
    `named` are the tools that `--tools` names; None without that option.
    """

    model: str
    host: str
    agent: Profile
    rules: Sequence[Rule]
    hooks: Sequence[Hook]
    named: Collection[str] | None
    mode: Callable[[], Mode]  # it may change while the turn runs


class RemoteServers:
    def __init__(self, servers: Sequence[ServerConfig], environ: Mapping[str, str]) -> None:
        self.servers, self._environ = tuple(servers), environ

    def wrap(self, provider: Provider, turn: RemoteTurn) -> Provider:
        """Return a provider whose requests name the servers that this turn may use."""
        servers = tuple(
            server for server, why in self._servers_with_reasons(turn) if not why
        )
        return _HostedServersProvider(provider, servers, turn.mode) if servers else provider

    def exclusion_notices(self, turn: RemoteTurn) -> tuple[str, ...]:
        """Return a sentence for each server that this turn cannot use, with the reason.

        The turns of subagents use no server in remote mode.
        """
        return tuple(
            f"the MCP server {server.name} is in remote mode and not used: {why}"
            for server, why in self._servers_with_reasons(turn)
            if why
        )

    def _servers_with_reasons(self, turn: RemoteTurn) -> Iterator[tuple[HostedServer, str]]:
        """Yield each server with the reason why this turn cannot use it; "" if it can."""
        for config in self.servers:
            try:
                server = to_hosted(resolve(config, self._environ))
            except BadInput as error:
                yield HostedServer(config.name, config.url), str(error)
                continue
            yield server, _exclusion_reason(server, turn)


def _exclusion_reason(server: HostedServer, turn: RemoteTurn) -> str:
    """Return why a turn cannot use a server in remote mode; "" if it can."""
    any_tool = _ANY_TOOL.format(server.name)
    if not may_use(turn.agent, any_tool, Effect.RUN):
        return f"the agent {turn.agent.name} may not use its tools"
    if turn.named is not None and not any(fnmatchcase(any_tool, n) for n in turn.named):
        return f"--tools does not name mcp__{server.name}__*"
    if not turn.host:
        return f"the provider of {turn.model} connects to no MCP servers itself"
    if turn.host == "anthropic" and server.headers:
        name = server.headers[0][0]
        return f"Anthropic passes on no header but Authorization: Bearer, and it has {name}"
    if rule := blocking_rule(server.name, turn.rules):
        return f"the rule {rule} is about its tools, and the provider does not ask"
    if hook := _find_blocking_hook(any_tool, turn.hooks):
        return f"the hook {hook} could not be run before its tools"
    return ""


def _find_blocking_hook(any_tool: str, hooks: Sequence[Hook]) -> str:
    """Return the name of a hook that may forbid a call of the server, or ""."""
    for_all_tools = matching_hooks(hooks, "PreToolUse", any_tool)
    # A hook may match only some tools of the server, which are not known here.
    for_mcp = (h for h in hooks if h.on == "PreToolUse" and "mcp" in h.matcher)
    return next((hook.name for hook in (*for_all_tools, *for_mcp)), "")


class _HostedServersProvider:
    """A provider whose requests name MCP servers, as long as the mode allows their calls."""

    def __init__(
        self,
        provider: Provider,
        servers: tuple[HostedServer, ...],
        mode: Callable[[], Mode],
    ) -> None:
        self._provider, self._servers, self._mode = provider, servers, mode

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of the provider, which gets the servers if the mode allows calls."""
        # A request without tools is for a summary, or must end the turn.
        may_call = request.tools and request.tool_choice == "auto"
        if may_call and self._mode() in _CALLING_MODES:
            request = replace(request, hosted=self._servers)
        deltas = self._provider.stream(request)
        try:
            async for delta in deltas:
                yield delta
        finally:
            await deltas.aclose()


def to_hosted(server: ServerConfig) -> HostedServer:
    """Return a server in the form for the provider. Raises `BadInput` if its address is not
    https.
    """
    if not server.url.startswith("https://"):
        raise BadInput(
            f"the MCP server {server.name!r} cannot be remote: a provider connects to https "
            f"addresses only, and not to {server.summary!r:.80}"
        )
    token, other_headers = "", list[tuple[str, str]]()
    for name, value in server.headers:
        if name.lower() == "authorization" and value.lower().startswith(_BEARER_PREFIX):
            token = value[len(_BEARER_PREFIX) :].strip()
        else:
            other_headers.append((name, value))
    return HostedServer(server.name, server.url, token, tuple(other_headers))


def blocking_rule(name: str, rules: Iterable[Rule]) -> str:
    """Return the first rule that denies a tool of this server or asks about it, or ""."""
    prefix = f"mcp__{name}__"
    for rule in rules:
        if rule.verdict == "allow":
            continue
        names_server = _may_name(our_tool_name(rule.tool), prefix)
        if names_server or is_about(rule.tool, prefix, Effect.RUN):
            return f"{rule} ({rule.verdict})"
    return ""


def _may_name(text: str, prefix: str) -> bool:
    """Whether a tool name in a rule, which may contain `*`, can match this prefix."""
    if "*" not in text:
        return text.startswith(prefix)
    fixed = text.partition("*")[0]
    return fixed.startswith(prefix) or prefix.startswith(fixed)
