"""Provides a server with a scripted model, and a browser that opens its pages.

Every page that a test opens is watched: an error in its console, a dialog of the browser or a
request to another host fails the test.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
# The console messages of a page that lost its server.
_LOST = re.compile(r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_INTERNET_DISCONNECTED|"
                   r"WebSocket connection to|ERR_EMPTY_RESPONSE|status of 401")  # fmt: skip
# The reason of a skip: without these, pages are not tested in a browser.
NEEDS = "the extra `server`, playwright and chromium are needed here"


class Server:
    """`refold serve` in a directory of its own.

    The responses are those of a script, or with `scripted` false of the model in the settings.
    """

    def __init__(
        self, directory: Path, lines: list[dict[str, Any]], *, scripted: bool = True,
        flags: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.directory, self.scripted, self.flags = directory, scripted, flags
        self.workspace = directory / "work"
        self.workspace.mkdir()
        self.script = directory / "answers.jsonl"
        self.write(lines)
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.links: list[str] = []
        self.start()

    def write(self, lines: list[dict[str, Any]]) -> None:
        self.script.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")

    def start(self) -> None:
        command_line = [sys.executable, "-m", "refold", "serve", "--port", str(self.port)]
        command_line += ["--script", str(self.script)] if self.scripted else []
        command_line += self.flags
        self._process = subprocess.Popen(
            command_line, cwd=self.workspace, env=dict(os.environ), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout
        self.links = []
        text = ""
        for line in self._process.stdout:
            text += line
            self.links += re.findall(r"http\S+#launch=\S+", line)
            if len(self.links) == 2:
                break
        assert len(self.links) == 2, text
        self.port = urlsplit(self.links[0]).port or 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def limit_files(self, size: int) -> None:
        """Let the server write no file beyond this number of bytes, as on a full disk."""
        assert self._process
        resource.prlimit(
            self._process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)
        )

    def kill(self) -> None:
        assert self._process
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        if self._process and self._process.stdout:
            self._process.stdout.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Yield a function that starts a server: `serve({"text": "Hello."}, …)`."""
    pytest.importorskip("fastapi", reason=NEEDS)
    servers = list[Server]()

    def start(
        *lines: dict[str, Any], scripted: bool = True, flags: Sequence[str] = ()
    ) -> Server:
        servers.append(Server(tmp_path, list(lines), scripted=scripted, flags=flags))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


class Watched:
    """A browser, and the forbidden requests and errors of its pages."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts = list[Any]()
        self.wrong = list[str]()
        self.expect_loss = False

    def context(self, server: Server, **options: Any) -> Any:
        result = self._browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, **options}
        )
        result.set_default_timeout(60_000)
        self._contexts.append(result)
        result.on("request", lambda request: self._check_request(request.url, server))
        result.on("weberror", lambda error: self.wrong.append(f"error: {error.error}"))
        result.on("console", self._check_message)
        result.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        return result

    def open(
        self, server: Server, path: str = "/", script: str = "", **options: Any
    ) -> Any:
        """Return a page, logged in by a launch link. `script` runs before the page's scripts."""
        context = self.context(server, **options)
        if script:
            context.add_init_script(script)
        page = context.new_page()
        page.goto(server.links[1 if path == "/dev" else 0])
        page.locator("#message").wait_for()
        return page

    def _check_request(self, url: str, server: Server) -> None:
        if not url.startswith(
            (server.address, "data:", "blob:", f"ws://127.0.0.1:{server.port}")
        ):
            self.wrong.append(f"request: {url}")

    def _check_message(self, message: Any) -> None:
        if message.type == "error" and not _LOST.search(message.text):
            self.wrong.append(
                f"console: {message.text} ({message.location.get('url', '')})"
            )

    def close(self) -> None:
        for context in self._contexts:
            context.close()


class Held:
    """Holds back documents of one type and with this text until `release`.

    Later documents wait, too, so that the page gets all in the order of the server.
    """

    def __init__(self, page: Any, kind: str, text: str = "") -> None:
        self._kind, self._text = kind, text
        self._waiting = list[tuple[Any, str]]()
        self._holds = True
        page.route_web_socket(re.compile("/ws"), self._connect)

    def _connect(self, line: Any) -> None:
        line.connect_to_server().on_message(lambda text: self._pass(line, text))

    def _pass(self, line: Any, text: str) -> None:
        fits = json.loads(text)["type"] == self._kind and self._text in text
        if self._holds and (self._waiting or fits):
            self._waiting.append((line, text))
        else:
            line.send(text)

    def wait(self, page: Any) -> None:
        """Wait until a document is held back."""
        while not self._waiting:
            page.wait_for_timeout(20)

    def release(self) -> None:
        self._holds = False
        for line, text in self._waiting:
            line.send(text)


# Each module starts one browser, and each test has a context of its own. While the browser runs,
# its event loop is that of this thread, so a test that starts an event loop would fail.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason=NEEDS)
    if CHROMIUM is None:
        pytest.skip(NEEDS)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=FLAGS, timeout=100_000
        )
        yield browser
        browser.close()


@pytest.fixture
def pages(chromium: Any) -> Iterator[Watched]:
    watched = Watched(chromium)
    yield watched
    watched.close()
    assert watched.wrong == []
