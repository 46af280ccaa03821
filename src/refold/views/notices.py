"""One-line notices for the user: compactions, outside changes, unsent messages, warnings. Pure.

The warnings after a turn are read from the journal and not from the model's answer: they say
whether the last command failed and which files could not be written.
"""

import os
from collections.abc import Iterator, Sequence

import msgspec

from refold.journal.events.child_events import (
    HookRan,
    PlaceRebuilt,
    TerminalEnded,
    TerminalStarted,
    WorktreeLeft,
)
from refold.journal.events.kinds import Compacted, Entry, HolderEnded, Started
from refold.journal.state.failures import CommandFailure
from refold.journal.state.fold import View
from refold.values.path_names import relative_name
from refold.values.printable_names import shorten
from refold.views.escape import escape_to_one_line, visible
from refold.views.styled import Line, line
from refold.views.wrap import cut

NOTIFY_TOOL = "notify"
NO_HOOKS = "There are no hooks here. `refold hooks list` says where yours go."
_MAX_NAMED_FILES = 3
_MAX_HOOK_CELLS = 40
_MAX_UNSENT_CELLS = 60
ESTIMATED_NOTICE = "The provider gave no usable token counts; numbers with ~ are estimates."
# Outcomes without warnings: the person stopped the turn and knows why, or it only planned.
_QUIET_OUTCOMES = ("interrupted", "cancelled", "plan_ready")
_MAX_FILES = 5  # more are only counted
_MAX_REASON_CELLS = 200  # of a hook's failure
_MAX_COMMAND_CHARS = 100  # of a command or a reason


def notification(entry: Entry, view: View) -> str:
    """Return the message of a `notify` call that starts with this event.

    Return "" for other events, and for a call with invalid arguments.
    """
    if not isinstance(entry.event, Started):
        return ""
    call = view.conversation.call(entry.event.call_id)
    if call is None or call.call.name != NOTIFY_TOOL:
        return ""
    try:
        arguments = msgspec.json.decode(call.call.arguments, type=dict[str, object])
    except msgspec.DecodeError:
        return ""
    return escape_to_one_line(" ".join(str(arguments.get("message", "")).split()))


def hook_notice(event: HookRan) -> str:
    """Return a sentence about the effect of a hook; "" if it had none.

    A refusal is not described here, because the refused call shows it.
    """
    name = cut(escape_to_one_line(event.hook), _MAX_HOOK_CELLS)
    hook = f"The {event.on} hook `{name}`"
    changes_input = bytes(event.arguments) != b"null"
    match event.outcome:
        case "blocked" if event.by_failure:
            subject = "call" if event.on == "PreToolUse" else "message"
            text = f"{hook} failed, so the {subject} is refused: {event.reason}"
        case "blocked" if event.on != "PreToolUse":
            text = f"{hook} blocked: {event.reason}"
        case "failed":
            text = f"{hook} failed: {event.reason}"
        case "passed" if event.asks:
            text = f"{hook} wants you to be asked: {event.reason}"
        case "passed" if changes_input:
            text = f"{hook} changed the input of the call."
        case "passed" if event.context:
            text = f"{hook} added text for the model."
        case _:  # only its own notice, if any
            text = f"{hook}: {event.notice}" if event.notice else ""
            return escape_to_one_line(text)
    return escape_to_one_line(f"{text} {event.notice}".rstrip())


def holder_ended_text(event: HolderEnded) -> str:
    """Return a sentence about the process that was killed because it had the session open."""
    process = f"The process {event.pid} (`{escape_to_one_line(event.command)}`)"
    reason = f": {escape_to_one_line(event.reason)}" if event.reason else ""
    return f"{process} on {escape_to_one_line(event.host)} had this session open and was killed{reason}."


def terminal_notice(event: TerminalStarted | TerminalEnded) -> str:
    """Return a sentence about a terminal that the user opened in the web page."""
    if isinstance(event, TerminalStarted):
        place = escape_to_one_line(event.directory)
        return f"Terminal {escape_to_one_line(event.shell)} opened in {place}."
    ending = {
        "exited": "exited", "closed": "was closed", "idle": "was closed after hours without use",
        "stopped": "was closed with the conversation", "failed": "failed",
    }[event.reason]  # fmt: skip
    code = f" with code {event.code}" if event.reason == "exited" else ""
    problem = f": {escape_to_one_line(event.problem)}" if event.problem else ""
    return f"The terminal {ending}{code}{problem}."


