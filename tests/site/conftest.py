"""Builds the site once for all processes of a test run, serves it, and provides a browser."""

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from refold.cli.docs import docs_server, read_pages
from scripts import site

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BROWSER_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]


class Site(NamedTuple):
    folder: Path
    address: str


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Site]:
    """Build and serve the site. The build fails if a link or an anchor leads nowhere."""
    pytest.importorskip("zensical", reason="zensical is needed here: make site installs it")
    own = tmp_path_factory.getbasetemp()
    place = (own if worker_id == "master" else own.parent) / "site"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "site.zip").exists():
            site.build(place, place / "unfinished.zip")
            (place / "unfinished.zip").rename(place / "site.zip")
    with docs_server(read_pages(place / "site.zip"), 0) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Site(place / "site", f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is needed here")
    if CHROMIUM is None:
        pytest.skip("chromium is needed here")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=BROWSER_FLAGS, timeout=100_000
        )
        yield browser
        browser.close()
