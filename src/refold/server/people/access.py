"""Decides who may use a web node: people with a login or a token in its database.

Each request is checked against the database, so a revoked login or token is refused at
once. `guard` checks requests with `PeopleAccess`, and `login` begins logins.
"""

import hashlib
from collections.abc import Collection

from refold.cluster.people import Identity, People
from refold.server.guard import Scope
from refold.server.page_files import PAGE_FILES

LOGIN_PATH = "/auth/login"
CALLBACK_PATH = "/auth/callback"
TOKEN_PREFIX = "refold_"  # lets scanners of repositories recognize a token
LOGIN_SECONDS = 12 * 3600.0
_IDENTITY_KEY, _SECRET_KEY = "refold.identity", "refold.secret"  # in the scope of a request


class PeopleAccess:
    """Implements `guard.CallerAccess` for the people in a database."""

    def __init__(self, people: People, public_url: str) -> None:
        self.people = people
        self.is_secure = public_url.startswith("https:")
        # A cookie is not bound to a port, so each address has a cookie name of its own.
        name = f"refold-{hashlib.sha256(public_url.encode()).hexdigest()[:12]}"
        self.cookie_name = f"__Host-{name}" if self.is_secure else name

    @property
    def landing(self) -> Collection[str]:
        return (*PAGE_FILES, LOGIN_PATH, CALLBACK_PATH)

    async def admit_program(self, token: str, scope: Scope) -> str | None:
        if not token.startswith(TOKEN_PREFIX):
            return None
        return _store_identity(scope, token, await self.identify_program(token))

    async def admit_page(self, cookie: str, scope: Scope) -> str | None:
        return _store_identity(scope, cookie, await self.identify_page(cookie))

    async def is_same(self, identity: Identity, scope: Scope) -> bool:
        """Whether the person of an earlier request may still use the server, in an
        unchanged role.
        """
        secret: str = scope[_SECRET_KEY]
        is_program = secret.startswith(TOKEN_PREFIX)
        identify = self.identify_program if is_program else self.identify_page
        return await identify(secret) == identity

    async def identify_program(self, token: str) -> Identity | None:
        return await self.people.identify(token.removeprefix(TOKEN_PREFIX), "token")

    async def identify_page(self, cookie: str) -> Identity | None:
        return await self.people.identify(cookie, "page") if cookie else None


def identity_of(scope: Scope) -> Identity:
    """Return the person whom the guard has identified for this request."""
    return scope[_IDENTITY_KEY]


def _store_identity(scope: Scope, secret: str, identity: Identity | None) -> str | None:
    """Store who sends the request in its scope, and return the person's subject.

    If `identity` is None, store nothing and return None: the request is refused.
    """
    if identity is None:
        return None
    scope[_IDENTITY_KEY], scope[_SECRET_KEY] = identity, secret
    return identity.subject
