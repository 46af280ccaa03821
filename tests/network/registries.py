"""Replaces package registries and a git host by doubles with real protocols and TLS, on the loopback.

`Registries.filter` differs from the real filter in two points: names have an address that looks
public, and all connections lead to the double. So rules, judgement and proxy are those of a user.
"""

import hashlib
import http.server
import io
import json
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import anyio
from anyio.abc import ByteStream

from refold.network.filter import HostFilter
from refold.values.hosts import HOST_PRESETS
from tests.loopback_network import OPENSSL

_PUBLIC = "93.184.216.34"
_HOSTS = [h for preset in ("pypi", "npm", "crates", "github") for h in HOST_PRESETS[preset]]
_NAMES = [host for host in _HOSTS if "*" not in host]
_WHEEL = "refold_double-1.0-py3-none-any.whl"


class Registries:
    """`served` are the answers, by host and path; `asked` are the requests."""

    def __init__(self, folder: Path) -> None:
        self.served, self.asked = dict[tuple[str, str], bytes](), list[str]()
        self.certificate, both = folder / "authority.pem", _certificates(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        handler = type("Handler", (_Handler,), {"registries": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.filter = HostFilter({}, resolve=self._resolve, dial=self._dial)

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        return (_PUBLIC,)

    async def _dial(
        self, host: str, port: int, addresses: Sequence[str] = ()
    ) -> ByteStream:
        assert addresses == (_PUBLIC,)  # the address that the filter judged
        return await anyio.connect_tcp("127.0.0.1", self._port)

    def close(self) -> None:
        self.filter.close()
        self._server.shutdown()
        self._server.server_close()

    def add_wheel(self) -> None:
        buffer = io.BytesIO()
        about = "refold_double-1.0.dist-info"
        with zipfile.ZipFile(buffer, "w") as wheel:
            wheel.writestr("refold_double.py", "says = 'installed'\n")
            wheel.writestr(
                f"{about}/METADATA",
                "Metadata-Version: 2.1\nName: refold-double\nVersion: 1.0\n",
            )
            wheel.writestr(
                f"{about}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            wheel.writestr(f"{about}/RECORD", "")
        link = f'<a href="https://files.pythonhosted.org/packages/{_WHEEL}">{_WHEEL}</a>'
        self.served["pypi.org", "/simple/refold-double/"] = link.encode()
        self.served["files.pythonhosted.org", f"/packages/{_WHEEL}"] = buffer.getvalue()

    def add_node_package(self) -> None:
        content = _archive(
            {
                "package/package.json": json.dumps(
                    {"name": "refold-double", "version": "1.0.0"}
                )
            }
        )
        tarball = "https://registry.npmjs.org/refold-double/-/refold-double-1.0.0.tgz"
        dist = {"tarball": tarball, "shasum": hashlib.sha1(content).hexdigest()}
        version = {"name": "refold-double", "version": "1.0.0", "dist": dist}
        about = {
            "name": "refold-double",
            "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": version},
        }
        self.served["registry.npmjs.org", "/refold-double"] = json.dumps(about).encode()
        self.served["registry.npmjs.org", "/refold-double/-/refold-double-1.0.0.tgz"] = (
            content
        )

    def add_crate(self) -> None:
        manifest = (
            '[package]\nname = "refold-double"\nversion = "1.0.0"\nedition = "2021"\n'
        )
        content = _archive({
            "refold-double-1.0.0/Cargo.toml": manifest, "refold-double-1.0.0/src/lib.rs": "",
        })  # fmt: skip
        row: dict[str, object] = {"name": "refold-double", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
               "cksum": hashlib.sha256(content).hexdigest()}  # fmt: skip
        config = {"dl": "https://static.crates.io/crates", "api": "https://crates.io"}
        self.served["index.crates.io", "/config.json"] = json.dumps(config).encode()
        self.served["index.crates.io", "/re/fo/refold-double"] = (
            json.dumps(row).encode() + b"\n"
        )
        self.served["static.crates.io", "/crates/refold-double/1.0.0/download"] = content

    def add_repository(self, bare: Path) -> None:
        """Add all files of a repository, for git's protocol of plain files."""
        subprocess.run(["git", "-C", str(bare), "update-server-info"], check=True)
        for file in bare.rglob("*"):
            if file.is_file():
                self.served["github.com", f"/a/b.git/{file.relative_to(bare)}"] = (
                    file.read_bytes()
                )


class _Handler(http.server.BaseHTTPRequestHandler):
    registries: ClassVar[Registries]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host, path = self.headers["Host"].partition(":")[0], self.path.partition("?")[0]
        self.registries.asked.append(f"{host}{path}")
        value = self.registries.served.get((host, path))
        self.send_response(404 if value is None else 200)
        if path.startswith("/simple/"):
            self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(value or b"")))
        self.end_headers()
        self.wfile.write(value or b"")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


def _certificates(folder: Path) -> Path:
    """Make an authority, and a certificate for all names. Return the file with it and its key."""
    names = ",".join(f"DNS:{name}" for name in _NAMES)
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    for words in (
        (*new, "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "authority.pem"),
        (*new, "-subj", "/CN=double", "-addext", f"subjectAltName={names}", "-keyout", "key.pem",
         "-out", "double.csr"),
        ("x509", "-req", "-in", "double.csr", "-CA", "authority.pem", "-CAkey", "ca.key",
         "-CAcreateserial", "-copy_extensions", "copy", "-out", "double.pem"),
    ):  # fmt: skip
        subprocess.run([OPENSSL, *words], check=True, capture_output=True, cwd=folder)
    both = folder / "both.pem"
    both.write_bytes(
        (folder / "key.pem").read_bytes() + (folder / "double.pem").read_bytes()
    )
    return both


def _archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(text.encode())
            archive.addfile(about, io.BytesIO(text.encode()))
    return buffer.getvalue()


@contextmanager
def registries(folder: Path) -> Generator[Registries]:
    registries = Registries(folder)
    try:
        yield registries
    finally:
        registries.close()
