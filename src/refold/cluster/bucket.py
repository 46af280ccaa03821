"""The objects of a tenant in a bucket with an S3 API, accessed through obstore.

All nodes of a service share a bucket. The keys of a tenant begin with a prefix of its own,
and no id or name leads to a key of another tenant. The address of a bucket is
`s3://BUCKET/PREFIX`. Credentials and endpoint are read from the environment variables of
Amazon's tools. `blobs` and `workspace_packs` say what is stored.
"""

import base64
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from refold.errors import BadInput, JournalError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

BUCKET_VARIABLE = "REFOLD_BUCKET"
_URL_SCHEME = "s3://"
_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 60  # without an answer; uploads are sent in pieces
_RETRY_SECONDS = 10
_MAX_RETRIES = 3
_PROBE_PREFIX = ".refold-check-"
_CHECK_KEYS = " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY have the keys)"
_REMEDY_TEXTS: Mapping[str, str] = {
    "AccessDenied": _CHECK_KEYS,
    "InvalidAccessKeyId": _CHECK_KEYS,
    "SignatureDoesNotMatch": _CHECK_KEYS,
    "NoSuchBucket": " (create the bucket: refold makes none)",
}
_EXTRA_MISSING = (
    "a bucket needs packages that are not installed here: pip install 'refold[cluster]', or, in a "
    "checkout, uv sync --extra cluster"
)


class StoredObject(Struct, frozen=True):
    key: str
    size: int
    changed: datetime


class BucketError(JournalError):
    """Raised if the bucket cannot be reached, or refuses a request."""


class TenantObjects:
    """The objects of one tenant. Its methods block, and raise `BucketError`.

    A key consists of ids or names of refold, separated by `/`.
    """

    def __init__(self, store: "ObjectStore", place: str, tenant: str) -> None:
        self._store, self.place = store, place
        self._prefix = tenant_prefix(tenant)

    def put(self, key: str, content: bytes | Path) -> None:
        """Store an object, and return once it is stored. An object with this key is
        replaced.
        """
        with self._as_bucket_errors("write", key):
            self._store.put(self._path(key), content)

    def get(self, key: str) -> bytes | None:
        """Return the content of an object; None if there is no such object."""
        with self._as_bucket_errors("read", key):
            try:
                return bytes(self._store.get(self._path(key)).bytes())
            except FileNotFoundError:
                return None

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield the content of an object in pieces. Raises `BucketError` if it is missing."""
        with self._as_bucket_errors("read", key):
            for piece in self._store.get(self._path(key)).stream():
                yield bytes(piece)

    def list(self, folder: str = "") -> Iterator[StoredObject]:
        """Yield the objects below the key `folder`, in the order of their keys.

        If `folder` is "", yield all objects of the tenant.
        """
        prefix = self._path(folder) if folder else self._prefix
        with self._as_bucket_errors("list", folder):
            store: Any = self._store  # its list is typed for Arrow, too
            for page in store.list(f"{prefix}/"):
                for item in page:
                    key = item["path"][len(self._prefix) + 1 :]
                    yield StoredObject(key, item["size"], item["last_modified"])

    def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects. Missing ones are skipped."""
        if keys:
            with self._as_bucket_errors("delete", keys[0]):
                self._store.delete([self._path(key) for key in keys])

    def delete_below(self, folder: str = "") -> None:
        """Delete all objects whose keys begin with `folder` and `/`; "": all objects of the
        tenant.
        """
        self.delete([item.key for item in self.list(folder)])

    def check(self) -> None:
        """Raise `BadInput` unless objects can be written, read and deleted."""
        try:
            # Random, because workers that start together check at the same time.
            key = _PROBE_PREFIX + os.urandom(6).hex()
            self.put(key, b"probe")
            if self.get(key) != b"probe":
                raise BadInput(f"{self.place} does not return what was written to it")
            self.delete([key])
        except BucketError as error:
            raise BadInput(str(error)) from error

    def _path(self, key: str) -> str:
        """Return the key with the tenant's prefix. Raises `JournalError` for a key that
        could leave it.
        """
        parts = key.split("/")
        if any(part in ("", ".", "..") or not part.isascii() for part in parts):
            raise JournalError(f"{key!r} cannot be the key of an object")
        return f"{self._prefix}/{key}"

    @contextmanager
    def _as_bucket_errors(self, operation: str, key: str) -> Generator[None]:
        """Raise errors as `BucketError`, which names the operation and the key if any."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            reason = explain(error)
            raise BucketError(
                f"cannot {operation} {key or 'objects'} in {self.place}: {reason}"
            ) from error


def tenant_prefix(tenant: str) -> str:
    """Return the prefix of all keys of a tenant, without the last `/`. No two tenants have
    the same one.
    """
    return "t-" + base64.urlsafe_b64encode(tenant.encode()).decode().rstrip("=")


def tenant_objects(url: str, tenant: str, environ: Mapping[str, str]) -> TenantObjects:
    """Return the objects of a tenant in the bucket at `url`. Raises `BadInput` for a wrong
    address.
    """
    bucket = _open_bucket(url, environ.get("AWS_ENDPOINT_URL", ""))
    return TenantObjects(bucket, url, tenant)


def is_unencrypted(environ: Mapping[str, str]) -> bool:
    """Return whether the endpoint is on another machine and is reached without TLS."""
    endpoint = urlsplit(environ.get("AWS_ENDPOINT_URL", ""))
    is_local = endpoint.hostname in ("127.0.0.1", "::1", "localhost")
    return endpoint.scheme == "http" and not is_local


def _open_bucket(url: str, endpoint: str) -> "ObjectStore":
    """Return the bucket at this URL. Raises `BadInput` if the URL is wrong or obstore is
    missing.
    """
    parts = urlsplit(url)
    names_bucket = url.startswith(_URL_SCHEME) and bool(parts.netloc)
    has_password = "@" in parts.netloc
    if not names_bucket or parts.query or has_password:
        raise BadInput(
            f"{BUCKET_VARIABLE} is {url!r}: give it as s3://BUCKET or s3://BUCKET/PREFIX, and keys and "
            "endpoint as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"
        )
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        raise BadInput(_EXTRA_MISSING) from error
    try:
        return S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": f"{_CONNECT_SECONDS}s",
                "timeout": f"{_REQUEST_SECONDS}s",
            },
            retry_config={
                "max_retries": _MAX_RETRIES,
                "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
            },
        )
    except BaseError as error:
        raise BadInput(f"{url} cannot be used: {explain(error)}") from error


def explain(error: Exception) -> str:
    """Return a short reason and remedy for an error of obstore, which itself prints pages
    of XML.
    """
    text = str(error)
    code = re.search(r"<Code>(\w+)</Code>", text)
    if code is None:
        return text.partition("\n")[0].strip()
    message = re.search(r"<Message>([^<]*)</Message>", text)
    reason = f"{code[1]}: {message[1].strip()}" if message else code[1]
    return f"{reason}{_REMEDY_TEXTS.get(code[1], '')}"
