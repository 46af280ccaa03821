"""Finds skills in their folders, and explains why a folder is not used as a skill.

The folders are not trusted, so `directories` reads them. `catalogue` reads the content of a
skill.
"""

import os
from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold.errors import ToolFailed
from refold.skills.directories import (
    SkillFolder,
    Whose,
    content_of,
    list_entries,
    read_shipped,
)
from refold.skills.front_matter import BadFrontMatter, FrontMatter, split
from refold.values.path_names import below
from refold.values.printable_names import escape_name
from refold.values.text import escape_marks, visible_text


class Skill(Struct, frozen=True):
    """A skill: a folder with a SKILL.md. `folder` is absolute, with links resolved.

    If `shown` is false, the model does not see the skill, and only the user can call it.
    """

    name: str
    description: str
    folder: str
    where: str  # the place in which it was found, for a person: "~/.claude/skills"
    whose: Whose = "yours"
    shown: bool = True


class SkillScan(Struct, frozen=True):
    """The skills that were found, and sentences: `problems` of ignored skills, and `notes`."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # about skills ignored on purpose; shown on request


SKILL_FILE = "SKILL.md"
MAX_FILE_BYTES = 256 * 1024  # bytes of a SKILL.md
MAX_SKILLS = 200  # skills of one place
_MAX_NAME_CHARS, _MAX_DESCRIPTION_CHARS = 64, 1024


class _Wrong(Exception):
    """Raised for an invalid skill. The text gives the reason."""


class _Read(Struct, frozen=True):
    skill: Skill
    content: bytes


def find_skills(places: Iterable[SkillFolder]) -> SkillScan:
    """Return the skills in these folders in order of precedence, and why others are ignored."""
    taken = dict[str, _Read]()
    problems, notes = list[str](), list[str]()
    real_paths = set[str]()
    for place in places:
        for read in _skills_in(place, problems, real_paths):
            name = read.skill.name
            if name not in taken:
                taken[name] = read
            elif taken[name].content != read.content:
                winner = taken[name].skill
                message = (
                    f"the skill {name} in {place.called} is ignored: the one in "
                    f"{winner.where} comes first"
                )
                if place.whose == "shipped" and winner.whose == "yours":
                    notes.append(message)  # the user replaced a shipped skill on purpose
                else:
                    problems.append(message)
    return SkillScan(tuple(r.skill for r in taken.values()), tuple(problems), tuple(notes))


def _skills_in(
    place: SkillFolder, problems: list[str], real_paths: set[str]
) -> Iterator[_Read]:
    """Yield the skills in a folder, and add to `problems` why others are ignored.

    Folders in `real_paths` are skipped, and searched ones are added to it, because several
    places may be links to the same folder.
    """
    real = os.path.realpath(place.path)
    if real in real_paths:
        return
    real_paths.add(real)
    for name in _list_names(real, place, problems):
        folder = os.path.realpath(os.path.join(real, name))
        if folder in real_paths:
            continue
        real_paths.add(folder)
        try:
            read = _skill(folder, name, place)
        except _Wrong as wrong:
            called = escape_name(f"{place.called}/{name}")
            problems.append(f"the skill in {called} is ignored: {wrong}")
        else:
            if read:
                yield read


def _list_names(real: str, place: SkillFolder, problems: list[str]) -> list[str]:
    """Return the sorted names of those folders in a place that may be skills."""
    names = [
        entry.name
        for entry in list_entries(real, place, "skills", problems)
        if entry.is_symlink() or entry.is_dir()
    ]
    if len(names) > MAX_SKILLS:
        problems.append(
            f"{escape_name(place.called)} has more than {MAX_SKILLS} folders: only the first "
            f"{MAX_SKILLS} skills are used"
        )
    return names[:MAX_SKILLS]


def _skill(folder: str, name: str, place: SkillFolder) -> _Read | None:
    """Return the skill in `folder`; None if it has no SKILL.md.

    Raises `_Wrong` if it is invalid.
    """
    if place.bound and not below(folder, place.bound):
        raise _Wrong(f"it is a link that leads out, to {escape_name(folder)}")
    try:
        # An installer may use links in a folder of the user, and in that of refold.
        bound = folder if place.whose == "project" else ""
        # Skills that come with refold are read without the checks, which take ten times as
        # long.
        path = os.path.join(folder, SKILL_FILE)
        if place.whose == "shipped":
            content = read_shipped(path, MAX_FILE_BYTES)
        else:
            content = content_of(path, bound, MAX_FILE_BYTES, place.trusted)
    except FileNotFoundError:
        _check_misspelt(folder)
        return None
    except ToolFailed as error:
        raise _Wrong(f"{SKILL_FILE}: {str(error).rstrip('.')}") from error
    front = parse_front(content)
    _check(front, name)
    text = visible_text(front.values.get("description") or "")
    description = " ".join(escape_marks(text).split())
    is_hidden = (front.values.get("disable-model-invocation") or "").lower() == "true"
    skill = Skill(name, description, folder, place.called, place.whose, shown=not is_hidden)
    return _Read(skill, content)


def parse_front(content: bytes) -> FrontMatter:
    """Parse the front matter of a SKILL.md. Raises `_Wrong`, which names the line."""
    try:
        return split(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Wrong(f"{SKILL_FILE}, line {line}: this is not UTF-8 text") from error
    except BadFrontMatter as error:
        raise _Wrong(
            f"{SKILL_FILE}, line {error.line}: {escape_name(error.what)}"
        ) from error


def _check(front: FrontMatter, folder: str) -> None:
    """Raise `_Wrong` for a missing, invalid or too long name or description.

    The name must be that of the folder.
    """
    max_chars = {"name": _MAX_NAME_CHARS, "description": _MAX_DESCRIPTION_CHARS}
    for key, longest in max_chars.items():
        value = front.values.get(key)
        if not value or not visible_text(value).strip():
            raise _Wrong(f"{SKILL_FILE}: the front matter has no text as {key!r}")
        if len(value) > longest:
            raise _Wrong(
                f"{SKILL_FILE}: the {key} has {len(value):,} characters; {longest:,} are allowed"
            )
    name = front.values.get("name") or ""
    if not _is_name(name):
        raise _Wrong(
            f"{SKILL_FILE}: the name {escape_name(name)!r} is not of lower-case letters, digits and "
            "single hyphens"
        )
    if name != folder:
        raise _Wrong(
            f"{SKILL_FILE}: it is named {name!r}, and its folder {escape_name(folder)!r}: "
            "the two must be the same"
        )


def _is_name(name: str) -> bool:
    """Return whether the name has only a to z, digits, and single hyphens inside."""
    parts = name.split("-")
    return name.isascii() and all(p.isalnum() and p == p.lower() for p in parts)


def _check_misspelt(folder: str) -> None:
    """Raise `_Wrong` if the folder has a file like skill.md instead of SKILL.md."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    misspelt = next((n for n in names if n.casefold() == SKILL_FILE.casefold()), "")
    if misspelt:
        raise _Wrong(f"it has a file {misspelt}: name it {SKILL_FILE}")
