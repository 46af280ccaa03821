"""One file of notes: Markdown with four sections, and whatever else the user wrote.

Pure. Reading accepts other headings, lines without a dash, and no heading at all; writing
preserves them. `grounding` decides what may be added, `notes` stores it.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from refold.memory.grounding import forbids, is_nearly_same, normalize
from refold.values.printable_names import shorten
from refold.values.text import may_follow

Section: TypeAlias = Literal["Preferences", "Project facts", "Decisions", "Corrections"]
SECTION_NAMES: tuple[Section, ...] = get_args(Section)
MAX_FILE_BYTES = 4_096
MAX_LINE_CHARS = 300  # of a line that refold writes

_HEADING_PATTERN = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)[\s#]*$")
_DASH_PATTERN = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(?=\S)")
_TITLE_LINE = "# Memory"


class NoteLine(Struct, frozen=True):
    """One note. `section` is its heading, "" before the first."""

    section: str
    text: str


class PageSection(Struct, frozen=True):
    """The lines below one heading. In the four sections of refold they have no dashes."""

    heading: str  # as written; "" for the part before the first
    lines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        match = _HEADING_PATTERN.match(self.heading)
        return match[2] if match else ""

    @property
    def section(self) -> Section | None:
        return next(
            (s for s in SECTION_NAMES if normalize(s) == normalize(self.name)), None
        )


class Page(Struct, frozen=True):
    parts: tuple[PageSection, ...] = ()

    @property
    def lines(self) -> tuple[NoteLine, ...]:
        """Every note, in order, below any heading."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[NoteLine]:
        for part in self.parts:
            for raw in part.lines:
                if text := _DASH_PATTERN.sub("", raw, count=1).strip():
                    yield NoteLine(part.section or part.name, text)


def read(text: str) -> Page:
    """The notes of a file, whatever its form."""
    parts = [PageSection("")]
    for raw in text.splitlines():
        if _HEADING_PATTERN.match(raw):
            parts.append(PageSection(raw.strip()))
            continue
        part = parts[-1]
        lines = _add_line(part.lines, raw) if part.section else (*part.lines, raw.rstrip())
        parts[-1] = replace(part, lines=lines)
    return Page(tuple(_trim_blank(part) for part in _join_sections(parts)))


def page_text(page: Page) -> str:
    """The text of the file. All our sections are in it, new ones in order."""
    sections = {part.section for part in page.parts}
    title = (
        ()
        if any(p.heading == _TITLE_LINE for p in page.parts)
        else (PageSection(_TITLE_LINE),)
    )
    new = tuple(PageSection(f"## {name}") for name in SECTION_NAMES if name not in sections)
    pieces = [_as_text(part) for part in (*title, *page.parts, *new)]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def with_note(page: Page, section: Section, text: str, replaces: str = "") -> Page:
    """The page with this note. What it replaces, or nearly repeats, is removed.

    A note that is in the page already stays where it is.
    """
    text = one_line(text, MAX_LINE_CHARS)
    if replaces and normalize(replaces) != normalize(text):
        page = without_notes(page, lambda line: normalize(line.text) == normalize(replaces))
    if any(normalize(line.text) == normalize(text) for line in page.lines):
        return page
    page = without_notes(
        page, lambda line: line.section in SECTION_NAMES and _replaces(text, line.text)
    )
    if not any(part.section == section for part in page.parts):
        page = Page((*page.parts, PageSection(f"## {section}")))
    parts = (
        replace(p, lines=(*p.lines, text)) if p.section == section else p
        for p in page.parts
    )
    return Page(tuple(parts))


def _replaces(text: str, old: str) -> bool:
    """Whether a note replaces an old one that it does not name. A prohibition is kept."""
    return is_nearly_same(old, text) and (forbids(text) or not forbids(old))


