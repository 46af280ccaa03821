"""Executes a call with the permissions of this moment, and records its result.

The workspace is checkpointed before a call may change files. The model reads the result, so
its length is limited; a longer result is stored as a blob, and the model gets the blob's
name. `calls` decides whether a call runs at all.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import anyio
from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from refold.engine.authorize import effective_mode, judge
from refold.engine.budget import ask_outside_conversation
from refold.engine.checkpoint import mark_files_changed, save_before
from refold.engine.nested_call import RunCall, call_within, key_of
from refold.engine.world import Record, World
from refold.errors import BadInput, ConnectionLost, JournalError, ProviderError, ToolFailed
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import Ended
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.permissions.facts import Access, Decision
from refold.permissions.rules import COMMAND_TOOLS
from refold.place.port import Files
from refold.provider.port import Request
from refold.tools.contract import Completion, Context, ImageData, Reply, Tool
from refold.values.display import (
    ASK_USER,
    NESTED_QUESTION,
    AskedQuestion,
    Diff,
    Note,
    Shown,
)
from refold.values.live import Progress
from refold.values.messages import Image, ToolCall
from refold.values.text import clean, escape_tool_text
from refold.values.tools import Effect

STOPPED_RESULT = "Interrupted while running. Check what it had already done."

SECRET_NOT_KEPT = (
    "Interrupted, and not repeated: its arguments held a secret that is not stored. "
    "It may have taken effect: check before repeating it."
)

PATH_MOVED = (
    "Not done: a path in it leads elsewhere than when it was allowed, because a link or a "
    "folder has changed. Check the path and call again."
)

CHANGED_MEANWHILE = "(The agent {who}, which works beside you, has changed {path} since.)"

WITHDRAWN_QUESTION = "Not asked any more: the answer has come in another way."
REFUSED_CALL = "Refused{why}. It was not done; do not try to get round this."


class RunningCall:
    """A call that runs, as its tool sees it: its progress goes to the watchers."""

    def __init__(
        self, call_id: str, record: Record, run_call: RunCall | None = None
    ) -> None:
        self.id, self.record, self._tail = call_id, record, ""
        self._run_call, self._asked = run_call, 0
        self.outside = False  # whether its result is text from outside

    def context(self, world: World) -> Context:
        view = self.record.view
        return Context(
            Path(view.session.directory),
            view.session.id,
            self.id,
            self.progress,
            partial(self._ask_user, world),
            self._withdraw_question,
        )

    async def _ask_user(self, world: World, question: AskedQuestion) -> str:
        """Ask the user, by a call of `ask_user` within this one."""
        self._asked += 1
        call_id = f"{self.id}{NESTED_QUESTION}{self._asked}"
        if self._run_call is None or world.tool(ASK_USER) is None:
            raise ToolFailed("There is no user to ask in this session.")
        arguments = Raw(encode({"questions": [question]}))
        call = ToolCall(call_id, ASK_USER, arguments)
        wanted = NestedCallMade(
            call, self.id, key_of("ask", question.question), self._asked
        )
        result = await call_within(wanted, world, self.record, self._run_call)
        if result.failed:
            raise ToolFailed(result.text)
        return result.text.removeprefix(f"{question.question}\n  ")

    async def _withdraw_question(self) -> None:
        """End the question that waits for an answer, if there is one."""
        call_id = f"{self.id}{NESTED_QUESTION}{self._asked}"

        def make_events(view: View) -> tuple[Ended, ...]:
            call = view.conversation.call(call_id)
            if call is None or call.stage != "asked" or call.result:
                return ()
            return (Ended(call_id, "stopped", WITHDRAWN_QUESTION),)

        while (call := self.record.view.conversation.call(call_id)) and not call.result:
            seq = self.record.view.seq
            if not await self.record.append_if(make_events, author="tool"):
                await self.record.wait_for_event(after=seq)

    def progress(self, text: str) -> None:
        self._tail = (self._tail + text)[-2_000:]
        self.record.publish(Progress(self.id, clean(text)))

    def end_as_stopped(self) -> Ended:
        so_far = f"\nThe last it printed:\n{self._tail}" if self._tail.strip() else ""
        return Ended(self.id, "stopped", STOPPED_RESULT + escape_tool_text(so_far)[0])


async def execute(
    open_call: OpenCall, world: World, record: Record, run_call: RunCall | None = None
) -> Ended:
    """Execute a call that has been started, and record its result."""
    call = open_call.call
    whole, tool = record.unmask(call), world.tool(call.name)
    if whole is None or tool is None:
        end = Ended(call.id, "unknown", SECRET_NOT_KEPT)
        await record(end)
        return end
    running = RunningCall(call.id, record, run_call)
    end, access = Ended(call.id, "stopped", ""), None
    try:
        access = access_as_judged(open_call, whole, tool, world)
        end = await _execute(open_call, whole, tool, world, running)
    finally:
        if end.outcome == "stopped":
            end = running.end_as_stopped()
        if running.outside:
            end = replace(end, outside=True)
        await record(end)
    files = [target.real for target in access.files] if access else []
    await _update_instructions(open_call, end, files, world, record)
    return end


async def _update_instructions(
    open_call: OpenCall, end: Ended, files: Sequence[str], world: World, record: Record
) -> None:
    """Approve instructions that the user saw changed, and record those of the folders of
    the files that were read or edited.
    """
    if world.instructions is None or end.outcome != "done":
        return
    known = [item.path for item in record.view.reminders.instructions]
    if files and (news := await world.instructions.instructions_below(files, known)):
        await record(news, author="place")
    if not open_call.changes:
        return
    shown = {change.path: change.after for change in open_call.changes}
    diffs = [item for item in end.shown if isinstance(item, Diff)]
    await world.instructions.approve([d for d in diffs if shown.get(d.path) == d.after])


def refusal_text(reason: str) -> str:
    """The text for the model about a call that was not allowed."""
    reason = reason.rstrip(".")  # it ends a clause here
    return REFUSED_CALL.format(why=f": {reason}" if reason else "")


async def _execute(
    open_call: OpenCall, whole: ToolCall, tool: Tool, world: World, running: RunningCall
) -> Ended:
    """Execute the call.

    It is authorized again as late as possible: a link or the mode may have changed.
    """
    record = running.record
    access = access_as_judged(open_call, whole, tool, world)
    if access is None:
        return Ended(whole.id, "failed", PATH_MOVED)
    known = partial(world.prepared.decide, whole.id)
    above = world.lineage.parent
    decision = judge(access, world, record.view, parent=above, decider=known)
    files = (
        world.files.only([target.real for target in access.files]) if world.files else None
    )
    writes = _may_write(tool, decision)
    if writes and decision.verdict != "deny":
        saved = bool(access.files) and await _save_editor_text(files, world)
        due = record.view.checkpoints.seq <= open_call.called
        if due and files is not None and not open_call.changes:  # else it was previewed
            own = _call_dependencies(open_call, files.dry_run(), decision, running, world)
            if end := await _fail_in_dry_run(whole, own, world, running):
                return _with_remarks(_share_with_tree(end, access, world, record), files)
        # The checkpoint of an earlier call of this answer lacks the text just saved.
        answer = 0 if saved else open_call.called
        await save_before(whole, world, record, answer=answer)
        # The mode may have changed meanwhile.
        decision = judge(access, world, record.view, parent=above, decider=known)
    if end := denial(whole.id, decision):
        return end
    running.outside = tool.outside or access.network or decision.confines.network
    own = _call_dependencies(open_call, files, decision, running, world)
    try:
        end = await _run_with_edit_checks(
            partial(run_tool, whole, tool, world, running, own), access, world
        )
    finally:
        if writes:
            mark_files_changed(world)
    return _with_remarks(_share_with_tree(end, access, world, record), files)


async def _fail_in_dry_run(
    call: ToolCall,
    own_dependencies: Mapping[str, object],
    world: World,
    running: RunningCall,
) -> Ended | None:
    """The end of an edit that fails, which is not worth a checkpoint. None if it works."""
    tool = world.tool(call.name)
    if tool is None or not tool.dry_run or world.snapshots is None:
        return None
    end = await run_tool(call, tool, world, running, own_dependencies)
    return end if end.outcome == "failed" else None


async def _run_with_edit_checks(
    do_it: Callable[[], Awaitable[Ended]], access: Access, world: World
) -> Ended:
    """The end of the call, with the problems it introduced in the files that it changed."""
    if world.edit_checks is None or access.effect is not Effect.CHANGE:
        return await do_it()
    news = await world.edit_checks.begin([target.real for target in access.files])
    end = await do_it()
    if news is None or end.outcome != "done":
        return end
    try:
        words, _ = escape_tool_text(await news())
    except anyio.get_cancelled_exc_class():
        return end  # the edit was done, and must be recorded as done
    if not words:
        return end
    shown = map(Note, words.splitlines())
    return replace(end, text=f"{end.text}\n{words}", shown=(*end.shown, *shown))


async def _save_editor_text(files: Files | None, world: World) -> bool:
    """Have an editor save its text of the call's files. Returns whether there was any."""
    if files is None or not await files.save_first():
        return False
    if world.snapshots is not None:
        world.snapshots.forget()  # it may have been taken before
    return True


