"""Serves pages on loopback, and records the requests."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

# Pages by path and query; the key of a POST is its path and its body. A number is a status.
Pages: TypeAlias = Mapping[str, Any]


class ListServer:
    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.url = ""
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []


@contextmanager
def list_server(pages: Pages) -> Iterator[ListServer]:
    started_server = ListServer(pages)

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(self.path)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.answer(f"{self.path} {body.decode()}")

        def answer(self, asked: str) -> None:
            started_server.asked.append(f"{self.command} {asked}")
            started_server.headers.append({n.lower(): v for n, v in self.headers.items()})
            page = started_server.pages.get(asked, 404)
            status = page if isinstance(page, int) else 200
            body = page if isinstance(page, bytes) else json.dumps(page).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        started_server.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield started_server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
