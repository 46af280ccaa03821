"""Reads the file with the OpenID Connect settings for logins of people at a service.

`client.people.oidc` performs the login.
"""

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from refold.errors import BadInput, reason_of

_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


class OidcSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings for logins of people at a service.

    `public_url` is the address at which people reach the service. A claim in the token names
    the tenant of a person. If no claim is set, all people belong to one tenant.
    """

    public_url: str
    issuer: str
    client_id: str
    client_secret_file: str = ""  # "": a public client
    tenant_claim: str = ""
    scope: str = "openid profile email"


def load_oidc_settings(file: Path) -> OidcSettings:
    """Read the settings from a TOML file. Raises `BadInput` if it is unreadable or invalid."""
    try:
        settings = msgspec.convert(tomllib.loads(file.read_text()), OidcSettings)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{file} does not say how people log in: {reason_of(error)}"
        ) from error
    for name, url in (("public_url", settings.public_url), ("issuer", settings.issuer)):
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or parts.hostname in _LOCAL_HOSTS
        is_plain = not parts.query and not parts.fragment
        if not (parts.hostname and is_safe and is_plain):
            raise BadInput(
                f"{name} in {file} is {url!r}: it must begin with https://, or be on this machine"
            )
    if urlsplit(settings.public_url).path.strip("/"):
        raise BadInput(f"public_url in {file} must be a host, without a path")
    if settings.client_secret_file:
        read_client_secret(settings)
    return settings


def read_client_secret(settings: OidcSettings) -> str:
    """Return the client secret. Raises `BadInput` if its file cannot be read."""
    file = Path(settings.client_secret_file)
    try:
        return file.read_text().strip()
    except OSError as error:
        raise BadInput(f"the client_secret_file cannot be read: {error}") from error
