"""Tasks of an evaluation, as they are written in a TOML file.

A task has files, a prompt, and checks on the files and the answer afterwards. `run` gives
the prompt to a model, `judge` carries out the checks.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from refold.errors import BadInput, reason_of


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions that must all hold, of a file, of a command, or else of the answer.

    Space at the ends does not count for `equals`. `matches` is a regular expression that is
    searched for. `run` is a shell command that must succeed; it is confined as a command of
    a model is.
    """

    file: str = ""
    run: str = ""
    exists: bool = True
    equals: str | None = None
    contains: str = ""
    lacks: str = ""
    matches: str = ""


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`files` exist before, by their names; `setup` is a command that prepares more.

    A file that no check names must stay as it is. `keep` are texts that must be in some
    file afterwards. `allow` are permission rules of the author for this task.
    """

    name: str
    prompt: str
    checks: Sequence[Check]
    kind: str = ""
    files: dict[str, str] = field(default_factory=dict[str, str])
    setup: str = ""
    keep: Sequence[str] = ()
    allow: Sequence[str] = ()


class _TaskFile(Struct, frozen=True, forbid_unknown_fields=True):
    tasks: list[Task]


def read_tasks(files: Iterable[Path]) -> tuple[Task, ...]:
    """The tasks of these files. Raises `BadInput` that names the file and what is wrong."""
    tasks = list[Task]()
    for path in files:
        tasks += _read(path)
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"two tasks are named {twice!r}: results are compared by name")
    return tuple(tasks)


def _read(path: Path) -> list[Task]:
    try:
        tasks = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _TaskFile).tasks
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {reason_of(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadInput(f"{path} is not a file of tasks: {error}") from error
    for task in tasks:
        if problem := _problem(task):
            raise BadInput(f"{path}, task {task.name!r}: {problem}")
    return tasks


def _problem(task: Task) -> str:
    if not task.checks:
        return "it has no checks, so it could not fail"
    named = (*task.files, *(check.file for check in task.checks))
    if outside := next((n for n in named if Path(n).is_absolute() or ".." in n), ""):
        return f"{outside!r} is not a path inside the task's folder"
    for check in task.checks:
        try:
            re.compile(check.matches)
        except re.error as error:
            return f"{check.matches!r} is not a regular expression: {error}"
        about = check.file or check.run or check.contains or check.lacks or check.matches
        if not about and check.equals is None:
            return "one of its checks has no condition"
    return ""
