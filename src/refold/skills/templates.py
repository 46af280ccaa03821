"""Reads and fills templates: `/name <arg>` headings in a skills.md, each with its text.

    ## /fix <file> <what>
    Fix {what} in {file}, and nothing else.

In a file without such headings, a template begins at each line that is only `/name <arg>`.
`<arg>` is required, `[arg]` is optional. The last argument takes the rest of the line.
`directories` finds the files, and clients ask for missing arguments.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from refold.errors import ToolFailed
from refold.skills.directories import SkillFolder, content_of
from refold.values.printable_names import escape_name
from refold.values.text import visible_text

MAX_FILE_BYTES = 256 * 1024  # bytes of a skills.md
_MAX_TEMPLATES = 200  # templates of one file
_HEADING_PATTERN = re.compile(r" {0,3}#{1,6}[ \t]+/(\S+)(?:[ \t]+(.*?))?[ \t]*#*[ \t]*")
_BARE_HEADING = re.compile(
    r"/([A-Za-z0-9][\w-]{0,63})((?:[ \t]+(?:<[^<>]*>|\[[^\[\]]*\]))*)[ \t]*"
)
_STRAY_PATTERN = re.compile(r"/[a-z][\w-]*(?:[ \t]|$)", re.IGNORECASE)
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.IGNORECASE)
_SLOT_PATTERN = re.compile(r"(?:<([\w -]{1,40})>|\[([\w -]{1,40})\])\s*")
_FENCE_PATTERN = re.compile(r" {0,3}(```+|~~~+)")
_WORD_PATTERN = re.compile(r'"([^"]*)"(?=\s|$)|\'([^\']*)\'(?=\s|$)|(\S+)')

_PAIR_PATTERN = re.compile(r'([\w-]+)=(?:"([^"]*)"|\'([^\']*)\'|(\S+))(?:\s+|$)')

_Section: TypeAlias = tuple[int, str, str, str]  # line of the heading, name, slots, text


class Placeholder(Struct, frozen=True):
    name: str
    needed: bool = True


class Template(Struct, frozen=True):
    """A text with `{slots}` for arguments.

    `where` is the path of its file as shown to the user.
    """

    name: str
    slots: tuple[Placeholder, ...]
    text: str
    where: str

    @property
    def usage(self) -> str:
        """The slots as a usage text, like "<file> [what]"."""
        return " ".join(f"<{s.name}>" if s.needed else f"[{s.name}]" for s in self.slots)

    @property
    def about(self) -> str:
        """The first line of the text, for a list of templates."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")


def templates(
    places: Iterable[SkillFolder],
) -> tuple[tuple[Template, ...], tuple[str, ...]]:
    """Return all templates, in order of precedence, and sentences about invalid ones."""
    taken, problems = dict[str, Template](), list[str]()
    for place in places:
        try:
            content = content_of(place.path, place.bound, MAX_FILE_BYTES, place.trusted)
            text = content.decode("utf-8-sig")
        except FileNotFoundError:
            continue
        except UnicodeDecodeError:
            problems.append(f"{escape_name(place.called)} is ignored: it is not UTF-8 text")
            continue
        except ToolFailed as error:
            problems.append(f"{escape_name(place.called)} is ignored: {error}")
            continue
        for template in _parse(text, place.called, problems):
            if template.name not in taken:
                taken[template.name] = template
            elif place.whose != "shipped":  # users replace shipped templates on purpose
                problems.append(
                    f"the template /{template.name} in {escape_name(place.called)} is ignored: "
                    f"the one in {escape_name(taken[template.name].where)} comes first"
                )
    return tuple(taken.values()), tuple(problems)


def slot_values(template: Template, text: str) -> dict[str, str]:
    """Return the values of a template's slots in `text`, the words after `/name`.

    The last slot takes the rest of the words. If all words are `slot=value`, their order is
    free.
    """
    rest = text.strip()
    if named := _values_by_name(template, rest):
        return named
    values = dict[str, str]()
    for index, slot in enumerate(template.slots):
        if not rest:
            break
        if index == len(template.slots) - 1:
            values[slot.name], rest = rest, ""
        elif match := _WORD_PATTERN.match(rest):
            # a group for each kind of quotes, and one for a word without quotes
            values[slot.name] = next(part for part in match.groups() if part is not None)
            rest = rest[match.end() :].strip()
    return values


