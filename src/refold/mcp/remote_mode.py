"""Remote mode: MCP servers that the provider of the model connects to, and not refold.

Their calls are made by the provider while the model answers, so no rule is asked about one of them.
That is why only the user's own file can choose it, and why a server of which any rule denies or
asks about a tool is not handed over at all. Pure. `servers` reads the files, `app.mcp_servers` puts
the servers into requests, `provider.hosted_mcp` says them to a provider.
"""

from collections.abc import Iterable

from refold.errors import BadInput
from refold.mcp.servers import ServerConfig
from refold.permissions.rules import Rule, is_about, ours
from refold.provider.port import HostedServer
from refold.values.tools import Effect

_BEARER = "bearer "


def handed_over(server: ServerConfig) -> HostedServer:
    """What the provider is told of a server whose variables are replaced. Raises `BadInput`."""
    if not server.url.startswith("https://"):
        raise BadInput(
            f"the MCP server {server.name!r} cannot be remote: a provider connects to https "
            f"addresses only, and not to {server.summary!r:.80}"
        )
    token, more = "", list[tuple[str, str]]()
    for name, value in server.headers:
        if name.lower() == "authorization" and value.lower().startswith(_BEARER):
            token = value[len(_BEARER) :].strip()
        else:
            more.append((name, value))
    return HostedServer(server.name, server.url, token, tuple(more))


def held_back(name: str, rules: Iterable[Rule]) -> str:
    """The first rule that denies or asks about a tool of this server, or ""."""
    prefix = f"mcp__{name}__"
    speaks = (
        rule
        for rule in rules
        if rule.verdict != "allow"
        and (_may_name(ours(rule.tool), prefix) or is_about(rule.tool, prefix, Effect.RUN))
    )
    return next((f"{rule} ({rule.verdict})" for rule in speaks), "")


def _may_name(written: str, prefix: str) -> bool:
    """Can a rule's name, which may contain `*`, mean a tool that begins like this?"""
    fixed = written.partition("*")[0]
    if fixed == written:
        return written.startswith(prefix)
    return fixed.startswith(prefix) or prefix.startswith(fixed)
