"""/mcp: the MCP servers and their tools; approve a tool that a server has changed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import anyio

from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.completion import CompletionChoice
from refold.errors import BadInput
from refold.views.escape import on_one_line
from refold.views.styled import line
from refold.views.wrap import cut

if TYPE_CHECKING:
    from refold.mcp.connections import ServerStatus

NONE = "There are no MCP servers here. `refold mcp add NAME` adds one."
_ACCEPT = "accept"


def choices(session: Session) -> Iterable[CompletionChoice]:
    for one in session.mcp.statuses() if session.mcp else ():
        yield CompletionChoice(one.config.name, one.config.summary)


async def run(here: CommandContext, rest: str) -> None:
    servers = here.session.mcp
    remote = servers.remote.servers if servers else ()
    if servers is None or not (servers.statuses() or remote):
        for notice in servers.notices() if servers else ():
            here.show(line(on_one_line(notice)))
        here.show(line(NONE))
        return
    word, _, name = rest.partition(" ")
    if word == _ACCEPT:
        await anyio.to_thread.run_sync(servers.accept, name.strip())
        here.show(
            line(
                f"The tools of {name.strip()} are accepted; they are offered from the next turn."
            )
        )
    elif rest:
        _show(here, rest)
    else:
        for one in servers.statuses():
            here.show(line(_state(one)))
            known = f"{one.manifest.counts}, " if one.manifest.known else ""
            here.show(line(f"    {known}{on_one_line(one.config.summary)}"))
        for config in remote:
            here.show(line(f"{config.name}  remote"))
            here.show(
                line(f"    the provider calls its tools, {on_one_line(config.summary)}")
            )


def _state(one: "ServerStatus") -> str:
    if one.state == "waiting":
        return f"{one.config.name}  not connected yet; your next message connects it"
    why = f": {one.why}" if one.why else ""
    return f"{one.config.name}  {one.state}{on_one_line(why)}"


def _show(here: CommandContext, name: str) -> None:
    servers = here.session.mcp
    assert servers is not None  # `run` has looked
    found = next((one for one in servers.statuses() if one.config.name == name), None)
    if found is None and name in {one.name for one in servers.remote.servers}:
        here.show(line(f"{name} is in remote mode: only the provider knows its tools."))
        return
    if found is None:
        names = ", ".join(one.config.name for one in servers.statuses())
        raise BadInput(f"there is no MCP server {name!r} here; there are: {names}")
    here.show(line(_state(found)))
    for tool in found.manifest.usable:
        row = f"  {on_one_line(tool.name)}  {on_one_line(tool.description)}"
        here.show(line(cut(row, here.look.room)))
    for prompt in servers.prompts():
        if prompt.server == name:
            here.show(line(f"  prompt /{prompt.name} {on_one_line(prompt.usage)}".rstrip()))
    for resource in found.manifest.offer.resources:
        here.show(line(f"  resource @{name}:{on_one_line(resource.uri)}"))
    if found.manifest.blocked:
        here.show(
            line("These tools have changed since you accepted them, and are blocked:")
        )
        for difference in found.manifest.differences():
            here.show(line(f"  {on_one_line(difference)}"))
        here.show(line(f"/mcp {_ACCEPT} {name} accepts them."))
