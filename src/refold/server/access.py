"""Decides who may use the server, by tokens that are derived from a secret in a file of the
user.

A program sends the bearer token. A browser exchanges a launch token, which is valid once,
for a cookie. Every server that has the secret accepts these tokens and cookies, also after
a restart. `revoke_all` invalidates them. `guard` checks requests with them.

For each used launch token an empty file lies beside the secret, so no server with the
secret accepts the token again. Otherwise links in the history of a browser would stay
valid. A list of used tokens in one file would need a lock.
"""

import base64
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from refold.client.protocol import MAX_NAME_CHARS
from refold.errors import BadInput, RefoldError
from refold.safe_open import create_complete_file

LAUNCH_SECONDS = 15 * 60.0  # for which a link can be used
COOKIE_SECONDS = 30 * 24 * 3600
PAGE_PERSON = "page"  # the person of a page whose link named no person
_SECRET_BYTES = 32
# A directory beside the secret, with an empty file for each used link until that expires.
_USED_LINKS = "used-links"


class Access:
    """Makes and checks the tokens and cookies that are derived from one secret of 32 random
    bytes.

    `used_links` is the directory with an empty file for each used launch token.
    """

    def __init__(self, secret: bytes, used_links: Path) -> None:
        self._secret, self._used_links = secret, used_links
        self.bearer = self._derive("bearer")
        # Cookies are not bound to a port, so each home of refold has a cookie name of its
        # own.
        self.cookie_name = f"refold-{self._derive('cookie name')[:12]}"

    def new_launch(self, person: str = "") -> str:
        """Return a launch token for a link to a page, valid once and for some minutes.

        The page acts for `person`; "" names no person.
        """
        expires = int(time.time() + LAUNCH_SECONDS)
        body = f"{expires}.{secrets.token_urlsafe(12)}{_encode_name(person)}"
        return f"{body}.{self._derive(f'launch {body}')[:32]}"

    def redeem(self, token: str) -> str:
        """Return the cookie for a launch token; "" if it is invalid, expired or used."""
        body, _, seal = token.rpartition(".")
        expected = self._derive(f"launch {body}")[:32]
        if not hmac.compare_digest(seal.encode(), expected.encode()):
            return ""
        expires, _random, *name = body.split(".")  # `name` is [] if no person is named
        if int(expires) < time.time():
            return ""
        if not self._mark_used(body):
            return ""
        began = str(int(time.time()))
        cookie = ".".join((began, secrets.token_urlsafe(16), *name))
        return f"{cookie}.{self._derive(f'cookie {cookie}')}"

    @property
    def landing(self) -> Collection[str]:
        return ()

    async def admit_program(self, token: str, scope: object) -> str | None:
        return "" if self.has_bearer(token) else None

    async def admit_page(self, cookie: str, scope: object) -> str | None:
        return self.person(cookie) if self.has_cookie(cookie) else None

    def has_bearer(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.bearer.encode())

    def has_cookie(self, value: str) -> bool:
        """Whether the cookie is signed with our secret and has not expired."""
        body, _, seal = value.rpartition(".")
        if not hmac.compare_digest(seal.encode(), self._derive(f"cookie {body}").encode()):
            return False
        began, _, _ = body.partition(".")
        return began.isdecimal() and 0 <= time.time() - int(began) < COOKIE_SECONDS

    def person(self, cookie: str) -> str:
        """Return the person of a valid cookie; `PAGE_PERSON` if the cookie names no person."""
        _began, _random, *name, _seal = cookie.split(".")
        return base64.urlsafe_b64decode(name[0]).decode() if name else PAGE_PERSON

    def _mark_used(self, body: str) -> bool:
        """Mark a launch token as used. Return False if this or another server has marked it
        before.
        """
        self._used_links.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old_file in self._used_links.iterdir():
            old_expires, _, _ = old_file.name.partition(".")
            if old_expires.isdecimal() and int(old_expires) < time.time():
                old_file.unlink(missing_ok=True)
        expires, random, *_ = body.split(".")
        used_file = self._used_links / f"{expires}.{random}"
        try:
            used_file.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _derive(self, purpose: str) -> str:
        """Return 64 hex digits that are computed from the secret and `purpose`."""
        return hmac.new(self._secret, purpose.encode(), hashlib.sha256).hexdigest()


def _encode_name(person: str) -> str:
    """Return the end of a token that names a person: "." and the encoded name; "" for no name.

    Raises `BadInput` for an invalid name.
    """
    if len(person) > MAX_NAME_CHARS or not person.isprintable() or person != person.strip():
        raise BadInput(
            f"{person[:MAX_NAME_CHARS]!r} is not a name: give at most {MAX_NAME_CHARS} "
            "printable characters"
        )
    return f".{base64.urlsafe_b64encode(person.encode()).decode()}" if person else ""


def load_access(file: Path) -> Access:
    """Return an `Access` with the secret in this file, which is created if it is missing.

    Raises `RefoldError` for a file that other users could read or that has no secret.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        create_complete_file(file, secrets.token_bytes(_SECRET_BYTES))
    return Access(_read(file), file.parent / _USED_LINKS)


def revoke_all(file: Path) -> None:
    """Delete the secret, and with it the validity of the bearer token and of every cookie.

    The next start of a server creates another secret.
    """
    file.unlink(missing_ok=True)


def _read(file: Path) -> bytes:
    """Return the secret in a file. Raises `RefoldError` as `load_access` does."""
    number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(number, "rb") as stream:
        status = os.fstat(stream.fileno())
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():
            raise RefoldError(
                f"{file} can be read by others, so it keeps no secret: delete it, and start "
                "again"
            )
        secret = stream.read(_SECRET_BYTES + 1)
    if len(secret) != _SECRET_BYTES:
        raise RefoldError(
            f"{file} has {len(secret)} bytes and must have {_SECRET_BYTES}: delete it, and start "
            "again"
        )
    return secret
