"""Executes a call with the permissions that hold when it begins, and records its result.

A checkpoint is saved before a call may change files. `calls` decides whether a call runs at
all, and `call_results` makes its result.
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
from refold.engine.call_ends import record_end
from refold.engine.call_results import end_as_done, end_as_failed
from refold.engine.checkpoint import mark_files_changed, save_before
from refold.engine.nested_call import RunCall, call_within, key_of
from refold.engine.world import Record, World
from refold.errors import ConnectionLost, ProviderError, ToolFailed
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import Ended
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.permissions.facts import Access, Decision
from refold.permissions.rules import COMMAND_TOOLS
from refold.place.port import Files
from refold.provider.port import Request
from refold.tools.contract import Completion, Context, Tool
from refold.values.display import (
    ASK_USER,
    NESTED_QUESTION,
    AskedQuestion,
    Diff,
    Note,
)
from refold.values.live import Progress
from refold.values.messages import ToolCall
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
    """A running call, as its tool sees it. Its progress is sent to the watchers."""

    def __init__(
        self, call_id: str, record: Record, run_call: RunCall | None = None
    ) -> None:
        self.id, self.record = call_id, record
        self._tail = ""  # the end of the output so far
        self._run_call = run_call
        self._question_count = 0
        self.outside = False  # whether its result counts as text from outside

    def context(self, world: World) -> Context:
        """Return what the tool gets to know of the session and of its call."""
        view = self.record.view
        return Context(
            directory=Path(view.session.directory),
            session_id=view.session.id,
            call_id=self.id,
            progress=self.progress,
            put=partial(self._ask_user, world),
            withdraw=self._withdraw_question,
        )

    async def _ask_user(self, world: World, question: AskedQuestion) -> str:
        """Ask the user by a call of `ask_user` within this call, and return the answer."""
        self._question_count += 1
        call_id = f"{self.id}{NESTED_QUESTION}{self._question_count}"
        if self._run_call is None or world.tool(ASK_USER) is None:
            raise ToolFailed("There is no user to ask in this session.")
        arguments = Raw(encode({"questions": [question]}))
        call = ToolCall(call_id, ASK_USER, arguments)
        key = key_of("ask", question.question)
        nested_call = NestedCallMade(call, self.id, key, n=self._question_count)
        result = await call_within(nested_call, world, self.record, self._run_call)
        if result.failed:
            raise ToolFailed(result.text)
        # The result of `ask_user` repeats the question before the answer.
        return result.text.removeprefix(f"{question.question}\n  ")

    async def _withdraw_question(self) -> None:
        """End the question that waits for an answer, if any.

        A question that is not asked yet ends as soon as it is asked.
        """
        call_id = f"{self.id}{NESTED_QUESTION}{self._question_count}"

        def make_events(view: View) -> tuple[Ended, ...]:
            """Return the end of the question; none if it is not asked yet, or answered
            already.
            """
            call = view.conversation.call(call_id)
            if call is None or call.stage != "asked" or call.result is not None:
                return ()
            return (Ended(call_id, "stopped", WITHDRAWN_QUESTION),)

        while (
            call := self.record.view.conversation.call(call_id)
        ) is not None and call.result is None:
            seq = self.record.view.seq
            if not await self.record.append_if(make_events, author="tool"):
                await self.record.wait_for_event(after=seq)

    def progress(self, text: str) -> None:
        """Publish output of the call, and remember the end of it."""
        self._tail = (self._tail + text)[-2_000:]
        self.record.publish(Progress(self.id, clean(text)))

    def end_as_stopped(self) -> Ended:
        output = f"\nThe last it printed:\n{self._tail}" if self._tail.strip() else ""
        escaped_output, _ = escape_tool_text(output)
        return Ended(self.id, "stopped", STOPPED_RESULT + escaped_output)


async def execute(
    open_call: OpenCall, world: World, record: Record, run_call: RunCall | None = None
) -> Ended:
    """Execute a call that has been started, and record its result.

    `run_call` runs calls that the tool makes within this one, such as a question to the user.
    """
    call = open_call.call
    unmasked, tool = record.unmask(call), world.tool(call.name)
    if unmasked is None or tool is None:
        end = Ended(call.id, "unknown", SECRET_NOT_KEPT)
        await record_end(end, record)
        return end
    running = RunningCall(call.id, record, run_call)
    end = Ended(call.id, "stopped", text="")  # stays if the call is cancelled
    access = None
    try:
        access = access_as_judged(open_call, unmasked, tool, world)
        end = await _execute(open_call, unmasked, tool, world, running)
    finally:  # also if the call is cancelled: its end must be recorded
        if end.outcome == "stopped":
            end = running.end_as_stopped()
        if running.outside:
            end = replace(end, outside=True)
        await record_end(end, record)
    files = [] if access is None else [target.real for target in access.files]
    await _update_instructions(open_call, end, files, world, record)
    return end


async def _update_instructions(
    open_call: OpenCall, end: Ended, files: Sequence[str], world: World, record: Record
) -> None:
    """Record the instructions in the folders of the call's files.

    If the user was shown changes to instructions and allowed them, they are approved, too.
    """
    if world.instructions is None or end.outcome != "done":
        return
    if files:
        known_files = [item.path for item in record.view.reminders.instructions]
        event = await world.instructions.instructions_below(files, known_files)
        if event is not None:
            await record(event, author="place")
    if not open_call.changes:
        return
    previewed = {change.path: change.after for change in open_call.changes}
    diffs = [part for part in end.shown if isinstance(part, Diff)]
    await world.instructions.approve(
        [diff for diff in diffs if previewed.get(diff.path) == diff.after]
    )


def refusal_text(reason: str) -> str:
    """Return the text for the model about a call that was not allowed."""
    reason = reason.rstrip(".")  # it is followed by more text in the same sentence
    return REFUSED_CALL.format(why=f": {reason}" if reason else "")


async def _execute(
    open_call: OpenCall, unmasked: ToolCall, tool: Tool, world: World, running: RunningCall
) -> Ended:
    """Execute the call, and return its end.

    The call is authorized again as late as possible, because a link or the mode may have
    changed.
    """
    record = running.record
    access = access_as_judged(open_call, unmasked, tool, world)
    if access is None:
        return Ended(unmasked.id, "failed", PATH_MOVED)
    decider = partial(world.prepared.decide, unmasked.id)
    parent = world.lineage.parent
    decision = judge(access, world, record.view, parent=parent, decider=decider)
    files: Files | None = None
    if world.files is not None:
        files = world.files.only([target.real for target in access.files])
    writes = _may_write(tool, decision)
    if writes and decision.verdict != "deny":
        editor_saved = bool(access.files) and await _save_editor_text(files, world)
        # Without a checkpoint of this response yet, the call is first tried in memory, because
        # one that fails needs no checkpoint. If it has `changes`, a preview has tried it.
        has_checkpoint = record.view.checkpoints.seq > open_call.called
        if not has_checkpoint and files is not None and not open_call.changes:
            dry_dependencies = _call_dependencies(
                open_call, files.dry_run(), decision, running, world
            )
            if end := await _fail_in_dry_run(unmasked, dry_dependencies, world, running):
                end = _share_with_tree(end, access, world, record)
                return _with_remarks(end, files)
        # A checkpoint of the response serves this call, too, unless it lacks the text that the
        # editor has just saved. 0: save one in any case.
        answer = 0 if editor_saved else open_call.called
        await save_before(unmasked, world, record, answer=answer)
        # The mode may have changed in the meantime.
        decision = judge(access, world, record.view, parent=parent, decider=decider)
    if end := denial(unmasked.id, decision):
        return end
    running.outside = tool.outside or access.network or decision.confines.network
    call_dependencies = _call_dependencies(open_call, files, decision, running, world)
    run = partial(run_tool, unmasked, tool, world, running, call_dependencies)
    try:
        end = await _run_with_edit_checks(run, access, world)
    finally:
        if writes:
            mark_files_changed(world)
    end = _share_with_tree(end, access, world, record)
    return _with_remarks(end, files)


async def _fail_in_dry_run(
    call: ToolCall,
    own_dependencies: Mapping[str, object],
    world: World,
    running: RunningCall,
) -> Ended | None:
    """Return the end of an edit that would fail; None if it would succeed or cannot be
    tried.
    """
    tool = world.tool(call.name)
    if tool is None or not tool.dry_run or world.snapshots is None:
        return None
    end = await run_tool(call, tool, world, running, own_dependencies)
    return end if end.outcome == "failed" else None


async def _run_with_edit_checks(
    run: Callable[[], Awaitable[Ended]], access: Access, world: World
) -> Ended:
    """Run the call, and return its end with the new problems in the changed files."""
    if world.edit_checks is None or access.effect is not Effect.CHANGE:
        return await run()
    find_problems = await world.edit_checks.begin([target.real for target in access.files])
    end = await run()
    if find_problems is None or end.outcome != "done":
        return end
    try:
        problems, _ = escape_tool_text(await find_problems())
    except anyio.get_cancelled_exc_class():
        return end  # the edit was made, and must be recorded
    if not problems:
        return end
    notes = map(Note, problems.splitlines())
    return replace(end, text=f"{end.text}\n{problems}", shown=(*end.shown, *notes))


async def _save_editor_text(files: Files | None, world: World) -> bool:
    """Have an editor save the call's files. Return whether the editor had unsaved changes."""
    if files is None or not await files.save_first():
        return False
    if world.snapshots is not None:
        world.snapshots.forget()  # the last snapshot may be from before the save
    return True


