"""Lists the skills, and reads the text and the files of a skill, for the skill tools.

The list is read once, so that the system prompt does not change; a skill is read at each use.
Nothing outside of a skill's folder is read.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy

from refold.errors import BadInput, ToolFailed
from refold.permissions.facts import Facts, is_protected
from refold.place.files import DiskFiles
from refold.place.port import Real
from refold.skills.directories import (
    AGENT0,
    COMMAND_FOLDERS,
    TEMPLATES,
    SkillScope,
    content_of,
    project_files,
    project_folders,
    project_skill_folders,
    skill_folders,
)
from refold.skills.discovery import (
    MAX_FILE_BYTES,
    SKILL_FILE,
    Skill,
    SkillScan,
    find_skills,
)
from refold.skills.front_matter import BadFrontMatter, split
from refold.values.path_names import below
from refold.values.printable_names import escape_name, shorten
from refold.values.text import TrustedText, escape_marks, trust_unchanged, visible_text

_MAX_FILE_BYTES = 2 * 1024 * 1024  # bytes of a file that is shown as text
_MAX_FILES, _MAX_DEPTH = 100, 4  # of a skill's files that are listed
_MAX_NOTICES = 5  # problems at the start; `refold skills list` has them all
_MAX_NAMES_IN_ERROR, _MAX_ERROR_NAME_CHARS = 50, 80
_HIDDEN_NAMES = ("__pycache__", "node_modules")
TEXT_SUFFIX = ".md"


class Catalogue:
    """Lists, searches and reads the skills of the folders in `scope`.

    The methods read the disk: call them in a thread.
    """

    def __init__(self, scope: SkillScope) -> None:
        self._scope = scope
        self._first_scan: SkillScan | None = None
        self._why_unreadable: Callable[[Real], str] = lambda real: ""

    def with_restrictions(self, why_unreadable: Callable[[Real], str]) -> "Catalogue":
        """Return a copy of this catalogue that refuses files.

        A file is refused if `why_unreadable` returns a reason for it, and not "".
        """
        result = copy(self)
        result._why_unreadable = why_unreadable
        return result

    @property
    def scan(self) -> SkillScan:
        """The skills as they were first found: the system prompt must not change."""
        if self._first_scan is None:
            self._first_scan = self.scan_again()
        return self._first_scan

    def scan_again(self) -> SkillScan:
        """Search the folders again, and return the skills.

        The list in the prompt does not change.
        """
        return find_skills(skill_folders(self._scope))

    def list_text(self, budget: int) -> str:
        """Return the list of skills for the system prompt, in at most `budget` characters."""
        return skill_list(self.scan.skills, budget)

    def notices(self) -> tuple[str, ...]:
        """Return sentences about invalid skills, to be shown at the start.

        Skills in folders that are not trusted are not included: `find_untrusted` finds these.
        """
        problems = self.scan.problems
        more = len(problems) - _MAX_NOTICES
        if more <= 0:
            return problems
        last_notice = f"and {more} more skills are ignored: refold skills list"
        return (*problems[:_MAX_NOTICES], last_notice)

    def every_notice(self) -> tuple[str, ...]:
        """Return sentences for `refold skills`: ignored folders, invalid skills, and notes."""
        return (*_find_ignored(self._scope), *self.scan.problems, *self.scan.notes)

    def skill(self, name: str) -> Skill:
        """Return the skill of this name. Raises `BadInput` if it does not exist."""
        wanted = name.strip().removeprefix("/").removeprefix("skill:").casefold()
        for skill in self.scan.skills:
            if skill.name == wanted:
                return skill
        # The skill may have been written since the first scan.
        skills = {skill.name: skill for skill in self.scan_again().skills}
        if wanted in skills:
            return skills[wanted]
        raise BadInput(_unknown_skill_text(name, list(skills)))

    def search(self, query: str) -> Sequence[tuple[str, str]]:
        """Return name and description of each skill that contains every word of `query`.

        An empty query finds all skills. Skills that the model does not see are left out.
        """
        words = query.casefold().split()
        return [
            (skill.name, skill.description)
            for skill in self.scan_again().skills
            if skill.shown
            and all(w in f"{skill.name} {skill.description}".casefold() for w in words)
        ]

    def text_of(self, name: str) -> str:
        """Return the text of a skill and the list of its files. Raises `ToolFailed`."""
        skill = self._find(name)
        real = os.path.realpath(os.path.join(skill.folder, SKILL_FILE))
        self._check(Real(real), SKILL_FILE, skill)
        body = _body(skill, self._trust_of(skill))
        files = list(_files(skill))
        lines = [f"The skill {skill.name} is in {escape_name(skill.folder)}", "", body]
        if files:
            introduction = (
                "Its files (read_skill shows one, bash runs scripts by their whole path):"
            )
            lines += ["", introduction, *(f"- {name}" for name in files[:_MAX_FILES])]
        if len(files) > _MAX_FILES:
            lines.append(f"- and more than {_MAX_FILES} files in all")
        return "\n".join(lines)

    def content(self, name: str, file: str) -> bytes:
        """Return the content of one file of a skill. Raises `ToolFailed`."""
        skill = self._find(name)
        # An installer may have made our own skills of links into a store of its own.
        if skill.whose == "shipped":
            path = os.path.normpath(os.path.join(skill.folder, file))
            if below(path, skill.folder):
                return _read_shipped(path, f"{skill.name}/{file}")
        files = DiskFiles(skill.folder).only(())
        real = files.real(file)
        if files.kind(real) == "nothing":
            names = ", ".join(_files(skill)) or "none but SKILL.md"
            raise ToolFailed(
                f"The skill {skill.name} has no file {escape_name(file)!r}. Its files: {names}."
            )
        self._check(real, file, skill)
        # Only Markdown files are instructions, and their trust is checked. The other files of
        # a skill are data and programs.
        if not real.endswith(TEXT_SUFFIX):
            return files.read(real, _MAX_FILE_BYTES)
        return content_of(real, skill.folder, _MAX_FILE_BYTES, self._trust_of(skill))

    def _trust_of(self, skill: Skill) -> TrustedText:
        return self._scope.trusted_text if skill.whose == "project" else trust_unchanged

    def _check(self, real: Real, file: str, skill: Skill) -> None:
        """Raise `ToolFailed` if the file is protected, or if a rule denies to read it."""
        # The name in the skill is checked as well, as if the skill were the whole disk.
        path_in_skill = f"/{os.path.relpath(real, skill.folder)}"
        candidates = (real, path_in_skill)
        if any(is_protected(path, Facts(), writes=False) for path in candidates):
            raise ToolFailed(
                f"{escape_name(file)} may contain secrets and is not part of a skill."
            )
        if reason := self._why_unreadable(real):
            raise ToolFailed(f"{escape_name(file)} is not read: {reason}")

    def _find(self, name: str) -> Skill:
        """Return the skill of this name. Raises `ToolFailed` if it does not exist."""
        try:
            return self.skill(name)
        except BadInput as error:
            raise ToolFailed(str(error)) from error


def find_untrusted(scope: SkillScope) -> tuple[str, ...]:
    """Return the names of untrusted skill folders, command folders and template files."""
    folders = (*project_skill_folders(scope), *project_folders(scope, COMMAND_FOLDERS))
    files = project_files(scope, TEMPLATES, AGENT0)
    existing = (
        *(folder for folder in folders if os.path.isdir(folder.path)),
        *(file for file in files if os.path.isfile(file.path)),
    )
    return tuple(
        escape_name(place.called)
        for place in existing
        if not (scope.trusted and below(place.path, scope.trusted))
    )


def _find_ignored(scope: SkillScope) -> Iterator[str]:
    """Yield one sentence about the folders that are ignored; nothing if there are none."""
    if names := find_untrusted(scope):
        yield (
            f"{' and '.join(names)}: this folder is not trusted, so these skills are "
            "ignored (refold trust add)"
        )


def _body(skill: Skill, trusted: TrustedText) -> str:
    """Return the text of a skill after its front matter. Raises `ToolFailed`."""
    bound = skill.folder if skill.whose == "project" else ""
    try:
        path = os.path.join(skill.folder, SKILL_FILE)
        content = content_of(path, bound, MAX_FILE_BYTES, trusted)
        body = split(content.decode("utf-8")).body
        return escape_marks(visible_text(body))
    except FileNotFoundError as error:
        raise ToolFailed(f"The skill {skill.name} has gone.") from error
    except (UnicodeDecodeError, BadFrontMatter, ToolFailed) as error:
        raise ToolFailed(
            f"The skill {skill.name} cannot be read: {str(error).rstrip('.')}."
        ) from error


def _read_shipped(path: str, label: str) -> bytes:
    """Return the content of a file of a skill that refold ships. `label` names it in errors."""
    try:
        return content_of(path, bound="", at_most=_MAX_FILE_BYTES)
    except FileNotFoundError as error:
        raise ToolFailed(f"There is no file {escape_name(label)}.") from error


def _files(skill: Skill) -> Iterator[str]:
    """Yield the names of a skill's files except SKILL.md, down to `_MAX_DEPTH` levels.

    After `_MAX_FILES` names, only one more is yielded, which shows that there are more.
    """
    files = DiskFiles(skill.folder)
    waiting = [(skill.folder, "", 0)]  # a folder, its name in the skill, and its depth
    count = 0
    while waiting:
        folder, prefix, depth = waiting.pop()
        try:
            items = files.items(Real(folder))
        except ToolFailed:
            continue
        for item in items[: _MAX_FILES + 1]:
            name = prefix + item.name
            is_hidden = item.name.startswith(".") or item.name in _HIDDEN_NAMES
            if is_hidden or name == SKILL_FILE:
                continue
            if item.kind == "directory" and depth < _MAX_DEPTH:
                waiting.append((os.path.join(folder, item.name), name + "/", depth + 1))
            elif item.kind in ("file", "link"):
                count += 1
                yield escape_name(name)
                if count > _MAX_FILES:
                    return


def _unknown_skill_text(name: str, names: Sequence[str]) -> str:
    """Return the error for an unknown skill, with one similar name or else the first names."""
    from refold.values.similar_names import similar

    wanted = name.strip().casefold()
    candidates = [known_name for known_name in names if wanted and wanted in known_name]
    candidates = candidates or similar(wanted, names, 1)
    if not names:
        hint = "there are none"
    elif candidates:
        hint = f"did you mean {candidates[0]}?"
    else:
        hint = f"there are {', '.join(names[:_MAX_NAMES_IN_ERROR])}"
    return f"there is no skill {escape_name(name)[:_MAX_ERROR_NAME_CHARS]!r}; {hint}"


LIST_INTRODUCTION = (
    "Skills are instructions for kinds of work. Before you do work of one of these kinds, "
    "read its skill with read_skill, and follow it."
)
LIST_CHARS = 4_000  # characters of the list in the system prompt
_MIN_DESCRIPTION_CHARS = 24  # of a description; a shorter one says nothing useful
_MORE_LINE = "- and {} more: list_skills finds them."
_NUMBER_CHARS = 8  # enough for the number in that line
_RESERVED_CHARS = 10  # for the number and the ends of two lines


def skill_list(skills: Sequence[Skill], budget: int = LIST_CHARS) -> str:
    """Return the names and descriptions of skills in at most `budget` characters.

    Return "" if the model sees no skill, or the budget is too small. A list that is too long is
    cut: first, the longest descriptions are shortened; if that is not enough, all descriptions
    are left out; finally, the last names are left out, and a line says how many.
    """
    shown = [skill for skill in skills if skill.shown]
    min_budget = len(LIST_INTRODUCTION) + len(_MORE_LINE) + _RESERVED_CHARS
    if not shown or budget < min_budget:
        return ""
    line_lengths = (len(skill.name) + len("\n- : ") for skill in shown)
    description_budget = budget - len(LIST_INTRODUCTION) - sum(line_lengths)
    lengths = [len(skill.description) for skill in shown]
    max_chars = _max_length(lengths, description_budget)
    if max_chars >= min(_MIN_DESCRIPTION_CHARS, max(lengths)):
        lines = [f"- {s.name}: {shorten(s.description, max_chars)}" for s in shown]
    else:
        lines = _name_lines(shown, budget - len(LIST_INTRODUCTION) - len("\n"))
    return "\n".join((LIST_INTRODUCTION, *lines))


def _max_length(lengths: Sequence[int], max_chars: int) -> int:
    """Return the length at which texts must be cut so that all of them fit in `max_chars`.

    `lengths` are the lengths of the texts. Texts that are shorter are not cut.
    """
    waiting, chars_left = sorted(lengths), max_chars
    while waiting:
        share = chars_left // len(waiting)
        if waiting[0] > share:
            return share
        chars_left -= waiting.pop(0)
    return max(lengths)  # all texts fit


def _name_lines(skills: Sequence[Skill], max_chars: int) -> list[str]:
    """Return a line for each skill's name, in at most `max_chars` characters.

    If some names do not fit, the last line says how many.
    """
    lines = list[str]()
    for index, skill in enumerate(skills):
        line = f"- {skill.name}"
        is_last = index == len(skills) - 1
        # After each line but the last, there must still be room for the number of the others.
        reserve = 0 if is_last else len(_MORE_LINE) + _NUMBER_CHARS
        used_chars = sum(len(text) + len("\n") for text in lines)
        if used_chars + len(line) + reserve > max_chars:
            return [*lines, _MORE_LINE.format(len(skills) - index)]
        lines.append(line)
    return lines
