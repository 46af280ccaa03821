"""`refold memory show|edit|forget|update|diff|path`: manages the notes about a project.

`app.memory_worker` starts the internal subcommand `finish` in the background.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import anyio

from refold.app.project_memory import ProjectMemory
from refold.app.session_index import session_index
from refold.cli.output import edit, find_editor
from refold.config.paths import current_directory, paths
from refold.errors import BadInput, RefoldError
from refold.headless.streams import print_document, print_error, print_note, write
from refold.memory.note_origins import NoteChange
from refold.memory.notes import ListedNote, Memory, NoteOwner
from refold.memory.notes_file import MAX_FILE_BYTES
from refold.views.escape import escape_to_one_line

if TYPE_CHECKING:
    from refold.app.app import App

MAX_SESSIONS = 10
_PARSER_HELPS = {
    "show": "list the notes, numbered",
    "edit": "edit the notes in your editor ($VISUAL, $EDITOR)",
    "forget": "delete a note, and never learn it again",
    "update": "learn notes from new sessions now",
    "diff": "show notes that were learned or dropped automatically",
    "path": "print the path of the file",
    "finish": "",  # refold itself runs it: without a help, it is not listed
}


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, about in _PARSER_HELPS.items():
        subparser = (
            subparsers.add_parser(name, help=about)
            if about
            else subparsers.add_parser(name)
        )
        match name:
            case "forget":
                subparser.add_argument(
                    "note",
                    nargs="+",
                    metavar="NOTE",
                    help="its number, its text, or part of its text",
                )
            case "update":
                subparser.add_argument(
                    "session",
                    nargs="*",
                    metavar="SESSION",
                    help="sessions to learn from, even if already read",
                )
                subparser.add_argument(
                    "-m",
                    "--model",
                    metavar="PROVIDER/MODEL",
                    help="the model that proposes notes",
                )
            case "finish":
                subparser.add_argument("directories", nargs="+")
            case "edit" | "path":
                subparser.add_argument(
                    "--profile", action="store_true", help="notes about you"
                )
            case _:
                subparser.add_argument(
                    "--profile", action="store_true", help="only notes about you"
                )
                subparser.add_argument(
                    "--json", action="store_true", help="print JSON lines"
                )


def run(args: Namespace) -> int:
    match args.what:
        case "finish":
            from refold.app.memory_worker import run_worker

            return run_worker(args.directories)
        case "update":
            return _update(args)
        case "forget":
            return _forget(_open_memory(), " ".join(args.note))
        case "edit":
            return _edit(_open_memory().memory, _owner_of(args))
        case "path":
            write(f"{_open_memory().memory.file(_owner_of(args))}\n")
            return 0
        case "diff":
            return _diff(_open_memory().memory, as_json=args.json)
        case _:
            return _show(_open_memory().memory, _owner_of(args), as_json=args.json)


def _open_memory() -> ProjectMemory:
    places = paths(os.environ)
    return ProjectMemory(places.data, current_directory(), session_index(places))


def _owner_of(args: Namespace) -> NoteOwner:
    return "person" if args.profile else "project"


def _show(memory: Memory, owner: NoteOwner, *, as_json: bool) -> int:
    """Print the notes; if `owner` is "person", only notes about the user. Return 0."""
    notes = memory.all_notes()  # sessions of the project get notes about the person, too
    if owner == "person":
        notes = [note for note in notes if note.owner == "person"]
    if as_json:
        for note in notes:
            print_document(_document(note))
        return 0
    write("".join(_listing(notes, memory)))
    if not notes:
        print_note("nothing is remembered here (docs/guides/memory.md)")
    return 0


def _listing(notes: Sequence[ListedNote], memory: Memory) -> Iterator[str]:
    """Yield the lines of the list of notes.

    The name of each file and section is printed once, before its first note.
    """
    last_owner, last_section = "", ""
    for note in notes:
        if note.owner != last_owner:
            size = len(memory.text(note.owner).encode())
            yield f"{memory.file(note.owner)} ({size:,} of {MAX_FILE_BYTES:,} bytes)\n"
        if (note.owner, note.line.section) != (last_owner, last_section):
            yield f"{escape_to_one_line(note.line.section) or 'Notes'}\n"
        last_owner, last_section = note.owner, note.line.section
        origin = f"  [{note.origin.session}]" if note.origin.session else ""
        yield f"{note.number:>4}  {escape_to_one_line(note.line.text)}{origin}\n"


def _document(note: ListedNote) -> dict[str, object]:
    return {
        "number": note.number, "whose": note.owner, "section": note.line.section,
        "text": note.line.text, "session": note.origin.session,
        "events": note.origin.seqs, "at": note.origin.at,
    }  # fmt: skip


def _diff(memory: Memory, *, as_json: bool) -> int:
    """Print the latest automatic changes, and record that the user has seen them. Return 0."""
    changes = memory.changes()
    for change in changes:
        if as_json:
            print_document(change)
        else:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(change.at))
            write(f"{when}  {_change_line(change)}")
    if not changes and not as_json:
        print_note("no note was added or removed automatically")
    memory.mark_seen()
    return 0


def _forget(project_memory: ProjectMemory, text: str) -> int:
    """Remove the note that `text` selects, and print it. Return exit code 0."""
    forgotten = project_memory.memory.forget(text)  # at least one note
    shown_texts = (escape_to_one_line(note.line.text) for note in forgotten)
    for shown_text in dict.fromkeys(shown_texts):  # each text once
        write(f"forgotten: {shown_text}\n")
    if project_memory.is_in_folder_notes(forgotten[0].line.text):
        print_error(".agent/memory.md in this folder says it too: remove it there")
    return 0


def _edit(memory: Memory, owner: NoteOwner) -> int:
    """Let the user edit a file of notes, and print a warning if it is too long. Return 0."""
    file = memory.file(owner)
    command = find_editor(f"the notes are in {file}")
    memory.create_file(owner)
    edit(command, file)
    size = len(memory.text(owner).encode())
    if size > MAX_FILE_BYTES:
        print_error(
            f"{size:,} bytes; a model gets the first {MAX_FILE_BYTES:,}, and the oldest "
            "notes are dropped when another is added"
        )
    return 0


def _update(args: Namespace) -> int:
    """Extract notes from sessions now. Return 1 if a session could not be read, otherwise 0."""
    from refold.app.memory_worker import open_project
    from refold.cli.session_argument import find_session_id

    app, project_memory = open_project(current_directory(), os.environ, args.model or "")
    if not app.settings.memory:
        raise BadInput("memory is off (memory = false): set it to true first")
    sessions = [find_session_id(app.home, name) for name in args.session]
    return anyio.run(_update_notes, app, project_memory, sessions)


async def _update_notes(
    app: "App", project_memory: ProjectMemory, names: Sequence[str]
) -> int:
    """Extract notes from the named sessions, or from all waiting sessions, and print them.

    Return the exit code: 1 if a session could not be read.
    """
    from refold.app.memory_worker import notes_model_for

    count = 0
    code = 0
    try:
        for session in names or project_memory.pending.sessions()[:MAX_SESSIONS]:
            try:
                learned = await project_memory.learn_of(
                    session,
                    lambda view: notes_model_for(app, view, asked=True),
                    again=bool(names),
                )
            except RefoldError as error:
                code = 1
                print_error(f"{session}: {error}")
                continue
            project_memory.pending.remove(session)
            count += len(learned.changes)
            write("".join(map(_change_line, learned.changes)))
            if learned.why and names:
                print_note(f"{session}: {learned.why}")
    finally:
        await app.aclose()
    if not count and not code:
        write("nothing new to remember\n")
    project_memory.memory.mark_seen()
    return code


def _change_line(change: NoteChange) -> str:
    why = f" ({change.why})" if change.why else ""
    text = escape_to_one_line(change.text)
    section = escape_to_one_line(change.section)
    return f"{change.sign} {section}: {text}{why}\n"