def _with_remarks(end: Ended, files: Files | None) -> Ended:
    """Add an editor's remarks on the call's files, for the model and the user."""
    remarks = (
        [escape_tool_text(remark)[0] for remark in files.remarks()]
        if files is not None
        else []
    )
    if not remarks:
        return end
    text = "\n".join((end.text, *(f"({line})" for line in remarks)))
    return replace(end, text=text, shown=(*end.shown, *map(Note, remarks)))


def _share_with_tree(end: Ended, access: Access, world: World, record: Record) -> Ended:
    """Share which files a call wrote; if it failed, name agents that changed its files."""
    shared, us = world.lineage.shared, world.lineage.address
    for diff in end.shown:
        if isinstance(diff, Diff):
            shared.record_write(diff.path, diff.after, us)
    if end.outcome != "failed" or access.effect is not Effect.CHANGE:
        return end
    known = record.view.file_hashes.files
    notes = [
        CHANGED_MEANWHILE.format(who=writer, path=path)
        for path in sorted({target.real for target in access.files})
        if (writer := shared.other_writer(path, known.get(path, ""), us))
    ]
    return replace(end, text=" ".join((end.text, *notes))) if notes else end


def denial(call_id: str, decision: Decision) -> Ended | None:
    """The end of a call that was begun but is forbidden now; None if it is not."""
    if decision.verdict != "deny":
        return None
    return Ended(call_id, "refused", refusal_text(decision.reason))


