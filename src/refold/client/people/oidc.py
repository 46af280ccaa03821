"""OpenID Connect: logs a person in at the identity provider of a service (code flow with PKCE).

`OidcClient` begins a login attempt and finishes it. `server.people.login` has the routes,
and `cluster.people` stores the people. joserfc checks the tokens. Of the provider's
answers, only the claims of a valid ID token are used.
"""

import base64
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import anyio
import msgspec
from msgspec import Struct

from refold.client.protocol import MAX_NAME_CHARS
from refold.cluster.people import MAX_TENANT_CHARS
from refold.config.oidc_settings import OidcSettings, read_client_secret
from refold.errors import BadInput, reason_of
from refold.provider.connect import Broken, server_address
from refold.provider.http import Bounds, HttpClient, HttpRequest

DEFAULT_TENANT = "default"
CALLBACK_PATH = "/auth/callback"
_METADATA_PATH = "/.well-known/openid-configuration"
# Accepted signature algorithms: only those with a private key, which the provider alone
# has.
_SIGNATURE_ALGORITHMS = [
    f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)
]
_HTTP_BOUNDS = Bounds(connect=10.0, idle=10.0, whole=20.0, size=1024 * 1024)
_METADATA_SECONDS = 3600.0
# The least time between two requests for the provider's keys, whatever key ids tokens name.
_KEYS_SECONDS = 30.0
_LEEWAY_SECONDS = 60
_MAX_SHOWN_CHARS = 200
_MAX_CODE_CHARS = 4096


class LoginAttempt(Struct, frozen=True):
    """The values of a login that the browser keeps in a cookie.

    They are needed when the provider sends the browser to us again.
    """

    state: str
    nonce: str
    verifier: str


class LoginIdentity(Struct, frozen=True):
    """The person whom a valid ID token names."""

    tenant: str
    subject: str
    name: str
    email: str


