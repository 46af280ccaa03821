"""Finds skills in their folders, and says why a skill is ignored.

The folders are read as untrusted (`directories`). `catalogue` reads the content of a skill.
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
    """A folder with a SKILL.md. `folder` is absolute, links resolved.

    `told`: whether the model sees it. Some are for the user to call only.
    """

    name: str
    description: str
    folder: str
    where: str  # the place it was found in, for a person: "~/.claude/skills"
    whose: Whose = "yours"
    told: bool = True


class SkillScan(Struct, frozen=True):
    """`problems` are sentences for the user: what was ignored, and why."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # findings that are intended, and shown on request


SKILL_FILE = "SKILL.md"
MAX_FILE_BYTES = 256 * 1024  # bytes of a SKILL.md
MAX_SKILLS = 200  # skills of one place
_LONGEST_NAME, _LONGEST_DESCRIPTION = 64, 1024


class _Wrong(Exception):
    """A folder that is meant to be a skill and is none; the text says why."""


class _Read(Struct, frozen=True):
    skill: Skill
    content: bytes


def find_skills(places: Iterable[SkillFolder]) -> SkillScan:
    """All skills, in order of precedence, and the problems of the others."""
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
                # The user replaced a shipped skill on purpose.
                wanted = place.whose == "shipped" and winner.whose == "yours"
                (notes if wanted else problems).append(message)
    return SkillScan(tuple(r.skill for r in taken.values()), tuple(problems), tuple(notes))


def _skills_in(
    place: SkillFolder, problems: list[str], real_paths: set[str]
) -> Iterator[_Read]:
    """The skills in a place. Adds to `real_paths`, the folders searched so far.

    Two places may be links to one folder, which is searched once.
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
    """The names in a place that may be skills, sorted."""
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
    if place.bound and not below(folder, place.bound):
        raise _Wrong(f"it is a link that leads out, to {escape_name(folder)}")
    try:
        # In a folder of the person's own, and in ours, an installer may use links.
        bound = folder if place.whose == "project" else ""
        # What we ship we need not read as untrusted, which takes ten times as long.
        path = os.path.join(folder, SKILL_FILE)
        if place.whose == "shipped":
            content = read_shipped(path, MAX_FILE_BYTES)
        else:
            content = content_of(path, bound, MAX_FILE_BYTES, place.trusted)
    except FileNotFoundError:
        return _check_misspelt(folder)
    except ToolFailed as error:
        raise _Wrong(f"{SKILL_FILE}: {str(error).rstrip('.')}") from error
    front = parse_front(content)
    _check(front, name)
    description = " ".join(
        escape_marks(visible_text(front.values.get("description") or "")).split()
    )
    hidden = (front.values.get("disable-model-invocation") or "").lower() == "true"
    skill = Skill(name, description, folder, place.called, place.whose, not hidden)
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
    for key, longest in (("name", _LONGEST_NAME), ("description", _LONGEST_DESCRIPTION)):
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
    parts = name.split("-")
    return name.isascii() and all(p.isalnum() and p == p.lower() for p in parts)


def _check_misspelt(folder: str) -> None:
    """Raise `_Wrong` if a folder without SKILL.md has that name in other letter case."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    candidates = next((n for n in names if n.casefold() == SKILL_FILE.casefold()), "")
    if candidates:
        raise _Wrong(f"it has a file {candidates}: name it {SKILL_FILE}")
