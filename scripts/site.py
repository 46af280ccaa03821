"""Build the documentation site: `src/refold/site.zip`, which `refold docs` serves.

The Markdown of the repository is copied to `build/site`, with links that fit there, and Zensical
makes HTML of it. Pages have the same names as in `docs/`; a page from elsewhere, such as
ARCHITECTURE.md or a lesson of the course, gets a place in a section.

Usage: python -m scripts.site

The site is one archive in the wheel, so a user without a network has the documents of the
installed version. It is not in git, where 10 MB of HTML would change with every sentence.
Zensical is an alpha release, but only a build tool: it reads plain Markdown and a `mkdocs.yml`,
which MkDocs reads too. Material for MkDocs is no longer developed, Sphinx would need links that
GitHub does not show, and a generator of our own would need its own search and navigation.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from refold.learn.course import lessons

ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build/site"
ARCHIVE = ROOT / "src/refold/site.zip"
MOVED_SECTIONS = ROOT / "scripts/moved_sections.toml"
SECTION_TITLES = {
    "start": "Start",
    "guides": "Guides",
    "reference": "Reference",
    "explain": "Explain",
}
# Pages that are not in docs/, or get another name on the site.
PLACES = {
    "README.md": "start/readme.md",
    "ARCHITECTURE.md": "explain/architecture.md",
    "SECURITY.md": "explain/security.md",
    "CONTRIBUTING.md": "explain/contributing.md",
    "AGENTS.md": "explain/agents-file.md",
    "CHANGELOG.md": "reference/changelog.md",
    "docs/README.md": "index.md",
    "docs/decisions/README.md": "decisions/index.md",
    "docs/plugin-template/README.md": "guides/plugin-template.md",
    "examples/README.md": "guides/examples.md",
}
OLD_NAMES = {
    "reference/headless": "headless-reference",
    "reference/terminal": "terminal-reference",
    "guides/subagents": "children",
}
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
FENCES = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
GLOSSARY = Path("docs/reference/glossary.md")
# Words of the glossary that mean something else in other pages, too.
AMBIGUOUS_WORDS = {"agent", "claim", "client", "effect", "event", "evidence", "kept", "leaf", "mark", "policy", "view", "written"}  # fmt: skip
# Code, links and headings, in which no word becomes a link.
NOT_PROSE = re.compile(
    r"(`+.*?`+|!?\[[^]]*\]\([^)]*\)|\[!\[.*?\)\]\(.*?\)|^#[^\n]*$|^\|[-| ]+$|<[^>]*>)",
    re.MULTILINE | re.DOTALL,
)
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # constant, so the same pages give the same archive
# Replacements in the script of the search: it shows all sections with any word of a question,
# instead of ten sections with every word.
SEARCH_CHANGES = (
    ('Yt(n,"and"', 'Yt(n,"or"'),
    ("we({handler:Me,size:10})", "we({handler:Me,size:1e4})"),
)
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Moved</title>
<script>location.replace("{target}" + location.hash)</script>
<noscript><meta http-equiv="refresh" content="0; url={target}"></noscript><link rel="canonical" href="{target}"></head>
<body><p>This page is now at <a href="{target}">{target}</a>.</p></body></html>
"""


def main() -> None:
    build(STAGE, ARCHIVE)
    print(f"wrote {ARCHIVE.relative_to(ROOT)}: {ARCHIVE.stat().st_size / 1e6:.1f} MB")


def build(stage: Path, archive: Path) -> None:
    """Make the site in the folder `stage`, which is emptied before, and pack it."""
    shutil.rmtree(stage, ignore_errors=True)
    copy_sources(stage / "docs")
    (stage / "mkdocs.yml").write_text(json.dumps(configuration(), indent=1), "utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=stage, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{done.stdout}{done.stderr}site: zensical found faults (see above)"
        )
    add_redirects(stage / "site")
    order_results(stage / "site")
    pack(stage / "site", archive)


