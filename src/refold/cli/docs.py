"""`refold docs`: serves the documentation of this version on this machine, without a network.

The pages are in an archive in the package, which `make site` builds and `make wheel` includes.
They are public, so opening them needs no key, unlike the pages of `cli.serve`.
"""

import mimetypes
import os
import posixpath
import sys
import zipfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import refold
from refold.cli.parser import listen_port
from refold.config.paths import paths
from refold.console.open_page import NO_BROWSER, open_page
from refold.errors import RefoldError
from refold.headless.streams import print_error, write

_ARCHIVE_PATH = Path(refold.__file__).with_name("site.zip")
_NO_SITE_TEXT = (
    "the pages of the documentation are not in this installation: install the wheel that "
    "`make wheel` builds, or, in a checkout, run `make site`; the same text is in docs/README.md"
)
# A page can load nothing from another host, whatever its scripts try.
_CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'; worker-src 'self' blob:; frame-ancestors 'none'"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=listen_port, default=0, help="port (default: a free one)"
    )


def run(args: Namespace) -> int:
    """Serve the pages until Ctrl+C. Print the address on stdout once the server listens.

    If stdout is a terminal, open the page in the browser, too.
    """
    try:
        pages = read_pages(_ARCHIVE_PATH)
    except FileNotFoundError as error:
        raise RefoldError(_NO_SITE_TEXT) from error
    try:
        server = docs_server(pages, args.port)
    except OSError as error:
        raise RefoldError(
            f"port {args.port} cannot be used: {error.strerror}; choose another --port"
        ) from error
    link = f"http://127.0.0.1:{server.server_port}/"
    browser = None
    redirect_file = paths(os.environ).state / "server" / "docs.html"
    with server:
        write(f"{link}\n")
        if sys.stdout.isatty():
            browser = open_page(link, redirect_file, os.environ)
            if browser is None:
                print_error(NO_BROWSER)
        print_error("serving the documentation; Ctrl+C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
        finally:
            redirect_file.unlink(missing_ok=True)
    return 0


def read_pages(archive: Path) -> Mapping[str, bytes]:
    """Return all files of the site, by their paths in the archive."""
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def docs_server(pages: Mapping[str, bytes], port: int) -> ThreadingHTTPServer:
    """Return a server that is already listening, and serves `pages` to this machine only."""

    class Request(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Send the file or the index page that the address names, a redirect, or 404."""
            name = unquote(urlsplit(self.path).path).strip("/")
            page = posixpath.join(name, "index.html")
            if name in pages:
                self._answer(HTTPStatus.OK, name)
            elif page not in pages:
                self._answer(HTTPStatus.NOT_FOUND, "404.html")
            # relative links in a page are only right if its address ends with a slash
            elif not self.path.partition("?")[0].endswith("/"):
                self._redirect(f"/{quote(name)}/")
            else:
                self._answer(HTTPStatus.OK, page)

        do_HEAD = do_GET

        def _answer(self, status: HTTPStatus, name: str) -> None:
            """Send the file `name` of the site; nothing if the site has no such file."""
            body = pages.get(name, b"")
            media_type, _encoding = mimetypes.guess_type(name)
            media_type = media_type or "text/plain"
            if media_type.startswith("text/"):
                media_type += "; charset=utf-8"
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", _CONTENT_POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command == "GET":  # HEAD gets no body
                self.wfile.write(body)

        def _redirect(self, address: str) -> None:
            self.send_response(HTTPStatus.MOVED_PERMANENTLY)
            self.send_header("Location", address)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Do nothing, so that the terminal shows only the address."""

    return ThreadingHTTPServer(("127.0.0.1", port), Request)
