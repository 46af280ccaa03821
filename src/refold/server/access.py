"""Decides who may use the server, by tokens derived from a secret in the user's file.

A program sends the bearer token. A browser trades a launch token, valid once, for a cookie.
All of them are signed with the secret, so every server with that secret accepts them, also
after a restart; `revoke_all` ends all of them. `guard` checks requests.
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
PAGE_PERSON = "page"  # the person of a page whose link named no one
_SECRET_BYTES = 32
_USED_LINKS = "used-links"  # beside the secret: an empty file for each, until it is too old


class Access:
    """Launch tokens and cookies that are derived from one secret of 32 random bytes.
    `used_file` is the directory of used launch tokens.
    """

    def __init__(self, secret: bytes, used_file: Path) -> None:
        self._secret, self._used = secret, used_file
        self.bearer = self._derive("bearer")
        # Cookies are not bound to a port: each home of refold has a cookie name of its own.
        self.cookie_name = f"refold-{self._derive('cookie name')[:12]}"

    def new_launch(self, person: str = "") -> str:
        """Return a token that is valid once, for some minutes, for a link for `person`."""
        expires = int(time.time() + LAUNCH_SECONDS)
        body = f"{expires}.{secrets.token_urlsafe(12)}{_encode_name(person)}"
        return f"{body}.{self._derive(f'launch {body}')[:32]}"

    def redeem(self, token: str) -> str:
        """Return the cookie for a launch token; "" if it is invalid, expired or used."""
        body, _, seal = token.rpartition(".")
        expected = self._derive(f"launch {body}")[:32]
        if not hmac.compare_digest(seal.encode(), expected.encode()):
            return ""
        if int(body.partition(".")[0]) < time.time() or not self._mark_used(body):
            return ""
        name = "".join(f".{part}" for part in body.split(".")[2:])
        body = f"{int(time.time())}.{secrets.token_urlsafe(16)}{name}"
        return f"{body}.{self._derive(f'cookie {body}')}"

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
        body, _, seal = value.rpartition(".")
        if not hmac.compare_digest(seal.encode(), self._derive(f"cookie {body}").encode()):
            return False
        began = body.partition(".")[0]
        return began.isdecimal() and 0 <= time.time() - int(began) < COOKIE_SECONDS

    def person(self, cookie: str) -> str:
        """Return the person of a valid cookie; `PAGE_PERSON` if its link named no one."""
        parts = cookie.split(".")[2:-1]
        return base64.urlsafe_b64decode(parts[0]).decode() if parts else PAGE_PERSON

    def _mark_used(self, body: str) -> bool:
        """Mark a token as used. False if it already was, by any server."""
        self._used.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in self._used.iterdir():
            expires = old.name.partition(".")[0]
            if expires.isdecimal() and int(expires) < time.time():
                old.unlink(missing_ok=True)
        try:
            name = ".".join(body.split(".")[:2])
            (self._used / name).touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _derive(self, purpose: str) -> str:
        return hmac.new(self._secret, purpose.encode(), hashlib.sha256).hexdigest()


def _encode_name(person: str) -> str:
    """Return the encoded name that ends a token. Raises `BadInput` for an invalid name."""
    if len(person) > MAX_NAME_CHARS or not person.isprintable() or person != person.strip():
        raise BadInput(
            f"{person[:MAX_NAME_CHARS]!r} is not a name: give at most {MAX_NAME_CHARS} "
            "printable characters"
        )
    return f".{base64.urlsafe_b64encode(person.encode()).decode()}" if person else ""


def load_access(file: Path) -> Access:
    """Return the access whose secret is in this file, which is created if missing.

    Raises `RefoldError` for a file that others could read or that holds no secret.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        create_complete_file(file, secrets.token_bytes(_SECRET_BYTES))
    return Access(_read(file), file.parent / _USED_LINKS)


def revoke_all(file: Path) -> None:
    """Revoke every cookie and the bearer token: the next start creates another secret."""
    file.unlink(missing_ok=True)


def _read(file: Path) -> bytes:
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
