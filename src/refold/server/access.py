"""Who may use the server: a secret in a file of the user's, and what is derived from it.

A program says the bearer token. A browser trades a launch token, good once, for a cookie.
Cookies and the bearer token hold over a restart; `renew` ends all of them. Where requests
are checked is `guard`.
"""

import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path

from refold.errors import RefoldError

LAUNCH_SECONDS = 15 * 60.0  # for which a link can be used
COOKIE_SECONDS = 30 * 24 * 3600
_BYTES = 32
_MOST_LINKS = 64  # that are open at a time; the oldest goes first


class Access:
    """`secret` are 32 random bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._launches = dict[bytes, float]()  # hashes of tokens, and until when
        self.bearer = self._derived("bearer")
        # Cookies do not know ports: each home of refold has a name of its own.
        self.cookie_name = f"refold-{self._derived('cookie name')[:12]}"

    def new_launch(self) -> str:
        """A token that is good once, for some minutes."""
        while len(self._launches) >= _MOST_LINKS:
            del self._launches[next(iter(self._launches))]
        token = secrets.token_urlsafe(_BYTES)
        self._launches[_hash(token)] = time.monotonic() + LAUNCH_SECONDS
        return token

    def redeem(self, token: str) -> str:
        """The cookie for this launch token, or "": it is none, or was used."""
        until = self._launches.pop(_hash(token), 0.0)
        if until < time.monotonic():
            return ""
        body = f"{int(time.time())}.{secrets.token_urlsafe(16)}"
        return f"{body}.{self._derived(f'cookie {body}')}"

    def has_bearer(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.bearer.encode())

    def has_cookie(self, value: str) -> bool:
        body, _, seal = value.rpartition(".")
        if not hmac.compare_digest(seal.encode(), self._derived(f"cookie {body}").encode()):
            return False
        began = body.partition(".")[0]
        return began.isdecimal() and 0 <= time.time() - int(began) < COOKIE_SECONDS

    def _derived(self, purpose: str) -> str:
        return hmac.new(self._secret, purpose.encode(), hashlib.sha256).hexdigest()


def kept(file: Path) -> Access:
    """The access whose secret is in this file, which is made if it is not there.

    Raises `RefoldError` for a file that others could read or that holds no secret.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return Access(_read(file))
    with os.fdopen(number, "wb") as made:
        secret = secrets.token_bytes(_BYTES)
        made.write(secret)
        made.flush()
        os.fsync(made.fileno())
    return Access(secret)


def renew(file: Path) -> None:
    """End every cookie and the bearer token: the next start has another secret."""
    file.unlink(missing_ok=True)


def _read(file: Path) -> bytes:
    number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(number, "rb") as found:
        there = os.fstat(found.fileno())
        if there.st_mode & 0o077 or there.st_uid != os.geteuid():
            raise RefoldError(
                f"{file} can be read by others, so it keeps no secret: delete it, and start "
                "again"
            )
        secret = found.read(_BYTES + 1)
    if len(secret) != _BYTES:
        raise RefoldError(
            f"{file} has {len(secret)} bytes and must have {_BYTES}: delete it, and start "
            "again"
        )
    return secret


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
