"""The seam: every tool call passes through this module, whatever implements the tool.

A call is a small state machine in the fold (called, judged, perhaps asked, started, ended), and
`run` continues it from any of these states. So the same code runs at the first attempt, after a
crash, and after a question has waited for days. Only this module handles permission, failures,
live output and the size of results. `decide` decides when calls run.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

import anyio
from msgspec.structs import replace

from refold.engine.answer_draft import HostedUse, unwrap_call
from refold.engine.authorize import judge
from refold.engine.call_ends import record_end
from refold.engine.call_results import end_as_done, end_as_failed
from refold.engine.change_preview import add_preview, question_to_preview
from refold.engine.execute import execute, refusal_text
from refold.engine.world import Record, World
from refold.errors import ToolFailed
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import Ended, Event, Judged, Started
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.tools.contract import Reply, Tool
from refold.values.messages import ToolCall
from refold.values.tools import Effect

NOBODY_TO_ASK = "no user is there to ask"
UNKNOWN_OUTCOME = "Interrupted. It may have taken effect: check before repeating it."
_CUT_OFF_RESULT = "The response was cut off before the result of this call came. It may have had its effect."


async def run_ready(world: World, record: Record) -> None:
    """Run every open call that does not wait for the user, all at the same time.

    A call that the user allows meanwhile is started, too. Changes to one file run one after
    the other, in the order of the calls.
    """
    open_calls = record.view.conversation.calls
    if len(open_calls) == 1 and _is_ready(open_calls[0]):
        # No other call can be started meanwhile.
        await run_with_file_locks(open_calls[0].call, world, record)
        return
    running_ids: set[str] = set()

    async def run_ready_call(ready_call: OpenCall) -> None:
        """Run a call, and end the task group below if no other call is running."""
        await run_with_file_locks(ready_call.call, world, record)
        # The call may only have asked the user; after the answer it runs again.
        running_ids.discard(ready_call.call.id)
        if not running_ids:
            group.cancel_scope.cancel()  # no call is left, so no other one can be started

    async with anyio.create_task_group() as group:
        while True:
            seq = record.view.seq
            for open_call in record.view.conversation.calls:
                if _is_ready(open_call) and open_call.call.id not in running_ids:
                    running_ids.add(open_call.call.id)
                    group.start_soon(run_ready_call, open_call)
            await record.wait_for_event(after=seq)


def _is_ready(open_call: OpenCall) -> bool:
    """Whether the call has no result yet, and does not wait for the user."""
    return open_call.result is None and open_call.stage != "asked"


async def run_with_file_locks(call: ToolCall, world: World, record: Record) -> None:
    """Run a call while it holds the locks of the files that it changes.

    All agents of the session tree share these locks.
    """
    async with AsyncExitStack() as locks:
        for file in _paths_to_lock(record.unmask(call) or call, world):
            await locks.enter_async_context(world.lineage.shared.lock(file))
        await run(call.id, world, record)


async def run(call_id: str, world: World, record: Record) -> None:
    """Run a call to its end, or to the point where it waits for the user."""
    while (
        open_call := record.view.conversation.call(call_id)
    ) and open_call.result is None:
        # In the journal, secrets in the arguments are masked.
        unmasked = record.unmask(open_call.call) or open_call.call
        match open_call.stage:
            case "called":
                if world.hooks is not None and await _run_next_hook(
                    open_call, unmasked, world, record
                ):
                    continue  # with the next hook, or with the call as the hook changed it
                opening = begin(unmasked, world, record.view)
                await _record_opening(unmasked, opening, world, record)
            case "allowed":
                world.facts().renew()  # time has passed since its question was asked
                opening = judge_again(open_call, unmasked, world, record.view)
                await _record_opening(unmasked, opening, world, record)
            case "denied":
                end = Ended(call_id, "refused", refusal_text(open_call.reason))
                await record_end(end, record)
            case "started":
                if was_interrupted(open_call, world, record):
                    end = Ended(call_id, "unknown", UNKNOWN_OUTCOME)
                    await record_end(end, record)
                    continue
                end = await execute(open_call, world, record, run_with_file_locks)
                if world.hooks is not None:
                    from refold.engine import run_hooks

                    await run_hooks.run_after_call(unmasked, end, world, record)
            case _:  # it waits for the user
                return
    world.prepared.drop(call_id)


def begin(call: ToolCall, world: World, view: View, approved_hash: str = "") -> list[Event]:
    """Judge a call. Return its verdict, and its start if no approval is needed.
    If the call cannot be run, return its end.

    A call that needs approval is denied if no user can be asked, unless its hash is
    `approved_hash`: the user has already approved that call.
    """
    tool = world.tool(call.name)
    # A call of `tool_call` names another tool in its arguments. If that tool exists, the call
    # was unwrapped before. So a call that is still wrapped names a missing tool.
    wanted_name = unwrap_call(call, reachable=lambda _: True).name
    if tool is None or wanted_name != call.name:
        explanation = world.explain_missing(wanted_name)
        if explanation:  # it may quote a server, whose text comes from outside
            return [Ended(call.id, "failed", explanation, outside=True)]
    if tool is None:
        names = ", ".join(world.tool_names) or "none"
        text = f"There is no tool {call.name!r}. The tools are: {names}."
        return [Ended(call.id, "failed", text)]
    try:
        judged = _judge_call(call, tool, world, view, approved_hash)
    except ToolFailed as error:  # invalid arguments or paths
        return [Ended(call.id, "failed", str(error))]
    return [judged, Started(call.id)] if judged.verdict == "allow" else [judged]


def begin_with_answer(call: ToolCall, world: World, view: View) -> list[Event]:
    """Return the events of a call that are recorded with the response that contains it.

    Return no events if hooks are configured, or if a preview must be made before the user is
    asked.
    """
    if world.hooks is not None:  # they run before the verdict
        return []
    opening = begin(call, world, view)
    return [] if question_to_preview(call, opening[0], world) else opening


def judge_again(
    open_call: OpenCall, unmasked: ToolCall, world: World, view: View
) -> list[Event]:
    """Judge an allowed call again, by the present rules and links, and return the events.

    The paths of the call may now lead to files that were never judged, or a rule may now forbid
    it. Otherwise the user's approval applies to this call.
    """
    opening = begin(unmasked, world, view, approved_hash=open_call.hash)
    judged = opening[0]
    if not isinstance(judged, Judged) or judged.verdict == "deny":
        return opening
    is_the_approved_call = judged.hash == open_call.hash
    return [Started(open_call.call.id)] if is_the_approved_call else opening


def must_sync(events: Sequence[Event], calls: Sequence[ToolCall], world: World) -> bool:
    """Whether these events must be on the disk before the call continues.

    They must be if they contain the start of a call that may change something, or a question to
    the user.
    """
    effects = {call.id: _effect(call, world) for call in calls}
    for event in events:
        if isinstance(event, Started):
            effect = effects.get(event.call_id)
            if effect is None or not effect.repeatable:
                return True
        elif isinstance(event, Judged) and event.verdict == "ask":
            return True
    return False


def was_interrupted(open_call: OpenCall, world: World, record: Record) -> bool:
    """Whether a crash interrupted this call, so that it must not be executed again.

    A call that only reads may be repeated.
    """
    was_started_by_this_process = open_call.started > record.since
    if was_started_by_this_process:
        return False
    effect = _effect(open_call.call, world)
    return effect is None or not effect.repeatable


def end_unexecuted(open_call: OpenCall, reason: str, world: World, record: Record) -> Ended:
    """Return the end of a call that is not executed, for this `reason`.

    If a crash interrupted the call, its end says that it may have taken effect.
    """
    world.prepared.drop(open_call.call.id)
    if open_call.stage == "started" and was_interrupted(open_call, world, record):
        return Ended(open_call.call.id, "unknown", UNKNOWN_OUTCOME)
    return Ended(open_call.call.id, "stopped", f"Not done: {reason}.")


async def _record_opening(
    call: ToolCall, opening: Sequence[Event], world: World, record: Record
) -> None:
    """Record the events that `begin` returned for a call.

    If the events ask the user, a preview is added.
    """
    question = question_to_preview(call, opening[0], world)
    if question is None:
        await record(*opening, kept=must_sync(opening, (call,), world), author="rules")
    else:
        async with world.prepared.in_order:  # questions appear in the order of the calls
            event = await add_preview(call, question, world, record)
            await record(event, kept=must_sync((event,), (call,), world), author="rules")
    if world.hooks is not None:
        await _notify(call, opening[0], world, record)


async def _notify(call: ToolCall, opening: Event, world: World, record: Record) -> None:
    """Run the hooks for a question if `opening` asks the user."""
    from refold.engine import run_hooks

    if isinstance(opening, Judged) and opening.verdict == "ask":
        await run_hooks.notify_question(call, world, record)


async def _run_next_hook(
    open_call: OpenCall, unmasked: ToolCall, world: World, record: Record
) -> bool:
    """Run the next hook before a call. Return False if there is no such hook."""
    from refold.engine import run_hooks  # imported late: few sessions have hooks

    return await run_hooks.run_before_call(open_call, unmasked, world, record)


def _judge_call(
    call: ToolCall, tool: Tool, world: World, view: View, approved_hash: str
) -> Judged:
    """Return the verdict on a call, by rules, hooks, and whether a user can be asked."""
    resolved = world.prepared.resolve(call, tool, world.facts())
    decider = partial(world.prepared.decide, call.id)
    decision = judge(
        resolved.access, world, view, parent=world.lineage.parent, decider=decider
    )
    recorded_call = view.conversation.call(call.id)
    if recorded_call is not None and recorded_call.hooks:
        from refold.engine.run_hooks import with_hooks

        decision = with_hooks(decision, recorded_call.hooks)
    verdict, reason = decision.verdict, decision.reason
    is_approved = resolved.hash == approved_hash
    if verdict == "ask" and not world.attended and not is_approved:
        verdict, reason = "deny", f"{reason}, and {NOBODY_TO_ASK}"
    files = resolved.access.files
    return Judged(
        call.id,
        verdict,
        rule=decision.rule,
        reason=reason,
        real_path=files[0].real if files else "",
        source=decision.source,
        once=decision.once,
        hash=resolved.hash,
        outside=verdict == "ask" and decision.outside,
    )


def _effect(call: ToolCall, world: World) -> Effect | None:
    tool = world.tool(call.name)
    return tool.effect if tool else None


def _paths_to_lock(call: ToolCall, world: World) -> Sequence[str]:
    """Return the real paths of the files that a call changes, sorted.

    The files are locked while the call runs.
    """
    tool = world.tool(call.name)
    if tool is None or tool.effect is not Effect.CHANGE:
        return ()
    try:
        resolved = world.prepared.resolve(call, tool, world.facts())
    except ToolFailed:
        return ()
    return sorted({target.real for target in resolved.access.files})


async def record_hosted(
    uses: tuple[HostedUse, ...], world: World, record: Record
) -> tuple[Event, ...]:
    """Return the events of the calls that a provider executed itself, in their order.

    refold does not judge or start these calls: the user has let the provider connect to a
    server (`app.remote_servers`). Each call is recorded at once with its result, and its text
    counts as text from outside. The response contains what the provider needs of these calls in
    later requests.
    """
    events: list[Event] = []
    for number, use in enumerate(uses):
        id_ = f"hosted-{record.view.seq}-{number}"
        call = ToolCall(id_, use.name, use.arguments)
        events.append(NestedCallMade(call, parent_call=""))  # within no other call
        events.append(await _end_hosted(id_, use, world, record))
    return tuple(events)


async def _end_hosted(id_: str, use: HostedUse, world: World, record: Record) -> Ended:
    """Return the end of a call that the provider executed; "unknown" if it has no result."""
    if use.result is None:
        return Ended(id_, "unknown", _CUT_OFF_RESULT)
    if use.result.failed:
        end = await end_as_failed(id_, use.result.text or "It failed.", world, record)
    else:
        end = await end_as_done(id_, Reply(use.result.text), world, record)
    return replace(end, outside=True)
