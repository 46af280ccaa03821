"""Serves the conversations of a host to pages and programs, until a signal.

What is served is put together in `app`, and `listening` has the socket. Which conversations
there are is the host's.
"""

from collections.abc import Callable
from contextlib import closing

from refold.client.host import Host
from refold.client.webhooks import Webhooks
from refold.server.access import Access
from refold.server.app import application
from refold.server.listening import Listening, bound, names_of, serve_until_signal


async def serve(
    host: Host,
    access: Access,
    where: Listening,
    ready: Callable[[str], None],
    webhooks: Webhooks | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called with the address, once it is heard.

    Without `webhooks` no schedule is called here.
    """
    with closing(bound(where)) as listener:
        async with host.running(drain=where.drain):
            names = names_of(where, listener)
            app = application(host, access, names, tls=where.tls, webhooks=webhooks)
            await serve_until_signal(app, listener, where, ready)
