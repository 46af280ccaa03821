"""A login at an identity provider: which answers count, and why the others are refused."""

import base64
import json
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from refold.errors import BadInput
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server

pytest.importorskip("joserfc", reason="refold[cluster] is not installed")
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from refold.client.people.oidc import LoginIdentity, OidcClient
from refold.config.oidc_settings import OidcSettings, load_oidc_settings

pytestmark = pytest.mark.anyio
SERVICE = "https://refold.example.org"
KEY = ECKey.generate_key("P-256", {"kid": "one", "use": "sig"})
OTHER_KEY = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})


class Provider:
    """An identity provider whose answers a test changes."""

    def __init__(self) -> None:
        self.url, self.nonce = "", ""
        self.keys: list[Any] = [KEY]
        self.claims = dict[str, Any]()  # instead of the right ones
        self.metadata = dict[str, Any]()
        self.token: str | None = None
        self.asked = list[ReceivedRequest]()

    def answer(self, request: ReceivedRequest) -> Answer:
        self.asked.append(request)
        match urlsplit(request.path).path:
            case "/.well-known/openid-configuration":
                return _json({
                    "issuer": self.url, "authorization_endpoint": f"{self.url}/auth",
                    "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys",
                } | self.metadata)  # fmt: skip
            case "/keys":
                return _json(KeySet(self.keys).as_dict(private=False))
            case "/token" if self.token is None:
                return _json({"error": "invalid_grant"}, 400)
            case "/token":
                return _json({"id_token": self.token or self.sign(KEY)})
            case _:
                return Answer(status=404)

    def sign(self, key: Any, algorithm: str = "ES256") -> str:
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": "refold", "sub": "ann", "nonce": self.nonce, "iat": now,
            "exp": now + 300, "name": "Ann \n Arbor", "email": "ann@x", "org": "acme",
        } | self.claims  # fmt: skip
        present = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": algorithm, "kid": key.kid}
        return jwt.encode(header, present, key, [algorithm])


def _json(value: object, status: int = 200) -> Answer:
    headers = {"content-type": "application/json"}
    return Answer(json.dumps(value).encode(), status, headers)


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    provider = Provider()
    provider.token = ""
    async with wire_server(provider.answer) as server:
        provider.url = server.url
        yield provider


def client_of(provider: Provider, **changes: str) -> OidcClient:
    settings = OidcSettings(SERVICE, provider.url, "refold", tenant_claim="org")
    return OidcClient(_replace(settings, changes), {})


def _replace(settings: OidcSettings, changes: Mapping[str, str]) -> OidcSettings:
    return replace(settings, **changes)


async def log_in(
    provider: Provider,
    client: OidcClient | None = None,
    answer: Mapping[str, str] | None = None,
) -> LoginIdentity:
    client = client or client_of(provider)
    address, attempt = await client.begin()
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    provider.nonce = query["nonce"]
    return await client.finish(
        attempt, {"code": "c", "state": query["state"], **(answer or {})}
    )


async def test_claims_of_a_valid_oidc_token_become_tenant_subject_name_and_email(
    provider: Provider,
) -> None:
    assert await log_in(provider) == LoginIdentity("acme", "ann", "Ann Arbor", "ann@x")


async def test_an_oidc_code_is_exchanged_with_the_pkce_verifier_and_the_client_secret(
    provider: Provider, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a b:c\n")
    await log_in(provider, client_of(provider, client_secret_file=str(secret)))

    (request,) = [one for one in provider.asked if one.path == "/token"]
    fields = parse_qs(request.body.decode())
    assert fields["redirect_uri"] == [f"{SERVICE}/auth/callback"]
    assert len(fields["code_verifier"][0]) >= 43
    basic = base64.b64decode(request.headers["authorization"].removeprefix("Basic "))
    assert basic == b"refold:a%20b%3Ac"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nonce": "of another attempt"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": ["refold", "another"]}, "for another client, too"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"exp": 1_000_000}, "took too long"),
        ({"exp": None}, "exp"),
        ({"iat": 99_999_999_999}, "issued in the future"),
        ({"sub": None}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "x" * 65}, "longer than 64"),
        ({"sub": "a\nb"}, "cannot be printed"),
        ({"org": None}, "to which tenant"),
        ({"org": ["acme"]}, "to which tenant"),
        ({"org": "a\0b"}, "to which tenant"),
    ],
)
async def test_an_oidc_token_with_a_wrong_claim_is_refused(
    provider: Provider, claims: Mapping[str, Any], reason: str
) -> None:
    provider.claims |= claims

    with pytest.raises(BadInput, match=reason):
        await log_in(provider)


