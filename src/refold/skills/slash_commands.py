"""`/name words` that is not a built-in command: a template, a command file or a skill.

Built-in commands come first, then templates, then files of commands, then skills; `/skill:name`
names a skill that another name hides. Clients read the line and ask for missing arguments.
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

MAX_FILE_BYTES = 256 * 1024  # bytes
_MAX_COMMANDS = 200  # of one folder
_FILE_SUFFIX = ".md"
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.IGNORECASE)
_WORD_PATTERN = re.compile(r'"([^"]*)"(?=\s|$)|\'([^\']*)\'(?=\s|$)|(\S+)')
_PLACEHOLDER_PATTERN = re.compile(r"\$(?:ARGUMENTS\b|([1-9])(?!\d))")
_FRONT_PATTERN = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
# Read by line: what follows here is often no YAML, as in [number] [priority].
_KEY_PATTERN = re.compile(r"^(description|argument-hint):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


class CommandFile(Struct, frozen=True):
    """`where` is the file as the user calls it; `bound`: its links may not lead out of it."""

    name: str  # "review", or "git:review" of the folder git
    path: str
    where: str
    bound: str = ""
    trusted: TrustedText = trust_unchanged


class CommandText(Struct, frozen=True):
    """The content of a command file. `usage` says what may follow its name."""

    text: str
    about: str
    usage: str


def command_files(
    places: Iterable[SkillFolder],
) -> tuple[tuple[CommandFile, ...], tuple[str, ...]]:
    """All command files, in order of precedence, and sentences about invalid ones."""
    taken, problems = dict[str, CommandFile](), list[str]()
    for place in places:
        for command in _command_files_in(place, problems):
            if command.name not in taken:
                taken[command.name] = command
            elif os.path.realpath(command.path) != os.path.realpath(
                taken[command.name].path
            ):
                problems.append(
                    f"the command {escape_name(command.where)} is ignored: "
                    f"{escape_name(taken[command.name].where)} comes first"
                )
    return tuple(taken.values()), tuple(problems)


def read(file: CommandFile) -> CommandText:
    """Read the file as it is now. Raises `ToolFailed`."""
    try:
        text = content_of(file.path, file.bound, MAX_FILE_BYTES, file.trusted).decode(
            "utf-8-sig"
        )
    except FileNotFoundError as error:
        raise ToolFailed(f"{escape_name(file.where)} has gone") from error
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{escape_name(file.where)} is not UTF-8 text") from error
    except ToolFailed as error:
        raise ToolFailed(f"{escape_name(file.where)}: {error}") from error
    text = visible_text(text.replace("\r\n", "\n"))
    front = _FRONT_PATTERN.match(text)
    keys = {k: _unquote(v) for k, v in _KEY_PATTERN.findall(front[1])} if front else {}
    body = (text[front.end() :] if front else text).strip()
    if not body:
        raise ToolFailed(f"{escape_name(file.where)} has no text")
    first = next(line.strip("# \t") for line in body.splitlines() if line.strip())
    return CommandText(
        body, keys.get("description") or first, keys.get("argument-hint", "")
    )


def fill_arguments(command: CommandText, words: str) -> str:
    """The text of a command file with the arguments in their places, or after it if it has
    no places.

    What is filled in is not expanded again.
    """
    arguments = [
        next(p for p in w.groups() if p is not None) for w in _WORD_PATTERN.finditer(words)
    ]

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return words.strip()
        index = int(match[1]) - 1
        return arguments[index] if index < len(arguments) else ""

    text, places = _PLACEHOLDER_PATTERN.subn(value, command.text)
    return f"{text}\n\n{words.strip()}" if words.strip() and not places else text


def _command_files_in(
    place: SkillFolder, problems: list[str], folder: str = ""
) -> Iterator[CommandFile]:
    """The command files in a folder, and in its subfolders, where they are `folder:name`."""
    real, many = os.path.realpath(os.path.join(place.path, folder)), 0
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
        elif suffix == _FILE_SUFFIX and (many := many + 1) <= _MAX_COMMANDS:
            name = f"{folder}:{stem}" if folder else stem
            yield CommandFile(name.lower(), path, location, place.bound, place.trusted)
    if many > _MAX_COMMANDS:
        problems.append(
            f"{escape_name(called)}: only the first {_MAX_COMMANDS} commands are used"
        )


def _unquote(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return "" if value in (">", "|", ">-", "|-") else value[1:-1] if quoted else value


SKILL_PREFIX = "skill:"
Shortcut: TypeAlias = Template | CommandFile | Skill
_BUILTIN_PLACE = "refold"  # where a template stands that comes with it


class ShortcutInfo(NamedTuple):
    """How a shortcut is written, what may follow, and what it is for."""

    name: str  # "/fix"
    usage: str  # "<file>"
    about: str


class Shortcuts:
    """`reserved_names` are the names of the built-in commands, without the slash."""

    def __init__(
        self, catalogue: Catalogue, scope: SkillScope, reserved_names: Collection[str]
    ) -> None:
        self._catalogue, self._taken = catalogue, frozenset(reserved_names)
        parsed, problems = templates(template_files(scope))
        files, others = command_files(command_folders(scope))
        shipped = {
            template.name: template
            for template in parsed
            if template.where == _BUILTIN_PLACE
        }
        written = {
            template.name: template
            for template in parsed
            if template.where != _BUILTIN_PLACE
        }
        lost = tuple(
            f"the command {escape_name(template.where)} is ignored: the template /{template.name} "
            f"in {escape_name(written[template.name].where)} comes first"
            for template in files
            if template.name in written
        )
        self._problems = (*problems, *others, *lost)
        self._templates: dict[str, Template | CommandFile] = {
            **shipped, **{template.name: template for template in files}, **written,
        }  # fmt: skip

    def notices(self) -> tuple[str, ...]:
        """The templates that are ignored, or have another name."""
        lost = sorted(self._taken & self._templates.keys())
        return (
            *self._problems,
            *(f"/{n} is a command: yours is /{SKILL_PREFIX}{n}" for n in lost),
        )

    def infos(self) -> tuple[ShortcutInfo, ...]:
        """All that can be written, for lists and completion."""
        written = [self._to_info(template) for template in self._templates.values()]
        others = self._taken | self._templates.keys()
        skills = [
            ShortcutInfo(
                self._spelling(template.name, others), "[task]", template.description
            )
            for template in self._catalogue.scan.skills
        ]
        return tuple(sorted((*written, *skills)))

    def find(self, name: str) -> Shortcut | None:
        """The text of `/name`, if there is one. `name` is without the slash."""
        wanted = name.casefold()
        if wanted in self._taken:
            return None
        name = wanted.removeprefix(SKILL_PREFIX)
        skill = next((s for s in self._catalogue.scan.skills if s.name == name), None)
        template = self._templates.get(name)
        if wanted.startswith(SKILL_PREFIX):
            return skill or template
        return template or skill

    def to_slash(self, typed: str) -> str | None:
        """`@name slot=value …` of a template as `/name …`; None if it is a message."""
        match = re.fullmatch(r"@([\w-]+)((?:\s+[\w-]+=.*)?)", typed.strip(), re.DOTALL)
        if match is None:
            return None
        template = self._templates.get(match[1].casefold())
        if not isinstance(template, Template):
            return None
        return f"{self._spelling(template.name, self._taken)}{match[2]}"

    def missing(self, name: str, text: str) -> tuple[str, ...]:
        """The arguments that the user has to be asked for before `expand`."""
        shortcut = self.find(name)
        if not isinstance(shortcut, Template):
            return ()
        return missing(shortcut, slot_values(shortcut, text))

    def expand(self, name: str, words: str, answers: Mapping[str, str]) -> str:
        """The expansion of `/name words`; `answers` are for missing arguments.

        Raises `BadInput` if there is no such shortcut or an argument is still missing.
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
        name = self._spelling(shortcut.name, self._taken)
        if isinstance(shortcut, Template):
            return ShortcutInfo(name, shortcut.usage, shortcut.about)
        try:
            written = read(shortcut)
        except ToolFailed as error:
            return ShortcutInfo(name, "", f"is ignored: {error}")
        return ShortcutInfo(name, written.usage, written.about)

    def _spelling(self, name: str, reserved_names: Collection[str]) -> str:
        return f"/{SKILL_PREFIX}{name}" if name in reserved_names else f"/{name}"