def _values_by_name(template: Template, text: str) -> dict[str, str]:
    """Return the values in words like `slot=value`; {} if any word is different."""
    # A name with blanks is typed with underscores.
    names_by_word = {slot.name.replace(" ", "_"): slot.name for slot in template.slots}
    values, position = dict[str, str](), 0
    while position < len(text):
        match = _PAIR_PATTERN.match(text, position)
        if match is None or match[1] not in names_by_word:
            return {}
        word, *parts = match.groups()  # a part for each kind of quotes, and one without
        values[names_by_word[word]] = next(part for part in parts if part is not None)
        position = match.end()
    return values


def missing(template: Template, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the required slots without a value, which the user must be asked for."""
    return tuple(
        slot.name
        for slot in template.slots
        if slot.needed and not values.get(slot.name, "").strip()
    )


def fill(template: Template, values: Mapping[str, str], words: str = "") -> str:
    """Return the text of a template with its slots filled.

    `words` follow the text if the template has no slots. A `{slot}` in a value is not filled.
    """
    names = {slot.name for slot in template.slots}

    def value(match: re.Match[str]) -> str:
        return values.get(match[1], "") if match[1] in names else match[0]

    text = re.sub(r"\{([\w -]{1,40})\}", value, template.text)
    extra = words.strip() if not template.slots else ""
    return f"{text}\n\n{extra}" if extra else text


def _parse(text: str, label: str, problems: list[str]) -> Iterator[Template]:
    """Yield the valid templates in a text, and add to `problems` what is wrong with others."""
    sections = tuple(_sections_by(_HEADING_PATTERN, text)) or tuple(
        _sections_by(_BARE_HEADING, text)
    )
    if not sections and (line := _stray_heading_line(text)):
        problems.append(
            f"{escape_name(label)}, line {line}: no template begins here: write it as ## /fix <arg>"
        )
    for count, (line, name, slots, body) in enumerate(sections):
        location = (
            f"{escape_name(label)}, line {line}: the template /{escape_name(name)[:80]}"
        )
        if count == _MAX_TEMPLATES:
            problems.append(
                f"{escape_name(label)}: only the first {_MAX_TEMPLATES} templates are used"
            )
            return
        if not _NAME_PATTERN.fullmatch(name):
            problems.append(f"{location} is ignored: use letters, digits and hyphens")
        elif (placeholders := _slots(slots)) is None:
            problems.append(f"{location} is ignored: write its arguments as <arg>")
        elif not visible_text(body).strip():
            problems.append(f"{location} is ignored: it has no text")
        else:
            yield Template(name.lower(), placeholders, visible_text(body).strip(), label)


def _sections_by(pattern: re.Pattern[str], text: str) -> Iterator[_Section]:
    """Yield the sections below the headings that match, except headings in fenced code.

    Text before the first heading is left out. A fence ends with at least as many of the same
    signs as it begins with.
    """
    head: tuple[int, str, str] | None = None
    body, fence = list[str](), ""
    for number, line in enumerate(text.splitlines(), start=1):
        fence_match = _FENCE_PATTERN.match(line)
        if fence_match and (not fence or fence_match[1].startswith(fence)):
            fence = "" if fence else fence_match[1]  # "" outside of fenced code
        heading = None if fence else pattern.fullmatch(line)
        if heading is None:
            body.append(line)
            continue
        if head:
            yield *head, "\n".join(body)
        slots = (heading[2] or "").strip()
        head, body = (number, heading[1], slots), []
    if head:
        yield *head, "\n".join(body)


def _stray_heading_line(text: str) -> int:
    """Return the number of the first line that looks like a template's heading, or 0."""
    lines = enumerate(text.splitlines(), start=1)
    return next((number for number, line in lines if _STRAY_PATTERN.match(line)), 0)


def _slots(text: str) -> tuple[Placeholder, ...] | None:
    """Parse the arguments in a heading; None if they are invalid, or two have the same name."""
    placeholders, position = list[Placeholder](), 0
    while position < len(text):
        match = _SLOT_PATTERN.match(text, position)
        if match is None:
            return None
        required_name, optional_name = match.groups()  # <name> or [name]
        name = (required_name or optional_name).strip()
        placeholders.append(Placeholder(name, required_name is not None))
        position = match.end()
    names = {placeholder.name for placeholder in placeholders}
    return tuple(placeholders) if len(names) == len(placeholders) else None
