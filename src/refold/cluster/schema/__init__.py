"""The tables of refold in PostgreSQL, and their migrations (Alembic).

`migrate` makes the tables or updates them, as their owner. Every row has a tenant, and a
connection sees those of its own tenant only: row-level security holds for the owner, too.
"""

from pathlib import Path
from typing import Any

SCHEMA_REVISION = "0001"  # of the newest module in `versions`
SCHEMA_NAME = "refold"


def migrate(url: str) -> None:
    """Make or update the tables in the database at `url`. Raises errors of asyncpg."""
    from alembic import command  # an extra
    from alembic.config import Config
    from sqlalchemy.exc import DBAPIError

    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent))
    settings.attributes["url"] = url
    try:
        command.upgrade(settings, "head")
    except DBAPIError as error:
        raise (error.driver_exception or error) from error


def run_script(connection: Any, statements: str) -> None:
    """Run several statements within a migration.

    asyncpg prepares what SQLAlchemy sends it, and a prepared statement is a single one.
    """

    async def run(driver: Any) -> None:
        await driver.execute(statements)

    connection.connection.dbapi_connection.run_async(run)
