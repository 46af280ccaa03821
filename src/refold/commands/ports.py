"""/ports: list the servers in a remote workspace, or forward the port of one."""

import anyio

from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.styled import line

_NONE_NOTE = "No server of yours listens there."
_HINT_TEXT = "/ports PORT opens one on this machine"


async def run(context: CommandContext, arguments: str) -> None:
    """List the open ports of the remote workspace, or forward a port to this machine."""
    workspace = context.session.workspace
    if arguments:
        port = await anyio.to_thread.run_sync(workspace.open_port, _number(arguments))
        context.show(line(f"Port {port.port} there is open: {port.link}"))
        return
    ports = await anyio.to_thread.run_sync(workspace.list_ports)
    for port in ports:
        context.show(line(f"{port.port}  {port.link}".rstrip()))
    context.show(line(_HINT_TEXT if ports else _NONE_NOTE, "dim"))


def _number(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= len("65535"):
        return int(text)
    raise BadInput(f"/ports {text!r} is not a port: give a number that /ports lists")
