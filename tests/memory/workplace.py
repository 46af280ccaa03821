"""Runs sessions in a project, and lets a scripted model make notes of them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from refold import Agent
from refold.app.project_memory import LearnResult, ProjectMemory, user_messages_in
from refold.config.paths import paths
from refold.engine.world import Model
from refold.journal.journal_directory import JournalDirectory
from refold.testing.providers import Line, ScriptedProvider

OK = "Done."


class Workplace(Struct, frozen=True):
    """A project directory. Its sessions and notes are in the home of the test."""

    directory: Path

    @property
    def data(self) -> Path:
        return paths(os.environ).data

    @property
    def remembering(self) -> ProjectMemory:
        return ProjectMemory(
            self.data, self.directory, JournalDirectory(self.data / "sessions")
        )

    def run_session(
        self, *text: str, answers: Sequence[Line] = (), session: str = ""
    ) -> str:
        """Send these messages in a new session, or in `session`. Return the session's id."""
        lines = answers or [OK] * len(text)
        agent = Agent(provider=ScriptedProvider(*lines), directory=self.directory)

        async def converse() -> str:
            async with agent.session(session) as result:
                for word in text:
                    await result.run(word)
                return result.id

        return anyio.run(converse)

    def learn_from(self, session: str, *notes: dict[str, object]) -> LearnResult:
        """Make notes of a session, with a model that proposes these notes."""
        learn_result, _ = self.learn_with_answers(
            session, json.dumps({"notes": list(notes)})
        )
        return learn_result

    def learn_with_answers(
        self, session: str, *answers: Line
    ) -> tuple[LearnResult, ScriptedProvider]:
        small = ScriptedProvider(*answers)
        aide = Model(small, "script/small")
        return anyio.run(self.remembering.learn_of, session, lambda _: aide), small

    def message_numbers(self, session: str) -> list[int]:
        """Return the event numbers of the user's messages in a session."""
        return [
            user_message.seq
            for user_message in user_messages_in(self.remembering.entries(session), 0)
        ]

    @property
    def notes(self) -> list[tuple[str, str]]:
        return [(n.line.section, n.line.text) for n in self.remembering.memory.all_notes()]


def note(
    section: str, text: str, *seqs: int, replaces: int | None = None
) -> dict[str, object]:
    return {"section": section, "text": text, "from": list(seqs), "replaces": replaces}
