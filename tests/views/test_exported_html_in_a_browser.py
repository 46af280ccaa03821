"""The exported page in a real browser: it requests nothing outside, and runs nothing."""

import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.views.export.html import page
from tests.views.hostile_story import export_options, hostile_node
from tests.views.page_parser import parse_page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.timeout(180),
    pytest.mark.skipif(BROWSER is None, reason="chromium is not installed"),
]


@pytest.fixture
def listening_server() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server, and what it was asked for."""
    texts = list[str]()

    class Listening(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            texts.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listening)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}", texts
    server.shutdown()
    server.server_close()


def open_in_browser(file: Path, *flags: str) -> str:
    assert BROWSER
    command_line = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--disable-component-update",
        f"--user-data-dir={file.parent / 'profile'}", *flags, "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command_line, capture_output=True, timeout=150, check=False)
    return done.stdout.decode()


def test_a_hostile_session_runs_nothing_and_fetches_nothing(
    tmp_path: Path, listening_server: tuple[str, list[str]]
) -> None:
    address, requests = listening_server
    loads = f"document.title='ran';new Image().src='{address}/ran'"
    text = (
        f'</style><script>{loads}</script><img src="{address}/a.png" onerror="{loads}">'
        f'" onload="{loads}" ![p]({address}/b.png) <link rel=stylesheet href={address}/c.css>'
        f"<iframe src={address}/d></iframe><svg onload={loads}> @import url({address}/e);"
    )
    file = tmp_path / "page.html"
    file.write_text("".join(page(hostile_node(text), export_options())), "utf-8")

    dom = open_in_browser(file)

    assert "<main" in dom
    assert requests == []
    assert "<title>ran</title>" not in dom
    assert parse_page(dom).foreign == []


def test_a_page_without_the_policy_runs_scripts_and_requests_images(
    tmp_path: Path, listening_server: tuple[str, list[str]]
) -> None:
    """What the test above would see, if one of them got through."""
    address, requests = listening_server
    file = tmp_path / "page.html"
    file.write_text(
        f"<main><script>document.title='ran'</script><img src={address}/a.png>", "utf-8"
    )

    dom = open_in_browser(file, "--virtual-time-budget=2000")

    assert "<title>ran</title>" in dom
    assert requests == ["/a.png"]
