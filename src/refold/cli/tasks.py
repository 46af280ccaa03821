"""`refold tasks list|show|add|claim|done|cancel|free|watch`: manages a project's tasks.

The tasks are on a board, which agents change with tools, and which /tasks shows in a session.
`journal.board` stores the board.
"""

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from refold.cli import session_argument
from refold.cli.output import terminal_columns, wait_for_poll
from refold.config.paths import current_directory, paths
from refold.config.secret_values import masks_of
from refold.errors import RefoldError
from refold.headless.streams import print_document, print_note
from refold.journal.board.board_file import TaskBoard
from refold.journal.board.task_graph import PERSON_NAME
from refold.memory.project import notes_directory, project_of
from refold.values.control import BoardTask, NewTask, Progress, TaskChange
from refold.views.task_list import count_line, task_lines, task_rows

if TYPE_CHECKING:
    from refold.journal.state.fold import View

# the id of a session (group 1), or of a subagent below it
_SESSION_PATTERN = re.compile(r"(\d{8}-\d{6}-[a-z0-9]{4})(?:/child-\d+)*")
_MAX_TITLE_CHARS = 40  # the length of a title in a list
_MAX_DIGITS = 9  # of the number of a task
_PARSER_HELPS = {
    "list": "list the open tasks",
    "show": "show one task in full",
    "add": "add a task",
    "claim": "take a task, or the next that is free",
    "done": "mark tasks as done",
    "cancel": "cancel tasks",
    "free": "release tasks, so that others can claim them",
    "watch": "follow the board until Ctrl+C",
}
_STATUS_BY_COMMAND: dict[str, Progress] = {
    "done": "done",
    "cancel": "cancelled",
    "free": "pending",
}


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT")
    parser.set_defaults(what="list", all=False, json=False)
    for name, about in _PARSER_HELPS.items():
        subparser = subparsers.add_parser(name, help=about)
        match name:
            case "list":
                subparser.add_argument(
                    "--all", action="store_true", help="include closed tasks"
                )
            case "show":
                subparser.add_argument(
                    "task", type=_number, metavar="TASK", help="its number"
                )
            case "add":
                subparser.add_argument(
                    "subject", metavar="SUBJECT", help="what should be done, in one line"
                )
                subparser.add_argument("--description", default="", metavar="TEXT",
                    help="more about it")  # fmt: skip
                subparser.add_argument(
                    "--blocked-by", type=_number, nargs="+", default=[], metavar="TASK",
                    help="tasks that must be done first",
                )  # fmt: skip
                subparser.add_argument(
                    "--owner",
                    default="",
                    metavar="NAME",
                    help="the only owner that may claim it",
                )
            case "claim":
                subparser.add_argument("task", type=_number, nargs="?", default=0, metavar="TASK",
                    help="its number (default: the next that is free)")  # fmt: skip
                subparser.add_argument(
                    "--as", dest="owner", default=PERSON_NAME, metavar="NAME",
                    help=f"the owner (default: {PERSON_NAME})",
                )  # fmt: skip
            case "watch":
                pass
            case _:
                subparser.add_argument(
                    "task", type=_number, nargs="+", metavar="TASK", help="its number"
                )
        subparser.add_argument("--json", action="store_true", help="print JSON lines")


def run(args: Namespace) -> int:
    board = _open_board()
    match args.what:
        case "list":
            _list(board, every=args.all, as_json=args.json)
        case "show":
            task = board.read().task(args.task)
            if args.json:
                _print_tasks([task], as_json=True)
            else:
                (named_task,) = Owners().with_owner_names([task])
                session_argument.print_lines(
                    task_lines(named_task, session_argument.terminal_width())
                )
        case "add":
            new_task = NewTask(
                args.subject,
                description=args.description,
                blocked_by=tuple(args.blocked_by),
                owner=args.owner,
            )
            _print_tasks([board.add(new_task)], as_json=args.json)
        case "claim":
            _print_tasks([board.claim(args.task, args.owner)], as_json=args.json)
        case "watch":
            _watch(board, as_json=args.json)
        case _:
            change = TaskChange(status=_STATUS_BY_COMMAND[args.what])
            for id_ in args.task:
                _print_tasks([board.change(id_, change)], as_json=args.json)
    return 0


def _open_board() -> TaskBoard:
    places = paths(os.environ)
    redactor = masks_of(os.environ, places)
    return TaskBoard(
        notes_directory(places.data, project_of(current_directory())), redactor.mask_event
    )


def _list(board: TaskBoard, *, every: bool, as_json: bool) -> None:
    tasks = board.read().tasks
    _print_tasks([task for task in tasks if every or task.open], as_json=as_json)
    if not as_json:
        print_note(count_line(tasks) or "there are no tasks on the board of this project")


def _watch(board: TaskBoard, *, as_json: bool) -> None:
    """Print the open tasks, and then each task when it changes."""
    previous = dict[int, BoardTask]()
    owners = Owners()
    while True:
        tasks = board.read().tasks
        changed = [task for task in tasks if previous.get(task.id) != task]
        if not previous:
            changed = [task for task in changed if task.open]
        _print_tasks(changed, owners, as_json=as_json)
        previous = {task.id: task for task in tasks}
        wait_for_poll()


def _print_tasks(
    tasks: Sequence[BoardTask], owners: "Owners | None" = None, *, as_json: bool
) -> None:
    """Print tasks as rows with the names of their owners, or as JSON lines."""
    if as_json:
        for task in tasks:
            print_document(task)
    elif tasks:
        named = (owners or Owners()).with_owner_names(tasks)
        session_argument.print_lines(task_rows(named, terminal_columns(0)))


class Owners:
    """Returns the names of the owners of tasks, which are sessions and subagents."""

    def __init__(self) -> None:
        self._home = session_argument.user_sessions()
        self._views = dict[str, "View | None"]()  # by the id of a session
        self._names = dict[str, str]()  # by owner

    def with_owner_names(self, tasks: Sequence[BoardTask]) -> list[BoardTask]:
        return [replace(task, owner=self._name(task.owner)) for task in tasks]

    def _name(self, owner: str) -> str:
        """Return the title of the session `owner`; for a subagent in it, `NAME of TITLE`.

        Return `owner` if it is not a session, or if the session has no title.
        """
        if owner in self._names:
            return self._names[owner]
        match = _SESSION_PATTERN.fullmatch(owner)
        if match is None:
            return owner
        root_view = self._view(match[1])
        title = ""
        if root_view is not None:
            title = root_view.session.name or root_view.session.title
        if not title:
            return owner
        parent_id, _, child_name = owner.rpartition("/")  # parent_id "": a session
        parent_view = self._view(parent_id) if parent_id else None
        child = parent_view.children.child(child_name) if parent_view else None
        name = f"{child.born.teammate or child.name} of " if child else ""
        self._names[owner] = f"{name}{_shorten(title)}"
        return self._names[owner]

    def _view(self, id_: str) -> "View | None":
        """Return the view (the state) of a session; None if it cannot be read."""
        if id_ in self._views:
            return self._views[id_]
        view = None
        with suppress(RefoldError):
            session = self._home.find(id_).id
            view, _damage = session_argument.load_view(self._home, session)
        self._views[id_] = view
        return view


def _shorten(title: str) -> str:
    if len(title) > _MAX_TITLE_CHARS:
        title = f"{title[: _MAX_TITLE_CHARS - 1]}…"
    return f'"{title}"'


def _number(text: str) -> int:
    """Return the number of a task, which may begin with #."""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        raise ArgumentTypeError(f"{text!r} is not the number of a task")
    return int(digits)
