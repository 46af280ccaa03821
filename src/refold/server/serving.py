"""Serves the conversations of a host to pages and programs, until a signal.

What is served is put together in `app`, and `listening` has the socket. Which conversations
there are is the host's.
"""

from collections.abc import Callable
from contextlib import closing

from refold.client.host import Host
from refold.server.access import Access
from refold.server.app import application
from refold.server.listening import Listening, bound, names_of, serve_until_signal


async def serve(
    host: Host,
    access: Access,
    where: Listening,
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called with the address, once it is heard."""
    with closing(bound(where)) as listener:
        async with host.running(drain=where.drain):
            app = application(host, access, names_of(where, listener), tls=where.tls)
            await serve_until_signal(app, listener, where, ready)
