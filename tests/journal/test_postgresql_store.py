"""The contracts hold for a store that many machines can share, on a server of the test's own."""

from collections.abc import Callable, Generator
from functools import partial
from itertools import count

import anyio
import pytest

from refold.errors import JournalError
from refold.journal.store.port import Blobs, Store
from refold.testing.conformance import BlobsContract, StoreContract
from tests.journal.postgresql import PostgreSQLStore, postgresql_server

pytestmark = pytest.mark.peer
_NUMBERS = count()


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with postgresql_server() as directory:
        yield directory


class TestPostgreSQLStore(StoreContract):
    @pytest.fixture
    def open_store(self, server: str) -> Callable[[], Store]:
        return partial(PostgreSQLStore, server, f"session-{next(_NUMBERS)}")


class TestPostgreSQLBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, server: str) -> Blobs:
        return PostgreSQLStore(server, f"session-{next(_NUMBERS)}").blobs


def test_a_server_that_is_not_there_is_a_journal_error(server: str) -> None:
    with pytest.raises(JournalError, match="failed"):
        anyio.run(PostgreSQLStore(f"{server}/elsewhere", "session").lease)
