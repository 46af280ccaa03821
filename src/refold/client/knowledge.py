"""What a session knows besides its conversation: skills and templates, and notes.

`skills` finds skills, `memory` stores notes; here are those of one session. All of it
blocks on the disk: call it in a thread if an event loop is running.
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
        """The name and description of each skill."""
        return [(skill.name, skill.description) for skill in self._catalogue.scan.skills]

    def text(self, name: str) -> str:
        """A skill as the model reads it. Raises `BadInput` for an unknown name."""
        try:
            return self._catalogue.text_of(self._catalogue.skill(name).name)
        except ToolFailed as error:
            raise BadInput(str(error)) from error


class ProjectNotes:
    """The notes about a project and its user."""

    def __init__(self, app: App, engine: Engine) -> None:
        self._app, self._engine = app, engine
        self._remembering = app.project_memory

    @property
    def makes_notes(self) -> bool:
        """Whether notes of this session are made without asking."""
        return self._app.makes_notes

    def notes(self) -> Sequence[ListedNote]:
        return self._remembering.memory.all_notes()

    def add(self, text: str) -> str:
        """Store a note, and return a sentence that confirms it. Raises `BadInput`."""
        return self._remembering.note(text)

    def forget(self, text: str) -> Sequence[str]:
        """Delete the note with this number, or those with this text, for good."""
        gone = self._remembering.memory.forget(text)
        return list(dict.fromkeys(note.line.text for note in gone))

    async def learn(self) -> LearnResult:
        """Let a small model make notes of this session now. Raises `BadInput`."""
        learned = await self._learn(asked=True)
        if learned is None:
            raise BadInput("no model can be asked for notes: set models.small")
        return learned

    async def learn_idle(self) -> None:
        """Like `learn`, but not on request: it does nothing if no model was chosen for notes."""
        await self._learn(asked=False)

    async def _learn(self, *, asked: bool) -> LearnResult | None:
        from refold.app.memory_worker import notes_model_for

        aide = notes_model_for(self._app, self._engine.view, asked=asked)
        if aide is None:
            return None
        id_ = self._engine.view.session.id
        return await self._remembering.learn(id_, self._engine.record, aide)
