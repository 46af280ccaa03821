"""Previews a call before the user is asked: the diffs that it would make.

The tool itself runs, on files that keep its changes in memory, so the preview is what would
happen. A call that fails here, or does not pass the check of
its tool, fails without a question.

A display that computed the effect from the arguments would be every edit tool a second
time, and wrong sooner or later.
"""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from anyio import to_thread
from msgspec.structs import replace

from refold.engine.execute import end_as_failed
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.kinds import Ended, Event, Judged
from refold.place.port import Files, Real
from refold.values.display import Diff
from refold.values.messages import ToolCall
from refold.values.printable_names import escape_name
from refold.values.tools import Effect


def question_to_preview(call: ToolCall, event: Event, world: World) -> Judged | None:
    """The question, if `event` is one and its call can be previewed."""
    if not isinstance(event, Judged) or event.verdict != "ask":
        return None
    tool = world.tool(call.name)
    if tool is None or world.files is None:
        return None
    return event if tool.dry_run or tool.check is not None else None


async def add_preview(
    call: ToolCall, question: Judged, world: World, record: Record
) -> Judged | Ended:
    """The question with its preview, or the end of the call if it would fail.

    Earlier calls on the same files that still wait count as done; one that reads has then
    seen the version on the disk. A failure is reported to the model only if it does not
    depend on a change that waits, and if all files are in the workspace: elsewhere it would
    reveal what is there before the user has agreed.
    """
    if world.files is None:
        return question
    files = world.files.dry_run()
    known = dict(record.view.file_hashes.files)
    earlier = _earlier_calls(call, world, record)
    changing = [waiting for waiting in earlier if not _is_read_only(waiting, world)]
    if len(changing) < len(earlier):
        known.update(_current_versions(call, world, files))
    for waiting in changing:
        with suppress(ToolFailed):
            await _compute_changes(waiting, world, files, known)
    try:
        return replace(question, changes=await _compute_changes(call, world, files, known))
    except ToolFailed as error:
        if changing or any(files.outside(real) for real in _real_paths(call, world)):
            return question
        return await end_as_failed(call.id, str(error), world, record)


async def _compute_changes(
    call: ToolCall, world: World, files: Files, texts: dict[str, str]
) -> tuple[Diff, ...]:
    """Run the tool on `files` and return the changes; adds new versions to `texts`."""
    tool = world.tool(call.name)
    if tool is None:
        return ()
    arguments = world.prepared.prepare(call, tool).arguments
    if tool.check is not None:
        await to_thread.run_sync(tool.check, arguments, files)
    if not tool.dry_run:
        return ()
    own = files.only(_real_paths(call, world))
    # The user decides.
    dependencies = {"files": own, "known": texts, "unread": frozenset[str]()}
    try:
        reply = await tool.run(
            **arguments, **{name: dependencies[name] for name in tool.signature().needs}
        )
    except ToolFailed:
        raise
    except Exception as error:  # a tool's bug must not end the session
        raise ToolFailed(f"{type(error).__name__}: {error}") from error
    changes = tuple(part for part in reply.shown if isinstance(part, Diff))
    texts.update({diff.path: diff.after for diff in changes})
    return changes


def _earlier_calls(call: ToolCall, world: World, record: Record) -> Sequence[ToolCall]:
    """The calls before this one that wait and are about the same files."""
    earlier, files = list[ToolCall](), set(_real_paths(call, world))
    for open_call in record.view.conversation.calls:
        if open_call.call.id == call.id:
            break
        if open_call.result is None and open_call.stage != "denied":
            whole = record.unmask(open_call.call) or open_call.call
            if files & set(_real_paths(whole, world)):
                earlier.append(whole)
    return earlier


def _is_read_only(call: ToolCall, world: World) -> bool:
    tool = world.tool(call.name)
    return tool is not None and tool.effect is Effect.LOOK


def _current_versions(call: ToolCall, world: World, files: Files) -> dict[str, str]:
    """The hashes of the files that a call names, as they are on the disk."""
    versions, paths = dict[str, str](), _real_paths(call, world)
    own = files.only(paths)
    for path in paths:
        with suppress(ToolFailed, OSError):
            versions[escape_name(path)] = sha256(own.read(Real(path))).hexdigest()
    return versions


def _real_paths(call: ToolCall, world: World) -> Sequence[str]:
    """The files that a call names, links followed; none if it cannot be read."""
    tool = world.tool(call.name)
    if tool is None:
        return ()
    try:
        resolved = world.prepared.resolve(call, tool, world.facts())
    except ToolFailed:
        return ()
    return [target.real for target in resolved.access.files]