def compaction_notice(event: Compacted, view: View, assumed_window: int) -> Line:
    """Return a line about a compaction.

    `assumed_window` is used for the size of the context window if it is unknown.
    """
    count = event.dropped
    if not count and event.size_after >= event.size_before:
        return line("The conversation cannot be compacted further.", "dim")
    match event.kind:
        case "prune":
            results, lines = _plural("result", count), _plural("line", count)
            change = f"{count} old {results} became {lines}"
        case "full" if not count:
            change = "the longest results were cut"
        case "full":
            change = f"{count} {_plural('message', count)} became a summary"
        case "trim":
            why = f" ({visible(event.reason)})" if event.reason else ""
            messages = _plural("message", count)
            change = f"{count} old {messages} left out, without a summary{why}"
    before = _window_percent(event.size_before, view, assumed_window)
    after = _window_percent(event.size_after, view, assumed_window)
    share = after if before == after else f"{before} -> {after}"
    style = "warn" if event.kind == "trim" else "dim"
    return line(f"compacted: {change}, {share} of window", style)


def external_edits_notice(files: Sequence[tuple[str, str]]) -> str:
    """Return a sentence about changed files, given as pairs of path and kind of change."""
    names = ", ".join(
        f"{escape_to_one_line(os.path.basename(path))} ({kind})"
        for path, kind in files[:_MAX_NAMED_FILES]
    )
    other_count = len(files) - _MAX_NAMED_FILES
    others = f" and {other_count} more" if other_count > 0 else ""
    return f"Changed outside this session (the model is informed): {names}{others}"


def unsent_messages(view: View) -> Sequence[str]:
    """Return the user's messages that were not delivered because the turn was stopped.

    They wait until the user continues.
    """
    return [
        message.said.text
        for message in view.conversation.undelivered
        if message.seq < view.turn.stop_seq and message.said.sender == "person"
    ]


def was_stopped_unanswered(view: View) -> bool:
    """Whether the last turn was stopped before any part of its answer arrived."""
    turn = view.turn
    if turn.outcome != "interrupted" or turn.seq:  # it was not stopped, or another one runs
        return False
    return not (turn.steps or turn.answer or view.conversation.undelivered)


def unsent_notice(view: View) -> str:
    """Return a line with the unsent messages and a hint; "" if there is nothing to show.

    Return "" also after a newer message: it starts a turn, and the turn sends the other
    messages.
    """
    messages = unsent_messages(view)
    if not messages or is_redirected(view):
        return ""
    words = cut(escape_to_one_line(" / ".join(messages)), _MAX_UNSENT_CELLS)
    dot = "" if words.endswith((".", "!", "?", "…")) else "."
    return f"Not sent yet: {words}{dot} Your next message or Enter sends it."


def is_redirected(view: View) -> bool:
    """Whether the user sent a message after the turn was stopped. It starts the next turn."""
    return any(
        message.seq > view.turn.stop_seq and message.said.sender == "person"
        for message in view.conversation.undelivered
    )


def session_end_notice(view: View) -> str:
    """Return a sentence about the background commands that end with the session; "" without
    any.
    """
    names = ", ".join(
        f"{command.name} ({_shorten(command.started.command)})"
        for command in view.background.running
    )
    return f"Ended with the session: {names}" if names else ""


def waiting_commands(view: View) -> str:
    """Return the commands that the session awaits, by name and command line; "" without any."""
    return ", ".join(
        f"{command.name} ({_shorten(command.started.command)})"
        for command in view.commands_to_await
    )


def answer_end_warnings(view: View) -> tuple[str, ...]:
    """Return a warning for each background command that is stopped when a headless run ends."""
    return tuple(
        f"{command.name} still ran and was stopped with the answer: "
        f"{_shorten(command.started.command)}"
        for command in view.background.running
    )


def _window_percent(size: int, view: View, assumed_window: int) -> str:
    """Return the share of the window that `size` characters and the prompt fill: "12%"."""
    window = view.conversation.system_prompt.window or assumed_window
    token_count = (size + view.conversation.prompt_size) / view.conversation.chars_per_token
    percent = 100 * token_count / window
    return f"{round(percent)}%" if percent >= 1 else "<1%"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def warnings(view: View) -> tuple[str, ...]:
    """Return sentences about failures in the newest turn, without a period at the end."""
    if view.turn.outcome in _QUIET_OUTCOMES:
        return ()
    failed = view.failures.command
    sentences = [escape_to_one_line(warning) for warning in view.failures.responses]
    if failed:
        sentences.append(_command_warning(failed))
    return (*sentences, *_file_warnings(view), *_encoding_warnings(view))


