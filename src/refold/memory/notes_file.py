"""Parses and writes one file of notes: Markdown with four sections, and the user's own text.

The user may add other headings, lines without a dash, and text without a heading; all of it is
preserved. `grounding` decides which notes may be added, `notes` stores the file. Pure.
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

# A Markdown heading, of which the second group is the text.
_HEADING_PATTERN = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)[\s#]*$")
# The mark of a list item: a dash, a star, a plus, or a number.
_DASH_PATTERN = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+(?=\S)")
_TITLE_LINE = "# Memory"


class NoteLine(Struct, frozen=True):
    """One note. `section` is the heading above it, or "" if there is none."""

    section: str
    text: str


class PageSection(Struct, frozen=True):
    """A heading and the lines below it.

    Below one of refold's four headings, each line is a note without its dash. Below any other
    heading, lines are as the user wrote them.
    """

    heading: str  # as written; "" for the part before the first heading
    lines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        match = _HEADING_PATTERN.match(self.heading)
        return match[2] if match else ""

    @property
    def section(self) -> Section | None:
        """The section of refold that the heading names; None if the heading is the user's own."""
        for section in SECTION_NAMES:
            if normalize(section) == normalize(self.name):
                return section
        return None


class Page(Struct, frozen=True):
    """The parsed content of a file of notes."""

    parts: tuple[PageSection, ...] = ()

    @property
    def lines(self) -> tuple[NoteLine, ...]:
        """All notes in order, also those below the user's own headings."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[NoteLine]:
        """Yield each line that is not blank as a note, without its dash."""
        for part in self.parts:
            for raw in part.lines:
                if text := _DASH_PATTERN.sub("", raw, count=1).strip():
                    yield NoteLine(part.section or part.name, text)


def read(text: str) -> Page:
    """Parse the content of a file of notes. Any text is valid."""
    parts = [PageSection(heading="")]
    for raw in text.splitlines():
        if _HEADING_PATTERN.match(raw):
            parts.append(PageSection(raw.strip()))
            continue
        part = parts[-1]
        # A section of the user's own stays as it is written.
        lines = _add_line(part.lines, raw) if part.section else (*part.lines, raw.rstrip())
        parts[-1] = replace(part, lines=lines)
    return Page(tuple(_trim_blank(part) for part in _join_sections(parts)))


def page_text(page: Page) -> str:
    """Return the page as the content of a file. Any missing section of refold's four is added."""
    sections = {part.section for part in page.parts}
    has_title = any(part.heading == _TITLE_LINE for part in page.parts)
    title = () if has_title else (PageSection(_TITLE_LINE),)
    new = tuple(PageSection(f"## {name}") for name in SECTION_NAMES if name not in sections)
    pieces = [_as_text(part) for part in (*title, *page.parts, *new)]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def with_note(page: Page, section: Section, text: str, replaces: str = "") -> Page:
    """Return the page with this note at the end of `section`.

    The note whose text is `replaces` is removed, and so are notes that say nearly the same. If
    the page already has the note, it stays at its place.
    """
    note = one_line(text, MAX_LINE_CHARS)
    if replaces and normalize(replaces) != normalize(note):
        page = without_notes(page, lambda line: normalize(line.text) == normalize(replaces))
    if any(normalize(line.text) == normalize(note) for line in page.lines):
        return page
    # Notes below the user's own headings stay.
    page = without_notes(
        page, lambda line: line.section in SECTION_NAMES and _replaces(note, line.text)
    )
    if not any(part.section == section for part in page.parts):
        page = Page((*page.parts, PageSection(f"## {section}")))
    parts = list[PageSection]()
    for part in page.parts:
        if part.section == section:
            parts.append(replace(part, lines=(*part.lines, note)))
        else:
            parts.append(part)
    return Page(tuple(parts))


def _replaces(text: str, old: str) -> bool:
    """Whether the note `text` replaces the note `old` because both say nearly the same.

    A prohibition is replaced only by another prohibition.
    """
    return is_nearly_same(old, text) and (forbids(text) or not forbids(old))


def without_notes(page: Page, is_removed: Callable[[NoteLine], bool]) -> Page:
    """Return the page without the notes for which `is_removed` returns True."""
    parts = list[PageSection]()
    for part in page.parts:
        kept_lines = list[str]()
        for raw in part.lines:
            text = _DASH_PATTERN.sub("", raw, count=1).strip()
            is_blank = not text
            if is_blank or not is_removed(NoteLine(part.section or part.name, text)):
                kept_lines.append(raw)
        parts.append(replace(part, lines=tuple(kept_lines)))
    return Page(tuple(parts))


