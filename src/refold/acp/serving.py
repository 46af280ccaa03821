"""Serves one editor: from the first line of stdin to its end, or to a signal.

The process around the protocol; its methods are in `editor_agent`.
"""

import signal
from collections.abc import AsyncIterator
from typing import cast

import anyio
from acp.agent.connection import AgentSideConnection
from acp.interfaces import Agent

from refold.acp.editor_agent import EditorAgent
from refold.acp.line_transport import LineTransport
from refold.client.host import Host

_ENDED = "the editor ended refold"


async def serve(host: Host, lines: AsyncIterator[bytes | None], out: int) -> None:
    """Returns when stdin has ended, or at SIGINT or SIGTERM; turns are stopped then."""
    transport = LineTransport(lines, out)
    async with host.running(why=_ENDED), anyio.create_task_group() as group:
        group.start_soon(_until_a_signal, group.cancel_scope)
        group.start_soon(transport.run)
        agent = cast("Agent", EditorAgent(host, group))
        connection = AgentSideConnection(
            agent, transport, listening=False, use_unstable_protocol=True
        )
        try:
            await connection.listen()
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()
        group.cancel_scope.cancel()


async def _until_a_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