def _with_remarks(end: Ended, files: Files | None) -> Ended:
    """Return the end with an editor's remarks on the call's files, for the model and the
    user.
    """
    if files is None:
        return end
    remarks = [escape_tool_text(remark)[0] for remark in files.remarks()]
    if not remarks:
        return end
    text = "\n".join((end.text, *(f"({line})" for line in remarks)))
    return replace(end, text=text, shown=(*end.shown, *map(Note, remarks)))


def _share_with_tree(end: Ended, access: Access, world: World, record: Record) -> Ended:
    """Record which agent wrote the call's files, and return the end.

    If the call failed, the end names the other agents that wrote its files.
    """
    shared, own_address = world.lineage.shared, world.lineage.address
    for diff in end.shown:
        if isinstance(diff, Diff):
            shared.record_write(diff.path, diff.after, own_address)
    if end.outcome != "failed" or access.effect is not Effect.CHANGE:
        return end
    known = record.view.file_hashes.files
    notes = list[str]()
    for path in sorted({target.real for target in access.files}):
        if writer := shared.other_writer(path, known.get(path, ""), own_address):
            notes.append(CHANGED_MEANWHILE.format(who=writer, path=path))
    return replace(end, text=" ".join((end.text, *notes))) if notes else end


def denial(call_id: str, decision: Decision) -> Ended | None:
    """Return the end of a begun call that is forbidden now; None if it is allowed."""
    if decision.verdict != "deny":
        return None
    return Ended(call_id, "refused", refusal_text(decision.reason))


