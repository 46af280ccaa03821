"""`refold docs`: the pages of the archive, their addresses, and what it says without them."""

import zipfile
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread

import pytest

import refold
from refold.cli.docs import docs_server, read_pages
from refold.cli.main import main

PAGES = {
    "index.html": "home",
    "404.html": "lost",
    "guides/hooks/index.html": "hooks",
    "assets/site.css": "p {}",
    "images/a.png": "png",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HTTPConnection]:
    with zipfile.ZipFile(tmp_path / "site.zip", "w") as archive:
        for name, text in PAGES.items():
            archive.writestr(name, text)
    with docs_server(read_pages(tmp_path / "site.zip"), 0) as serving:
        Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
        connection = HTTPConnection("127.0.0.1", serving.server_port, timeout=60)
        yield connection
        connection.close()
        serving.shutdown()


def get(server: HTTPConnection, path: str, method: str = "GET") -> tuple[HTTPResponse, str]:
    server.request(method, path)
    response = server.getresponse()
    return response, response.read().decode()


@pytest.mark.parametrize(
    ("path", "status", "kind", "text"),
    [
        ("/", 200, "text/html; charset=utf-8", "home"),
        ("/guides/hooks/", 200, "text/html; charset=utf-8", "hooks"),
        ("/guides/hooks/?h=words", 200, "text/html; charset=utf-8", "hooks"),
        ("/assets/site.css", 200, "text/css; charset=utf-8", "p {}"),
        ("/images/a.png", 200, "image/png", "png"),
        ("/guides/none/", 404, "text/html; charset=utf-8", "lost"),
        ("/../../etc/passwd", 404, "text/html; charset=utf-8", "lost"),
    ],
)
def test_docs_serves_each_file_of_the_archive_and_nothing_else(
    server: HTTPConnection, path: str, status: int, kind: str, text: str
) -> None:
    response, body = get(server, path)

    assert (response.status, response.headers["Content-Type"], body) == (status, kind, text)


def test_docs_redirects_a_page_without_its_slash(server: HTTPConnection) -> None:
    response, _ = get(server, "/guides/hooks")

    assert (response.status, response.headers["Location"]) == (301, "/guides/hooks/")


def test_docs_lets_a_page_load_nothing_from_another_host(server: HTTPConnection) -> None:
    policy = get(server, "/")[0].headers["Content-Security-Policy"]

    assert policy.startswith("default-src 'self';")
    assert "http" not in policy


def test_docs_answers_head_without_a_body(server: HTTPConnection) -> None:
    response, body = get(server, "/", "HEAD")

    assert (response.headers["Content-Length"], body) == ("4", "")


def test_docs_without_the_archive_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("refold.cli.docs._ARCHIVE_PATH", tmp_path / "site.zip")

    assert main(["docs"]) == 1
    assert capsys.readouterr().err == (
        "refold: the pages of the documentation are not in this installation: install the wheel "
        "that `make wheel` builds, or, in a checkout, run `make site`; the same text is in "
        "docs/README.md\n"
    )


def test_docs_refuses_an_invalid_port_and_quotes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["docs", "--port", "70000"]) == 1
    assert "'70000' is not a port: 0 to 65535" in capsys.readouterr().err


def test_docs_reads_its_archive_from_the_package() -> None:
    from refold.cli import docs

    assert vars(docs)["_ARCHIVE_PATH"] == Path(refold.__file__).parent / "site.zip"
