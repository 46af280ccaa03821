"""`refold web`: opens the page in the user's browser, and keeps the link private."""

import stat
from pathlib import Path

import pytest

from refold.cli.serve import print_qr_code
from refold.console.open_page import open_page

LINK = "http://127.0.0.1:3500/#launch=secret"


def browser(folder: Path) -> Path:
    """Return a program that writes down what it is given, and what stands there."""
    folder.mkdir(mode=0o755)
    program = folder / "browse"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/given\ncat "$1" > {folder}/page\n')
    program.chmod(0o755)
    return program


def test_web_gives_the_browser_a_private_file_and_no_link_as_an_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    program = browser(tmp_path / "bin")
    way = tmp_path / "state" / "open.html"

    page = open_page(LINK, way, {"BROWSER": program.name, "PATH": str(program.parent)})

    assert page is not None
    page.wait(60)
    path = tmp_path / "bin" / "given"
    assert path.read_text().strip() == str(way)
    assert f"url={LINK}" in (tmp_path / "bin" / "page").read_text()
    assert stat.S_IMODE(way.stat().st_mode) == 0o600


def test_web_without_a_browser_opens_no_page_and_writes_no_file(tmp_path: Path) -> None:
    assert open_page(LINK, tmp_path / "open.html", {"PATH": str(tmp_path)}) is None

    assert not (tmp_path / "open.html").exists()


def test_web_prints_a_qr_code_for_another_device(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("segno")

    print_qr_code(LINK)

    assert len(capsys.readouterr().out.splitlines()) > 10
