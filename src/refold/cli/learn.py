"""`refold learn`: lists, shows, runs and checks the lessons of the course."""

import os
import re
import signal
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import anyio

from refold.cli.tour import terminal_of
from refold.config.paths import paths
from refold.console.markdown import renderer_for
from refold.console.pager import show_rows
from refold.errors import BadInput
from refold.headless.streams import (
    print_document,
    print_error,
    print_lines,
    print_note,
    write,
)
from refold.learn.course import Lesson, lesson, lessons
from refold.learn.model_server import model_server
from refold.learn.reader_folder import MAX_HINTS, ReaderFolder, reader_folder
from refold.learn.sequence_diagram import draw_requests
from refold.learn.workshop import (
    PROGRAM_NAME,
    NotYet,
    Workshop,
    make_session,
    start_page,
    start_program,
    write_file,
)
from refold.views.escape import visible
from refold.views.wrap import wrap

# A line break inside a paragraph: not before an item, a row, a heading or an empty line.
_SOFT_BREAK = re.compile(r"(?<=\S)\n *(?=[^\s|#>*\d-])")
_LESSON_ACTIONS = ("show", "run", "page", "check", "reset", "solution")
_STDERR = 2  # the descriptor
_TRACEBACK_START = b"Traceback (most recent call last):"
_MAX_CONVERSATIONS = 100  # conversations on the page that can play the script of a lesson


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", default="list", metavar="WHAT",
        help="list, or the number of a lesson to read it; "
        "run, page, check, reset or solution of a lesson")  # fmt: skip
    parser.add_argument("number", nargs="?", metavar="N", help="the number of the lesson")
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="arguments of your program, for run"
    )
    parser.add_argument("--json", action="store_true", help="list as JSON lines")


def run(args: Namespace) -> int:
    folder = reader_folder(Path.cwd())
    if args.what == "list":
        return _list(folder, as_json=args.json)
    if args.what in _LESSON_ACTIONS:
        action, number = args.what, args.number
    else:  # refold learn N
        action, number = "show", args.what
    current = _find_lesson(folder, number)
    match action:
        case "show":
            return _show(current, folder)
        case "run":
            return _run(current, folder, args.words)
        case "page":
            return _page(current, folder)
        case "check":
            return _check(current, folder)
        case "reset":
            return _reset(current, folder)
        case _:
            write(current.solution())
            return 0


def _find_lesson(folder: ReaderFolder, number: str | None) -> Lesson:
    """Return the lesson `number`. For None, return the first lesson that is not done.

    If all lessons are done, None means the last lesson.
    """
    if number is None:
        done = folder.progress().done
        return next((one for one in lessons() if one.number not in done), lessons()[-1])
    if not number.isdecimal():
        raise BadInput(
            f"refold learn has no {number!r}: name a lesson by its number, "
            f"or use list, {', '.join(_LESSON_ACTIONS[1:])}"
        )
    return lesson(int(number))


def _list(folder: ReaderFolder, *, as_json: bool) -> int:
    done = folder.progress().done
    width = max(len(one.title) for one in lessons())
    for one in lessons():
        if as_json:
            row = {"number": one.number, "title": one.title, "purpose": one.purpose}
            print_document({**row, "done": one.number in done})
        else:
            mark = "✓" if one.number in done else " "
            write(f"{mark} {one.number:2}  {one.title:<{width}} {one.purpose}\n")
    if not as_json:
        remaining = (one.number for one in lessons() if one.number not in done)
        next_lesson = next(remaining, None)
        if next_lesson:
            write(f"\nRead the next one: refold learn {next_lesson}\n")
        else:
            write("\nAll are done.\n")
    return 0


def _show(current: Lesson, folder: ReaderFolder) -> int:
    """Print a lesson, after creating the reader's program if there is none. Return 0."""
    if folder.create(current):
        print_note(f"your program is {folder.program(current)}")
    text = visible(current.text())
    if not os.isatty(1):  # stdout
        write(text)
        return 0
    printer, _ = terminal_of(paths(os.environ))
    prose = renderer_for(printer)
    rows = wrap([*prose.add(_join_lines(text)), *prose.end()], printer.free_columns)
    anyio.run(show_rows, rows, printer)
    return 0


def _join_lines(text: str) -> str:
    """Return the text with each paragraph and list item on one line."""
    blocks = text.split("```")
    for index in range(0, len(blocks), 2):  # each second block is code
        blocks[index] = _SOFT_BREAK.sub(" ", blocks[index])
    return "```".join(blocks)