def access_as_judged(
    open_call: OpenCall, unmasked: ToolCall, tool: Tool, world: World
) -> Access | None:
    """Return what the call accesses.

    Return None if its paths are invalid, or if they now lead to other files than those that
    were judged.
    """
    try:
        resolved = world.prepared.resolve(unmasked, tool, world.facts())
    except ToolFailed:
        return None
    if open_call.hash and resolved.hash != open_call.hash:
        return None
    return resolved.access


def _may_write(tool: Tool, decision: Decision) -> bool:
    """Whether a call may write files: for a command, whether its sandbox lets it write."""
    if tool.effect is not Effect.RUN:
        return tool.effect is Effect.CHANGE
    is_command = tool.command is not None or tool.name in COMMAND_TOOLS
    return decision.confines.writes if is_command else not tool.is_confined()


def _judge_subject(
    tool: Tool, world: World, record: Record, subject: str, private: bool
) -> Decision:
    """Decide whether the tool may access another subject, such as the target of a redirect.

    `private`: the subject is a host with a private address.
    """
    access = Access(tool.name, tool.effect, subject, private=private)
    return judge(access, world, record.view, parent=world.lineage.parent)


async def _complete(world: World, record: Record, request: Request) -> Completion:
    """Call a model for a tool, and pay from the budget of the turn. Raises `ToolFailed`."""
    model = world.helper()
    request = replace(request, model=model.name.partition("/")[2])
    try:
        text = await ask_outside_conversation(
            request, "sampling", model, world.budget, record, world.lineage.grant
        )
    except ProviderError as error:
        raise ToolFailed(str(error)) from error
    return Completion(text, model.name)


def _call_dependencies(
    open_call: OpenCall,
    files: Files | None,
    decision: Decision,
    running: RunningCall,
    world: World,
) -> Mapping[str, object]:
    """Return the values, specific to this call, that a tool may request as parameters."""
    tool = world.tool(open_call.call.name)
    assert tool is not None  # a call of a missing tool is never started
    call_dependencies: dict[str, object] = {
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
        call_dependencies["files"] = files
    if world.commands is not None:
        call_dependencies["commands"] = world.commands
    return call_dependencies


def _partly_read_files(open_call: OpenCall, view: View) -> frozenset[str]:
    """Return the files that were read only in part, which the call must not overwrite.

    There are none if the user was shown the changes of the call, or if the model repeats a call
    that failed.
    """
    if open_call.changes or not view.file_hashes.unread:
        return frozenset()
    earlier_calls = (call for group in view.recent_calls.earlier for call in group.calls)
    arguments = open_call.call.arguments
    is_repetition = any(c.failed and c.call.arguments == arguments for c in earlier_calls)
    return frozenset() if is_repetition else view.file_hashes.unread


async def run_tool(
    call: ToolCall,
    tool: Tool,
    world: World,
    running: RunningCall,
    own_dependencies: Mapping[str, object],
) -> Ended:
    """Run the tool, and return the end of the call. A failure of the tool becomes a failed end.

    `own_dependencies` are the dependencies that are specific to this call.
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
        # The call may have had its effect before the connection was lost.
        is_unknown = isinstance(error, ConnectionLost) and tool.effect is not Effect.LOOK
        return replace(end, outcome="unknown") if is_unknown else end
    except Exception as error:  # a bug of the tool must not end the session
        reason = f"{type(error).__name__}: {error}"
        return await end_as_failed(call.id, reason, world, running.record)
