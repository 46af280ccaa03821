"""The seam: every tool call goes through here, whatever is behind it.

A call is a small state machine in the fold (called, judged, perhaps asked, started, ended),
and `run` continues it from any of these states. So recovering from a crash, or continuing
after a question has waited for days, is the same code as the first run. Permission,
failures, live output and the size of results are handled here once. `decide` decides when
calls run.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

import anyio
from msgspec.structs import replace

from refold.engine.answer_draft import HostedUse, unwrap_call
from refold.engine.authorize import judge
from refold.engine.change_preview import add_preview, question_to_preview
from refold.engine.execute import end_as_done, end_as_failed, execute, refusal_text
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

    A call that the user allows meanwhile joins in. Changes to one file run one after the
    other, in the order of the calls.
    """
    match record.view.conversation.calls:
        case (only,) if only.result is None and only.stage != "asked":
            await run_with_file_locks(only.call, world, record)  # no other call can join it
            return
        case _:
            pass
    taken: set[str] = set()
    running = 0

    async def take(ready_call: OpenCall) -> None:
        nonlocal running
        await run_with_file_locks(ready_call.call, world, record)
        running -= 1
        taken.discard(ready_call.call.id)  # after a question it is run again
        if not running:
            group.cancel_scope.cancel()  # no call is left that another could join

    async with anyio.create_task_group() as group:
        while True:
            seq = record.view.seq
            for open_call in record.view.conversation.calls:
                waits = open_call.result is not None or open_call.stage == "asked"
                if not waits and open_call.call.id not in taken:
                    taken.add(open_call.call.id)
                    running += 1
                    group.start_soon(take, open_call)
            await record.wait_for_event(after=seq)


async def run_with_file_locks(call: ToolCall, world: World, record: Record) -> None:
    """Run a call, with the locks of the files that it changes held in the whole tree."""
    async with AsyncExitStack() as locks:
        for file in _paths_to_lock(record.unmask(call) or call, world):
            await locks.enter_async_context(world.lineage.shared.lock(file))
        await run(call.id, world, record)


async def run(call_id: str, world: World, record: Record) -> None:
    """Take a call to its end, or to the point where it waits for the user."""
    while (
        open_call := record.view.conversation.call(call_id)
    ) and open_call.result is None:
        whole = record.unmask(open_call.call) or open_call.call
        match open_call.stage:
            case "called" if world.hooks and await _run_next_hook(
                open_call, whole, world, record
            ):
                pass  # continue with the next hook, or with the changed call
            case "called":
                await _record_opening(
                    whole, begin(whole, world, record.view), world, record
                )
            case "allowed":
                world.facts().renew()  # its question waited for an answer
                opening = judge_again(open_call, whole, world, record.view)
                await _record_opening(whole, opening, world, record)
            case "denied":
                await record(Ended(call_id, "refused", refusal_text(open_call.reason)))
            case "started" if was_interrupted(open_call, world, record):
                await record(Ended(call_id, "unknown", UNKNOWN_OUTCOME))
            case "started":
                end = await execute(open_call, world, record, run_with_file_locks)
                if world.hooks:
                    from refold.engine import run_hooks

                    await run_hooks.run_after_call(whole, end, world, record)
            case _:
                return
    world.prepared.drop(call_id)


def begin(call: ToolCall, world: World, view: View) -> list[Event]:
    """Judge a call, and start it if no approval is needed."""
    tool, wanted = world.tool(call.name), unwrap_call(call, lambda _: True).name
    if tool is None or wanted != call.name:
        names = ", ".join(world.tool_names) or "none"
        text = f"There is no tool {call.name!r}. The tools are: {names}."
        why = world.explain_missing(wanted)  # it may quote a server
        if tool is None or why:
            return [Ended(call.id, "failed", why or text, outside=bool(why))]
    try:
        judged = _judge_call(call, tool, world, view)
    except ToolFailed as error:  # invalid arguments or paths
        return [Ended(call.id, "failed", str(error))]
    return [judged, Started(call.id)] if judged.verdict == "allow" else [judged]


def begin_with_answer(call: ToolCall, world: World, view: View) -> list[Event]:
    """The events that are recorded together with the response that makes the call.

    Empty if a preview has to be made before the user is asked, or if there are hooks.
    """
    if world.hooks is not None:  # they run before the verdict
        return []
    opening = begin(call, world, view)
    return [] if question_to_preview(call, opening[0], world) else opening