def _run(current: Lesson, folder: ReaderFolder, words: Sequence[str]) -> int:
    """Run the reader's program with the lesson's scripted model, and print the session.

    Return the exit code.
    """
    demo = current.demo()
    _prepare(current, folder)
    if demo.session and not (folder.path / "session.jsonl").exists():
        make_session(folder.path, *demo.session)
    words = words or demo.words
    write(f"$ {' '.join(('python', current.program_name, *words))}\n")
    for line in demo.typed:
        write(f"  type: {line}\n")
    with model_server(*demo.replies) as model:
        program = folder.program(current)
        process = start_program(program, model.url, words, stderr=subprocess.PIPE)
        code = _wait_for(process)
        for reason in model.refusals:
            print_error(f"the model refused a request: {reason}")
        if model.requests:
            write(f"\n{draw_requests(current.program_name, model.requests, model.replies)}")
    return code


def _prepare(current: Lesson, folder: ReaderFolder) -> None:
    """Create the program and the files of the lesson, if they are missing.

    Delete the files that an earlier run wrote, so that runs begin alike. But keep a file that
    was changed since, and keep all files if the program is `agent.py`, which may continue an
    earlier run.
    """
    folder.create(current)
    if current.program_name != PROGRAM_NAME:
        for name, text in current.demo().written_files().items():
            path = folder.path / name
            if path.is_file() and path.read_bytes() == text.encode():
                path.unlink()
    for name, text in current.demo().files.items():
        if not (folder.path / name).exists():
            write_file(folder.path / name, text)


def _page(current: Lesson, folder: ReaderFolder) -> int:
    """Serve refold's pages with the lesson's scripted model until Ctrl+C.

    Return the exit code.
    """
    demo = current.demo()
    _prepare(current, folder)
    message = " ".join(demo.words) or "\n".join(demo.typed)
    if demo.replies:
        print_note(
            f"open the developer page, show the panel Requests (p), and write: {message}"
        )
    else:
        print_note(
            "the model of this lesson has no script: run your program, and open its session"
        )
    print_note(
        f"sessions of your program appear there, too: refold learn run {current.number}"
    )
    # one copy of the script for each conversation
    replies = demo.replies * _MAX_CONVERSATIONS
    with model_server(*replies) as model:
        return _wait_for(start_page(folder.path, model.url))


def _wait_for(process: "subprocess.Popen[bytes]") -> int:
    """Wait until the reader's program exits. Print its errors, and return its exit code.

    If Ctrl+C ends the program, its traceback is not printed.
    """
    own_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with process:  # waits at the end
            errors = b""
            if process.stderr is not None:
                errors = _pass_on_prompts(process.stderr.fileno())
    finally:
        signal.signal(signal.SIGINT, own_handler)
    if process.returncode == -signal.SIGINT:
        print_note("your program was interrupted")
        return 128 + signal.SIGINT  # as a shell reports it
    if errors:
        print_lines(errors.decode(errors="replace").rstrip("\n"))
    return 1 if process.returncode else 0


def _pass_on_prompts(source: int) -> bytes:
    """Copy the program's stderr to ours up to a traceback. Return the traceback, or b"".

    Each part is copied at once, because prompts of `input` are written to stderr.
    """
    pending = b""
    while piece := os.read(source, 65536):
        pending += piece
        # from the beginning of a traceback on, everything is kept
        if _TRACEBACK_START not in pending:
            os.write(_STDERR, pending)
            pending = b""
    before_traceback, start, rest = pending.partition(_TRACEBACK_START)
    os.write(_STDERR, before_traceback)
    return start + rest


def _check(current: Lesson, folder: ReaderFolder) -> int:
    """Check the reader's program. Return 0 if it is right; otherwise print a hint, return 1."""
    program = folder.program(current)
    if not program.exists():
        raise BadInput(
            f"there is no {str(program)!r}. Begin the lesson first: refold learn {current.number}"
        )
    workshop = Workshop(program)
    try:
        current.check(workshop)
    except NotYet as failure:
        hint_number, hint = folder.next_hint(failure)
        write(
            f"Not yet. {visible(failure.problem)}\n\nHint {hint_number} of {MAX_HINTS}: {visible(hint)}\n"
        )
        if hint_number < MAX_HINTS:
            advice, action = "Try again, or ask for the next hint", "check"
        else:
            advice, action = "See a solution", "solution"
        write(f"\n{advice}: refold learn {action} {current.number}\n")
        return 1
    finally:
        workshop.close()
    folder.mark_done(current)
    write(f"Lesson {current.number} is done: {current.title}.\n")
    if current.number < len(lessons()):
        next_lesson = lesson(current.number + 1)
        write(f"Next: refold learn {next_lesson.number} ({next_lesson.title})\n")
    return 0


def _reset(current: Lesson, folder: ReaderFolder) -> int:
    kept = folder.reset(current)  # the new name of the reader's program, or ""
    write(
        f"{folder.program(current)} is as it was at the start of lesson {current.number}.\n"
    )
    if kept:
        print_note(f"your program is kept as {folder.path / kept}")
    return 0
