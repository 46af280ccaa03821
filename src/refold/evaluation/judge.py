"""Runs the checks of a task, and finds what failed and what was destroyed.

A failure is a task that was not done. Destruction is counted separately: something that
existed, and had to stay, is gone or changed.
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

Succeeds = Callable[[str], Awaitable[bool]]  # runs a command: did it end with code 0?
_MAX_TEXT_CHARS = 80


class Judgement(Struct, frozen=True):
    """`failures` and `destroyed` are sentences; the task has passed without any."""

    failures: tuple[str, ...] = ()
    destroyed: tuple[str, ...] = ()

    @property
    def has_passed(self) -> bool:
        return not (self.failures or self.destroyed)


async def judge(task: Task, files: Files, answer: str, succeeds: Succeeds) -> Judgement:
    # Before the checks, whose commands may leave files of their own.
    destroyed = await to_thread.run_sync(_damage, task, files)
    failures = list[str]()
    for check in task.checks:
        if check.run and not await succeeds(check.run):
            failures.append(f"{_shorten(check.run)} failed")
        failures += await to_thread.run_sync(_failures, check, files, answer)
    return Judgement(tuple(failures), destroyed)


def _failures(check: Check, files: Files, answer: str) -> list[str]:
    if check.run and not check.file:
        return []
    text, name = answer, "the answer"
    if check.file:
        name = check.file
        if _exists(name, files) is not check.exists:
            return [f"{name} is {'not there' if check.exists else 'there'}"]
        text = _content(name, files)
    return list(_conditions(check, text, name))


def _conditions(check: Check, text: str, name: str) -> Iterator[str]:
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
    problems = list[str]()
    named = {check.file for check in task.checks}
    for name, before in task.files.items():
        # A text of `keep` says itself whether it may be moved.
        if name in named or any(text in before for text in task.keep):
            continue
        if _content(name, files) != before:
            problems.append(
                f"{name} was {'changed' if _exists(name, files) else 'deleted'}"
            )
    contents = [_content(path, files) for path in _walk("", files)] if task.keep else []
    problems += [
        f"{_shorten(text)} is in no file any more"
        for text in task.keep
        if not any(text in content for content in contents)
    ]
    return tuple(problems)


def _walk(folder: str, files: Files) -> Iterator[str]:
    """The files below `folder`; links are not followed."""
    for entry in files.items(files.real(folder or ".")):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.kind == "directory":
            yield from _walk(path, files)
        elif entry.kind == "file":
            yield path


def _exists(path: str, files: Files) -> bool:
    try:
        return files.outside(path) is None and files.kind(files.real(path)) != "nothing"
    except ToolFailed:
        return False


def _content(path: str, files: Files) -> str:
    """The text of the file; "" if there is none, or if a link leads it out of the folder."""
    try:
        content = files.read(files.real(path)) if files.outside(path) is None else b""
    except ToolFailed:
        return ""
    return clean(content.decode(errors="replace"))


def _shorten(text: str) -> str:
    return repr(shorten(text, _MAX_TEXT_CHARS))
