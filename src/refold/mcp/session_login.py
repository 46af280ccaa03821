"""Logs in at a server during a session: the user gets a page, and then the server is connected.

This runs in the thread of `connections`, so that no command has to wait for the user.
`oauth_login` implements the login.
"""

from concurrent.futures import Future

from anyio import to_thread

from refold.errors import RefoldError, ToolFailed
from refold.mcp.connection import Connection
from refold.mcp.oauth_login import log_in
from refold.mcp.servers import resolve


async def log_in_to(connection: Connection, page: Future[str]) -> None:
    """Log in at the server of `connection`, and then connect. `page` gets the page's address.

    If the login fails before it has a page, `page` gets `ToolFailed`.
    """
    environment = connection.environment
    config = resolve(connection.config, environment.environ)

    async def show(url: str) -> None:
        page.set_result(url)

    try:
        before = await to_thread.run_sync(environment.grants.read, config.name, config.url)
        grant = await log_in(
            config, environment.environ, show, before, environment.addresses
        )
        await to_thread.run_sync(environment.grants.write, config.name, config.url, grant)
    except RefoldError as error:
        if not page.done():
            page.set_exception(ToolFailed(str(error)))
        connection.log("warning", str(error))
    else:
        connection.log("info", "the user has logged in")
        connection.restart()
    finally:
        if not page.done():
            page.set_exception(ToolFailed(f"The login at {config.name} was stopped."))
