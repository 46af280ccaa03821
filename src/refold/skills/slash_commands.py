"""Finds and expands `/name words`: a template, a command file or a skill of this name.

The order of precedence is: built-in commands, templates of the user and the project, command
files, templates that come with refold, skills. `/skill:name` calls a skill even if something
else has precedence. Clients parse the line, and ask for missing arguments.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from refold.errors import BadInput, ToolFailed
from refold.skills.catalogue import Catalogue
from refold.skills.directories import (
    SkillFolder,
    SkillScope,
    command_folders,
    content_of,
    list_entries,
    template_files,
)
from refold.skills.discovery import Skill
from refold.skills.templates import Template, fill, missing, slot_values, templates
from refold.values.printable_names import escape_name
from refold.values.text import TrustedText, trust_unchanged, visible_text

MAX_FILE_BYTES = 256 * 1024  # bytes of a command file
_MAX_COMMANDS = 200  # command files of one folder
_FILE_SUFFIX = ".md"
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.IGNORECASE)
_WORD_PATTERN = re.compile(r'"([^"]*)"(?=\s|$)|\'([^\']*)\'(?=\s|$)|(\S+)')
_PLACEHOLDER_PATTERN = re.compile(r"\$(?:ARGUMENTS\b|([1-9])(?!\d))")
_FRONT_PATTERN = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
# Fields that are read line by line, because their values are often not YAML, as in [number]
# [priority].
_KEY_PATTERN = re.compile(r"^(description|argument-hint):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


class CommandFile(Struct, frozen=True):
    """A Markdown file whose text is sent to the model when the user types `/name`.

    `where` is its path as shown to the user. Its links must not lead out of `bound`.
    """

    name: str  # "review", or "git:review" of the folder git
    path: str
    where: str
    bound: str = ""
    trusted: TrustedText = trust_unchanged


class CommandText(Struct, frozen=True):
    """The content of a command file. `usage` describes the arguments."""

    text: str
    about: str
    usage: str


def command_files(
    places: Iterable[SkillFolder],
) -> tuple[tuple[CommandFile, ...], tuple[str, ...]]:
    """Return all command files, in order of precedence, and sentences about invalid ones."""
    taken, problems = dict[str, CommandFile](), list[str]()
    for place in places:
        for command in _command_files_in(place, problems):
            if command.name not in taken:
                taken[command.name] = command
                continue
            winner = taken[command.name]
            # Two folders may be links to the same one.
            if os.path.realpath(command.path) != os.path.realpath(winner.path):
                problems.append(
                    f"the command {escape_name(command.where)} is ignored: "
                    f"{escape_name(winner.where)} comes first"
                )
    return tuple(taken.values()), tuple(problems)


def read(file: CommandFile) -> CommandText:
    """Read the file, and return its content. Raises `ToolFailed`."""
    try:
        content = content_of(file.path, file.bound, MAX_FILE_BYTES, file.trusted)
        text = content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ToolFailed(f"{escape_name(file.where)} has gone") from error
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{escape_name(file.where)} is not UTF-8 text") from error
    except ToolFailed as error:
        raise ToolFailed(f"{escape_name(file.where)}: {error}") from error
    body = visible_text(text.replace("\r\n", "\n"))
    keys = dict[str, str]()
    if front := _FRONT_PATTERN.match(body):
        keys = {key: _unquote(value) for key, value in _KEY_PATTERN.findall(front[1])}
        body = body[front.end() :]
    body = body.strip()
    if not body:
        raise ToolFailed(f"{escape_name(file.where)} has no text")
    first_line = next(line.strip("# \t") for line in body.splitlines() if line.strip())
    about = keys.get("description") or first_line
    return CommandText(body, about, keys.get("argument-hint", ""))


def fill_arguments(command: CommandText, words: str) -> str:
    """Return the text of a command file with the arguments `words` in its placeholders.

    If it has no placeholders, the arguments follow the text. Placeholders in the arguments
    themselves are not filled.
    """
    # The pattern has a group for each kind of quotes, and one for words without quotes.
    arguments = [
        next(group for group in match.groups() if group is not None)
        for match in _WORD_PATTERN.finditer(words)
    ]

    def value(match: re.Match[str]) -> str:
        """Return all words, or the argument whose number the placeholder has, or ""."""
        if match[1] is None:
            return words.strip()
        index = int(match[1]) - 1
        return arguments[index] if index < len(arguments) else ""

    text, placeholder_count = _PLACEHOLDER_PATTERN.subn(value, command.text)
    if words.strip() and not placeholder_count:
        return f"{text}\n\n{words.strip()}"
    return text


def _command_files_in(
    place: SkillFolder, problems: list[str], folder: str = ""
) -> Iterator[CommandFile]:
    """Yield the command files in a folder; one in a subfolder is named `folder:name`."""
    count = 0
    real = os.path.realpath(os.path.join(place.path, folder))
    called = f"{place.called}/{folder}" if folder else place.called
    skill_folder = SkillFolder(place.path, called, place.whose, place.bound, place.trusted)
    for entry in list_entries(real, skill_folder, "commands", problems):
        stem, suffix = os.path.splitext(entry.name)
        path, location = os.path.join(real, entry.name), f"{called}/{entry.name}"
        if not folder and _NAME_PATTERN.fullmatch(entry.name) and entry.is_dir():
            yield from _command_files_in(place, problems, entry.name)
        elif suffix == _FILE_SUFFIX and not _NAME_PATTERN.fullmatch(stem):
            problems.append(
                f"the command {escape_name(location)} is ignored: use letters, digits, - and _"
            )
        elif suffix == _FILE_SUFFIX:
            count += 1
            if count <= _MAX_COMMANDS:
                name = f"{folder}:{stem}" if folder else stem
                yield CommandFile(name.lower(), path, location, place.bound, place.trusted)
    if count > _MAX_COMMANDS:
        problems.append(
            f"{escape_name(called)}: only the first {_MAX_COMMANDS} commands are used"
        )


def _unquote(value: str) -> str:
    """Return the value without its quotes; "" if its text is on the next lines, as with ">"."""
    if value in (">", "|", ">-", "|-"):
        return ""
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


SKILL_PREFIX = "skill:"
Shortcut: TypeAlias = Template | CommandFile | Skill
_BUILTIN_PLACE = "refold"  # the place of a template that comes with refold


class ShortcutInfo(NamedTuple):
    """The name that the user types, with the arguments and the purpose."""

    name: str  # "/fix"
    usage: str  # "<file>"
    about: str


class Shortcuts:
    """The templates, command files and skills that a user can call with a slash.

    `reserved_names` are the names of built-in commands, without the slash.
    """

    def __init__(
        self, catalogue: Catalogue, scope: SkillScope, reserved_names: Collection[str]
    ) -> None:
        self._catalogue, self._reserved_names = catalogue, frozenset(reserved_names)
        parsed, problems = templates(template_files(scope))
        files, file_problems = command_files(command_folders(scope))
        shipped, written = dict[str, Template](), dict[str, Template]()
        for template in parsed:
            templates_of_kind = shipped if template.where == _BUILTIN_PLACE else written
            templates_of_kind[template.name] = template
        hidden_files = tuple(
            f"the command {escape_name(file.where)} is ignored: the template /{file.name} "
            f"in {escape_name(written[file.name].where)} comes first"
            for file in files
            if file.name in written
        )
        self._problems = (*problems, *file_problems, *hidden_files)
        self._templates: dict[str, Template | CommandFile] = {
            **shipped, **{file.name: file for file in files}, **written,
        }  # fmt: skip

    def notices(self) -> tuple[str, ...]:
        """Return sentences about invalid templates and command files.

        A template or file with the name of a built-in command gets a sentence that says how to
        call it.
        """
        renamed = sorted(self._reserved_names & self._templates.keys())
        return (
            *self._problems,
            *(f"/{n} is a command: yours is /{SKILL_PREFIX}{n}" for n in renamed),
        )

    def infos(self) -> tuple[ShortcutInfo, ...]:
        """Return name, arguments and purpose of everything that the user can call, sorted."""
        written = [self._to_info(template) for template in self._templates.values()]
        used_names = self._reserved_names | self._templates.keys()
        skills = [
            ShortcutInfo(
                self._spelling(skill.name, used_names), "[task]", skill.description
            )
            for skill in self._catalogue.scan.skills
        ]
        return tuple(sorted((*written, *skills)))

    def find(self, name: str) -> Shortcut | None:
        """Return what `/name` calls; None for a built-in or an unknown command.

        `name` has no slash.
        """
        wanted = name.casefold()
        if wanted in self._reserved_names:
            return None
        plain_name = wanted.removeprefix(SKILL_PREFIX)
        skills = self._catalogue.scan.skills
        skill = next((skill for skill in skills if skill.name == plain_name), None)
        template = self._templates.get(plain_name)
        if wanted.startswith(SKILL_PREFIX):
            return skill or template
        return template or skill

    def to_slash(self, typed: str) -> str | None:
        """Return `@name slot=value …` as `/name …`; None if it calls no template."""
        match = re.fullmatch(r"@([\w-]+)((?:\s+[\w-]+=.*)?)", typed.strip(), re.DOTALL)
        if match is None:
            return None
        template = self._templates.get(match[1].casefold())
        if not isinstance(template, Template):
            return None
        return f"{self._spelling(template.name, self._reserved_names)}{match[2]}"

    def missing(self, name: str, text: str) -> tuple[str, ...]:
        """Return the arguments of `/name text` that the client must ask the user for.

        Return () if the name is not that of a template.
        """
        shortcut = self.find(name)
        if not isinstance(shortcut, Template):
            return ()
        return missing(shortcut, slot_values(shortcut, text))

    def expand(self, name: str, words: str, answers: Mapping[str, str]) -> str:
        """Return the text that `/name words` stands for. `answers` are the missing arguments.

        Raises `BadInput` if nothing has this name, or an argument is still missing.
        """
        shortcut = self.find(name)
        match shortcut:
            case Template():
                values = {**slot_values(shortcut, words), **answers}
                if left := missing(shortcut, values):
                    raise BadInput(
                        f"/{name} takes {shortcut.usage}: {' and '.join(left)} is missing"
                    )
                return fill(shortcut, values, words)
            case CommandFile():
                try:
                    return fill_arguments(read(shortcut), words)
                except ToolFailed as error:
                    raise BadInput(str(error)) from error
            case Skill():
                task = words.strip() or "ask what to do with it, if it is not clear."
                try:
                    text = self._catalogue.text_of(shortcut.name)
                except ToolFailed as error:
                    raise BadInput(str(error)) from error
                return f"Use the skill {shortcut.name}: {task}\n\n{text}"
            case None:
                raise BadInput(f"there is no command or skill /{escape_name(name)[:80]}")

    def _to_info(self, shortcut: Template | CommandFile) -> ShortcutInfo:
        """Return how a user types the shortcut and what it does, or why its file is ignored."""
        name = self._spelling(shortcut.name, self._reserved_names)
        if isinstance(shortcut, Template):
            return ShortcutInfo(name, shortcut.usage, shortcut.about)
        try:
            written = read(shortcut)
        except ToolFailed as error:
            return ShortcutInfo(name, "", f"is ignored: {error}")
        return ShortcutInfo(name, written.usage, written.about)

    def _spelling(self, name: str, reserved_names: Collection[str]) -> str:
        """Return how to call `name`: /skill:name if it is reserved, otherwise /name."""
        return f"/{SKILL_PREFIX}{name}" if name in reserved_names else f"/{name}"
