"""Runs the checks of a task, and lists what failed and what was destroyed.

A failure is a condition of a check that is not met. Destruction is counted separately: content
that existed before and had to stay is deleted or changed.
"""

import re
from collections.abc import Awaitable, Callable, Iterator

from anyio import to_thread
from msgspec import Struct

from refold.errors import ToolFailed
from refold.evaluation.tasks import Check, Task
from refold.place.port import Files
from refold.values.printable_names import shorten
from refold.values.text import clean

# Runs a command, and returns whether it exited with code 0.
Succeeds = Callable[[str], Awaitable[bool]]
_MAX_TEXT_CHARS = 80


class Judgement(Struct, frozen=True):
    """The problems with a model's result, as texts for the user.

    A result without problems has passed.
    """

    failures: tuple[str, ...] = ()
    destroyed: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        return not (self.failures or self.destroyed)


async def judge(task: Task, files: Files, answer: str, succeeds: Succeeds) -> Judgement:
    """Run the checks of a task on its files and the model's answer, and return the problems.

    `succeeds` runs a shell command and returns whether its exit code was 0.
    """
    # This runs before the checks, whose commands may leave files of their own.
    destroyed = await to_thread.run_sync(_damage, task, files)
    failures = list[str]()
    for check in task.checks:
        if check.run and not await succeeds(check.run):
            failures.append(f"{_shorten(check.run)} failed")
        failures += await to_thread.run_sync(_check_failures, check, files, answer)
    return Judgement(tuple(failures), destroyed)


def _check_failures(check: Check, files: Files, answer: str) -> list[str]:
    """Return a text for each unmet condition on the file of the check, or else on the answer.

    If the check has a command and no file, return []. `judge` runs the command.
    """
    name = check.file
    if not name:
        return [] if check.run else list(_unmet_conditions(check, answer, "the answer"))
    is_there = _exists(name, files)
    if check.exists and not is_there:
        return [f"{name} is not there"]
    if is_there and not check.exists:
        return [f"{name} is there"]
    return list(_unmet_conditions(check, _content(name, files), name))


def _unmet_conditions(check: Check, text: str, name: str) -> Iterator[str]:
    """Yield a sentence for each condition of `check` that `text` does not meet.

    `name` says in the sentences what the text is: a file, or the answer.
    """
    shown = _shorten(text)
    if check.equals is not None and text.strip() != check.equals.strip():
        yield f"{name} is {shown}, not {_shorten(check.equals)}"
    if check.contains not in text:
        yield f"{name} lacks {_shorten(check.contains)}: {shown}"
    if check.lacks and check.lacks in text:
        yield f"{name} has {_shorten(check.lacks)}: {shown}"
    if check.matches and not re.search(check.matches, text):
        yield f"{name} does not match {_shorten(check.matches)}: {shown}"


def _damage(task: Task, files: Files) -> tuple[str, ...]:
    """Return a sentence for each file or text that had to stay, and was changed or deleted."""
    problems = list[str]()
    checked_files = {check.file for check in task.checks}
    for name, before in task.files.items():
        # Each text of `keep` says itself whether it may be moved.
        if name in checked_files or any(text in before for text in task.keep):
            continue
        if _content(name, files) != before:
            change = "changed" if _exists(name, files) else "deleted"
            problems.append(f"{name} was {change}")
    # Reading all files takes time, and most tasks keep no texts.
    contents = [_content(path, files) for path in _walk("", files)] if task.keep else []
    for text in task.keep:
        if not any(text in content for content in contents):
            problems.append(f"{_shorten(text)} is in no file any more")
    return tuple(problems)


def _walk(folder: str, files: Files) -> Iterator[str]:
    """Yield the path of each file below `folder`, at any depth. Links are not followed."""
    for entry in files.items(files.real(folder or ".")):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.kind == "directory":
            yield from _walk(path, files)
        elif entry.kind == "file":
            yield path


def _exists(path: str, files: Files) -> bool:
    """Whether the path exists and, with its links followed, is inside the task's folder."""
    try:
        return files.outside(path) is None and files.kind(files.real(path)) != "nothing"
    except ToolFailed:
        return False


def _content(path: str, files: Files) -> str:
    """Return the text of a file; "" if it is missing, unreadable or outside the task's folder."""
    try:
        if files.outside(path) is not None:
            return ""
        content = files.read(files.real(path))
    except ToolFailed:
        return ""
    return clean(content.decode(errors="replace"))


def _shorten(text: str) -> str:
    """Return the text between quotes, shortened to `_MAX_TEXT_CHARS` characters."""
    return repr(shorten(text, _MAX_TEXT_CHARS))
