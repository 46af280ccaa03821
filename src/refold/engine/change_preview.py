"""Computes the diffs that a call would make, before the user is asked about it.

The tool itself runs, on files that keep its changes in memory, so the preview is exact. A
call that fails in the preview, or does not pass the check of its tool, ends as failed, and
the user is not asked.

A display that computed the effect from the arguments would implement every edit tool a
second time, and would differ from it sooner or later.
"""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from anyio import to_thread
from msgspec.structs import replace

from refold.engine.call_results import end_as_failed
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.kinds import Ended, Event, Judged
from refold.place.port import Files, Real
from refold.values.display import Diff
from refold.values.messages import ToolCall
from refold.values.printable_names import escape_name
from refold.values.tools import Effect


def question_to_preview(call: ToolCall, event: Event, world: World) -> Judged | None:
    """Return `event` if it is a question whose call can be previewed; otherwise None."""
    if not isinstance(event, Judged) or event.verdict != "ask":
        return None
    tool = world.tool(call.name)
    if tool is None or world.files is None:
        return None
    return event if tool.dry_run or tool.check is not None else None


async def add_preview(
    call: ToolCall, question: Judged, world: World, record: Record
) -> Judged | Ended:
    """Return the question with its preview, or the end of the call if it would fail.

    The preview assumes that earlier waiting calls on the same files have run: it contains their
    changes, and a file that one of them reads counts as read by the model.

    A failure is reported to the model only if it does not depend on such a waiting change,
    and if all files are in the workspace: for other files the report would reveal their
    content before the user has agreed.
    """
    if world.files is None:
        return question
    files = world.files.dry_run()
    versions = dict(record.view.file_hashes.files)
    earlier_calls = _earlier_calls(call, world, record)
    earlier_changes = [c for c in earlier_calls if not _is_read_only(c, world)]
    if len(earlier_changes) < len(earlier_calls):  # one of them reads these files
        versions.update(_current_versions(call, world, files))
    for earlier_call in earlier_changes:
        with suppress(ToolFailed):
            await _compute_changes(earlier_call, world, files, versions)
    try:
        changes = await _compute_changes(call, world, files, versions)
        return replace(question, changes=changes)
    except ToolFailed as error:
        if earlier_changes:
            return question
        if any(files.outside(real) for real in _real_paths(call, world)):
            return question
        return await end_as_failed(call.id, str(error), world, record)


async def _compute_changes(
    call: ToolCall, world: World, files: Files, versions: dict[str, str]
) -> tuple[Diff, ...]:
    """Run the tool on `files` and return the changes.

    `versions` maps the files that the model knows to their hashes. The hashes of changed files
    are updated.
    """
    tool = world.tool(call.name)
    if tool is None:
        return ()
    arguments = world.prepared.prepare(call, tool).arguments
    if tool.check is not None:
        await to_thread.run_sync(tool.check, arguments, files)
    if not tool.dry_run:
        return ()
    own_files = files.only(_real_paths(call, world))
    # `tool` has checked that a tool with `dry_run` has no other dependencies.
    dependencies = {"files": own_files, "known": versions, "unread": frozenset[str]()}
    needed = {name: dependencies[name] for name in tool.signature().needs}
    try:
        reply = await tool.run(**arguments, **needed)
    except ToolFailed:
        raise
    except Exception as error:  # a tool's bug must not end the session
        raise ToolFailed(f"{type(error).__name__}: {error}") from error
    changes = tuple(part for part in reply.shown if isinstance(part, Diff))
    versions.update({diff.path: diff.after for diff in changes})
    return changes


def _earlier_calls(call: ToolCall, world: World, record: Record) -> Sequence[ToolCall]:
    """Return the waiting calls before this one that are about the same files."""
    earlier_calls = list[ToolCall]()
    files = set(_real_paths(call, world))
    for open_call in record.view.conversation.calls:
        if open_call.call.id == call.id:
            break
        if open_call.result is None and open_call.stage != "denied":
            unmasked = record.unmask(open_call.call) or open_call.call
            if files & set(_real_paths(unmasked, world)):
                earlier_calls.append(unmasked)
    return earlier_calls


def _is_read_only(call: ToolCall, world: World) -> bool:
    tool = world.tool(call.name)
    return tool is not None and tool.effect is Effect.LOOK


def _current_versions(call: ToolCall, world: World, files: Files) -> dict[str, str]:
    """Return the hash of each file that a call names, by path, for the content on the disk."""
    versions = dict[str, str]()
    paths = _real_paths(call, world)
    own_files = files.only(paths)
    for path in paths:
        with suppress(ToolFailed, OSError):
            content = own_files.read(Real(path))
            versions[escape_name(path)] = sha256(content).hexdigest()
    return versions


def _real_paths(call: ToolCall, world: World) -> Sequence[str]:
    """Return the real paths of the files that a call names; none if the call is invalid."""
    tool = world.tool(call.name)
    if tool is None:
        return ()
    try:
        resolved = world.prepared.resolve(call, tool, world.facts())
    except ToolFailed:
        return ()
    return [target.real for target in resolved.access.files]
