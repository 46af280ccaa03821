"""Stores the tokens of MCP servers like API keys: in a private file, or the keyring.

They have a file of their own beside that of the keys. A token stays where its login put it.
Each token that is read or written is masked from then on. `mcp.grants` defines the stored
data.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256

import msgspec

from refold.config import credentials, keyring
from refold.config.paths import Paths
from refold.errors import BadInput
from refold.mcp.grants import Grant
from refold.place.private_files import file_lock

_TOKENS_FILE = "mcp_tokens.toml"
_IN_KEYRING = "keyring"  # in the file, for an entry in the keyring


class StoredGrants:
    """Stored logins. `learn` is called with each secret read or written. Use it in a thread."""

    def __init__(self, paths: Paths, learn: Callable[..., None]) -> None:
        self.file, self._learn = paths.config / _TOKENS_FILE, learn

    def read(self, name: str, url: str) -> Grant | None:
        """The stored login, if any. Raises `BadInput` if others can read the file."""
        entry = _entry(name, url)
        text = credentials.read(self.file).get(entry, "")
        if text == _IN_KEYRING:
            text = keyring.get(entry)
        if not text:
            return None
        try:
            grant = msgspec.json.decode(text, type=Grant)
        except msgspec.MsgspecError as error:
            raise BadInput(
                f"the stored login of the MCP server {name} cannot be read: run "
                f"`refold mcp login {name}`"
            ) from error
        self._mask(grant)
        return grant

    def write(
        self, name: str, url: str, grant: Grant, *, in_keyring: bool | None = None
    ) -> None:
        """Store a login. `in_keyring` None: where the former one is. Raises `BadInput`."""
        self._mask(grant)
        entry, text = _entry(name, url), msgspec.json.encode(grant).decode()
        was_in_keyring = credentials.read(self.file).get(entry, "") == _IN_KEYRING
        if was_in_keyring if in_keyring is None else in_keyring:
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

    def _mask(self, grant: Grant) -> None:
        self._learn(*filter(None, (grant.access, grant.refresh, grant.client_secret)))


def _entry(name: str, url: str) -> str:
    """The name of an entry. An address may hold a key, so the name has only its hash."""
    return f"mcp {name} {sha256(url.encode(errors='surrogatepass')).hexdigest()[:16]}"