async def test_an_oidc_token_that_the_provider_did_not_sign_is_refused(
    provider: Provider,
) -> None:
    client = client_of(provider)
    _, attempt = await client.begin()
    provider.nonce = attempt.nonce
    public = json.dumps(KEY.as_dict(private=False)).encode()
    body = provider.sign(KEY).split(".")[1]
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    forged = (
        provider.sign(ECKey.generate_key("P-256", {"kid": "one"})),
        provider.sign(RSAKey.generate_key(2048, {"kid": "one"}), "RS256"),
        provider.sign(OctKey.import_key(public, {"kid": "one"}), "HS256"),
        f"{none}.{body}.",
        f"{provider.sign(KEY)}x",
        "no token",
    )

    for token in forged:
        provider.token = token
        with pytest.raises(BadInput, match="the ID token is not valid"):
            await client.finish(attempt, {"code": "c", "state": attempt.state})


async def test_changed_oidc_signing_keys_are_read_again_at_most_every_30_seconds(
    provider: Provider,
) -> None:
    now = time.time()
    settings = OidcSettings(SERVICE, provider.url, "refold")
    client = OidcClient(settings, {}, lambda: now)
    await log_in(provider, client)
    provider.keys = [OTHER_KEY]
    provider.sign, sign = (lambda _: sign(OTHER_KEY)), provider.sign  # type: ignore[method-assign]

    with pytest.raises(BadInput):  # not more often than every 30 s
        await log_in(provider, client)
    now += 31

    assert (await log_in(provider, client)).subject == "ann"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"state": "of another browser"}, "begun in another browser"),
        ({"state": ""}, "begun in another browser"),
        ({"error": "access_denied"}, "access_denied"),
        ({"iss": "https://evil.example"}, "another identity provider"),
        ({"code": ""}, "sent no code"),
        ({"code": "x" * 5000}, "sent no code"),
    ],
)
async def test_an_oidc_callback_that_does_not_belong_to_the_login_attempt_is_refused(
    provider: Provider, answer: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        await log_in(provider, None, answer)


async def test_an_identity_provider_that_refuses_or_names_another_issuer_is_an_error(
    provider: Provider,
) -> None:
    provider.token = None
    with pytest.raises(BadInput, match="gave no token: invalid_grant"):
        await log_in(provider)
    provider.metadata = {"issuer": "https://evil.example"}
    with pytest.raises(BadInput, match="calls itself 'https://evil"):
        await log_in(provider)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('issuer = "https://x"', "public_url"),
        ('public_url="http://x.example"\nissuer="https://x"\nclient_id="r"', "https://"),
        ('public_url="https://x/path"\nissuer="https://x"\nclient_id="r"', "without a path"),
        ('public_url="https://x"\nissuer="ftp://x"\nclient_id="r"', "issuer"),
        ('public_url="https://x"\nissuer="https://x"\nclient_id="r"\nclaim="o"', "claim"),
        ('public_url="https://x"\nissuer="https://x"\nclient_id="r"\nclient_secret_file="/no"',
         "client_secret_file"),
        ("no toml", "how people log in"),
    ],
)  # fmt: skip
def test_invalid_oidc_settings_are_refused_with_a_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "oidc.toml"
    file.write_text(text)

    with pytest.raises(BadInput, match=reason):
        load_oidc_settings(file)
