"""/mcp: show the MCP servers of a session, their tools and logs; restart them, log in, accept
changed tools.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import anyio

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line
from refold.views.picker import Picker, PickerItem
from refold.views.styled import Line, Style, line
from refold.views.wrap import cells, cut

if TYPE_CHECKING:
    from refold.app.mcp_servers import McpServers
    from refold.mcp.connections import ServerStatus
    from refold.mcp.servers import ServerConfig

NO_SERVERS = "There are no MCP servers here. `refold mcp add NAME` adds one."
_STATE_STYLES: Mapping[str, Style] = {"connected": "good", "failed": "bad"}
_MAX_LOG_LINES = 20
_MIN_ABOUT_CELLS = 10  # of a description in a list, however narrow the screen is


def choices(session: Session) -> Iterable[CompletionChoice]:
    for status in session.mcp.statuses() if session.mcp else ():
        yield CompletionChoice(status.config.name, _target(status.config))


async def run(context: CommandContext, arguments: str) -> None:
    """List the servers, show the named server, or run the named action on a server."""
    servers = context.session.mcp
    if servers is None:
        context.show(line(NO_SERVERS))
        return
    if not servers.statuses() and not servers.remote.servers:
        for notice in servers.notices():
            context.show(line(escape_to_one_line(notice)))
        context.show(line(NO_SERVERS))
        return
    typed = arguments
    can_pick = context.look.picks and servers.statuses()
    if not typed and can_pick:
        typed = await _pick_server(context, servers)
        if not typed:
            return
    word, _, rest = typed.partition(" ")
    action = _SERVER_ACTIONS.get(word)
    name = rest.strip()
    if action is not None and name:
        _find_status(servers, name)  # raises for an unknown name
        await action(context, servers, name)
    elif typed:
        _show(context, servers, typed)
    else:
        _list(context, servers)


async def _pick_server(context: CommandContext, servers: "McpServers") -> str:
    """Let the user pick a server and an action.

    Return what the user could type after /mcp for the action; "" if the user picks none.
    """
    statuses = servers.statuses()
    column_width = max(cells(status.config.name) for status in statuses)
    server_items = (
        PickerItem(
            status.config.name,
            partial(_server_row, status, column_width),
            status.config.name,
        )
        for status in statuses
    )
    name = await _pick(context, Picker("MCP servers", tuple(server_items)))
    if not name:
        return ""
    status = next(status for status in statuses if status.config.name == name)
    action_items = (
        PickerItem(typed, partial(_action_row, typed, about), f"{typed} {about}")
        for typed, about in _actions(status).items()
    )
    return await _pick(context, Picker(f"The MCP server {name}", tuple(action_items)))


def _server_row(status: "ServerStatus", column_width: int, width: int) -> Line:
    """Return the line for a server in a picker: its name, state and description."""
    padding = " " * (column_width - cells(status.config.name))
    name = f"{status.config.name}{padding}  "
    state = "not connected yet  " if status.state == "waiting" else f"{status.state}  "
    about_cells = max(_MIN_ABOUT_CELLS, width - cells(name) - cells(state))
    return (
        ("plain", name), (_STATE_STYLES.get(status.state, "dim"), state),
        ("dim", cut(_server_text(status), about_cells)),
    )  # fmt: skip


def _actions(status: "ServerStatus") -> Mapping[str, str]:
    """Return what can be typed after /mcp for a server, each with its description."""
    name = status.config.name
    actions = {name: "its tools, prompts and resources", f"log {name}": "what it logged last",
               f"restart {name}": "connect to it again"}  # fmt: skip
    if status.manifest.blocked_tools:
        actions[f"accept {name}"] = "accept its changed tools, which the first entry shows"
    if status.config.transport != "stdio":
        actions[f"login {name}"] = "log in, in the browser"
        actions[f"logout {name}"] = "delete its tokens"
    return actions


def _action_row(typed: str, about: str, width: int) -> Line:
    head = f"/mcp {typed}"
    about_cells = max(_MIN_ABOUT_CELLS, width - cells(head) - 2)
    return (("plain", f"{head}  "), ("dim", cut(about, about_cells)))


async def _pick(context: CommandContext, picker: Picker) -> str:
    """Let the user pick an item. Return its id, or "" if the user picks none."""
    picked = await context.pick(picker)
    return picked.selection.id if picked and picked.selection else ""


def _server_text(status: "ServerStatus") -> str:
    counts = f"{status.manifest.counts}, " if status.manifest.known else ""
    why = f"{escape_to_one_line(status.why)}, " if status.why else ""
    return f"{counts}{why}{_target(status.config)}"


def _target(server: "ServerConfig") -> str:
    from refold.client.settings.mcp_servers import shown_target

    return escape_to_one_line(shown_target(server))


def _list(context: CommandContext, servers: "McpServers") -> None:
    """Show all servers, and then the servers that the provider calls without refold."""
    for status in servers.statuses():
        context.show(line(_state(status)))
        counts = f"{status.manifest.counts}, " if status.manifest.known else ""
        context.show(line(f"    {counts}{_target(status.config)}"))
    for config in servers.remote.servers:
        context.show(line(f"{config.name}  remote"))
        context.show(line(f"    the provider calls its tools, {_target(config)}"))


def _state(status: "ServerStatus") -> str:
    """Return the name and the state of a server as a line of text."""
    if status.state == "waiting":
        return f"{status.config.name}  not connected yet; your next message connects it"
    why = f": {status.why}" if status.why else ""
    return f"{status.config.name}  {status.state}{escape_to_one_line(why)}"


def _show(context: CommandContext, servers: "McpServers", name: str) -> None:
    """Show a server with its tools, prompts, resources and blocked changes.

    Raises `BadInput` for an unknown name.
    """
    own_names = {status.config.name for status in servers.statuses()}
    remote_names = {config.name for config in servers.remote.servers}
    if name in remote_names - own_names:
        context.show(line(f"{name} is in remote mode: only the provider knows its tools."))
        return
    status = _find_status(servers, name)
    context.show(line(_state(status)))
    for tool in status.manifest.usable:
        row = f"  {escape_to_one_line(tool.name)}  {escape_to_one_line(tool.description)}"
        context.show(line(cut(row, context.look.width)))
    for prompt in servers.prompts():
        if prompt.server == name:
            context.show(
                line(f"  prompt /{prompt.name} {escape_to_one_line(prompt.usage)}".rstrip())
            )
    for resource in status.manifest.offer.resources:
        context.show(line(f"  resource @{name}:{escape_to_one_line(resource.uri)}"))
    for template in status.manifest.offer.templates:
        context.show(line(f"  resources @{name}:{escape_to_one_line(template.uri)}"))
    if status.manifest.blocked_tools:
        context.show(
            line("These tools have changed since you accepted them, and are blocked:")
        )
        for difference in status.manifest.differences():
            context.show(line(f"  {escape_to_one_line(difference)}"))
        context.show(line(f"/mcp accept {name} accepts them."))


def _find_status(servers: "McpServers", name: str) -> "ServerStatus":
    """Return the status of the server `name`. Raises `BadInput` for an unknown name."""
    statuses = servers.statuses()
    for status in statuses:
        if status.config.name == name:
            return status
    names = ", ".join(status.config.name for status in statuses)
    raise BadInput(f"there is no MCP server {name!r} here; there are: {names}")


async def _accept(context: CommandContext, servers: "McpServers", name: str) -> None:
    await anyio.to_thread.run_sync(servers.accept, name)
    context.show(
        line(f"The tools of {name} are accepted; they are offered from the next turn.")
    )


async def _restart(context: CommandContext, servers: "McpServers", name: str) -> None:
    """Restart a server, and show its new state, unless the user stops it."""
    status = await context.wait(partial(servers.connections.restart, name))
    if status is not None:
        context.show(line(_state(status)))
        context.show(line(f"    {_server_text(status)}", "dim"))


async def _log(context: CommandContext, servers: "McpServers", name: str) -> None:
    lines = servers.connections.log_lines(name)[-_MAX_LOG_LINES:]
    for row in lines:
        context.show(line(cut(f"  {escape_to_one_line(row)}", context.look.width)))
    if not lines:
        context.show(line(f"{name} has logged nothing in this session."))
    context.show(line("refold logs shows all, with earlier sessions.", "dim"))


async def _log_in(context: CommandContext, servers: "McpServers", name: str) -> None:
    """Show the page on which the user logs in; nothing if the user stops it."""
    page = await context.wait(partial(servers.connections.log_in, name))
    if page is not None:
        context.show(line(f"Log in on this page; {name} is connected when you have:"))
        context.show(line(escape_to_one_line(page)))


async def _log_out(context: CommandContext, servers: "McpServers", name: str) -> None:
    """Delete the tokens of a server, and say whether there were any."""
    had_login = await anyio.to_thread.run_sync(servers.connections.log_out, name)
    message = (
        f"The tokens of {name} are deleted here." if had_login else f"{name} has no login."
    )
    context.show(line(message))


_Action = Callable[[CommandContext, "McpServers", str], Awaitable[None]]
_SERVER_ACTIONS: Mapping[str, _Action] = {
    "accept": _accept, "restart": _restart, "log": _log, "login": _log_in, "logout": _log_out,
}  # fmt: skip
