"""What a session knows besides its conversation: skills and templates, and notes.

`skills` finds skills and `memory` stores notes; these classes give access to those of one
session. Every method blocks on the disk: call it in a thread if an event loop is running.
"""

from collections.abc import Sequence

from refold.app.app import App
from refold.app.project_memory import LearnResult
from refold.errors import BadInput, ToolFailed
from refold.memory.notes import ListedNote
from refold.session.session import Session as Engine


class Skills:
    """The skills that the model can read."""

    def __init__(self, app: App) -> None:
        self._catalogue = app.skills

    def descriptions(self) -> Sequence[tuple[str, str]]:
        """Return the name and description of each skill."""
        return [(skill.name, skill.description) for skill in self._catalogue.scan.skills]

    def text(self, name: str) -> str:
        """Return a skill as the model reads it. Raises `BadInput` for an unknown name."""
        try:
            skill = self._catalogue.skill(name)  # `name` may begin with "/skill:"
            return self._catalogue.text_of(skill.name)
        except ToolFailed as error:
            raise BadInput(str(error)) from error


class ProjectNotes:
    """The notes about a project and its user."""

    def __init__(self, app: App, engine: Engine) -> None:
        self._app = app
        self._engine = engine
        self._project_memory = app.project_memory

    @property
    def makes_notes(self) -> bool:
        """Whether refold makes notes of this session by itself."""
        return self._app.makes_notes

    def notes(self) -> Sequence[ListedNote]:
        return self._project_memory.memory.all_notes()

    def add(self, text: str) -> str:
        """Store a note, and return a sentence that confirms it. Raises `BadInput`."""
        return self._project_memory.note(text)

    def forget(self, text: str) -> Sequence[str]:
        """Delete the note with this number, or the notes with this text, for good.

        Return the texts of the deleted notes.
        """
        deleted = self._project_memory.memory.forget(text)
        return list(dict.fromkeys(note.line.text for note in deleted))

    async def learn(self) -> LearnResult:
        """Let a small model make notes of this session now.

        Raises `BadInput` if no model is set for notes.
        """
        learned = await self._learn(asked=True)
        if learned is None:
            raise BadInput("no model can be asked for notes: set models.small")
        return learned

    async def learn_idle(self) -> None:
        """Make notes of this session while it is idle. Do nothing if no model is set for
        notes.
        """
        await self._learn(asked=False)

    async def _learn(self, *, asked: bool) -> LearnResult | None:
        """Make notes of this session; return None if no model makes them.

        `asked` says that the user has requested notes. An embedded model makes notes only
        then.
        """
        from refold.app.memory_worker import notes_model_for

        model = notes_model_for(self._app, self._engine.view, asked=asked)
        if model is None:
            return None
        id_ = self._engine.view.session.id
        return await self._project_memory.learn(id_, self._engine.record, model)
