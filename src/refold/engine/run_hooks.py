"""Runs the user's hooks for the events of a session, and records their outcomes.

A hook may refuse a call, have the user asked, add text for the model, or change the arguments
of a call, which is then judged as if the model had made it so. A hook can only make a decision
stricter: `with_hooks` cannot turn deny or ask into allow. The end of each hook is recorded
before the next hook runs, so that a resumed session runs no hook twice. `world.Hooks` hides
what a hook is and how it is started; `policies.hooked_turn` decides when the hooks of a turn
are due.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from refold.engine.authorize import effective_mode
from refold.engine.checkpoint import mark_files_changed
from refold.engine.decide import RunHook
from refold.engine.world import Record, World
from refold.hooks.tool_names import arguments_from_hook, input_for_hook, name_for_hook
from refold.journal.events.child_events import HookRan
from refold.journal.events.kinds import Ended, Event, Stopped
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.permissions.facts import Decision
from refold.values.messages import ToolCall
from refold.values.modes import Mode

if TYPE_CHECKING:
    from refold.hooks.answers import HookAnswer
    from refold.hooks.configuration import Hook

_BLOCK_OF_RESULT = "A hook about the result of {tool} (`{hook}`): {reason}"
_INPUT_CHANGED = "A hook (`{hook}`) has changed the input of your call {tool}. It was called with: {input}"
_MODE_NAMES: Mapping[Mode, str] = {
    "accept-edits": "acceptEdits",
    "bypass": "bypassPermissions",
    "rules-only": "rulesOnly",
}
_MANUAL_TRIGGER = "manual"


async def run_before_call(
    open_call: OpenCall, unmasked: ToolCall, world: World, record: Record
) -> bool:
    """Run the next PreToolUse hook of this call. Return whether a hook was run.

    No hook is run if none is left, or if one has refused the call.
    """
    arguments = _arguments_object(unmasked)
    if world.hooks is None or world.tool(unmasked.name) is None or arguments is None:
        return False
    if any(hook_run.outcome == "blocked" for hook_run in open_call.hooks):
        return False
    keys_of_run_hooks = {hook_run.key for hook_run in open_call.hooks}
    for hook in world.hooks.hooks_for("PreToolUse", unmasked.name):
        if hook.key not in keys_of_run_hooks:
            fields = _call_fields(unmasked, arguments)
            await _run_hook(hook, fields, world, record, call=unmasked)
            return True
    return False


def with_hooks(decision: Decision, hooks: Sequence[HookRan]) -> Decision:
    """Return the decision, made at least as strict as the strictest of these hooks requires."""
    for hook_run in hooks:
        if hook_run.outcome == "blocked" and decision.verdict != "deny":
            decision = _apply_hook(replace(decision, verdict="deny"), hook_run)
        elif hook_run.asks and decision.verdict == "allow":
            decision = _apply_hook(replace(decision, verdict="ask", once=True), hook_run)
    return decision


async def run_after_call(call: ToolCall, end: Ended, world: World, record: Record) -> None:
    """Run the PostToolUse hooks of a call that is done or failed. Its result is recorded
    already.
    """
    arguments = _arguments_object(call)
    if world.hooks is None or end.outcome not in ("done", "failed") or arguments is None:
        return
    response = {"text": end.text, "success": end.outcome == "done"}
    fields = {**_call_fields(call, arguments), "tool_response": response}
    for hook in world.hooks.hooks_for("PostToolUse", call.name):
        await _run_hook(hook, fields, world, record, call=call)


async def notify_question(call: ToolCall, world: World, record: Record) -> None:
    """Run the Notification hooks, because the user is asked about this call."""
    if world.hooks is None:
        return
    message = f"refold needs your permission to use {name_for_hook(call.name)}"
    fields = {"message": message, "notification_type": "permission_prompt"}
    for hook in world.hooks.hooks_for("Notification", "permission_prompt"):
        await _run_hook(hook, fields, world, record, call=call)


async def run_before_compaction(
    asked: bool, focus: str, world: World, record: Record
) -> bool:
    """Run the PreCompact hooks. Return whether one blocks the compaction.

    A compaction that was not `asked` for cannot be blocked: the session could not continue.
    """
    if world.hooks is None:
        return False
    trigger = _MANUAL_TRIGGER if asked else "auto"
    fields = {"trigger": trigger, "custom_instructions": focus}
    is_blocked = False
    for hook in world.hooks.hooks_for("PreCompact", trigger):
        hook_run = await _run_hook(hook, fields, world, record)
        if hook_run.outcome == "blocked":
            is_blocked = True
    return is_blocked and asked


async def run_session_end(world: World, record: Record) -> None:
    """Run the hooks of SessionEnd."""
    if world.hooks is None:
        return
    for hook in world.hooks.hooks_for("SessionEnd", "other"):
        await _run_hook(hook, {"reason": "other"}, world, record)


async def run_due(action: RunHook, world: World, record: Record) -> None:
    """Run the next hook of the hook event that a policy proposed in `action`."""
    if world.hooks is None:
        return
    view = record.view
    for hook in world.hooks.hooks_for(action.on, *action.names):
        if (action.on, action.about, hook.key) not in view.hook_runs.ran:
            fields = _turn_fields(view, action)
            await _run_hook(hook, fields, world, record, about_seq=action.about)
            return


def _turn_fields(view: View, action: RunHook) -> Mapping[str, object]:
    """Return what a hook of a turn gets besides the fields that every hook gets."""
    match action.on:
        case "SessionStart":
            model = view.conversation.system_prompt.model
            source, _ = view.hook_runs.began
            return {"source": source, "model": model}
        case "UserPromptSubmit":
            waiting = view.conversation.undelivered
            return {"prompt": next(w.said.text for w in waiting if w.seq == action.about)}
        case _:  # the end of the turn: Stop or SubagentStop
            return {
                "stop_hook_active": view.hook_runs.active,
                "last_assistant_message": view.turn.answer,
            }


async def _run_hook(
    hook: "Hook",
    event_fields: Mapping[str, object],
    world: World,
    record: Record,
    *,
    call: ToolCall | None = None,
    about_seq: int = 0,
) -> HookRan:
    """Run one hook. Record its end, and the stop that it requests, if any.

    `event_fields` are the fields of the hook's input that depend on its event. `about_seq` is
    the number of the event that the hook concerns; 0: none.
    """
    assert world.hooks is not None  # the caller has found the hook in `world.hooks`
    view = record.view
    began = time.monotonic()
    document = {
        "session_id": view.session.id,
        "cwd": view.session.directory,
        "permission_mode": _mode(world, view),
        "hook_event_name": hook.on,
        "agent": world.lineage.address,
        "agent_type": world.prompt.agent,
        **event_fields,
    }
    try:
        answer = await world.hooks.run(hook, document)
    finally:
        mark_files_changed(world)
    hook_run = _to_event(hook, answer, call, about_seq, time.monotonic() - began)

    def make_events(view: View) -> tuple[Event, ...]:
        """Return the hook's run, and a stop if the hook wants one while a turn runs."""
        can_stop_turn = view.turn.seq != 0 and view.turn.stopped is None
        if not answer.stop or not can_stop_turn:
            return (hook_run,)
        stop = Stopped(f"the hook `{hook.name}` stopped it: {answer.reason}")
        return (hook_run, stop)

    await record.append_if(make_events, author="hook")
    return hook_run


