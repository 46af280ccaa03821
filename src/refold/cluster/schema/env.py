"""Run by Alembic: applies the migrations in `versions` in one transaction."""

import asyncio
from typing import Any

from alembic import context
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

_LOCK_KEY = 7_236_801_004  # one process migrates at a time


def _migrate(connection: Any) -> None:
    connection.execute(text("create schema if not exists refold"))
    connection.execute(text(f"select pg_advisory_xact_lock({_LOCK_KEY})"))
    context.configure(
        connection=connection, version_table="revision", version_table_schema="refold"
    )
    context.run_migrations()


async def _connect_and_migrate() -> None:
    url = make_url(context.config.attributes["url"]).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_migrate)
    finally:
        await engine.dispose()


asyncio.run(_connect_and_migrate())
