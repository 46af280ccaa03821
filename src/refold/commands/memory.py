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
    action, _, more = arguments.partition(" ")
    match action:
        case "" | "show" if not more:
            _show(memory_of(context), context)
        case "forget" if more.strip():
            gone = await anyio.to_thread.run_sync(memory_of(context).forget, more.strip())
            for text in gone:
                context.show(line(f"forgotten: {escape_to_one_line(text)}", "dim"))
        case "update" if not more:
            await _update(memory_of(context), context)
        case _:
            raise BadInput("type /memory, /memory forget NUMBER or TEXT, or /memory update")


def memory_of(context: CommandContext) -> ProjectNotes:
    if (memory := context.session.memory) is None:
        raise BadInput(_OFF_TEXT)
    return memory


def _show(memory: ProjectNotes, context: CommandContext) -> None:
    notes = memory.notes()
    if not notes:
        context.show(line("There are no notes yet. A line that begins with # saves one."))
    before = ("", "")
    for note in notes:
        if (note.owner, note.line.section) != before:
            before = (note.owner, note.line.section)
            about = " (about you)" if note.owner == "person" else ""
            context.show(
                line(f"{escape_to_one_line(note.line.section) or 'Notes'}{about}", "strong")
            )
        context.show(_note(note))
    if notes:
        context.show(line("/memory forget NUMBER deletes a note for good", "dim"))


def _note(note: ListedNote) -> Line:
    return (("dim", f"  {note.number:>3}  "), ("plain", escape_to_one_line(note.line.text)))


async def _update(memory: ProjectNotes, context: CommandContext) -> None:
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
