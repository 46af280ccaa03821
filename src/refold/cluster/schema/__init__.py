"""The tables of refold in PostgreSQL, and their migrations (Alembic) in `versions`.

Every row has a tenant, and a connection sees only the rows of its own tenant: row-level
security applies even to the owner of the tables.
"""

from pathlib import Path
from typing import Any

import anyio

from refold.errors import BadInput

SCHEMA_REVISION = "0009"  # of the newest module in `versions`
_LOCK_KEY = 7_236_801_004  # one process migrates at a time


def check_not_newer(revision: str) -> None:
    """Raise `BadInput` if `revision` shows that a newer refold has made or updated the
    tables.
    """
    if revision > SCHEMA_REVISION:
        raise BadInput(
            f"the tables of this database are of a newer refold (revision {revision}; this one knows "
            f"{SCHEMA_REVISION}): update refold here"
        )


def migrate(url: str) -> None:
    """Create or update the tables in the database at `url`.

    Raises errors of asyncpg, and `BadInput` if a newer refold has made the tables.
    """
    from sqlalchemy.exc import DBAPIError  # an extra

    try:
        anyio.run(_migrate, url)
    except DBAPIError as error:
        raise (error.driver_exception or error) from error


def run_script(connection: Any, statements: str) -> None:
    """Run several SQL statements within a migration.

    SQLAlchemy runs only one statement at a time, because it makes asyncpg prepare the text.
    """

    async def run(driver: Any) -> None:
        await driver.execute(statements)

    connection.connection.dbapi_connection.run_async(run)


async def _migrate(url: str) -> None:
    """Apply all new migrations in one transaction."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    address = make_url(url).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(address, poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_apply_migrations)
    finally:
        await engine.dispose()


def _apply_migrations(connection: Any) -> None:
    """Run the migrations that the tables do not have yet, while no other process does."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import text

    scripts: Any = ScriptDirectory(str(Path(__file__).parent))

    def list_steps(revision: tuple[str, ...], context: object) -> Any:
        """Return the migrations that the tables lack. Raises an error if the tables are
        newer.
        """
        for head in revision:
            check_not_newer(head)
        # As `alembic upgrade` does: from the present revision to the newest.
        return scripts._upgrade_revs("head", revision)

    connection.execute(text("create schema if not exists refold"))
    connection.execute(text(f"select pg_advisory_xact_lock({_LOCK_KEY})"))
    with EnvironmentContext(Config(), scripts, fn=list_steps) as environment:
        environment.configure(
            connection=connection,
            version_table="revision",
            version_table_schema="refold",
        )
        environment.run_migrations()
