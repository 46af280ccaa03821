"""Stores the tokens of MCP servers like API keys: in a private file, the keyring, or sealed rows.

The file is beside that of the keys. A token stays where its login put it. The workers of a tenant, and who logs in
for them, have the keys of the rows (`REFOLD_CLUSTER_KEY`), which all of them share.
Each token that is read or written is masked from then on. `mcp.grants` defines the stored
data.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec

from refold.config import credentials, keyring
from refold.config.paths import Paths
from refold.config.tenant_keys import open_secrets, secrets_database
from refold.errors import BadInput
from refold.mcp.grants import Grant, GrantStore
from refold.place.private_files import file_lock

if TYPE_CHECKING:
    from refold.cluster.tenant_secrets import TenantSecrets

_TOKENS_FILE = "mcp_tokens.toml"
_IN_KEYRING = "keyring"  # in the file, for an entry in the keyring
_RENEWAL_LOCK = "renewal of mcp tokens"  # of no session: their ids have no space
_MAX_LOCK_SECONDS, _LOCK_RETRY_SECONDS = 60, 0.2


class GrantPlace(GrantStore, Protocol):
    """A store of logins. `place` says where they are."""

    @property
    def place(self) -> str: ...


def grant_store(
    paths: Paths, learn: Callable[..., None], *, in_keyring: bool | None = None
) -> GrantPlace:
    """The store of this installation. `in_keyring` None: where a former login is."""
    if paths.cluster_key is None:
        return StoredGrants(paths, learn, in_keyring=in_keyring)
    if in_keyring:
        raise BadInput(
            "with REFOLD_CLUSTER_KEY, tokens are rows of the database: omit --keyring"
        )
    return TenantGrants(paths, learn)


class StoredGrants:
    """Stored logins. `learn` is called with each secret read or written. Use it in a thread."""

    def __init__(
        self, paths: Paths, learn: Callable[..., None], *, in_keyring: bool | None = None
    ) -> None:
        self.file, self._learn = paths.config / _TOKENS_FILE, learn
        self._in_keyring = in_keyring

    @property
    def place(self) -> str:
        return "in the keyring" if self._in_keyring else f"in {self.file}"

    def read(self, name: str, url: str) -> Grant | None:
        """The stored login, if any. Raises `BadInput` if others can read the file."""
        entry = _entry(name, url)
        text = credentials.read(self.file).get(entry, "")
        if text == _IN_KEYRING:
            text = keyring.get(entry)
        return _decode(name, text, self._learn) if text else None

    def write(self, name: str, url: str, grant: Grant) -> None:
        """Store a login. Raises `BadInput`."""
        _mask(grant, self._learn)
        entry, text = _entry(name, url), msgspec.json.encode(grant).decode()
        was_in_keyring = credentials.read(self.file).get(entry, "") == _IN_KEYRING
        if was_in_keyring if self._in_keyring is None else self._in_keyring:
            keyring.store_key(entry, text)
            text = _IN_KEYRING
        elif was_in_keyring:
            keyring.remove(entry)
        credentials.store(self.file, entry, text)

    def remove(self, name: str, url: str) -> bool:
        """Remove a login; False if there was none. Raises `BadInput`."""
        entry = _entry(name, url)
        if credentials.read(self.file).get(entry) == _IN_KEYRING:
            keyring.remove(entry)
        return credentials.remove(self.file, entry)

    def lock(self) -> AbstractContextManager[None]:
        # Not the lock of the file, which `write` takes.
        return file_lock(self.file.with_suffix(".renewing"))


class TenantGrants:
    """The logins of a tenant, which all of its workers use. Use it in a thread."""

    def __init__(self, paths: Paths, learn: Callable[..., None]) -> None:
        self._paths, self._learn = paths, learn
        self._database = secrets_database(paths)

    @property
    def place(self) -> str:
        return f"for the tenant {self._paths.tenant} in {self._database.place}"

    def read(self, name: str, url: str) -> Grant | None:
        text = self._secrets.read(_entry(name, url))
        return _decode(name, text, self._learn) if text else None

    def write(self, name: str, url: str, grant: Grant) -> None:
        _mask(grant, self._learn)
        self._secrets.write(_entry(name, url), msgspec.json.encode(grant).decode())

    def remove(self, name: str, url: str) -> bool:
        from refold.cluster.tenant_secrets import remove_secret

        return remove_secret(self._database, _entry(name, url))

    @contextmanager
    def lock(self) -> Generator[None]:
        """Wait until no other worker of the tenant renews tokens."""
        owner = object()
        anyio.run(self._lock, owner)
        try:
            yield
        finally:
            anyio.run(self._database.unlock, _RENEWAL_LOCK, owner)

    async def _lock(self, owner: object) -> None:
        try:
            with anyio.fail_after(_MAX_LOCK_SECONDS):
                while not await self._database.lock(_RENEWAL_LOCK, owner):  # noqa: ASYNC110 - of another machine
                    await anyio.sleep(_LOCK_RETRY_SECONDS)
        except TimeoutError as error:
            raise OSError(
                f"another worker has renewed tokens for {_MAX_LOCK_SECONDS} s"
            ) from error

    @cached_property
    def _secrets(self) -> "TenantSecrets":
        return open_secrets(self._paths, self._database)


def _decode(name: str, text: str, learn: Callable[..., None]) -> Grant:
    try:
        grant = msgspec.json.decode(text, type=Grant)
    except msgspec.MsgspecError as error:
        raise BadInput(
            f"the stored login of the MCP server {name} cannot be read: run "
            f"`refold mcp login {name}`"
        ) from error
    _mask(grant, learn)
    return grant


def _mask(grant: Grant, learn: Callable[..., None]) -> None:
    learn(*filter(None, (grant.access, grant.refresh, grant.client_secret)))


def _entry(name: str, url: str) -> str:
    """The name of an entry. An address may hold a key, so the name has only its hash."""
    return f"mcp {name} {sha256(url.encode(errors='surrogatepass')).hexdigest()[:16]}"
