"""Starts the identity provider `oidc-provider`, and has a browser without a screen for it."""

import html
import os
import re
import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

import pytest

_PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
_PACKAGES = _PEERS / "oidc" / "node_modules"
CLIENT_SECRET = "a secret/of the service"
_MAX_PAGES = 12


@contextmanager
def identity_provider(service: str) -> Generator[str]:
    """Yield the issuer of a provider that knows `service`. Skips without the provider."""
    node = shutil.which("node")
    if node is None or not (_PACKAGES / "oidc-provider").exists():
        pytest.skip(f"node, and oidc-provider in {_PEERS}, are needed here")
    program = Path(__file__).with_name("identity_provider.mjs")
    command = [node, str(program), str(_PACKAGES), service]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        assert started.stdout is not None
        try:
            yield started.stdout.readline().strip()
        finally:
            started.kill()


def write_oidc_settings(directory: Path, service: str, issuer: str) -> Path:
    """Write the file for `refold web-node --oidc`, and return its path."""
    secret, file = directory / "client-secret", directory / "oidc.toml"
    secret.write_text(f"{CLIENT_SECRET}\n")
    file.write_text(
        f'public_url = "{service}"\nissuer = "{issuer}"\nclient_id = "refold"\n'
        f'client_secret_file = "{secret}"\ntenant_claim = "org"\n'
    )
    return file


class Browser:
    """Follows redirects, fills in the forms of the provider, and keeps cookies by host and port."""

    def __init__(self) -> None:
        self._cookies = dict[str, dict[str, str]]()

    def log_in(self, service: str, login: str) -> tuple[int, str]:
        """Log in, and return the status and text of the last page."""
        status, text, url = self.open(f"{service}/auth/login")
        for _ in range(_MAX_PAGES):
            form = re.search(r'<form[^>]*action="([^"]+)"', text)
            if form is None:
                return status, text
            fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', text))
            fields |= {"login": login, "password": "x"} if "password" in text else {}
            form_url = urljoin(url, html.unescape(form[1]))
            status, text, url = self.open(form_url, urlencode(fields).encode())
        raise AssertionError("the provider asks without an end")

    def open(self, url: str, body: bytes | None = None) -> tuple[int, str, str]:
        """Return the status and text of a page, and its address."""
        for _ in range(_MAX_PAGES):
            status, headers, text = self.request(url, body)
            if "location" not in headers:
                return status, text, url
            url, body = urljoin(url, headers["location"]), None
        raise AssertionError("redirects without an end")

    def request(
        self, url: str, body: bytes | None = None, method: str = "", kind: str = ""
    ) -> tuple[int, Mapping[str, str], str]:
        parts = urlsplit(url)
        jar = self._cookies.setdefault(parts.netloc, {})
        connection = HTTPConnection(parts.netloc, timeout=30)
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
        if body is not None or method:
            headers["Content-Type"] = kind or "application/x-www-form-urlencoded"
            headers["Origin"] = f"http://{parts.netloc}"
        target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        connection.request(
            method or ("GET" if body is None else "POST"), target, body, headers
        )
        response = connection.getresponse()
        for value in response.headers.get_all("set-cookie") or ():
            for name, morsel in SimpleCookie(value).items():
                jar[name] = morsel.value
                if morsel["max-age"] == "0" or not morsel.value:
                    del jar[name]
        text = response.read().decode()
        connection.close()
        return response.status, {k.lower(): v for k, v in response.headers.items()}, text
