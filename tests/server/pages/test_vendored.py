"""What others wrote and the pages carry is what it says it is, with its licence."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import refold

PAGES = Path(refold.__file__).parent / "server/pages"
VENDOR = PAGES / "shared/vendor"
LISTED = json.loads((VENDOR / "manifest.json").read_text(encoding="utf-8"))
FREE = {"MIT", "BSD-3-Clause", "MPL-2.0 OR Apache-2.0"}


def test_every_vendored_file_is_in_the_manifest_with_its_licence() -> None:
    files = {item["file"] for item in LISTED} | {item["licence_file"] for item in LISTED}

    assert {path.name for path in VENDOR.iterdir()} == files | {"manifest.json"}


@pytest.mark.parametrize("listed", LISTED, ids=lambda each: each["file"])
def test_a_vendored_file_matches_its_published_hash_and_version(
    listed: dict[str, str],
) -> None:
    data = (VENDOR / listed["file"]).read_bytes()

    assert hashlib.sha256(data).hexdigest() == listed["sha256"]
    assert listed["licence"] in FREE
    assert re.fullmatch(r"\d+\.\d+\.\d+", listed["version"])
    assert listed["version"] in data[:400].decode()
    assert (VENDOR / listed["licence_file"]).stat().st_size > 500


def test_pages_load_nothing_from_other_hosts_and_never_parse_text_as_html() -> None:
    own = [
        p
        for p in PAGES.rglob("*")
        if p.suffix in (".js", ".css", ".html") and p.parent != VENDOR
    ]
    wrong = re.compile(
        r"https?://(?!www\.w3\.org/2000/svg)|\binnerHTML\b|outerHTML|insertAdjacentHTML|document\.write"
        r"|\beval\(|new Function|\bon[a-z]+=\"|<style|style=\"|javascript:|setAttribute\(\"style",
    )

    pairs = [
        (path.name, hit[0])
        for path in own
        for hit in wrong.finditer(path.read_text(encoding="utf-8"))
    ]

    assert len(own) > 15
    assert pairs == []
