"""A server on loopback that answers like the Hugging Face hub, for tests of downloads.

It lists the files of a repository in pages, with their sha256. Each download is redirected to a
second server, the store, as the real hub does.

    with model_hub({"org/model-GGUF": {"model-Q4_K_M.gguf": content}}) as hub:
        ... HF_ENDPOINT=hub.url ...
        assert hub.requests[0].path == "/api/models/org/model-GGUF/tree/main?recursive=true"
"""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

Repositories: TypeAlias = Mapping[str, Mapping[str, bytes]]
_PAGE_ROWS = 2
_RANGE_PATTERN = re.compile(r"bytes=(\d+)-")


class HubRequest(Struct, frozen=True):
    """A received request. `server` is "hub" or "store"; names of headers are in lower case."""

    server: str
    path: str
    headers: Mapping[str, str]


class ModelHub:
    """The files that the hub offers, its behaviour, and the requests that it has received.

    `gated` are repositories for which a request needs `token`. If `sends` is not None, the
    connection of a download breaks after that number of bytes. `corrupt` maps the sha256 of a
    file to the wrong content that is sent for it.
    """

    def __init__(self, repositories: Repositories) -> None:
        self.repositories = repositories
        self.gated = frozenset[str]()
        self.token = ""
        self.sends: int | None = None
        self.corrupt: Mapping[str, bytes] = {}
        self.url = ""
        self.store = ""
        self.requests: list[HubRequest] = []

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file of all repositories, by its sha256."""
        return {
            sha256(content).hexdigest(): content
            for files in self.repositories.values()
            for content in files.values()
        }


@contextmanager
def model_hub(repositories: Repositories) -> Generator[ModelHub]:
    """Run a hub with these repositories while the context is open."""
    hub = ModelHub(repositories)

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(hub, self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Store(Hub):
        def do_GET(self) -> None:
            _send(hub, self)

    with _serve(Store) as hub.store, _serve(Hub) as hub.url:
        yield hub


def _answer(hub: ModelHub, handler: BaseHTTPRequestHandler) -> None:
    """Answer a request to the hub: with a list of files, a redirect to the store, or an error."""
    hub.requests.append(HubRequest("hub", handler.path, _headers(handler)))
    parts = urlsplit(handler.path)
    listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main", parts.path)
    file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", unquote(parts.path))
    match = listing or file
    files = hub.repositories.get(match[1]) if match else None
    if match is None or files is None:
        return _respond(handler, 401, {"X-Error-Code": "RepoNotFound"})
    if listing:
        return _send_file_list(hub, handler, match[1], files)
    allowed = handler.headers.get("Authorization") == f"Bearer {hub.token}"
    if match[1] in hub.gated and not allowed:
        return _respond(handler, 403, {"X-Error-Code": "GatedRepo"})
    path = match[2]
    if path not in files:
        return _respond(handler, 404, {"X-Error-Code": "EntryNotFound"})
    digest = sha256(files[path]).hexdigest()
    return _respond(
        handler,
        302,
        {
            "Location": f"{hub.store}/{digest}?signature=secret",
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(files[path])),
        },
    )


def _headers(handler: BaseHTTPRequestHandler) -> Mapping[str, str]:
    return {name.lower(): value for name, value in handler.headers.items()}


def _send_file_list(
    hub: ModelHub, handler: BaseHTTPRequestHandler, name: str, files: Mapping[str, bytes]
) -> None:
    """Send one page of the list of a repository's files."""
    _, _, cursor = urlsplit(handler.path).query.partition("cursor=")
    start = int(cursor or 0)
    end = start + _PAGE_ROWS
    rows = [
        {
            "type": "file",
            "path": path,
            "size": len(content),
            "oid": "0" * 40,
            "lfs": {"oid": sha256(content).hexdigest(), "size": len(content)},
        }
        for path, content in files.items()
    ]
    headers = dict[str, str]()
    if end < len(rows):
        next_url = f"{hub.url}/api/models/{name}/tree/main?cursor={end}"
        headers["Link"] = f'<{next_url}>; rel="next"'
    directory = {"type": "directory", "path": "sub", "size": 0, "oid": "0" * 40}
    _respond(handler, 200, headers, json.dumps([directory, *rows[start:end]]).encode())


def _send(hub: ModelHub, handler: BaseHTTPRequestHandler) -> None:
    """Send a file from the store, or only the part from the requested position."""
    hub.requests.append(HubRequest("store", handler.path, _headers(handler)))
    digest = urlsplit(handler.path).path.strip("/")
    content = hub.corrupt.get(digest) or hub.contents()[digest]
    asked = _RANGE_PATTERN.match(handler.headers.get("Range", ""))
    start = int(asked[1]) if asked else 0
    handler.send_response(206 if asked else 200)
    handler.send_header("Content-Length", str(len(content) - start))
    handler.end_headers()
    end = len(content) if hub.sends is None else start + hub.sends
    with suppress(ConnectionError):  # the client closed the connection
        handler.wfile.write(content[start:end])


def _respond(
    handler: BaseHTTPRequestHandler,
    status: int,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> None:
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def _serve(kind: type[BaseHTTPRequestHandler]) -> Generator[str]:
    """Run an HTTP server with this handler in a thread, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
