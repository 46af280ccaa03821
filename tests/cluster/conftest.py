"""Provides one PostgreSQL server to all tests of this directory. Each test has a tenant of its own."""

from collections.abc import Generator
from itertools import count

import pytest

from refold.cluster.database import Database
from tests.cluster.postgresql import Server, postgresql_server
from tests.cluster.servers import LoopbackServer, S3Server, s3_server, temporal_server

_NUMBERS = count()


@pytest.fixture(scope="session")
def server() -> Generator[Server]:
    with postgresql_server() as started:
        yield started


@pytest.fixture
def tenant() -> str:
    return f"tenant-{next(_NUMBERS)}"


@pytest.fixture
def database(server: Server, tenant: str) -> Generator[Database]:
    opened = Database(server.url, tenant)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def temporal() -> Generator[LoopbackServer]:
    with temporal_server() as started:
        yield started


@pytest.fixture(scope="session")
def s3() -> Generator[S3Server]:
    with s3_server() as started:
        yield started
