"""A login at a server while a session runs: the user sees a page, then the server connects.

It runs in the thread of `connections`, so no command waits for the user. `oauth_login` is
the login.
"""

from concurrent.futures import Future

from anyio import to_thread

from refold.errors import RefoldError, ToolFailed
from refold.mcp.connection import Connection
from refold.mcp.oauth_login import log_in
from refold.mcp.servers import resolve


async def log_in_to(connection: Connection, page: Future[str]) -> None:
    """Log in. `page` gets the address of the page, or `ToolFailed`."""
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
