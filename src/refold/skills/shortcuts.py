"""What `/name words` stands for where it is no command: a template, a file, or a skill.

Built-in commands win, then templates, then files of commands, then skills; `/skill:name`
names what lost.
Reading lines and asking for what is missing is the doors' business.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from refold.errors import BadInput, ToolFailed
from refold.place.names import escaped
from refold.skills.catalogue import Catalogue
from refold.skills.command_files import CommandFile, command_files, read, said
from refold.skills.places import SkillScope, of_commands, of_templates
from refold.skills.skill import Skill
from refold.skills.templates import Template, filled, given, missing, templates

PREFIX = "skill:"
Shortcut: TypeAlias = Template | CommandFile | Skill
_OURS = "refold"  # where a template stands that comes with it


class Offered(NamedTuple):
    """How a shortcut is written, what may follow, and what it is for."""

    name: str  # "/fix"
    usage: str  # "<file>"
    about: str


class Shortcuts:
    """`taken` are the names of the built-in commands, without the slash."""

    def __init__(
        self, catalogue: Catalogue, around: SkillScope, taken: Collection[str]
    ) -> None:
        self._catalogue, self._taken = catalogue, frozenset(taken)
        found, problems = templates(of_templates(around))
        files, others = command_files(of_commands(around))
        shipped = {each.name: each for each in found if each.where == _OURS}
        written = {each.name: each for each in found if each.where != _OURS}
        lost = tuple(
            f"the command {escaped(each.where)} does not count: the template /{each.name} "
            f"in {escaped(written[each.name].where)} comes first"
            for each in files
            if each.name in written
        )
        self._problems = (*problems, *others, *lost)
        self._templates: dict[str, Template | CommandFile] = {
            **shipped, **{each.name: each for each in files}, **written,
        }  # fmt: skip

    def notices(self) -> tuple[str, ...]:
        """What of the templates does not count, or goes by another name."""
        lost = sorted(self._taken & self._templates.keys())
        return (
            *self._problems,
            *(f"/{n} is a command: yours is /{PREFIX}{n}" for n in lost),
        )

    def offered(self) -> tuple[Offered, ...]:
        """All that can be written, for lists and completion."""
        written = [self._offered(each) for each in self._templates.values()]
        others = self._taken | self._templates.keys()
        skills = [
            Offered(self._written(each.name, others), "[task]", each.description)
            for each in self._catalogue.found.skills
        ]
        return tuple(sorted((*written, *skills)))

    def find(self, name: str) -> Shortcut | None:
        """What `/name` stands for, if it is one. `name` is without the slash."""
        wanted = name.casefold()
        if wanted in self._taken:
            return None
        skill = self._skill(wanted.removeprefix(PREFIX))
        template = self._templates.get(wanted.removeprefix(PREFIX))
        if wanted.startswith(PREFIX):
            return skill or template
        return template or skill

    def missing(self, name: str, words: str) -> tuple[str, ...]:
        """The arguments that a person has to be asked for before `expanded`."""
        found = self.find(name)
        if not isinstance(found, Template):
            return ()
        return missing(found, given(found, words))

    def expanded(self, name: str, words: str, answers: Mapping[str, str]) -> str:
        """What is said instead of `/name words`; `answers` are for what was missing.

        Raises `BadInput` where there is no such shortcut or a value is still missing.
        """
        found = self.find(name)
        match found:
            case Template():
                values = {**given(found, words), **answers}
                if left := missing(found, values):
                    raise BadInput(
                        f"/{name} takes {found.usage}: {' and '.join(left)} is missing"
                    )
                return filled(found, values, words)
            case CommandFile():
                try:
                    return said(read(found), words)
                except ToolFailed as error:
                    raise BadInput(str(error)) from error
            case Skill():
                task = words.strip() or "ask what to do with it, if it is not clear."
                try:
                    text = self._catalogue.told(found.name)
                except ToolFailed as error:
                    raise BadInput(str(error)) from error
                return f"Use the skill {found.name}: {task}\n\n{text}"
            case None:
                raise BadInput(f"there is no command or skill /{escaped(name)[:80]}")

    def _offered(self, each: Template | CommandFile) -> Offered:
        name = self._written(each.name, self._taken)
        if isinstance(each, Template):
            return Offered(name, each.usage, each.about)
        try:
            written = read(each)
        except ToolFailed as error:
            return Offered(name, "", f"does not count: {error}")
        return Offered(name, written.usage, written.about)

    def _skill(self, name: str) -> Skill | None:
        return next((s for s in self._catalogue.found.skills if s.name == name), None)

    def _written(self, name: str, taken: Collection[str]) -> str:
        return f"/{PREFIX}{name}" if name in taken else f"/{name}"
