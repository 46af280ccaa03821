"""The result of a login at an MCP server: its tokens, and how they are renewed.

A grant is valid for one name and one address: a server that is configured at another
address gets nothing. `config.mcp_tokens` stores grants, `oauth_login` obtains one, and
`oauth_session` uses it. Nothing here is imported from the SDK.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct


class Grant(Struct, frozen=True, omit_defaults=True):
    """The tokens of one server, and what is needed to get the next ones.

    `expires` is in seconds since 1970, 0 if unknown. `wanted` is a scope that the server
    has asked for since, which the next login requests.
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
    """Where grants are kept. Reads a disk or a keyring: call it in a thread."""

    def read(self, name: str, url: str) -> Grant | None:
        """Return the grant. Raises `BadInput` if the store cannot be read."""
        ...

    def write(self, name: str, url: str, grant: Grant) -> None:
        """Store a grant where an earlier one was, if any. Raises `BadInput`."""
        ...

    def remove(self, name: str, url: str) -> bool:
        """Remove a grant. Return whether there was one. Raises `BadInput`."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Lock out other processes while tokens are renewed. Raises `OSError`."""
        ...


class NoGrants:
    """A store without logins."""

    def read(self, name: str, url: str) -> Grant | None:
        return None

    def write(self, name: str, url: str, grant: Grant) -> None:
        return None

    def remove(self, name: str, url: str) -> bool:
        return False

    def lock(self) -> AbstractContextManager[None]:
        from contextlib import nullcontext

        return nullcontext()


def join_scopes(*scopes: str) -> str:
    """Return all scopes, each once, in their order."""
    return " ".join(dict.fromkeys(word for scope in scopes for word in scope.split()))
