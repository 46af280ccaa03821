"""The result of a login at an MCP server: its tokens, and what is needed to renew them.

A grant is valid for one server name and one address, so that a server of the same name at
another address does not get the tokens. `oauth_login` obtains a grant, `config.mcp_tokens`
stores it, and `oauth_session` uses it. This module does not import the SDK.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct


class Grant(Struct, frozen=True, omit_defaults=True):
    """The tokens for one server, and the data that is needed to renew them.

    `expires` is in seconds since 1970, or 0 if unknown. `wanted` is a scope that the server has
    demanded since the login; the next login requests it.
    """

    access: str
    refresh: str = ""
    expires: float = 0.0
    scope: str = ""
    token_endpoint: str = ""
    resource: str = ""
    client_id: str = ""
    client_secret: str = ""
    client_auth: str = ""  # how the client authenticates: client_secret_basic, …
    wanted: str = ""

    def __repr__(self) -> str:
        return "Grant(…)"


class GrantStore(Protocol):
    """Stores grants on a disk or in a keyring. Its methods block, so call them in a thread."""

    def read(self, name: str, url: str) -> Grant | None:
        """Return the grant for this server name and address, or None if there is none.

        Raises `BadInput` if the store cannot be read.
        """
        ...

    def write(self, name: str, url: str, grant: Grant) -> None:
        """Store a grant, and replace an earlier one. Raises `BadInput` if that fails."""
        ...

    def remove(self, name: str, url: str) -> bool:
        """Remove a grant. Return False if there was none. Raises `BadInput` if that fails."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Lock the store within the block, so that no other process renews tokens.

        Raises `OSError`.
        """
        ...


class NoGrants:
    """A store that is always empty."""

    def read(self, name: str, url: str) -> Grant | None:
        return None

    def write(self, name: str, url: str, grant: Grant) -> None:
        return None

    def remove(self, name: str, url: str) -> bool:
        return False

    def lock(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing, because nothing is stored."""
        from contextlib import nullcontext

        return nullcontext()


def join_scopes(*scopes: str) -> str:
    """Return the scopes of all arguments as one text, each scope once, in their order."""
    return " ".join(dict.fromkeys(word for scope in scopes for word in scope.split()))
