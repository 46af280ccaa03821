"""Reminds the model of todos, changed files, ended background commands, and its directory.

Reminders are tagged, so that the model does not take them for a message of the user. Those
about plan mode are in `plan_mode`, those about the end of a turn with the policy that ends
it.
"""

import os

from refold.engine.decide import Note, Policy
from refold.journal.state.background import BackgroundCommand, end_text
from refold.journal.state.fold import View
from refold.journal.state.reminders import TODOS
from refold.values.path_names import near
from refold.values.text import escape_marks

OPEN_TODOS = (
    "<reminder>These todos are open:\n{todos}\nKeep the list true with todo_write: mark what "
    "is done, cancel what is not needed any more.</reminder>"
)
CHANGED_FILES = (
    "<reminder>These files have changed since you last saw them, perhaps by another "
    "program:\n{files}\nRead them again before you rely on them.</reminder>"
)
OTHER_PLACE = (
    "<reminder>This session works in {directory} now. Relative paths begin there; those "
    "that were said before began elsewhere.</reminder>"
)
ENDED_COMMANDS = "<reminder>Commands in the background have ended:\n{commands}</reminder>"
INSTRUCTIONS = (
    "<reminder>Instructions of this project for files in {folder} (from {file}). There they count "
    "before those of the folders above:\n{text}</reminder>"
)
_NAMED = 20  # todos, files or commands
_TAIL = 400  # characters of the output of an ended command


def reminding(every: int = 10) -> tuple[Policy, ...]:
    """Of todos: when a turn begins, and when `every` answers have not touched them."""

    def open_todos(view: View) -> Note | None:
        begins = not view.turn.steps and TODOS not in view.turn.noted_by
        if not (begins or view.reminders.answers_since_todos >= every):
            return None
        lines = [
            f"- [{t.status}] {_tame(t.subject)}" for t in view.conversation.todos if t.open
        ]
        return Note(OPEN_TODOS.format(todos=_listed(lines))) if lines else None

    return (other_place, changed_files, open_todos)


def other_place(view: View) -> Note | None:
    if not view.reminders.moved:
        return None
    return Note(OTHER_PLACE.format(directory=_tame(view.session.directory)))


def changed_files(view: View) -> Note | None:
    found = view.reminders.external_edits
    if not found:
        return None
    directory = view.session.directory
    lines = [f"- {_tame(near(path, directory))} ({kind})" for path, kind in found]
    return Note(CHANGED_FILES.format(files=_listed(lines)))


def nested_instructions(view: View) -> Note | None:
    """Not to be switched off here: who wants no instructions has none found."""
    directory = view.session.directory
    notes = [
        INSTRUCTIONS.format(
            folder=_tame(near(os.path.dirname(each.path), directory)),
            file=_tame(near(each.path, directory)),
            text=each.text,
        )
        for each in view.reminders.instructions
        if not each.told
    ]
    return Note("\n".join(notes)) if notes else None


def ended_commands(view: View) -> Note | None:
    """Not to be switched off: the model was told that it would hear of it."""
    if not view.background.untold:
        return None
    lines = [f"- {_how_it_ended(each)}" for each in view.background.news]
    return Note(ENDED_COMMANDS.format(commands=_listed(lines))) if lines else None


def _how_it_ended(command: BackgroundCommand) -> str:
    end = command.end
    assert end is not None  # it is among the news
    said = f"{command.name} ({_tame(command.started.command)[:_TAIL]}): {end_text(end)}"
    last = _tame(end.text)[-_TAIL:]
    return f"{said}; it printed last: {last}" if last else said


def _listed(lines: list[str]) -> str:
    left = len(lines) - _NAMED
    return "\n".join(lines[:_NAMED] + ([f"- … and {left} more"] if left > 0 else []))


def _tame(text: str) -> str:
    """On one line, which cannot end the reminder."""
    return escape_marks(" ".join(text.split()))
