"""Stores the tokens of logins at MCP servers: in a private file, the keyring or a database.

A renewed token stays in the store that the login used. Rows of the database are sealed:
encrypted with keys (`REFOLD_CLUSTER_KEY`) that the tenant's workers and the process of the
login have. Each token that is read or written is masked in all later output. `mcp.grants`
defines the stored data.
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
_IN_KEYRING = "keyring"  # the value in the file for a token that is stored in the keyring
# A lock name that is not a session, because session ids have no space.
_RENEWAL_LOCK = "renewal of mcp tokens"
_MAX_LOCK_SECONDS, _LOCK_RETRY_SECONDS = 60, 0.2


class GrantPlace(GrantStore, Protocol):
    """A store of logins at MCP servers. `place` says, for users, where they are stored."""

    @property
    def place(self) -> str:
        """Where the logins are stored, for users."""
        ...


def grant_store(
    paths: Paths, learn: Callable[..., None], *, in_keyring: bool | None = None
) -> GrantPlace:
    """Return the store of logins of this installation: a file, the keyring or the database.

    If `in_keyring` is None, a new login is stored where the server's former login is, or in
    the file if there is none. `learn` is called with each secret that is read or written.
    """
    if paths.cluster_key is None:
        return StoredGrants(paths, learn, in_keyring=in_keyring)
    if in_keyring:
        raise BadInput(
            "with REFOLD_CLUSTER_KEY, tokens are rows of the database: omit --keyring"
        )
    return TenantGrants(paths, learn)


class StoredGrants:
    """The logins in a file or the keyring. The methods block, so call them in a thread.

    `learn` is called with each secret that is read or written.
    """

    def __init__(
        self, paths: Paths, learn: Callable[..., None], *, in_keyring: bool | None = None
    ) -> None:
        self.file = paths.config / _TOKENS_FILE
        self._learn = learn
        self._in_keyring = in_keyring

    @property
    def place(self) -> str:
        return "in the keyring" if self._in_keyring else f"in {self.file}"

    def read(self, name: str, url: str) -> Grant | None:
        """Return the stored login, or None if there is none.

        Raises `BadInput` if other users can read the file, or if the keyring fails.
        """
        entry = _entry(name, url)
        text = credentials.read(self.file).get(entry, "")
        if text == _IN_KEYRING:
            text = keyring.get(entry)
        return _decode(name, text, self._learn) if text else None

    def write(self, name: str, url: str, grant: Grant) -> None:
        """Store a login. Raises `BadInput` if it cannot be stored."""
        _mask_secrets(grant, self._learn)
        entry, text = _entry(name, url), msgspec.json.encode(grant).decode()
        was_in_keyring = credentials.read(self.file).get(entry, "") == _IN_KEYRING
        in_keyring = was_in_keyring if self._in_keyring is None else self._in_keyring
        if in_keyring:
            keyring.store_key(entry, text)
            text = _IN_KEYRING
        elif was_in_keyring:
            keyring.remove(entry)
        credentials.store(self.file, entry, text)

    def remove(self, name: str, url: str) -> bool:
        """Remove a login. Return False if none is stored. Raises `BadInput` if this fails."""
        entry = _entry(name, url)
        if credentials.read(self.file).get(entry) == _IN_KEYRING:
            keyring.remove(entry)
        return credentials.remove(self.file, entry)

    def lock(self) -> AbstractContextManager[None]:
        # This is not the lock of the file, which `write` takes.
        return file_lock(self.file.with_suffix(".renewing"))


class TenantGrants:
    """The logins of a tenant in the database, which all workers of the tenant use.

    The methods block, so call them in a thread.
    """

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
        _mask_secrets(grant, self._learn)
        self._secrets.write(_entry(name, url), msgspec.json.encode(grant).decode())

    def remove(self, name: str, url: str) -> bool:
        from refold.cluster.tenant_secrets import remove_secret

        return remove_secret(self._database, _entry(name, url))

    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the lock of the tenant's workers for the renewal of tokens, within the block.

        Raises `OSError` if another worker holds the lock for too long.
        """
        owner = object()
        anyio.run(self._acquire_lock, owner)
        try:
            yield
        finally:
            anyio.run(self._database.unlock, _RENEWAL_LOCK, owner)

    async def _acquire_lock(self, owner: object) -> None:
        """Take the lock for `owner`. Raises `OSError` if another worker holds the lock for too
        long.
        """
        try:
            with anyio.fail_after(_MAX_LOCK_SECONDS):
                while not await self._database.lock(_RENEWAL_LOCK, owner):  # noqa: ASYNC110 - another machine may have the lock
                    await anyio.sleep(_LOCK_RETRY_SECONDS)
        except TimeoutError as error:
            raise OSError(
                f"another worker has renewed tokens for {_MAX_LOCK_SECONDS} s"
            ) from error

    @cached_property
    def _secrets(self) -> "TenantSecrets":
        return open_secrets(self._paths, self._database)


def _decode(name: str, text: str, learn: Callable[..., None]) -> Grant:
    """Return the login stored as `text`, after calling `learn` with its secrets.

    Raises `BadInput` if it cannot be read.
    """
    try:
        grant = msgspec.json.decode(text, type=Grant)
    except msgspec.MsgspecError as error:
        raise BadInput(
            f"the stored login of the MCP server {name} cannot be read: run "
            f"`refold mcp login {name}`"
        ) from error
    _mask_secrets(grant, learn)
    return grant


def _mask_secrets(grant: Grant, learn: Callable[..., None]) -> None:
    learn(*filter(None, (grant.access, grant.refresh, grant.client_secret)))


def _entry(name: str, url: str) -> str:
    """Return the name under which the login at a server is stored.

    The name contains a hash of `url` and not `url` itself, which may contain a key.
    """
    return f"mcp {name} {sha256(url.encode(errors='surrogatepass')).hexdigest()[:16]}"