def access_as_judged(
    open_call: OpenCall, whole: ToolCall, tool: Tool, world: World
) -> Access | None:
    """What the call accesses; None if its paths lead to other files than when judged."""
    try:
        resolved = world.prepared.resolve(whole, tool, world.facts())
    except ToolFailed:
        return None
    return (
        resolved.access if not open_call.hash or resolved.hash == open_call.hash else None
    )


def _may_write(tool: Tool, decision: Decision) -> bool:
    """Whether a call may write files. Of tools of RUN, the decision confines only commands."""
    if tool.effect is not Effect.RUN:
        return tool.effect is Effect.CHANGE
    is_command = tool.command is not None or tool.name in COMMAND_TOOLS
    return decision.confines.writes if is_command else not tool.is_confined()


def _judge_subject(
    tool: Tool, world: World, record: Record, subject: str, private: bool
) -> Decision:
    """The decision on the same tool for another subject: a page redirects, or is private."""
    access = Access(tool.name, tool.effect, subject, private=private)
    return judge(access, world, record.view, parent=world.lineage.parent)


async def _complete(world: World, record: Record, request: Request) -> Completion:
    """A model call of a tool, from the budget of the turn. Raises `ToolFailed`."""
    aide = world.helper()
    request = replace(request, model=aide.name.partition("/")[2])
    try:
        text = await ask_outside_conversation(
            request, "sampling", aide, world.budget, record, world.lineage.grant
        )
    except ProviderError as error:
        raise ToolFailed(str(error)) from error
    return Completion(text, aide.name)


def _call_dependencies(
    open_call: OpenCall,
    files: Files | None,
    decision: Decision,
    running: RunningCall,
    world: World,
) -> Mapping[str, object]:
    """The dependencies of this call alone."""
    tool = world.tool(open_call.call.name)
    assert tool is not None  # a call of a missing tool is never started
    own: dict[str, object] = {
        "call": open_call.call.id,
        "confines": decision.confines,
        "answers": open_call.answers,
        "mode": effective_mode(world, running.record.view, world.lineage.parent),
        "judge": partial(_judge_subject, tool, world, running.record),
        "deferred": world.deferred,
        "unread": _partly_read_files(open_call, running.record.view),
        "complete": partial(_complete, world, running.record),
    }
    if files is not None:
        own["files"] = files
    if world.commands is not None:
        own["commands"] = world.commands
    return own


def _partly_read_files(open_call: OpenCall, view: View) -> frozenset[str]:
    """The files read only in part, which must not be overwritten; none if the user saw the
    change, or if the model repeats a call that failed.
    """
    if open_call.changes or not view.file_hashes.unread:
        return frozenset()
    earlier = (call for group in view.recent_calls.earlier for call in group.calls)
    same = any(c.failed and c.call.arguments == open_call.call.arguments for c in earlier)
    return frozenset() if same else view.file_hashes.unread


