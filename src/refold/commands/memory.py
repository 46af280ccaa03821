"""/memory: show, forget or update the notes kept between sessions.
/note: save a note, as does a line that begins with #.
"""

import anyio

from refold.client.knowledge import ProjectNotes
from refold.client.types import ListedNote
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line
from refold.views.styled import Line, line

_OFF_TEXT = "memory is off: --no-memory was given, or memory = false is set"


async def run(context: CommandContext, arguments: str) -> None:
    """Show the notes, forget one, or learn notes from the conversation now."""
    action, _, more = arguments.partition(" ")
    match action:
        case "" | "show" if not more:
            _show(memory_of(context), context)
        case "forget" if more.strip():
            forgotten = await anyio.to_thread.run_sync(
                memory_of(context).forget, more.strip()
            )
            for text in forgotten:
                context.show(line(f"forgotten: {escape_to_one_line(text)}", "dim"))
        case "update" if not more:
            await _update(memory_of(context), context)
        case _:
            raise BadInput("type /memory, /memory forget NUMBER or TEXT, or /memory update")


def memory_of(context: CommandContext) -> ProjectNotes:
    """Return the notes of the project. Raises `BadInput` if memory is off."""
    memory = context.session.memory
    if memory is None:
        raise BadInput(_OFF_TEXT)
    return memory


def _show(memory: ProjectNotes, context: CommandContext) -> None:
    """Show all notes, with a heading where the section or the owner changes."""
    notes = memory.notes()
    if not notes:
        context.show(line("There are no notes yet. A line that begins with # saves one."))
        return
    shown_section = ("", "")  # the owner and the name of the last heading
    for note in notes:
        if (note.owner, note.line.section) != shown_section:
            shown_section = (note.owner, note.line.section)
            about = " (about you)" if note.owner == "person" else ""
            context.show(
                line(f"{escape_to_one_line(note.line.section) or 'Notes'}{about}", "strong")
            )
        context.show(_note(note))
    context.show(line("/memory forget NUMBER deletes a note for good", "dim"))


def _note(note: ListedNote) -> Line:
    return (("dim", f"  {note.number:>3}  "), ("plain", escape_to_one_line(note.line.text)))


async def _update(memory: ProjectNotes, context: CommandContext) -> None:
    """Learn notes from the conversation, and show what has changed, or why nothing has."""
    context.show(line("Reading the conversation …", "dim"))
    learned = await memory.learn()
    for change in learned.changes:
        text = f"{change.sign} {escape_to_one_line(change.section)}: {escape_to_one_line(change.text)}"
        context.show(line(text, "added" if change.sign == "+" else "gone"))
    if not learned.changes:
        why = f": {learned.why}" if learned.why else "."
        context.show(line(f"No new notes{why}", "dim"))


async def run_note(context: CommandContext, arguments: str) -> None:
    message = await anyio.to_thread.run_sync(memory_of(context).add, arguments)
    context.show(line(escape_to_one_line(message), "dim"))