def copy_sources(target: Path) -> None:
    """Write every page with the links of the site, and the files that pages link to."""
    places = page_places()
    files = set[Path]()
    for source, place in places.items():
        page = Page(source, place, places)
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        (target / place).write_text(page.text(), encoding="utf-8")
        files |= page.files
    for file in files:
        copy = target / file_place(file)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, copy)
    shutil.copytree(ROOT / "scripts/site_assets", target / "assets", dirs_exist_ok=True)
    (target / "assets/recordings.js").write_text(recordings_script(), encoding="utf-8")
    moved = f"window.refoldMovedSections = {json.dumps(moved_sections())};\n"
    (target / "assets/moved-sections.js").write_text(moved, encoding="utf-8")


def recordings_script() -> str:
    """Return the recordings of the player: a page that is opened as a file cannot fetch
    them.
    """
    folder = ROOT / "docs/recordings"
    recordings = {
        file.stem: json.loads(file.read_text("utf-8"))
        for file in sorted(folder.glob("*.json"))
    }
    return f"window.refoldRecordings = {json.dumps(recordings, ensure_ascii=False)};\n"


def moved_sections() -> dict[str, dict[str, str]]:
    """Return, by page and anchor, the page (and mostly the anchor) where that section is now."""
    return tomllib.loads(MOVED_SECTIONS.read_text("utf-8"))


def page_places() -> dict[Path, str]:
    """Return the place on the site of every page, by the page's file in the repository."""
    result = {Path(source): place for source, place in PLACES.items()}
    for folder in (*SECTION_TITLES, "decisions"):
        for file in sorted((ROOT / "docs" / folder).glob("*.md")):
            source = file.relative_to(ROOT)
            result.setdefault(source, str(source.relative_to("docs")))
    for file in sorted((ROOT / "src/refold/learn/course").glob("*.md")):
        result[file.relative_to(ROOT)] = f"course/{file.name}"
    return result


class Page:
    """A page of the repository, as the site has it."""

    def __init__(self, source: Path, place: str, places: dict[Path, str]) -> None:
        self.source, self._place, self._places = source, place, places
        self.files = set[Path]()  # the files that it links to and that are not pages

    def text(self) -> str:
        """Return its Markdown with the links of the site; code is left as it is.

        The search leaves out the decisions and the changelog, which would hide the pages that
        describe how things are.
        """
        parts = FENCES.split(read_source(self.source))
        parts[::2] = [LINK.sub(self._link, part) for part in parts[::2]]
        if GLOSSARY in self._places and self.source != GLOSSARY:
            parts[::2] = self._link_words(parts[::2])
        is_searched = not self._place.startswith(("decisions/", "reference/changelog"))
        # A comment right after a table would become a row of the table.
        return ("" if is_searched else NOT_SEARCHED) + "".join(parts).replace(
            "\n<!-- end -->", "\n\n<!-- end -->"
        )

    def _link_words(self, parts: Sequence[str]) -> list[str]:
        """Link the first use of each word of the glossary to it."""
        target = os.path.relpath(self._places[GLOSSARY], Path(self._place).parent)
        left = set(glossary_words())

        def link(match: re.Match[str]) -> str:
            word = match[0].lower().removesuffix("s")
            if word not in left:
                return match[0]
            left.discard(word)
            return f"[{match[0]}]({target})"

        any_word = re.compile(rf"\b({'|'.join(sorted(left))})s?\b", re.IGNORECASE)
        pieces = [NOT_PROSE.split(part) for part in parts]
        for piece in pieces:
            piece[::2] = [any_word.sub(link, text) for text in piece[::2]]
        return ["".join(piece) for piece in pieces]

    def _link(self, match: re.Match[str]) -> str:
        source = Path(os.path.normpath(self.source.parent / match[2]))
        if not (ROOT / source).is_file():
            return match[0]
        place = self._places.get(source)
        if place is None:
            self.files.add(source)
            place = file_place(source)
        target = os.path.relpath(place, Path(self._place).parent)
        return f"{match[1]}{target}{match[3]}"


def read_source(source: Path) -> str:
    """Return the Markdown of a page; a lesson as its readers get it, with the source that
    it names.
    """
    slugs = {f"{lesson.slug}.md": lesson for lesson in lessons()}
    if source.parent.name == "course":
        return slugs[source.name].text()
    return (ROOT / source).read_text(encoding="utf-8")


