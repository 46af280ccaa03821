"""Settings of what a conversation knows: skills, agents, and notes from earlier ones.

Skills and agents are files: they are listed with what is wrong with them. Notes are added and
forgotten here as by `refold memory` and `/memory`.
"""

from collections.abc import Sequence

from msgspec import Struct

from refold.agents.registry import trust_notice
from refold.app.app import App
from refold.app.search_places import scope_with_trust
from refold.config.set_setting import remember
from refold.errors import BadInput, ToolFailed
from refold.memory.notes import NoteOwner
from refold.skills.catalogue import Catalogue


class SkillRow(Struct, frozen=True):
    """`shown` says whether the model sees it; others are called by the user only."""

    name: str
    description: str
    where: str
    shown: bool


class SkillList(Struct, frozen=True):
    skills: Sequence[SkillRow]
    notices: Sequence[str]


class SkillText(Struct, frozen=True):
    name: str
    text: str


class AgentRow(Struct, frozen=True):
    """`use`: main (for the user), child (for other agents), or both."""

    name: str
    description: str
    where: str
    use: str


class AgentList(Struct, frozen=True):
    agents: Sequence[AgentRow]
    notices: Sequence[str]


class NoteRow(Struct, frozen=True):
    """A note of a project, or about its person."""

    text: str
    section: str
    whose: NoteOwner
    session: str  # the conversation that it was learned from, or ""


class NoteList(Struct, frozen=True):
    """`on` is the setting `memory`: whether conversations get notes and make new ones."""

    on: bool
    notes: Sequence[NoteRow]


class NewNote(Struct, frozen=True, forbid_unknown_fields=True):
    text: str


def list_skills(app: App) -> SkillList:
    scope, changed = scope_with_trust(app.directory, app.paths, app.environ)
    catalogue = Catalogue(scope)
    rows = [
        SkillRow(skill.name, skill.description, skill.where, skill.told)
        for skill in catalogue.scan.skills
    ]
    return SkillList(rows, [*catalogue.every_notice(), *changed()])


def read_skill(app: App, name: str) -> SkillText:
    """A skill as the model reads it. Raises `BadInput` for an unknown name."""
    catalogue = Catalogue(scope_with_trust(app.directory, app.paths, app.environ)[0])
    skill = catalogue.skill(name)
    try:
        return SkillText(skill.name, catalogue.text_of(skill.name))
    except ToolFailed as error:
        raise BadInput(str(error)) from error


def list_agents(app: App) -> AgentList:
    scope, changed = scope_with_trust(app.directory, app.paths, app.environ)
    rows = [
        AgentRow(profile.name, profile.description, profile.where, profile.use)
        for profile in app.agents.profiles_for()
    ]
    notices = filter(None, (trust_notice(scope), *app.agents.problems, *changed()))
    return AgentList(rows, list(notices))


def list_notes(app: App) -> NoteList:
    notes = [
        NoteRow(note.line.text, note.line.section, note.owner, note.origin.session)
        for note in app.project_memory.memory.all_notes()
    ]
    return NoteList(app.settings.memory, notes)


def switch_memory(app: App, *, enabled: bool) -> None:
    """Let later conversations get notes and make new ones, or not."""
    remember(app.paths, "memory", "true" if enabled else "false")


def add_note(app: App, text: str) -> str:
    """Store a note, and return a sentence that confirms it. Raises `BadInput`."""
    return app.project_memory.note(text)


def forget_note(app: App, text: str) -> None:
    """Delete a note for good, and never learn it again. Raises `BadInput`."""
    if text not in {note.line.text for note in app.project_memory.memory.all_notes()}:
        raise BadInput(f"there is no note {text!r}: it was changed or forgotten meanwhile")
    app.project_memory.memory.forget(text)
