"""Reminds the model of todos, changed files, ended background commands, and its directory.

Reminders are tagged, so that the model does not take them for a message of the user.
`plan_mode` has those about plan mode; each policy that ends a turn has its own.
"""

import os

from refold.engine.decide import Note, Policy
from refold.journal.state.background import BackgroundCommand, end_text
from refold.journal.state.fold import View
from refold.journal.state.reminders import TODOS_POLICY
from refold.values.path_names import relative_name
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
    "<reminder>This session works in {directory} now. Relative paths begin there; earlier "
    "ones began elsewhere.</reminder>"
)
PLACE_REBUILT = (
    "<reminder>The place of your workspace was lost, and this is a new one. {files}{lost} What git "
    "ignores, what was installed and what ran there are gone. Look before you rely on "
    "anything.</reminder>"
)
ENDED_COMMANDS = "<reminder>Commands in the background have ended:\n{commands}</reminder>"
FOLDER_INSTRUCTIONS = (
    "<reminder>Instructions of this project for files in {folder} (from {file}). There they count "
    "before those of the folders above:\n{text}</reminder>"
)
_MAX_LISTED_ITEMS = 20  # todos, files or commands in one reminder
_MAX_COMMAND_CHARS = 400  # of the command line of an ended command
_MAX_TAIL_CHARS = 400  # of its output


def reminder_policies(every: int = 10) -> tuple[Policy, ...]:
    """Return the policies for all reminders.

    The todos are repeated after `every` responses that did not change them.
    """

    def open_todos(view: View) -> Note | None:
        """Return a note with the open todos, at the first step or if they are old; or None."""
        is_first_step = not view.turn.steps and TODOS_POLICY not in view.turn.noted_by
        is_old = view.reminders.answers_since_todos >= every
        if not is_first_step and not is_old:
            return None
        lines = [
            f"- [{t.status}] {_escape(t.subject)}"
            for t in view.conversation.todos
            if t.open
        ]
        return Note(OPEN_TODOS.format(todos=_join_lines(lines))) if lines else None

    return (other_place, changed_files, open_todos)


def other_place(view: View) -> Note | None:
    """Return a note if the session has moved to another directory; otherwise None."""
    if not view.reminders.moved:
        return None
    return Note(OTHER_PLACE.format(directory=_escape(view.session.directory)))


def changed_files(view: View) -> Note | None:
    """Return a note that lists the files that others changed; None if there are none."""
    edits = view.reminders.external_edits
    if not edits:
        return None
    directory = view.session.directory
    lines = [
        f"- {_escape(relative_name(path, directory))} ({kind})" for path, kind in edits
    ]
    return Note(CHANGED_FILES.format(files=_join_lines(lines)))


def nested_instructions(view: View) -> Note | None:
    """Return a note with the newly found instructions of folders; None if there are none.

    The policy is always on: a setting decides whether instructions are searched for.
    """
    directory = view.session.directory
    notes = [
        FOLDER_INSTRUCTIONS.format(
            folder=_escape(relative_name(os.path.dirname(item.path), directory)),
            file=_escape(relative_name(item.path, directory)),
            text=item.text,
        )
        for item in view.reminders.instructions
        if not item.request_seq  # 0: no request contained them yet
    ]
    return Note("\n".join(notes)) if notes else None


def ended_commands(view: View) -> Note | None:
    """Return a note about background commands that have ended; None if the model has got a
    note about each of them.

    The policy is always on, because the model was promised a report.
    """
    if not view.background.untold:
        return None
    lines = [f"- {_end_line(command)}" for command in view.background.news]
    return Note(ENDED_COMMANDS.format(commands=_join_lines(lines))) if lines else None


def place_rebuilt(view: View) -> Note | None:
    """Return a note that the place was lost and replaced; None if the model knows it already.

    The policy is always on, because the model would rely on the files of the lost place.
    """
    rebuilt = view.reminders.rebuilt
    if rebuilt is None:
        return None
    if rebuilt.restored:
        origin = "Its files are those of the newest checkpoint that was stored elsewhere."
    elif rebuilt.checkpoint and not rebuilt.problem and not rebuilt.place:
        origin = "It is a place that this session had before, with the files of then."
    else:
        origin = "It has other files than the lost one had."
    changes = ""
    if rebuilt.lost or rebuilt.calls:
        directory = view.session.directory
        items = [f"- {_escape(relative_name(path, directory))}" for path in rebuilt.lost]
        lines = _join_lines(items or ["- unknown files"])
        changes = (
            f" {rebuilt.calls} calls came after it; these changes may be lost:\n{lines}\n"
        )
    return Note(PLACE_REBUILT.format(files=origin, lost=changes))


def _end_line(command: BackgroundCommand) -> str:
    """Return a line that says how a background command ended, and what it printed last."""
    end = command.end
    assert end is not None  # `news` has only ended commands
    command_line = _escape(command.started.command)[:_MAX_COMMAND_CHARS]
    summary = f"{command.name} ({command_line}): {end_text(end)}"
    last_output = _escape(end.text)[-_MAX_TAIL_CHARS:]
    return f"{summary}; it printed last: {last_output}" if last_output else summary


def _join_lines(lines: list[str]) -> str:
    """Join the lines; if they are too many, a note replaces the rest."""
    unlisted = len(lines) - _MAX_LISTED_ITEMS
    if unlisted > 0:
        lines = [*lines[:_MAX_LISTED_ITEMS], f"- … and {unlisted} more"]
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Return `text` on one line, with tags escaped so that it cannot end the reminder."""
    return escape_marks(" ".join(text.split()))