@cache
def glossary_words() -> frozenset[str]:
    """Return the words of the glossary that have one meaning in all pages."""
    rows = re.findall(
        r"^\| (\w[\w, ]*) \|", (ROOT / GLOSSARY).read_text("utf-8"), re.MULTILINE
    )
    words = {word for row in rows for word in row.split(", ")}
    return frozenset(words - AMBIGUOUS_WORDS - {"word"})


def file_place(file: Path) -> str:
    """Return the place on the site of a file that is not a page."""
    return str(file.relative_to("docs")) if file.is_relative_to("docs") else f"files/{file}"


def configuration() -> dict[str, object]:
    """Return the configuration of Zensical.

    A page fetches nothing from other sites, and links are checked.
    """
    toggles = (
        (
            "(prefers-color-scheme: light)",
            "default",
            "lucide/sun",
            "Switch to dark colours",
        ),
        ("(prefers-color-scheme: dark)", "slate", "lucide/moon", "Switch to light colours"),
    )
    return {
        "site_name": "refold",
        "site_description": "An agent you can trust with your computer and look inside of.",
        "docs_dir": "docs",
        "nav": navigation(),
        "theme": {
            "font": False,
            "features": [
                "navigation.tabs", "navigation.prune", "navigation.top", "navigation.indexes", "navigation.footer",
                "search.highlight", "content.code.copy",
            ],
            "palette": [
                {"media": media, "scheme": scheme, "toggle": {"icon": icon, "name": name}}
                for media, scheme, icon, name in toggles
            ],
        },
        "extra_css": ["assets/site.css"],
        "extra_javascript": [
            "assets/recordings.js", "assets/player.js", "assets/moved-sections.js", "assets/follow-moved.js",
        ],
        "extra": {"generator": False},
        "markdown_extensions": [
            "attr_list", "tables", "md_in_html", "sane_lists",
            {"toc": {"permalink": True}},
            "pymdownx.superfences", "pymdownx.highlight", "pymdownx.inlinehilite",
        ],
    }  # fmt: skip


def navigation() -> list[object]:
    """Return the index as the home page, then the sections, the course
    after the first of them, and the decisions.
    """
    named = set(page_places().values())
    result: list[object] = [{"Home": "index.md"}]
    for section, title in SECTION_TITLES.items():
        pages = [p for p in index_order() if p.startswith(f"{section}/") and p in named]
        rest = sorted(p for p in named if p.startswith(f"{section}/") and p not in pages)
        result.append({title: [*pages, *rest]})
        if section == "start":
            result.append({"Course": sorted(p for p in named if p.startswith("course/"))})
    return [*result, {"Decisions": "decisions/index.md"}]  # the index lists all decisions


def index_order() -> list[str]:
    """Return the pages in the order in which docs/README.md names them."""
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    return list(dict.fromkeys(target for _, target, _ in LINK.findall(index)))


def add_redirects(site: Path) -> None:
    """Add redirects from the addresses that pages had when all of them were in one folder."""
    for place in page_places().values():
        section, _, name = place.removesuffix(".md").partition("/")
        folder = site / OLD_NAMES.get(f"{section}/{name}", name)
        if section in SECTION_TITLES and not folder.exists():
            folder.mkdir()
            target = html.escape(f"../{section}/{name}/")
            (folder / "index.html").write_text(REDIRECT.format(target=target), "utf-8")


def order_results(site: Path) -> None:
    """Change the search: it finds sections with any word of a question, and orders them.

    `search-order.js` orders them.
    """
    (worker,) = (site / "assets/javascripts/workers").glob("search.*.js")
    script = worker.read_text("utf-8")
    for old, new in SEARCH_CHANGES:
        if script.count(old) != 1:
            raise SystemExit(
                f"site: the search of zensical has changed: there is no {old!r}"
            )
        script = script.replace(old, new)
    order = (ROOT / "scripts/site_assets/search-order.js").read_text("utf-8")
    worker.write_text(f"{script}\n{order}", "utf-8")
    (site / "assets/search-order.js").unlink()


def pack(site: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(site.rglob("*")):
            if file.is_file():
                entry = zipfile.ZipInfo(str(file.relative_to(site)), ZIP_DATE)
                packed.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
