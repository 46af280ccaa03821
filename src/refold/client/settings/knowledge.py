"""Lists and changes what conversations know: skills, agents, and notes from earlier ones.

Skills and agents are files; errors in them are listed, too. Notes are added and deleted as
by `refold memory` and `/memory`.
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
    """A skill.

    `shown` says whether the model sees it; otherwise only the user can call it.
    """

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
    """An agent. `use` is `main` (for the user), `child` (for other agents), or `both`."""

    name: str
    description: str
    where: str
    use: str


class AgentList(Struct, frozen=True):
    agents: Sequence[AgentRow]
    notices: Sequence[str]


class NoteRow(Struct, frozen=True):
    """A note about a project, or about its user."""

    text: str
    section: str
    whose: NoteOwner
    session: str  # the conversation from which it was learned, or ""


class NoteList(Struct, frozen=True):
    """The notes.

    `on` is the setting `memory`: whether conversations get notes and make new ones.
    """

    on: bool
    notes: Sequence[NoteRow]


class NewNote(Struct, frozen=True, forbid_unknown_fields=True):
    text: str


def list_skills(app: App) -> SkillList:
    """Return the skills of the app's directory, with notices about invalid or changed ones."""
    scope, changed_instructions = scope_with_trust(app.directory, app.paths, app.environ)
    catalogue = Catalogue(scope)
    rows = [
        SkillRow(skill.name, skill.description, skill.where, skill.shown)
        for skill in catalogue.scan.skills
    ]
    return SkillList(rows, [*catalogue.every_notice(), *changed_instructions()])


def read_skill(app: App, name: str) -> SkillText:
    """Return the text of a skill as the model reads it.

    Raises `BadInput` for an unknown name.
    """
    scope, _ = scope_with_trust(app.directory, app.paths, app.environ)
    catalogue = Catalogue(scope)
    skill = catalogue.skill(name)
    try:
        return SkillText(skill.name, catalogue.text_of(skill.name))
    except ToolFailed as error:
        raise BadInput(str(error)) from error


def list_agents(app: App) -> AgentList:
    """Return the agents of the app's directory, with notices about invalid or changed ones."""
    scope, changed_instructions = scope_with_trust(app.directory, app.paths, app.environ)
    rows = [
        AgentRow(profile.name, profile.description, profile.where, profile.use)
        for profile in app.agents.profiles_for()
    ]
    notices = [*app.agents.problems, *changed_instructions()]
    if notice := trust_notice(scope):
        notices.insert(0, notice)
    return AgentList(rows, notices)


def list_notes(app: App) -> NoteList:
    """Return all notes that conversations get, and whether memory is on."""
    notes = [
        NoteRow(note.line.text, note.line.section, note.owner, note.origin.session)
        for note in app.project_memory.memory.all_notes()
    ]
    return NoteList(app.settings.memory, notes)


def switch_memory(app: App, *, enabled: bool) -> None:
    """Set whether later conversations get notes and make new ones."""
    remember(app.paths, "memory", "true" if enabled else "false")


def add_note(app: App, text: str) -> str:
    """Store a note, and return a sentence that confirms it. Raises `BadInput`."""
    return app.project_memory.note(text)


def forget_note(app: App, text: str) -> None:
    """Delete the note with this text for good, and never learn it again.

    Raises `BadInput` if there is no such note.
    """
    if text not in {note.line.text for note in app.project_memory.memory.all_notes()}:
        raise BadInput(f"there is no note {text!r}: it was changed or forgotten meanwhile")
    app.project_memory.memory.forget(text)