def judge_again(
    open_call: OpenCall, whole: ToolCall, world: World, view: View
) -> list[Event]:
    """Judge an allowed call again, by what holds now.

    Its paths may lead to files that were never judged, or a rule may forbid it by now.
    Otherwise the user's approval counts, this once.
    """
    opening = begin(whole, world, view)
    match opening[0]:
        case Judged(verdict=verdict, hash=hash_) if (
            verdict != "deny" and hash_ == open_call.hash
        ):
            return [Started(open_call.call.id)]
        case _:
            return opening


def must_sync(events: Sequence[Event], calls: Sequence[ToolCall], world: World) -> bool:
    """Whether these events must be on the disk before the call continues.

    The start of a call that may change something must be, and a question before the user
    sees it.
    """
    safe = {c.id for c in calls if (e := _effect(c, world)) and e.repeatable}
    return any(
        (isinstance(e, Started) and e.call_id not in safe)
        or (isinstance(e, Judged) and e.verdict == "ask")
        for e in events
    )


def was_interrupted(open_call: OpenCall, world: World, record: Record) -> bool:
    """Whether a writer that died started this call, and it must not be repeated."""
    is_own = open_call.started > record.since
    effect = _effect(open_call.call, world)
    return not is_own and not (effect and effect.repeatable)


def end_unexecuted(open_call: OpenCall, reason: str, world: World, record: Record) -> Ended:
    """The end of a call that will not be executed, or not again."""
    world.prepared.drop(open_call.call.id)
    if open_call.stage == "started" and was_interrupted(open_call, world, record):
        return Ended(open_call.call.id, "unknown", UNKNOWN_OUTCOME)
    return Ended(open_call.call.id, "stopped", f"Not done: {reason}.")


async def _record_opening(
    call: ToolCall, opening: Sequence[Event], world: World, record: Record
) -> None:
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
    from refold.engine import run_hooks

    if isinstance(opening, Judged) and opening.verdict == "ask":
        await run_hooks.notify_question(call, world, record)


async def _run_next_hook(
    open_call: OpenCall, whole: ToolCall, world: World, record: Record
) -> bool:
    from refold.engine import run_hooks  # few sessions have hooks

    return await run_hooks.run_before_call(open_call, whole, world, record)


def _judge_call(call: ToolCall, tool: Tool, world: World, view: View) -> Judged:
    resolved = world.prepared.resolve(call, tool, world.facts())
    by = partial(world.prepared.decide, call.id)
    decision = judge(resolved.access, world, view, parent=world.lineage.parent, decider=by)
    if (known := view.conversation.call(call.id)) and known.hooks:
        from refold.engine.run_hooks import with_hooks

        decision = with_hooks(decision, known.hooks)
    verdict, reason = decision.verdict, decision.reason
    if verdict == "ask" and not world.attended:
        verdict, reason = "deny", f"{reason}, and {NOBODY_TO_ASK}"
    return Judged(
        call.id,
        verdict,
        decision.rule,
        reason,
        resolved.access.files[0].real if resolved.access.files else "",
        decision.source,
        decision.once,
        resolved.hash,
        outside=verdict == "ask" and decision.outside,
    )


def _effect(call: ToolCall, world: World) -> Effect | None:
    tool = world.tool(call.name)
    return tool.effect if tool else None


def _paths_to_lock(call: ToolCall, world: World) -> Sequence[str]:
    """The files that a call changes, sorted: each is locked while it runs."""
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
    """The events of the calls that a provider made itself, while it answered; in their order.

    They are not judged here and were not started here: the user has handed their server over
    to the provider (`app.remote_servers`). So each is recorded with its result at once, as a call
    within the turn, and its text counts as text from outside. What the provider wants to read
    of it again is in the response.
    """
    events: list[Event] = []
    for number, use in enumerate(uses):
        id_ = f"hosted-{record.view.seq}-{number}"
        call = ToolCall(id_, use.name, use.arguments)
        events += NestedCallMade(call, ""), await _end_hosted(id_, use, world, record)
    return tuple(events)


async def _end_hosted(id_: str, use: HostedUse, world: World, record: Record) -> Ended:
    if use.result is None:
        return Ended(id_, "unknown", _CUT_OFF_RESULT)
    if use.result.failed:
        end = await end_as_failed(id_, use.result.text or "It failed.", world, record)
    else:
        end = await end_as_done(id_, Reply(use.result.text), world, record)
    return replace(end, outside=True)