def _to_event(
    hook: "Hook",
    answer: "HookAnswer",
    call: ToolCall | None,
    about_seq: int,
    seconds: float,
) -> HookRan:
    """Return the event for a hook that has run.

    Its `context` has the text of the hook for the model, a note if the hook changed the
    arguments of the `call`, and a note if it blocked the result of that call.
    """
    notes = [answer.context]
    arguments = Raw(b"null")
    if call is not None and answer.arguments is not None:
        old_arguments = _arguments_object(call) or {}
        new_arguments = arguments_from_hook(call.name, old_arguments, answer.arguments)
        arguments = Raw(encode(new_arguments))
        shown = json.dumps(new_arguments, ensure_ascii=False)
        notes.append(_INPUT_CHANGED.format(hook=hook.name, tool=call.name, input=shown))
    if call is not None and hook.on == "PostToolUse" and answer.outcome == "blocked":
        block = _BLOCK_OF_RESULT.format(
            tool=call.name, hook=hook.name, reason=answer.reason
        )
        notes.append(block)
    return HookRan(
        hook.on,
        hook.name,
        hook.key,
        about=about_seq,
        call_id=call.id if call else "",
        outcome=answer.outcome,
        reason=answer.reason,
        asks=answer.asks,
        context="\n".join(filter(None, notes)),
        arguments=arguments,
        notice=answer.notice,
        seconds=round(seconds, 3),
        by_failure=answer.by_failure,
        attempts=answer.attempts,
    )


def _apply_hook(decision: Decision, hook_run: HookRan) -> Decision:
    """Return the decision as made by this hook, with the hook's reason."""
    reason = f"the hook `{hook_run.hook}`"
    if hook_run.reason:
        reason = f"{reason}: {hook_run.reason}"
    return replace(decision, rule=f"hook {hook_run.hook}", source="hooks", reason=reason)


def _call_fields(call: ToolCall, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the fields about a call for a hook. `tool` is refold's own name of the tool."""
    return {
        "tool_name": name_for_hook(call.name),
        "tool_input": input_for_hook(call.name, arguments),
        "tool_use_id": call.id,
        "tool": call.name,
    }


def _mode(world: World, view: View) -> str:
    mode = effective_mode(world, view, world.lineage.parent)
    return _MODE_NAMES.get(mode, mode)


def _arguments_object(call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments of a call; None if they are not an object, which its tool refuses."""
    try:
        arguments = json.loads(bytes(call.arguments))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None