async def run_tool(
    call: ToolCall,
    tool: Tool,
    world: World,
    running: RunningCall,
    own_dependencies: Mapping[str, object],
) -> Ended:
    """Run the call. Any failure of the tool becomes a result for the model.

    `own_dependencies` are the dependencies of this call alone.
    """
    dependencies = {
        **world.tool_dependencies,
        **own_dependencies,
        "known": running.record.view.file_hashes.files,
        "progress": running.progress,
    }
    try:
        arguments = world.prepared.prepare(call, tool).arguments
        signature = tool.signature()
        supplied = {name: dependencies[name] for name in signature.needs}
        if signature.context:
            supplied[signature.context] = running.context(world)
        run = partial(tool.run, **arguments, **supplied)
        if world.results is None:
            return await end_as_done(call.id, await run(), world, running.record)
        files = cast("Files | None", own_dependencies.get("files"))
        reply, cached = await world.results.get_reply(tool, arguments, files, run)
        end = await end_as_done(call.id, reply, world, running.record)
        return replace(end, cached=cached)
    except ToolFailed as error:
        end = await end_as_failed(call.id, str(error), world, running.record)
        lost = isinstance(error, ConnectionLost) and tool.effect is not Effect.LOOK
        return replace(end, outcome="unknown") if lost else end
    except Exception as error:  # a tool's bug must not take the session with it
        words = f"{type(error).__name__}: {error}"
        return await end_as_failed(call.id, words, world, running.record)


async def end_as_failed(id_: str, words: str, world: World, record: Record) -> Ended:
    """The end of a call that failed; `words` are for the model, escaped and cut here."""
    words, unseen = escape_tool_text(words)
    text, whole = await _shorten(words, world, record)
    return Ended(id_, "failed", text, _invisible_characters_note(unseen), full_blob=whole)


async def end_as_done(id_: str, reply: Reply, world: World, record: Record) -> Ended:
    """The end of a call with the tool's reply; long text is cut here."""
    words, unseen = escape_tool_text(reply.text)
    text, whole = await _shorten(words, world, record, all_of_it=reply.whole)
    versions = tuple((version.path, version.sha256) for version in reply.seen)
    shown = tuple(_limit_shown(part, world.longest_result) for part in reply.shown)
    shown += _invisible_characters_note(unseen)
    try:
        images, notes = await _store_images(reply.images, record)
    except JournalError as error:  # the call was done, and must be recorded as done
        images, notes = (), (f"The image could not be kept: {error}",)
    text = "\n".join((text, *(f"({note})" for note in notes)))
    end = Ended(id_, "done", text, shown, versions, whole, reply.control, images)
    return replace(end, outside=True) if reply.outside else end


def _invisible_characters_note(unseen: int) -> tuple[Shown, ...]:
    """A note for the user: invisible characters may be meant for the model only."""
    if not unseen:
        return ()
    many = (
        "1 invisible character is"
        if unseen == 1
        else f"{unseen:,} invisible characters are"
    )
    return (Note(f"{many} written out for the model"),)


async def _store_images(
    images: Sequence[ImageData], record: Record
) -> tuple[tuple[Image, ...], tuple[str, ...]]:
    """The images as they are sent, and notes on what was done to them."""
    stored, notes = list[Image](), list[str]()
    for image in images:
        try:
            stored_image, note = await record.put_image(image)
        except BadInput as error:
            notes.append(f"The image cannot be shown: {error}")
            continue
        stored.append(stored_image)
        if note:
            notes.append(f"The image was {note}")
    return tuple(stored), tuple(notes)


def _limit_shown(shown: Shown, limit: int) -> Shown:
    """Limit what the user is shown like the text for the model: the journal stores both."""
    if len(shown.text) <= limit:
        return shown
    left_out = f"\n[… {len(shown.text) - limit} characters are left out here …]\n"
    text = shown.text[: limit // 2] + left_out + shown.text[-limit // 2 :]
    return replace(shown, text=text)


async def _shorten(
    text: str, world: World, record: Record, *, all_of_it: bool = True
) -> tuple[str, str]:
    """`text` cut in the middle if it is too long, and the blob that holds it whole.

    `all_of_it` is False if the tool itself left something out.
    """
    limit = world.longest_result
    if len(text) <= limit:
        return text, ""
    try:
        name = await record.put(clean(text).encode())
        extent = "the whole" if all_of_it else "what was kept of it"
        hint = f'read_file with path "blob:{name}" reads {extent}'
    except JournalError as error:  # the call was done, and must be recorded as done
        name, hint = "", f"The full text could not be stored: {error}"
    of_it = "" if all_of_it else " that were kept"
    left_out = f"{len(text) - limit} of {len(text)} characters{of_it} are left out here"
    half = limit // 2
    return f"{text[:half]}\n[… {left_out}. {hint} …]\n{text[-half:]}", name
