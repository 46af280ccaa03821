"""The sources of the site: where a page stands there, and what becomes of its links."""

import re
from pathlib import Path

import pytest

from scripts import site

PLACES = {
    Path("docs/README.md"): "index.md",
    Path("docs/guides/hooks.md"): "guides/hooks.md",
    Path("docs/decisions/README.md"): "decisions/index.md",
    Path("SECURITY.md"): "explain/security.md",
}


@pytest.mark.parametrize(
    ("source", "link", "target"),
    [
        ("docs/guides/hooks.md", "../README.md", "../index.md"),
        ("docs/guides/hooks.md", "../../SECURITY.md#reporting", "../explain/security.md#reporting"),
        ("docs/guides/hooks.md", "../schema/orders.json", "../schema/orders.json"),
        ("docs/README.md", "guides/hooks.md", "guides/hooks.md"),
        ("SECURITY.md", "docs/decisions/README.md", "../decisions/index.md"),
        ("SECURITY.md", "examples/minimal.py", "../files/examples/minimal.py"),
        ("SECURITY.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("SECURITY.md", "#reporting", "#reporting"),
    ],
)  # fmt: skip
def test_links_of_a_page_lead_to_the_same_page_on_the_site(
    source: str, link: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "ROOT", tmp_path)
    for path in [*PLACES, Path("docs/schema/orders.json"), Path("examples/minimal.py")]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    code = f"\n```\n[a]({link})\n```\n"
    (tmp_path / source).write_text(f"See [a]({link}).\n{code}")

    place = PLACES[Path(source)]
    page = site.Page(Path(source), place, PLACES)

    assert page.text() == f"See [a]({target}).\n{code}"
    assert [path for path in page.files if path.suffix == ".md"] == []


def test_every_page_of_the_documents_has_a_place_of_its_own_on_the_site() -> None:
    places = site.page_places()
    documents = {
        path.relative_to(site.ROOT)
        for shelf in ("start", "guides", "reference", "explain", "decisions")
        for path in (site.ROOT / "docs" / shelf).glob("*.md")
    }

    assert documents - set(places) == set()
    assert len(set(places.values())) == len(places)


def test_sections_of_the_site_name_each_page_once() -> None:
    sections = [
        page
        for section in site.navigation()
        for pages in (section.values() if isinstance(section, dict) else ())
        for page in (pages if isinstance(pages, list) else [pages])
    ]
    records = {p for p in site.page_places().values() if p.startswith("decisions/0")}

    assert sorted(sections) == sorted(set(site.page_places().values()) - records)


def test_a_page_links_the_first_use_of_a_word_to_the_glossary_and_leaves_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path("docs/guides/hooks.md")
    places = {source: "guides/hooks.md", site.GLOSSARY: "reference/glossary.md"}
    for path in places:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(site, "ROOT", tmp_path)
    site.glossary_words.cache_clear()
    (tmp_path / site.GLOSSARY).write_text(
        "| word | meaning |\n|---|---|\n| journal | a |\n| seam | b |\n"
    )
    (tmp_path / source).write_text(
        "# The journal\n\n`journal` and [the seam](hooks.md): Journals, a journal.\n\n```\nseam\n```\n"
    )

    text = site.Page(source, places[source], places).text()
    site.glossary_words.cache_clear()

    link = "[Journals](../reference/glossary.md)"
    assert text == (
        f"# The journal\n\n`journal` and [the seam](hooks.md): {link}, a journal.\n\n```\nseam\n```\n"
    )


def test_every_recording_that_a_page_plays_exists() -> None:
    pages = [site.ROOT / source for source in site.page_places()]
    names = {
        name
        for page in pages
        for name in re.findall(r'data-recording="(\w+)"', page.read_text("utf-8"))
    }

    assert names == {file.stem for file in (site.ROOT / "docs/recordings").glob("*.json")}