class _Metadata(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _Tokens(Struct, frozen=True):
    id_token: str


class _Refusal(Struct, frozen=True):
    error: str = ""
    error_description: str = ""


class OidcClient:
    """Logs people in at one provider. Its methods raise `BadInput` with a reason for the
    person.
    """

    def __init__(
        self,
        settings: OidcSettings,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._http = HttpClient(environ, _HTTP_BOUNDS)
        # Each with the time at which it was read.
        self._metadata: tuple[float, _Metadata] | None = None
        self._keys: tuple[float, Any] | None = None
        self._lock = anyio.Lock()
        self._redirect = settings.public_url.rstrip("/") + CALLBACK_PATH

    async def begin(self) -> tuple[str, LoginAttempt]:
        """Return the address to which the browser is sent, and the values that the browser
        must keep.
        """
        metadata = await self._read_metadata()
        attempt = LoginAttempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(32),
        )
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        query = urlencode({
            "response_type": "code", "client_id": self.settings.client_id,
            "redirect_uri": self._redirect, "scope": self.settings.scope,
            "state": attempt.state, "nonce": attempt.nonce,
            "code_challenge": challenge, "code_challenge_method": "S256",
        })  # fmt: skip
        separator = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{separator}{query}", attempt

    async def finish(
        self, attempt: LoginAttempt, answer: Mapping[str, str]
    ) -> LoginIdentity:
        """Check the provider's `answer`, and return the person whom the answer names.

        The browser brings the answer from the provider.
        """
        state = answer.get("state", "").encode(errors="replace")
        if not (state and secrets.compare_digest(attempt.state.encode(), state)):
            raise BadInput("this login was begun in another browser, or too long ago")
        if error := answer.get("error"):
            about = answer.get("error_description") or error
            raise BadInput(f"the identity provider refused it: {about[:_MAX_SHOWN_CHARS]}")
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise BadInput("the answer comes from another identity provider")
        code = answer.get("code", "")
        if not 0 < len(code) <= _MAX_CODE_CHARS:
            raise BadInput("the identity provider sent no code")
        tokens = await self._exchange(code, attempt.verifier)
        return self._to_identity(await self._check(tokens.id_token, attempt.nonce))

    async def _exchange(self, code: str, verifier: str) -> _Tokens:
        """Return the tokens that the provider gives for `code`; `verifier` is the secret of
        PKCE.
        """
        metadata = await self._read_metadata()
        settings = self.settings
        fields = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect,
            "client_id": settings.client_id, "code_verifier": verifier,
        }  # fmt: skip
        headers = [("content-type", "application/x-www-form-urlencoded")]
        if settings.client_secret_file:
            secret = read_client_secret(settings)
            if "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
                headers.append(("authorization", _basic_auth(settings.client_id, secret)))
            else:
                fields["client_secret"] = secret
        body = urlencode(fields).encode()
        status, data = await self._request(metadata.token_endpoint, headers, body)
        if status != 200:
            raise BadInput(
                f"the identity provider gave no token: {_refusal_text(status, data)}"
            )
        return _decode(data, _Tokens)

    async def _check(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token.

        Raises `BadInput` unless the token was issued to us, for this attempt.
        """
        from joserfc import jwt
        from joserfc.errors import ExpiredTokenError, InvalidKeyIdError, JoseError

        settings = self.settings
        expected: Any = {
            "iss": {"essential": True, "value": settings.issuer},
            "aud": {"essential": True, "value": settings.client_id},
            "nonce": {"essential": True, "value": nonce},
            "sub": {"essential": True}, "exp": {"essential": True}, "iat": {"essential": True},
        }  # fmt: skip
        registry = jwt.JWTClaimsRegistry(
            now=lambda: int(self._clock()), leeway=_LEEWAY_SECONDS, **expected
        )
        try:
            keys = await self._read_keys()
            try:
                decoded = jwt.decode(token, keys, _SIGNATURE_ALGORITHMS)
            except (InvalidKeyIdError, ValueError):  # the provider may have new keys
                new_keys = await self._read_keys(renew=True)
                decoded = jwt.decode(token, new_keys, _SIGNATURE_ALGORITHMS)
            registry.validate(decoded.claims)
        except ExpiredTokenError as error:
            raise BadInput("the login took too long: try again") from error
        except (JoseError, ValueError) as error:
            raise BadInput(f"the ID token is not valid: {error}") from error
        claims = decoded.claims
        if isinstance(claims["aud"], list) and claims.get("azp") != settings.client_id:
            raise BadInput("the ID token is not valid: it is for another client, too")
        return claims

    def _to_identity(self, claims: Mapping[str, Any]) -> LoginIdentity:
        """Return the person whom the claims of an ID token name.

        Raises `BadInput` if the tenant or the subject is missing, too long or not printable.
        """
        claim = self.settings.tenant_claim
        tenant = _text(claims.get(claim)) if claim else DEFAULT_TENANT
        if not (0 < len(tenant) <= MAX_TENANT_CHARS and tenant.isprintable()):
            raise BadInput(
                f"the identity provider does not say to which tenant you belong (claim {claim!r})"
            )
        subject = claims["sub"]
        if not (0 < len(subject) <= MAX_NAME_CHARS and subject.isprintable()):
            raise BadInput(
                f"the identity provider's name for you, {subject[:MAX_NAME_CHARS]!r}, is longer than "
                f"{MAX_NAME_CHARS} characters or cannot be printed"
            )
        name = claims.get("name") or claims.get("preferred_username") or ""
        # Many providers verify all addresses, and do not say so.
        is_verified = claims.get("email_verified", True) is True
        email = claims.get("email") if is_verified else ""
        return LoginIdentity(tenant, subject, _to_line(name), _to_line(email))

    async def _read_metadata(self) -> _Metadata:
        """Return the provider's metadata, which is requested again after an hour."""
        async with self._lock:
            if self._metadata:
                read_at, metadata = self._metadata
                if self._clock() - read_at < _METADATA_SECONDS:
                    return metadata
            issuer = self.settings.issuer
            url = issuer.rstrip("/") + _METADATA_PATH
            metadata = _decode(await self._get(url), _Metadata)
            if metadata.issuer != issuer:
                raise BadInput(
                    f"the identity provider calls itself {metadata.issuer[:_MAX_SHOWN_CHARS]!r}, "
                    f"and not {issuer!r}: write that as issuer"
                )
            self._metadata = self._clock(), metadata
            return metadata

    async def _read_keys(self, *, renew: bool = False) -> Any:
        """Return the provider's keys. With `renew`, request them again unless they are new."""
        from joserfc.jwk import KeySet

        metadata = await self._read_metadata()
        async with self._lock:
            if self._keys:
                read_at, key_set = self._keys
                are_new = self._clock() - read_at <= _KEYS_SECONDS
                if are_new or not renew:
                    return key_set
            data = _decode(await self._get(metadata.jwks_uri), dict[str, Any])
            # Other keys of the provider are for encryption.
            keys = [key for key in data.get("keys", ()) if key.get("use", "sig") == "sig"]
            key_set = KeySet.import_key_set({"keys": keys})
            self._keys = self._clock(), key_set
            return key_set

    async def _get(self, url: str) -> bytes:
        """Return the content at `url`. Raises `BadInput` unless the status is 200."""
        status, data = await self._request(url)
        if status != 200:
            raise BadInput(f"the identity provider answered {url} with status {status}")
        return data

    async def _request(
        self, url: str, headers: Sequence[tuple[str, str]] = (), body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Send a request (a POST, if it has a body), and return the status and the content."""
        fixed_headers = ("accept", "application/json"), ("user-agent", "refold")
        request = HttpRequest(server_address(url), (*fixed_headers, *headers), body)
        try:
            answer = await self._http.open(request)
            try:
                content, _ = await answer.content(int(_HTTP_BOUNDS.size))
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()
        except Broken as error:
            raise BadInput(f"the identity provider cannot be reached: {error}") from error
        return answer.reply.status, content


def _basic_auth(client_id: str, secret: str) -> str:
    # OAuth has both encoded for a URL first, so that a colon in them does not separate.
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _decode(data: bytes, kind: Any) -> Any:
    """Return the JSON of an answer as a value of the type `kind`. Raises `BadInput`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"the identity provider's answer cannot be read: {reason_of(error)}"
        ) from error


def _refusal_text(status: int, data: bytes) -> str:
    """Return the reason that the provider gave for a refusal, or the status if it gave none."""
    try:
        refusal = msgspec.json.decode(data, type=_Refusal)
    except ValueError:
        return f"status {status}"
    return (refusal.error_description or refusal.error or str(status))[:_MAX_SHOWN_CHARS]


def _text(value: object) -> str:
    """Return the text of a claim; "" if the provider sent another type."""
    return value if isinstance(value, str) else ""


def _to_line(value: object) -> str:
    """Return the text of a claim as one line that is not too long to be shown."""
    return " ".join(_text(value).split())[:_MAX_SHOWN_CHARS]
