"""Reads the tasks of an evaluation from TOML files.

A task has files, a prompt, and checks of the files and the answer afterwards. `run` gives the
prompt to a model, and `judge` performs the checks.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from refold.errors import BadInput, reason_of


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions that must all be met after the model's turn.

    The conditions apply to the text of `file`, or to the answer if neither `file` nor `run` is
    set. `run` is a shell command that must succeed; it is confined like a command of the model.
    `equals` ignores white space at both ends. `matches` is a regular expression that must match
    somewhere.
    """

    file: str = ""
    run: str = ""
    exists: bool = True
    equals: str | None = None
    contains: str = ""
    lacks: str = ""
    matches: str = ""


class Task(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task for a model.

    `files` are the files that exist at the start, as texts by name; the shell command `setup`
    can prepare more. Afterwards, each text of `keep` must be in some file, and a file of
    `files` without a check and without a text of `keep` must be unchanged. `allow` are
    permission rules.
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
    """Read the tasks of these TOML files.

    Raises `BadInput` if a file or task is invalid, or if two tasks have the same name.
    """
    tasks = list[Task]()
    for path in files:
        tasks += _read(path)
    names = [task.name for task in tasks]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"two tasks are named {duplicate!r}: results are compared by name")
    return tuple(tasks)


def _read(path: Path) -> list[Task]:
    """Return the tasks of a file. Raises `BadInput` if the file or a task is invalid."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
        tasks = msgspec.convert(document, _TaskFile).tasks
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {reason_of(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadInput(f"{path} is not a file of tasks: {error}") from error
    for task in tasks:
        if problem := _problem(task):
            raise BadInput(f"{path}, task {task.name!r}: {problem}")
    return tasks


def _problem(task: Task) -> str:
    """Return the reason why a task is invalid, or "" if it is valid."""
    if not task.checks:
        return "it has no checks, so it could not fail"
    paths = (*task.files, *(check.file for check in task.checks))
    if outside := next((n for n in paths if Path(n).is_absolute() or ".." in n), ""):
        return f"{outside!r} is not a path inside the task's folder"
    for check in task.checks:
        try:
            re.compile(check.matches)
        except re.error as error:
            return f"{check.matches!r} is not a regular expression: {error}"
        texts = (check.file, check.run, check.contains, check.lacks, check.matches)
        if not any(texts) and check.equals is None:
            return "one of its checks has no condition"
    return ""
