"""Keys of tenants in a bucket, with a bucket in memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.cluster.bucket import TenantObjects, tenant_objects, tenant_prefix
from refold.errors import BadInput, JournalError

memory = pytest.importorskip("obstore.store", reason="refold[cluster] is not installed")
PARTS = st.text(st.sampled_from("ab.-_/"), min_size=1, max_size=6)
KEYS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@pytest.mark.property
@given(ours=st.text(max_size=20), theirs=st.text(max_size=20), key=KEYS, folder=KEYS)
def test_a_tenant_can_neither_read_list_nor_delete_an_object_of_another_tenant(
    ours: str, theirs: str, key: str, folder: str
) -> None:
    """The tenant cannot list or delete one either, with any key that it can construct."""
    bucket = memory.MemoryStore()
    own = TenantObjects(bucket, "s3://b", f"a{ours}")
    other = TenantObjects(bucket, "s3://b", f"b{theirs}")
    try:
        own.put(key, b"secret")
    except JournalError:  # no key of any tenant
        with pytest.raises(JournalError, match="cannot be the key"):
            other.get(key)
        return

    assert other.get(key) is None
    assert list(other.list()) == []
    for attempt in (folder, f"{folder}/../{tenant_prefix('a' + ours)}"):
        try:
            assert list(other.list(attempt)) == []
            other.delete_below(attempt)
        except JournalError:
            continue
    other.delete([key])
    other.delete_below()
    assert own.get(key) == b"secret"


def test_bucket_objects_below_a_session_are_those_of_the_session_and_its_subagents() -> (
    None
):
    objects = TenantObjects(memory.MemoryStore(), "s3://b", "acme")
    for key in ("one/blobs/a", "one/child-1/blobs/b", "one-more/blobs/c"):
        objects.put(key, b"x")

    assert [item.key for item in objects.list("one")] == [
        "one/blobs/a",
        "one/child-1/blobs/b",
    ]
    objects.delete_below("one")
    assert [item.key for item in objects.list()] == ["one-more/blobs/c"]


@pytest.mark.parametrize(
    "url", ["bucket", "https://host/bucket", "s3://", "s3://key@bucket"]
)
def test_an_invalid_bucket_url_is_refused_with_the_expected_form(url: str) -> None:
    with pytest.raises(BadInput, match="s3://BUCKET/PREFIX"):
        tenant_objects(url, "acme", {})


def test_checks_of_a_bucket_by_several_workers_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = memory.MemoryStore()
    one, two = (TenantObjects(bucket, "s3://b", "acme") for _ in range(2))
    get = one.get

    def get_after_other_check(key: str) -> bytes | None:
        two.check()
        return get(key)

    monkeypatch.setattr(one, "get", get_after_other_check)

    one.check()

    assert list(one.list()) == []
