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
    NotYet,
    Workshop,
    make_session,
    start_page,
    start_program,
)
from refold.views.escape import visible
from refold.views.wrap import wrap

# A line break in a paragraph, and not before an item, a row, a heading or an empty line.
_SOFT_BREAK = re.compile(r"(?<=\S)\n *(?=[^\s|#>*\d-])")
_LESSON_ACTIONS = ("show", "run", "page", "check", "reset", "solution")
_MAX_CONVERSATIONS = 100  # that can play the script of a lesson on the page


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
    action, number = (
        ("show", args.what)
        if args.what not in _LESSON_ACTIONS
        else (args.what, args.number)
    )
    chosen = _find_lesson(folder, number, args.what)
    match action:
        case "show":
            return _show(chosen, folder)
        case "run":
            return _run(chosen, folder, args.words)
        case "page":
            return _page(chosen, folder)
        case "check":
            return _check(chosen, folder)
        case "reset":
            return _reset(chosen, folder)
        case _:
            write(chosen.solution())
            return 0


def _find_lesson(folder: ReaderFolder, number: str | None, text: str) -> Lesson:
    if number is None:  # the next one that is not done
        done = folder.progress().done
        return next((one for one in lessons() if one.number not in done), lessons()[-1])
    if not number.isdecimal():
        raise BadInput(
            f"refold learn has no {number!r}: name a lesson by its number, "
            f"or use list, {', '.join(_LESSON_ACTIONS[1:])}"
        )
    return lesson(int(number))


def _list(folder: ReaderFolder, *, as_json: bool) -> int:
    done, width = folder.progress().done, max(len(one.title) for one in lessons())
    for one in lessons():
        if as_json:
            row = {"number": one.number, "title": one.title, "purpose": one.purpose}
            print_document({**row, "done": one.number in done})
        else:
            mark = "✓" if one.number in done else " "
            write(f"{mark} {one.number:2}  {one.title:<{width}} {one.purpose}\n")
    if not as_json:
        next_lesson = next((n for n in range(1, len(lessons()) + 1) if n not in done), None)
        read = (
            f"Read the next one: refold learn {next_lesson}"
            if next_lesson
            else "All are done."
        )
        write(f"\n{read}\n")
    return 0


def _show(current: Lesson, folder: ReaderFolder) -> int:
    if folder.create(current):
        print_note(f"your program is {folder.program(current)}")
    text = visible(current.text())
    if not os.isatty(1):
        write(text)
        return 0
    printer, _ = terminal_of(paths(os.environ))
    prose = renderer_for(printer)
    rows = wrap([*prose.add(_join_lines(text)), *prose.end()], printer.free_columns)
    anyio.run(show_rows, rows, printer)
    return 0


def _join_lines(text: str) -> str:
    """Each paragraph and each item of a list as one line: the terminal is broad or narrow."""
    blocks = text.split("```")
    prose = [_SOFT_BREAK.sub(" ", block) for block in blocks[::2]]
    return "".join(
        f"{before}```{code}```" for before, code in zip(prose, blocks[1::2], strict=False)
    ) + "".join(prose[len(blocks) // 2 :])


def _run(current: Lesson, folder: ReaderFolder, words: Sequence[str]) -> int:
    """Run the reader's program with the script of the lesson, and draw what happened."""
    demo = current.demo()
    _prepare(current, folder)
    if demo.session and not (folder.path / "session.jsonl").exists():
        make_session(folder.path, *demo.session)
    words = words or demo.words
    write(f"$ {' '.join(('python', current.program_name, *words))}\n")
    for line in demo.typed:
        write(f"  type: {line}\n")
    with model_server(*demo.replies) as model:
        code = _wait_for(
            start_program(folder.program(current), model.url, words, stderr=subprocess.PIPE)
        )
        for reason in model.refusals:
            print_error(f"the model refused a request: {reason}")
        if model.requests:
            write(f"\n{draw_requests(current.program_name, model.requests, model.replies)}")
    return code


def _prepare(chosen: Lesson, folder: ReaderFolder) -> None:
    """Create the program and the files of the lesson, if they are missing."""
    folder.create(chosen)
    for name, text in chosen.demo().files.items():
        if not (folder.path / name).exists():
            (folder.path / name).write_text(text, encoding="utf-8")


def _page(chosen: Lesson, folder: ReaderFolder) -> int:
    """Serve the pages, with the model of the lesson, until Ctrl+C."""
    demo = chosen.demo()
    _prepare(chosen, folder)
    words = " ".join(demo.words) or "\n".join(demo.typed)
    if demo.replies:
        print_note(
            "open the developer page, show the panel Requests (p), and write: " + words
        )
    else:
        print_note(
            "the model of this lesson has no script: run your program, and open its session"
        )
    print_note(
        f"sessions of your program appear there, too: refold learn run {chosen.number}"
    )
    with model_server(*demo.replies * _MAX_CONVERSATIONS) as model:
        return _wait_for(start_page(folder.path, model.url))


def _wait_for(process: "subprocess.Popen[bytes]") -> int:
    """The exit code of refold when the reader's program has exited, and its errors on stderr.

    Ctrl+C reaches the program, which decides what it means; if that ends it, its traceback says
    nothing that the reader does not know.
    """
    own_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _, errors = process.communicate()
    finally:
        signal.signal(signal.SIGINT, own_handler)
    if process.returncode == -signal.SIGINT:
        print_note("your program was interrupted")
        return 130
    if errors:
        print_lines(errors.decode(errors="replace").rstrip("\n"))
    return 1 if process.returncode else 0


def _check(current: Lesson, folder: ReaderFolder) -> int:
    program = folder.program(current)
    if not program.exists():
        raise BadInput(
            f"there is no {str(program)!r}. Begin the lesson first: refold learn {current.number}"
        )
    shop = Workshop(program)
    try:
        current.check(shop)
    except NotYet as failure:
        times, hint = folder.next_hint(failure)
        write(
            f"Not yet. {visible(failure.problem)}\n\nHint {times} of {MAX_HINTS}: {visible(hint)}\n"
        )
        more = "refold learn check" if times < MAX_HINTS else "refold learn solution"
        write(f"\n{_next_advice(times)}: {more} {current.number}\n")
        return 1
    finally:
        shop.close()
    folder.mark_done(current)
    write(f"Lesson {current.number} is done: {current.title}.\n")
    if current.number < len(lessons()):
        next_lesson = lesson(current.number + 1)
        write(f"Next: refold learn {next_lesson.number} ({next_lesson.title})\n")
    return 0


def _next_advice(times: int) -> str:
    return "Try again, or ask for the next hint" if times < MAX_HINTS else "See a solution"


def _reset(current: Lesson, folder: ReaderFolder) -> int:
    kept = folder.reset(current)
    write(
        f"{folder.program(current)} is as it was at the start of lesson {current.number}.\n"
    )
    if kept:
        print_note(f"your program is kept as {folder.path / kept}")
    return 0