def shorten_page(
    page: Page, max_bytes: int = MAX_FILE_BYTES
) -> tuple[Page, tuple[NoteLine, ...]]:
    """Remove notes until the page fits into `max_bytes`. Return the page and the removed notes.

    The first to go is the oldest note of the longest section of refold. Text below the user's
    own headings is removed last, from its end.
    """
    removed: list[NoteLine] = []
    while len(page_text(page).encode()) > max_bytes:
        parts = [part for part in page.parts if part.lines]
        our_parts = [part for part in parts if part.section]
        if our_parts:
            part = max(our_parts, key=_size)
            removed_line, lines = part.lines[0], part.lines[1:]
        elif parts:
            part = max(parts, key=_size)
            removed_line, lines = part.lines[-1], part.lines[:-1]
        else:
            break
        removed.append(NoteLine(part.section or part.name, removed_line.strip()))
        shorter = replace(part, lines=lines)
        page = Page(tuple(shorter if p is part else p for p in page.parts))
    without_blank_lines = tuple(line for line in removed if line.text)
    return page, without_blank_lines


def _add_line(lines: tuple[str, ...], raw: str) -> tuple[str, ...]:
    """Return the notes of a section after the line `raw` of the file.

    The line is a new note, or continues the last note if it is indented and has no dash.
    """
    text = raw.strip()
    if not text:
        return lines
    if raw[:1].isspace() and lines and not _DASH_PATTERN.match(raw):
        return (*lines[:-1], f"{lines[-1]} {text}")
    return (*lines, _DASH_PATTERN.sub("", raw, count=1).strip())


def _join_sections(parts: list[PageSection]) -> list[PageSection]:
    """Return the parts; if a section of refold occurs repeatedly, it is joined into the first."""
    joined: list[PageSection] = []
    positions = dict[Section, int]()  # in `joined`
    for part in parts:
        if part.section in positions:
            position = positions[part.section]
            first = joined[position]
            joined[position] = replace(first, lines=(*first.lines, *part.lines))
            continue
        if part.section:
            positions[part.section] = len(joined)
        joined.append(part)
    return joined


def _trim_blank(part: PageSection) -> PageSection:
    """Return the part without empty lines at its start and end."""
    text = "\n".join(part.lines).strip("\n")
    return replace(part, lines=tuple(text.split("\n")) if text else ())


def _as_text(part: PageSection) -> str:
    """Return the part as Markdown: its heading, then its lines."""
    if part.section:
        return "\n".join((part.heading, *(f"- {line}" for line in part.lines)))
    body = "\n".join(part.lines)
    return "\n\n".join(text for text in (part.heading, body) if text)


def _size(part: PageSection) -> int:
    # Each line has a dash, a blank and a line end, too.
    return sum(len(line.encode()) + 3 for line in part.lines)


# Control and invisible characters, surrogates, private and unassigned ones.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_JOINER_CHARS = "\u200c\u200d"  # invisible, but needed
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_TAG_PATTERN = re.compile(r"<(?=[\s/!?]*[^\W\d])")


def to_plain(text: str) -> str:
    """Return `text` without invisible characters, with LF as the only line end."""
    text = unicodedata.normalize("NFC", text)
    text = _LINE_ENDS.sub("\n", text).replace("\t", " ")
    letters = list[str]()
    previous = " "
    for letter in text:
        if not may_follow(letter, previous):
            continue
        if visible := _visible_letter(letter):
            letters.append(visible)
            previous = visible
    return "".join(letters)


def one_line(text: str, max_chars: int) -> str:
    """Return `text` on one line of at most `max_chars`, without invisible characters."""
    return shorten(" ".join(to_plain(text).split()), max_chars)


def escape_tags(text: str) -> str:
    """Return `text` as `to_plain` does, and with ‹ for each < that could begin a tag."""
    return _TAG_PATTERN.sub("‹", to_plain(text))


def _visible_letter(letter: str) -> str:
    """Return the character; "" if it is invisible, and " " for any kind of blank."""
    if letter == "\n" or letter in _JOINER_CHARS:
        return letter
    category = unicodedata.category(letter)
    if category in _UNSEEN_CATEGORIES:
        return ""
    return " " if category.startswith("Z") else letter