def hook_failures(view: View, event: str = "") -> Iterator[str]:
    """Yield a sentence about each hook that failed in the newest turn.

    If `event` is not "", only hooks of that event are included. The sentences are for output
    that does not show the notices of `hook_notice`.
    """
    for failure in view.failures.hooks:
        if not event or failure.event == event:
            hook = cut(escape_to_one_line(failure.hook), _MAX_HOOK_CELLS)
            reason = cut(escape_to_one_line(failure.reason), _MAX_REASON_CELLS)
            yield f"the {failure.event} hook `{hook}` failed: {reason}"


def _command_warning(failed: CommandFailure) -> str:
    """Return a sentence about the last command. A command without an exit code was stopped."""
    command = _shorten(failed.command)
    if failed.code is None:
        why = f" ({escape_to_one_line(failed.ended)})" if failed.ended else ""
        return f"the last command was stopped before it was done{why}: {command}"
    return f"the last command failed with code {failed.code}: {command}"


def _file_warnings(view: View) -> Iterator[str]:
    """Yield a sentence about each file that was not written; many are only counted."""
    unwritten = list(view.failures.unwritten.items())
    for path, why in unwritten[:_MAX_FILES]:
        yield f"{_display_path(path, view)} was not written: {_shorten(why)}"
    if len(unwritten) > _MAX_FILES:
        yield f"{len(unwritten) - _MAX_FILES} more files were not written"


def _encoding_warnings(view: View) -> Iterator[str]:
    """Yield a sentence about each file whose encoding was changed; many are only counted."""
    recoded = list(view.failures.recoded.items())
    for path, encoding in recoded[:_MAX_FILES]:
        yield f"the encoding of {_display_path(path, view)} was changed from {encoding}"
    if len(recoded) > _MAX_FILES:
        yield f"the encoding of {len(recoded) - _MAX_FILES} more files was changed"


def _display_path(path: str, view: View) -> str:
    return escape_to_one_line(relative_name(path, view.session.directory))


def _shorten(text: str) -> str:
    return shorten(escape_to_one_line(text), _MAX_COMMAND_CHARS)


def place_rebuilt_text(event: PlaceRebuilt) -> str:
    """Return a sentence about a workspace that was created again.

    The sentence names the origin of its files and what is lost. If the event names no place,
    the session was moved to another worker.
    """
    if event.place:
        opening = f"{escape_to_one_line(event.place)} was lost and is another place now"
    else:
        opening = "Another worker continues this session"
    if event.problem:
        return f"{opening}; its files were not restored: {_shorten(event.problem)}"
    of_event = f" of event {event.checkpoint}" if event.checkpoint else ""
    if event.restored:
        text = f"{opening}: {event.files} files of the checkpoint{of_event} were restored."
    elif event.checkpoint and not event.place:
        text = (
            f"{opening}, which had it before: "
            f"the files are those after the checkpoint{of_event}."
        )
    else:
        text = f"{opening}; the files that are there were not changed."
    if not event.lost and not event.calls:
        return text
    names = ", ".join(map(escape_to_one_line, event.lost[:_MAX_FILES])) or "unknown"
    other_count = len(event.lost) - _MAX_FILES
    others = f" and {other_count} more" if other_count > 0 else ""
    return f"{text} Lost may be what {event.calls} later calls did: {names}{others}."


def worktree_left_text(event: WorktreeLeft) -> str:
    """Return a sentence about a worktree that the session has left.

    The sentence names the directory to which the session returned, and whether the worktree
    still exists.
    """
    tree, directory = escape_to_one_line(event.tree), escape_to_one_line(event.directory)
    branch = ""
    if event.branch:
        branch = f"; its work is on the branch {escape_to_one_line(event.branch)}"
    outcomes = {
        "kept": f"the worktree {tree} is kept{branch}",
        "removed": f"the worktree {tree} is removed{branch}",
        "gone": f"the worktree {tree} does not exist any more",
    }
    return f"The session works in {directory} again: {outcomes[event.outcome]}."
