"""Failures of the latest turn that were not corrected in it.

They are the warnings of responses, the last command if it failed, each file that could not
be changed or whose encoding changed, and each hook that failed. They stay after the turn
has ended, for its closing line (`views.notices`).

A provider gives a warning in `Done.warning`, once in a turn. A warning is not sent as thinking,
because a script does not show thinking to its user.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Checkpointed,
    Ended,
    Entry,
    HookRan,
    Judged,
    ModelAnswered,
    TurnStarted,
)
from refold.values.display import Diff, Output
from refold.values.messages import ToolCall

EVENT_KINDS = (TurnStarted, ModelAnswered, Judged, Ended, Checkpointed, HookRan)
LASTING_KINDS = ()  # a new turn starts without failures

WRITE_TOOLS = frozenset(
    ("write_file", "edit_file", "multi_edit", "apply_patch", "notebook_edit")
)
_MAX_FILES = 50
_MAX_COMMAND_CHARS = 200
_MAX_REASON_CHARS = 200
_PATCH_FILE_PATTERN = r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\+\+\+ (?:b/)?([^\t\n]+)"

# With these commands, exit code 1 means "no", which is not a failure.
_QUERY_PROGRAMS = frozenset(
    ("grep", "egrep", "fgrep", "rg", "diff", "cmp", "test", "[", "[[", "which", "pgrep")
)
_NO_FILES: Mapping[str, str] = MappingProxyType({})


class CommandFailure(Struct, frozen=True):
    """A command that failed. `code` is None if it was killed; `ended` says why."""

    command: str
    code: int | None
    ended: str = ""


class WriteCall(Struct, frozen=True):
    """A call of the latest response that would change files."""

    call: ToolCall
    real: str = ""  # the path that was checked, with links resolved

    @property
    def paths(self) -> tuple[str, ...]:
        """The real path of the file; for a patch of several files, the paths as written in
        it.
        """
        paths = _paths(self.call)
        return (self.real,) if self.real and len(paths) < 2 else paths


class HookFailure(Struct, frozen=True):
    """A hook that failed after an event such as PostToolUse."""

    event: str
    hook: str
    reason: str


class Failures(Struct, frozen=True):
    command: CommandFailure | None = None
    # Maps the file to the first line of the reason.
    unwritten: Mapping[str, str] = _NO_FILES
    writing: tuple[WriteCall, ...] = ()
    hooks: tuple[HookFailure, ...] = ()  # the latest of each hook and event
    responses: tuple[str, ...] = ()  # warnings of responses
    # Maps the file to the change, e.g. "windows-1252 to UTF-8".
    recoded: Mapping[str, str] = _NO_FILES


def apply(failures: Failures, entry: Entry) -> Failures:
    """Return the failures after this entry. A new turn begins without any."""
    match entry.event:  # the most frequent kinds come first
        case Ended(shown=shown) if shown or failures.writing:
            return _after_end(failures, entry.event)
        case Judged(id_, real_path=real) if real and failures.writing:
            return _with_verdict(failures, id_, real)
        case ModelAnswered(message, warning=warning):
            if warning and warning not in failures.responses:
                failures = replace(failures, responses=(*failures.responses, warning))
            writing = [
                WriteCall(call) for call in message.calls if call.name in WRITE_TOOLS
            ]
            if not writing and not failures.writing:
                return failures
            return replace(failures, writing=tuple(writing))
        case Checkpointed(changed=changed) if failures.unwritten:
            return _without_paths(failures, {path for path, _ in changed})
        case (
            HookRan(outcome="failed", on=on, hook=hook, reason=why)
            | HookRan(by_failure=True, on=on, hook=hook, reason=why)
        ):
            others = [
                failure
                for failure in failures.hooks
                if (failure.event, failure.hook) != (on, hook)
            ]
            return replace(failures, hooks=(*others, HookFailure(on, hook, why)))
        case TurnStarted():
            return Failures()
        case _:
            return failures


def _with_verdict(failures: Failures, id_: str, real: str) -> Failures:
    """Return the failures with the real path of the call `id_`."""
    writing = [replace(w, real=real) if w.call.id == id_ else w for w in failures.writing]
    return replace(failures, writing=tuple(writing))


def _after_end(failures: Failures, end: Ended) -> Failures:
    """Return the failures after a call has ended.

    The failure of this call is added, or failures of files that it has written are removed.
    """
    for part in end.shown:
        if isinstance(part, Output):
            failures = replace(failures, command=_command_failure(part))
        if isinstance(part, Diff) and part.recoded:
            recoded = {**failures.recoded, part.path: part.recoded}
            failures = replace(failures, recoded=_newest_files(recoded))
    if end.outcome == "done" and not failures.unwritten:
        return failures
    paths_of_call = (w.paths for w in failures.writing if w.call.id == end.call_id)
    paths = next(paths_of_call, ())
    if end.outcome == "done":
        written = {part.path for part in end.shown if isinstance(part, Diff)}
        return _without_paths(failures, written.union(paths))
    if not paths or end.outcome == "stopped":
        return failures
    if end.outcome == "refused":
        reason = "it was refused"
    else:
        first_line, _, _ = end.text.strip().partition("\n")
        reason = first_line[:_MAX_REASON_CHARS]
    unwritten = {**failures.unwritten, **dict.fromkeys(paths, reason)}
    return replace(failures, unwritten=_newest_files(unwritten))


def _newest_files(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the last `_MAX_FILES` items."""
    return dict(list(texts.items())[-_MAX_FILES:])


def _without_paths(failures: Failures, paths: set[str]) -> Failures:
    """Return the failures without those at these paths.

    A failure may have the path as written in a patch, which is the end of a real path.
    """
    remaining = dict[str, str]()
    for failed_path, reason in failures.unwritten.items():
        end = "/" + failed_path.removeprefix("./")
        if not any(path == failed_path or path.endswith(end) for path in paths):
            remaining[failed_path] = reason
    if len(remaining) == len(failures.unwritten):
        return failures
    return replace(failures, unwritten=remaining)


def _command_failure(output: Output) -> CommandFailure | None:
    """Return the failure of a command; None if it succeeded or its answer is "no"."""
    if output.code == 0 or (output.code == 1 and _is_negative_answer(output)):
        return None
    return CommandFailure(
        output.command[:_MAX_COMMAND_CHARS], output.code, output.ended[:_MAX_REASON_CHARS]
    )


def _is_negative_answer(output: Output) -> bool:
    """Whether exit code 1 of this command means "no match" or "different", and not a
    failure.
    """
    last_list = re.split(r"[;\n]", output.command.strip().rstrip(";"))[-1]
    commands = [command.split() for command in re.split(r"&&|\|\|?", last_list)]
    programs = [argv[0] for argv in commands if argv]
    # With output, 1 means "different" only after these; other output may be an error message.
    if output.text.strip():
        return bool(programs) and programs[-1] in ("diff", "cmp")
    return any(program in _QUERY_PROGRAMS for program in programs)


def _paths(call: ToolCall) -> tuple[str, ...]:
    """Return the paths that a call of a tool in `WRITE_TOOLS` names.

    A call names one `path`, or the files of a `patch`, which has its own format or is a unified
    diff.
    """
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return ()
    if path := arguments.get("path"):
        return (str(path),)
    patch = str(arguments.get("patch", ""))
    paths = dict[str, None]()  # each once, in order
    for patch_name, diff_name in re.findall(_PATCH_FILE_PATTERN, patch, re.MULTILINE):
        name = patch_name or diff_name
        if name and name != "/dev/null":  # the new name of a deleted file in a diff
            paths[name.strip()] = None
    return tuple(paths)
