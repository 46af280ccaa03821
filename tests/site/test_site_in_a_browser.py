"""The site as readers get it: offline, accessible, on a phone, and with a search that finds."""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt

from scripts import site
from tests.server.pages.test_page_accessibility import problems
from tests.site.conftest import Site

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]
QUESTIONS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text("utf-8"))
SHOWN = (
    "",
    "start/course/",
    "start/watch/",
    "explain/one-sentence/",
    "guides/permissions/",
    "reference/journal/",
    "decisions/",
)
FIRST_RESULTS = 10
PATIENCE_MS = 200_000


@pytest.mark.parametrize(("scheme", "paths"), [("light", SHOWN), ("dark", SHOWN[::3])])
def test_pages_of_the_site_pass_axe_fit_a_phone_and_ask_no_other_host(
    built: Site, chromium: Any, scheme: str, paths: tuple[str, ...]
) -> None:
    page = chromium.new_page(color_scheme=scheme)
    page.set_default_timeout(PATIENCE_MS)
    requests = list[str]()
    page.on("request", lambda request: requests.append(request.url))
    faults = list[tuple[str, object]]()

    for path in paths:
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(built.address + path)
        faults += [(path, problem) for problem in problems(page)]
        page.set_viewport_size({"width": 360, "height": 740})
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 360:
            faults.append((path, f"{width} pixels wide"))
    page.close()

    assert faults == []
    assert [url for url in requests if not url.startswith((built.address, "data:"))] == []
    assert len(requests) > len(paths)


def test_a_recording_is_played_with_the_keyboard_also_from_a_file_and_with_little_motion(
    built: Site, chromium: Any
) -> None:
    page = chromium.new_page(reduced_motion="reduce")
    page.set_default_timeout(PATIENCE_MS)
    requests = list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.goto((built.folder / "start/watch/index.html").as_uri())
    screen = page.locator(".recording-screen")
    slider = page.get_by_label("Position")
    assert slider.input_value() == "0"  # it does not start by itself

    screen.focus()
    page.keyboard.press("End")
    end = screen.text_content()
    page.keyboard.press("ArrowLeft")
    before = screen.text_content()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Pause").wait_for()
    page.wait_for_function("document.querySelector('.recording-bar input').value !== '0'")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play").wait_for()
    page.close()

    assert "greet says the name now, and its test passes." in end
    assert before != end
    assert [
        url for url in requests if not url.startswith(("file:", "data:", "blob:"))
    ] == []


def test_search_of_the_site_finds_every_question_among_its_first_results(
    built: Site, chromium: Any
) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(built.address)
    page.locator(".md-search__button").click()
    field = page.get_by_role("combobox").or_(page.get_by_placeholder("Search")).first
    missed = dict[str, list[str]]()

    questions = {question: [answer] for question, answer in QUESTIONS["questions"].items()}
    for question, answers in (questions | QUESTIONS["sentences"]).items():
        field.fill("")
        page.locator("a[href*='?h=']").first.wait_for(state="detached")
        field.fill(question)
        page.locator("a[href*='?h=']").first.wait_for()
        links = page.locator("a[href*='?h=']").evaluate_all("all => all.map(a => a.href)")
        names = [urlsplit(link).path.strip("/") for link in links[:FIRST_RESULTS]]
        if not set(answers) & set(names):
            missed[question] = names
    page.close()

    assert missed == {}
    assert len(questions) == len(QUESTIONS["sentences"]) == 30


def test_pages_of_the_site_have_the_structure_that_their_markdown_has_on_github(
    built: Site,
) -> None:
    """Both Markdown readers agree about lists, tables, headings and code blocks."""
    differences = dict[str, list[str]]()

    for source, place in site.page_places().items():
        expected = MarkdownIt("commonmark").enable("table").render(
            site.read_source(source)
        )  # fmt: skip
        path = re.sub(r"(^|/)index$", "", place.removesuffix(".md"))
        html = (built.folder / path / "index.html").read_text("utf-8")
        article = html.partition("<article")[2].partition("</article>")[0]
        counts = [
            f"{tag}: {len(re.findall(f'<{tag}[ >]', expected))} became {number}"
            for tag in ("ul", "ol", "li", "table", "tr", "h1", "h2", "h3", "pre")
            if (number := len(re.findall(f"<{tag}[ >]", article)))
            != len(re.findall(f"<{tag}[ >]", expected))
        ]
        if counts:
            differences[place] = counts

    assert differences == {}


def test_old_addresses_of_pages_lead_to_the_new_ones(built: Site) -> None:
    for old, new in (
        ("permissions", "guides/permissions"),
        ("children", "guides/subagents"),
    ):
        text = (built.folder / old / "index.html").read_text("utf-8")
        assert f'content="0; url=../{new}/"' in text
        assert (built.folder / new / "index.html").is_file()


def test_old_addresses_of_sections_lead_to_the_page_that_has_them(
    built: Site, chromium: Any
) -> None:
    """The test follows addresses of the page that had the section, and addresses from
    before the page was moved.
    """
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE_MS)
    for old, new in (
        ("guides/permissions/#patterns", "reference/permissions/#patterns"),
        ("permissions/#patterns", "reference/permissions/#patterns"),
        ("guides/permissions/#modes", "guides/permissions/#modes"),
    ):
        page.goto(built.address + old)
        page.wait_for_url(built.address + new)
        assert page.locator(f"#{new.partition('#')[2]}").count() == 1
    page.close()


def test_every_moved_section_is_where_the_site_says(built: Site) -> None:
    wrong = list[str]()
    for page, sections in site.moved_sections().items():
        here = (built.folder / page / "index.html").read_text("utf-8")
        for anchor, target in sections.items():
            place, _, section = target.partition("#")
            there = (built.folder / place / "index.html").read_text("utf-8")
            if f'id="{anchor}"' in here or (section and f'id="{section}"' not in there):
                wrong.append(f"{page}#{anchor}")

    assert wrong == []
