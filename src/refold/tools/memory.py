"""The tool `memory_write`: stores a note for later sessions.

A note must repeat words of the user. The port `Notebook` checks the words, and stores the note.
"""

from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import Meta

from refold.errors import ToolFailed
from refold.tools.contract import Reply, tool
from refold.values.display import Note
from refold.values.tools import Effect

Place: TypeAlias = Literal["preferences", "person", "facts", "decisions", "corrections"]


class Notebook(Protocol):
    """Stores notes that outlive the session."""

    async def write(self, section: str, text: str, replaces: str) -> str:
        """Save a note, and return a line about what was done.

        `replaces` is the text of a note to replace, or "". Raises `ToolFailed` if the user has
        not said `text`, or if there is no note `replaces`.
        """
        ...


@tool(Effect.SELF, subject="text")
async def memory_write(
    section: Annotated[Place, Meta(description="person: about them, in every project")],
    text: Annotated[str, Meta(description="one sentence, in the person's own words")],
    replaces: Annotated[str, Meta(description="the old note, if it is wrong now")] = "",
    *,
    memory: Notebook,
) -> Reply:
    """Keep a note for later sessions: only what the person stated and will still hold."""
    if not text.strip():
        raise ToolFailed("The note is empty: give it as `text`. Nothing was saved.")
    summary = await memory.write(section, text, replaces)
    return Reply(f"{summary} Later sessions will see it.", (Note(summary),))