def without_notes(page: Page, is_removed: Callable[[NoteLine], bool]) -> Page:
    """The page without the notes for which `is_removed` returns True."""

    def is_to_keep(part: PageSection, raw: str) -> bool:
        text = _DASH_PATTERN.sub("", raw, count=1).strip()
        return not text or not is_removed(NoteLine(part.section or part.name, text))

    parts = (
        replace(p, lines=tuple(raw for raw in p.lines if is_to_keep(p, raw)))
        for p in page.parts
    )
    return Page(tuple(parts))


def shorten_page(
    page: Page, max_bytes: int = MAX_FILE_BYTES
) -> tuple[Page, tuple[NoteLine, ...]]:
    """The page cut to its size, and the notes that had to be removed.

    The oldest note of the longest of our sections is removed first; what the user wrote
    under other headings is removed last, from its end.
    """
    gone: list[NoteLine] = []
    while len(page_text(page).encode()) > max_bytes:
        ours = [p for p in page.parts if p.section and p.lines]
        others = [p for p in page.parts if not p.section and p.lines]
        if not (ours or others):
            break
        part = max(ours or others, key=_size)
        index = 0 if ours else len(part.lines) - 1
        gone.append(NoteLine(part.section or part.name, part.lines[index].strip()))
        shorter = replace(part, lines=part.lines[:index] + part.lines[index + 1 :])
        page = Page(tuple(shorter if p is part else p for p in page.parts))
    return page, tuple(line for line in gone if line.text)


def _add_line(lines: tuple[str, ...], raw: str) -> tuple[str, ...]:
    """Add a note, or, for an indented line, continue the last one."""
    text = raw.strip()
    if not text:
        return lines
    if raw[:1].isspace() and lines and not _DASH_PATTERN.match(raw):
        return (*lines[:-1], f"{lines[-1]} {text}")
    return (*lines, _DASH_PATTERN.sub("", raw, count=1).strip())


def _join_sections(parts: list[PageSection]) -> list[PageSection]:
    """Join a section of ours that occurs twice."""
    sections: list[PageSection] = []
    for part in parts:
        same = [
            n for n, p in enumerate(sections) if part.section and p.section == part.section
        ]
        if same:
            first = sections[same[0]]
            sections[same[0]] = replace(first, lines=(*first.lines, *part.lines))
        else:
            sections.append(part)
    return sections


def _trim_blank(part: PageSection) -> PageSection:
    """The part without empty lines at its ends."""
    text = "\n".join(part.lines).strip("\n")
    return replace(part, lines=tuple(text.split("\n")) if text else ())


def _as_text(part: PageSection) -> str:
    if part.section:
        return "\n".join((part.heading, *(f"- {line}" for line in part.lines)))
    body = "\n".join(part.lines)
    return f"{part.heading}\n\n{body}" if part.heading and body else part.heading or body


def _size(part: PageSection) -> int:
    return sum(len(line.encode()) + 3 for line in part.lines)


# Control and invisible characters, surrogates, private and unassigned ones.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_JOINER_CHARS = "\u200c\u200d"  # invisible, but needed
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_TAG_PATTERN = re.compile(r"<(?=[\s/!?]*[^\W\d])")


def to_plain(text: str) -> str:
    """`text` with LF as line end, and without invisible characters."""
    text = _LINE_ENDS.sub("\n", unicodedata.normalize("NFC", text)).replace("\t", " ")
    letters, before = list[str](), " "
    for letter in text:
        if may_follow(letter, before) and (visible := _visible_letter(letter)):
            letters.append(visible)
            before = visible
    return "".join(letters)


def one_line(text: str, max_chars: int) -> str:
    """Like `plain`, on one line of at most `max_chars` characters."""
    return shorten(" ".join(to_plain(text).split()), max_chars)


def escape_tags(text: str) -> str:
    """`text` with each `<` that could begin a tag replaced, so that it has no tags."""
    return _TAG_PATTERN.sub("‹", to_plain(text))


def _visible_letter(letter: str) -> str:
    if letter == "\n" or letter in _JOINER_CHARS:
        return letter
    kind = unicodedata.category(letter)
    if kind in _UNSEEN_CATEGORIES:
        return ""
    return " " if kind.startswith("Z") else letter
