"""Blobs in a bucket of a real S3 server, beside rows in a database."""

import os
import re
from collections.abc import Generator, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from refold.cli.main import main
from refold.cluster.blobs import MAX_ROW_BYTES, SessionBlobs, SweepResult, TenantBlobs
from refold.cluster.bucket import TenantObjects, tenant_objects
from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.errors import JournalError
from refold.journal.events.kinds import RequestLogged
from refold.journal.store.port import Blobs
from refold.testing.conformance import BlobsContract
from refold.testing.session_index_conformance import opening_events, record
from tests.cluster.postgresql import Server
from tests.cluster.servers import S3Server

pytestmark = pytest.mark.peer
ONE, TWO = "20260101-000000-aaaa", "20260102-000000-bbbb"
BUCKET = "s3://refold/blobs"


@pytest.fixture
def environ(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    return os.environ


@pytest.fixture
def objects(environ: Mapping[str, str], tenant: str) -> Generator[TenantObjects]:
    opened = tenant_objects(BUCKET, tenant, environ)
    opened.check()
    yield opened
    opened.delete_below()


@pytest.fixture
def away(tenant: str) -> TenantObjects:
    """Return a bucket at an address where nothing listens."""
    stores = pytest.importorskip("obstore.store")
    client, retry = {"allow_http": True}, {"max_retries": 0}
    bucket = stores.S3Store("refold", endpoint="http://127.0.0.1:1", skip_signature=True,
        client_options=client, retry_config=retry)  # fmt: skip
    return TenantObjects(bucket, BUCKET, tenant)


class TestBucketBlobs(BlobsContract):
    @pytest.fixture
    def blobs(self, database: Database, objects: TenantObjects) -> Blobs:
        return SessionBlobs(TenantBlobs(database, objects), ONE)


def test_blobs_are_stored_as_rows_only_while_the_bucket_is_unreachable(
    database: Database, objects: TenantObjects, away: TenantObjects
) -> None:
    with_bucket, cut_off = TenantBlobs(database, objects), TenantBlobs(database, away)
    count = "select count(*) from refold.blob where tenant = refold.tenant()"

    def rows() -> int:
        return database.call(lambda db: db.fetchval(count))

    names = [with_bucket.put(ONE, b"first"), cut_off.put(ONE, b"second")]

    assert rows() == 1
    assert [with_bucket.get(ONE, name) for name in names] == [b"first", b"second"]
    assert sorted(with_bucket.names(ONE)) == sorted(names)
    assert with_bucket.size(ONE) == (2, 11)
    with pytest.raises(
        JournalError, match=f"cannot read {ONE}/blobs/{names[0]} in {BUCKET}"
    ):
        cut_off.get(ONE, names[0])
    with pytest.raises(JournalError, match=f"cannot write {ONE}/blobs/"):
        cut_off.put(ONE, bytes(MAX_ROW_BYTES + 1))

    assert with_bucket.sweep() == SweepResult(
        moved=1, deleted=0
    )  # a blob without a session may be a new one
    assert rows() == 0
    assert [with_bucket.get(ONE, name) for name in names] == [b"first", b"second"]


def test_a_blob_that_was_changed_in_the_bucket_is_refused(
    database: Database, objects: TenantObjects
) -> None:
    blobs = TenantBlobs(database, objects)
    name = blobs.put(ONE, b"true")
    objects.put(f"{ONE}/blobs/{name}", b"false")

    with pytest.raises(JournalError, match=f"the blob {name} of {ONE} was changed"):
        blobs.get(ONE, name)
    blobs.put(ONE, b"true")
    assert blobs.get(ONE, name) == b"true"


def test_blobs_of_a_session_are_read_and_packed_from_the_bucket_and_deleted_with_it(
    database: Database, objects: TenantObjects, tmp_path: Path
) -> None:
    stored = PostgreSQLSessions(database, tmp_path / "none", objects)
    blob = b"a large output"
    name = stored.blobs.put(ONE, blob)
    record(stored, ONE, *opening_events(tmp_path, "hello"), RequestLogged("POST", name))

    fork = stored.fork(ONE, None, 1e9)
    packed = b"".join(stored.pack(ONE).pieces())

    assert blob in packed
    assert stored.blob(ONE, name) == blob
    assert stored.check(ONE).damages == ()
    stored.delete(ONE)
    assert [item.key for item in objects.list(ONE)] == []
    assert stored.exists(fork.id)


def test_a_tenant_cannot_read_the_blob_of_another_tenant_by_its_hash(
    server: Server, environ: Mapping[str, str], database: Database, objects: TenantObjects
) -> None:
    other_database = Database(server.url, "stranger")
    stranger = TenantBlobs(other_database, tenant_objects(BUCKET, "stranger", environ))
    name = TenantBlobs(database, objects).put(ONE, b"secret")
    assert name == sha256(b"secret").hexdigest()

    with pytest.raises(JournalError, match=f"the blob {name} of {ONE} is missing"):
        stranger.get(ONE, name)
    assert stranger.names(ONE) == []
    other_database.close()


def test_deleting_a_tenant_deletes_its_objects_in_the_bucket(
    server: Server,
    environ: Mapping[str, str],
    objects: TenantObjects,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Objects of other tenants stay."""
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path))
    monkeypatch.setenv("REFOLD_SESSIONS", server.url)
    monkeypatch.setenv("REFOLD_BUCKET", BUCKET)
    theirs = tenant_objects(BUCKET, "leaver", environ)
    for one in (objects, theirs):
        one.put(f"{ONE}/blobs/a", b"x")

    assert main(["tenants", "add", "leaver"]) == 0
    assert main(["tenants", "delete", "leaver", "--yes"]) == 0

    assert list(theirs.list()) == []
    assert [item.key for item in objects.list()] == [f"{ONE}/blobs/a"]


def test_cluster_check_reports_wrong_keys_and_an_unreachable_bucket(
    server: Server,
    environ: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def check(**variables: str) -> tuple[int, str]:
        with monkeypatch.context() as changed:
            for name, value in variables.items():
                changed.setenv(name, value)
            code = main(["cluster", "check"])
        return code, "".join(capsys.readouterr())

    monkeypatch.setenv("REFOLD_HOME", str(tmp_path))
    monkeypatch.setenv("REFOLD_SESSIONS", server.url)
    right = check(REFOLD_BUCKET=BUCKET)
    wrong = check(REFOLD_BUCKET=BUCKET, AWS_SECRET_ACCESS_KEY="wrong")
    away = check(REFOLD_BUCKET=BUCKET, AWS_ENDPOINT_URL="http://127.0.0.1:1")
    none = check()

    assert BUCKET not in right[1]
    assert wrong[0] == away[0] == 1
    assert "SignatureDoesNotMatch" in wrong[1]
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY have the keys" in wrong[1]
    assert re.search(
        rf"cannot write \.refold-check-\w+ in {re.escape(BUCKET)}: Generic S3 error",
        away[1],
    )
    assert "REFOLD_BUCKET can name a bucket" in none[1]
